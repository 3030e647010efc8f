package integration

import (
	"fmt"
	"strings"
	"testing"

	"junction/proxy"
	"junction/upstream"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// Questions that belong to nobody, or could belong to two (protocol.md §3.D): the upstream is
// refused, and no person sees anything.

func TestProtocolT78NeverAnotherCallersScreen(t *testing.T) {
	for _, client := range eras {
		eachWire(t, pair{client, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, nil)
			one, two := j.talk(t), j.talk(t)
			before := one.begin(t, called("up__gate", `{"gate":"g"}`))
			callsOf(t, s.Journal, 1)
			asker := two.begin(t, called("up__ask", `{"gate":"ask","questions":[`+askForm+`]}`))
			callsOf(t, s.Journal, 2)
			after := one.begin(t, called("up__gate", `{"gate":"g"}`))
			callsOf(t, s.Journal, 3)
			s.openGate(t, "ask")
			got, asked := "", false
			for got == "" {
				m, ok := asker.next(t)
				switch {
				case !ok:
					t.Fatal("no answer")
				case m.IsRequest():
					asked = true
					two.respond(t, m.ID, accepted)
				case member(m.Result, "resultType") == `"input_required"`:
					asked = true
					q := called("up__ask", `{"gate":"ask","questions":[`+askForm+`]}`)
					q.params = retried(q.params, m, string(raw.Quote(requested(t, m)[0].key))+`:`+strings.TrimPrefix(accepted, `"result":`))
					asker = two.begin(t, q)
				default:
					got = answersOf(t, m)
				}
			}
			switch { // over HTTP the question comes on the stream of its call, elsewhere nobody can know whose it is
			case p.wire == "http" && got != `[{`+accepted+`}]`:
				t.Errorf("answers = %s, want the answer of the caller", got)
			case p.wire != "http" && got != `[{`+accepted+`}]` && !strings.HasPrefix(got, `[{"error":{"code":-32602,`):
				t.Errorf("answers = %s, want an error, or that the calls had connections of their own", got)
			case asked && got != `[{`+accepted+`}]`:
				t.Errorf("a client was asked, and the upstream was answered %s", got)
			}
			s.openGate(t, "g")
			s.openGate(t, "g")
			for _, waiting := range []*answering{before, after} {
				notes, m := waiting.all(t)
				if len(notes) > 0 || m.Error != nil || member(m.Result, "resultType") == `"input_required"` {
					t.Errorf("the other client got %d messages and %s", len(notes), m.Append(nil))
				}
			}
		})
	}
}

// TestProtocolT78QuestionOfOnlyOneOfTwo has the second caller unable to be asked: that it cannot be
// asked does not make a question the first one's. Capabilities differ, and so do the connections.
func TestProtocolT78QuestionOfOnlyOneOfTwo(t *testing.T) {
	for _, client := range eras {
		eachWire(t, pair{client, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, exactly)
			dumb := talkAs(t, j.url, p.client, "2025-11-25", `{}`)
			waiting := dumb.begin(t, called("up__gate", `{"gate":"g"}`))
			callsOf(t, s.Journal, 1)
			m, _ := j.talk(t).converse(t, asking(askForm), answersTo)
			if got := answersOf(t, m); got != `[{`+accepted+`}]` {
				t.Errorf("answers = %s, want the answer: the other call has a connection of its own", got)
			}
			s.openGate(t, "g")
			if notes, m := waiting.all(t); len(notes) > 0 || m.Error != nil {
				t.Errorf("the other client got %d messages and %s", len(notes), m.Append(nil))
			}
		})
	}
}

