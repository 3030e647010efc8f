package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/stdio"
	"junction/upstream/upstreamtest"
)

// mostOfAnError is the most characters of an error that transport.OneLine returns.
const mostOfAnError = 1000

func user(name string) func(*Call) { return func(c *Call) { c.Principal = name } }

// TestConnectionsOfAUserAreBounded: a principal has at most half of max_links, however many sessions it
// has, and makes room for itself. Others keep their connections.
func TestConnectionsOfAUserAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Isolation: IsolationSession, MaxLinks: 6, Timeout: time.Minute})
		synctest.Wait()
		quiet := sessionOf(t, r.Upstream, session("quiet"), user("two"))
		settle(time.Second)
		for _, s := range []string{"1", "2", "3", "4", "5"} {
			sessionOf(t, r.Upstream, session(s), user("one"))
			settle(time.Second)
		}
		if n := r.Status().Links; n != 5 {
			t.Errorf("%d connections, want 5: that of the catalog, one of two, and 3 of one", n)
		}
		if again := sessionOf(t, r.Upstream, session("quiet"), user("two")); again != quiet {
			t.Error("the connection of two was closed for one more session of one")
		}
		var hanging []<-chan result
		for _, s := range []string{"5", "4", "3"} {
			hanging = append(hanging, begun(r.Upstream, toolCall("gate", `{"gate":"g"}`, session(s), user("one"))))
		}
		settle(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := r.Call(ctx, toolCall("echo", `{}`, session("6"), user("one")))
		if got := mustFail(t, result{err: err}, client.KindBusy); !strings.Contains(got, "one user") {
			t.Errorf("Call = %q, want the share of one user named", got)
		}
		sessionOf(t, r.Upstream, session("new"), user("three"))
		for _, h := range hanging {
			r.server.Release("g")
			<-h
		}
	})
}

// TestSubscriptionsLeaveRoom: subscriptions keep at most half of max_links in use, also if
// they begin at the same time. Calls have the other half.
func TestSubscriptionsLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		script := legacyScript
		script.Contents = map[string]json.RawMessage{"file:///a": json.RawMessage(`{"contents":[]}`)}
		r := newRig(t, script, Config{Isolation: IsolationSession, MaxLinks: 6, Timeout: time.Minute})
		synctest.Wait()
		users := []string{"1", "2", "3", "4", "5"}
		type outcome struct {
			user string
			from Source
			err  error
		}
		subscribe := func(user string) outcome {
			from, _, err := r.Subscribe(t.Context(), &Call{Call: client.Call{Session: user, Principal: user}}, []string{"file:///a"})
			return outcome{user, from, err}
		}
		all := make(chan outcome, len(users))
		for _, user := range users {
			go func() { all <- subscribe(user) }()
		}
		var have []outcome
		refused := ""
		for range users {
			o := <-all
			if o.err == nil {
				have = append(have, o)
				continue
			}
			refused = o.user
			if got := mustFail(t, result{err: o.err}, client.KindBusy); !strings.Contains(got, "half of max_links") {
				t.Errorf("Subscribe = %q, want max_links named", got)
			}
		}
		if len(have) != 3 {
			t.Fatalf("%d of 5 users have subscribed, want 3: half of max_links", len(have))
		}
		sessionOf(t, r.Upstream, session(refused), user(refused))
		again := subscribe(have[0].user)
		if again.err != nil {
			t.Errorf("a second subscription over a connection that is kept: %v", again.err)
		}
		r.Unsubscribe(have[0].from, []string{"file:///a"})
		if o := subscribe(refused); o.err == nil {
			t.Error("a user has subscribed although another one has only ended one of two subscriptions")
		}
		r.Unsubscribe(again.from, []string{"file:///a"})
		if o := subscribe(refused); o.err != nil {
			t.Errorf("a subscription after one has ended: %v", o.err)
		}
	})
}

