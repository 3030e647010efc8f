package pack

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth/authtest"
	"junction/cmd/pack/manifest"
	"junction/upstream/sandbox"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sandbox.Word {
		os.Exit(sandbox.Main())
	}
	os.Exit(m.Run())
}

func load(t *testing.T, files map[string]string) (*Pack, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Load(dir, manifest.Options{})
	if err != nil {
		return nil, err
	}
	return New(t.Context(), m, NewRunners(authtest.Log(t)))
}

func mustLoad(t *testing.T, text string) *Pack {
	t.Helper()
	p, err := load(t, map[string]string{"pack.yaml": text})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNames: two files, and a file and a document, cannot have a tool of one name.
func TestNames(t *testing.T) {
	const tool = "tools: { same: { description: d, command: [echo] } }\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"two files": {map[string]string{"a.pack.yaml": tool, "b.pack.yaml": tool}, "b.pack.yaml:1: tools.same: is also a tool of"},
		"a document": {map[string]string{"pack.yaml": tool + "openapi: { x: { spec: x.yaml, base_url: https://a.example } }\n",
			"x.yaml": "openapi: 3.1.0\ninfo: { title: x, version: x }\npaths: { /a: { get: { operationId: same } } }\n"},
			"both have a tool same; rename one, or set prefix"},
		"resources": {map[string]string{"a.pack.yaml": "resources: { r: { file: x, uri: x:y } }", "x": "",
			"b.pack.yaml": "resources: { r: { file: x, uri: x:y } }"}, "b.pack.yaml:1: resources.r: has the same URI as r; set uri"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := load(t, test.files); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// TestTurns: a call waits while the tool is busy, at most for its timeout, and a caller that goes
// does not take a turn.
func TestTurns(t *testing.T) {
	p := mustLoad(t, "tools: { t: { description: d, command: [echo], concurrency: 1, timeout: 5s } }")
	synctest.Test(t, func(t *testing.T) {
		tool := p.Tool("t")
		tool.turns = make(chan struct{}, 1)
		free := make(chan struct{})
		tool.run = func(context.Context, call) (*mcp.CallToolResult, error) {
			<-free
			return mcp.NewToolResultText("done"), nil
		}
		first := make(chan *mcp.CallToolResult)
		go func() {
			r, _ := tool.Call(t.Context(), nil, nil)
			first <- r
		}()
		synctest.Wait()
		began := time.Now()
		r, err := tool.Call(t.Context(), nil, nil)
		if err != nil || !r.IsError || time.Since(began) != 5*time.Second ||
			!strings.Contains(textIn(r), "1 calls of t are in progress; try again later") {
			t.Errorf("a second call after %v: %+v, %v", time.Since(began), r, err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := tool.Call(gone, nil, nil); err == nil {
			t.Error("a caller that has gone gets a result")
		}
		close(free)
		if r := <-first; r.IsError {
			t.Errorf("the first call: %+v", r)
		}
		if r, err := tool.Call(t.Context(), nil, nil); err != nil || r.IsError {
			t.Errorf("a later call: %+v, %v", r, err)
		}
	})
}

func textIn(r *mcp.CallToolResult) string {
	text, _ := r.Content[0].(mcp.TextContent)
	return text.Text
}

// TestArguments: what does not fit the parameters is refused before anything runs.
func TestArguments(t *testing.T) {
	p := mustLoad(t, `tools: { t: { description: d, command: [echo, "{{n}}"], parameters: { n: { type: integer, maximum: 9 } } } }`)
	for arguments, want := range map[string]string{
		`{"n":3}`: "3\n", `{}`: "- n: ", `null`: "- n: ", `{"n":"3"}`: "- n: ", `{"n":10}`: "- n: ",
		`{"n":1,"x":2}`: "- x: ", `[]`: "no JSON object", `{"n":1,"n":2}`: "are no JSON object|the arguments",
	} {
		r, err := p.Tool("t").Call(t.Context(), json.RawMessage(arguments), nil)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for part := range strings.SplitSeq(want, "|") {
			found = found || strings.Contains(textIn(r), part)
		}
		if !found || r.IsError == (arguments == `{"n":3}`) {
			t.Errorf("%s: %q, want %q", arguments, textIn(r), want)
		}
	}
}

// TestResults: every form of an output becomes its kind of content.
func TestResults(t *testing.T) {
	p := mustLoad(t, `
tools:
  list: { description: d, command: [cat], output: json, output_schema: { type: array, items: { type: integer } } }
  any: { description: d, command: [cat], output: json }
  text: { description: d, command: [cat] }
  pdf: { description: d, command: [cat], output: application/pdf }
  page: { description: d, command: [cat], output: text/html }
  sound: { description: d, command: [cat], output: audio/wav }
`)
	for _, test := range []struct{ tool, data, want string }{
		{"list", "[1,2]", `"structuredContent":{"result":[1,2]}`},
		{"list", `["x"]`, "error: the output of list does not fit"},
		{"any", "3", `"structuredContent":{"result":3}`},
		{"any", `{"a":1}`, `"structuredContent":{"a":1}`},
		{"any", `{"a":1,"a":2}`, "error: the output of any is no JSON"},
		{"any", "", "error: the output of any is no JSON"},
		{"text", "", "(no output)"},
		{"text", "a\xff", "a\uFFFD"},
		{"pdf", "%PDF", `"uri":"pack:///pdf/output","mimeType":"application/pdf","blob":"JVBERg=="`},
		{"page", "<p>", `"text":"\u003cp\u003e"`},
		{"sound", "RIFF", `"type":"audio"`},
	} {
		tool := p.Tool(test.tool)
		r, err := newResults(tool.Source).result([]byte(test.data), false, string(tool.Source.Output))
		got := ""
		if err != nil {
			got = "error: " + err.Error()
		} else {
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			got = string(text)
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s %q: %s, want %s", test.tool, test.data, got, test.want)
		}
	}
}
