package integration

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"junction/proxy"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// TestSafety1LateMessagesOfAnotherUser: two users share one connection of a legacy server. The call
// of the first user has been answered. Then the server logs and asks, without naming a call, while
// only a call of the second user is in progress. The second user gets neither.
func TestSafety1LateMessagesOfAnotherUser(t *testing.T) {
	guard, keys := keyring(t, "one", "two")
	for _, client := range eras {
		eachWire(t, pair{client, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
			s := p.serve(t, upstreamtest.Script{})
			s.config.Separate, s.config.Isolation = true, upstream.IsolationShared
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, guard: guard, limits: proxy.Limits{Patience: time.Second}})
			j.offers(t, "up")
			s.listened(t, p)
			one, two := j.as(t, keys["one"]), j.as(t, keys["two"])
			one.succeed(t, "up__echo", `{}`)
			waiting := two.begin(t, called("up__gate", `{"gate":"g"}`))
			callsOf(t, s.Journal, 2)
			s.notify(t, "notifications/message", `{"level":"critical","data":"secret of one"}`)
			m := s.ask(t, "elicitation/create", `{"message":"secret of one?","requestedSchema":{"type":"object","properties":{}}}`)
			if m.Error == nil || m.Error.Code != -32602 || !strings.Contains(m.Error.Message, "another user") {
				t.Errorf("the server request was answered %s, want an error that names the reason", m.Append(nil))
			}
			s.openGate(t, "g")
			if notes, m := waiting.all(t); len(notes) > 0 || m.Error != nil {
				t.Errorf("the second user got %d messages and %s, want the result alone", len(notes), m.Append(nil))
			}
		})
	}
}

// TestSafety1UsersHaveTheirOwnProcesses: where there are several users, each has a process of a
// command, and a session of a legacy server, of its own. No caller uses the connection that lists.
// A server of the modern era over HTTP keeps nothing of its callers, so that they share its
// connection.
func TestSafety1UsersHaveTheirOwnProcesses(t *testing.T) {
	guard, keys := keyring(t, "one", "two")
	run := func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		s.config.Separate = true
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, guard: guard})
		j.offers(t, "up")
		first, again, other := j.as(t, keys["one"]), j.as(t, keys["one"]), j.as(t, keys["two"])
		a, b, c := whoIs(t, first), whoIs(t, again), whoIs(t, other)
		stateless := p.wire == "http" && p.upstream == upstream.EraModern
		if a != b || a == c != stateless {
			t.Errorf("two clients of one user and another user use the connections %q, %q and %q", a, b, c)
		}
		want := 3
		if stateless {
			want = 1
		}
		if got := j.status("up").Links; got != want {
			t.Errorf("%d connections, want %d", got, want)
		}
	}
	for _, client := range eras {
		for _, up := range eras {
			eachWire(t, pair{client, up, ""}, run)
		}
	}
}

// whoIs returns the process and the session of the server that the calls of a client reach.
func whoIs(t *testing.T, c *talker) string {
	t.Helper()
	var who struct {
		StructuredContent struct {
			PID     int
			Session string
		}
	}
	result := c.succeed(t, "up__whoami", `{}`)
	if err := json.Unmarshal(result, &who); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(who.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestSafety1UpdatesOfTheirOwnProcess: a resource changes in the process of one user. That user
// hears of it, once; another one who has subscribed to the same URI has another process and hears
// nothing.
func TestSafety1UpdatesOfTheirOwnProcess(t *testing.T) {
	guard, keys := keyring(t, "one", "two")
	for _, up := range eras {
		runPair(t, pair{upstream.EraModern, up, "stdio"}, func(t *testing.T, p pair) {
			s := p.serve(t, library("up"))
			s.config.Separate = true
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, guard: guard})
			j.offers(t, "up")
			one, two := j.as(t, keys["one"]), j.as(t, keys["two"])
			const filter = `{"resourceSubscriptions":["mcp://up/file:///dir"]}`
			hears1, _ := subscribe(t, one, `1`, filter)
			hears2, _ := subscribe(t, two, `2`, filter)
			one.succeed(t, "up__update", `{"uri":"file:///dir"}`)
			hears(t, hears1, "resources/updated mcp://up/file:///dir")
			two.succeed(t, "up__echo", `{}`)
			two.succeed(t, "up__update", `{"uri":"file:///dir"}`)
			hears(t, hears2, "resources/updated mcp://up/file:///dir")
			one.succeed(t, "up__echo", `{}`)
			silent(t, j, hears1, hears2)
		})
	}
}

// TestSafety1ServerThatRunsOnce: a server that can run only once has no process left for a user of
// its own. The error says what the operator can do.
func TestSafety1ServerThatRunsOnce(t *testing.T) {
	guard, keys := keyring(t, "one", "two")
	for _, client := range eras {
		runPair(t, pair{client, upstream.EraLegacy, "stdio"}, func(t *testing.T, p pair) {
			s := p.serve(t, upstreamtest.Script{Exclusive: freePort(t)})
			s.config.Separate = true
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, guard: guard})
			j.offers(t, "up")
			m := j.as(t, keys["one"]).call(t, "up__echo", `{}`)
			if got := string(m.Append(nil)); !strings.Contains(got, "isolation: shared") {
				t.Errorf("the call = %s, want the advice to set isolation: shared", got)
			}
		})
	}
}
