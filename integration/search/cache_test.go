package search

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/proxy"
	"junction/proxy/front"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// repeatable are tools that declare themselves read-only and idempotent, but for the last two.
func repeatable() (tools []json.RawMessage) {
	for _, name := range []string{"echo", "fail", "ask", "progress", "url", "set", "fresh"} {
		tools = append(tools, json.RawMessage(`{"name":"`+name+`","inputSchema":{"type":"object"},`+
			`"annotations":{"readOnlyHint":true,"idempotentHint":true}}`))
	}
	return append(tools, json.RawMessage(`{"name":"reads","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`),
		json.RawMessage(`{"name":"plain","inputSchema":{"type":"object"}}`))
}

// observer notes of each tool call whether it was answered from the cache.
type observer struct {
	harness.Unobserved
	mu     sync.Mutex
	cached []bool
}

func (o *observer) End(info *proxy.CallInfo, _ client.Trace) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if info.Method == "tools/call" {
		o.cached = append(o.cached, info.Cached)
	}
}

// reusing starts a junction that reuses the results of the upstream up for an hour. The changes are of
// its configuration.
func reusing(t *testing.T, p harness.Pair, w harness.Setup, changes ...func(*upstream.Config)) (
	*harness.Served, *harness.Junction, *harness.Setup) {
	t.Helper()
	s := p.Serve(t, upstreamtest.Script{Tools: repeatable(), ListenGate: "listed"})
	s.Config.Cache = time.Hour
	for _, change := range changes {
		change(&s.Config)
	}
	never := time.Duration(0)
	s.Config.Tools = upstream.Rules{{Glob: "fresh", Rule: upstream.Rule{Cache: &never}}}
	w.Upstreams = map[string]upstream.Config{"up": s.Config}
	j := harness.Start(t, p, w)
	j.Offers(t, "up")
	for range 10 { // connections
		if err := s.Release("listed"); err != nil {
			t.Fatal(err)
		}
	}
	if p.Upstream == client.EraModern || p.Transport == "http" {
		announced(t, j, 1) // the stream of announcements has begun, after the tools were listed
	}
	return s, j, &w
}

// announced waits until the upstream has announced n changes.
func announced(t *testing.T, j *harness.Junction, n uint64) {
	t.Helper()
	c := j.Set.All()[0]
	for ctx := harness.Patient(t); c.Announced() < n; runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatalf("%d changes are announced, want %d", c.Announced(), n)
		}
	}
}

// wantCalls compares how often the upstream was called.
func wantCalls(t *testing.T, s *harness.Served, want int, what string) {
	t.Helper()
	if got := len(harness.CallsOf(t, s.Journal, want)); got != want {
		t.Fatalf("after %s the upstream was called %d times, want %d", what, got, want)
	}
}

