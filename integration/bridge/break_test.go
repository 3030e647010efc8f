package bridge

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// What breaks: upstreams die, and clients leave.

func TestCallOfADeadProcessIsNotRepeated(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		for _, up := range harness.Eras {
			harness.RunPair(t, clientEra, up, "stdio", func(t *testing.T, p harness.Pair) {
				s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
				c := j.Talk(t)
				begun := map[int]bool{}
				for _, r := range s.Received() {
					begun[r.PID] = true
				}
				harness.WantOwnError(t, c.Call(t, "up__die", `{}`), "up", client.KindLost)
				result := c.Succeed(t, "up__whoami", `{}`)
				harness.CallsOf(t, s.Journal, 2)
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
				dead := harness.CallsOf(t, s.Journal, 2)[0].PID
				starts = slices.DeleteFunc(starts, func(pid int) bool { return pid == dead })
				if pid := harness.Member(result, "structuredContent", "pid"); len(starts) > harness.Processes() ||
					!slices.ContainsFunc(starts, func(other int) bool { return pid == fmt.Sprint(other) }) {
					t.Fatalf("beside %d the processes %v, the second call was answered by %s; want another process for it",
						dead, starts, result)
				}
				for _, r := range harness.CallsOf(t, s.Journal, 2) {
					if harness.Text(t, r.Message.Params, "name") == "die" && r.PID != dead {
						t.Error("the call was sent again")
					}
				}
				if up == client.EraModern {
					harness.Await(t, s.Journal, "new subscription", func(r upstreamtest.Record) bool {
						return r.Message.Method == "subscriptions/listen" && !begun[r.PID]
					})
				}
			})
		}
	}
}

func TestLostSessionIsReplaced(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.RunPair(t, clientEra, client.EraLegacy, "http", func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c := j.Talk(t)
			before := harness.Text(t, c.Succeed(t, "up__whoami", `{}`), "structuredContent", "session")
			s.Inside.EndSessions()
			after := harness.Text(t, c.Succeed(t, "up__whoami", `{"again":1}`), "structuredContent", "session")
			if before == after {
				t.Errorf("the session is still %s", before)
			}
			for _, r := range s.Received() {
				if r.Message.Method == "initialize" && r.Header.Get("Mcp-Session-Id") != "" {
					t.Error("initialize was sent with the id of the session that is gone")
				}
			}
			sent := 0
			for _, r := range harness.CallsOf(t, s.Journal, 2) {
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

func TestNoiseOfAProcessGoesToTheLog(t *testing.T) {
	harness.Waits(t)
	for _, client := range harness.Eras {
		for _, up := range harness.Eras {
			harness.RunPair(t, client, up, "stdio", func(t *testing.T, p harness.Pair) {
				log := process.NewOutput()
				s := p.Serve(t, upstreamtest.Script{})
				j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Log: log})
				j.Offers(t, "up")
				c := j.Talk(t)
				for what, shown := range map[string]string{"garbage": "this is not JSON-RPC", "stderr": "of the flood"} {
					notes, m := c.Begin(t, harness.Called("up__flood", `{"n":20,"what":"`+what+`"}`)).All(t)
					if m.Error != nil || len(notes) > 0 || strings.Contains(string(m.Result), shown) {
						t.Errorf("%s: %d notifications and %s, want a result alone", what, len(notes), m.Append(nil))
					}
					log.MustMatch(t, regexp.MustCompile(regexp.QuoteMeta(shown)), harness.Patience, nil)
				}
				c.Succeed(t, "up__echo", `{}`)
				if n := len(slices.DeleteFunc(s.Received(),
					func(r upstreamtest.Record) bool { return r.Verb != "START" })); n != harness.Processes() {
					t.Errorf("%d processes were started, want the first to survive", n)
				}
			})
		}
	}
}

// mustBegin begins a call that goes on for a while, and returns when the client has heard of its
// progress.
func mustBegin(t *testing.T, s *harness.Served, c *harness.Talker) *harness.Answering {
	t.Helper()
	q := harness.Called("up__progress", `{"n":5,"gate":"step"}`)
	q.Meta = `"progressToken":1`
	a := c.Begin(t, q)
	if err := s.Release("step"); err != nil {
		t.Fatal(err)
	}
	if m, _ := a.Next(t); m.Method != "notifications/progress" {
		t.Fatalf("the stream begins with %s, want progress", m.Append(nil))
	}
	return a
}

func TestModernDisconnectCancelsTheCall(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c := j.Talk(t)
			a := mustBegin(t, s, c)
			a.Drop()
			cancelled(t, s, p, harness.CallsOf(t, s.Journal, 1)[0])

			// Before its stream has begun a call is cancelled in the same way.
			a = c.Begin(t, harness.Called("up__hang", `{}`))
			call := harness.Await(t, s.Journal, "hang", func(r upstreamtest.Record) bool {
				return upstreamtest.Method("tools/call")(r) && strings.Contains(string(r.Body), `"hang"`)
			})
			a.Drop()
			cancelled(t, s, p, call)
			c.Succeed(t, "up__echo", `{}`)
		})
	}
}

