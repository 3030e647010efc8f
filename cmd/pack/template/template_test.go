package template

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func TestTemplate(t *testing.T) {
	values := map[string]any{"a": "x{{b}}", "b": json.Number("12345678901234567890"), "list": []any{"1", "2"},
		"object": map[string]any{"k": "<"}, "no": false}
	for source, want := range map[string]string{
		"":                           "",
		"plain {x} {{ {{.Names}} }}": "plain {x} {{ {{.Names}} }}",
		"{{a}}-{{ b }}":              "x{{b}}-12345678901234567890", // a value is not parsed
		`\{{a}}`:                     "{{a}}",
		"{{missing}}.":               ".",
		"{{object}}{{no}}":           `{"k":"<"}false`,
		"{{list}} {{list...}}":       `["1","2"] 1,2`,
	} {
		if got := Parse(source).Text(values, nil); got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
	if got := Parse("-f{{list...}}").Each(values); !slices.Equal(got, []string{"-f1", "-f2"}) {
		t.Errorf("each: %q", got)
	}
	if got := Parse("{{a}}").Text(values, strings.ToUpper); got != "X{{B}}" {
		t.Errorf("encoded: %q", got)
	}
}

// FuzzTemplate: what is no placeholder stays as it is, and a value appears where its placeholder was.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"", "a", "{{a}}", `\{{a}}`, "{{{a}}}", "{{a...}}", "{{ a }} {{.b}}", `\\{{a}}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p := Parse(s)
		values := map[string]any{}
		for _, name := range p.Names() {
			values[name] = "value"
		}
		if got, want := len(p.Text(values, nil)), len(p.Text(nil, nil))+len("value")*len(p.Names()); got != want {
			t.Errorf("%q has %q, and %d bytes with values, want %d", s, p.Names(), got, want)
		}
		if len(p.Names()) == 0 && !strings.Contains(s, `\{{`) && p.Text(nil, nil) != s {
			t.Errorf("%q became %q", s, p.Text(nil, nil))
		}
	})
}
