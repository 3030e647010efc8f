package integration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"junction/proxy"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// The assertions of protocol.md §6.3 and §6.4 about what breaks: upstreams that die, clients that
// leave.

func TestProtocolT57ProcessDiesInACall(t *testing.T) {
	for _, client := range eras {
		for _, up := range eras {
			runPair(t, pair{client, up, "stdio"}, func(t *testing.T, p pair) {
				s, j := over(t, p, upstreamtest.Script{}, nil)
				c := j.talk(t)
				ours(t, c.call(t, "up__die", `{}`), "up", upstream.KindLost)
				result := c.succeed(t, "up__whoami", `{}`)
				callsOf(t, s.Journal, 2)
				var starts []int
				listens := map[int]int{}
				for _, r := range s.Received() {
					if r.Verb == "START" {
						starts = append(starts, r.PID)
					}
					if r.Message.Method == "subscriptions/listen" {
						listens[r.PID]++
					}
				}
				if len(starts) != 2 || member(result, "structuredContent", "pid") != fmt.Sprint(starts[1]) {
					t.Fatalf("processes %v, the second call was answered by %s; want a second process for it", starts, result)
				}
				for _, r := range callsOf(t, s.Journal, 2) {
					if text(t, r.Message.Params, "name") == "die" && r.PID != starts[0] {
						t.Error("the call was sent again")
					}
				}
				if up == upstream.EraModern {
					await(t, s.Journal, "new subscription", func(r upstreamtest.Record) bool {
						return r.Message.Method == "subscriptions/listen" && r.PID == starts[1]
					})
				}
			})
		}
	}
}

func TestProtocolT58SessionGone(t *testing.T) {
	for _, client := range eras {
		runPair(t, pair{client, upstream.EraLegacy, "http"}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, nil)
			c := j.talk(t)
			before := text(t, c.succeed(t, "up__whoami", `{}`), "structuredContent", "session")
			s.inside.EndSessions()
			after := text(t, c.succeed(t, "up__whoami", `{"again":1}`), "structuredContent", "session")
			if before == after {
				t.Errorf("the session is still %s", before)
			}
			for _, r := range s.Received() {
				if r.Message.Method == "initialize" && r.Header.Get("Mcp-Session-Id") != "" {
					t.Error("initialize was sent with the id of the session that is gone")
				}
			}
			sent := 0
			for _, r := range callsOf(t, s.Journal, 2) {
				if strings.Contains(string(r.Body), `"again"`) {
					sent++
				}
			}
			if sent > 2 {
				t.Errorf("the call was sent %d times, want at most once to each session", sent)
			}
		})
	}
}

func TestProtocolT59NoiseOfAProcess(t *testing.T) {
	for _, client := range eras {
		for _, up := range eras {
			runPair(t, pair{client, up, "stdio"}, func(t *testing.T, p pair) {
				log := newOutput()
				s := p.serve(t, upstreamtest.Script{})
				j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, log: log})
				j.offers(t, "up")
				c := j.talk(t)
				for what, shown := range map[string]string{"garbage": "this is not JSON-RPC", "stderr": "of the flood"} {
					notes, m := c.begin(t, called("up__flood", `{"n":20,"what":"`+what+`"}`)).all(t)
					if m.Error != nil || len(notes) > 0 || strings.Contains(string(m.Result), shown) {
						t.Errorf("%s: %d notifications and %s, want a result alone", what, len(notes), m.Append(nil))
					}
					log.mustMatch(t, regexp.MustCompile(regexp.QuoteMeta(shown)), patience, nil)
				}
				c.succeed(t, "up__echo", `{}`)
				if n := len(slices.DeleteFunc(s.Received(), func(r upstreamtest.Record) bool { return r.Verb != "START" })); n != 1 {
					t.Errorf("%d processes were started, want the first to survive", n)
				}
			})
		}
	}
}

// mustBegin begins a call that goes on for a while, and returns when the client has heard of its
// progress.
func mustBegin(t *testing.T, s *served, c *talker) *answering {
	t.Helper()
	q := called("up__progress", `{"n":5,"gate":"step"}`)
	q.meta = `"progressToken":1`
	a := c.begin(t, q)
	if err := s.release("step"); err != nil {
		t.Fatal(err)
	}
	if m, _ := a.next(t); m.Method != "notifications/progress" {
		t.Fatalf("the stream begins with %s, want progress", m.Append(nil))
	}
	return a
}

