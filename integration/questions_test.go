package integration

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/proxy"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// The assertions of protocol.md §6.4 about what an upstream asks the person at the client, in every
// pair of eras. That the state of a question is nobody else's is in state_test.go, and what
// upstreams ask in the middle of nowhere in misplaced_test.go.

const (
	askForm     = `{"method":"elicitation/create","params":{"message":"Name?","requestedSchema":{"type":"object","properties":{"n":{"type":"string","x-odd":1.0}},"required":[ "n"]}}}`
	askSampling = `{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"é"}}],"maxTokens":10,"x":[1E2]}}`
	askRoots    = `{"method":"roots/list"}`
	accepted    = `"result":{"action":"accept","content":{"n":"Ada \u00e9","k":1.0}}`
	sampled     = `"result":{"role":"assistant","content":{"type":"text","text":"yes"},"model":"m","stopReason":"endTurn"}`
	rooted      = `"result":{"roots":[{"uri":"file:///home","name":"h"}]}`
)

// answersTo answers every kind of question.
func answersTo(p put) string {
	return map[string]string{"elicitation/create": accepted, "sampling/createMessage": sampled, "roots/list": rooted}[p.method]
}

// asking is a call of the tool that asks.
func asking(questions ...string) query {
	return called("up__ask", `{"questions":[`+strings.Join(questions, ",")+`]}`)
}

// wantQuestions compares what a client was asked, but for the name of the upstream in front of the
// message.
func wantQuestions(t *testing.T, asked []put, want ...string) {
	t.Helper()
	if len(asked) != len(want) {
		t.Fatalf("the client was asked %d questions, want %d", len(asked), len(want))
	}
	for i, q := range asked {
		wanted := strings.Replace(want[i], `"message":"`, `"message":"[up] `, 1)
		params := member([]byte(wanted), "params")
		if q.method != text(t, []byte(wanted), "method") || !sameJSON(t, objectText(q.params), objectText([]byte(params))) {
			t.Errorf("question %d = %s %s\nwant %s", i, q.method, q.params, wanted)
		}
	}
}

// TestProtocolT69QuestionsAreAnswered is the heart of the bridge: whoever asks whom, the question
// arrives as it was put, the answer as it was given, and the tool does its work once.
func TestProtocolT69QuestionsAreAnswered(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		s, j := over(t, p, upstreamtest.Script{}, nil)
		m, asked := j.talk(t).converse(t, asking(askForm), answersTo)
		wantQuestions(t, asked, askForm)
		if got, want := member(m.Result, "structuredContent"), `{"answers":[{`+accepted+`}],"executions":1}`; got != want {
			t.Errorf("result = %s\nwant     %s", got, want)
		}
		if n := len(callsOf(t, s.Journal, 1)); p.upstream == upstream.EraLegacy && n != 1 {
			t.Errorf("the legacy upstream was called %d times, want once: the call waits for the answer", n)
		}
	})
}

// TestProtocolT69QuestionOnTheListeningStream is what some legacy servers do over HTTP: they ask on
// the GET stream in the middle of a call.
func TestProtocolT69QuestionOnTheListeningStream(t *testing.T) {
	for _, client := range eras {
		runPair(t, pair{client, upstream.EraLegacy, "http"}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, nil)
			c := j.talk(t)
			c.succeed(t, "up__echo", `{}`) // the connection of this client's calls is there
			s.listened(t, p)
			m, asked := c.converse(t, called("up__ask", `{"on":"get","questions":[`+askForm+`]}`), answersTo)
			wantQuestions(t, asked, askForm)
			if got, want := answersOf(t, m), `[{`+accepted+`}]`; got != want {
				t.Errorf("answers = %s, want %s", got, want)
			}
		})
	}
}

