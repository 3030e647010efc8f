package definition

import (
	"slices"
	"strings"
	"testing"

	"junction/upstream/raw"
)

// TestRequires: capabilities that cannot be read become one that no caller has.
func TestRequires(t *testing.T) {
	none := []string{NoCapability}
	for meta, want := range map[string][]string{
		`{}`:           nil,
		`{"other": 1}`: nil,
		`{"junction/capabilities": ["a", "b:c"]}`:                            {"a", "b:c"},
		`{"junction/capabilities": []}`:                                      {},
		`{"junction/capabilities": "a"}`:                                     none,
		`{"junction/capabilities": null}`:                                    none,
		`{"junction/capabilities": [1]}`:                                     none,
		`{"junction/capabilities": [""]}`:                                    none,
		`{"junction/capabilities": ["a"], "junction/capabilities": []}`:      none,
		`{"junction/capabilities": ["` + strings.Repeat("x", 65) + `"]}`:     none,
		`{"junction/capabilities": [` + strings.Repeat(`"x",`, 32) + `"x"]}`: none,
	} {
		o, err := raw.Parse([]byte(`{"name": "x", "_meta": ` + meta + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if got := Requires(o); !slices.Equal(got, want) {
			t.Errorf("%s requires %q, want %q", meta, got, want)
		}
	}
}
