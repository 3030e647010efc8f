package front

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/policy"
	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/scope"
	"junction/upstream/client"
)

// TestRequestsAreShared: one principal has half of limits.requests, the next half of the rest, and so
// on. A principal that has nothing yet gets one as long as there is one.
func TestRequestsAreShared(t *testing.T) {
	eachFairEra(t, func(t *testing.T, era client.Era) {
		w := newTown(t, proxy.Limits{Requests: 8}, 10, nil, nil)
		var rest []func() []*httptest.ResponseRecorder
		for i, share := range []int{4, 2, 1, 1} {
			v := w.visitor(era, fmt.Sprintf("user%d", i))
			now, later := several(10, func() *httptest.ResponseRecorder { return v.call(t.Context(), 0) })
			if len(now) != 10-share {
				t.Errorf("%d of 10 calls of principal %d are in progress, want %d", 10-len(now), i, share)
			}
			for _, a := range now {
				status := http.StatusTooManyRequests
				if i == 3 { // who has taken the last one
					status = http.StatusServiceUnavailable
				}
				refused(t, a, status, "limits.requests")
			}
			if i < 3 {
				succeeded(t, "the call of a principal that has nothing", w.visitor(era, "user10").call(t.Context(), 1))
			}
			rest = append(rest, later)
		}
		last := &visitor{w, client.EraModern, w.visitor(client.EraModern, "user11").header}
		refused(t, last.call(t.Context(), 1), http.StatusServiceUnavailable, "limits.requests")
		close(w.gate)
		for _, later := range rest {
			for _, a := range later() {
				succeeded(t, "a call in progress", a)
			}
		}
		w.unused()
	})
}

// TestAbandonedCallsCount: a legacy client hangs up in the middle of its calls, which go on. They
// count for it alone, until they end.
func TestAbandonedCallsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, proxy.Limits{Requests: 40}, 10, nil, nil)
		hog, other := w.visitor(client.EraLegacy, "user0"), w.visitor(client.EraLegacy, "user1")
		_, later := several(20, func() *httptest.ResponseRecorder {
			ctx, hangUp := context.WithTimeout(t.Context(), time.Second)
			defer hangUp()
			return hog.call(ctx, 0)
		})
		time.Sleep(time.Minute)
		now, _ := several(20, func() *httptest.ResponseRecorder { return hog.call(t.Context(), 0) })
		if len(now) != 20 {
			t.Errorf("%d calls of a client that has hung up in 20 are in progress besides, want none", 20-len(now))
		}
		for _, a := range now {
			refused(t, a, http.StatusTooManyRequests, "limits.requests")
		}
		_, its := several(10, func() *httptest.ResponseRecorder { return other.call(t.Context(), 0) })
		close(w.gate)
		later()
		for _, a := range its() {
			succeeded(t, "the call of another", a)
		}
		w.unused()
		succeeded(t, "the next call", hog.call(t.Context(), 1))
	})
}

// TestStreamsAreShared: one principal has half of limits.streams. Refused are streams with an MCP
// error, before anything was written.
func TestStreamsAreShared(t *testing.T) {
	eachFairEra(t, func(t *testing.T, era client.Era) {
		w := newTown(t, proxy.Limits{Streams: 8, Requests: 8}, 10, nil, nil)
		ctx, end := context.WithCancel(t.Context())
		hog, other := w.visitor(era, "user0"), w.visitor(era, "user1")
		now, later := several(20, func() *httptest.ResponseRecorder { return hog.listen(ctx) })
		if len(now) != 16 {
			t.Errorf("%d streams of one principal are open, want half of 8", 20-len(now))
		}
		for _, a := range now {
			refused(t, a, http.StatusTooManyRequests, "limits.streams")
		}
		if _, open := several(1, func() *httptest.ResponseRecorder { return other.listen(ctx) }); true {
			defer open()
		}
		if n := w.Used()[budget.Streams]; n != 5 {
			t.Errorf("%d streams are open, want 4 of one principal and 1 of another", n)
		}
		if n := w.Used()[budget.Requests]; n != 0 {
			t.Errorf("%d open streams count as requests in progress", n)
		}
		succeeded(t, "a call beside open streams", hog.call(t.Context(), 1))
		end()
		for _, a := range later() {
			if a.Code != http.StatusOK {
				t.Errorf("a stream was answered %d %s", a.Code, a.Body)
			}
		}
		w.unused()
	})
}