func TestLegacyDisconnectCancelsNothing(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c := j.Talk(t)
			a := mustBegin(t, s, c)
			a.Drop()
			for range a.Messages { // ends when the connection has
			}
			// The call is still there: it can be cancelled by its id, which is how one sees that it
			// was not before.
			c.Succeed(t, "up__echo", `{}`)
			call := harness.CallsOf(t, s.Journal, 2)[0]
			for _, r := range s.Received() {
				if r.Message.Method == "notifications/cancelled" || r.Verb == "CLOSE" && r.Message.ID == call.Message.ID {
					t.Fatalf("the upstream was told to cancel: %s %s", r.Verb, r.Body)
				}
			}
			c.Notify(t, "notifications/cancelled", `"requestId":`+a.ID)
			cancelled(t, s, p, call)
		})
	}
}

func TestLegacyCancelReachesTheUpstream(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c, other := j.Talk(t), j.Talk(t)
			q := harness.Called("up__hang", `{}`)
			q.ID = `"mine"`
			a := c.Begin(t, q)
			call := harness.Await(t, s.Journal, "call", upstreamtest.Method("tools/call"))
			// None of these is that call.
			c.Notify(t, "notifications/cancelled", `"requestId":"unknown"`)
			c.Notify(t, "notifications/cancelled", `"requestId":`+string(call.Message.ID))
			c.Notify(t, "notifications/cancelled", `"reason":"no id"`)
			other.Notify(t, "notifications/cancelled", `"requestId":"mine"`)
			c.Succeed(t, "up__echo", `{}`)
			harness.CallsOf(t, s.Journal, 2)
			for _, r := range s.Received() {
				if r.Message.Method == "notifications/cancelled" || r.Verb == "CLOSE" && r.Message.ID == call.Message.ID {
					t.Fatalf("the upstream was told to cancel: %s %s", r.Verb, r.Body)
				}
			}
			c.Notify(t, "notifications/cancelled", `"requestId":"mine","reason":"enough"`)
			cancelled(t, s, p, call)
			harness.WantOwnError(t, a.Answer(t), "up", client.KindCancelled)
		})
	}
}

func TestLegacyUpstreamGetsNoModernMeta(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{Era: "both"}, func(c *upstream.Config) {
				c.Era = client.EraLegacy
			})
			q := harness.Called("up__echo", `{}`)
			q.Meta = `"progressToken":"t","com.example/kept":1`
			if m := j.Talk(t).Begin(t, q).Answer(t); m.Error != nil {
				t.Fatalf("error %v", m.Error)
			}
			if got := harness.Member(harness.CallsOf(t, s.Journal, 1)[0].Message.Params, "_meta",
				"com.example/kept"); got != "1" {
				t.Errorf("com.example/kept = %q, want 1", got)
			}
			for _, r := range s.Received() {
				if strings.Contains(string(r.Body), `"_meta"`) && strings.Contains(string(r.Body), "io.modelcontextprotocol/") ||
					r.Message.Method == "server/discover" {
					t.Errorf("the upstream got %s", r.Body)
				}
			}
		})
	}
}

// Subscriptions to the list of tools.

// tagged fails unless the notification is of the subscription.
func tagged(t *testing.T, a *harness.Answering, id string) {
	t.Helper()
	if got := harness.Member(harness.ListChanges(t, a, 1)[0].Params, "_meta",
		"io.modelcontextprotocol/subscriptionId"); got != id {
		t.Errorf("subscriptionId of the change = %s, want %s", got, id)
	}
}

