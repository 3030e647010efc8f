package upstream

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// unsent is the text of a server that could not ask the client of a call.
const unsent = "Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests."

// newCommandRig starts an upstream whose calls are decided as for a command: no process can run in
// a bubble, so its connections go over HTTP.
func newCommandRig(t *testing.T, script upstreamtest.Script, c Config, change ...func(*Options)) *rig {
	r := newRig(t, script, c, change...)
	r.Upstream.config.URL = ""
	synctest.Wait()
	return r
}

// teach makes a call that fails with a text, and returns the error.
func teach(t *testing.T, u *Upstream, text string, change ...func(*Call)) string {
	t.Helper()
	_, err := u.Call(t.Context(), toolCall("fail", fmt.Sprintf(`{"error":{"code":-32600,"message":%q}}`, text),
		append([]func(*Call){legacyClient}, change...)...))
	if err == nil || !strings.HasPrefix(err.Error(), text) {
		t.Fatalf("the call ended with %v, want %q", err, text)
	}
	return err.Error()
}

func alone(c *Call) { c.Profile = client.Profile{} }

func rootsOnly(c *Call) { c.Profile = client.Profile{Roots: true} }

func modernClient(c *Call) { c.Era = client.EraModern }

// TestAFailureTeachesASecondProcess: a command is one process, until a call of a legacy client
// fails because the server could not ask this client. Other failures, and other clients, start
// nothing.
func TestAFailureTeachesASecondProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCommandRig(t, upstreamtest.Script{}, Config{})
		for name, attempt := range map[string]func() string{
			"a part of another sentence": func() string {
				said := teach(t, r.Upstream, "x: Method 'elicitation/create' is not supported by the negotiated protocol version (wire era 2026-07-28)")
				if !strings.Contains(said, "era: both") {
					t.Errorf("the error names no line: %s", said)
				}
				return said
			},
			"a part of the sentence":      func() string { return teach(t, r.Upstream, "no file "+unsent) },
			"a modern client":             func() string { return teach(t, r.Upstream, unsent, modernClient) },
			"a client that cannot answer": func() string { return teach(t, r.Upstream, unsent, rootsOnly) },
			"a client without questions":  func() string { return teach(t, r.Upstream, unsent, alone) },
			"a request for roots": func() string {
				said := teach(t, r.Upstream, strings.Replace(unsent, "elicitation/create", "roots/list", 1))
				if !strings.Contains(said, "questions: exact") {
					t.Errorf("the error names no line with which roots reach the server: %s", said)
				}
				return said
			},
		} {
			if said := attempt(); strings.Contains(said, "second process") || inLegacyEra(t, r.Upstream) {
				t.Errorf("%s started a second process: %s", name, said)
			}
		}
		if n := r.Status().Seconds; n != 0 {
			t.Errorf("the status has %d second processes before one was learned", n)
		}
		before := r.count("tools/call")
		if said := teach(t, r.Upstream, unsent); !strings.Contains(said, "second process") ||
			!strings.Contains(said, "none of the state of the first") || strings.Contains(said, "era: both") {
			t.Errorf("the error is %q", said)
		}
		if n := r.count("tools/call") - before; n != 1 {
			t.Errorf("the call was made %d times, want once", n)
		}
		if !inLegacyEra(t, r.Upstream) {
			t.Error("the next call does not go to a second process")
		}
		if n := r.Status().Seconds; n != 1 {
			t.Errorf("the status has %d second processes, want one", n)
		}
		if sessionOf(t, r.Upstream, modernClient) != "" || sessionOf(t, r.Upstream, legacyClient, alone) != "" {
			t.Error("a client that loses nothing on the first process uses the second one")
		}
	})
}

// TestOnlyAResultWithoutMoreTeaches: the sentence of an SDK is the whole result of a call that failed. A
// server that writes more has failed for a reason of its own, and a caller may have chosen the sentence.
func TestOnlyAResultWithoutMoreTeaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCommandRig(t, upstreamtest.Script{}, Config{})
		block := fmt.Sprintf(`{"type":"text","text":%q}`, unsent)
		fail := func(members string) string {
			said, err := r.Upstream.Call(t.Context(), toolCall("echo", `{"result":{"isError":true,`+members+`}}`, legacyClient))
			if err != nil {
				t.Fatal(err)
			}
			return string(said.Text())
		}
		for name, members := range map[string]string{
			"two blocks":         `"content":[` + block + `,` + block + `]`,
			"structured content": `"content":[` + block + `],"structuredContent":{"file":"x"}`,
			"another block":      `"content":[{"type":"note","text":"` + unsent + `"}]`,
			"white space":        `"content":[{"type":"text","text":"` + unsent + `\n"}]`,
			"other letters":      `"content":[{"type":"text","text":"` + strings.Replace(unsent, "C", "\u0421", 1) + `"}]`,
		} {
			if said := fail(members); strings.Contains(said, "second process") || inLegacyEra(t, r.Upstream) {
				t.Errorf("%s started a second process: %s", name, said)
			}
		}
		if said := fail(`"content":[` + block + `],"structuredContent":null`); !strings.Contains(said, "second process") || !inLegacyEra(t, r.Upstream) {
			t.Errorf("the sentence alone teaches nothing: %s", said)
		}
	})
}

