//lint:file-ignore SA1019 logging and roots are deprecated, and servers of today have them

package upstreamtest_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"junction/upstream/upstreamtest"
)

// everything is a server of every kind of thing.
var everything = upstreamtest.Script{
	Prompts:     []json.RawMessage{[]byte(`{"name":"greet","arguments":[{"name":"who"}]}`), []byte(`{"name":"verbatim"}`)},
	Messages:    map[string]json.RawMessage{"verbatim": []byte(`{"messages":[{"role":"user","content":{"type":"text","text":"é"}}]}`)},
	Resources:   []json.RawMessage{[]byte(`{"uri":"file:///a","name":"a"}`)},
	Templates:   []json.RawMessage{[]byte(`{"uriTemplate":"file:///t/{x}","name":"t"}`)},
	Contents:    map[string]json.RawMessage{"file:///b": []byte(`[{"uri":"file:///b","text":"b"},{"uri":"file:///b/c","text":"c"}]`)},
	Completions: map[string]json.RawMessage{"greet": []byte(`{"values":["you"]}`), "file:///t/{x}": []byte(`{"values":["1","2"],"hasMore":true}`)},
	Logging:     true,
}

// TestForeignClientUsesEverything has a client that we did not write use all that a script can
// have.
func TestForeignClientUsesEverything(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		for _, wire := range []string{"stdio", "http", "sse"} {
			if wire == "sse" && era == "modern" {
				continue
			}
			t.Run(era+" "+wire, func(t *testing.T) {
				script := everything
				script.Era, script.PageSize = era, 1
				ctx := within(t)
				updated, logged, changed := make(chan string, 10), make(chan mcp.LoggingLevel, 10), make(chan struct{}, 10)
				c := mcp.NewClient(&mcp.Implementation{Name: "foreign", Version: "1"}, &mcp.ClientOptions{
					ResourceUpdatedHandler:   func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) { updated <- r.Params.URI },
					LoggingMessageHandler:    func(_ context.Context, r *mcp.LoggingMessageRequest) { logged <- r.Params.Level },
					PromptListChangedHandler: func(context.Context, *mcp.PromptListChangedRequest) { changed <- struct{}{} },
					ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"said": r.Params.Message}}, nil
					},
				})
				c.AddRoots(&mcp.Root{URI: "file:///root"})
				cs, err := c.Connect(ctx, transport(t, wire, script), nil)
				if err != nil {
					t.Fatalf("connect: %v", err)
				}
				defer cs.Close()
				var prompts []string
				for p, err := range cs.Prompts(ctx, nil) {
					if err != nil {
						t.Fatal(err)
					}
					prompts = append(prompts, p.Name)
				}
				if !slices.Equal(prompts, []string{"greet", "verbatim"}) {
					t.Errorf("prompts = %q", prompts)
				}
				got, err := cs.GetPrompt(ctx, &mcp.GetPromptParams{Name: "greet", Arguments: map[string]string{"who": "you"}})
				if err != nil || got.Messages[0].Content.(*mcp.TextContent).Text != `{"who":"you"}` {
					t.Errorf("greet = %+v, %v", got, err)
				}
				for uri, want := range map[string]string{"file:///a": "content of file:///a", "file:///b": "b", "file:///t/1": "content of file:///t/1"} {
					if r, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri}); err != nil || r.Contents[0].Text != want {
						t.Errorf("read %s = %+v, %v, want %s", uri, r, err, want)
					}
				}
				if _, err := cs.ReadResource(ctx, &mcp.ReadResourceParams{URI: "file:///nothing"}); err == nil {
					t.Error("a resource that is not there was read")
				}
				completed, err := cs.Complete(ctx, &mcp.CompleteParams{Ref: &mcp.CompleteReference{Type: "ref/resource", URI: "file:///t/{x}"}, Argument: mcp.CompleteParamsArgument{Name: "x"}})
				if err != nil || !slices.Equal(completed.Completion.Values, []string{"1", "2"}) {
					t.Errorf("complete = %+v, %v", completed, err)
				}
				asked, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "ask", Arguments: map[string]any{"questions": []any{
					map[string]any{"method": "elicitation/create", "params": map[string]any{"message": "hello", "requestedSchema": map[string]any{"type": "object"}}},
					// without params the SDK of 2026 cannot read it
					map[string]any{"method": "roots/list", "params": map[string]any{}},
				}}})
				const answers = `{"answers":[{"result":{"action":"accept","content":{"said":"hello"}}},{"result":{"roots":[{"uri":"file:///root"}]}}],"executions":1}`
				if err != nil || asked.Content[0].(*mcp.TextContent).Text != answers {
					t.Errorf("ask = %s, %v\nwant %s", must(json.Marshal(asked)), err, answers)
				}
				if era == "modern" {
					return // what is subscribed to is the matter of the proxy's own client
				}
				if err := cs.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "warning"}); err != nil {
					t.Errorf("setLevel: %v", err)
				}
				if err := cs.Subscribe(ctx, &mcp.SubscribeParams{URI: "file:///dir"}); err != nil {
					t.Errorf("subscribe: %v", err)
				}
				for name, arguments := range map[string]map[string]any{
					"log": {"levels": []string{"debug", "error"}, "on": "get"}, "update": {"uri": "file:///dir/x"}, "set": {"prompts": []any{}},
				} {
					if _, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments}); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				if level := receive(t, ctx, logged); level != "error" {
					t.Errorf("logged %s, want error", level)
				}
				if uri := receive(t, ctx, updated); uri != "file:///dir/x" {
					t.Errorf("updated %s", uri)
				}
				receive(t, ctx, changed)
			})
		}
	}
}

