package upstream

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// emptyInModern is what a proxy made with create_proxy of FastMCP answers to a modern client.
var emptyInModern = upstreamtest.Rule{Method: "tools/list", Era: "modern",
	Result: []byte(`{"resultType":"complete","tools":[],"ttlMs":0,"cacheScope":"private"}`)}

// TestEmptyListsAreAskedForInTheLegacyEra: a server that declares lists in the modern era and has
// nothing in them is asked in the legacy era before it is ready. If it has items there, it is used in
// the legacy era, and each new connection finds that out again. If it has none, it is not asked again.
func TestEmptyListsAreAskedForInTheLegacyEra(t *testing.T) {
	none := []json.RawMessage{}
	for _, tt := range []struct {
		name   string
		script upstreamtest.Script
		config Config
		era    client.Era // in which it is used
		tools  int
		asked  int           // how often initialize was sent
		again  int           // after another connection, in all
		took   time.Duration // until it is ready
	}{
		{"items in the legacy era", upstreamtest.Script{Tools: tools("a", "b"), Rules: []upstreamtest.Rule{emptyInModern}}, Config{},
			client.EraLegacy, 2, 1, 2, 0},
		{"the same, era: both", upstreamtest.Script{Tools: tools("a", "b"), Rules: []upstreamtest.Rule{emptyInModern}}, Config{Era: client.EraBoth},
			client.EraLegacy, 2, 1, 2, 0},
		{"nothing in both eras", upstreamtest.Script{Tools: none}, Config{}, client.EraModern, 0, 1, 1, 0},
		{"no legacy era", upstreamtest.Script{Era: "modern", Tools: none}, Config{}, client.EraModern, 0, 1, 1, 0},
		{"an outage of the legacy era", upstreamtest.Script{Tools: tools("a"), Rules: []upstreamtest.Rule{emptyInModern, status("initialize", 503, 1)}},
			Config{}, client.EraModern, 0, 1, 2, 0},
		{"lists that cannot be read", upstreamtest.Script{Tools: tools("a"), Rules: []upstreamtest.Rule{emptyInModern, {Method: "tools/list", Era: "legacy", Status: 500}}},
			Config{}, client.EraModern, 0, 1, 2, 0},
		{"a list that cannot be read", upstreamtest.Script{Tools: none, Prompts: none, Rules: []upstreamtest.Rule{{Method: "prompts/list", Era: "legacy", Status: 500}}},
			Config{}, client.EraModern, 0, 1, 2, 0},
		{"silence in the legacy era", upstreamtest.Script{Tools: tools("a"), Rules: []upstreamtest.Rule{emptyInModern, {Method: "initialize", Hang: true}}},
			Config{}, client.EraModern, 0, 1, 2, 10 * time.Second},
		{"era: modern", upstreamtest.Script{Tools: tools("a"), Rules: []upstreamtest.Rule{emptyInModern}}, Config{Era: client.EraModern},
			client.EraModern, 0, 0, 0, 0},
		{"a prompt", upstreamtest.Script{Tools: none, Prompts: tools("p")}, Config{}, client.EraModern, 0, 0, 0, 0},
		{"a tool that is left out", upstreamtest.Script{Tools: []json.RawMessage{[]byte(`{"name":""}`)}}, Config{}, client.EraModern, 0, 0, 0, 0},
		{"no lists", upstreamtest.Script{Tools: none, Capabilities: []byte(`{}`)}, Config{}, client.EraModern, 0, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, tt.script, tt.config)
				if synctest.Wait(); tt.took > 0 {
					settle(tt.took - time.Second)
					if state := r.Status().State; state != StateStarting {
						t.Errorf("before the end of the question it is %v", state)
					}
				}
				settle(2 * time.Second)
				if s := r.Status(); s.State != StateReady || s.Era != tt.era || s.Tools != tt.tools {
					t.Errorf("it is %v in the era %q with %d tools; want ready, %q, %d", s.State, s.Era, s.Tools, tt.era, tt.tools)
				}
				if n := r.count("initialize"); n != tt.asked {
					t.Errorf("initialize was sent %d times, want %d", n, tt.asked)
				}
				r.reconnect()
				settle(time.Minute)
				if n, m := r.count("initialize"), r.count("server/discover"); n != tt.again || m != 2 {
					t.Errorf("after another connection, initialize was sent %d times, and server/discover %d; want %d, 2", n, m, tt.again)
				}
			})
		})
	}
}