// TestIdleConnectionOfAUserEnds: a connection of one principal ends after 15 minutes without a call; the one
// that lists stays.
func TestIdleConnectionOfAUserEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, legacyScript, Config{Separate: true})
		synctest.Wait()
		mine := sessionOf(t, r.Upstream, user("one"))
		settle(14 * time.Minute)
		if again := sessionOf(t, r.Upstream, user("one")); again != mine {
			t.Error("the connection has ended within 15 minutes")
		}
		settle(14 * time.Minute)
		if n := r.Status().Links; n != 2 {
			t.Errorf("%d connections after 14 idle minutes, want 2", n)
		}
		settle(2 * time.Minute)
		if n := r.Status().Links; n != 1 {
			t.Errorf("%d connections after 16 idle minutes, want 1", n)
		}
	})
}

// TestSecondKeyRestartsNothing: a second API key restarts no server. From then on each user has connections
// of their own.
func TestSecondKeyRestartsNothing(t *testing.T) {
	one := Config{Command: []string{"server"}}
	two := one
	two.Separate = true
	o := Options{Log: authtest.Log(t)}.withDefaults()
	p := &pool{name: "x", connConfig: one.withDefaults(o.Defaults).connConfig(), options: o}
	p.lists.shared.Store(&Catalog{})
	if newUpstream(one.resolve(o.Defaults), p); p.key(client.Profile{}, "", "a", false) != p.reading() {
		t.Error("the only user does not have the shared connection")
	}
	if !p.serves(two.resolve(o.Defaults), o) {
		t.Error("a second key restarts the server")
	}
	newUpstream(two.resolve(o.Defaults), p)
	if a, b := p.key(client.Profile{}, "", "a", false), p.key(client.Profile{}, "", "b", false); a == b || a == p.reading() || b == p.reading() {
		t.Error("users share a connection")
	}
}

// TestReasonOfAHostileServerIsCleaned: the reason of a failed connection is one line of bounded length,
// without characters that a terminal obeys, and without the secrets that the server was given, for
// the hook, for the table of upstreams, and for clients.
func TestReasonOfAHostileServerIsCleaned(t *testing.T) {
	const key, other, query = "canary-header-key", "canary-other", "canary-query"
	const variable = "printed-by-the-command" // which Junction logs at the level debug as it is
	words := "first\nsecond \x1b]0;owned\x07 \u202e \u009b31m Bearer " + key + " " + other + " " + query + " "
	long := words + strings.Repeat("x", 1<<20)
	rejection, _ := json.Marshal(map[string]any{"code": -32000, "message": long}) // cannot fail
	echo := `printf 'Error: \033]0;owned\007 %s ` + strings.Repeat("x", 2000) + `\n' "$UP_API_KEY" >&2; exit 3`
	for _, row := range []struct {
		name   string
		config Config
		rules  []upstreamtest.Rule
	}{
		{"handshake", Config{}, []upstreamtest.Rule{{Method: "*", Error: rejection}}},
		{"version", Config{Era: client.EraLegacy}, []upstreamtest.Rule{{Method: "initialize",
			Result: fmt.Appendf(nil, `{"protocolVersion":%s,"capabilities":{}}`, raw.Quote(long))}}},
		{"list", Config{}, []upstreamtest.Rule{{Method: "tools/list", Error: rejection}}},
		{"redirect", Config{}, []upstreamtest.Rule{{Method: "*", Status: 302,
			Header: map[string]string{"Location": "http://x/" + key + strings.Repeat("y", 20_000)}}}},
		{"command", Config{Command: []string{"sh", "-c", echo}, Env: map[string]string{"UP_API_KEY": variable}}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			var told atomic.Pointer[Change]
			failed := make(chan struct{})
			o := Options{Log: authtest.Log(t), Hooks: Hooks{StateChanged: func(c Change) {
				if c.State.Failed() && told.CompareAndSwap(nil, &c) {
					close(failed)
				}
			}}}
			c := row.config
			if c.Command == nil {
				server := upstreamtest.New(upstreamtest.Script{Rules: row.rules})
				defer server.Close()
				at := httptest.NewServer(server.Handler())
				defer at.Close()
				c.URL = at.URL + "/mcp?key=" + query
				c.Headers = map[string]string{"Authorization": "Bearer " + key, "X-Key": other}
			}
			u := start("up", "", c.resolve(o.Defaults), o.withDefaults(), &Catalog{})
			defer u.Close()
			<-failed
			_, err := u.Call(t.Context(), toolCall("a", `{}`))
			own, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("Call = %.200v, want an *Error", err)
			}
			for what, text := range map[string]string{"the hook": told.Load().Err.Error(), "the status": u.Status().Err,
				"a client": own.Public(), "a check": u.Check(t.Context()).Err.Error()} {
				if n := utf8.RuneCountInString(text); n == 0 || n > mostOfAnError+100 {
					t.Errorf("%s has a text of %d characters", what, n)
				}
				if i := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
					t.Errorf("%s has the character %q", what, text[i:min(len(text), i+4)])
				}
				for _, secret := range []string{key, other, variable, query} {
					if strings.Contains(text, secret) {
						t.Errorf("%s has the secret %s: %.300s", what, secret, text)
					}
				}
			}
		})
	}
}

