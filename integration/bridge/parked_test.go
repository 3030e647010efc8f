package bridge

import (
	"net/http"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// What happens to a call of a modern client while it waits in a legacy upstream for an answer.

// parkedCall makes a call that asks, and returns the query that comes back with the answer.
func parkedCall(t *testing.T, c *harness.Talker, q harness.Query) (retry harness.Query) {
	t.Helper()
	m := c.Begin(t, q).Answer(t)
	open := harness.Requested(t, m)
	if len(open) != 1 {
		t.Fatalf("asked %+v, want one question", open)
	}
	q.Params = harness.Retried(q.Params, m,
		string(raw.Quote(open[0].Key))+`:`+strings.TrimPrefix(harness.AnswersTo(open[0]), `"result":`))
	return q
}

func TestProgressFollowsAParkedCall(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, harness.Exactly)
		c := j.Talk(t)
		q := harness.Called("up__ask",
			`{"steps":true,"questions":[`+harness.AskForm+`,`+harness.AskRoots+`,`+harness.AskForm+`]}`)
		base := q.Params
		for round, token := range []string{`"first"`, `2`, ``, `"fourth"`} {
			if q.Meta = ""; token != "" {
				q.Meta = `"progressToken":` + token
			}
			notes, m := c.Begin(t, q).All(t)
			want := 1
			if round == 0 || token == "" {
				want = 0
			}
			if len(notes) != want {
				t.Fatalf("round %d: %d notifications, want %d", round, len(notes), want)
			}
			for _, n := range notes {
				if n.Method != "notifications/progress" || harness.Member(n.Params, "progressToken") != token ||
					harness.Member(n.Params, "progress") == "" {
					t.Errorf("round %d: %s, want progress with the token %s", round, n.Append(nil), token)
				}
			}
			if round == 3 {
				harness.AnswersOf(t, m)
				return
			}
			open := harness.Requested(t, m)
			q.Params = harness.Retried(base, m,
				string(raw.Quote(open[0].Key))+`:`+strings.TrimPrefix(harness.AnswersTo(open[0]), `"result":`))
		}
	})
}

func TestClientLeavesAParkedCall(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		retry := parkedCall(t, c,
			harness.Called("up__ask", `{"then":"","questions":[`+harness.AskForm+`,{"method":"ping"}]}`))
		// the first request ended long ago, and that was no cancellation
		if got := harness.AnswersOf(t, c.Begin(t, retry).Answer(t)); !strings.Contains(got, harness.Accepted) {
			t.Errorf("answers = %s", got)
		}
		waiting := c.Begin(t, harness.Called("up__gate", `{"gate":"never"}`))
		harness.CallsOf(t, s.Journal, 2)
		waiting.Drop()
		cancelled(t, s, p, harness.CallsOf(t, s.Journal, 2)[1])
	})
}

// TestParkedCallOfADeadUpstreamFails has the process end that a call is parked in. The call is not made
// again.
func TestParkedCallOfADeadUpstreamFails(t *testing.T) {
	harness.Waits(t)
	for _, wire := range []string{"stdio", "sse"} {
		harness.RunPair(t, client.EraModern, client.EraLegacy, wire, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c := j.Talk(t)
			retry := parkedCall(t, c,
				harness.Called("up__ask", `{"giveUp":"now","then":"die","questions":[`+harness.AskForm+`]}`))
			s.OpenGate(t, "now")
			if p.Transport == "stdio" {
				harness.Await(t, s.Journal, "end of a process", upstreamtest.Verb("EXIT"))
			}
			m := c.Begin(t, retry).Answer(t)
			// Over HTTP+SSE the answer may have been read before the connection broke.
			if (m.Error == nil || m.Error.Code != -32602 && m.Error.Code != -32603) &&
				(p.Transport == "stdio" || m.Error != nil || harness.AnswersOf(t, m) != `[{`+harness.Accepted+`}]`) {
				t.Errorf("got %s, want an error", m.Append(nil))
			}
			c.Succeed(t, "up__echo", `{}`)
			asked := 0
			for _, r := range harness.CallsOf(t, s.Journal, 1) {
				if harness.Text(t, r.Message.Params, "name") == "ask" {
					asked++
				}
			}
			if asked != 1 {
				t.Errorf("the upstream was asked to do it %d times, want once", asked)
			}
		})
	}
}

