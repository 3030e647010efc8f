package integration

import (
	"net/http"
	"strings"
	"testing"

	"junction/upstream"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// What happens to a call of a modern client while it waits in a legacy upstream for an answer:
// protocol.md §3.A rows 17, 18 and 26.

// parkedCall makes a call that asks, and returns the query that comes back with the answer.
func parkedCall(t *testing.T, c *talker, q query) (retry query) {
	t.Helper()
	m := c.begin(t, q).answer(t)
	open := requested(t, m)
	if len(open) != 1 {
		t.Fatalf("asked %+v, want one question", open)
	}
	q.params = retried(q.params, m, string(raw.Quote(open[0].key))+`:`+strings.TrimPrefix(answersTo(open[0]), `"result":`))
	return q
}

func TestProtocolRow17ProgressGoesToTheRequestThatWaits(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
		_, j := over(t, p, upstreamtest.Script{}, exactly)
		c := j.talk(t)
		q := called("up__ask", `{"steps":true,"questions":[`+askForm+`,`+askRoots+`,`+askForm+`]}`)
		base := q.params
		for round, token := range []string{`"first"`, `2`, ``, `"fourth"`} {
			if q.meta = ""; token != "" {
				q.meta = `"progressToken":` + token
			}
			notes, m := c.begin(t, q).all(t)
			want := 1
			if round == 0 || token == "" {
				want = 0
			}
			if len(notes) != want {
				t.Fatalf("round %d: %d notifications, want %d", round, len(notes), want)
			}
			for _, n := range notes {
				if n.Method != "notifications/progress" || member(n.Params, "progressToken") != token || member(n.Params, "progress") == "" {
					t.Errorf("round %d: %s, want progress with the token %s", round, n.Append(nil), token)
				}
			}
			if round == 3 {
				answersOf(t, m)
				return
			}
			open := requested(t, m)
			q.params = retried(base, m, string(raw.Quote(open[0].key))+`:`+strings.TrimPrefix(answersTo(open[0]), `"result":`))
		}
	})
}

func TestProtocolRow18ClientLeavesWhileItWaits(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
		s, j := over(t, p, upstreamtest.Script{}, nil)
		c := j.talk(t)
		retry := parkedCall(t, c, called("up__ask", `{"then":"","questions":[`+askForm+`,{"method":"ping"}]}`))
		// the first request ended long ago, and that was no cancellation
		if got := answersOf(t, c.begin(t, retry).answer(t)); !strings.Contains(got, accepted) {
			t.Errorf("answers = %s", got)
		}
		waiting := c.begin(t, called("up__gate", `{"gate":"never"}`))
		callsOf(t, s.Journal, 2)
		waiting.drop()
		cancelled(t, s, p, callsOf(t, s.Journal, 2)[1])
	})
}

// TestProtocolRow26UpstreamDies has the process end that a call is parked in. The call is not made
// again.
func TestProtocolRow26UpstreamDies(t *testing.T) {
	for _, wire := range []string{"stdio", "sse"} {
		runPair(t, pair{upstream.EraModern, upstream.EraLegacy, wire}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, nil)
			c := j.talk(t)
			retry := parkedCall(t, c, called("up__ask", `{"giveUp":"now","then":"die","questions":[`+askForm+`]}`))
			s.openGate(t, "now")
			if p.wire == "stdio" {
				await(t, s.Journal, "end of a process", upstreamtest.Verb("EXIT"))
			}
			m := c.begin(t, retry).answer(t)
			// Over HTTP+SSE the answer may have been read before the connection broke.
			if (m.Error == nil || m.Error.Code != -32602 && m.Error.Code != -32603) && (p.wire == "stdio" || m.Error != nil || answersOf(t, m) != `[{`+accepted+`}]`) {
				t.Errorf("got %s, want an error", m.Append(nil))
			}
			c.succeed(t, "up__echo", `{}`)
			asked := 0
			for _, r := range callsOf(t, s.Journal, 1) {
				if text(t, r.Message.Params, "name") == "ask" {
					asked++
				}
			}
			if asked != 1 {
				t.Errorf("the upstream was asked to do it %d times, want once", asked)
			}
		})
	}
}

// TestProtocolRow26SessionGone is the same over HTTP, where it is the session that ends.
func TestProtocolRow26SessionGone(t *testing.T) {
	p := pair{upstream.EraModern, upstream.EraLegacy, "http"}
	url := ""
	s := upstreamtest.New(upstreamtest.Script{Era: "legacy"})
	t.Cleanup(s.Close)
	url, stop := upstreamtest.Serve(t, "127.0.0.1:0", s.Handler())
	j := start(t, p, world{upstreams: map[string]upstream.Config{"up": {URL: url + "/mcp"}}})
	j.offers(t, "up")
	c := j.talk(t)
	retry := parkedCall(t, c, asking(askForm))
	stop()
	again := upstreamtest.New(upstreamtest.Script{Era: "legacy"})
	t.Cleanup(again.Close)
	upstreamtest.Serve(t, strings.TrimPrefix(url, "http://"), again.Handler())
	if m := c.begin(t, retry).answer(t); m.Error == nil || m.Error.Code != -32602 && m.Error.Code != -32603 {
		t.Errorf("got %s, want an error", m.Append(nil))
	}
	for _, r := range again.Received() {
		if r.Message.Method == "tools/call" {
			t.Errorf("the call was made again: %s", r.Body)
		}
	}
}

// TestProtocolT68MalformedAnswers has a client answer with what is no answer: nothing of it reaches
// the upstream, and the call still waits for the right one.
func TestProtocolT68MalformedAnswers(t *testing.T) {
	// to a modern upstream it is to say what an answer is
	eachWire(t, pair{upstream.EraModern, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
		s, j := over(t, p, upstreamtest.Script{}, nil)
		c := j.talk(t)
		q := asking(askForm)
		base := q.params
		m := c.begin(t, q).answer(t)
		key := string(raw.Quote(requested(t, m)[0].key))
		state := `,"requestState":` + member(m.Result, "requestState")
		for _, answer := range []string{`null`, `"accept"`, `[]`, `{}`, `7`} {
			q.params = base + `,"inputResponses":{` + key + `:` + answer + `}` + state
			wantCode(t, c.begin(t, q).answer(t), -32602)
		}
		if n := len(callsOf(t, s.Journal, 1)); n != 1 {
			t.Errorf("the upstream was called %d times, want once", n)
		}
		for _, r := range s.Received() {
			if r.Body != nil && r.Message.IsResponse() {
				t.Errorf("the upstream was answered %s", r.Body)
			}
		}
		q.params = retried(base, m, key+`:`+strings.TrimPrefix(accepted, `"result":`))
		if got := answersOf(t, c.begin(t, q).answer(t)); got != `[{`+accepted+`}]` {
			t.Errorf("answers = %s", got)
		}
	})
}

// TestProtocolT69ClientWithoutStream has a client ask for an answer in JSON alone, on which nothing
// can be asked.
func TestProtocolT69ClientWithoutStream(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		_, j := over(t, p, upstreamtest.Script{}, nil)
		q := asking(askForm)
		q.header = http.Header{"Accept": {"application/json"}}
		a := j.talk(t).begin(t, q)
		m := a.answer(t)
		switch {
		case p.client == upstream.EraModern:
			if a.status == 200 {
				requested(t, m) // which needs no stream
			}
		case a.status != 200 && a.status != 406:
			t.Errorf("status %d and %s", a.status, m.Append(nil))
		case m.Error == nil && strings.Contains(string(m.Result), accepted):
			t.Errorf("got %s, and nobody was asked", m.Append(nil))
		}
	})
}
