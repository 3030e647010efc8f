package pack

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth/authtest"
	"junction/upstream/yamlread"

	"junction/cmd/pack/manifest"
)

// TestEveryKindOfToolHasItsFacts: each kind is read, shown, called and documented.
func TestEveryKindOfToolHasItsFacts(t *testing.T) {
	const example = "../junction-pack/pack.example.yaml"
	documented, err := Load(example, manifest.Options{Unresolved: true})
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../junction-pack/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for i, kind := range kinds {
		lacks := lackedFacts(kind)
		for _, fact := range lacks {
			t.Errorf("row %d of kinds lacks the fact %s", i, fact)
		}
		if lacks != nil {
			return
		}
		words = append(words, "`"+kind.Key+"`")
	}
	last := len(words) - 1
	if text := "Each tool has " + strings.Join(words[:last], ", ") + " or " + words[last]; !strings.Contains(string(readme), text) {
		t.Errorf("the README does not say %q", text)
	}
	changes, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	_, offer, _ := strings.Cut(string(changes), "an MCP server whose tools a manifest describes (")
	offer, _, _ = strings.Cut(offer, ")")
	_, intro, _ := strings.Cut(string(readme), "\n\n")
	intro, _, _ = strings.Cut(intro, "\n\n")
	keys := yamlread.Keys(reflect.TypeFor[manifest.Tool]())
	for _, kind := range kinds {
		for place, text := range map[string]string{"the first paragraph of the README": intro, "CHANGELOG.md": offer} {
			if !regexp.MustCompile(`\b` + kind.Tools + `\b`).MatchString(text) {
				t.Errorf("%s does not say that tools are made from %s: %q", place, kind.Tools, text)
			}
		}
		if !regexp.MustCompile(`(?mi)^## ` + kind.Key + ` tools$`).Match(readme) {
			t.Errorf("the README has no section about the tools of the kind %s", kind.Key)
		}
		section := regexp.MustCompile(`(?msi)^## ` + kind.Key + ` tools$.*?(^## |\z)`).FindString(string(readme))
		if !strings.Contains(section, "Without `annotations`") {
			t.Errorf("the section of the README about the kind %s does not say which hints a tool has without annotations "+
				"(the fact hints)", kind.Key)
		}
		for _, key := range kind.Keys {
			if keys[key] == nil {
				t.Errorf("tools of the kind %s have the key %s, which no tool has", kind.Key, key)
			}
		}
		if keys[kind.Key] != nil {
			t.Errorf("all tools have the key %s", kind.Key)
		}
		tools := documented.Manifests[0].Tools
		i := slices.IndexFunc(tools, func(source *manifest.Tool) bool { return KindOf(source) == kind })
		if i < 0 {
			t.Errorf("%s has no tool of the kind %s", example, kind.Key)
			continue
		}
		if kind.Runs && len(tools[i].Command) == 0 {
			t.Errorf("the Action of the kind %s does not set Command, from which sandboxes know the program", kind.Key)
		}
		var shown facts
		kind.Plan(tools[i], &shown)
		lines := 0
		kind.Describe(tools[i], func(string, string, ...any) { lines++ })
		if len(shown) == 0 || lines == 0 {
			t.Errorf("nothing is shown of a tool of the kind %s: %q, %d lines", kind.Key, shown, lines)
		}
	}
}

// mayBeEmpty are the facts of a row that a kind of tool can be without.
var mayBeEmpty = []string{"Keys", "Limits", "Runs"}

// lackedFacts returns the names of the facts that a row lacks.
func lackedFacts(kind *Kind) (names []string) {
	if kind.Kind == nil {
		return []string{"Kind"}
	}
	for _, row := range []reflect.Value{reflect.ValueOf(*kind), reflect.ValueOf(*kind.Kind)} {
		for i := range row.NumField() {
			if name := row.Type().Field(i).Name; row.Field(i).IsZero() && !slices.Contains(mayBeEmpty, name) {
				names = append(names, name)
			}
		}
	}
	if !strings.HasPrefix(kind.Example, kind.Key+": ") {
		names = append(names, "Example, which begins with the key")
	}
	return names
}