func TestProtocolT79QuestionWithoutCall(t *testing.T) {
	for _, client := range eras {
		eachWire(t, pair{client, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, nil)
			c := j.talk(t)
			var stream *answering
			if p.client == upstream.EraLegacy {
				stream = c.get(t)
			} else {
				stream, _ = subscribe(t, c, `"L"`, `{"toolsListChanged":true}`)
			}
			s.listened(t, p)
			for _, question := range []string{askForm, askSampling, askRoots} {
				m := s.ask(t, text(t, []byte(question), "method"), member([]byte(question), "params"))
				want := int64(-32602)
				if question == askRoots { // which the shared connection does not declare
					want = -32601
				}
				if m.Error == nil || m.Error.Code != want {
					t.Errorf("%s was answered %s, want %d", question, m.Append(nil), want)
				}
			}
			m := s.ask(t, "unknown/x", `{}`)
			if m.Error == nil || m.Error.Code != -32601 {
				t.Errorf("an unknown request was answered %s, want -32601", m.Append(nil))
			}
			c.succeed(t, "up__echo", `{}`)
			stream.wantSilence(t)
		})
	}
}

// TestProtocolT79QuestionDuringAList has an upstream ask while its catalog is read, and after the
// handshake: it gets an error, and is read all the same.
func TestProtocolT79QuestionDuringAList(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		if p.upstream == upstream.EraModern {
			t.Skip("a modern server that wants input for tools/list gives no list: there is nothing to be had from it")
		}
		s := p.serve(t, upstreamtest.Script{AsksRoots: true, Tools: definitions("echo"),
			AsksDuring: map[string]upstreamtest.Question{"tools/list": {Method: "sampling/createMessage", Params: []byte(`{"messages":[],"maxTokens":1}`)}}})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}})
		j.offers(t, "up")
		j.talk(t).succeed(t, "up__echo", `{}`)
		answer := func(r upstreamtest.Record) bool { return r.Body != nil && r.Message.IsResponse() }
		await(t, s.Journal, "answer to a question", answer)
		for _, r := range s.Received() {
			if answer(r) && (r.Message.Error == nil || r.Message.Error.Code != -32602) {
				t.Errorf("a question was answered %s, want -32602", r.Body)
			}
		}
	})
}

func TestProtocolT80PingsAreAnsweredByTheProxy(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		s, j := over(t, p, upstreamtest.Script{}, nil)
		c := j.talk(t)
		if p.client == upstream.EraLegacy {
			if got := string(c.must(t, "ping", ``)); got != `{}` {
				t.Errorf("ping of the client was answered %s", got)
			}
			if len(s.requestsOf(t, "ping", 0)) > 0 && p.upstream == upstream.EraModern {
				t.Error("the ping of a client was passed on")
			}
		}
		if p.upstream == upstream.EraModern {
			return // such a server sends none
		}
		s.listened(t, p)
		if m := s.ask(t, "ping", ``); m.Error != nil || string(m.Result) != `{}` {
			t.Errorf("ping of the upstream was answered %s", m.Append(nil))
		}
		m, asked := c.converse(t, called("up__ask", `{"method":"ping"}`), answersTo) // in the middle of a call
		if got := answersOf(t, m); got != `[{"result":{}}]` || len(asked) > 0 {
			t.Errorf("ping during a call was answered %s, and the client was asked %d times", got, len(asked))
		}
	})
}

// TestProtocolT79ManyQuestions holds that an upstream which asks without end harms nobody but its
// own call.
func TestProtocolT79ManyQuestions(t *testing.T) {
	for _, client := range eras {
		eachWire(t, pair{client, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
			s := p.serve(t, upstreamtest.Script{})
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": exact(s.config)}, limits: proxy.Limits{}})
			j.offers(t, "up")
			questions := strings.Repeat(askRoots+",", 79) + askRoots
			m, asked := j.talk(t).converse(t, called("up__ask", fmt.Sprintf(`{"together":true,"questions":[%s]}`, questions)), answersTo)
			if len(asked) == 0 || len(asked) > 80 {
				t.Errorf("the client was asked %d questions", len(asked))
			}
			if got := answersOf(t, m); strings.Count(got, `{"`) < 80 {
				t.Errorf("not every question was answered: %s", got)
			}
		})
	}
}