// TestProtocolT69PromptsAndResourcesAsk is the same for the other two methods that may.
func TestProtocolT69PromptsAndResourcesAsk(t *testing.T) {
	instead := json.RawMessage(`{"do":"ask","questions":[` + askForm + `]}`)
	script := upstreamtest.Script{
		Prompts: []json.RawMessage{[]byte(`{"name":"p"}`)}, Resources: []json.RawMessage{[]byte(`{"uri":"file:///r","name":"r"}`)},
		Instead: map[string]json.RawMessage{"p": instead, "file:///r": instead},
	}
	eachPair(t, func(t *testing.T, p pair) {
		_, j := over(t, p, script, nil)
		c := j.talk(t)
		for _, q := range []query{{method: "prompts/get", params: `"name":"up__p"`}, {method: "resources/read", params: `"uri":"mcp://up/file:///r"`}} {
			m, asked := c.converse(t, q, answersTo)
			wantQuestions(t, asked, askForm)
			if m.Error != nil || !strings.Contains(string(m.Result), `\"action\":\"accept\"`) {
				t.Errorf("%s = %s, want the answer in it", q.method, m.Append(nil))
			}
		}
	})
}

func TestProtocolT67RoundsBetweenModernPeers(t *testing.T) {
	const form2 = `{"key":"k é","method":"elicitation/create","params":{"message":"2"}}`
	eachWire(t, pair{upstream.EraModern, upstream.EraModern, ""}, func(t *testing.T, p pair) {
		for _, test := range []struct {
			arguments string
			keys      [][]string
			stateless bool
		}{
			{`{"together":true,"questions":[` + askForm + `,` + form2 + `]}`, [][]string{{"q1", "k é"}}, false},
			{`{"questions":[` + askForm + `,` + form2 + `,` + askRoots + `]}`, [][]string{{"q1"}, {"k é"}, {"q3"}}, false},
			{`{"state":"none","questions":[` + askForm + `]}`, [][]string{{"q1"}}, true},
			{`{"state":"only","n":2,"questions":[]}`, [][]string{nil, nil}, false},
		} {
			t.Run(test.arguments[:20], func(t *testing.T) {
				s, j := over(t, p, upstreamtest.Script{}, nil)
				c := j.talk(t)
				q := called("up__ask", test.arguments)
				base, given := q.params, []string{}
				for _, keys := range test.keys {
					m := c.begin(t, q).answer(t)
					var got, responses []string
					for _, question := range requested(t, m) {
						got = append(got, question.key)
						responses = append(responses, string(raw.Quote(question.key))+":"+strings.TrimPrefix(answersTo(question), `"result":`))
					}
					if !slices.Equal(got, keys) {
						t.Errorf("asked %q, want %q", got, keys)
					}
					if state := member(m.Result, "requestState"); state != "" && strings.Contains(state, "what the server") {
						t.Errorf("requestState = %s is not sealed", state)
					}
					given = append(given, strings.Join(responses, ","))
					q.params = retried(base, m, responses...)
				}
				if m := c.begin(t, q).answer(t); m.Error != nil || member(m.Result, "resultType") != `"complete"` {
					t.Fatalf("at last %s, want a result", m.Append(nil))
				}
				calls := callsOf(t, s.Journal, len(test.keys)+1)
				ids := map[jsonrpc.ID]bool{}
				for i, r := range calls {
					if ids[r.Message.ID] {
						t.Errorf("the id %s of call %d was used before", r.Message.ID, i)
					}
					ids[r.Message.ID] = true
					if state := member(r.Message.Params, "requestState"); i > 0 && (state == "") != test.stateless || i == 0 && state != "" {
						// that it is the server's own, byte for byte, is what the server checks
						t.Errorf("call %d has the state %q", i, state)
					}
					if responses := member(r.Message.Params, "inputResponses"); i > 0 && given[i-1] != "" && responses != "{"+given[i-1]+"}" {
						t.Errorf("call %d has the answers %s, want {%s}", i, responses, given[i-1])
					}
				}
			})
		}
	})
}

