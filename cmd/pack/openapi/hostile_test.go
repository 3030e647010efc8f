package openapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"junction/cmd/pack/manifest"
)

// TestReferences: references into the document itself, back to it, and in circles. Some of them did not
// end, or ended the program.
func TestReferences(t *testing.T) {
	const head = "openapi: 3.0.0\ninfo: {title: x, version: x}\nservers: [{url: 'https://api.example.com'}]\npaths:\n" +
		"  /a: {post: {operationId: a, requestBody: {content: {application/json: {schema: "
	const inPath = "{$ref: '#/paths/~1b/post/requestBody/content/application~1json/schema'}"
	b := "  /b: {post: {operationId: b, requestBody: {content: {application/json: {schema: {type: object, properties: {z: {}}}}}}}}\n"
	for name, test := range map[string]struct{ text, other, want string }{
		"path":   {text: head + inPath + "}}}}}\n" + b, want: `"z"`},
		"schema": {text: head + "{$ref: '#/components/schemas/S'}}}}}}\n" + b + "components: {schemas: {S: " + inPath + "}}\n", want: `"z"`},
		"back": {text: head + "{$ref: 'other.yaml#/components/schemas/O'}}}}}}\ncomponents: {schemas: {S: {type: object, properties: {z: {}}}}}\n",
			other: "components: {schemas: {O: {properties: {s: {$ref: 'a.yaml#/components/schemas/S'}}}}}\n", want: `"z"`},
		"names": {text: head + "{$ref: 'other.yaml#/components/schemas/S'}}}}}}\ncomponents: {schemas: {S: {type: string}}}\n",
			other: "components: {schemas: {S: {type: object, properties: {z: {}}}}}\n", want: `"z"`},
		"itself": {text: head + "{$ref: '#/components/schemas/S'}}}}}}\ncomponents: {schemas: {S: {$ref: '#/components/schemas/S'}}}\n"},
		"ring": {text: head + "{$ref: '#/components/schemas/S'}}}}}}\n" +
			"components: {schemas: {S: {$ref: '#/components/schemas/R'}, R: {$ref: '#/components/schemas/S'}}}\n"},
		"path ring": {text: head + "{$ref: '#/components/schemas/S'}}}}}}\n" +
			"components: {schemas: {S: {$ref: '#/paths/~1a/post/requestBody/content/application~1json/schema'}}}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"a.yaml": test.text, "other.yaml": test.other} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			api, err := load(t, dir, "a.yaml")
			if test.want == "" {
				if err == nil || !strings.Contains(err.Error(), "leads back to itself") {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := string(api.Operations[0].InputSchema); !strings.Contains(got, test.want) {
				t.Errorf("the schema is %s", got)
			}
		})
	}
}

// TestTooMuch: the schemas of all operations together are limited.
func TestTooMuch(t *testing.T) {
	c := collector{api: &manifest.API{}, out: &API{}, size: maxAllObjects + 1, doc: &openapi3.T{Paths: openapi3.NewPaths(
		openapi3.WithPath("/a", &openapi3.PathItem{Get: &openapi3.Operation{OperationID: "a"}}))}}
	if err := c.collect(t.Context()); err == nil || !strings.Contains(err.Error(), "choose some with operations") {
		t.Errorf("%v", err)
	}
}

// TestNesting: the time of the library grows with the square of the depth, so that the depth is
// limited, and the bytes on deep levels, too. The error has the place.
func TestNesting(t *testing.T) {
	const head = "openapi: 3.0.0\ninfo: {title: x, version: x}\nservers: [{url: 'https://api.example.com'}]\n"
	around := func(n int, inner string) string {
		return strings.Repeat(`{"items":`, n) + inner + strings.Repeat("}", n)
	}
	body := func(schema string) string {
		return `{"/a":{"post":{"operationId":"a","requestBody":{"content":{"application/json":{"schema":` + schema + "}}}}}}"
	}
	inJSON := func(schema string) string {
		return `{"openapi":"3.0.0","info":{"title":"x","version":"x"},"servers":[{"url":"https://api.example.com"}],` + "\n" +
			`"paths":` + body(schema) + "}"
	}
	const large = "have more than 512 MiB, counted at each level of nesting; "
	text := `{"type":"string","description":"` + strings.Repeat("x", 3<<20) + `"}`
	aliases := "x-0: &a0 [x]\n" // 2 to the power of 64 times
	for i := range 64 {
		aliases += fmt.Sprintf("x-%d: &a%d [*a%d,*a%d]\n", i+1, i+1, i, i)
	}
	for name, test := range map[string]struct{ text, want string }{
		"JSON, as deep as it may be": {inJSON(around(maxNesting-8, `{"type":"string"}`)), ""},
		"JSON":                       {inJSON(around(maxNesting-7, `{"type":"string"}`)), "a.yaml: line 2, column 2338: "},
		"brackets in a text":         {inJSON(`{"type":"string","pattern":"\"` + strings.Repeat("[{", 300) + `"}`), ""},
		"YAML, as deep as it may be": {head + "paths: " + body(around(maxNesting-8, `{"type":"string"}`)), ""},
		"YAML":                       {head + "paths: " + body(around(maxNesting-7, `{"type":"string"}`)), "a.yaml: line 4, column 2337: "},
		"by aliases": {head + "x-a: &a " + around(150, "{}") + "\nx-b: &b " + around(150, "*a") + "\npaths: {}\n",
			"a.yaml: line 5, column 1359: "},
		"an alias in itself": {head + "x-a: &a [*a]\npaths: {}\n", "a.yaml: line 4, column 10: "},
		"large":              {inJSON(around(200, text)), large},
		"large YAML":         {head + "paths: " + body(around(200, text)), large},
		"large by aliases": {head + "x-t: &t " + text + "\nx-a: &a [*t,*t,*t,*t]\nx-b: &b [*a,*a,*a,*a]\nx-c: [*b,*b,*b]\npaths: {}\n",
			large},
		"aliases of aliases": {head + aliases + "paths: {}\n", large},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && len(test.text) > 1<<20 {
				t.Skip("it takes many seconds")
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := load(t, dir, "a.yaml")
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// TestFetched: a fetched document cannot lead the program, or the credentials, to another host.
func TestFetched(t *testing.T) {
	reached := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	t.Cleanup(other.Close)
	server := "https://api.example.com"
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, other.URL+"/a?token=canary-of-a-document", http.StatusFound)
			return
		}
		fmt.Fprintf(w, "openapi: 3.0.0\ninfo: {title: x, version: x}\nservers: [{url: '%s'}]\npaths: {/a: {get: {operationId: a}}}\n"+
			"components: {securitySchemes: {k: {type: http, scheme: bearer}}}\nsecurity: [{k: []}]\n", server)
	}))
	t.Cleanup(ts.Close)
	if _, err := load(t, t.TempDir(), ts.URL+"/moved"); err == nil || !strings.Contains(err.Error(), "redirects to another host") ||
		strings.Contains(err.Error(), "canary") || reached {
		t.Errorf("a redirect gives %v, and was followed: %v", err, reached)
	}
	const auth = "auth: { k: canary-of-a-token }"
	for _, test := range []struct {
		server string
		lines  []string
		goes   string // where requests go; "" if the operation is left out
	}{
		{"https://api.example.com", []string{auth}, ""},
		{"https://api.example.com", []string{"headers: { X-Key: canary-of-a-key }"}, ""},
		{"https://api.example.com", nil, "https://api.example.com/a"},
		{"https://api.example.com", []string{auth, "base_url: https://api.example.com"}, "https://api.example.com/a"},
		{"/v1", []string{auth}, ts.URL + "/v1/a"},
		{ts.URL, []string{auth}, ts.URL + "/a"},
	} {
		server = test.server
		api, err := load(t, t.TempDir(), ts.URL+"/api.yaml", test.lines...)
		if err != nil && (test.goes != "" || !strings.Contains(err.Error(), "credentials go only to hosts")) {
			t.Fatal(err)
		}
		goes := ""
		for _, o := range api.Operations {
			r, err := o.Request(nil)
			if err != nil {
				t.Fatal(err)
			}
			goes = r.URL
		}
		if goes != test.goes || goes == "" && !strings.Contains(strings.Join(api.Warnings, ""), "add base_url: https://api.example.com") {
			t.Errorf("%s with %q: requests go to %q, warnings %q; want %q", test.server, test.lines, goes, api.Warnings, test.goes)
		}
	}
}

// TestArgumentsStayInPlace: a value of a path is no parameter of the query, and no argument replaces a
// key by another spelling of its header.
func TestArgumentsStayInPlace(t *testing.T) {
	dir := t.TempDir()
	text := "openapi: 3.0.0\ninfo: {title: x, version: x}\nservers: [{url: 'https://api.example.com'}]\nsecurity: [{k: []}]\n" +
		"components: {securitySchemes: {k: {type: apiKey, in: header, name: X-API-Key}}}\n" +
		"paths: {'/a?b={c}': {get: {operationId: a, parameters: [{name: c, in: path, required: true, schema: {}}, " +
		"{name: x-api-key, in: header, schema: {}}]}}}\n"
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	api, err := load(t, dir, "a.yaml", "auth: { k: canary-of-a-key }")
	if err != nil {
		t.Fatal(err)
	}
	r, err := api.Operations[0].Request(map[string]any{"c": "1&admin=true", "x-api-key": "canary-of-the-model"})
	if err != nil || r.URL != "https://api.example.com/a?b=1%26admin%3Dtrue" || r.Header.Get("X-Api-Key") != "canary-of-a-key" {
		t.Errorf("%+v, %v", r, err)
	}
}
