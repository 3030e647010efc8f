package integration

import (
	"strings"
	"testing"

	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// The assertions of protocol.md §6.4 about log messages.

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
		levels = append(levels, text(t, n.Params, "level"))
	}
	return strings.Join(levels, " ")
}

const logAll = `{"always":true,"logger":"l","levels":["debug","warning","error","info"]}`

func TestProtocolT85NoLogWithoutALevel(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			_, j := over(t, p, upstreamtest.Script{Logging: true}, nil)
			c := j.talk(t)
			listening, _ := subscribe(t, c, `"L"`, `{"toolsListChanged":true}`)
			for _, on := range []string{"call", "get"} {
				if on == "get" && p.upstream == upstream.EraModern {
					continue
				}
				notes, m := c.begin(t, called("up__log", strings.Replace(logAll, `{`, `{"on":"`+on+`",`, 1))).all(t)
				if len(notes) > 0 || m.Error != nil {
					t.Errorf("%d notifications and %s, want a result alone", len(notes), m.Append(nil))
				}
			}
			listening.wantSilence(t)
		})
	}
}

func TestProtocolT86LogFromTheLevelOn(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			_, j := over(t, p, upstreamtest.Script{Logging: true}, nil)
			c := j.talk(t)
			q := called("up__log", logAll)
			q.meta = `"io.modelcontextprotocol/logLevel":"warning"`
			notes, m := c.begin(t, q).all(t)
			if got := logged(t, notes); got != "warning error" || m.Error != nil {
				t.Fatalf("log messages %q and %s, want warning error and a result", got, m.Append(nil))
			}
			wantJSON(t, "log message", notes[1].Params, `{"level":"error","logger":"l","data":2}`)

			// The server itself says no more than it was asked for.
			q = called("up__log", `{"levels":["debug","notice","alert"]}`)
			q.meta = `"io.modelcontextprotocol/logLevel":"notice"`
			notes, _ = c.begin(t, q).all(t)
			if got := logged(t, notes); got != "notice alert" {
				t.Errorf("log messages %q, want notice alert", got)
			}
			q.meta = `"io.modelcontextprotocol/logLevel":"loud"`
			wantCode(t, c.begin(t, q).answer(t), -32602)
		})
	}
}

// TestProtocolT86LogOfAnotherCall has two modern calls in flight, of which one wants the log and
// the other logs.
func TestProtocolT86LogOfAnotherCall(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{Logging: true}, nil)
			one, two := j.talk(t), j.talk(t)
			q := called("up__gate", `{"gate":"g"}`)
			q.meta = `"io.modelcontextprotocol/logLevel":"debug"`
			waiting := one.begin(t, q)
			callsOf(t, s.Journal, 1)
			if notes, m := two.begin(t, called("up__log", logAll)).all(t); len(notes) > 0 || m.Error != nil {
				t.Errorf("the call without level got %d notifications and %s", len(notes), m.Append(nil))
			}
			s.openGate(t, "g")
			if notes, m := waiting.all(t); len(notes) > 0 || m.Error != nil {
				t.Errorf("the call that did not log got %d notifications and %s", len(notes), m.Append(nil))
			}
		})
	}
}

func TestProtocolT87LevelOfALegacySession(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraLegacy, up, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{Logging: true}, nil)
			c := j.talk(t)
			wantCode(t, c.ask(t, "logging/setLevel", `"level":"loud"`), -32602)
			wantCode(t, c.ask(t, "logging/setLevel", ``), -32602)
			if got := string(c.must(t, "logging/setLevel", `"level":"error"`)); got != `{}` {
				t.Errorf("logging/setLevel = %s, want {}", got)
			}
			notes, m := c.begin(t, called("up__log", `{"levels":["info","error"]}`)).all(t)
			if got := logged(t, notes); got != "error" || m.Error != nil {
				t.Errorf("log messages %q and %s, want error and a result", got, m.Append(nil))
			}
			if calls := callsOf(t, s.Journal, 1); p.upstream == upstream.EraModern {
				if got := member(calls[0].Message.Params, "_meta", "io.modelcontextprotocol/logLevel"); got != `"error"` {
					t.Errorf("the upstream was told the level %s, want error", got)
				}
			}
			notes, _ = c.begin(t, called("up__log", logAll)).all(t)
			if got := logged(t, notes); got != "error" {
				t.Errorf("log messages %q of an upstream that says everything, want error", got)
			}
			c.must(t, "logging/setLevel", `"level":"debug"`)
			notes, _ = c.begin(t, called("up__log", logAll)).all(t)
			if got := logged(t, notes); got != "debug warning error info" {
				t.Errorf("log messages %q, want all of them", got)
			}
		})
	}
}

// TestProtocolT87SessionWithoutALevel holds that a legacy session which has set none gets what
// comes, whatever others have set.
func TestProtocolT87SessionWithoutALevel(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraLegacy, up, ""}, func(t *testing.T, p pair) {
			_, j := over(t, p, upstreamtest.Script{Logging: true}, nil)
			j.talk(t).must(t, "logging/setLevel", `"level":"emergency"`)
			notes, _ := j.talk(t).begin(t, called("up__log", logAll)).all(t)
			if got := logged(t, notes); got != "debug warning error info" {
				t.Errorf("log messages %q, want what the upstream sends", got)
			}
		})
	}
}

func TestProtocolT87NobodyLogs(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		_, j := over(t, p, upstreamtest.Script{}, nil)
		wantCode(t, j.talk(t).ask(t, "logging/setLevel", `"level":"info"`), -32601)
	})
}
