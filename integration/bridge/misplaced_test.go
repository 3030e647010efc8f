package bridge

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"junction/integration/harness"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// Server requests that belong to no call, or could belong to two: Junction rejects them, and no user
// sees them.

func TestQuestionNeverReachesAnotherCaller(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			one := j.Talk(t)
			two := (&harness.Talker{URL: j.URL, Era: p.Client, Version: "2025-11-25",
				Capabilities: harness.AllCapabilities, Name: "another program"}).Start(t)
			before := one.Begin(t, harness.Called("up__gate", `{"gate":"g"}`))
			harness.CallsOf(t, s.Journal, 1)
			asker := two.Begin(t, harness.Called("up__ask", `{"gate":"ask","questions":[`+harness.AskForm+`]}`))
			harness.CallsOf(t, s.Journal, 2)
			after := one.Begin(t, harness.Called("up__gate", `{"gate":"g"}`))
			harness.CallsOf(t, s.Journal, 3)
			s.OpenGate(t, "ask")
			got, asked := "", false
			for got == "" {
				m, ok := asker.Next(t)
				switch {
				case !ok:
					t.Fatal("no answer")
				case m.IsRequest():
					asked = true
					two.Respond(t, m.ID, harness.Accepted)
				case harness.Member(m.Result, "resultType") == `"input_required"`:
					asked = true
					q := harness.Called("up__ask", `{"gate":"ask","questions":[`+harness.AskForm+`]}`)
					q.Params = harness.Retried(q.Params, m,
						string(raw.Quote(harness.Requested(t, m)[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))
					asker = two.Begin(t, q)
				default:
					got = harness.AnswersOf(t, m)
				}
			}
			switch { // over HTTP the question comes on the stream of its call, elsewhere its call is not known
			case p.Transport == "http" && got != `[{`+harness.Accepted+`}]`:
				t.Errorf("answers = %s, want the answer of the caller", got)
			case p.Transport != "http" && got != `[{`+harness.Accepted+`}]` &&
				!strings.HasPrefix(got, `[{"error":{"code":-32602,`):
				t.Errorf("answers = %s, want an error, or that the calls had connections of their own", got)
			case asked && got != `[{`+harness.Accepted+`}]`:
				t.Errorf("a client was asked, and the upstream was answered %s", got)
			}
			s.OpenGate(t, "g")
			s.OpenGate(t, "g")
			for _, waiting := range []*harness.Answering{before, after} {
				notes, m := waiting.All(t)
				if len(notes) > 0 || m.Error != nil || harness.Member(m.Result, "resultType") == `"input_required"` {
					t.Errorf("the other client got %d messages and %s", len(notes), m.Append(nil))
				}
			}
		})
	}
}

// TestParallelCallsOfOneClientAreAsked: several calls of one client ask at the same time. Where no message of
// the server names its call, one session is one window, which is asked. Calls of a modern client may be of
// several windows: their questions are refused once, and from then on such a call has a connection for itself.
func TestParallelCallsOfOneClientAreAsked(t *testing.T) {
	harness.Waits(t)
	const calls = 4
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c := j.Talk(t)
			var asking, waiting sync.WaitGroup
			for range calls {
				asking.Go(func() {
					m, _ := c.Converse(t, harness.Called("up__ask", `{"gate":"ask","questions":[`+harness.AskForm+`]}`), harness.AnswersTo)
					got := harness.AnswersOf(t, m)
					if oneWindow(p) && got != `[{`+harness.Accepted+`}]` {
						t.Errorf("the upstream was answered %s", got)
					}
					if !oneWindow(p) && !strings.Contains(got, "may be of several windows") {
						t.Errorf("a question of several windows was answered %s", got)
					}
				})
			}
			waiting.Go(func() { // it may get the questions, too
				if m, _ := c.Converse(t, harness.Called("up__gate", `{"gate":"g"}`), harness.AnswersTo); m.Error != nil {
					t.Errorf("the call that does not ask is answered %s", m.Append(nil))
				}
			})
			harness.CallsOf(t, s.Journal, calls+1)
			for range calls {
				s.OpenGate(t, "ask")
			}
			asking.Wait()
			m, _ := c.Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo)
			if got := harness.AnswersOf(t, m); got != `[{`+harness.Accepted+`}]` {
				t.Errorf("beside the call that does not ask, the upstream was answered %s", got)
			}
			s.OpenGate(t, "g")
			waiting.Wait()
		})
	}
}

// oneWindow reports whether the questions of a legacy server reach a client whatever other calls of the client
// are in flight: the server names the call, or the client has a session.
func oneWindow(p harness.Pair) bool { return p.Client == client.EraLegacy || p.Transport == "http" }

// TestQuestionAfterACancelledCall: a client that has cancelled a call is asked by the next one. Where neither
// the question nor a session names the call, the one after that is asked.
func TestQuestionAfterACancelledCall(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c := j.Talk(t)
			a := c.Begin(t, harness.Called("up__hang", `{}`))
			call := harness.CallsOf(t, s.Journal, 1)[0]
			if p.Client == client.EraModern {
				a.Drop()
			} else {
				c.Notify(t, "notifications/cancelled", `"requestId":`+a.ID)
			}
			cancelled(t, s, p, call)
			if !oneWindow(p) {
				m, _ := c.Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo)
				if got := harness.AnswersOf(t, m); !strings.Contains(got, "given up less than a minute ago") {
					t.Errorf("a question that may be of the cancelled call was answered %s", got)
				}
			}
			m, _ := c.Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo)
			if got := harness.AnswersOf(t, m); got != `[{`+harness.Accepted+`}]` {
				t.Errorf("after a cancelled call the upstream was answered %s", got)
			}
		})
	}
}