// TestEmptyListsAreAskedForAtTheNextRefresh: a server that could not be asked in the legacy era is asked again
// when its lists are refreshed, and not only at the next connection. If it has nothing there, it is asked no
// more.
func TestEmptyListsAreAskedForAtTheNextRefresh(t *testing.T) {
	for _, tt := range []struct {
		name   string
		script upstreamtest.Script
		era    client.Era
		tools  int
		asked  int // how often initialize is sent in all
	}{
		{"an outage that ends", upstreamtest.Script{Tools: tools("a"), Rules: []upstreamtest.Rule{emptyInModern, status("initialize", 503, 2)}}, client.EraLegacy, 1, 4},
		{"lists that cannot be read once", upstreamtest.Script{Tools: tools("a"), Rules: []upstreamtest.Rule{emptyInModern, {Method: "tools/list", Era: "legacy", Status: 500, Times: 1}}}, client.EraLegacy, 1, 3},
		{"an outage, and nothing", upstreamtest.Script{Tools: []json.RawMessage{}, Rules: []upstreamtest.Rule{status("initialize", 503, 1)}}, client.EraModern, 0, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, tt.script, Config{})
				settle(2 * time.Second)
				if s := r.Status(); s.State != StateReady || s.Era != client.EraModern {
					t.Fatalf("it is %v in the era %q", s.State, s.Era)
				}
				settle(3 * time.Hour)
				if s := r.Status(); s.State != StateReady || s.Era != tt.era || s.Tools != tt.tools {
					t.Errorf("it is %v in the era %q with %d tools; want ready, %q, %d", s.State, s.Era, s.Tools, tt.era, tt.tools)
				}
				if n := r.count("initialize"); n != tt.asked {
					t.Errorf("initialize was sent %d times, want %d", n, tt.asked)
				}
			})
		})
	}
}

// TestLegacyAloneHoldsForAllConnections: where the lists of the modern era are empty, the calls of all
// clients go to the legacy era, and a check reports its lists.
func TestLegacyAloneHoldsForAllConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, upstreamtest.Script{Rules: []upstreamtest.Rule{emptyInModern}},
			Config{Isolation: IsolationPrincipal, Separate: true})
		settle(2 * time.Second)
		discovers := r.count("server/discover")
		for _, era := range []client.Era{client.EraLegacy, client.EraModern} {
			session := sessionOf(t, r.Upstream, func(c *Call) { c.Era, c.Principal = era, "ann of the era "+string(era) })
			if session == "" {
				t.Errorf("the call of a %s client has no session", era)
			}
		}
		if n := r.count("server/discover"); n != discovers {
			t.Errorf("the connections of two users sent server/discover %d times", n-discovers)
		}
		report := check(t.Context(), "up", r.connConfig, r.options, r.conns, nil)
		if report.Err != nil || report.Era != client.EraLegacy || len(report.Catalog.Tools) == 0 {
			t.Errorf("the check reports %+v", report)
		}
	})
}

// TestEmptyListsOfACommandCostOneProcess: a command with empty lists gets one more process for each
// connection. One of the two has ended before the catalog is served.
func TestEmptyListsOfACommandCostOneProcess(t *testing.T) {
	for name, tt := range map[string]struct {
		script upstreamtest.Script
		era    client.Era
		again  int // processes after another connection, in all
	}{
		"items in the legacy era": {upstreamtest.Script{Tools: tools("a"), Rules: []upstreamtest.Rule{emptyInModern}}, client.EraLegacy, 4},
		"nothing in both eras":    {upstreamtest.Script{Tools: []json.RawMessage{}}, client.EraModern, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			child := upstreamtest.Command(t, tt.script)
			ready := make(chan State, 10)
			u := start("up", "", Config{Command: child.Command, Env: child.Env}.resolve(Defaults{}), Options{Log: authtest.Log(t),
				Hooks: Hooks{StateChanged: func(c Change) { ready <- c.State }}}.withDefaults(), &Catalog{})
			defer u.Close()
			alive := func(starts int) {
				t.Helper()
				for <-ready != StateReady {
				}
				var pids []int
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a process reports a moment later
				defer cancel()
				if _, err := child.Await(ctx, func(r upstreamtest.Record) bool {
					if r.Verb == "START" {
						pids = append(pids, r.PID)
					}
					return len(pids) == starts
				}); err != nil {
					t.Fatalf("%d processes were started, want %d", len(pids), starts)
				}
				var running []int
				for _, pid := range pids {
					if p, err := os.FindProcess(pid); err == nil && p.Signal(syscall.Signal(0)) == nil {
						running = append(running, pid)
					}
				}
				if s := u.Status(); len(running) != 1 || len(s.Processes) != 1 || s.Processes[0].PID != running[0] || s.Era != tt.era {
					t.Errorf("the processes %d run, and the upstream uses %+v in the era %q; want one, in the era %q", running, s.Processes, s.Era, tt.era)
				}
			}
			alive(2)
			u.reconnect()
			alive(tt.again)
			if n := len(slices.DeleteFunc(child.Received(), func(r upstreamtest.Record) bool { return r.Verb != "START" })); n != tt.again {
				t.Errorf("%d processes were started, want %d", n, tt.again)
			}
		})
	}
}