// TestLackedFactsHaveTheirNames: the test of the rows names each fact that is missing.
func TestLackedFactsHaveTheirNames(t *testing.T) {
	for _, test := range []struct {
		kind *Kind
		want string
	}{
		{&Kind{}, "Kind"},
		{&Kind{Kind: &manifest.Kind{Key: "x", Tools: "x tools", Shows: "xs", Example: "y: 1"}},
			"Plan Describe hints run New Example, which begins with the key"},
	} {
		if got := strings.Join(lackedFacts(test.kind), " "); got != test.want {
			t.Errorf("%+v lacks %q, want %q", test.kind.Kind, got, test.want)
		}
	}
}

// TestKeysOfAPackAreDocumented: pack.example.yaml has each key of a manifest, the section of a kind in the README has
// the keys of its value, and the table of all tools says of a limit which kinds do not have it.
func TestKeysOfAPackAreDocumented(t *testing.T) {
	mustRead := func(name string) string {
		text, err := os.ReadFile("../junction-pack/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	example, readme := mustRead("pack.example.yaml"), mustRead("README.md")
	given := func(key string) bool { return regexp.MustCompile(`(^|[\s{])` + key + `:`).MatchString(example) }
	types := []reflect.Type{reflect.TypeFor[manifest.Manifest](), reflect.TypeFor[manifest.Tool](), reflect.TypeFor[manifest.API](),
		reflect.TypeFor[manifest.Prompt](), reflect.TypeFor[manifest.Resource]()}
	for _, kind := range kinds {
		section := regexp.MustCompile(`(?msi)^## ` + kind.Key + ` tools$.*?(^## |\z)`).FindString(readme)
		action := reflect.TypeOf(kind.New(&manifest.Tool{})).Elem()
		if action.Kind() != reflect.Struct || action.NumField() == 1 && action.Field(0).Anonymous { // a text, or keys of the tool
			continue
		}
		types = append(types, action)
		for key := range yamlread.Keys(action) {
			if !regexp.MustCompile("`" + key + "\\b|\\b" + key + ":").MatchString(section) {
				t.Errorf("the section of the README about the kind %s does not have its key %s", kind.Key, key)
			}
		}
	}
	for _, of := range types {
		for key := range yamlread.Keys(of) {
			if !given(key) {
				t.Errorf("pack.example.yaml does not have the key %s of %s", key, of)
			}
		}
	}
	for key := range yamlread.Keys(reflect.TypeFor[manifest.Limits]()) {
		row := regexp.MustCompile("(?m)^\\| `" + key + "` \\|.*$").FindString(readme)
		for _, kind := range kinds {
			if not := "not for " + kind.Tools; kind.HasLimit(key) == strings.Contains(row, not) {
				t.Errorf("tools of the kind %s have the limit %s: %v; the README has %q, want %q there only otherwise: write it into the "+
					"first sentence of the comment of the field in package manifest, and run go generate "+
					"./cmd/junction/base/config", kind.Key, key, kind.HasLimit(key), row, not)
			}
		}
	}
}

// TestToolsOfEachKindAreCalled: a call of a tool of each kind has its result, and a failure is one of the tool.
func TestToolsOfEachKindAreCalled(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/works" {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, "done")
	}))
	defer api.Close()
	calls := map[string]struct{ works, done, fails, failure string }{ // by kind
		"command": {"[echo, done]", "done", `[sh, -c, "exit 1"]`, "exited with status 1"},
		"http":    {"{ url: '" + api.URL + "/works' }", "done", "{ url: '" + api.URL + "/none' }", "404"},
		// the client of this test has no model; the story pack_clients has one
		"prompt": {fails: "{ text: hello }", failure: "does not offer"},
	}
	for _, kind := range kinds {
		made, known := calls[kind.Key]
		if !known {
			t.Errorf("this test calls no tool of the kind %s: add one to calls", kind.Key)
		}
		if known && (made.fails == "" || made.failure == "" || (made.works == "") != (made.done == "")) {
			t.Errorf("the tool of the kind %s in calls has no value that fails, or no words of a failure or a result: a result beyond "+
				"max_output is a failure of each kind", kind.Key)
		}
		for value, want := range map[string]string{made.works: made.done, made.fails: made.failure} {
			if value == "" {
				continue
			}
			p := mustLoad(t, "tools: { t: { description: d, "+kind.Key+": "+value+" } }")
			r, err := p.Tool("t").Call(t.Context(), nil, nil)
			if err != nil || r.IsError != (value == made.fails) || !strings.Contains(textIn(r), want) {
				t.Errorf("%s: %s is %+v, %v, want %q", kind.Key, value, r, err, want)
			}
		}
	}
}

