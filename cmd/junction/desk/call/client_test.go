package call

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/mark3labs/mcp-go/server/servertest"
	"github.com/spf13/cobra"

	"junction/auth/authtest"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/demo"
	"junction/upstream/client"
)

// eras are the newest version of each.
var eras = map[string]string{"legacy": "2025-11-25", "modern": "2026-07-28"}

// output is what a command printed and returned.
type output struct {
	stdout, stderr string
	err            error
}

// runClient runs `junction tools` or `junction call` with the arguments.
func runClient(t *testing.T, stdin string, args ...string) output {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := &cobra.Command{Use: "junction", SilenceErrors: true, SilenceUsage: true}
	out, errs := authtest.Command(t, args, &stdout, &stderr)
	root.AddCommand(toolsCommand(out, new(string)), callCommand(out, new(string)))
	root.SetOut(io.Discard) // nothing of ours goes there
	root.SetErr(errs)
	root.SetIn(strings.NewReader(stdin))
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return output{stdout.String(), stderr.String(), err}
}

// startLibrary serves mcp-go's own HTTP server in one era, with the demo's tools and one of each
// kind of result.
func startLibrary(t *testing.T, version string) string {
	t.Helper()
	s := demo.NewServer(io.Discard, authtest.Searched(t, "the log of the demo server", t.Output()))
	s.AddTool(mcp.NewTool("mixed", mcp.WithDescription("\n  Every kind of content.\nAnd a second line.")),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{
				mcp.NewTextContent("two\nlines\n"),
				mcp.NewImageContent(strings.Repeat("AAAA", 411), "image/png"),
				mcp.NewAudioContent("AAA=", "audio/wav"),
				mcp.NewResourceLink("file:///a.txt", "a.txt", "", ""),
				mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: "demo://t", MIMEType: "text/plain", Text: "inside"}),
				mcp.NewEmbeddedResource(mcp.BlobResourceContents{URI: "demo://b", Blob: "AAAA"}),
			}}, nil
		})
	s.AddTool(mcp.NewTool("fails", mcp.WithToolTitle("Always fails")), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultError("disk full"), nil
	})
	s.AddTool(mcp.NewTool("structured"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: json.RawMessage(`{"b":[1,2.0],"a":9007199254740993}`)}, nil
	})
	s.AddTool(mcp.NewToolWithRawSchema("typed", "Says what it was given.", json.RawMessage(`{"type":"object","properties":{
			"i":{"type":"integer"},"n":{"type":"number"},"b":{"type":"boolean"},"a":{"type":"array"},"o":{"type":"object"},"s":{"type":"string"},
			"where":{"type":"string","x-mcp-header":"Where"}}}`)),
		func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(string(r.Params.RawArguments)), nil
		})
	ts := servertest.NewTestStreamableHTTPServer(s, server.WithStreamableHTTPProtocolVersions(version))
	t.Cleanup(ts.Close)
	return ts.URL
}