// TestParkedCallOfALostSessionFails is the same over HTTP, where it is the session that ends.
func TestParkedCallOfALostSessionFails(t *testing.T) {
	harness.Waits(t)
	p := harness.Pair{Client: client.EraModern, Upstream: client.EraLegacy, Transport: "http"}
	url := ""
	s := upstreamtest.New(upstreamtest.Script{Era: "legacy"})
	t.Cleanup(s.Close)
	url, stop := upstreamtest.Serve(t, "127.0.0.1:0", s.Handler())
	j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": {URL: url + "/mcp"}}})
	j.Offers(t, "up")
	c := j.Talk(t)
	retry := parkedCall(t, c, harness.Asking(harness.AskForm))
	stop()
	again := upstreamtest.New(upstreamtest.Script{Era: "legacy"})
	t.Cleanup(again.Close)
	upstreamtest.Serve(t, strings.TrimPrefix(url, "http://"), again.Handler())
	if m := c.Begin(t, retry).Answer(t); m.Error == nil || m.Error.Code != -32602 && m.Error.Code != -32603 {
		t.Errorf("got %s, want an error", m.Append(nil))
	}
	for _, r := range again.Received() {
		if r.Message.Method == "tools/call" {
			t.Errorf("the call was made again: %s", r.Body)
		}
	}
}

// TestMalformedAnswersReachNobody has a client answer with what is no answer: nothing of it reaches
// the upstream, and the call still waits for the right one.
func TestMalformedAnswersReachNobody(t *testing.T) {
	harness.Waits(t)
	// to a modern upstream it is to say what an answer is
	harness.EachTransport(t, client.EraModern, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		q := harness.Asking(harness.AskForm)
		base := q.Params
		m := c.Begin(t, q).Answer(t)
		key := string(raw.Quote(harness.Requested(t, m)[0].Key))
		state := `,"requestState":` + harness.Member(m.Result, "requestState")
		for _, answer := range []string{`null`, `"accept"`, `[]`, `{}`, `7`} {
			q.Params = base + `,"inputResponses":{` + key + `:` + answer + `}` + state
			harness.WantCode(t, c.Begin(t, q).Answer(t), -32602)
		}
		if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
			t.Errorf("the upstream was called %d times, want once", n)
		}
		for _, r := range s.Received() {
			if r.Body != nil && r.Message.IsResponse() {
				t.Errorf("the upstream was answered %s", r.Body)
			}
		}
		q.Params = harness.Retried(base, m, key+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))
		if got := harness.AnswersOf(t, c.Begin(t, q).Answer(t)); got != `[{`+harness.Accepted+`}]` {
			t.Errorf("answers = %s", got)
		}
	})
}

// TestLegacyQuestionNeedsAStream has a client ask for an answer in JSON alone, on which nothing
// can be asked.
func TestLegacyQuestionNeedsAStream(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		q := harness.Asking(harness.AskForm)
		q.Header = http.Header{"Accept": {"application/json"}}
		a := j.Talk(t).Begin(t, q)
		m := a.Answer(t)
		switch {
		case p.Client == client.EraModern:
			if a.Status == 200 {
				harness.Requested(t, m) // which needs no stream
			}
		case a.Status != 200 && a.Status != 406:
			t.Errorf("status %d and %s", a.Status, m.Append(nil))
		case m.Error == nil && strings.Contains(string(m.Result), harness.Accepted):
			t.Errorf("got %s without a question to the user", m.Append(nil))
		}
	})
}
