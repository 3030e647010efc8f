package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth/authtest"
)

// eras are the newest version of each.
var eras = map[string]string{"legacy": "2025-11-25", "modern": "2026-07-28"}

// startDemo runs demo over pipes and returns both ends. It checks at the end that demo returned nil
// once its input was closed. Demos cannot run in parallel in one process.
func startDemo(t *testing.T) (to io.WriteCloser, from io.Reader) {
	t.Helper()
	in, to := io.Pipe()
	from, out := io.Pipe()
	done := make(chan error)
	go func() {
		err := Serve(context.Background(), in, out, authtest.Searched(t, "the log of the demo server", t.Output()))
		out.Close()
		done <- err
	}()
	t.Cleanup(func() {
		to.Close()
		go io.Copy(io.Discard, from)
		if err := <-done; err != nil {
			t.Errorf("demo: %v", err)
		}
	})
	return to, from
}

type elicitor func(mcp.ElicitationRequest) (*mcp.ElicitationResult, error)

func (e elicitor) Elicit(_ context.Context, r mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	return e(r)
}

// mustConnectDemo starts a demo and connects an mcp-go client to it in the given version.
func mustConnectDemo(t *testing.T, version string, opts ...client.ClientOption) *client.Client {
	t.Helper()
	to, from := startDemo(t)
	c := client.NewClient(transport.NewIO(from, to, io.NopCloser(strings.NewReader(""))), append(opts, client.WithProtocolVersion(version))...)
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	got, err := c.Initialize(t.Context(), mcp.InitializeRequest{Params: mcp.InitializeParams{ClientInfo: mcp.Implementation{Name: "test", Version: "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	if got.ProtocolVersion != version {
		t.Fatalf("version %q, want %q", got.ProtocolVersion, version)
	}
	return c
}

func mustCall(t *testing.T, c *client.Client, name string, arguments map[string]any, token any) *mcp.CallToolResult {
	t.Helper()
	r := mcp.CallToolRequest{Params: mcp.CallToolParams{Name: name, Arguments: arguments}}
	if token != nil {
		r.Params.Meta = &mcp.Meta{ProgressToken: token}
	}
	result, err := c.CallTool(t.Context(), r)
	if err != nil {
		t.Fatalf("calling %s: %v", name, err)
	}
	return result
}

// textOf is the first text of a result, and its structured content as JSON.
func textOf(t *testing.T, r *mcp.CallToolResult) (string, string) {
	t.Helper()
	if len(r.Content) != 1 {
		t.Fatalf("content %v, want one item", r.Content)
	}
	item, ok := r.Content[0].(mcp.TextContent)
	if !ok {
		t.Fatalf("content %T, want text", r.Content[0])
	}
	return item.Text, string(r.RawStructuredContent)
}

func TestDemo(t *testing.T) {
	for era, version := range eras {
		t.Run(era, func(t *testing.T) {
			c := mustConnectDemo(t, version)

			list, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
				if tool.Title == "" || tool.Description == "" || tool.InputSchema.Type != "object" || tool.OutputSchema.Type != "object" {
					t.Errorf("tool %+v is not described", tool)
				}
				if h := tool.Annotations.ReadOnlyHint; h == nil || !*h {
					t.Errorf("tool %s is not declared read-only", tool.Name)
				}
			}
			if want := []string{"ask", "count", "echo"}; !slices.Equal(names, want) {
				t.Errorf("tools %v, want %v", names, want)
			}

			const hostile = "line\nline \u2028 <b> 9007199254740993"
			text, structured := textOf(t, mustCall(t, c, "echo", map[string]any{"text": hostile}, nil))
			var echo demoEcho
			if err := json.Unmarshal([]byte(structured), &echo); err != nil || text != hostile || echo.Text != hostile {
				t.Errorf("echo = %q and %s (%v), want %q in both", text, structured, err, hostile)
			}

			resource, err := c.ReadResource(t.Context(), mcp.ReadResourceRequest{Params: mcp.ReadResourceParams{URI: "demo://readme"}})
			if err != nil {
				t.Fatal(err)
			}
			want := mcp.TextResourceContents{URI: "demo://readme", MIMEType: "text/markdown", Text: demoReadme}
			if got, ok := resource.Contents[0].(mcp.TextResourceContents); !ok || got.Text != want.Text || got.URI != want.URI || got.MIMEType != want.MIMEType {
				t.Errorf("readme = %+v, want %+v", resource.Contents, want)
			}

			prompt, err := c.GetPrompt(t.Context(), mcp.GetPromptRequest{Params: mcp.GetPromptParams{Name: "greet", Arguments: map[string]string{"name": "Ada"}}})
			if err != nil {
				t.Fatal(err)
			}
			if got := prompt.Messages[0].Content.(mcp.TextContent).Text; got != "Greet Ada warmly, in one sentence." {
				t.Errorf("greet = %q", got)
			}
		})
	}
}

func TestDemoRefusesArguments(t *testing.T) {
	c := mustConnectDemo(t, eras["legacy"])
	for _, test := range []struct {
		tool      string
		arguments map[string]any
		want      string
	}{
		{"echo", nil, `required argument "text" not found`},
		{"echo", map[string]any{"text": 1}, `argument "text" is not a string`},
		{"count", nil, `required argument "n" not found`},
		{"count", map[string]any{"n": 0}, "n is 0; it must be from 1 to 1000"},
		{"count", map[string]any{"n": 1001}, "n is 1001; it must be from 1 to 1000"},
		{"count", map[string]any{"n": 1, "ms": -1}, "ms is -1; it must be from 0 to 60000"},
	} {
		result := mustCall(t, c, test.tool, test.arguments, nil)
		if got := result.Content[0].(mcp.TextContent).Text; got != test.want || !result.IsError {
			t.Errorf("%s(%v) = %q, isError %v; want %q as an error", test.tool, test.arguments, got, result.IsError, test.want)
		}
	}
}

// The progress of a call must all come before its result, and only when it was asked for.
func TestDemoCount(t *testing.T) {
	for era, version := range eras {
		t.Run(era, func(t *testing.T) {
			c := mustConnectDemo(t, version)
			var got []any // appended to by the reading goroutine, before it hands over the result
			c.OnNotification(func(n mcp.JSONRPCNotification) {
				if n.Method == string(mcp.MethodNotificationProgress) {
					got = append(got, n.Params.AdditionalFields["progressToken"], n.Params.AdditionalFields["progress"], n.Params.AdditionalFields["total"])
				}
			})
			text, structured := textOf(t, mustCall(t, c, "count", map[string]any{"n": 3, "ms": 0}, "token"))
			if text != "Counted 3 steps." || structured != `{"steps":3}` {
				t.Errorf("count = %q and %s", text, structured)
			}
			if want := []any{"token", 1.0, 3.0, "token", 2.0, 3.0, "token", 3.0, 3.0}; !slices.Equal(got, want) {
				t.Errorf("progress %v, want %v", got, want)
			}
			got = nil
			mustCall(t, c, "count", map[string]any{"n": 3, "ms": 0}, nil)
			if got != nil {
				t.Errorf("progress %v without a token, want none", got)
			}
		})
	}
}

func TestDemoAsk(t *testing.T) {
	accept := mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionAccept, Content: map[string]any{"answer": "blue"}}
	for _, test := range []struct {
		name             string
		answer           mcp.ElicitationResponse
		err              error
		text, structured string
		legacyOnly       string // why
	}{
		{name: "accept", answer: accept, text: "The answer is: blue", structured: `{"action":"accept","answer":"blue"}`},
		{name: "decline", answer: mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionDecline},
			text: "The person declined to answer.", structured: `{"action":"decline"}`},
		{name: "cancel", answer: mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionCancel},
			text: "The person closed the question without an answer.", structured: `{"action":"cancel"}`},
		{name: "refused", err: errors.New("no screen"), text: "The person could not be asked: elicitation request failed: no screen.",
			structured: `{"action":"unavailable"}`, legacyOnly: "a modern client that fails to ask does not call again"},
	} {
		for era, version := range eras {
			t.Run(test.name+"/"+era, func(t *testing.T) {
				if test.legacyOnly != "" && era != "legacy" {
					t.Skip(test.legacyOnly)
				}
				var asked string
				c := mustConnectDemo(t, version, client.WithElicitationHandler(elicitor(func(r mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
					asked = r.Params.Message
					return &mcp.ElicitationResult{ElicitationResponse: test.answer}, test.err
				})))
				text, structured := textOf(t, mustCall(t, c, "ask", map[string]any{"question": "Which colour?"}, nil))
				if text != test.text || structured != test.structured {
					t.Errorf("ask = %q and %s, want %q and %s", text, structured, test.text, test.structured)
				}
				if asked != "Which colour?" {
					t.Errorf("asked %q", asked)
				}
			})
		}
	}
	for era, version := range eras {
		t.Run("unable/"+era, func(t *testing.T) {
			result := mustCall(t, mustConnectDemo(t, version), "ask", nil, nil)
			text, structured := textOf(t, result)
			if want := "The person could not be asked: this client does not offer elicitation."; text != want || result.IsError {
				t.Errorf("ask = %q (isError %v), want %q as a normal result", text, result.IsError, want)
			}
			if structured != `{"action":"unavailable"}` {
				t.Errorf("structured %s", structured)
			}
		})
	}
}

