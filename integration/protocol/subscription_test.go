package protocol

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

func TestUpdatesReachBothEras(t *testing.T) {
	harness.Waits(t)
	for _, era := range harness.Eras {
		for _, up := range harness.Eras {
			t.Run(string(era)+"-"+string(up), func(t *testing.T) {
				script := upstreamtest.Script{Era: string(up),
					Resources: []json.RawMessage{[]byte(`{"uri":"file:///a","name":"a"}`), []byte(`{"uri":"file:///b","name":"b"}`)}}
				server, url := upstreamtest.Start(t, script)
				e := harness.MustProxy(t, map[string]upstream.Config{"up": {URL: url}})
				// before that the server has nowhere to tell it, and all that was subscribed to
				// before may have changed
				if up == client.EraLegacy {
					(&harness.Served{Journal: &server.Journal}).Listened(t, harness.Pair{Client: era, Upstream: up, Transport: "http"})
				}
				c := harness.MustClient(t, e, era)
				tag := ""
				var stream *harness.EventStream
				if era == client.EraLegacy {
					stream = c.MustOpen(t)
					for _, uri := range []string{"mcp://up/file:///a", "mcp://up/file:///a"} { // twice is once
						if a := c.Call(t, "resources/subscribe", `{"uri":"`+uri+`"}`); string(a.Message.Result) != "{}" {
							t.Fatalf("subscribe: %s", a)
						}
					}
				} else {
					tag = `,"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}`
					stream = mustListen(t, c, `{"resourceSubscriptions":["mcp://up/file:///a"]}`)
					want := `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged",` +
						`"params":{"notifications":{"resourceSubscriptions":["mcp://up/file:///a"]}` + tag + `}}`
					if got := stream.Next(t); got != want {
						t.Fatalf("acknowledged %s\nwant %s", got, want)
					}
				}
				server.Updated("file:///b")
				server.Updated("file:///a/part")
				server.Updated("file:///a")
				update := func(uri string) string {
					return `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mcp://up/` + uri + `"` + tag +
						`}}`
				}
				if got := stream.Next(t); got != update("file:///a/part") {
					t.Errorf("heard %s\nwant  %s", got, update("file:///a/part"))
				}
				if got := stream.Next(t); got != update("file:///a") {
					t.Errorf("heard %s\nwant  %s", got, update("file:///a"))
				}
				if n := strings.Count(strings.Join(server.Methods(), " ")+" ", "resources/subscribe "); up == client.EraLegacy &&
					n != 1 {
					t.Errorf("the upstream was asked %d times to follow", n)
				}
			})
		}
	}
}

// mustListen opens a subscriptions/listen with the id "L".
func mustListen(t *testing.T, c *harness.Client, notifications string) *harness.EventStream {
	t.Helper()
	body, own := c.Request(`"L"`, "subscriptions/listen", `{"notifications":`+notifications+`}`)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	r, err := c.Send(ctx, "POST", body, own...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Body.Close() })
	if r.StatusCode != 200 {
		t.Fatalf("listen: %s", r.Status)
	}
	return &harness.EventStream{Header: r.Header, Reader: jsonrpc.NewEventReader(r.Body, 64<<20), Drop: cancel}
}

func TestLastSubscriberUnsubscribes(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "it counts the subscriptions of one process")
	script := upstreamtest.Script{Era: "legacy", Resources: []json.RawMessage{[]byte(`{"uri":"file:///a","name":"a"}`)}}
	server, url := upstreamtest.Start(t, script)
	e := harness.MustProxy(t, map[string]upstream.Config{"up": {URL: url}})
	const uri = `{"uri":"mcp://up/file:///a"}`
	one, two := harness.MustClient(t, e, client.EraLegacy), harness.MustClient(t, e, client.EraLegacy)
	for _, c := range []*harness.Client{one, two} {
		if a := c.Call(t, "resources/subscribe", uri); string(a.Message.Result) != "{}" {
			t.Fatalf("subscribe: %s", a)
		}
	}
	server.Updated("file:///a")
	if a := one.Call(t, "resources/unsubscribe", uri); string(a.Message.Result) != "{}" {
		t.Fatalf("unsubscribe: %s", a)
	}
	stream := two.MustOpen(t) // what came before it was open waits for it
	if got, want := stream.Next(
		t), `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mcp://up/file:///a"}}`; got != want {
		t.Errorf("heard %s\nwant  %s", got, want)
	}
	if n := strings.Count(strings.Join(server.Methods(), " "), "resources/unsubscribe"); n != 0 {
		t.Errorf("the upstream was told to stop while a client listens")
	}
	r, err := two.Send(t.Context(), "DELETE", "")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	if _, err := server.Await(ctx, upstreamtest.Method("resources/unsubscribe")); err != nil {
		t.Errorf("no client listens any more: %v", err)
	}
	if n := strings.Count(strings.Join(server.Methods(), " ")+" ", "resources/subscribe "); n != 1 {
		t.Errorf("the upstream was asked %d times to follow", n)
	}
}

func TestSubscriptionsOutliveTheConnection(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		t.Run(string(up), func(t *testing.T) {
			script := upstreamtest.Script{Era: string(up),
				Resources: []json.RawMessage{[]byte(`{"uri":"file:///a","name":"a"}`)}}
			server, url := upstreamtest.Start(t, script)
			e := harness.MustProxy(t, map[string]upstream.Config{"up": {URL: url}})
			c := harness.MustClient(t, e, client.EraModern)
			stream := mustListen(t, c, `{"resourceSubscriptions":["mcp://up/file:///a"]}`)
			stream.Next(t)
			server.EndStreams(false)
			const want = `{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"mcp://up/file:///a",` +
				`"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}`
			if got := stream.Next(t); got != want { // something may have been missed
				t.Errorf("heard %s\nwant  %s", got, want)
			}
			server.Updated("file:///a")
			if got := stream.Next(t); got != want {
				t.Errorf("heard %s\nwant  %s", got, want)
			}
		})
	}
}
