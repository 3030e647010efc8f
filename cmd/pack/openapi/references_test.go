package openapi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReferencesThatMultiply: each level of references doubles what the library copies. Such a document
// is refused before its references are followed, also if the reference is written in another way.
func TestReferencesThatMultiply(t *testing.T) {
	const head = "openapi: 3.0.0\ninfo: {title: x, version: x}\nservers: [{url: 'https://a.example'}]\n"
	levels := func(n int, prefix, key, to string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%sS%d: {allOf: [{%s: '%sS%d'}, {%s: '%sS%d'}]}\n", prefix, i, key, to, i+1, key, to, i+1)
		}
		return fmt.Sprintf("%s%sS%d: {type: string}\n", b.String(), prefix, n)
	}
	from := func(ref string) string {
		return head + "paths: {/a: {post: {operationId: a, requestBody: {content: {application/json: {schema: {$ref: '" + ref + "'}}}}}}}\n"
	}
	all := ""
	for i := range 320 {
		all += fmt.Sprintf("    S%d: {allOf: [%s{}]}\n", i, strings.Repeat(fmt.Sprintf("{$ref: '#/components/schemas/S%d'}, ", i), 320))
	}
	const tooMany, copies = "have more than 100000 references", "lead to more than 300000 values"
	for name, test := range map[string]struct{ text, other, want string }{
		"few levels":      {from("o.yaml#/S0"), levels(6, "", "$ref", "#/"), ""},
		"components":      {from("#/components/schemas/S0") + "components:\n  schemas:\n" + levels(40, "    ", "$ref", "#/components/schemas/"), "", ""},
		"another file":    {from("o.yaml#/S0"), levels(40, "", "$ref", "#/"), copies},
		"back and forth":  {from("o.yaml#/S0") + levels(40, "x-", "$ref", "o.yaml#/"), levels(40, "", "$ref", "a.yaml#/x-"), copies},
		"an extension":    {from("#/x-all/S0") + "x-all:\n" + levels(40, "  ", "$ref", "#/x-all/"), "", copies},
		"in a component":  {from("#/components/schemas/S/x-all/S0") + "components:\n  schemas:\n    S:\n      x-all:\n" + levels(40, "        ", "$ref", "#/components/schemas/S/x-all/"), "", copies},
		"another case":    {from("#/x-all/S0") + "x-all:\n" + levels(40, "  ", "$Ref", "#/x-all/"), "", copies},
		"an escape":       {from("#/x-all/S0") + "x-all:\n" + levels(40, "  ", `"\u0024ref"`, "#/x-all/"), "", copies},
		"a merge key":     {from("#/x-all/S0") + "x-more: &all\n" + levels(40, "  ", "$ref", "#/x-all/") + "x-all:\n  <<: *all\n", "", copies},
		"many references": {from("#/components/schemas/S0") + "components:\n  schemas:\n" + all, "", tooMany},
		"a circle":        {from("o.yaml#/S0"), "S0: {properties: {a: {$ref: '#/S1'}}}\nS1: {properties: {b: {$ref: '#/S0'}}}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && test.want == tooMany {
				t.Skip("it takes many seconds")
			}
			dir := t.TempDir()
			for file, text := range map[string]string{"a.yaml": test.text, "o.yaml": test.other} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			api, err := load(t, dir, "a.yaml")
			if test.want == "" && (err != nil || len(api.Operations) != 1) {
				t.Errorf("%v, %q", err, api.Warnings)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