func TestListenIsAcknowledged(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			a, honoured := harness.Subscribe(t, j.Talk(t), `"L1"`, `{"toolsListChanged":true}`)
			if honoured != `{"toolsListChanged":true}` {
				t.Errorf("acknowledged %s, want toolsListChanged", honoured)
			}
			if a.Status != 200 || a.Header.Get("X-Accel-Buffering") != "no" ||
				a.Header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("status %d, header %v, want an event stream that proxies do not buffer", a.Status, a.Header)
			}
		})
	}
}

func TestListChangeIsToldOnce(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{Tools: harness.Definitions("old")}, nil)
			s.Listened(t, p)
			c := j.Talk(t)
			a, _ := harness.Subscribe(t, c, `"L1"`, `{"toolsListChanged":true}`)
			deaf, honoured := harness.Subscribe(t, c, `"L2"`, `{"promptsListChanged":true}`)
			if want := `{"promptsListChanged":true}`; honoured != want {
				t.Errorf("acknowledged %s, want %s", honoured, want)
			}
			if err := s.SetTools(harness.Definitions("new")); err != nil {
				t.Fatal(err)
			}
			tagged(t, a, `"L1"`)
			if got := c.Names(t); !slices.Equal(got, []string{"up__new"}) {
				t.Errorf("names after the change = %q, want up__new", got)
			}
			// The end of both comes after everything else: one change was told, and to one of them.
			j.Shutdown()
			for _, stream := range []*harness.Answering{a, deaf} {
				if notes, _ := stream.All(t); len(notes) > 0 {
					t.Errorf("subscription %s has further notifications: %s", stream.ID, notes[0].Append(nil))
				}
			}
		})
	}
}

func TestUnsubscribableResourceIsNotAcknowledged(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			_, honoured := harness.Subscribe(t, j.Talk(t), `7`,
				`{"toolsListChanged":true,"resourceSubscriptions":["file:///a"]}`)
			if honoured != `{"toolsListChanged":true}` {
				t.Errorf("acknowledged %s, want no resource", honoured)
			}
		})
	}
}

func TestShutdownEndsSubscriptions(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			a, _ := harness.Subscribe(t, j.Talk(t), `"L1"`, `{"toolsListChanged":true}`)
			j.Shutdown()
			_, m := a.All(t)
			if got := harness.Member(m.Result, "_meta", "io.modelcontextprotocol/subscriptionId"); string(m.ID) != `"L1"` ||
				got != `"L1"` || harness.Text(t, m.Result, "resultType") != "complete" {
				t.Errorf("the subscription ended with %s, want its result", m.Append(nil))
			}
			if a.Err != nil {
				t.Errorf("the stream ended with %v, want a proper end", a.Err)
			}
		})
	}
}

func TestUpstreamReturnsWithAnotherList(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.RunPair(t, client.EraModern, up, "http", func(t *testing.T, p harness.Pair) {
			first := upstreamtest.New(upstreamtest.Script{Era: string(up), Tools: harness.Definitions("old")})
			t.Cleanup(first.Close)
			url, stop := upstreamtest.Serve(t, "127.0.0.1:0", first.Handler())
			j := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": {URL: url + "/mcp"}}, Limits: proxy.Limits{}})
			j.Offers(t, "up")
			c := j.Talk(t)
			a, _ := harness.Subscribe(t, c, `"L1"`, `{"toolsListChanged":true}`)
			stop()
			second := upstreamtest.New(upstreamtest.Script{Era: string(up), Tools: harness.Definitions("new")})
			t.Cleanup(second.Close)
			upstreamtest.Serve(t, strings.TrimPrefix(url, "http://"), second.Handler())
			tagged(t, a, `"L1"`)
			if harness.Processes() > 1 { // each has its own connection, and gets the new list at its own time
				for _, c := range j.TalkToEach(t) {
					j.Until(t, "the new list", func() bool { return slices.Equal(c.Names(t), []string{"up__new"}) })
				}
			}
			if got := c.Names(t); !slices.Equal(got, []string{"up__new"}) {
				t.Errorf("names = %q, want those of the new list", got)
			}
			again := &harness.Served{Journal: &second.Journal, Inside: second}
			again.Listened(t, p)
		})
	}
}