// TestProtocolT70OnlyWhoCanBeAskedIsAsked holds that upstreams know what their caller can do, and
// that one which asks all the same is refused.
func TestProtocolT70OnlyWhoCanBeAskedIsAsked(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		_, j := over(t, p, upstreamtest.Script{}, exactly)
		dumb := talkAs(t, j.url, p.client, "2025-11-25", `{"roots":{}}`)
		if got := member(dumb.succeed(t, "up__capabilities", `{}`), "structuredContent", "capabilities"); got != `{"roots":{}}` {
			t.Errorf("the upstream was told of the capabilities %s, want those of its caller", got)
		}
		never := func(q put) string { t.Errorf("the client was asked %s", q.method); return "" }
		m, _ := dumb.converse(t, asking(askForm), never)
		if p.upstream == upstream.EraLegacy {
			if got := member(m.Result, "content"); !strings.Contains(got, "cannot be asked") {
				t.Errorf("got %s, want what the upstream does instead", m.Append(nil))
			}
		} else if wantCode(t, m, -32021); m.Error != nil {
			wantJSON(t, "data of -32021", m.Error.Data, `{"requiredCapabilities":{"elicitation":{}}}`)
		}

		m, _ = dumb.converse(t, called("up__ask", `{"always":true,"questions":[`+askForm+`]}`), never)
		switch {
		case p.upstream == upstream.EraLegacy:
			if got := answersOf(t, m); !strings.Contains(got, `"error":{"code":-326`) {
				t.Errorf("the upstream that asks all the same was answered %s, want an error", got)
			}
		case m.Error == nil:
			t.Errorf("got %s of an upstream that asks all the same, want an error", m.Append(nil))
		}

		able := j.talk(t) // whose presence changes nothing for the other
		if m, asked := able.converse(t, asking(askForm), answersTo); len(asked) != 1 || m.Error != nil {
			t.Errorf("a client that can be asked got %d questions and %s", len(asked), m.Append(nil))
		}
	})
}