func receive[T any](t *testing.T, ctx context.Context, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-ctx.Done():
		t.Fatal("nothing came")
	}
	return v
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestListensToEverything(t *testing.T) {
	script := everything
	script.Era = "modern"
	s, p, _ := stdio(t, script)
	p.send(`{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"notifications":{"promptsListChanged":true,"resourcesListChanged":false,` +
		`"resourceSubscriptions":["file:///a"]},` + meta + `}}`)
	const tag = `"_meta":{"io.modelcontextprotocol/subscriptionId":7}}}`
	p.want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"promptsListChanged":true,"resourceSubscriptions":["file:///a"]},` + tag)
	go func() {
		s.Set("resources/list", nil)
		s.SetTools(nil)
		s.Set("prompts/list", nil)
		s.Updated("file:///ab")
		s.Updated("file:///a/b")
	}()
	p.want(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{`+tag,
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"file:///a/b",`+tag)
}

func TestCapabilitiesFollowTheScript(t *testing.T) {
	script := everything
	script.Era, script.Tasks, script.NoSubscribe = "both", true, true
	_, p, _ := stdio(t, script)
	const common = `"capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":false,"listChanged":true},"completions":{},"logging":{},`
	p.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + meta + `}}`)
	p.want(`{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2024-11-05","2025-03-26","2025-06-18","2025-11-25","2026-07-28"],` + common +
		`"extensions":{"io.modelcontextprotocol/tasks":{}}},"ttlMs":0,"cacheScope":"private","resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"upstreamtest","version":"1.0.0"}}}}`)
	p.send(`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{}}}`)
	p.want(`{"jsonrpc":"2.0","id":2,"result":{"protocolVersion":"2025-11-25",` + common +
		`"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"upstreamtest","version":"1.0.0"}}}`)
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"x"}}`)
	p.want(`{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"message":"Method not found"}}`)
	p.send(`{"jsonrpc":"2.0","id":4,"method":"resources/read","params":{"uri":"x"}}`, `{"jsonrpc":"2.0","id":5,"method":"resources/read","params":{"uri":"x",`+meta+`}}`)
	p.wantAny(`{"jsonrpc":"2.0","id":4,"error":{"code":-32002,"message":"Resource not found","data":{"uri":"x"}}}`,
		`{"jsonrpc":"2.0","id":5,"error":{"code":-32602,"message":"Resource not found","data":{"uri":"x"}}}`)
}

// wantAny wants these lines in any order.
func (p *pipe) wantAny(lines ...string) {
	p.t.Helper()
	for range len(lines) {
		got, err := p.out.ReadString('\n')
		i := slices.Index(lines, got[:max(0, len(got)-1)])
		if i < 0 {
			p.t.Fatalf("got  %s (%v)\nwant one of %q", got, err, lines)
		}
		lines = slices.Delete(slices.Clone(lines), i, i+1)
	}
}
