package openapi

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/cmd/pack/manifest"
)

// load loads a document of dir with further lines of its section, which are indented.
func load(t testing.TB, dir, spec string, lines ...string) (*API, error) {
	t.Helper()
	text := "openapi:\n  x:\n    spec: " + spec + "\n"
	for _, l := range lines {
		text += "    " + l + "\n"
	}
	file := filepath.Join(t.TempDir(), "pack.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := manifest.Load(file, nil, manifest.Options{})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	api := p.Manifests[0].OpenAPI[0]
	if api.Dir, err = filepath.Abs(dir); err != nil {
		t.Fatal(err)
	}
	return Load(t.Context(), api)
}

func mustLoad(t testing.TB, spec string, lines ...string) map[string]*Operation {
	t.Helper()
	api, err := load(t, "testdata", spec, lines...)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*Operation{}
	for _, o := range api.Operations {
		all[o.Name] = o
	}
	return all
}

// TestRequests: each style of each place, bodies of each kind, and credentials.
func TestRequests(t *testing.T) {
	ops := mustLoad(t, "styles.yaml", "auth: { key: canary-key, basic: 'canary-user:canary-pass' }")
	for _, test := range []struct{ op, arguments, want string }{
		{"path", `{"id":"a/b ?#%","list":["x,y","z"]}`, "GET https://api.example.com/v1/things/a%2Fb%20%3F%23%25/x%2Cy,z"},
		{"path", `{"id":"..","list":["x"]}`, `id is "..", which would mean another path`},
		{"path", `{"id":"","list":["x"]}`, `id is "", which would mean another path`},
		{"query", `{"q":"a&b=c +","many":[1,2],"comma":["a","b"],"pipe":["a","b"],"deep":{"a":{"b":"c"},"l":[1]},"json":{"x":1}}`,
			"GET https://api.example.com/v1/query?q=a%26b%3Dc%20%2B&many=1&many=2&comma=a,b&pipe=a%7Cb&" +
				"deep%5Ba%5D%5Bb%5D=c&deep%5Bl%5D%5B0%5D=1&json=%7B%22x%22%3A1%7D"},
		{"query", `{"filter_name_":"x"}`, "GET https://api.example.com/v1/query?filter%5Bname%5D=x"},
		{"header", `{"X-One":"1","c":"a b"}`, "GET https://api.example.com/v1/header Cookie=c=a%20b X-One=1"},
		{"header", `{"X-One":"a\r\nb"}`, "the value for the header X-One has a line break"},
		{"json", `{"body":{"n":12345678901234567890}}`,
			`POST https://api.example.com/v1/json Content-Type=application/json {"n":12345678901234567890}`},
		{"form", `{"body":{"a":"x y","b":[1,2],"d":{"k":{"l":1}},"e":{"k":1}}}`, "POST https://api.example.com/v1/form " +
			"Content-Type=application/x-www-form-urlencoded a=x%20y&b=1&b=2&d%5Bk%5D%5Bl%5D=1&e=%7B%22k%22%3A1%7D"},
		{"text", `{"body":"plain"}`, "POST https://api.example.com/v1/text Content-Type=text/plain plain"},
		{"binary", `{"body":{"base64":"aGk="}}`, "POST https://api.example.com/v1/binary Content-Type=image/png hi"},
		{"keyed", `{}`, "GET https://api.example.com/v1/keyed?api_key=canary-key"},
		{"basic", `{}`, "GET https://api.example.com/v1/basic Authorization=Basic Y2FuYXJ5LXVzZXI6Y2FuYXJ5LXBhc3M="},
		{"put_unnamed", `{}`, "PUT https://other.example.com/unnamed"},
	} {
		var arguments map[string]any
		d := json.NewDecoder(strings.NewReader(test.arguments))
		d.UseNumber()
		if err := d.Decode(&arguments); err != nil {
			t.Fatal(err)
		}
		o := ops[test.op]
		if o == nil {
			t.Fatalf("there is no %s", test.op)
		}
		r, err := o.Request(arguments)
		got := fmt.Sprint(err)
		if err == nil {
			got = r.Method + " " + r.URL
			r.Header.Del("Accept")
			for _, name := range []string{"Authorization", "Content-Type", "Cookie", "X-One"} {
				if v := r.Header.Get(name); v != "" {
					got += " " + name + "=" + v
				}
			}
			if len(r.Body) > 0 {
				got += " " + string(r.Body)
			}
		}
		if got != test.want && (err == nil || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%s %s:\n%s\nwant\n%s", test.op, test.arguments, got, test.want)
		}
	}
}

// TestMultipart: files are sent as they are, and a name cannot add headers.
func TestMultipart(t *testing.T) {
	o := mustLoad(t, "styles.yaml")["upload"]
	r, err := o.Request(map[string]any{"body": map[string]any{"note": "n",
		"file": map[string]any{"base64": "aGk=", "filename": `a".txt`, "type": "text/plain"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name=note\r\n\r\nn\r\n", `filename="a\".txt"`, "Content-Type: text/plain\r\n\r\nhi\r\n"} {
		if !strings.Contains(string(r.Body), want) {
			t.Errorf("no %q in\n%s", want, r.Body)
		}
	}
	_, err = o.Request(map[string]any{"body": map[string]any{"file": map[string]any{"base64": "aGk=", "filename": "a\r\nX: y"}}})
	if err == nil {
		t.Error("a line break in a name is accepted")
	}
}

// TestSchemas: schemas of 3.0 and 3.1 become JSON Schema, with circles and references to files.
func TestSchemas(t *testing.T) {
	ops := mustLoad(t, "schemas.yaml")
	want := `{"$defs":{"Node":{"properties":{"name":{"type":["string","null"]},"next":{"$ref":"#/$defs/Node"}},` +
		`"required":["name"],"type":"object"}},"additionalProperties":false,"properties":{"body":{"$ref":"#/$defs/Node"},` +
		`"size":{"exclusiveMinimum":0,"type":"integer"}},"required":["body"],"type":"object"}`
	if got := string(ops["create"].InputSchema); got != want {
		t.Errorf("create: %s\nwant %s", got, want)
	}
	if got := string(ops["other"].InputSchema); !strings.Contains(got, `"color":{"enum":["red","blue"],"type":"string"}`) {
		t.Errorf("a schema of another file: %s", got)
	}
	if a := ops["other"].Annotations; !*a.ReadOnly || *a.Destructive {
		t.Errorf("GET is %+v", a)
	}
}

// TestChosen: operations are chosen by id, glob, tag and path, and what matches nothing is a mistake.
func TestChosen(t *testing.T) {
	for lines, want := range map[string]string{
		`operations: [json, "qu*"]`:                               "[json query]",
		`operations: ["tag:special"]`:                             "[keyed]",
		`operations: ["GET /things/**", "* /form"]`:               "[form path]",
		`exclude: ["POST *"]`:                                     "no operation matches",
		`exclude: ["POST /*"]`:                                    "[basic header keyed path put_unnamed query]",
		`operations: [nothing]`:                                   `no operation matches "nothing"; write an id`,
		`operations: ["tag:specials"]`:                            `no operation matches "tag:specials"; did you mean tag:special?`,
		`operations: [json, "POST /frm"]`:                         `no operation matches "POST /frm"; did you mean POST /form`,
		`operations: [jsn]`:                                       `no operation matches "jsn"; did you mean json`,
		`tools: { nothing: { name: x } }`:                         `tools has "nothing"`,
		`auth: { nothing: x }`:                                    `auth has "nothing", which is no security scheme of the document; it has basic, key`,
		"operations: [json]\n    tools: { json: { name: send } }": "[send]",
	} {
		api, err := load(t, "testdata", "styles.yaml", lines)
		got := []string{}
		for _, o := range api.Operations {
			got = append(got, o.Name)
		}
		said := fmt.Sprint(slices.Sorted(slices.Values(got)))
		if err != nil {
			said = err.Error()
		}
		if said != want && (err == nil || !strings.HasPrefix(said, want)) {
			t.Errorf("%s: %s, want %s", lines, said, want)
		}
	}
}

// TestBadDocuments: what cannot be used is refused, with the reason.
func TestBadDocuments(t *testing.T) {
	above := t.TempDir()
	dir := filepath.Join(above, "pack")
	for _, err := range []error{os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(above, "secret.yaml"), nil, 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	big := strings.Repeat("x", maxDocument+1)
	for name, test := range map[string]struct{ text, want string }{
		"swagger.yaml": {"swagger: '2.0'\ninfo: {}", "it is Swagger 2.0; convert it"},
		"swagger.json": {`{"swagger":"2.0"}`, "it is Swagger 2.0; convert it"},
		"none.yaml":    {"a: b", "it is no OpenAPI 3 document"},
		"big.yaml":     {"openapi: 3.1.0\n# " + big, "big.yaml has 16 MiB, more than 16"},
		"out.yaml":     {"openapi: 3.1.0\ninfo: {title: x, version: x}\npaths: {/a: {$ref: ../secret.yaml}}", "outside the folder of the manifest"},
		"etc.yaml":     {"openapi: 3.1.0\ninfo: {title: x, version: x}\npaths: {/a: {$ref: /etc/passwd}}", "outside the folder of the manifest"},
		"web.yaml":     {"openapi: 3.1.0\ninfo: {title: x, version: x}\npaths: {/a: {$ref: 'http://169.254.169.254/x'}}", "it refers to another host, 169.254.169.254"},
		"gone.yaml":    {"openapi: 3.1.0\ninfo: {title: x, version: x}\npaths: {/a: {$ref: gone.json}}", "no such file"},
		"html.yaml":    {"<html>", "it is no OpenAPI document, but a string"},
		"cut.json":     {`{"openapi":`, "unexpected end of JSON input"},
		"comma.yaml":   {"openapi: 3.1.0\npaths: [a", "yaml: line 1: did not find expected ',' or ']'"},
		"number.json":  {`{"openapi":"3.1.0","paths":{"/a":5}}`, "it has a number in place of an object of OpenAPI (PathItem)"},
		"number.yaml":  {"openapi: 3.1.0\ninfo: 5", "it has a number in place of an object of OpenAPI (Info)"},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := load(t, dir, name)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if _, err := load(t, dir, "missing.yaml"); err == nil {
		t.Error("a document that is missing is accepted")
	}
}

// TestCredentialsNeedAScheme: a credential for a scheme that the document does not have is refused, and
// the error has the way out.
func TestCredentialsNeedAScheme(t *testing.T) {
	const head = "openapi: 3.1.0\ninfo: {title: x, version: x}\nservers: [{url: 'https://api.example.com'}]\n" +
		"paths: {/a: {get: {operationId: a}}}\n"
	for text, want := range map[string]string{
		head:                      `auth has "k", but the document has no security schemes; send the credential in headers`,
		head + "components: {}\n": `auth has "k", but the document has no security schemes; send the credential in headers`,
		head + "components: {securitySchemes: {}}\n": `auth has "k", but the document has no security schemes; send the credential in headers`,
		head + "components: {securitySchemes: {b: {type: http, scheme: basic}, a: {type: http, scheme: bearer}}}\n": `auth has "k", ` +
			"which is no security scheme of the document; it has a, b",
		head + "components: {securitySchemes: {k: {type: http, scheme: bearer}}}\n": "",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := load(t, dir, "a.yaml", "auth: { k: canary-of-a-token }")
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s\n%v, want %q", text, err, want)
		}
	}
}

// FuzzDocument: no document stops the program, and every tool has a schema and makes a request.
func FuzzDocument(f *testing.F) {
	// Small ones, because the fuzzer shortens what it finds byte by byte.
	for _, paths := range []string{
		"/{i}: {get: {parameters: [{in: path, name: i, schema: {$ref: '#/a'}}]}}",
		"/: {put: {requestBody: {content: {multipart/form-data: {schema: {nullable: true, properties: {a: {}}}}}}}}",
		"/: {get: {security: [{k: []}], parameters: [{in: query, name: q, style: deepObject}]}}",
	} {
		f.Add("openapi: 3.0.0\ninfo: {title: a, version: b}\npaths: {" + paths + "}")
	}
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		api, err := load(t, dir, "a.yaml", "base_url: https://api.example.com")
		if err != nil {
			return
		}
		for _, o := range api.Operations {
			if !json.Valid(o.InputSchema) || o.Name == "" || len(o.Name) > maxName {
				t.Errorf("%q: %s", o.Name, o.InputSchema)
			}
			r, err := o.Request(map[string]any{"body": map[string]any{"a": "b"}})
			if err == nil && !strings.HasPrefix(r.URL, "https://api.example.com") {
				t.Errorf("%q goes to %q", o.Name, r.URL)
			}
		}
	})
}