// TestQuestionBesideAnIncapableCaller has the second caller unable to be asked: that it cannot be
// asked does not make a question the first one's. Capabilities differ, and so do the connections.
func TestQuestionBesideAnIncapableCaller(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, harness.Exactly)
			dumb := harness.TalkAs(t, j.URL, p.Client, "2025-11-25", `{}`)
			waiting := dumb.Begin(t, harness.Called("up__gate", `{"gate":"g"}`))
			harness.CallsOf(t, s.Journal, 1)
			m, _ := j.Talk(t).Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo)
			if got := harness.AnswersOf(t, m); got != `[{`+harness.Accepted+`}]` {
				t.Errorf("answers = %s, want the answer: the other call has a connection of its own", got)
			}
			s.OpenGate(t, "g")
			if notes, m := waiting.All(t); len(notes) > 0 || m.Error != nil {
				t.Errorf("the other client got %d messages and %s", len(notes), m.Append(nil))
			}
		})
	}
}

func TestQuestionWithoutACallIsRejected(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c := j.Talk(t)
			var stream *harness.Answering
			if p.Client == client.EraLegacy {
				stream = c.Get(t)
			} else {
				stream, _ = harness.Subscribe(t, c, `"L"`, `{"toolsListChanged":true}`)
			}
			s.Listened(t, p)
			for _, question := range []string{harness.AskForm, harness.AskSampling, harness.AskRoots} {
				m := s.Ask(t, harness.Text(t, []byte(question), "method"), harness.Member([]byte(question), "params"))
				want := int64(-32602)
				if question == harness.AskRoots { // which the shared connection does not declare
					want = -32601
				}
				if m.Error == nil || m.Error.Code != want {
					t.Errorf("%s was answered %s, want %d", question, m.Append(nil), want)
				}
			}
			m := s.Ask(t, "unknown/x", `{}`)
			if m.Error == nil || m.Error.Code != -32601 {
				t.Errorf("an unknown request was answered %s, want -32601", m.Append(nil))
			}
			c.Succeed(t, "up__echo", `{}`)
			stream.WantSilence(t)
		})
	}
}

// TestQuestionDuringAListIsRejected has an upstream ask while its catalog is read, and after the
// handshake: it gets an error, and is read all the same.
func TestQuestionDuringAListIsRejected(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		if p.Upstream == client.EraModern {
			t.Skip("a modern server that wants input for tools/list gives no list: there is nothing to be had from it")
		}
		s := p.Serve(t, upstreamtest.Script{AsksRoots: true, Tools: harness.Definitions("echo"),
			AsksDuring: map[string]upstreamtest.Question{"tools/list": {Method: "sampling/createMessage",
				Params: []byte(`{"messages":[],"maxTokens":1}`)}}})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}})
		j.Offers(t, "up")
		j.Talk(t).Succeed(t, "up__echo", `{}`)
		answer := func(r upstreamtest.Record) bool { return r.Body != nil && r.Message.IsResponse() }
		harness.Await(t, s.Journal, "answer to a question", answer)
		for _, r := range s.Received() {
			if answer(r) && (r.Message.Error == nil || r.Message.Error.Code != -32602) {
				t.Errorf("a question was answered %s, want -32602", r.Body)
			}
		}
	})
}

func TestPingsAreAnsweredByTheProxy(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		if p.Client == client.EraLegacy {
			if got := string(c.Must(t, "ping", ``)); got != `{}` {
				t.Errorf("ping of the client was answered %s", got)
			}
			if len(s.RequestsOf(t, "ping", 0)) > 0 && p.Upstream == client.EraModern {
				t.Error("the ping of a client was passed on")
			}
		}
		if p.Upstream == client.EraModern {
			return // such a server sends none
		}
		s.Listened(t, p)
		if m := s.Ask(t, "ping", ``); m.Error != nil || string(m.Result) != `{}` {
			t.Errorf("ping of the upstream was answered %s", m.Append(nil))
		}
		// in the middle of a call
		m, asked := c.Converse(t, harness.Called("up__ask", `{"method":"ping"}`), harness.AnswersTo)
		if got := harness.AnswersOf(t, m); got != `[{"result":{}}]` || len(asked) > 0 {
			t.Errorf("ping during a call was answered %s, and the client was asked %d times", got, len(asked))
		}
	})
}

// TestManyQuestionsOfOneCallAreAnswered: an upstream that asks without end harms only its own call.
func TestManyQuestionsOfOneCallAreAnswered(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			j := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": harness.Exact(s.Config)}, Limits: proxy.Limits{}})
			j.Offers(t, "up")
			questions := strings.Repeat(harness.AskRoots+",", 79) + harness.AskRoots
			m, asked := j.Talk(t).Converse(t,
				harness.Called("up__ask", fmt.Sprintf(`{"together":true,"questions":[%s]}`, questions)), harness.AnswersTo)
			if len(asked) == 0 || len(asked) > 80 {
				t.Errorf("the client was asked %d questions", len(asked))
			}
			if got := harness.AnswersOf(t, m); strings.Count(got, `{"`) < 80 {
				t.Errorf("not every question was answered: %s", got)
			}
		})
	}
}