// TestOnlyOnesOwnConnectionIsTaught: the caller who teaches may have chosen the text. A second
// process is only for those who share the connection of that caller, and only if they are one
// principal.
func TestOnlyOnesOwnConnectionIsTaught(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		name          string
		config        Config
		teacher, next func(*Call)
		want          bool
	}{
		{"own processes, the same principal", Config{Separate: true}, user("ann"), user("ann"), true},
		{"own processes, another principal", Config{Separate: true}, user("ann"), user("bob"), false},
		{"one process, several principals", Config{Separate: true, Isolation: IsolationShared}, user("ann"), user("ann"), false},
		{"one process, one principal", Config{Isolation: IsolationShared}, user("ann"), user("ann"), true},
		{"own sessions, the same session", Config{Isolation: IsolationSession}, session("1"), session("1"), true},
		{"own sessions, another session", Config{Isolation: IsolationSession}, session("1"), session("2"), false},
		{"with state", Config{Stateful: &yes}, user("ann"), user("ann"), false},
		{"without state", Config{Stateful: &no}, user("ann"), user("ann"), true},
		{"era: modern", Config{Era: client.EraModern}, user("ann"), user("ann"), false},
		{"no room", Config{MaxLinks: 1}, user("ann"), user("ann"), false},
		{"no room for a principal", Config{Separate: true, MaxLinks: 3}, user("ann"), user("ann"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newCommandRig(t, upstreamtest.Script{}, tt.config)
				said := teach(t, r.Upstream, unsent, tt.teacher)
				if got := inLegacyEra(t, r.Upstream, tt.next); got != tt.want {
					t.Errorf("the next call goes to a second process: %v, want %v", got, tt.want)
				}
				if !tt.want && !strings.Contains(tt.name, "another") && !strings.Contains(said, "era: both") {
					t.Errorf("the error names no line: %q", said)
				}
			})
		})
	}
}

// TestSeveralPrincipalsEndASharedSecondProcess: a second API key makes two principals of one.
func TestSeveralPrincipalsEndASharedSecondProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCommandRig(t, upstreamtest.Script{}, Config{Isolation: IsolationShared})
		teach(t, r.Upstream, unsent)
		if !inLegacyEra(t, r.Upstream) {
			t.Fatal("no second process")
		}
		r.separate.Store(true)
		if inLegacyEra(t, r.Upstream) {
			t.Error("a call of one of several principals goes to what one of them has taught")
		}
	})
}

// TestASecondProcessThatFailsIsForgotten: it does not start, or ends within a minute. Then the
// calls go to the first process, and a pause that grows follows. One that lived longer is started
// again.
func TestASecondProcessThatFailsIsForgotten(t *testing.T) {
	t.Run("it does not start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newCommandRig(t, upstreamtest.Script{Rules: []upstreamtest.Rule{status("initialize", 503, 2)}}, Config{})
			for _, pause := range []time.Duration{time.Minute, 2 * time.Minute} {
				teach(t, r.Upstream, unsent)
				if inLegacyEra(t, r.Upstream) {
					t.Error("the call uses a connection that cannot be made")
				}
				settle(pause - time.Second)
				if said := teach(t, r.Upstream, unsent); !strings.Contains(said, "era: legacy") {
					t.Errorf("during the pause the error is %q, want the line for one process", said)
				}
				if inLegacyEra(t, r.Upstream) {
					t.Error("a second process is started during the pause")
				}
				settle(time.Second)
			}
			if n := r.count("initialize"); n != 2 {
				t.Errorf("initialize was sent %d times, want 2", n)
			}
			teach(t, r.Upstream, unsent)
			if !inLegacyEra(t, r.Upstream) {
				t.Error("no second process after the pause")
			}
		})
	})
	for lived, want := range map[time.Duration]bool{secondLife - 2*time.Second: false, secondLife + time.Second: true} {
		t.Run(fmt.Sprint("it ends after ", lived), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newCommandRig(t, upstreamtest.Script{}, Config{})
				teach(t, r.Upstream, unsent)
				if !inLegacyEra(t, r.Upstream) {
					t.Fatal("no second process")
				}
				settle(lived)
				r.Upstream.mu.Lock()
				second := r.links[r.key(client.Everything(), "", "", true)]
				r.Upstream.mu.Unlock()
				second.fail(second.current(), client.ErrNoLegacySession)
				settle(time.Second)
				if got := inLegacyEra(t, r.Upstream); got != want {
					t.Errorf("the next call goes to a second process: %v, want %v", got, want)
				}
			})
		})
	}
	t.Run("it is not used for long", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newCommandRig(t, upstreamtest.Script{}, Config{IdleStop: 10 * time.Second})
			teach(t, r.Upstream, unsent)
			inLegacyEra(t, r.Upstream)
			settle(time.Minute)
			before := r.count("initialize")
			if !inLegacyEra(t, r.Upstream) || r.count("initialize") != before+1 {
				t.Error("the next call does not start the second process again")
			}
		})
	})
}