func TestClientRoundTrips(t *testing.T) {
	for era, version := range eras {
		t.Run(era, func(t *testing.T) {
			url := startLibrary(t, version)
			for _, test := range []struct {
				name  string
				args  []string
				stdin string
				want  string // of standard output
				err   error
			}{
				{name: "tools", args: []string{"tools"}, want: `NAME        WHAT IT DOES
ask         Ask a question
count       Count with progress
echo        Echo
fails       Always fails
mixed       Every kind of content.
structured
typed       Says what it was given.
`},
				{name: "glob", args: []string{"tools", "*e*d"}, want: "NAME        WHAT IT DOES\nmixed       Every kind of content.\nstructured\ntyped       Says what it was given.\n"},
				{name: "text", args: []string{"call", "echo", "text=a=b <c>"}, want: "a=b <c>\n"},
				{name: "empty text", args: []string{"call", "echo", "text="}, want: "{\n  \"text\": \"\"\n}\n"},
				{name: "whole object", args: []string{"call", "echo", "--json", `{"text":"x"}`}, want: "x\n"},
				{name: "whole object on stdin", args: []string{"call", "echo", "--json", "-"}, stdin: "{\"text\":\n\"y\"}\n", want: "y\n"},
				{name: "typed", args: []string{"call", "typed", "i=9007199254740993", "n=1.50", "b=true", `a=[1, "x"]`, `o={"k":1}`, "s=7", "z=7"},
					want: `{"a":[1,"x"],"b":true,"i":9007199254740993,"n":1.50,"o":{"k":1},"s":"7","z":"7"}` + "\n"},
				{name: "parameter header", args: []string{"call", "typed", "where=eu-wést"}, want: `{"where":"eu-wést"}` + "\n"},
				{name: "mixed", args: []string{"call", "mixed"}, want: `two
lines
[image image/png, 1.2 KB]
[audio audio/wav, 2 B]
[resource a.txt file:///a.txt]
[resource demo://t text/plain]
inside
[resource demo://b, 3 B]
`},
				{name: "structured", args: []string{"call", "structured"},
					want: "{\n  \"b\": [\n    1,\n    2.0\n  ],\n  \"a\": 9007199254740993\n}\n"},
				{name: "failing tool", args: []string{"call", "fails"}, want: "disk full\n", err: cli.ErrTool},
				{name: "question", args: []string{"call", "ask"}, want: "The person could not be asked: this client does not offer elicitation.\n"},
			} {
				t.Run(test.name, func(t *testing.T) {
					got := runClient(t, test.stdin, append(test.args, "--url", url)...)
					if !errors.Is(got.err, test.err) || got.stdout != test.want || got.stderr != "" {
						t.Errorf("%q printed\n%s(standard error %q) and returned %v; want\n%sand %v", test.args, got.stdout, got.stderr, got.err, test.want, test.err)
					}
				})
			}
		})
	}
}

// scripted is a legacy endpoint that answers each method with the given text: a JSON result, or a
// stream when it begins with "data:", in which ID and TOKEN are those of the request.
func scripted(t *testing.T, answers map[string]string) string {
	t.Helper()
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Cursor string `json:"cursor"`
				Meta   struct {
					Token json.RawMessage `json:"progressToken"`
				} `json:"_meta"`
			} `json:"params"`
		}
		json.NewDecoder(r.Body).Decode(&m)
		answer, ok := answers[m.Method+m.Params.Cursor]
		switch {
		case answer == "broken off":
			w.Header().Set("Content-Type", "text/event-stream")
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case answer == "no answer":
			panic(http.ErrAbortHandler)
		case m.Method == "initialize":
			answer = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
			return
		case !ok:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
			return
		}
		if strings.HasPrefix(answer, "data:") {
			w.Header().Set("Content-Type", "text/event-stream")
			strings.NewReplacer("ID", string(m.ID), "TOKEN", string(m.Params.Meta.Token)).WriteString(w, answer)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, answer)
	}))
	t.Cleanup(ts.Close)
	return ts.URL
}

// What a typed client would lose, or lose everything to, must come out as it went in.
func TestClientKeepsWhatItDoesNotKnow(t *testing.T) {
	odd := `{"name":"odd","title":7,"inputSchema":true,"x-new":[1.0,12345678901234567890,"<&>"],"icons":{}}`
	result := `{"content":[{"type":"hologram","x":1.0},{"type":"text","text":"t"}],"newMember":12345678901234567890}`
	url := scripted(t, map[string]string{
		"tools/list":     `{"tools":[` + odd + `],"nextCursor":"next"}`,
		"tools/listnext": `{"tools":[{"name":"second","description":"evil \u001b[2J title"}],"nextCursor":""}`,
		"tools/call":     result,
	})
	for _, test := range []struct {
		args []string
		want string
		json bool // compare without white space between tokens
	}{
		{args: []string{"tools"}, want: "NAME    WHAT IT DOES\nodd\nsecond  evil [2J title\n"},
		{args: []string{"tools", "odd", "--output", "json"}, want: `{"tools":[` + odd + `]}`, json: true},
		{args: []string{"call", "odd"}, want: "[hologram; --output json shows it]\nt\n"},
		{args: []string{"call", "odd", "-o", "json"}, want: result, json: true},
	} {
		got := runClient(t, "", append(test.args, "--url", url)...)
		if test.json {
			var b bytes.Buffer
			if err := json.Compact(&b, []byte(got.stdout)); err != nil {
				t.Errorf("%q printed no JSON: %v", test.args, err)
			}
			got.stdout = b.String()
		}
		if got.err != nil || got.stdout != test.want {
			t.Errorf("%q printed\n%s\nand returned %v; want\n%s", test.args, got.stdout, got.err, test.want)
		}
	}
}