// TestBatchCountsItsMessages: a batch counts as many requests as it has messages.
func TestBatchCountsItsMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, proxy.Limits{Requests: 40}, 10, nil, nil)
		v := w.visitor(client.EraLegacy, "user0")
		v.begin(mcp.ProtocolVersion20250326)
		batch := func(n int) string {
			var list []string
			for i := range n {
				list = append(list, fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s-%d","method":"tools/call","params":{"name":"up__tool0","arguments":{}}}`, requestID(), i))
			}
			return "[" + strings.Join(list, ",") + "]"
		}
		a := v.post(t.Context(), batch(21), nil)
		refused(t, a, http.StatusTooManyRequests, "limits.requests")
		_, later := several(1, func() *httptest.ResponseRecorder { return v.post(t.Context(), batch(20), nil) })
		refused(t, v.call(t.Context(), 1), http.StatusTooManyRequests, "limits.requests")
		close(w.gate)
		if a := later()[0]; strings.Count(a.Body.String(), `"result"`) != 20 {
			t.Errorf("a batch of 20 is answered %d %s", a.Code, a.Body)
		}
		w.unused()
	})
}

// TestSessionsAreShared: a principal that opens sessions without end loses its own oldest ones and
// none of others.
func TestSessionsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, proxy.Limits{Sessions: 100}, 10, nil, nil)
		many := func(who string, n int) []*session {
			for range n {
				w.visitor(client.EraLegacy, who)
				time.Sleep(time.Millisecond)
			}
			var list []*session // the oldest first
			for e := w.sessions.order.Back(); e != nil; e = e.Prev() {
				if s := e.Value.(*entry).s; s.Principal == "key:"+who {
					list = append(list, s)
				}
			}
			return list
		}
		early := many("user0", 10) // unused for longest, and so the first to go in an LRU of all
		hog := many("user1", 1000)
		if len(hog) != 45 {
			t.Errorf("%d sessions of one principal are in memory, want half of the 90 that are left", len(hog))
		}
		if again := many("user0", 0); len(again) != 10 || again[0] != early[0] {
			t.Errorf("%d of 10 sessions of another principal are left", len(again))
		}
		// Many principals fill what is left; then those with most sessions lose one for each that
		// comes.
		for i := 2; i < 20; i++ {
			if n := len(many(fmt.Sprintf("user%d", i), 5)); n == 0 {
				t.Errorf("principal %d has no session", i)
			}
		}
		if n := len(w.sessions.byID); n > 100 || n != w.sessions.order.Len() {
			t.Errorf("%d sessions are in memory, %d in their order, want 100", n, w.sessions.order.Len())
		}
		if n := len(many("user0", 0)); n != 10 {
			t.Errorf("%d of 10 sessions of a principal with few are left", n)
		}
		time.Sleep(time.Hour)
		succeeded(t, "a call in a session that was forgotten", w.visitor(client.EraLegacy, "user1").call(t.Context(), 1))
		for range 10 { // each forgets a few that are idle
			w.visitor(client.EraLegacy, "user1")
		}
		if n := len(w.sessions.byID); n > 11 || n != w.sessions.order.Len() {
			t.Errorf("%d sessions are in memory an hour later, of which 11 are new", n)
		}
		if len(w.sessions.holders) != len(w.sessions.most) || len(w.sessions.holders) != 1 {
			t.Errorf("%d principals have sessions, %d in their order", len(w.sessions.holders), len(w.sessions.most))
		}
	})
}

