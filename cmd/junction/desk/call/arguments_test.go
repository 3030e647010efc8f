package call

import (
	"encoding/json"
	"strings"
	"testing"

	"junction/upstream/prose"
)

// TestToolShowsTheItemsOfArrays: a person sees what an array has, also behind alternatives and references. A schema
// that refers to itself ends.
func TestToolShowsTheItemsOfArrays(t *testing.T) {
	schema := `{"type":"object","required":["pairs"],"$defs":{"node":{"type":"array","items":{"$ref":"#/$defs/node"}}},"properties":{
		"words":{"type":"array","items":{"type":"string"},"description":"Some words"},
		"pairs":{"type":"array","items":{"type":"object","properties":{"name":{},"content":{}}}},
		"maybe":{"anyOf":[{"type":"array","items":{"type":["integer","null"]}},{"type":"null"}]},
		"matrix":{"type":"array","items":{"type":"array","items":{"type":"number"}}},
		"bare":{"type":"array"},
		"node":{"$ref":"#/$defs/node"}}}`
	text := toolText(&prose.Page{}, listedTool{name: "x", schema: json.RawMessage(schema)})
	for _, want := range []string{"words (array of string): Some words\n", "pairs (array of object with content, name, required)\n",
		"maybe (array of integer or null, null)\n", "matrix (array of array of number)\n", "bare (array)\n", "node (array of array"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
