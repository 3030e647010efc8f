package bridge

import (
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// TestRequestStateIsBoundToItsCall has a modern client come back with a state that is not the one it
// was given, or with the one it was given for something else. In each case nothing reaches the
// upstream, and the call that the state was for is none the worse.
func TestRequestStateIsBoundToItsCall(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			script := upstreamtest.Script{Tools: harness.Definitions("ask", "echo", "other")}
			s, j := harness.Over(t, p, script, nil)
			c := j.Talk(t)
			q := harness.Asking(harness.AskForm)
			base := q.Params
			m := c.Begin(t, q).Answer(t)
			open := harness.Requested(t, m)
			responses := `,"inputResponses":{` + string(raw.Quote(open[0].Key)) + `:` +
				strings.TrimPrefix(harness.Accepted, `"result":`) + `}`
			state := harness.Text(t, m.Result, "requestState")
			before := len(harness.CallsOf(t, s.Journal, 1))

			other := p.Serve(t, script)
			theirs := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": other.Config}})
			theirs.Offers(t, "up")
			stranger := requestedState(t, theirs.Talk(t).Begin(t, q).Answer(t))
			strangersCalls := len(harness.CallsOf(t, other.Journal, 1))

			flip := func(i int) string {
				b := []byte(state)
				if b[i]++; b[i] > 'y' || b[i] == '[' || b[i] == ':' {
					b[i] = 'A'
				}
				return string(b)
			}
			otherTool := `"name":"up__other","arguments":{"do":"ask","questions":[` + harness.AskForm + `]}`
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
					again := harness.Query{Method: "tools/call", Params: params}
					harness.WantCode(t, c.Begin(t, again).Answer(t), -32602)
				})
			}
			t.Run("on another endpoint", func(t *testing.T) {
				again := harness.Query{Method: "tools/call",
					Params: strings.Replace(base, "up__ask", "ask", 1) + responses + `,"requestState":` + string(raw.Quote(state))}
				harness.WantCode(t, j.TalkTo(t, "/up").Begin(t, again).Answer(t), -32602)
			})
			c.Succeed(t, "up__echo", `{}`) // what was forwarded before would have come before this
			if got := len(harness.CallsOf(t, s.Journal, before+1)); got != before+1 {
				t.Errorf("the upstream was called %d times, want only the first call and the last", got)
			}
			if got := len(harness.CallsOf(t, other.Journal, 1)); got != strangersCalls {
				t.Errorf("the other proxy's upstream was called %d times, want %d", got, strangersCalls)
			}
			again := harness.Query{Method: "tools/call",
				Params: base + responses + `,"requestState":` + string(raw.Quote(state))}
			if got, want := harness.AnswersOf(t, c.Begin(t, again).Answer(t)), `[{`+harness.Accepted+`}]`; got != want {
				t.Errorf("answers = %s, want %s", got, want)
			}
		})
	}
}

func requestedState(t *testing.T, m jsonrpc.Message) string {
	t.Helper()
	harness.Requested(t, m)
	return harness.Text(t, m.Result, "requestState")
}

// TestRequestStateWorksOnce holds that a parked call is answered once.
func TestRequestStateWorksOnce(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		q := harness.Asking(harness.AskForm)
		m := c.Begin(t, q).Answer(t)
		open := harness.Requested(t, m)
		q.Params = harness.Retried(q.Params, m,
			string(raw.Quote(open[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))
		harness.AnswersOf(t, c.Begin(t, q).Answer(t))
		harness.WantLateAnswer(t, p.Upstream, c.Begin(t, q).Answer(t))
		if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
			t.Errorf("the upstream was called %d times, want once", n)
		}
	})
}

// TestRequestStateExpires holds that a state is good for a while only.
func TestRequestStateExpires(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "its limits.patience is negative, so that it need not wait")
	for _, up := range harness.Eras {
		harness.RunPair(t, client.EraModern, up, "http", func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			// which has passed
			j := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
					Limits: proxy.Limits{Patience: -2 * time.Second}})
			j.Offers(t, "up")
			c := j.Talk(t)
			q := harness.Asking(harness.AskForm)
			base := q.Params
			m := c.Begin(t, q).Answer(t)
			if p.Upstream == client.EraLegacy && m.Error == nil && harness.Member(m.Result, "resultType") == `"complete"` {
				return // the call was over before the client could be asked
			}
			open := harness.Requested(t, m)
			q.Params = harness.Retried(base, m,
				string(raw.Quote(open[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))
			harness.WantLateAnswer(t, p.Upstream, c.Begin(t, q).Answer(t))
			if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
				t.Errorf("the upstream was called %d times, want once", n)
			}
		})
	}
}

// TestInputResponsesMustBeAnObject is malformed, and so an error (basic/patterns/mrtr).
func TestInputResponsesMustBeAnObject(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		q := harness.Asking(harness.AskForm)
		m := c.Begin(t, q).Answer(t)
		harness.Requested(t, m)
		for _, responses := range []string{`[]`, `"x"`, `7`, `null`} {
			again := q
			again.Params += `,"inputResponses":` + responses + `,"requestState":` + harness.Member(m.Result, "requestState")
			harness.WantCode(t, c.Begin(t, again).Answer(t), -32602)
		}
	})
}
