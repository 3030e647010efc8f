package replicas

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"junction/integration/harness"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// These tests choose the member of each request. All else that clients do runs on three members by
// JUNCTION_TEST_MEMBERS=3 (see ../README.md).

// mustMembers starts three members over one upstream.
func mustMembers(t *testing.T, p harness.Pair, change ...func(*harness.Setup)) (*harness.Served, *harness.Junction) {
	t.Helper()
	s := p.Serve(t, upstreamtest.Script{})
	w := harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Members: 3}
	for _, f := range change {
		f(&w)
	}
	j := harness.Start(t, p, w)
	j.Offers(t, "up")
	return s, j
}

// at is the client c with its requests sent to one member.
func at(j *harness.Junction, c *harness.Talker, member int) *harness.Talker {
	its := *c
	its.URL = j.At(member)
	return &its
}

// inSession is a legacy client whose session the first member has.
func inSession(t *testing.T, j *harness.Junction, change ...func(*harness.Talker)) *harness.Talker {
	t.Helper()
	c := &harness.Talker{URL: j.At(0), Era: client.EraLegacy, Version: "2025-11-25",
		Capabilities: harness.AllCapabilities}
	for _, f := range change {
		f(c)
	}
	return c.Start(t)
}

// legacyClients runs f for legacy clients and every wire to an upstream.
func legacyClients(t *testing.T, f func(*testing.T, harness.Pair)) {
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, f)
	}
}

// status posts a ping of a session and returns the status and Retry-After.
func status(t *testing.T, c *harness.Talker, header ...string) (int, string) {
	t.Helper()
	r := c.Request(t, harness.Patient(t), harness.Query{ID: "99", Method: "ping"})
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Retry-After")
}

// inMemory returns the number of sessions that the members have.
func inMemory(j *harness.Junction, members ...int) (n int) {
	for _, i := range members {
		_, total := j.All[i].Sessions()
		n += total
	}
	return n
}

// TestMemberAnswersForTheOwner has each part of one conversation come to another member.
func TestMemberAnswersForTheOwner(t *testing.T) {
	harness.Waits(t)
	legacyClients(t, func(t *testing.T, p harness.Pair) {
		s, j := mustMembers(t, p)
		c := inSession(t, j)
		stream := at(j, c, 1).Get(t)
		a := at(j, c, 2).Begin(t, harness.Asking(harness.AskForm))
		m, ok := a.Next(t)
		if !ok || m.Method != "elicitation/create" {
			t.Fatalf("got %s, want a question", m.Append(nil))
		}
		at(j, c, 1).Respond(t, m.ID, harness.Accepted)
		if got := harness.AnswersOf(t, a.Answer(t)); got != `[{`+harness.Accepted+`}]` {
			t.Errorf("the upstream was answered %s", got)
		}
		a = at(j, c, 1).Begin(t, harness.Called("up__hang", `{}`))
		rounds := map[client.Era]int{client.EraLegacy: 1, client.EraModern: 2} // of the call that asks
		harness.CallsOf(t, s.Journal, rounds[p.Upstream]+1)
		at(j, c, 2).Notify(t, "notifications/cancelled", `"requestId":`+a.ID)
		harness.WantOwnError(t, a.Answer(t), "up", client.KindCancelled)
		if got := inMemory(j, 1, 2); got != 0 {
			t.Errorf("%d sessions are at members that do not own them", got)
		}
		if got := harness.Deleted(t, at(j, c, 2)); got/100 != 2 {
			t.Errorf("DELETE = %d", got)
		}
		for i := range 3 {
			if got, _ := status(t, at(j, c, i)); got != http.StatusNotFound {
				t.Errorf("the deleted session is answered %d by member %d", got, i)
			}
		}
		if _, open := stream.Next(t); open {
			t.Error("the stream of the deleted session goes on")
		}
	})
}