// reporting is the conn to a process that has reported a problem.
type reporting struct {
	client.Conn
	text string
}

func (r reporting) Child() stdio.Child { return r }

func (reporting) PID() int { return 1 }

func (reporting) Started() time.Time { return time.Time{} }

func (r reporting) Tail() string { return r.text }

func (r reporting) Reported() []stdio.Reported { return []stdio.Reported{{Text: r.text}} }

// TestReportedProblemsAreCleaned: the problems that a running process reports are shown like the
// reason of a failed connection.
func TestReportedProblemsAreCleaned(t *testing.T) {
	const secret = "printed-by-the-command"
	p := &pool{connConfig: Config{Command: []string{"x"}, Env: map[string]string{"UP_API_KEY": secret}}}
	p.lists.shared.Store(&Catalog{})
	c := reporting{text: "the key\x1b[31m " + secret + " is wrong " + strings.Repeat("x", 4<<10)}
	p.links = map[linkKey]*link{{}: {readsShared: true, linkState: linkState{conn: c}}}
	got := p.Status().Reported[0].Text
	if want := "the key[31m … is wrong x"; !strings.HasPrefix(got, want) || utf8.RuneCountInString(got) > mostOfAnError+1 {
		t.Errorf("the status has %d characters, %.100q, want %q and at most %d", utf8.RuneCountInString(got), got, want, mostOfAnError)
	}
}

// TestLeftOutDefinitionsDoNotFillTheLog: a server lists many definitions that are left out,
// each with a long name, and announces a change all the time.
func TestLeftOutDefinitionsDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var list []json.RawMessage
		for i := range 500 {
			list = append(list, fmt.Appendf(nil, `{"name":"%d%s","inputSchema":1}`, i, strings.Repeat("n", 20_000)))
		}
		var b strings.Builder
		r := newRig(t, upstreamtest.Script{Tools: list}, Config{}, func(o *Options) { o.Log = authtest.Log(t, &b) })
		settle(time.Second)
		if n := len(r.Catalog().Left); n != 500 {
			t.Fatalf("%d definitions are left out, want 500", n)
		}
		r.Close()
		if n := strings.Count(b.String(), "left out"); n == 0 || n > 10 || b.Len() > 20_000 {
			t.Errorf("the log has %d lines about definitions that are left out, and %d bytes", n, b.Len())
		}
	})
}

// TestCrashesAndEvictionsAreCounted: the connection of one user fails, and that of another one ends to
// make room. Neither is one of the connection that lists the tools.
func TestCrashesAndEvictionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := upstreamtest.Rule{Method: "initialize", Skip: 1, Times: 1, Status: 500}
		r := newRig(t, upstreamtest.Script{Era: "legacy", Rules: []upstreamtest.Rule{fails}},
			Config{Isolation: IsolationPrincipal, MaxLinks: 2})
		settle(time.Second)
		mustFail(t, <-begun(r.Upstream, toolCall("echo", `{}`, of("ann"))), client.KindUnavailable)
		mustCall(t, r.Upstream, toolCall("echo", `{}`, of("ann")))
		if s := r.Status(); s.Crashes != 1 || s.Evictions != 0 {
			t.Errorf("%d crashes and %d evictions after one failure, want 1 and 0", s.Crashes, s.Evictions)
		}
		mustCall(t, r.Upstream, toolCall("echo", `{}`, of("bob")))
		if s := r.Status(); s.Crashes != 1 || s.Evictions != 1 {
			t.Errorf("%d crashes and %d evictions after room was made, want 1 and 1", s.Crashes, s.Evictions)
		}
		r.mustHear("ready")
	})
}
