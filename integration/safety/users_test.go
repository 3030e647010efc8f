package safety

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestLateMessagesOfAnotherUser: two users share one connection of a legacy server. The call
// of the first user has been answered. Then the server logs and asks, without naming a call, while
// only a call of the second user is in progress. The second user gets neither.
func TestLateMessagesOfAnotherUser(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "each process has a connection, and one of them has only had calls of the second user")
	guard, keys := harness.Keyring(t, "one", "two")
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			s.Config.Separate, s.Config.Isolation = true, upstream.IsolationShared
			j := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard,
					Limits: proxy.Limits{Patience: time.Second}})
			j.Offers(t, "up")
			s.Listened(t, p)
			one, two := j.As(t, keys["one"]), j.As(t, keys["two"])
			one.Succeed(t, "up__echo", `{}`)
			waiting := two.Begin(t, harness.Called("up__gate", `{"gate":"g"}`))
			harness.CallsOf(t, s.Journal, 2)
			s.Notify(t, "notifications/message", `{"level":"critical","data":"secret of one"}`)
			m := s.Ask(t, "elicitation/create",
				`{"message":"secret of one?","requestedSchema":{"type":"object","properties":{}}}`)
			if m.Error == nil || m.Error.Code != -32602 || !strings.Contains(m.Error.Message, "another user") {
				t.Errorf("the server request was answered %s, want an error that names the reason", m.Append(nil))
			}
			s.OpenGate(t, "g")
			if notes, m := waiting.All(t); len(notes) > 0 || m.Error != nil {
				t.Errorf("the second user got %d messages and %s, want the result alone", len(notes), m.Append(nil))
			}
		})
	}
}

// TestUsersHaveTheirOwnProcesses: where there are several users, each has a process of a
// command, and a session of a legacy server, of its own. No caller uses the connection that lists.
// A server of the modern era over HTTP keeps nothing of its callers, so that they share its
// connection.
func TestUsersHaveTheirOwnProcesses(t *testing.T) {
	harness.Waits(t)
	guard, keys := harness.Keyring(t, "one", "two")
	run := func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		s.Config.Separate = true
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard})
		j.Offers(t, "up")
		first, again, other := j.As(t, keys["one"]), j.As(t, keys["one"]), j.As(t, keys["two"])
		a, b, c := whoIs(t, first), whoIs(t, again), whoIs(t, other)
		stateless := p.Transport == "http" && p.Upstream == client.EraModern
		if harness.Processes() == 1 && a != b || a == c != stateless {
			t.Errorf("two clients of one user and another user use the connections %q, %q and %q", a, b, c)
		}
		want := 3
		if stateless {
			want = 1
		}
		if got := j.Status("up").Links; got > want || got != want && harness.Processes() == 1 {
			t.Errorf("%d connections, want %d", got, want)
		}
	}
	for _, client := range harness.Eras {
		for _, up := range harness.Eras {
			harness.EachTransport(t, client, up, run)
		}
	}
}

// whoIs returns the process and the session of the server that the calls of a client reach.
func whoIs(t *testing.T, c *harness.Talker) string {
	t.Helper()
	var who struct {
		StructuredContent struct {
			PID     int
			Session string
		}
	}
	result := c.Succeed(t, "up__whoami", `{}`)
	if err := json.Unmarshal(result, &who); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(who.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestUpdatesStayInTheProcessOfTheirUser: a resource changes in the process of one user. That user
// hears of it, once; another one who has subscribed to the same URI has another process and hears
// nothing.
func TestUpdatesStayInTheProcessOfTheirUser(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "calls of a modern client reach different processes, and each has a server of its own")
	guard, keys := harness.Keyring(t, "one", "two")
	for _, up := range harness.Eras {
		harness.RunPair(t, client.EraModern, up, "stdio", func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, harness.Library("up"))
			s.Config.Separate = true
			j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard})
			j.Offers(t, "up")
			one, two := j.As(t, keys["one"]), j.As(t, keys["two"])
			const filter = `{"resourceSubscriptions":["mcp://up/file:///dir"]}`
			hears1, _ := harness.Subscribe(t, one, `1`, filter)
			hears2, _ := harness.Subscribe(t, two, `2`, filter)
			one.Succeed(t, "up__update", `{"uri":"file:///dir"}`)
			harness.WantNotes(t, hears1, "resources/updated mcp://up/file:///dir")
			two.Succeed(t, "up__echo", `{}`)
			two.Succeed(t, "up__update", `{"uri":"file:///dir"}`)
			harness.WantNotes(t, hears2, "resources/updated mcp://up/file:///dir")
			one.Succeed(t, "up__echo", `{}`)
			harness.WantSilentEnd(t, j, hears1, hears2)
		})
	}
}

// TestServerThatRunsOnce: a server that can run only once has no process left for a user of
// its own. The error says what the operator can do.
func TestServerThatRunsOnce(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "each process starts the server, and this one can run only once")
	guard, keys := harness.Keyring(t, "one", "two")
	for _, clientEra := range harness.Eras {
		harness.RunPair(t, clientEra, client.EraLegacy, "stdio", func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{Exclusive: process.FreePort(t)})
			s.Config.Separate = true
			j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard})
			j.Offers(t, "up")
			m := j.As(t, keys["one"]).Call(t, "up__echo", `{}`)
			if got := string(m.Append(nil)); !strings.Contains(got, "isolation: shared") {
				t.Errorf("the call = %s, want the advice to set isolation: shared", got)
			}
		})
	}
}