func TestProtocolT82ModernClientLeaves(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, nil)
			c := j.talk(t)
			a := mustBegin(t, s, c)
			a.drop()
			cancelled(t, s, p, callsOf(t, s.Journal, 1)[0])

			// Before its stream has begun a call is cancelled in the same way.
			a = c.begin(t, called("up__hang", `{}`))
			call := await(t, s.Journal, "hang", func(r upstreamtest.Record) bool {
				return upstreamtest.Method("tools/call")(r) && strings.Contains(string(r.Body), `"hang"`)
			})
			a.drop()
			cancelled(t, s, p, call)
			c.succeed(t, "up__echo", `{}`)
		})
	}
}

func TestProtocolT83LegacyClientHangsUp(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraLegacy, up, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, nil)
			c := j.talk(t)
			a := mustBegin(t, s, c)
			a.drop()
			for range a.messages { // ends when the connection has
			}
			// The call is still there: it can be cancelled by its id, which is how one sees that it
			// was not before.
			c.succeed(t, "up__echo", `{}`)
			call := callsOf(t, s.Journal, 2)[0]
			for _, r := range s.Received() {
				if r.Message.Method == "notifications/cancelled" || r.Verb == "CLOSE" && r.Message.ID == call.Message.ID {
					t.Fatalf("the upstream was told to cancel: %s %s", r.Verb, r.Body)
				}
			}
			c.notify(t, "notifications/cancelled", `"requestId":`+a.id)
			cancelled(t, s, p, call)
		})
	}
}

func TestProtocolT84LegacyClientCancels(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraLegacy, up, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, nil)
			c, other := j.talk(t), j.talk(t)
			q := called("up__hang", `{}`)
			q.id = `"mine"`
			a := c.begin(t, q)
			call := await(t, s.Journal, "call", upstreamtest.Method("tools/call"))
			// None of these is that call.
			c.notify(t, "notifications/cancelled", `"requestId":"unknown"`)
			c.notify(t, "notifications/cancelled", `"requestId":`+string(call.Message.ID))
			c.notify(t, "notifications/cancelled", `"reason":"no id"`)
			other.notify(t, "notifications/cancelled", `"requestId":"mine"`)
			c.succeed(t, "up__echo", `{}`)
			callsOf(t, s.Journal, 2)
			for _, r := range s.Received() {
				if r.Message.Method == "notifications/cancelled" || r.Verb == "CLOSE" && r.Message.ID == call.Message.ID {
					t.Fatalf("the upstream was told to cancel: %s %s", r.Verb, r.Body)
				}
			}
			c.notify(t, "notifications/cancelled", `"requestId":"mine","reason":"enough"`)
			cancelled(t, s, p, call)
			ours(t, a.answer(t), "up", upstream.KindCancelled)
		})
	}
}

func TestProtocolT89LegacyConversationHasNoModernMeta(t *testing.T) {
	for _, client := range eras {
		eachWire(t, pair{client, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{Era: "both"}, func(c *upstream.Config) {
				c.Era = upstream.EraLegacy
			})
			q := called("up__echo", `{}`)
			q.meta = `"progressToken":"t","com.example/kept":1`
			if m := j.talk(t).begin(t, q).answer(t); m.Error != nil {
				t.Fatalf("error %v", m.Error)
			}
			if got := member(callsOf(t, s.Journal, 1)[0].Message.Params, "_meta", "com.example/kept"); got != "1" {
				t.Errorf("com.example/kept = %q, want 1", got)
			}
			for _, r := range s.Received() {
				if strings.Contains(string(r.Body), `"_meta"`) && strings.Contains(string(r.Body), "io.modelcontextprotocol/") || r.Message.Method == "server/discover" {
					t.Errorf("the upstream got %s", r.Body)
				}
			}
		})
	}
}

// The assertions of protocol.md §6.5 that concern tools.

// subscribe begins a subscription, and returns it with its acknowledgement.
func subscribe(t *testing.T, c *talker, id, notifications string) (a *answering, honoured string) {
	t.Helper()
	a = c.begin(t, query{id: id, method: "subscriptions/listen", params: `"notifications":` + notifications})
	m, ok := a.next(t)
	if !ok || m.Method != "notifications/subscriptions/acknowledged" {
		t.Fatalf("the subscription begins with %s, %v, want its acknowledgement", m.Append(nil), a.err)
	}
	if got := member(m.Params, "_meta", "io.modelcontextprotocol/subscriptionId"); got != id {
		t.Errorf("subscriptionId = %s, want %s", got, id)
	}
	return a, member(m.Params, "notifications")
}