// facts are the facts of a Listing.
type facts []string

func (f *facts) Fact(kind, detail string)       { *f = append(*f, kind+" "+detail) }
func (*facts) Texts(string, manifest.Variables) {}
func (*facts) URL(string)                       {}
func (*facts) Host(string)                      {}
func (*facts) Program(string)                   {}
func (*facts) Variable(string)                  {}
func (*facts) Sandbox(*manifest.Tool)           {}
func (f *facts) In(dir manifest.Ref, _ string) {
	if dir.Source != "" {
		f.Fact("in", dir.Source)
	}
}
func (*facts) Here(path string) string { return path }

// TestUnknownKindIsNotRun calls a tool of a kind that has no row, in a pack and in its preview, which
// has no runners.
func TestUnknownKindIsNotRun(t *testing.T) {
	for name, runners := range map[string]Runners{"pack": NewRunners(authtest.Log(t)), "preview": {}} {
		source := &manifest.Tool{Name: "new", Shell: true}
		tool := newTool(&manifest.Manifest{}, source, runners)
		if result, err := tool.run(t.Context(), call{}); !errors.Is(err, errKind) {
			t.Errorf("%s: the call = %+v, %v; want the error that names the kinds", name, result, err)
		}
	}
}

// TestOutputOfEachKindIsBounded: what a kind makes without a limit of its own keeps max_output, too.
func TestOutputOfEachKindIsBounded(t *testing.T) {
	tool := &manifest.Tool{Name: "long", Limits: manifest.Limits{MaxOutput: 10}}
	r := newResults(tool)
	if got, err := r.result([]byte("0123456789"), false, ""); err != nil || got.Content[0].(mcp.TextContent).Text != "0123456789" {
		t.Errorf("an output of ten bytes is %v, %v", got, err)
	}
	if _, err := r.result([]byte("0123456789a"), false, ""); err == nil || !strings.Contains(err.Error(), "has 11 bytes, more than its limit of 10 (max_output)") {
		t.Errorf("a longer output has the error %v", err)
	}
	cut := true
	tool.Cut = &cut
	got, err := r.result([]byte("0123456789a"), false, "")
	if err != nil || !strings.HasPrefix(got.Content[0].(mcp.TextContent).Text, "0123456789\n[cut: ") {
		t.Errorf("a longer output is cut to %v, %v", got, err)
	}
}

// TestOutputOfAnAPIIsBounded: an operation of an OpenAPI document has the limits of its document.
func TestOutputOfAnAPIIsBounded(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, strings.Repeat("x", len(r.URL.Path)))
	}))
	defer s.Close()
	p, err := load(t, map[string]string{
		"pack.yaml": "openapi: { x: { spec: x.yaml, base_url: " + s.URL + ", allow_http: true, max_output: 10 } }\n",
		"x.yaml": "openapi: 3.1.0\ninfo: { title: x, version: x }\npaths:\n" +
			"  /ten-bytes: { get: { operationId: fits } }\n  /ten-bytes-: { get: { operationId: long } }\n"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"fits": "xxxxxxxxxx", "long": "max_output"} {
		r, err := p.Tool(name).Call(t.Context(), nil, nil)
		if err != nil || r.IsError != (name == "long") || !strings.Contains(textIn(r), want) {
			t.Errorf("%s: %+v, %v; want %q", name, r, err, want)
		}
	}
}
