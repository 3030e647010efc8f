package integration

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// next returns the next message on a stream.
func (s *eventStream) next(t *testing.T) string {
	t.Helper()
	for {
		v, err := s.read()
		if err != nil {
			t.Fatalf("read the stream: %v", err)
		}
		if len(v.Data) > 0 {
			return string(v.Data)
		}
	}
}

func TestProtocolT94UpdatesReachTheirSubscribers(t *testing.T) {
	for _, era := range clientEras() {
		for _, up := range clientEras() {
			t.Run(string(era)+"-"+string(up), func(t *testing.T) {
				script := upstreamtest.Script{Era: string(up), Resources: []json.RawMessage{[]byte(`{"uri":"file:///a","name":"a"}`), []byte(`{"uri":"file:///b","name":"b"}`)}}
				server, url := upstreamtest.Start(t, script)
				e := mustProxy(t, map[string]upstream.Config{"up": {URL: url}})
				// before that the server has nowhere to tell it, and all that was subscribed to
				// before may have changed
				if up == upstream.EraLegacy {
					(&served{Journal: &server.Journal}).listened(t, pair{era, up, "http"})
				}
				c := mustClient(t, e, era)
				tag := ""
				var stream *eventStream
				if era == upstream.EraLegacy {
					stream = c.mustOpen(t)
					for _, uri := range []string{"mcp://up/file:///a", "mcp://up/file:///a"} { // twice is once
						if a := c.call(t, "resources/subscribe", `{"uri":"`+uri+`"}`); string(a.message.Result) != "{}" {
							t.Fatalf("subscribe: %s", a)
						}
					}
				} else {
					tag = `,"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}`
					stream = mustListen(t, c, `{"resourceSubscriptions":["mcp://up/file:///a"]}`)
					want := `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"resourceSubscriptions":["mcp://up/file:///a"]}` + tag + `}}`
					if got := stream.next(t); got != want {
						t.Fatalf("acknowledged %s\nwant %s", got, want)
					}
				}
				server.Updated("file:///b")
				server.Updated("file:///a/part")
				server.Updated("file:///a")
				update := func(uri string) string {
					return `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mcp://up/` + uri + `"` + tag + `}}`
				}
				if got := stream.next(t); got != update("file:///a/part") {
					t.Errorf("heard %s\nwant  %s", got, update("file:///a/part"))
				}
				if got := stream.next(t); got != update("file:///a") {
					t.Errorf("heard %s\nwant  %s", got, update("file:///a"))
				}
				if n := strings.Count(strings.Join(server.Methods(), " ")+" ", "resources/subscribe "); up == upstream.EraLegacy && n != 1 {
					t.Errorf("the upstream was asked %d times to follow", n)
				}
			})
		}
	}
}

// mustListen opens a subscriptions/listen with the id "L".
func mustListen(t *testing.T, c *client, notifications string) *eventStream {
	t.Helper()
	body, own := c.request(`"L"`, "subscriptions/listen", `{"notifications":`+notifications+`}`)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := c.send(ctx, "POST", body, own...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Body.Close() })
	if r.StatusCode != 200 {
		t.Fatalf("listen: %s", r.Status)
	}
	return &eventStream{r.Header, jsonrpc.NewEventReader(r.Body, 64<<20), cancel}
}

func TestProtocolT93WhoSubscribesIsCounted(t *testing.T) {
	script := upstreamtest.Script{Era: "legacy", Resources: []json.RawMessage{[]byte(`{"uri":"file:///a","name":"a"}`)}}
	server, url := upstreamtest.Start(t, script)
	e := mustProxy(t, map[string]upstream.Config{"up": {URL: url}})
	const uri = `{"uri":"mcp://up/file:///a"}`
	one, two := mustClient(t, e, upstream.EraLegacy), mustClient(t, e, upstream.EraLegacy)
	for _, c := range []*client{one, two} {
		if a := c.call(t, "resources/subscribe", uri); string(a.message.Result) != "{}" {
			t.Fatalf("subscribe: %s", a)
		}
	}
	server.Updated("file:///a")
	if a := one.call(t, "resources/unsubscribe", uri); string(a.message.Result) != "{}" {
		t.Fatalf("unsubscribe: %s", a)
	}
	stream := two.mustOpen(t) // what came before it was open waits for it
	if got, want := stream.next(t), `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mcp://up/file:///a"}}`; got != want {
		t.Errorf("heard %s\nwant  %s", got, want)
	}
	if n := strings.Count(strings.Join(server.Methods(), " "), "resources/unsubscribe"); n != 0 {
		t.Errorf("the upstream was told to stop while somebody listens")
	}
	r, err := two.send(t.Context(), "DELETE", "")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := server.Await(ctx, upstreamtest.Method("resources/unsubscribe")); err != nil {
		t.Errorf("nobody listens any more: %v", err)
	}
	if n := strings.Count(strings.Join(server.Methods(), " ")+" ", "resources/subscribe "); n != 1 {
		t.Errorf("the upstream was asked %d times to follow", n)
	}
}

func TestSubscriptionsOutliveTheConnection(t *testing.T) {
	for _, up := range clientEras() {
		t.Run(string(up), func(t *testing.T) {
			script := upstreamtest.Script{Era: string(up), Resources: []json.RawMessage{[]byte(`{"uri":"file:///a","name":"a"}`)}}
			server, url := upstreamtest.Start(t, script)
			e := mustProxy(t, map[string]upstream.Config{"up": {URL: url}})
			c := mustClient(t, e, upstream.EraModern)
			stream := mustListen(t, c, `{"resourceSubscriptions":["mcp://up/file:///a"]}`)
			stream.next(t)
			server.EndStreams(false)
			const want = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mcp://up/file:///a","_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}`
			if got := stream.next(t); got != want { // something may have been missed
				t.Errorf("heard %s\nwant  %s", got, want)
			}
			server.Updated("file:///a")
			if got := stream.next(t); got != want {
				t.Errorf("heard %s\nwant  %s", got, want)
			}
		})
	}
}