// tagged fails unless the notification is of the subscription.
func tagged(t *testing.T, a *answering, id string) {
	t.Helper()
	if got := member(changes(t, a, 1)[0].Params, "_meta", "io.modelcontextprotocol/subscriptionId"); got != id {
		t.Errorf("subscriptionId of the change = %s, want %s", got, id)
	}
}

func TestProtocolT90Acknowledgement(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			_, j := over(t, p, upstreamtest.Script{}, nil)
			a, honoured := subscribe(t, j.talk(t), `"L1"`, `{"toolsListChanged":true}`)
			if honoured != `{"toolsListChanged":true}` {
				t.Errorf("acknowledged %s, want toolsListChanged", honoured)
			}
			if a.status != 200 || a.header.Get("X-Accel-Buffering") != "no" || a.header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("status %d, header %v, want an event stream that nobody buffers", a.status, a.header)
			}
		})
	}
}

func TestProtocolT91ChangeIsToldOnce(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{Tools: definitions("old")}, nil)
			s.listened(t, p)
			c := j.talk(t)
			a, _ := subscribe(t, c, `"L1"`, `{"toolsListChanged":true}`)
			deaf, honoured := subscribe(t, c, `"L2"`, `{"promptsListChanged":true}`)
			if want := `{"promptsListChanged":true}`; honoured != want {
				t.Errorf("acknowledged %s, want %s", honoured, want)
			}
			if err := s.setTools(definitions("new")); err != nil {
				t.Fatal(err)
			}
			tagged(t, a, `"L1"`)
			if got := c.names(t); !slices.Equal(got, []string{"up__new"}) {
				t.Errorf("names after the change = %q, want up__new", got)
			}
			// The end of both comes after everything else: one change was told, and to one of them.
			j.server.Shutdown()
			for _, stream := range []*answering{a, deaf} {
				if notes, _ := stream.all(t); len(notes) > 0 {
					t.Errorf("subscription %s has further notifications: %s", stream.id, notes[0].Append(nil))
				}
			}
		})
	}
}

func TestProtocolT92ResourceThatCannotBeSubscribed(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			_, j := over(t, p, upstreamtest.Script{}, nil)
			_, honoured := subscribe(t, j.talk(t), `7`, `{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}`)
			if honoured != `{"toolsListChanged":true}` {
				t.Errorf("acknowledged %s, want no resource", honoured)
			}
		})
	}
}

func TestProtocolT95ShutdownEndsSubscriptions(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			_, j := over(t, p, upstreamtest.Script{}, nil)
			a, _ := subscribe(t, j.talk(t), `"L1"`, `{"toolsListChanged":true}`)
			j.server.Shutdown()
			_, m := a.all(t)
			if got := member(m.Result, "_meta", "io.modelcontextprotocol/subscriptionId"); string(m.ID) != `"L1"` || got != `"L1"` || text(t, m.Result, "resultType") != "complete" {
				t.Errorf("the subscription ended with %s, want its result", m.Append(nil))
			}
			if a.err != nil {
				t.Errorf("the stream ended with %v, want a proper end", a.err)
			}
		})
	}
}

func TestProtocolT97ReturnWithAnotherList(t *testing.T) {
	for _, up := range eras {
		runPair(t, pair{upstream.EraModern, up, "http"}, func(t *testing.T, p pair) {
			first := upstreamtest.New(upstreamtest.Script{Era: string(up), Tools: definitions("old")})
			t.Cleanup(first.Close)
			url, stop := upstreamtest.Serve(t, "127.0.0.1:0", first.Handler())
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": {URL: url + "/mcp"}}, limits: proxy.Limits{}})
			j.offers(t, "up")
			c := j.talk(t)
			a, _ := subscribe(t, c, `"L1"`, `{"toolsListChanged":true}`)
			stop()
			second := upstreamtest.New(upstreamtest.Script{Era: string(up), Tools: definitions("new")})
			t.Cleanup(second.Close)
			upstreamtest.Serve(t, strings.TrimPrefix(url, "http://"), second.Handler())
			tagged(t, a, `"L1"`)
			if got := c.names(t); !slices.Equal(got, []string{"up__new"}) {
				t.Errorf("names = %q, want those of the new list", got)
			}
			again := &served{Journal: &second.Journal, inside: second}
			again.listened(t, p)
		})
	}
}