// TestTakeoverHasOneOwner ends the owner of a session. Many requests at the other members result in
// one new owner, and the client is notified that the lists may have changed.
func TestTakeoverHasOneOwner(t *testing.T) {
	harness.Waits(t)
	legacyClients(t, func(t *testing.T, p harness.Pair) {
		s, j := mustMembers(t, p)
		c := inSession(t, j)
		lost := at(j, c, 1).Begin(t, harness.Called("up__hang", `{}`))
		harness.CallsOf(t, s.Journal, 1) // else the next owner may make the call
		stream := at(j, c, 1).Get(t)
		j.Crash(0)
		if _, open := stream.Next(t); open {
			t.Error("the stream of the ended owner goes on")
		}
		for open := true; open; { // it breaks off, or says that the proxy has ended
			var m jsonrpc.Message
			if m, open = lost.Next(t); open && m.IsResponse() && m.Error == nil {
				t.Errorf("the lost call is answered %s", m.Append(nil))
			}
		}
		var wait sync.WaitGroup
		for i := range 40 {
			wait.Go(func() {
				if m := at(j, c, 1+i%2).Call(t, "up__echo", `{}`); m.Error != nil {
					t.Errorf("request %d after the takeover: %v", i, m.Error)
				}
			})
		}
		wait.Wait()
		if got := inMemory(j, 1, 2); got != 1 {
			t.Errorf("%d members have the session, want one", got)
		}
		again := at(j, c, 2).Get(t, "Last-Event-ID", "UNKNOWN-7")
		for _, method := range []string{"tools", "prompts", "resources"} {
			again.WantNote(t, "notifications/"+method+"/list_changed", "{}")
		}
		again.Drop()
		at(j, c, 1).Get(t).WantSilence(t) // only the first stream begins so
	})
}

// TestDeletedSessionStaysDeleted ends the owner of a deleted session: no other member brings it
// back.
func TestDeletedSessionStaysDeleted(t *testing.T) {
	harness.Waits(t)
	legacyClients(t, func(t *testing.T, p harness.Pair) {
		_, j := mustMembers(t, p)
		c := inSession(t, j)
		moved := inSession(t, j)
		if got := harness.Deleted(t, at(j, c, 1)); got/100 != 2 {
			t.Fatalf("DELETE = %d", got)
		}
		j.Crash(0)
		at(j, moved, 1).Succeed(t, "up__echo", `{}`)
		if got := harness.Deleted(t, at(j, moved, 2)); got/100 != 2 {
			t.Fatalf("DELETE of a session that was taken over = %d", got)
		}
		j.Crash(1)
		for _, gone := range []*harness.Talker{c, moved} {
			if got, _ := status(t, at(j, gone, 2)); got != http.StatusNotFound {
				t.Errorf("a deleted session is answered %d after the end of its owner, want 404", got)
			}
		}
	})
}

// TestLeaseLost takes the lease of an owner, and then gives it another: it answers for no session
// meanwhile, ends those it had, and one member has the session then.
func TestLeaseLost(t *testing.T) {
	harness.Waits(t)
	legacyClients(t, func(t *testing.T, p harness.Pair) {
		s, j := mustMembers(t, p)
		c := inSession(t, j)
		a := c.Begin(t, harness.Called("up__hang", `{}`))
		stream := c.Get(t)
		harness.CallsOf(t, s.Journal, 1)
		j.Members[0].Leave()
		j.All[0].MemberChanged()
		for _, session := range []*harness.Talker{c, at(j, c, 0)} {
			if got, again := status(t, session); got != http.StatusServiceUnavailable || again == "" {
				t.Errorf("a member without a lease answers %d, Retry-After %q, want 503", got, again)
			}
		}
		at(j, c, 1).Succeed(t, "up__echo", `{}`)
		j.Members[0].Join(strings.TrimSuffix(j.At(0), "/mcp"))
		j.All[0].MemberChanged()
		m := a.Answer(t)
		harness.WantOwnError(t, m, "up", client.KindCancelled)
		if !strings.Contains(m.Error.Message, "may have been executed") {
			t.Errorf("the call ends with %q", m.Error.Message)
		}
		if _, open := stream.Next(t); open {
			t.Error("the stream goes on at a member that has lost its lease")
		}
		for i := range 3 {
			at(j, c, i).Succeed(t, "up__echo", `{}`)
		}
		if got := inMemory(j, 0, 1, 2); got != 1 {
			t.Errorf("%d members have the session, want one", got)
		}
	})
}

