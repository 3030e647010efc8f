package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"junction/auth/authtest"
	"junction/cmd/pack"
	"junction/cmd/pack/manifest"
	"junction/cmd/pack/web"
	"junction/upstream/prose"
)

// folder writes the files of a pack.
func folder(t testing.TB, texts map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pack")
	for name, text := range texts {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// mustPlan returns the plan of an installed pack.
func mustPlan(t *testing.T, texts map[string]string) *Plan {
	t.Helper()
	p, err := Of(t.Context(), folder(t, texts))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const api = "openapi: 3.0.0\ninfo: { title: x, version: x }\n"

// TestThePlanHasEveryHostThatTheLoaderUses: neither the letter case of a key, nor a reference, nor a
// file of the pack hides a host.
func TestThePlanHasEveryHostThatTheLoaderUses(t *testing.T) {
	const spec = "openapi: { x: { spec: docs/api.yaml } }\n"
	for name, test := range map[string]struct {
		texts map[string]string
		want  []string
	}{
		"each place": {map[string]string{"pack.yaml": spec, "docs/api.yaml": api + `
servers: [{ url: "https://good.example" }, { url: "https://not-the-first.example" }]
paths:
  /a: { get: { operationId: a } }
  /b: { servers: [{ url: "https://path.example" }], get: { operationId: b } }
  /c: { get: { operationId: c, servers: [{ url: "https://{h}.example", variables: { h: { default: operation } } }] } }
`}, []string{"https://good.example", "https://operation.example", "https://path.example"}},
		"keys in another case": {map[string]string{"pack.yaml": spec, "docs/api.yaml": api + `
Servers: [{ URL: "https://first.example" }]
Paths: { /a: { Get: { OperationID: a } }, /b: { get: { operationId: b, SERVERS: [{ Url: "https://second.example" }] } } }
`}, []string{"https://first.example", "https://second.example"}},
		"a reference in another case": {map[string]string{"pack.yaml": spec,
			"docs/api.yaml":   api + "servers: [{ url: 'https://good.example' }]\npaths: { /a: { $Ref: 'other.yaml#/a' }, /b: { get: { operationId: b } } }\n",
			"docs/other.yaml": "a: { get: { operationId: a, servers: [{ url: 'https://hidden.example' }] } }\n",
		}, []string{"https://good.example", "https://hidden.example"}},
		"an escaped key": {map[string]string{"pack.yaml": spec, "docs/api.yaml": `{"openapi": "3.0.0", "info": {"title": "x", "version": "x"},
			"paths": {"/a": {"get": {"operationId": "a", "\u0073ervers": [{"url": "https://hidden.example"}]}}}}`},
			[]string{"https://hidden.example"}},
		"a file of the pack": {map[string]string{"pack.yaml": "openapi: { x: { spec: '${file:name}', base_url: '${file:host}' } }\n" +
			"tools: { t: { description: d, http: { url: '${file:host}/t' } } }\n",
			"name": "api.yaml\n", "host": "https://hidden.example\n", "api.yaml": api + "paths: { /a: { get: { operationId: a } } }\n"},
			[]string{"https://hidden.example"}},
		"variables": {map[string]string{"pack.yaml": `
tools:
  host: { description: d, http: { url: "https://api${X}.example/a" } }
  all: { description: d, http: { url: "${BASE:-https://default.example}/a/b" } }
  slash: { description: d, http: { url: "https://${Y:-a/b.evil.example}/a" } }
  path: { description: d, http: { url: "https://good.example/${Z:-b}/a" } }
`}, []string{"${BASE:-https://default.example}/a/b", "https://${y:-a/b.evil.example}", "https://api${x}.example", "https://good.example"}},
		"letters that look alike": {map[string]string{"pack.yaml": "tools: { t: { description: d, http: { url: 'https://\u0430pple.example/' } } }\n"},
			[]string{`https://\u0430pple.example`}},
		"turned off": {map[string]string{"pack.yaml": "openapi: { x: { spec: none.yaml, enabled: false } }\n" +
			"tools: { t: { description: d, http: { url: 'https://off.example/' }, enabled: false } }\n"}, []string{"https://off.example"}},
		"a fetched document": {map[string]string{"pack.yaml": `
openapi:
  open: { spec: "https://docs.example/a?key=${KEY}" }
  own: { spec: "https://own.example/b", auth: { a: "${TOKEN}" } }
  named: { spec: "https://docs.example/c", base_url: "https://base.example" }
  local: { spec: "http://127.0.0.1:1/d" }
`}, []string{"any public host and any port of this machine that the document names", "any public host that the document names",
			"http://127.0.0.1:1", "https://base.example", "https://docs.example", "https://own.example"}},
	} {
		t.Run(name, func(t *testing.T) {
			if p := mustPlan(t, test.texts); !slices.Equal(p.URLs, test.want) {
				t.Errorf("the plan has the URLs\n%q, want\n%q\n%s", p.URLs, test.want, p.Text())
			}
		})
	}
}

// TestThePlanHasEveryProgramVariableAndFile: all that a pack runs and reads.
func TestThePlanHasEveryProgramVariableAndFile(t *testing.T) {
	p := mustPlan(t, map[string]string{"program": "tool", "text.md": "text", "pack.yaml": `
tools:
  a: { description: d, command: ["${file:program}", "${A}"], env: { X: "${B:-x}" }, inherit_env: [AWS_*], stdin: "${C}" }
  b: { description: d, shell: true, command: ["echo $1", "${D}"] }
  c: { description: d, command: ["${PACK_DIR}/run.sh", "{{p}}"], parameters: { p: { within: "${E}" } }, dir: "${F:-x}", sandbox: { read: ["${G}"] } }
  d: { description: d, http: { url: "https://api.example.com/", json: { k: ["${H}"] }, query: { q: "${I}" }, headers: { h: "${J}" } } }
  e: { description: d, prompt: { file: text.md, system: be kind } }
prompts: { p: { text: hello } }
resources: { r: { file: text.md } }
`})
	if want := []string{"${PACK_DIR}/run.sh", "/bin/sh", "tool"}; !slices.Equal(p.Programs, want) {
		t.Errorf("the programs are %q, want %q", p.Programs, want)
	}
	if want := []string{"A", "AWS_*", "B", "C", "D", "E", "F", "G", "H", "I", "J"}; !slices.Equal(p.Variables, want) {
		t.Errorf("the variables are %q, want %q", p.Variables, want)
	}
	if want := []string{"program"}; !slices.Equal(p.Files, want) {
		t.Errorf("the files are %q, want %q", p.Files, want)
	}
	for _, want := range []Fact{{"tool c", "takes paths", "p inside ${PACK_DIR}/${E}"}, {"tool c", "in", "${F:-x}"},
		{"tool d", "body", `{"k":["${H}"]}`}, {"tool e", "tells the model", "be kind"}, {"prompt p", "offers", "hello"},
		{"resource r", "offers", "text.md"}} {
		if !slices.Contains(p.Facts, want) {
			t.Errorf("the plan has no %q:\n%s", want, p.Text())
		}
	}
}

// TestAPlanNamesTheFolderOfACommand: a plan shows where a command runs without a riddle of dots. The pack of
// this machine has the whole path; a pack that is installed may still move.
func TestAPlanNamesTheFolderOfACommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "pack")
	text := "tools:\n"
	for name, in := range map[string]string{"up": "..", "top": "../..", "beside": "../../b", "in": "./sub/", "abs": "/", "open": "${F:-x}"} {
		text += fmt.Sprintf("  %s: { description: d, command: [echo], dir: %q }\n", name, in)
	}
	text += "servers: { s: { command: [echo], dir: ../.. } }\n"
	root := filepath.Dir(filepath.Dir(dir))
	for _, folder := range []string{filepath.Join(dir, "sub"), filepath.Join(root, "b")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "pack.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	above := "the folder 2 levels above the pack's folder"
	for name, test := range map[string]struct {
		of   func(context.Context, string) (*Plan, error)
		want map[string]string
	}{
		"installed": {Of, map[string]string{"tool up": "the folder that contains the pack's folder", "tool top": above,
			"tool beside": "b, in " + above, "tool in": "${PACK_DIR}/sub", "tool abs": "/", "tool open": "${F:-x}",
			"server s (off until the entry names it)": above}},
		"of this machine": {OfOwn, map[string]string{"tool up": filepath.Dir(dir), "tool top": root,
			"tool beside": filepath.Join(root, "b"), "tool in": filepath.Join(dir, "sub"), "tool abs": "/", "tool open": "${F:-x}",
			"server s (off until the entry names it)": root}},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := test.of(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			for subject, want := range test.want {
				if !slices.Contains(p.Facts, Fact{subject, "in", want}) {
					t.Errorf("%s does not run in %q:\n%s", subject, want, p.Text())
				}
			}
		})
	}
}

// TestAPackWithoutAPlan: what cannot be shown is refused with the reason, and so is what the loader
// refuses.
func TestAPackWithoutAPlan(t *testing.T) {
	many := api + "paths:\n"
	for i := range maxHosts + 1 {
		many += fmt.Sprintf("  /a%d: { get: { operationId: a%d, servers: [{ url: 'https://h%d.example' }] } }\n", i, i, i)
	}
	tools := "tools:\n"
	for i := range maxFacts {
		tools += fmt.Sprintf("  t%d: { description: d, command: [echo] }\n", i)
	}
	apis := "openapi:\n"
	for i := range 33 {
		apis += fmt.Sprintf("  a%d: { spec: api.yaml, base_url: 'https://api.example.com' }\n", i)
	}
	const spec = "openapi: { x: { spec: api.yaml } }\n"
	for name, test := range map[string]struct {
		pack, api, want string
	}{
		"a variable names the document": {"openapi: { x: { spec: 'a/${HOME:-b/c}/../../api.yaml' } }\n", api, "add base_url"},
		"outside of the folder":         {"openapi: { x: { spec: ../../api.yaml } }\n", api, "no such file"},
		"outside of the folder, there":  {"openapi: { x: { spec: ../outside.yaml } }\n", api, "outside the folder of the manifest"},
		"no document":                   {spec, "", "no OpenAPI 3 document"},
		"another format":                {spec, "swagger: '2.0'\n", "it is Swagger 2.0"},
		"a wrong operation": {"openapi:\n  x:\n    spec: api.yaml\n    operations: [a, none]\n", api + "paths: { /a: { get: { operationId: a } } }\n",
			`pack.yaml:4: openapi.x.operations[1]: no operation matches "none"; write an id`},
		"an http URL":    {"tools: { t: { description: d, http: { url: 'http://api.example.com' } } }\n", "", "write https"},
		"a wrong file":   {"tools: { t: { description: d, command: [echo, '${file:none}'] } }\n", "", "pack/none: no such file or directory; create the file, or correct the path"},
		"many hosts":     {spec, many, "more than 100 hosts"},
		"many lines":     {tools, "", "too much to read"},
		"many documents": {apis, api, "more than 32 OpenAPI documents"},
		"deep":           {spec, api + "x-a: " + strings.Repeat("[", 300) + strings.Repeat("]", 300), "levels deep"},
		"large":          {spec, api + "x-a: " + strings.Repeat("x", 17<<20), "more than 16"},
		"references that multiply": {spec, func() string {
			text := api + "paths: { /a: { post: { requestBody: { content: { application/json: { schema: { $ref: '#/x-0' } } } } } } }\n"
			for i := range 40 {
				text += fmt.Sprintf("x-%d: { allOf: [{ $ref: '#/x-%d' }, { $ref: '#/x-%d' }] }\n", i, i+1, i+1)
			}
			return text + "x-40: {}\n"
		}(), "more than 300000 values"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, map[string]string{"pack.yaml": test.pack, "api.yaml": test.api, "../outside.yaml": test.api})
			_, err := Of(t.Context(), dir)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%.300v, want %q", err, test.want)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Of(ended, folder(t, map[string]string{"pack.yaml": spec, "api.yaml": api})); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}

// TestAnUnknownKindOfTool: a tool of a later version is refused, and does not end the program.
func TestAnUnknownKindOfTool(t *testing.T) {
	p := &Plan{}
	err := p.tool(&manifest.Tool{Name: "new\x1b[2J"})
	if _, is := errors.AsType[*UnclearError](err); !is || !strings.Contains(err.Error(), `cannot show what the tool "new\x1b[2J" does`) {
		t.Errorf("%v", err)
	}
}

// TestAPackOfThisMachine: a variable may name its document, and the content of its files stays unseen.
func TestAPackOfThisMachine(t *testing.T) {
	dir := folder(t, map[string]string{"token": "canary-token", "api.yaml": api + "servers: [{url: 'https://api.example.com'}]\npaths: {/a: {get: {}}}\n",
		"pack.yaml": `
openapi: { x: { spec: api.yaml, headers: { A: "${file:token}" } }, y: { spec: "${SPEC}" } }
tools: { t: { description: d, http: { url: "${BASE}/bot${file:token}/send" } } }
`})
	p, err := OfOwn(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(p.Text(), "canary") {
		t.Errorf("the plan has a secret:\n%s", p.Text())
	}
	want := []string{"${BASE}/bot${file:token}/send", "any host that the document names", "https://api.example.com"}
	if !slices.Equal(p.URLs, want) {
		t.Errorf("the URLs are %q, want %q", p.URLs, want)
	}
}

// TestAPlanFetchesNothing, although the pack has a document with a URL.
func TestAPlanFetchesNothing(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer s.Close()
	p := mustPlan(t, map[string]string{"pack.yaml": "openapi: { x: { spec: " + s.URL + "/api } }\n"})
	if n := requests.Load(); n != 0 || !strings.Contains(p.Text(), "fetched at each start; its content may change") {
		t.Errorf("%d requests, and the plan\n%s", n, p.Text())
	}
}

// TestAPlanCannotControlTheTerminal: control characters and line breaks are visible in all of it.
func TestAPlanCannotControlTheTerminal(t *testing.T) {
	const evil = `\e[2J\u202e\nPrograms: none\r\x9b`
	p := mustPlan(t, map[string]string{"api.yaml": api + "servers: [{url: \"https://a.example/\u202e\"}]\npaths: {/a: {get: {operationId: op}}}\n",
		"pack.yaml": strings.ReplaceAll(`
tools:
  a: { description: d, command: ["run EVIL", "EVIL"], env: { X: "EVIL" }, stdin: "EVIL" }
  b: { description: d, shell: true, command: ["echo one # EVIL"] }
  c: { description: d, http: { url: "https://api.example.com/", text: "EVIL", headers: { A: "EVIL" } } }
  d: { description: d, prompt: { text: "EVIL" } }
prompts: { p: { text: "EVIL" } }
openapi: { "EVIL": { spec: api.yaml, headers: { A: "EVIL" } } }
`, "EVIL", evil)})
	text := p.Text() + Print((&Plan{}).Diff(p))
	encoded, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"\x1b", "\r", "\u202e", "\u009b", "\nPrograms: none"} {
		if strings.Contains(text, bad) || strings.Contains(string(encoded), bad) {
			t.Errorf("the plan has %q:\n%q", bad, text)
		}
	}
	if !strings.Contains(text, `echo one # \x1b[2J\u202e\nPrograms: none`) {
		t.Errorf("the plan hides a line break:\n%s", text)
	}
}

// serve loads a pack as junction-pack does to serve it.
func serve(t testing.TB, dir string) (*pack.Pack, error) {
	m, err := pack.Load(dir, manifest.Options{})
	if err != nil {
		return nil, err
	}
	return pack.New(t.Context(), m, pack.NewRunners(authtest.Log(t)))
}

// shows reports whether a plan has the host of a request.
func shows(p *Plan, request *web.Request) bool {
	u, err := url.Parse(request.URL)
	return err != nil || slices.Contains(p.URLs, escaped(u.Scheme+"://"+strings.ToLower(u.Host)))
}

// comparisons compare the plan of a pack with what a call of a tool does, by the kind of the tool; nil for a kind
// whose tools reach nothing outside of the pack and its client. FuzzPlan uses them.
var comparisons = map[*manifest.Kind]func(t *testing.T, p *Plan, source *manifest.Tool, values map[string]any){
	manifest.CommandKind: comparesCommand,
	manifest.HTTPKind:    comparesRequest,
	manifest.PromptKind:  nil,
}

// TestEachKindIsComparedWithItsPlan: FuzzPlan knows what the tools of each kind reach.
func TestEachKindIsComparedWithItsPlan(t *testing.T) {
	for _, kind := range pack.ManifestKinds() {
		if _, known := comparisons[kind]; !known {
			t.Errorf("FuzzPlan does not compare the tools of the kind %s with their plan: add the kind to comparisons",
				kind.Key)
		}
	}
}

func comparesCommand(t *testing.T, p *Plan, source *manifest.Tool, _ map[string]any) {
	program := "/bin/sh"
	if !source.Shell {
		program = prose.Escaped(p.here(source.Command[0].Text.Text(nil, nil)))
	}
	if !slices.Contains(p.Programs, program) {
		t.Errorf("the plan hides the program %q: %q", program, p.Programs)
	}
	for _, name := range source.InheritEnv {
		if !slices.ContainsFunc(p.Variables, func(v string) bool { return v == name || strings.Contains(v, `\`) }) {
			t.Errorf("the plan hides the variable %q: %q", name, p.Variables)
		}
	}
}

func comparesRequest(t *testing.T, p *Plan, source *manifest.Tool, values map[string]any) {
	if r, err := web.Build(source.Action.(*manifest.HTTP), values); err == nil && !shows(p, r) {
		t.Errorf("the plan hides the host of %q: %q", r.URL, p.URLs)
	}
}

// FuzzPlan: the plan of a pack has every host, program and variable that the loader uses when it serves
// the pack, and a pack has a plan if the loader accepts it.
func FuzzPlan(f *testing.F) {
	f.Add("tools: { t: { description: d, command: [echo, '{{a}}'], parameters: { a: a }, inherit_env: [A] } }", "", "")
	f.Add("tools: { t: { description: d, http: { url: 'https://a.example/{{a}}' }, parameters: { a: a } } }", "", "")
	f.Add("tools: { t: { description: d, command: ['${file:other.yaml}'] } }", "", "program")
	f.Add("tools: { t: { description: d, http: { url: '${file:other.yaml}' } } }", "", "https://a.example/")
	for _, kind := range pack.ManifestKinds() {
		f.Add("tools: { t: { description: d, "+kind.Example+", parameters: { parameter: p } } }", "", "")
	}
	const x = "openapi: { x: { spec: a.yaml } }"
	f.Add(x, api+"servers: [{url: 'https://a.example'}]\npaths: {/a: {$Ref: 'other.yaml#/a'}}", "a: {get: {Servers: [{URL: 'https://b.example'}]}}")
	f.Add(x, api+"paths: {/a: {servers: [{url: 'https://{a}{b}', variables: {a: {default: '{b}'}, b: {default: c.example}}}], get: {}}}", "")
	f.Add(x, api+"servers: [{url: 'https://a.example'}]\npaths: {'.b.example/a': {get: {}}, '@c.example/': {get: {}}}", "")
	f.Add(x, `{"openapi":"3.0.0","servers":[{"url":"https://a.example","url":"https://b.example"}],"paths":{"/a":{"get":{}}}}`, "")
	f.Add("openapi: { x: { spec: a.yaml, base_url: '${file:other.yaml}' } }", api+"paths: {/a: {get: {parameters: [{in: path, name: a}]}}}", "https://a.example")
	f.Add("openapi: { x: { spec: '${file:other.yaml}', exclude: [b] } }", api+"paths: {/a: {get: {operationId: b}}}", "a.yaml")
	f.Fuzz(func(t *testing.T, text, document, other string) {
		dir := folder(t, map[string]string{"pack.yaml": text, "a.yaml": document, "other.yaml": other})
		m, err := pack.Load(dir, manifest.Options{Unresolved: true, PackFiles: true})
		if err == nil {
			for _, one := range m.Manifests {
				for _, want := range one.Wants() {
					if file, isFile := strings.CutPrefix(want, "file:"); !isFile || !filepath.IsLocal(file) {
						t.Skip("the environment decides")
					}
				}
				for _, a := range one.OpenAPI {
					if manifest.IsURL(a.Spec.Value()) {
						t.Skip("it would be fetched")
					}
				}
			}
		}
		p, planned := Of(t.Context(), dir)
		served, err := serve(t, dir)
		if _, unclear := errors.AsType[*UnclearError](planned); unclear {
			return
		}
		if (err == nil) != (planned == nil) {
			t.Fatalf("the loader: %v, the plan: %v", err, planned)
		}
		if err != nil {
			return
		}
		for _, tool := range served.Tools {
			values := map[string]any{}
			switch source := tool.Source; {
			case tool.Operation != nil:
				if !slices.Contains(p.URLs, hostOf(tool.Operation.Server())) {
					t.Errorf("the plan hides the server %q: %q", tool.Operation.Server(), p.URLs)
				}
				var schema struct{ Properties map[string]any }
				if err := json.Unmarshal(tool.Operation.InputSchema, &schema); err != nil {
					t.Fatal(err)
				}
				for name := range schema.Properties {
					values[name] = "x"
				}
				if r, err := tool.Operation.Request(values); err == nil && !shows(p, r) {
					t.Errorf("the plan hides the host of %q: %q", r.URL, p.URLs)
				}
			default:
				for _, parameter := range source.Parameters {
					values[parameter.Name] = "x"
				}
				if compare := comparisons[source.Kind]; compare != nil {
					compare(t, p, source, values)
				}
			}
		}
	})
}

// TestTheReadmeHasTheWordsOfThePlan: a person finds each word of a plan in the README, those of each kind of tool, too.
func TestTheReadmeHasTheWordsOfThePlan(t *testing.T) {
	readme, err := os.ReadFile("../../junction/desk/packs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(string(readme)), " ")
	word := regexp.MustCompile(`(?:\.Fact\(|\.Texts\(|refs\(|\.add\(.*?, )"([a-z ]+)",`)
	for _, pattern := range []string{"../kind_*.go", "*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found := word.FindAllStringSubmatch(string(text), -1)
			if strings.HasPrefix(file, "../kind_") && !strings.HasSuffix(file, "_test.go") && len(found) == 0 {
				t.Errorf("%s adds no fact with a word", file)
			}
			for _, m := range found {
				if !strings.HasSuffix(file, "_test.go") && !strings.Contains(words, "*"+m[1]+"*") {
					t.Errorf("packs/README.md does not have *%s*, a word of the plan in %s", m[1], file)
				}
			}
		}
	}
}

// TestDocumentsHaveWhatAPlanShowsOfEachKind: the sentence about the plan of a pack, in the README of packs and in the
// security model, names what the plan shows of the tools of each kind.
func TestDocumentsHaveWhatAPlanShowsOfEachKind(t *testing.T) {
	for _, file := range []string{"../../junction/desk/packs/README.md", "../../../integration/safety/README.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, sentence, found := strings.Cut(strings.Join(strings.Fields(string(text)), " "), "The plan has ")
		if sentence, _, _ = strings.Cut(sentence, ". "); !found {
			t.Errorf("%s has no sentence that begins with: The plan has", file)
		}
		for _, kind := range pack.ManifestKinds() {
			if !strings.Contains(sentence, kind.Shows) {
				t.Errorf("%s says that the plan has %s, and does not name the %s of the kind %s", file, sentence, kind.Shows, kind.Key)
			}
		}
	}
}