// A call in flight must not keep the demo alive once its input is closed. startDemo's cleanup waits
// for demo to return.
func TestDemoEndsInMidCall(t *testing.T) {
	to, from := startDemo(t)
	lines := bufio.NewScanner(from)
	for _, m := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"count","arguments":{"n":1000,"ms":60000}}}`,
		`{"jsonrpc":"2.0","id":3,"method":"ping"}`,
	} {
		if _, err := io.WriteString(to, m+"\n"); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(m, "tools/call") {
			continue
		}
		if !lines.Scan() {
			t.Fatalf("no answer to %s: %v", m, lines.Err())
		}
		if strings.Contains(lines.Text(), `"error"`) {
			t.Fatalf("answer to %s: %s", m, lines.Text())
		}
	}
}

// TestDemoManyAtOnce: as many calls as a proxy sends it at once (concurrency) do not wait for each
// other. A person may think about a question of ask for minutes.
func TestDemoManyAtOnce(t *testing.T) {
	to, from := startDemo(t)
	lines := bufio.NewScanner(from)
	var calls strings.Builder
	for id := range 31 {
		fmt.Fprintf(&calls, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"count","arguments":{"n":1,"ms":5000}}}`+"\n", id+2)
	}
	for _, m := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`,
		calls.String() + `{"jsonrpc":"2.0","id":99,"method":"tools/call","params":{"name":"echo","arguments":{"text":"first"}}}`,
	} {
		if _, err := io.WriteString(to, m+"\n"); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
	}
	if got := lines.Text(); !strings.Contains(got, `"id":99`) {
		t.Errorf("the first answer is %s, want that of echo", got)
	}
}

func TestDemoEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, to := io.Pipe()
	defer to.Close() // ends the read that demo cannot
	cancel()
	if err := Serve(ctx, in, io.Discard, authtest.Searched(t, "the log of the demo server", t.Output())); err != nil {
		t.Errorf("demo = %v, want nil: the end was asked for", err)
	}
}
