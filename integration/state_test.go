package integration

import (
	"strings"
	"testing"
	"time"

	"junction/proxy"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// TestProtocolT68StateIsOursAlone has a modern client come back with a state that is not the one it
// was given, or with the one it was given for something else. In each case nothing reaches the
// upstream, and the call that the state was for is none the worse.
func TestProtocolT68StateIsOursAlone(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			script := upstreamtest.Script{Tools: definitions("ask", "echo", "other")}
			s, j := over(t, p, script, nil)
			c := j.talk(t)
			q := asking(askForm)
			base := q.params
			m := c.begin(t, q).answer(t)
			open := requested(t, m)
			responses := `,"inputResponses":{` + string(raw.Quote(open[0].key)) + `:` + strings.TrimPrefix(accepted, `"result":`) + `}`
			state := text(t, m.Result, "requestState")
			before := len(callsOf(t, s.Journal, 1))

			other := p.serve(t, script)
			theirs := start(t, p, world{upstreams: map[string]upstream.Config{"up": other.config}, crowded: true})
			theirs.offers(t, "up")
			stranger := requestedState(t, theirs.talk(t).begin(t, q).answer(t))
			strangersCalls := len(callsOf(t, other.Journal, 1))

			flip := func(i int) string {
				b := []byte(state)
				if b[i]++; b[i] > 'y' || b[i] == '[' || b[i] == ':' {
					b[i] = 'A'
				}
				return string(b)
			}
			otherTool := `"name":"up__other","arguments":{"do":"ask","questions":[` + askForm + `]}`
			for what, params := range map[string]string{
				"first byte changed":  base + responses + `,"requestState":` + string(raw.Quote(flip(0))),
				"middle byte changed": base + responses + `,"requestState":` + string(raw.Quote(flip(len(state)/2))),
				"cut":                 base + responses + `,"requestState":` + string(raw.Quote(state[:len(state)-2])),
				"longer":              base + responses + `,"requestState":` + string(raw.Quote(state+"A")),
				"empty":               base + responses + `,"requestState":""`,
				"no string":           base + responses + `,"requestState":{}`,
				"made up":             base + responses + `,"requestState":"what the server wants to see again"`,
				"of another proxy":    base + responses + `,"requestState":` + string(raw.Quote(stranger)),
				"for another tool":    otherTool + responses + `,"requestState":` + string(raw.Quote(state)),
				"with other arguments": strings.Replace(base, "Name?", "Password?", 1) + responses +
					`,"requestState":` + string(raw.Quote(state)),
			} {
				t.Run(what, func(t *testing.T) {
					again := query{method: "tools/call", params: params}
					wantCode(t, c.begin(t, again).answer(t), -32602)
				})
			}
			t.Run("on another endpoint", func(t *testing.T) {
				again := query{method: "tools/call", params: strings.Replace(base, "up__ask", "ask", 1) + responses + `,"requestState":` + string(raw.Quote(state))}
				wantCode(t, j.talkTo(t, "/up").begin(t, again).answer(t), -32602)
			})
			c.succeed(t, "up__echo", `{}`) // what was forwarded before would have come before this
			if got := len(callsOf(t, s.Journal, before+1)); got != before+1 {
				t.Errorf("the upstream was called %d times, want only the first call and the last", got)
			}
			if got := len(callsOf(t, other.Journal, 1)); got != strangersCalls {
				t.Errorf("the other proxy's upstream was called %d times, want %d", got, strangersCalls)
			}
			again := query{method: "tools/call", params: base + responses + `,"requestState":` + string(raw.Quote(state))}
			if got, want := answersOf(t, c.begin(t, again).answer(t)), `[{`+accepted+`}]`; got != want {
				t.Errorf("answers = %s, want %s", got, want)
			}
		})
	}
}

func requestedState(t *testing.T, m jsonrpc.Message) string {
	t.Helper()
	requested(t, m)
	return text(t, m.Result, "requestState")
}

// TestProtocolT68StateOfAFinishedCall holds that a parked call is answered once.
func TestProtocolT68StateOfAFinishedCall(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
		s, j := over(t, p, upstreamtest.Script{}, nil)
		c := j.talk(t)
		q := asking(askForm)
		m := c.begin(t, q).answer(t)
		open := requested(t, m)
		q.params = retried(q.params, m, string(raw.Quote(open[0].key))+`:`+strings.TrimPrefix(accepted, `"result":`))
		answersOf(t, c.begin(t, q).answer(t))
		wantCode(t, c.begin(t, q).answer(t), -32602)
		if n := len(callsOf(t, s.Journal, 1)); n != 1 {
			t.Errorf("the upstream was called %d times, want once", n)
		}
	})
}

// TestProtocolT68ExpiredState holds that a state is good for a while only.
func TestProtocolT68ExpiredState(t *testing.T) {
	for _, up := range eras {
		runPair(t, pair{upstream.EraModern, up, "http"}, func(t *testing.T, p pair) {
			s := p.serve(t, upstreamtest.Script{})
			// which has passed
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, limits: proxy.Limits{Patience: -2 * time.Second}})
			j.offers(t, "up")
			c := j.talk(t)
			q := asking(askForm)
			base := q.params
			m := c.begin(t, q).answer(t)
			if p.upstream == upstream.EraLegacy && m.Error == nil && member(m.Result, "resultType") == `"complete"` {
				return // the call was over before the client could be asked
			}
			open := requested(t, m)
			q.params = retried(base, m, string(raw.Quote(open[0].key))+`:`+strings.TrimPrefix(accepted, `"result":`))
			wantCode(t, c.begin(t, q).answer(t), -32602)
			if n := len(callsOf(t, s.Journal, 1)); n != 1 {
				t.Errorf("the upstream was called %d times, want once", n)
			}
		})
	}
}

// TestProtocolT68ResponsesThatAreNoObject is malformed, and so an error (basic/patterns/mrtr).
func TestProtocolT68ResponsesThatAreNoObject(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
		_, j := over(t, p, upstreamtest.Script{}, nil)
		c := j.talk(t)
		q := asking(askForm)
		m := c.begin(t, q).answer(t)
		requested(t, m)
		for _, responses := range []string{`[]`, `"x"`, `7`, `null`} {
			again := q
			again.params += `,"inputResponses":` + responses + `,"requestState":` + member(m.Result, "requestState")
			wantCode(t, c.begin(t, again).answer(t), -32602)
		}
	})
}
