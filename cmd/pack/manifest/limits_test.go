package manifest

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"junction/upstream/yamlread"
)

// SetKinds sets the kinds of the tests. The table is in package pack, which imports this package.
func SetKinds(kinds Kinds) { all = kinds }

// madeUp is the value of a kind that only this test has, and that needs no limit of its own.
type madeUp string

func (*madeUp) Check(*Checker)                    {}
func (*madeUp) Uses(func(string, []string, bool)) {}

// TestLimitOfAnotherKind: a limit that the kind of a tool does not use is a mistake of the tool. As a
// default for the tools of the manifest it is none.
func TestLimitOfAnotherKind(t *testing.T) {
	text := &Kind{Key: "made_up", Example: "made_up: hello", Tools: "made-up tools", New: func(*Tool) Action { return new(madeUp) }}
	for _, tt := range []struct{ limits, want string }{
		{"timeout: 3s, concurrency: 2", ""},
		{"retries: 3", "tools.a.retries: is not for made-up tools; remove it"},
		{"cut: true, max_output: 1KiB", "tools.a.cut: is not for made-up tools; remove it, tools.a.max_output: is not for made-up tools; remove it"},
	} {
		_, d := parse("pack.yaml", []byte("defaults: { retries: 1, cut: true }\ntools:\n  a: { description: d, made_up: x, "+tt.limits+" }\n"),
			Options{kinds: append(slices.Clone(all), text)}, allFiles())
		var got []string
		for _, p := range d.Problems {
			got = append(got, p.Path+": "+p.Text)
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("%s: %q, want %q", tt.limits, got, tt.want)
		}
	}
}

// TestToolThatTakesNoArguments: a parameter of a tool whose kind puts no arguments into its value is a mistake,
// and the advice is not to place it.
func TestToolThatTakesNoArguments(t *testing.T) {
	text := &Kind{Key: "made_up", Example: "made_up: hello", Tools: "made-up tools", New: func(*Tool) Action { return new(madeUp) }}
	for manifest, want := range map[string]string{
		"made_up: x":          "tools.a.parameters.p: is not used, because made-up tools take no arguments; remove it",
		"prompt: { text: x }": "tools.a.parameters.p: is not used; write {{p}} where the value belongs, or remove it",
		"command: []":         `tools.a.command: must be a list with the program and its arguments, such as [grep, -n, --, "{{text}}"], not a list`,
	} {
		_, d := parse("pack.yaml", []byte("tools: { a: { description: d, parameters: { p: a }, "+manifest+" } }\n"),
			Options{kinds: append(slices.Clone(all), text)}, allFiles())
		if len(d.Problems) != 1 || d.Problems[0].Path+": "+d.Problems[0].Text != want {
			t.Errorf("%s: %q, want %q", manifest, d.Problems, want)
		}
	}
}

// TestEachLimitBelongsToAKind: a limit is for the tools of every kind, or a row names it; and a row names
// no other key.
func TestEachLimitBelongsToAKind(t *testing.T) {
	keys := yamlread.Keys(reflect.TypeFor[Limits]())
	for key, index := range keys {
		field := reflect.TypeFor[Limits]().FieldByIndex(index)
		if m := yamlread.Measure(field.Tag.Get("measure")); !yamlread.MeasureFits(field.Type, m) {
			t.Errorf("the limit %s has the tag measure %q: write what it counts (yamlread.Measure), because junction check compares it "+
				"with the limits of an upstream", key, m)
		}
		if !slices.ContainsFunc(all, func(k *Kind) bool { return k.HasLimit(key) }) {
			t.Errorf("no kind of tool has the limit %s: name it in the Limits of the kinds that use it", key)
		}
	}
	for _, kind := range all {
		for _, key := range kind.Limits {
			if keys[key] == nil || slices.Contains(commonLimits, key) {
				t.Errorf("the kind %s names %s, which is no limit of its own", kind.Key, key)
			}
		}
	}
}