// TestCacheAnswersAgain repeats calls. The answer of a kept result is the same to the byte, and the
// upstream is called once. Other arguments, and what must not be kept, reach the upstream.
func TestCacheAnswersAgain(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, j, _ := reusing(t, p, harness.Setup{})
		c := j.Talk(t)
		call := func(name, arguments string) string {
			m, _ := c.Converse(t, harness.Called(name, arguments), harness.AnswersTo)
			return harness.WithoutName(m, "none")
		}
		const result = `{"result":{"content":[],"structuredContent":{"n":1.0,"\u00e9":[1E2]},"x":1}}`
		first := call("up__echo", result)
		wantCalls(t, s, 1, "a call")
		if again := call("up__echo", result); again != first {
			t.Errorf("the kept answer is %s\nwant %s", again, first)
		}
		if again := call("echo", strings.Replace(result, `"x":1`, `"x":1.0`, 1)); again != first {
			t.Errorf("the answer to the same values is %s\nwant %s", again, first)
		}
		wantCalls(t, s, 1, "the same call again")
		n := 1
		for _, test := range []struct {
			name, arguments string
			rounds          int // in which a modern server is called
		}{
			{"echo", `{"x":2}`, 0},
			{"fail", `{}`, 1},
			{"echo", `{"result":{"content":[],"isError":true}}`, 1},
			{"fresh", `{}`, 1}, {"reads", `{}`, 1}, {"plain", `{}`, 1},
			{"ask", `{"questions":[` + harness.AskForm + `]}`, 2},
		} {
			for i := range 2 {
				call("up__"+test.name, test.arguments)
				switch {
				case test.rounds == 0 && i == 0, test.rounds == 1, test.rounds == 2 && p.Upstream == client.EraLegacy:
					n++
				case test.rounds == 2:
					n += 2
				}
				wantCalls(t, s, n, fmt.Sprintf("call %d of %s %s", i+1, test.name, test.arguments))
			}
		}
		if notes, m := c.Begin(t, harness.Query{Method: "tools/call", Params: `"name":"up__progress","arguments":{"n":2}`,
			Meta: `"progressToken":"p"`}).All(t); len(notes) != 2 || m.Error != nil {
			t.Errorf("%d notes and %s", len(notes), m.Append(nil))
		}
		if notes, m := c.Begin(t, harness.Query{Method: "tools/call", Params: `"name":"up__progress","arguments":{"n":2}`,
			Meta: `"progressToken":"q"`}).All(t); len(notes) != 0 || m.Error != nil {
			t.Errorf("from the cache come %d notes and %s", len(notes), m.Append(nil))
		}
		wantCalls(t, s, n+1, "a call with progress")
	})
}

// TestSafetyCacheIsOfItsCaller has several callers make the same call. None gets the result of
// another, also if the connection is shared, and policy decides before the cache is asked.
func TestSafetyCacheIsOfItsCaller(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		guard, keys := harness.Keyring(t, "ann", "bob", "careful")
		shared := harness.MustPolicy(t, `
- { name: all, match: { key: [ann, bob] }, rules: [ { allow: { upstreams: "*" } } ] }
- { name: careful, match: { key: careful }, redact: [ { name: token, re: "canary-[a-z]+" } ], rules: [ { ask: { upstreams: "*" } } ] }
`)
		s, j, w := reusing(t, p, harness.Setup{Guard: guard, Policy: shared})
		ann, bob := j.As(t, keys["ann"]), j.As(t, keys["bob"])
		const arguments = `{"token":"canary-reused"}`
		ann.Succeed(t, "up__echo", arguments)
		bob.Succeed(t, "up__echo", arguments)
		wantCalls(t, s, 2, "the same call of two keys")
		ann.Succeed(t, "up__echo", arguments)
		j.As(t, keys["bob"]).Succeed(t, "up__echo", arguments)
		wantCalls(t, s, 2, "the calls again")

		careful := j.As(t, keys["careful"])
		for i := range 2 {
			m, asked := careful.Converse(t, harness.Called("up__echo", arguments), func(harness.ServerRequest) string {
				return `"result":{"action":"accept","content":{"answer":"Allow once"}}`
			})
			if len(asked) != 1 || strings.Contains(string(m.Result), "canary") || !strings.Contains(string(m.Result), "token") {
				t.Errorf("call %d is asked for %d times, and answered %s", i, len(asked), m.Append(nil))
			}
		}
		wantCalls(t, s, 3, "two approved calls")
		if m, _ := careful.Converse(t, harness.Called("up__echo", arguments), func(harness.ServerRequest) string {
			return `"result":{"action":"decline"}`
		}); !strings.Contains(string(m.Result), "did not approve") {
			t.Errorf("a declined call is answered %s", m.Append(nil))
		}

		w.Policy = harness.MustPolicy(t, `
- { name: all, match: { key: bob }, rules: [ { allow: { upstreams: "*" } } ] }
- { name: none, match: { key: ann }, rules: [ { deny: { tools: up__echo } }, { allow: { upstreams: "*" } } ] }
`)
		j.Apply(*w)
		if m := j.As(t, keys["ann"]).Call(t, "up__echo", arguments); m.Error == nil {
			t.Errorf("a denied call is answered %s", m.Append(nil))
		}
		wantCalls(t, s, 3, "a denied call")
		j.As(t, keys["bob"]).Succeed(t, "up__echo", arguments)
		wantCalls(t, s, 4, "a reload")
	})
}

