package protocol

import (
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// Log messages, and the levels that clients set.

// logged returns the levels of the log messages among notifications; other notifications fail the
// test.
func logged(t *testing.T, notes []jsonrpc.Message) string {
	t.Helper()
	var levels []string
	for _, n := range notes {
		if n.Method != "notifications/message" {
			t.Errorf("got %s, want log messages only", n.Append(nil))
			continue
		}
		levels = append(levels, harness.Text(t, n.Params, "level"))
	}
	return strings.Join(levels, " ")
}

const logAll = `{"always":true,"logger":"l","levels":["debug","warning","error","info"]}`

func TestNoLogWithoutALevel(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			_, j := harness.Over(t, p, upstreamtest.Script{Logging: true}, nil)
			c := j.Talk(t)
			listening, _ := harness.Subscribe(t, c, `"L"`, `{"toolsListChanged":true}`)
			for _, on := range []string{"call", "get"} {
				if on == "get" && p.Upstream == client.EraModern {
					continue
				}
				notes, m := c.Begin(t, harness.Called("up__log", strings.Replace(logAll, `{`, `{"on":"`+on+`",`, 1))).All(t)
				if len(notes) > 0 || m.Error != nil {
					t.Errorf("%d notifications and %s, want a result alone", len(notes), m.Append(nil))
				}
			}
			listening.WantSilence(t)
		})
	}
}

func TestLogLevelOfARequest(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			_, j := harness.Over(t, p, upstreamtest.Script{Logging: true}, nil)
			c := j.Talk(t)
			q := harness.Called("up__log", logAll)
			q.Meta = `"io.modelcontextprotocol/logLevel":"warning"`
			notes, m := c.Begin(t, q).All(t)
			if got := logged(t, notes); got != "warning error" || m.Error != nil {
				t.Fatalf("log messages %q and %s, want warning error and a result", got, m.Append(nil))
			}
			harness.WantJSON(t, "log message", notes[1].Params, `{"level":"error","logger":"l","data":2}`)

			// The server itself says no more than it was asked for.
			q = harness.Called("up__log", `{"levels":["debug","notice","alert"]}`)
			q.Meta = `"io.modelcontextprotocol/logLevel":"notice"`
			notes, _ = c.Begin(t, q).All(t)
			if got := logged(t, notes); got != "notice alert" {
				t.Errorf("log messages %q, want notice alert", got)
			}
			q.Meta = `"io.modelcontextprotocol/logLevel":"loud"`
			harness.WantCode(t, c.Begin(t, q).Answer(t), -32602)
		})
	}
}

// TestLogOfAnotherCallIsNotShown has two modern calls in flight, of which one wants the log and
// the other logs.
func TestLogOfAnotherCallIsNotShown(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{Logging: true}, nil)
			one, two := j.Talk(t), j.Talk(t)
			q := harness.Called("up__gate", `{"gate":"g"}`)
			q.Meta = `"io.modelcontextprotocol/logLevel":"debug"`
			waiting := one.Begin(t, q)
			harness.CallsOf(t, s.Journal, 1)
			if notes, m := two.Begin(t, harness.Called("up__log", logAll)).All(t); len(notes) > 0 || m.Error != nil {
				t.Errorf("the call without level got %d notifications and %s", len(notes), m.Append(nil))
			}
			s.OpenGate(t, "g")
			if notes, m := waiting.All(t); len(notes) > 0 || m.Error != nil {
				t.Errorf("the call that did not log got %d notifications and %s", len(notes), m.Append(nil))
			}
		})
	}
}

func TestLogLevelOfALegacySession(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{Logging: true}, nil)
			c := j.Talk(t)
			harness.WantCode(t, c.Ask(t, "logging/setLevel", `"level":"loud"`), -32602)
			harness.WantCode(t, c.Ask(t, "logging/setLevel", ``), -32602)
			if got := string(c.Must(t, "logging/setLevel", `"level":"error"`)); got != `{}` {
				t.Errorf("logging/setLevel = %s, want {}", got)
			}
			notes, m := c.Begin(t, harness.Called("up__log", `{"levels":["info","error"]}`)).All(t)
			if got := logged(t, notes); got != "error" || m.Error != nil {
				t.Errorf("log messages %q and %s, want error and a result", got, m.Append(nil))
			}
			if calls := harness.CallsOf(t, s.Journal, 1); p.Upstream == client.EraModern {
				if got := harness.Member(calls[0].Message.Params, "_meta", "io.modelcontextprotocol/logLevel"); got != `"error"` {
					t.Errorf("the upstream was told the level %s, want error", got)
				}
			}
			notes, _ = c.Begin(t, harness.Called("up__log", logAll)).All(t)
			if got := logged(t, notes); got != "error" {
				t.Errorf("log messages %q of an upstream that says everything, want error", got)
			}
			c.Must(t, "logging/setLevel", `"level":"debug"`)
			notes, _ = c.Begin(t, harness.Called("up__log", logAll)).All(t)
			if got := logged(t, notes); got != "debug warning error info" {
				t.Errorf("log messages %q, want all of them", got)
			}
		})
	}
}

// TestLegacySessionWithoutALevelGetsAllLogs holds that a legacy session which has set none gets what
// comes, whatever others have set.
func TestLegacySessionWithoutALevelGetsAllLogs(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			_, j := harness.Over(t, p, upstreamtest.Script{Logging: true}, nil)
			j.Talk(t).Must(t, "logging/setLevel", `"level":"emergency"`)
			notes, _ := j.Talk(t).Begin(t, harness.Called("up__log", logAll)).All(t)
			if got := logged(t, notes); got != "debug warning error info" {
				t.Errorf("log messages %q, want what the upstream sends", got)
			}
		})
	}
}

func TestSetLevelNeedsAServerThatLogs(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		harness.WantCode(t, j.Talk(t).Ask(t, "logging/setLevel", `"level":"info"`), -32601)
	})
}