// TestASecondProcessIsRemembered: the next process of Junction begins with it, unless the entry has
// changed. What a session has taught ends with Junction.
func TestASecondProcessIsRemembered(t *testing.T) {
	store := &memory{texts: map[[2]string][]byte{}}
	withStore := func(o *Options) { o.Store = store }
	run := func(t *testing.T, c Config, use func(*testing.T, *rig)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			r := newCommandRig(t, upstreamtest.Script{}, c, withStore)
			use(t, r)
		})
	}
	own := Config{Separate: true, Isolation: IsolationPrincipal}
	run(t, own, func(t *testing.T, r *rig) { teach(t, r.Upstream, unsent, user("ann")) })
	run(t, own, func(t *testing.T, r *rig) {
		if !inLegacyEra(t, r.Upstream, user("ann")) || inLegacyEra(t, r.Upstream, user("bob")) {
			t.Error("after a restart, not exactly the calls of ann go to a second process")
		}
	})
	changed := own
	changed.Env = map[string]string{"A": "b"}
	run(t, changed, func(t *testing.T, r *rig) {
		if inLegacyEra(t, r.Upstream, user("ann")) {
			t.Error("a changed entry begins with a second process")
		}
	})
	sessions := Config{Isolation: IsolationSession, Env: map[string]string{"A": "c"}}
	run(t, sessions, func(t *testing.T, r *rig) { teach(t, r.Upstream, unsent, session("1")) })
	run(t, sessions, func(t *testing.T, r *rig) {
		if inLegacyEra(t, r.Upstream, session("1")) {
			t.Error("a session is remembered")
		}
	})
}

// TestASecondProcessThatReportsItselfIsForgotten: it reports in its first minute that another
// process has what it needs, before the first call or with one. What the output of a call says
// later is about that call.
func TestASecondProcessThatReportsItselfIsForgotten(t *testing.T) {
	const taken = "starting\nError: listen EADDRINUSE: address already in use :::3000\n"
	for _, tt := range []struct {
		name         string
		stderr, text string
		state        State
		lived        time.Duration
		want         bool // it is forgotten
	}{
		{"before a call", taken, "", StateStarting, 0, true},
		{"with a call", taken, "no", StateReady, time.Second, true},
		{"in a call", "ok\n", "Browser is already in use for /p, use --isolated", StateReady, time.Second, true},
		{"after a minute", taken, "no", StateReady, secondLife, false},
		{"another failure", "ok\n", "no such file", StateReady, time.Second, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newCommandRig(t, upstreamtest.Script{}, Config{})
				teach(t, r.Upstream, unsent)
				l := &link{pool: r.pool, key: r.key(client.Everything(), "", "", true), log: r.log}
				l.state, l.since = tt.state, time.Now()
				settle(tt.lived)
				c := reporting{text: tt.stderr}
				if tt.state == StateStarting {
					if err := l.runsTwice(c, ""); err == nil || !strings.Contains(err.Error(), "EADDRINUSE") {
						t.Errorf("the process is used: %v", err)
					}
					return
				}
				l.answered(c, client.Result{}, &jsonrpc.Error{Code: -32603, Message: tt.text})
				if got := !inLegacyEra(t, r.Upstream); got != tt.want {
					t.Errorf("it is forgotten: %v, want %v", got, tt.want)
				}
			})
		})
	}
}
