package protocol

import (
	"strings"
	"sync/atomic"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// ignoring counts the notifications that were dropped, at the member that has the state of the server (as
// client.Observer) and at the member of the client.
type ignoring struct {
	harness.Unobserved
	n atomic.Int64
}

func (i *ignoring) Ignored(string) { i.n.Add(1) }

// ignoredThere is the client.Observer of an ignoring.
type ignoredThere struct{ *ignoring }

func (ignoredThere) Begin(client.Sent) (t client.Trace, c client.TraceContext) { return t, c }
func (ignoredThere) End(client.Sent, client.Trace, client.Received)            {}
func (ignoredThere) Asked(client.Asked) client.Trace                           { return nil }
func (ignoredThere) Answered(client.Asked, client.Trace, client.Received)      {}

// TestExtensionsOverMembers: the calls of a server with state run at one of three members, wherever the client
// is. A notification of an extension reaches the client as with one member: declared, and redacted. Each other
// one is dropped, and counted once.
func TestExtensionsOverMembers(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "counts what the members have dropped")
	for _, clientEra := range harness.Eras {
		for _, up := range harness.Eras {
			t.Run(string(clientEra)+" client, "+string(up)+" server", func(t *testing.T) {
				p := harness.Pair{Client: clientEra, Upstream: up, Transport: "http"}
				s := p.Serve(t, upstreamtest.Script{})
				yes, counts := true, &ignoring{}
				s.Config.Stateful, s.Config.Isolation = &yes, upstream.IsolationShared // one state for all sessions
				j := harness.Start(t, p, harness.Setup{Members: 3, Requests: counts, Calls: ignoredThere{counts},
					Upstreams: map[string]upstream.Config{"up": s.Config}, Policy: harness.MustPolicy(t, `
- { name: all, rules: [ { allow: { upstreams: "*" } } ], redact: [ { name: number, re: "[0-9]{16}" } ] }
`)})
				j.Offers(t, "up")
				heard := func(capabilities, method string) {
					t.Helper()
					declared, before := strings.Contains(capabilities, "weather"), counts.n.Load()
					c := j.As(t, "", func(c *harness.Talker) { c.Capabilities = capabilities })
					want := method + ` {"a":1.0,"b":"[redacted: number]"}`
					if !declared || !strings.HasPrefix(method, "notifications/weather") || strings.Contains(method, "1234") {
						want = ""
					}
					const times = 3 // each member in turn; the next session begins at another one
					for range times {
						notes, m := c.Begin(t, harness.Called("up__tell", `{"method":"`+method+`","params":{"a":1.0,"b":"1234567812345678"}}`)).All(t)
						if m.Error != nil {
							t.Errorf("%s: %s", method, m.Append(nil))
						}
						got := ""
						for _, n := range notes {
							got += n.Method + " " + string(n.Params)
						}
						if got != want {
							t.Errorf("%s reaches the client as %q, want %q", method, got, want)
						}
					}
					dropped := int64(0)
					if want == "" {
						dropped = times
					}
					if n := counts.n.Load() - before; n != dropped {
						t.Errorf("%s: %d notifications are dropped, want %d", method, n, dropped)
					}
				}
				for range 3 { // legacy sessions at each member; one of them has the state, too
					heard(extending, "notifications/weather/storm")
				}
				heard(extending, "notifications/climate")
				heard(extending, "notifications/tasks")
				heard(extending, "notifications/weather/1234567812345678")
				heard(`{"extensions":{"com.example/other":{}}}`, "notifications/weather/storm")
			})
		}
	}
}