// TestForwardedRequestIsNotForwardedAgain marks a request as forwarded that its member would
// forward.
func TestForwardedRequestIsNotForwardedAgain(t *testing.T) {
	harness.Waits(t)
	legacyClients(t, func(t *testing.T, p harness.Pair) {
		_, j := mustMembers(t, p)
		c := inSession(t, j)
		got, again := status(t, at(j, c, 1), "X-Test-Hop", "127.0.0.1:1")
		if got != http.StatusServiceUnavailable || again == "" || j.Members[1].Forwarded.Load() != 0 {
			t.Errorf("a forwarded request is answered %d, Retry-After %q, and forwarded %d times; want 503 and never",
				got, again, j.Members[1].Forwarded.Load())
		}
	})
}

// TestForeignSessionIsNotForwarded has one principal use the session of another at each member.
func TestForeignSessionIsNotForwarded(t *testing.T) {
	harness.Waits(t)
	guard, keys := harness.Keyring(t, "ann", "bob")
	legacyClients(t, func(t *testing.T, p harness.Pair) {
		_, j := mustMembers(t, p, func(w *harness.Setup) { w.Guard = guard })
		c := inSession(t, j, func(c *harness.Talker) { c.Key = keys["ann"] })
		for i := range 3 {
			bob := at(j, c, i)
			bob.Key = keys["bob"]
			if got, _ := status(t, bob); got != http.StatusNotFound {
				t.Errorf("member %d answers %d to another principal, want 404", i, got)
			}
			bob.Key = "jct_key_unknown"
			if got, _ := status(t, bob); got != http.StatusUnauthorized {
				t.Errorf("member %d answers %d to an unknown key, want 401", i, got)
			}
			if n := j.Members[i].Forwarded.Load(); n != 0 {
				t.Errorf("member %d forwarded %d requests of others", i, n)
			}
		}
	})
}

// eachCall counts the requests that members dispatch.
type eachCall struct {
	harness.Unobserved
	begun, ended atomic.Int64
}

func (e *eachCall) Begin(*proxy.CallInfo, raw.Object, map[string][]string) client.Trace {
	e.begun.Add(1)
	return nil
}
func (e *eachCall) End(*proxy.CallInfo, client.Trace) { e.ended.Add(1) }

// parkedTransports runs f for calls that can be parked.
func parkedTransports(t *testing.T, f func(*testing.T, harness.Pair)) {
	harness.EachTransport(t, client.EraModern, client.EraLegacy, f)
}