func TestClientProgress(t *testing.T) {
	url := scripted(t, map[string]string{
		"tools/list": `{"tools":[{"name":"slow"}]}`,
		"tools/call": "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":TOKEN,\"progress\":1,\"total\":2,\"message\":\"one\"}}\n\n" +
			"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":TOKEN,\"progress\":1.5}}\n\n" +
			"data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"done\"}]}}\n\n",
	})
	for _, test := range []struct {
		args   []string
		stderr string
	}{
		{args: []string{"call", "slow", "--url", url}},
		{args: []string{"call", "slow", "--url", url, "--progress"}, stderr: "1/2 one\n1.5\n"},
	} {
		got := runClient(t, "", test.args...)
		if got.err != nil || got.stdout != "done\n" || got.stderr != test.stderr {
			t.Errorf("%q printed %q and %q and returned %v, want done and %q", test.args, got.stdout, got.stderr, got.err, test.stderr)
		}
	}
}

// TestLateToolIsNamed: the time limit of the command ends a call. The error names the tool, not the endpoint.
func TestLateToolIsNamed(t *testing.T) {
	behind, err := url.Parse(scripted(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancelCause(t.Context())
	forward := httputil.NewSingleHostReverseProxy(behind)
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if bytes.Contains(body, []byte(`"tools/call"`)) {
			end(&lateError{"http://x/mcp", time.Minute}) // as the limit does
			<-r.Context().Done()
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(ts.Close)
	e, err := dial(ctx, client.Options{URL: ts.URL, Headers: map[string]string{}, Log: authtest.Log(t)}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	_, err = e.callTool(ctx, listedTool{name: "odd__hang"}, json.RawMessage(`{}`))
	if want := "no answer from the tool odd__hang within 1m0s; --timeout waits longer"; err == nil || err.Error() != want {
		t.Errorf("the call returned %v, want %s", err, want)
	}
}

// TestACallOutlastsTheFile: a call waits for as long as the file lets the server be silent, and for a moment more.
func TestACallOutlastsTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := `upstreams:
  quick: { command: [x] }
  slow: { command: [x], timeout: 5m, tools: { build: { timeout: 20m, max_timeout: 30m } } }
  short: { command: [x], timeout: 5s }
  own: { command: [x], prefix: "" }
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[string]time.Duration{"quick__a": usualTime, "short__a": usualTime, "slow__a": 5*time.Minute + 10*time.Second,
		"slow__build": 30*time.Minute + 10*time.Second, "anything": 5*time.Minute + 10*time.Second} {
		f := clientFlags{file: &file, timeout: usualTime}
		if f.outlast(tool); f.timeout != want {
			t.Errorf("a call of %s waits for %v, want %v", tool, f.timeout, want)
		}
		f = clientFlags{file: &file, timeout: usualTime, url: "https://other.example.com/mcp"}
		if f.outlast(tool); f.timeout != usualTime {
			t.Errorf("a call of %s elsewhere waits for %v", tool, f.timeout)
		}
	}
}

func TestClientErrors(t *testing.T) {
	plain := func(status int, contentType, body string) string {
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			io.WriteString(w, body)
		}))
		t.Cleanup(ts.Close)
		return ts.URL
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := "http://" + l.Addr().String() + "/mcp"
	l.Close()
	hung := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // or the server does not see that the client has gone
		<-r.Context().Done()
	}))
	t.Cleanup(hung.Close)

	private := httptest.NewTLSServer(http.NotFoundHandler())
	private.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(private.Close)

	modern := startLibrary(t, eras["modern"])
	bare := scripted(t, nil)
	endless := scripted(t, map[string]string{"tools/list": `{"tools":[],"nextCursor":"a"}`, "tools/lista": `{"tools":[],"nextCursor":"a"}`})
	missing := plain(404, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no upstream \"x\";\nthere are demo, memory"}}`)
	secret := plain(401, "text/plain; charset=utf-8", "a token is needed\n")
	html := plain(200, "text/html", "<html>")
	away := httptest.NewServer(http.RedirectHandler(modern, http.StatusTemporaryRedirect))
	t.Cleanup(away.Close)
	stopped := scripted(t, map[string]string{"tools/list": "broken off"})
	killed := scripted(t, map[string]string{"tools/list": "no answer"})

	for _, test := range []struct {
		name  string
		args  []string
		usage bool
		want  string
	}{
		{"nobody listens", []string{"tools", "--url", nobody}, false, "no endpoint at " + nobody + ": connection refused; is junction running?"},
		{"never answers", []string{"tools", "--url", hung.URL, "--timeout", "50ms"}, false,
			"no answer from " + hung.URL + " within 50ms; --timeout waits longer"},
		{"404 that says why", []string{"tools", "--url", missing}, false,
			missing + ` answered: no upstream "x"; there are demo, memory (code -32600)`},
		{"401", []string{"call", "x", "--url", secret}, false, secret + " answered 401 Unauthorized: a token is needed"},
		{"redirect", []string{"tools", "--key", "canary-of-a-key", "--url", away.URL}, false,
			away.URL + " answered 307 Temporary Redirect: it redirects to " + modern + "; if that is the endpoint, put it into --url"},
		{"web page", []string{"tools", "--url", html}, false, "no MCP endpoint at " + html + ": the server answered 200 OK with text/html and no message"},
		{"no TLS", []string{"tools", "--url", strings.Replace(html, "http:", "https:", 1)}, false,
			"no MCP endpoint at " + strings.Replace(html, "http:", "https:", 1) + ": tls: first record does not look like a TLS " +
				"handshake; the server does not speak TLS at this port: write http://, or correct the port"},
		{"a certificate that this machine does not trust", []string{"tools", "--url", private.URL}, false,
			"no MCP endpoint at " + private.URL + ": tls: failed to verify certificate: x509: certificate signed by unknown " +
				"authority; this machine does not trust the certificate: install its CA, or name a file with the CA in SSL_CERT_FILE"},
		{"stops in the middle", []string{"tools", "--url", stopped}, false, "the connection to " + stopped + " broke before the answer; is junction still running?"},
		{"stops before it answers", []string{"tools", "--url", killed}, false, "the connection to " + killed + " broke before the answer; is junction still running?"},
		{"no tools at all", []string{"tools", "--url", bare}, false, "tools/list: no such method (code -32601)"},
		{"endless list", []string{"tools", "--url", endless}, false, "the tools/list of " + endless + " has more than 1000 pages"},
		{"no match", []string{"tools", "x*", "--url", modern}, false, "no tool at " + modern + ` matches "x*"; it has 7`},
		{"unknown tool", []string{"call", "ecco", "--url", modern}, false, `no tool "ecco" at ` + modern + `; not sent: the list of this caller does not have it; did you mean echo?`},
		{"unknown tool, nothing near", []string{"call", "zzzzzzzzzz", "--url", modern}, false,
			`no tool "zzzzzzzzzz" at ` + modern + `; not sent: the list of this caller does not have it; junction tools lists what there is`},

		{"no name", []string{"call"}, true, "call needs the name of a tool; junction tools lists them"},
		{"no argument", []string{"call", "echo", "text"}, true, `"text" is no argument; write KEY=VALUE, or all of them as --json '{...}'`},
		{"no key", []string{"call", "echo", "=x"}, true, `"=x" is no argument; write KEY=VALUE, or all of them as --json '{...}'`},
		{"twice", []string{"call", "echo", "a=1", "a=1"}, true, "the argument a is given twice"},
		{"both ways", []string{"call", "echo", "a=1", "--json", "{}"}, true, "give the arguments either as --json or as KEY=VALUE, not both"},
		{"array", []string{"call", "echo", "--json", "[]"}, true, `--json is no JSON object but an array; write it like '{"key": "value"}'`},
		{"null", []string{"call", "echo", "--json", "null"}, true, `--json is no JSON object but null; write it like '{"key": "value"}'`},
		{"half", []string{"call", "echo", "--json", `{"a":`}, true, "--json is no JSON: unexpected end of JSON input"},
		{"nothing on stdin", []string{"call", "echo", "--json", "-"}, true, "the standard input is no JSON: unexpected end of JSON input"},
		{"wrong type", []string{"call", "typed", "i=1.5", "--url", modern}, true, `the argument i of typed is an integer, not "1.5"; write it like i=3`},
		{"two globs", []string{"tools", "a", "b"}, true, "tools takes one glob; quote it, or the shell replaces it with file names"},
		{"bad glob", []string{"tools", "[a"}, true, `"[a" is no glob: a [ is not closed`},
		{"bad url", []string{"tools", "--url", "127.0.0.1:8420"}, true, `--url "127.0.0.1:8420" is no endpoint; write it like http://127.0.0.1:8420/mcp`},
		{"bad output", []string{"tools", "--output", "yaml"}, true, `--output is text or json, not "yaml"`},
		{"bad timeout", []string{"tools", "--timeout", "-1s"}, true, "--timeout is negative"},
		{"unknown flag", []string{"tools", "--verbose"}, true, "unknown flag: --verbose"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := runClient(t, "", test.args...)
			if got.err == nil || got.err.Error() != test.want {
				t.Fatalf("error %v, want %s", got.err, test.want)
			}
			if usage := cli.IsUsage(got.err); usage != test.usage {
				t.Errorf("usage error: %v, want %v", usage, test.usage)
			}
			if got.stderr != "" || got.stdout != "" && test.name != "no match" {
				t.Errorf("printed %q and %q beside the error", got.stdout, got.stderr)
			}
		})
	}
}

func TestArgumentTypes(t *testing.T) {
	tool := newListedTool(json.RawMessage(`{"name":"t","inputSchema":{
		"$defs":{"Colour":{"enum":["red"],"type":"string"},"Point":{"type":"object"},"Loop":{"$ref":"#/$defs/Loop"},"a/b":{"type":"boolean"}},
		"properties":{
			"int":{"type":"integer"},"num":{"type":"number"},"bool":{"type":"boolean"},"arr":{"type":"array"},"obj":{"type":"object"},"null":{"type":"null"},
			"str":{"type":"string"},"any":{},"true":true,
			"either":{"type":["integer","null"]},"strOrInt":{"type":["integer","string"]},
			"optional":{"anyOf":[{"type":"integer"},{"type":"null"}]},"colour":{"$ref":"#/$defs/Colour"},"point":{"allOf":[{"$ref":"#/$defs/Point"}]},
			"loop":{"$ref":"#/$defs/Loop"},"lost":{"$ref":"#/$defs/Nowhere"},"escaped":{"$ref":"#/$defs/a~1b"}}}}`))
	for _, test := range []struct {
		word, want string // want "" is an error
	}{
		{"int=3", `3`}, {"int=-9007199254740993", `-9007199254740993`}, {"int= 3 ", `3`},
		{"int=3.5", ``}, {"int=1e3", ``}, {"int=abc", ``}, {"int=", ``}, {"int=03", ``}, {"int=3 4", ``}, {"int=null", ``}, {`int="3"`, ``},
		{"num=3", `3`}, {"num=1.50", `1.50`}, {"num=1e400", `1e400`}, {"num=NaN", ``}, {"num=true", ``},
		{"bool=true", `true`}, {"bool=false", `false`}, {"bool=yes", ``}, {"bool=1", ``},
		{"arr=[1,2]", `[1,2]`}, {"arr=1,2", ``}, {"arr={}", ``},
		{`obj={"a":{"b":1}}`, `{"a":{"b":1}}`}, {"obj=[]", ``}, {"obj={a:1}", ``},
		{"null=null", `null`}, {"null=0", ``},
		{"str=3", `"3"`}, {"str=null", `"null"`}, {`str="q"`, `"\"q\""`}, {"str=", `""`},
		{"any=3", `"3"`}, {"true=3", `"3"`}, {"unknown=3", `"3"`},
		{"either=3", `3`}, {"either=null", `null`}, {"either=x", ``}, {"strOrInt=3", `"3"`},
		{"optional=3", `3`}, {"optional=null", `null`}, {"optional=three", ``},
		{"colour=red", `"red"`}, {`point={"x":1}`, `{"x":1}`}, {"point=1", ``}, {"loop=1", `"1"`}, {"lost=1", `"1"`}, {"escaped=true", `true`}, {"escaped=x", ``},
	} {
		given, err := parseArguments([]string{test.word})
		if err != nil {
			t.Errorf("%s: %v", test.word, err)
			continue
		}
		got, err := tool.arguments(given, "")
		if test.want == "" {
			if !cli.IsUsage(err) {
				t.Errorf("%s = %s, %v; want a usage error", test.word, got, err)
			}
			continue
		}
		key, _, _ := strings.Cut(test.word, "=")
		if want := fmt.Sprintf("{%q:%s}", key, test.want); err != nil || string(got) != want {
			t.Errorf("%s = %s, %v; want %s", test.word, got, err, want)
		}
	}
	_, err := tool.arguments(map[string]string{"optional": "three"}, "")
	if want := `the argument optional of t is an integer or null, not "three"; write it like optional=3`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestSizeOf(t *testing.T) {
	for _, test := range []struct{ encoded, want string }{
		{"", "0 B"}, {"AA==", "1 B"}, {"AAA=", "2 B"}, {"AAAA", "3 B"}, {"AAA", "2 B"}, {strings.Repeat("AAAA", 333), "999 B"},
		{strings.Repeat("AAAA", 400), "1.2 KB"}, {strings.Repeat("AAAA", 1_000_000), "3.0 MB"},
	} {
		if got := sizeOf(test.encoded); got != test.want {
			t.Errorf("sizeOf(%d characters) = %s, want %s", len(test.encoded), got, test.want)
		}
	}
}

func TestPrintResult(t *testing.T) {
	for _, test := range []struct{ result, want string }{
		{`{"content":[]}`, ""},
		{`{"content":[],"isError":true}`, ""},
		{`{"content":[{"type":"text","text":"a"},{"type":"text","text":"b\n"}],"structuredContent":{"x":1}}`, "a\nb\n"},
		{`{"content":[{"type":"image"}],"structuredContent":[]}`, "[image of unknown type, 0 B]\n[]\n"},
		{`{"content":[7]}`, "[content of unknown type; --output json shows it]\n"},
		{`{"task":{"taskId":"t"}}`, "{\n  \"task\": {\n    \"taskId\": \"t\"\n  }\n}\n"},
		{`{"content":[],"resultType":"input_required"}`, "{\n  \"content\": [],\n  \"resultType\": \"input_required\"\n}\n"},
	} {
		var b strings.Builder
		if err := printResult(&b, json.RawMessage(test.result)); err != nil || b.String() != test.want {
			t.Errorf("printResult(%s) printed %q and returned %v, want %q", test.result, b.String(), err, test.want)
		}
	}
}