// TestProtocolT70PartsOfACapability has clients that can do a part of what they are asked: a form
// but no page, sampling but no tools in it.
func TestProtocolT70PartsOfACapability(t *testing.T) {
	const (
		page  = `{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://example.com","elicitationId":"e"}}`
		tools = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"tools":[{"name":"t","inputSchema":{"type":"object"}}]}}`
	)
	eachPair(t, func(t *testing.T, p pair) {
		_, j := over(t, p, upstreamtest.Script{}, nil)
		for _, row := range []struct{ capabilities, question string }{
			{`{"elicitation":{}}`, page}, {`{"elicitation":{"form":{}}}`, page}, {`{"elicitation":{"url":{}}}`, askForm}, {`{"sampling":{}}`, tools}, {`{"sampling":{},"elicitation":{}}`, askRoots},
		} {
			c := talkAs(t, j.url, p.client, "2025-11-25", row.capabilities)
			m, asked := c.converse(t, called("up__ask", `{"always":true,"questions":[`+row.question+`]}`), answersTo)
			if len(asked) > 0 {
				t.Errorf("a client with %s was asked %s", row.capabilities, row.question)
			}
			if p.upstream == upstream.EraLegacy && !strings.Contains(answersOf(t, m), `"error":{"code":-326`) || p.upstream == upstream.EraModern && m.Error == nil && member(m.Result, "isError") != "true" {
				t.Errorf("%s of a client with %s ended in %s, want an error", row.question, row.capabilities, m.Append(nil))
			}
		}
	})
}

func TestProtocolT70MissingCapabilityIsStatus400(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraModern, ""}, func(t *testing.T, p pair) {
		_, j := over(t, p, upstreamtest.Script{}, nil)
		a := talkAs(t, j.url, p.client, "", `{}`).begin(t, asking(askSampling))
		wantCode(t, a.answer(t), -32021)
		if a.status != 400 {
			t.Errorf("status %d, want 400", a.status)
		}
	})
}

func TestProtocolT71OneQuestionAfterTheOther(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		s, j := over(t, p, upstreamtest.Script{}, exactly)
		n := 0
		m, asked := j.talk(t).converse(t, asking(askForm, askForm, askSampling, askRoots), func(q put) string {
			if n++; q.method == "elicitation/create" {
				return fmt.Sprintf(`"result":{"action":"accept","content":{"round":%d}}`, n)
			}
			return answersTo(q)
		})
		wantQuestions(t, asked, askForm, askForm, askSampling, askRoots)
		if got, want := answersOf(t, m), `[{"result":{"action":"accept","content":{"round":1}}},{"result":{"action":"accept","content":{"round":2}}},{`+sampled+`},{`+rooted+`}]`; got != want {
			t.Errorf("answers = %s\nwant      %s", got, want)
		}
		if got := member(m.Result, "structuredContent", "executions"); got != "1" {
			t.Errorf("the tool did its work %s times, want once", got)
		}
		ids := map[jsonrpc.ID]bool{}
		for _, q := range asked {
			if ids[q.id] && p.client == upstream.EraLegacy {
				t.Errorf("the id %s was used for two questions", q.id)
			}
			ids[q.id] = true
		}
		if p.upstream == upstream.EraLegacy && len(callsOf(t, s.Journal, 1)) != 1 {
			t.Error("the legacy upstream was called more than once")
		}
	})
}

func TestProtocolT71SeveralQuestionsAtOnce(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		_, j := over(t, p, upstreamtest.Script{}, exactly)
		m, asked := j.talk(t).converse(t, called("up__ask", `{"together":true,"questions":[`+askForm+`,`+askSampling+`,`+askRoots+`]}`), answersTo)
		methods := map[string]bool{}
		for _, q := range asked {
			methods[q.method] = true
		}
		if len(asked) != 3 && p.upstream == upstream.EraModern || len(methods) != 3 {
			t.Errorf("the client was asked %d questions, want three", len(asked))
		}
		if got, want := answersOf(t, m), `[{`+accepted+`},{`+sampled+`},{`+rooted+`}]`; got != want {
			t.Errorf("answers = %s\nwant      %s", got, want)
		}
	})
}

// TestProtocolT71PartialAnswers has a modern client come back with less than it was asked, and with
// what nobody asked.
func TestProtocolT71PartialAnswers(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, exactly)
			c := j.talk(t)
			q := called("up__ask", `{"together":true,"questions":[`+askForm+`,`+askRoots+`]}`)
			base := q.params
			m := c.begin(t, q).answer(t)
			open := requested(t, m)
			if len(open) == 1 { // the other was put a moment later: come back without an answer until both are there
				for len(open) < 2 {
					q.params = retried(base, m)
					m = c.begin(t, q).answer(t)
					open = requested(t, m)
				}
			}
			first, second := open[0], open[1]
			q.params = retried(base, m, string(raw.Quote(second.key))+`:`+strings.TrimPrefix(answersTo(second), `"result":`), `"nobody asked":{"action":"accept"}`)
			m = c.begin(t, q).answer(t)
			if left := requested(t, m); len(left) != 1 || left[0].key != first.key || left[0].method != first.method {
				t.Fatalf("asked again %+v, want only %s", left, first.key)
			}
			q.params = retried(base, m, string(raw.Quote(first.key))+`:`+strings.TrimPrefix(answersTo(first), `"result":`))
			m = c.begin(t, q).answer(t)
			if got, want := answersOf(t, m), `[{`+accepted+`},{`+rooted+`}]`; got != want {
				t.Errorf("answers = %s\nwant      %s", got, want)
			}
			if n := len(callsOf(t, s.Journal, 1)); p.upstream == upstream.EraLegacy && n != 1 {
				t.Errorf("the upstream was called %d times, want once", n)
			}
		})
	}
}

// TestProtocolT72NobodyComesBack has a modern client forget a call: the upstream is told, in the
// words that fit the question, and nothing is left.
func TestProtocolT72NobodyComesBack(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
		for question, want := range map[string]string{askForm: `"result":{"action":"cancel"}`, askSampling: `"error":{"code":-1,`, askRoots: `"error":{"code":-32603,`} {
			t.Run(text(t, []byte(question), "method"), func(t *testing.T) {
				s := p.serve(t, upstreamtest.Script{})
				j := start(t, p, world{upstreams: map[string]upstream.Config{"up": exact(s.config)}, limits: proxy.Limits{Patience: 100 * time.Millisecond}})
				j.offers(t, "up")
				c := j.talk(t)
				q := asking(question)
				base := q.params
				m := c.begin(t, q).answer(t)
				requested(t, m)
				answer := await(t, s.Journal, "answer", func(r upstreamtest.Record) bool { return r.Body != nil && r.Message.IsResponse() })
				if !strings.Contains(string(answer.Body), want) {
					t.Errorf("the upstream was answered %s, want %s", answer.Body, want)
				}
				q.params = retried(base, m, `"q1":{}`)
				wantCode(t, c.begin(t, q).answer(t), -32602)
				if n := len(callsOf(t, s.Journal, 1)); n != 1 {
					t.Errorf("the upstream was called %d times, want once: what comes too late is no new call", n)
				}
				c.succeed(t, "up__echo", `{}`)
			})
		}
	})
}

// TestProtocolT72CancelledWhenNobodyComesBack is the case of an upstream that asks without end:
// being answered "cancel" does not stop it, so that the call has to be cancelled, too.
func TestProtocolT72CancelledWhenNobodyComesBack(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, limits: proxy.Limits{Patience: 100 * time.Millisecond}})
		j.offers(t, "up")
		requested(t, j.talk(t).call(t, "up__ask", `{"endless":true,"questions":[`+askForm+`]}`))
		cancelled(t, s, p, callsOf(t, s.Journal, 1)[0])
	})
}

// TestProtocolT72LegacyClientDoesNotAnswer is the same for a client that has a call open and says
// nothing.
func TestProtocolT72LegacyClientDoesNotAnswer(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraLegacy, up, ""}, func(t *testing.T, p pair) {
			s := p.serve(t, upstreamtest.Script{})
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, limits: proxy.Limits{Patience: 100 * time.Millisecond}})
			j.offers(t, "up")
			c := j.talk(t)
			m, asked := c.converse(t, asking(askForm), func(put) string { return "" })
			if p.upstream == upstream.EraLegacy {
				if got := answersOf(t, m); got != `[{"result":{"action":"cancel"}}]` {
					t.Errorf("the upstream was answered %s, want that the person cancelled", got)
				}
			} else if m.Error == nil && answersOf(t, m) != `[{"result":{"action":"cancel"}}]` {
				t.Errorf("got %s, want an error, or the answer that the person cancelled", m.Append(nil))
			}
			if status := c.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, asked[0].id, accepted)); status/100 != 2 && status/100 != 4 {
				t.Errorf("an answer that comes too late = status %d", status)
			}
			c.succeed(t, "up__echo", `{}`)
		})
	}
}

// TestProtocolT72ParkedCallsAreBounded holds that the calls of one user which wait for answers
// cannot be as many as it likes.
func TestProtocolT72ParkedCallsAreBounded(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, limits: proxy.Limits{Parked: 1}})
		j.offers(t, "up")
		c := j.talk(t)
		q := asking(askForm)
		base := q.params
		m := c.begin(t, q).answer(t)
		open := requested(t, m)
		if second := c.begin(t, q).answer(t); second.Error == nil && member(second.Result, "resultType") == `"input_required"` {
			t.Errorf("got %s, want a second question refused", second.Append(nil))
		}
		q.params = retried(base, m, string(raw.Quote(open[0].key))+`:`+strings.TrimPrefix(accepted, `"result":`))
		if got := answersOf(t, c.begin(t, q).answer(t)); got != `[{`+accepted+`}]` {
			t.Errorf("the first call was answered %s", got)
		}
		q.params = base
		requested(t, c.begin(t, q).answer(t)) // there is room again
	})
}

// TestProtocolT69UpstreamDoesNotWait has an upstream finish while its question is open: the result
// is there for the client that comes back.
func TestProtocolT69UpstreamDoesNotWait(t *testing.T) {
	for _, tell := range []bool{false, true} {
		eachWire(t, pair{upstream.EraModern, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, nil)
			c := j.talk(t)
			q := called("up__ask", fmt.Sprintf(`{"giveUp":"now","tell":%t,"questions":[%s]}`, tell, askForm))
			base := q.params
			m := c.begin(t, q).answer(t)
			open := requested(t, m)
			s.openGate(t, "now")
			await(t, s.Journal, "sign to give up", upstreamtest.Verb("GIVEUP")) // before that it would take the answer
			q.params = retried(base, m, string(raw.Quote(open[0].key))+`:`+strings.TrimPrefix(accepted, `"result":`))
			m = c.begin(t, q).answer(t)
			if m.Error != nil || !strings.Contains(string(m.Result), "gave up") {
				t.Errorf("got %s, want the upstream's result", m.Append(nil))
			}
		})
	}
}

// TestProtocolT55TimeOfAPersonDoesNotCount has a person take longer to answer than a call may be
// silent, and than it may take at all.
func TestProtocolT55TimeOfAPersonDoesNotCount(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		eachTimeout(t, 100*time.Millisecond, func(t *testing.T, timeout time.Duration) (late bool) {
			_, j := over(t, p, upstreamtest.Script{}, func(c *upstream.Config) {
				exactly(c)
				rule := upstream.Rule{Timeout: timeout, MaxTimeout: timeout * 3 / 2}
				c.Tools = upstream.Rules{{Glob: "ask", Rule: rule}, {Glob: "hang", Rule: rule}}
			})
			c, other := j.talk(t), talkAs(t, j.url, p.client, "2025-11-25", `{}`)
			other.succeed(t, "up__echo", `{}`) // the connection of its calls is there
			m, asked := c.converse(t, asking(askForm, askRoots), func(q put) string {
				for range 2 { // meanwhile two calls of another client time out, one after the other
					ours(t, other.call(t, "up__hang", `{}`), "up", upstream.KindTimeout)
				}
				return answersTo(q)
			})
			if m.Error != nil {
				ours(t, m, "up", upstream.KindTimeout)
				return true
			}
			if len(asked) != 2 || answersOf(t, m) != `[{`+accepted+`},{`+rooted+`}]` {
				t.Errorf("%d questions and %s", len(asked), m.Append(nil))
			}
			return false
		})
	})
}

func TestProtocolT74QuestionsComeOnTheStreamOfTheCall(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraLegacy, up, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, exactly)
			c := j.talk(t)
			listening := c.get(t)
			a := c.begin(t, asking(askForm, askRoots))
			seen := map[jsonrpc.ID]bool{}
			for range 2 {
				m, ok := a.next(t)
				if !ok || !m.IsRequest() || seen[m.ID] {
					t.Fatalf("got %s, want a question with an id of its own", m.Append(nil))
				}
				seen[m.ID] = true
				c.respond(t, m.ID, answersTo(put{method: m.Method}))
			}
			notes, m := a.all(t)
			if len(notes) > 0 || m.Error != nil || m.ID != jsonrpc.ID(a.id) {
				t.Errorf("at the end %d notifications and %s, want one response", len(notes), m.Append(nil))
			}
			if member(m.Result, "resultType") != "" && member(m.Result, "resultType") != `"complete"` {
				t.Errorf("a legacy client got %s", m.Result)
			}
			listening.wantSilence(t)
			want := 1
			if p.upstream == upstream.EraModern {
				want = 3 // the call, and two with answers
			}
			if n := len(callsOf(t, s.Journal, want)); n != want {
				t.Errorf("the upstream was called %d times, want %d", n, want)
			}
		})
	}
}

func TestProtocolT75AnErrorIsNoAnswer(t *testing.T) {
	const refused = `"error":{"code":-1,"message":"User rejected sampling request"}`
	for _, up := range eras {
		eachWire(t, pair{upstream.EraLegacy, up, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, nil)
			c := j.talk(t)
			m, _ := c.converse(t, asking(askSampling), func(put) string { return refused })
			if p.upstream == upstream.EraLegacy {
				if got := answersOf(t, m); got != `[{`+refused+`}]` {
					t.Errorf("the upstream was answered %s, want %s", got, refused)
				}
			} else if m.Error == nil && member(m.Result, "isError") != "true" {
				t.Errorf("got %s, want an error", m.Append(nil))
			}
			if calls := callsOf(t, s.Journal, 1); len(calls) != 1 {
				t.Errorf("the upstream was called again: %s", calls[1].Body)
			}
			// A person who will not be asked has cancelled, for which there is a word.
			m, _ = c.converse(t, asking(askForm), func(put) string { return `"error":{"code":-32602,"message":"no"}` })
			want := `[{"result":{"action":"cancel"}}]`
			if p.upstream == upstream.EraLegacy {
				want = `[{"error":{"code":-32602,"message":"no"}}]`
			}
			if got := answersOf(t, m); got != want {
				t.Errorf("the upstream was answered %s, want %s", got, want)
			}
		})
	}
}

func TestProtocolT76StateWithoutQuestion(t *testing.T) {
	eachWire(t, pair{upstream.EraLegacy, upstream.EraModern, ""}, func(t *testing.T, p pair) {
		_, j := over(t, p, upstreamtest.Script{}, nil)
		c := j.talk(t)
		if got := member(c.succeed(t, "up__ask", `{"state":"only","n":2}`), "structuredContent", "executions"); got != "1" {
			t.Errorf("the tool did its work %s times, want once", got)
		}
	})
}

func TestProtocolT76StateWithoutQuestionForEver(t *testing.T) {
	if testing.Short() {
		t.Skip("the rounds are far apart, and not so few")
	}
	runPair(t, pair{upstream.EraLegacy, upstream.EraModern, "http"}, func(t *testing.T, p pair) {
		s, j := over(t, p, upstreamtest.Script{}, nil)
		ours(t, j.talk(t).call(t, "up__ask", `{"state":"only","endless":true}`), "up", upstream.KindInvalid)
		if n := len(callsOf(t, s.Journal, 1)); n < 3 || n > 20 {
			t.Errorf("the upstream was called %d times, want a few", n)
		}
	})
}

func TestProtocolT77EndlessQuestions(t *testing.T) {
	eachWire(t, pair{upstream.EraLegacy, upstream.EraModern, ""}, func(t *testing.T, p pair) {
		_, j := over(t, p, upstreamtest.Script{}, nil)
		m, asked := j.talk(t).converse(t, called("up__ask", `{"endless":true,"questions":[`+askForm+`]}`), answersTo)
		ours(t, m, "up", upstream.KindInvalid)
		if len(asked) < 3 || len(asked) > 20 {
			t.Errorf("the client was asked %d times, want a few", len(asked))
		}
	})
}

func TestProtocolT81ContextOfOthersIsNotIncluded(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		_, j := over(t, p, upstreamtest.Script{}, nil)
		c := j.talk(t)
		for _, context := range []string{"thisServer", "allServers", "none"} {
			m, asked := c.converse(t, asking(`{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"includeContext":"`+context+`","tools":[{"name":"search","inputSchema":{}}]}}`), answersTo)
			if m.Error != nil || len(asked) != 1 {
				t.Fatalf("%d questions and %s", len(asked), m.Append(nil))
			}
			if got := member(asked[0].params, "includeContext"); got != "" && got != `"none"` {
				t.Errorf("includeContext %s reached the client as %s", context, got)
			}
			if got := member(asked[0].params, "tools"); got != `[{"name":"search","inputSchema":{}}]` {
				t.Errorf("the tools of the question reached the client as %s", got)
			}
		}
	})
}