// TestSafetyCacheIsOfItsSession: with isolation: session, a server may answer each session
// differently. So a session never gets the result of another one of the same user. Modern clients
// have no session: all calls of a user are equal.
func TestSafetyCacheIsOfItsSession(t *testing.T) {
	harness.Waits(t)
	for era, want := range map[client.Era]string{client.EraLegacy: "[false true false true]",
		client.EraModern: "[false true true true]"} {
		t.Run(string(era), func(t *testing.T) {
			o := &observer{}
			guard, keys := harness.Keyring(t, "ann")
			_, j, _ := reusing(t, harness.Pair{Client: era, Upstream: client.EraLegacy, Transport: "stdio"},
				harness.Setup{Guard: guard, Requests: o},
				func(c *upstream.Config) { c.Isolation = upstream.IsolationSession })
			for range 2 {
				c := j.As(t, keys["ann"])
				c.Succeed(t, "up__echo", `{}`)
				c.Succeed(t, "up__echo", `{}`)
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			if got := fmt.Sprint(o.cached); got != want {
				t.Errorf("the calls of two sessions were cached: %s, want %s", got, want)
			}
		})
	}
}

// TestCacheEndsWithAnnouncements has the server announce a change of its lists, also of one that
// looks the same afterwards.
func TestCacheEndsWithAnnouncements(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, j, _ := reusing(t, p, harness.Setup{})
		c := j.Talk(t)
		c.Succeed(t, "up__echo", `{}`)
		c.Succeed(t, "up__echo", `{}`)
		wantCalls(t, s, 1, "a call and its repetition")
		n := j.Set.All()[0].Announced()
		if err := s.SetTools(repeatable()); err != nil {
			t.Fatal(err)
		}
		announced(t, j, n+1)
		c.Succeed(t, "up__echo", `{}`)
		wantCalls(t, s, 2, "an announced change")
	})
}

// TestCacheShowsItself looks at what an observer of the calls learns.
func TestCacheShowsItself(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		o := &observer{}
		_, j, _ := reusing(t, p, harness.Setup{Requests: o})
		c := j.Talk(t)
		for range 3 {
			c.Succeed(t, "up__echo", `{}`)
		}
		c.Succeed(t, "up__plain", `{}`)
		o.mu.Lock()
		defer o.mu.Unlock()
		if got, want := fmt.Sprint(o.cached), "[false true true false]"; got != want {
			t.Errorf("the calls were cached: %s, want %s", got, want)
		}
	})
}

// TestSafetyCacheNeedsKnownUsers has a proxy in front that authenticates the users (auth.none). To
// Junction they are one caller, so nothing is reused.
func TestSafetyCacheNeedsKnownUsers(t *testing.T) {
	harness.Waits(t)
	for _, era := range harness.Eras {
		s, url := upstreamtest.Start(t, upstreamtest.Script{Tools: repeatable()})
		e := harness.MustProxy(t, map[string]upstream.Config{"up": {URL: url, Cache: time.Hour}},
			func(_ *front.Options, w *scope.Config, _ *upstream.Options) { w.BehindProxy = true })
		c := harness.MustClient(t, e, era)
		for range 2 {
			harness.WantEcho(t, c.Tool(t, "up__echo", `{}`))
		}
		if n := len(harness.CallsOf(t, &s.Journal, 2)); n != 2 {
			t.Errorf("%s: the upstream was called %d times, want 2", era, n)
		}
	}
}