// TestParkedCallAtEachMember has a modern client come back to another member for each of three
// questions. Each request counts once, and all else stays where it arrives.
func TestParkedCallAtEachMember(t *testing.T) {
	harness.Waits(t)
	parkedTransports(t, func(t *testing.T, p harness.Pair) {
		var seen eachCall
		s, j := mustMembers(t, p, func(w *harness.Setup) { w.Requests = &seen })
		c := at(j, j.Talk(t), 0)
		q := harness.Called("up__ask",
			`{"steps":true,"questions":[`+harness.AskForm+`,`+harness.AskForm+`,`+harness.AskForm+`]}`)
		base := q.Params
		m := c.Begin(t, q).Answer(t)
		for round := 1; round <= 3; round++ {
			open := harness.Requested(t, m)
			if len(open) != 1 {
				t.Fatalf("round %d: %d questions, want one", round, len(open))
			}
			q.Params = harness.Retried(base, m,
				string(raw.Quote(open[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))
			m = at(j, c, round%3).Begin(t, q).Answer(t)
		}
		harness.AnswersOf(t, m)
		if got := len(harness.CallsOf(t, s.Journal, 1)); got != 1 {
			t.Errorf("the upstream got %d calls, want one", got)
		}
		if b, e := seen.begun.Load(), seen.ended.Load(); b != 4 || e != 4 {
			t.Errorf("%d requests are counted to begin and %d to end, want 4", b, e)
		}
		var forwarded int64
		for i := range 3 {
			at(j, c, i).Succeed(t, "up__echo", `{}`)
			forwarded += j.Members[i].Forwarded.Load()
		}
		if forwarded != 2 {
			t.Errorf("%d requests were forwarded, want the two that came back elsewhere", forwarded)
		}
	})
}

// TestForeignParkedCallIsNotForwarded has another principal, and a request that was forwarded
// before, come to a member that does not have the parked call. It is refused there, and the call
// goes on.
func TestForeignParkedCallIsNotForwarded(t *testing.T) {
	harness.Waits(t)
	guard, keys := harness.Keyring(t, "ann", "bob")
	parkedTransports(t, func(t *testing.T, p harness.Pair) {
		_, j := mustMembers(t, p, func(w *harness.Setup) { w.Guard = guard })
		c := at(j, j.As(t, keys["ann"]), 0)
		q := harness.Asking(harness.AskForm)
		m := c.Begin(t, q).Answer(t)
		open := harness.Requested(t, m)
		q.Params = harness.Retried(q.Params, m,
			string(raw.Quote(open[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))
		for i := range 3 {
			bob := at(j, c, i)
			bob.Key = keys["bob"]
			harness.WantCode(t, bob.Begin(t, q).Answer(t), -32602)
		}
		r := at(j, c, 1).Request(t, harness.Patient(t), q)
		r.Header.Set("X-Test-Hop", "127.0.0.1:1")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		for i := range 3 {
			if n := j.Members[i].Forwarded.Load(); n != 0 {
				t.Errorf("member %d forwarded %d requests", i, n)
			}
		}
		harness.AnswersOf(t, at(j, c, 2).Begin(t, q).Answer(t))
	})
}

// TestParkedCallOfAnEndedMember: the client reads that its call may have been executed, and the
// call is not made again.
func TestParkedCallOfAnEndedMember(t *testing.T) {
	harness.Waits(t)
	parkedTransports(t, func(t *testing.T, p harness.Pair) {
		s, j := mustMembers(t, p)
		c := at(j, j.Talk(t), 0)
		q := harness.Asking(harness.AskForm)
		m := c.Begin(t, q).Answer(t)
		open := harness.Requested(t, m)
		again := q
		again.Params = harness.Retried(q.Params, m,
			string(raw.Quote(open[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))
		other := again
		other.Params = strings.Replace(again.Params, "Name?", "Word?", 1)
		j.Crash(0)
		m = at(j, c, 1).Begin(t, again).Answer(t)
		if m.Error == nil || string(m.Error.Data) != `{"junction":{"kind":"lost"}}` ||
			!strings.Contains(m.Error.Message, "may have been executed") ||
			!strings.Contains(m.Error.Message, "without requestState") {
			t.Errorf("got %s, want an error that says what has happened and what to do", m.Append(nil))
		}
		m = at(j, c, 2).Begin(t, other).Answer(t)
		if harness.WantCode(t, m, -32602); len(harness.CallsOf(t, s.Journal, 1)) != 1 {
			t.Error("the call was made again")
		}
		at(j, c, 2).Succeed(t, "up__echo", `{}`)
	})
}

// TestApprovalIsAnsweredOnce answers one approval request at all members at the same time.
func TestApprovalIsAnsweredOnce(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s, j := mustMembers(t, p, func(w *harness.Setup) {
				w.Policy = harness.MustPolicy(t,
					"- { name: all, rules: [ { ask: { tools: up__echo } }, { allow: { upstreams: up } } ] }")
			})
			c := j.Talk(t)
			q := harness.Called("up__echo", `{}`)
			m := c.Begin(t, q).Answer(t)
			open := harness.Requested(t, m)
			if len(open) != 1 {
				t.Fatalf("%d questions, want the one for approval", len(open))
			}
			q.Params = harness.Retried(q.Params, m,
				string(raw.Quote(open[0].Key))+`:{"action":"accept","content":{"answer":"Allow once"}}`)
			var made atomic.Int64
			var wait sync.WaitGroup
			for i := range 12 {
				wait.Go(func() {
					if m := at(j, c, i%3).Begin(t, q).Answer(t); m.Error == nil {
						made.Add(1)
					}
				})
			}
			wait.Wait()
			if calls := len(harness.CallsOf(t, s.Journal, 1)); made.Load() != 1 || calls != 1 {
				t.Errorf("%d of 12 answers made a call, and %d calls reached the upstream; want one", made.Load(), calls)
			}
		})
	}
}

// TestLimitsCountAtAllMembers spends a rate limit at all members in turn.
func TestLimitsCountAtAllMembers(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s, j := mustMembers(t, p, func(w *harness.Setup) {
			w.Policy = harness.MustPolicy(t, "- { name: all, rules: [ { allow: { upstreams: up } } ], "+
				"limits: { rate: 1/h, burst: 4 } }")
		})
		made := 0
		for i := range 9 {
			var c *harness.Talker
			if c = at(j, j.Talk(t), i%3); p.Client == client.EraLegacy {
				c = inSession(t, j)
				c = at(j, c, i%3)
			}
			if m := c.Call(t, "up__echo", fmt.Sprintf(`{"n":%d}`, i)); m.Error == nil {
				made++
			}
		}
		if calls := len(harness.CallsOf(t, s.Journal, 4)); made != 4 || calls != 4 {
			t.Errorf("%d calls were answered and %d made, want the 4 that the limit allows", made, calls)
		}
	})
}

// TestMemberAloneMakesNoCall takes the lease of a member. It can neither count a call nor see
// whether an approval was used before, so it makes no call.
func TestMemberAloneMakesNoCall(t *testing.T) {
	harness.Waits(t)
	for name, policy := range map[string]string{
		"approval": "- { name: all, rules: [ { ask: { tools: up__echo } }, { allow: { upstreams: up } } ] }",
		"limits":   "- { name: all, rules: [ { allow: { upstreams: up } } ], limits: { rate: 1/h, burst: 4 } }",
	} {
		for _, up := range harness.Eras {
			t.Run(name+", "+string(up), func(t *testing.T) {
				s, j := mustMembers(t, harness.Pair{Client: client.EraModern, Upstream: up, Transport: "http"},
					func(w *harness.Setup) { w.Policy = harness.MustPolicy(t, policy) })
				c := j.Talk(t)
				q := harness.Called("up__echo", `{}`)
				if name == "approval" {
					m := at(j, c, 0).Begin(t, q).Answer(t)
					q.Params = harness.Retried(q.Params, m, string(raw.Quote(harness.Requested(t, m)[0].Key))+
						`:{"action":"accept","content":{"answer":"Allow once"}}`)
				}
				j.Members[1].Leave()
				if m := at(j, c, 1).Begin(t, q).Answer(t); m.Error == nil {
					t.Errorf("the call is answered %s", m.Append(nil))
				}
				if n := len(harness.CallsOf(t, s.Journal, 0)); n != 0 {
					t.Errorf("the upstream was called %d times", n)
				}
				if m := at(j, c, 2).Begin(t, q).Answer(t); m.Error != nil {
					t.Errorf("another member answers %s", m.Append(nil))
				}
			})
		}
	}
}