// TestSessionOfAnotherIsUnknown: a session id of another principal is unknown, and takes no
// memory.
func TestSessionOfAnotherIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, proxy.Limits{}, 10, nil, nil)
		mine, theirs := w.visitor(client.EraLegacy, "user0"), w.visitor(client.EraLegacy, "user1")
		for range 2 {
			theirs.header.Set("Mcp-Session-Id", mine.header.Get("Mcp-Session-Id"))
			if a := theirs.call(t.Context(), 1); a.Code != http.StatusNotFound {
				t.Errorf("a call in the session of another is answered %d %s", a.Code, a.Body)
			}
			if a := theirs.send(t.Context(), http.MethodDelete, "", nil); a.Code != http.StatusNotFound {
				t.Errorf("to delete the session of another is answered %d %s", a.Code, a.Body)
			}
			w.sessions.mu.Lock()
			w.sessions.drop(w.sessions.byID[mine.header.Get("Mcp-Session-Id")])
			w.sessions.mu.Unlock()
			if a := theirs.call(t.Context(), 1); a.Code != http.StatusNotFound || len(w.sessions.byID) != 1 {
				t.Errorf("a call in the session of another, which is not in memory, is answered %d, and %d are in memory", a.Code, len(w.sessions.byID))
			}
			succeeded(t, "a call in my session", mine.call(t.Context(), 1))
		}
	})
}

