package upstreamtest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"testing"

	mcpgo "github.com/mark3labs/mcp-go/client"
	mcpgotypes "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"junction/upstream/upstreamtest"
)

// TestForeignClients has clients that we did not write find all pages of a list and make calls, so
// that what this package does right is right.
func TestForeignClients(t *testing.T) {
	for _, era := range []string{"legacy", "modern", "both"} {
		for _, wire := range []string{"stdio", "http", "http JSON", "sse"} {
			if wire == "sse" && era != "legacy" {
				continue // HTTP+SSE is of 2024-11-05
			}
			t.Run(era+" "+wire, func(t *testing.T) {
				script := upstreamtest.Script{Era: era, PageSize: 4, JSONAnswers: wire == "http JSON", Resumable: true}
				ctx := within(t)
				changed := make(chan struct{}, 1)
				c := mcp.NewClient(&mcp.Implementation{Name: "foreign", Version: "1"}, &mcp.ClientOptions{
					ToolListChangedHandler: func(_ context.Context, _ *mcp.ToolListChangedRequest) { changed <- struct{}{} },
				})
				cs, err := c.Connect(ctx, transport(t, wire, script), nil)
				if err != nil {
					t.Fatalf("connect: %v", err)
				}
				defer cs.Close()
				var names []string
				for tool, err := range cs.Tools(ctx, nil) {
					if err != nil {
						t.Fatalf("list: %v", err)
					}
					names = append(names, tool.Name)
				}
				if len(names) < 15 || len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
					t.Fatalf("tools = %q, want each behaviour once", names)
				}
				progressed, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "progress", Arguments: map[string]any{"n": 2}, Meta: mcp.Meta{"progressToken": "p"}})
				if err != nil || progressed.Content[0].(*mcp.TextContent).Text != "done" {
					t.Fatalf("progress = %+v, %v", progressed, err)
				}
				if _, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "fail"}); err == nil {
					t.Fatal("fail: no error")
				}
				if era == "legacy" {
					if _, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "settools"}); err != nil {
						t.Fatalf("settools: %v", err)
					}
					select {
					case <-changed:
					case <-ctx.Done():
						t.Fatal("no list_changed")
					}
				}
			})
		}
	}
}

func transport(t *testing.T, wire string, script upstreamtest.Script) mcp.Transport {
	switch wire {
	case "stdio":
		c := upstreamtest.Command(t, script)
		cmd := exec.Command(c.Command[0], c.Command[1:]...)
		cmd.Env = os.Environ()
		for k, v := range c.Env {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		return &mcp.CommandTransport{Command: cmd}
	case "sse":
		_, url := upstreamtest.StartSSE(t, script)
		return &mcp.SSEClientTransport{Endpoint: url}
	}
	_, url := upstreamtest.Start(t, script)
	return &mcp.StreamableClientTransport{Endpoint: url}
}

func TestForeignClientMCPGo(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			s, url := upstreamtest.Start(t, upstreamtest.Script{Era: era})
			c, err := mcpgo.NewStreamableHttpClient(url)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx := within(t)
			if err := c.Start(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Initialize(ctx, mcpgotypes.InitializeRequest{}); err != nil {
				t.Fatalf("initialize: %v", err)
			}
			call := mcpgotypes.CallToolRequest{}
			call.Params.Name = "echo"
			call.Params.Arguments = map[string]any{"x": 1}
			got, err := c.CallTool(ctx, call)
			if err != nil || got.Content[0].(mcpgotypes.TextContent).Text != `{"x":1}` {
				t.Fatalf("echo = %+v, %v", got, err)
			}
			if got, want := slices.Contains(s.Methods(), "initialize"), era == "legacy"; got != want {
				t.Fatalf("methods = %q: initialize %t, want %t", s.Methods(), got, want)
			}
		})
	}
}
