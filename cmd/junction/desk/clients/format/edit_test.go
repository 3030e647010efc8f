package format

import (
	"bytes"
	"strings"
	"testing"
)

// TestEditChangesOneServerAlone: an edit that changes anything else, or not what it was to change, is
// refused, and so is one whose result is no valid file.
func TestEditChangesOneServerAlone(t *testing.T) {
	const json = `{"s":{"a":{"x":1},"b":{"y":2}},"other":[1]}`
	const toml = "other = 1\n[s.a]\nx = 1\n[s.b]\ny = 2\n"
	for _, row := range []struct {
		name   string
		format Format
		text   string
		want   map[string]any // of the server a; nil: it is gone
		from   string         // is replaced by to
		to     string
		ok     bool
	}{
		{"removes it", JSON{}, json, nil, `"a":{"x":1},`, "", true},
		{"changes it", JSON{}, json, map[string]any{"x": "new"}, `{"x":1}`, `{"x":"new"}`, true},
		{"changes its space", JSON{}, json, map[string]any{"x": "new"}, `{"x":1}`, `{ "x" : "new" }`, true},
		{"removes another one", JSON{}, json, nil, `,"b":{"y":2}`, "", false},
		{"removes both", JSON{}, json, nil, `"a":{"x":1},"b":{"y":2}`, "", false},
		{"changes another key", JSON{}, json, nil, `"a":{"x":1},"b":{"y":2}},"other":[1]`, `"b":{"y":2}},"other":[2]`, false},
		{"changes nothing", JSON{}, json, nil, "{", "{", false},
		{"breaks the file", JSON{}, json, nil, `}`, "", false},
		{"removes it", TOML{}, toml, nil, "[s.a]\nx = 1\n", "", true},
		{"removes both", TOML{}, toml, nil, "[s.a]\nx = 1\n[s.b]\ny = 2\n", "", false},
		{"changes another key", TOML{}, toml, nil, "other = 1\n[s.a]\nx = 1\n", "other = 2\n", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := edit(row.format, []byte(byteOrderMark+row.text), []string{"s"}, "a", row.want,
				func(body []byte) ([]byte, error) {
					return bytes.Replace(body, []byte(row.from), []byte(row.to), 1), nil
				})
			if (err == nil) != row.ok {
				t.Fatalf("edit = %q, %v; want success: %t", got, err, row.ok)
			}
			if row.ok && string(got) != byteOrderMark+strings.Replace(row.text, row.from, row.to, 1) {
				t.Errorf("edit = %q", got)
			}
		})
	}
}