// TestIdleRequestsHaveTheRateOfCalls: lists, pings, handshakes and streams have the rate of calls, and do not use
// it up.
func TestIdleRequestsHaveTheRateOfCalls(t *testing.T) {
	eachFairEra(t, func(t *testing.T, era client.Era) {
		limited, err := policy.Compile(policy.Config{{Name: "slow", Rules: []policy.Rule{{Allow: &policy.Selector{Upstreams: policy.List{"*"}}}},
			Limits: policy.Limits{Rate: 1, Burst: 30}}})
		if err != nil {
			t.Fatal(err)
		}
		w := newTown(t, proxy.Limits{}, 10, nil, func(c *scope.Config) { c.Policy = limited })
		ctx, end := context.WithCancel(t.Context())
		end() // a stream opens and ends
		idle := "ping"
		if era == client.EraModern {
			idle = "server/discover"
		}
		requests := map[string]func(v *visitor) *httptest.ResponseRecorder{
			"a list":   func(v *visitor) *httptest.ResponseRecorder { return v.ask(t.Context(), "tools/list", "") },
			"prompts":  func(v *visitor) *httptest.ResponseRecorder { return v.ask(t.Context(), "prompts/list", "") },
			idle:       func(v *visitor) *httptest.ResponseRecorder { return v.ask(t.Context(), idle, "") },
			"a stream": func(v *visitor) *httptest.ResponseRecorder { return v.listen(ctx) },
		}
		if era == client.EraLegacy {
			requests["a handshake"] = func(v *visitor) *httptest.ResponseRecorder {
				return v.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`, nil)
			}
		}
		i := 0
		for what, request := range requests {
			v := w.visitor(era, fmt.Sprintf("user%d", i))
			i++
			made := 0
			for range 100 {
				a := request(v)
				if !strings.Contains(a.Body.String(), "limits.rate") {
					made++
				} else if a.Header().Get("Retry-After") != "1" || !strings.Contains(a.Body.String(), `"retryAfterMs"`) {
					t.Errorf("%s is refused with Retry-After %q and %s", what, a.Header().Get("Retry-After"), a.Body)
				}
			}
			if made != 30 && made != 29 { // of a legacy client the handshake was one
				t.Errorf("%d of 100 times %s was answered, want 30", made, what)
			}
			for range 30 {
				succeeded(t, "a call after "+what, v.call(t.Context(), 1))
			}
			if a := v.call(t.Context(), 1); !strings.Contains(a.Body.String(), "limits.rate") {
				t.Errorf("call 31 is answered %s", a.Body)
			}
			time.Sleep(10 * time.Second)
			if a := request(v); strings.Contains(a.Body.String(), "limits.rate") {
				t.Errorf("%s is refused 10 s later: %s", what, a.Body)
			}
		}
	})
}

// TestProgramsShareWithoutAuthentication: on a machine without authentication the programs share, not their one user.
// Behind a proxy that authenticates the addresses do, whatever programs say of themselves.
func TestProgramsShareWithoutAuthentication(t *testing.T) {
	eachFairEra(t, func(t *testing.T, era client.Era) {
		w := newTown(t, proxy.Limits{Requests: 16}, 10, &auth.Guard{}, nil)
		wild, calm := w.visitor(era, "wild/1.0"), w.visitor(era, "calm/1.0")
		now, later := several(20, func() *httptest.ResponseRecorder { return wild.call(t.Context(), 0) })
		if len(now) != 12 {
			t.Errorf("%d calls of one program are in progress, want half of 16", 20-len(now))
		}
		succeeded(t, "the call of another program", calm.call(t.Context(), 1))
		refused(t, w.visitor(era, "wild/1.0").call(t.Context(), 1), http.StatusTooManyRequests, "limits.requests")
		if o := w.Overused(); len(o) != 1 || o[0].Principal != "local (wild/1.0)" || o[0].Limit != "limits.requests" || o[0].Used != 8 || o[0].Of != 16 {
			t.Errorf("over their share are %+v", o)
		}
		close(w.gate)
		later()
		w.unused()
	})
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, proxy.Limits{}, 10, &auth.Guard{}, func(c *scope.Config) { c.BehindProxy = true })
		from := func(address, agent string) budget.Account {
			r := httptest.NewRequest(http.MethodPost, "/mcp", nil)
			r.RemoteAddr = address
			r.Header.Set("User-Agent", agent)
			world := w.Snapshot()
			return accountOf(scope.Caller{Snapshot: world, Principal: world.Config.Guard.Authenticate(httptest.NewRecorder(), r)}, r)
		}
		if from("192.0.2.1:1", "a") != from("192.0.2.1:2", "b") || from("192.0.2.1:1", "a") == from("192.0.2.2:1", "a") {
			t.Error("IPv4 addresses are not what is shared by")
		}
		if from("[2001:db8::1]:1", "a") != from("[2001:db8::ffff:1]:2", "b") || from("[2001:db8::1]:1", "a") == from("[2001:db8:0:1::1]:1", "a") {
			t.Error("IPv6 networks are not what is shared by")
		}
	})
}

// TestOperatorsSeeWhoIsOverTheirShare: the log has a line a minute about a caller that is over its share, and
// Overused has it for a minute.
func TestOperatorsSeeWhoIsOverTheirShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, proxy.Limits{Requests: 8}, 10, nil, nil)
		hog, other := w.visitor(client.EraModern, "user0"), w.visitor(client.EraModern, "user1")
		_, later := several(100, func() *httptest.ResponseRecorder { return hog.call(t.Context(), 0) })
		time.Sleep(time.Second)
		_, its := several(10, func() *httptest.ResponseRecorder { return other.call(t.Context(), 0) })
		if n := strings.Count(w.log.String(), "requests refused"); n != 1 {
			t.Errorf("104 refusals have %d lines in the log, want 1: %s", n, w.log)
		}
		time.Sleep(30 * time.Second)
		if o := w.Overused(); len(o) != 2 || o[0].Principal != "key:user1" || o[1].Principal != "key:user0" || o[1].Used != 4 || o[1].Others != 2 || o[1].Of != 8 {
			t.Errorf("over their share are %+v", o)
		}
		time.Sleep(32 * time.Second)
		if o := w.Overused(); len(o) != 0 {
			t.Errorf("over their share were, a minute ago, %+v", o)
		}
		w.log.Reset()
		other.call(t.Context(), 0)
		for _, want := range []string{"level=WARN", "principal=key:user0", "limit=limits.requests", "used=4", "others=2", "of=8", "refused=95", "refused_others=9"} {
			if !strings.Contains(w.log.String(), want) {
				t.Errorf("the second line is %s, want %s in it", w.log, want)
			}
		}
		close(w.gate)
		later()
		its()
		w.unused()
	})
}
