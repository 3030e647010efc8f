package bridge

import (
	"encoding/json"
	"fmt"
	"slices"
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

// Questions of an upstream to the user of the client, in each pair of eras. state_test.go tests that
// the state of a question is bound to its call, and misplaced_test.go tests server requests that
// belong to no call.

// wantQuestions compares what a client was asked, but for the name of the upstream in front of the
// message.
func wantQuestions(t *testing.T, asked []harness.ServerRequest, want ...string) {
	t.Helper()
	if len(asked) != len(want) {
		t.Fatalf("the client was asked %d questions, want %d", len(asked), len(want))
	}
	for i, q := range asked {
		wanted := strings.Replace(want[i], `"message":"`, `"message":"[up] `, 1)
		params := harness.Member([]byte(wanted), "params")
		if q.Method != harness.Text(t, []byte(wanted), "method") ||
			!harness.SameJSON(t, harness.ObjectText(q.Params), harness.ObjectText([]byte(params))) {
			t.Errorf("question %d = %s %s\nwant %s", i, q.Method, q.Params, wanted)
		}
	}
}

// TestQuestionsAreAnswered is the heart of the bridge: for each pair of eras the question and the answer
// arrive as they were sent, and the tool does its work once.
func TestQuestionsAreAnswered(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		m, asked := j.Talk(t).Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo)
		wantQuestions(t, asked, harness.AskForm)
		if got, want := harness.Member(m.Result, "structuredContent"), `{"answers":[{`+harness.Accepted+
			`}],"executions":1}`; got != want {
			t.Errorf("result = %s\nwant     %s", got, want)
		}
		if n := len(harness.CallsOf(t, s.Journal, 1)); p.Upstream == client.EraLegacy && n != 1 {
			t.Errorf("the legacy upstream was called %d times, want once: the call waits for the answer", n)
		}
	})
}

// TestQuestionOnTheGETStream is what some legacy servers do over HTTP: they ask on
// the GET stream in the middle of a call.
func TestQuestionOnTheGETStream(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.RunPair(t, clientEra, client.EraLegacy, "http", func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c := j.Talk(t)
			c.Succeed(t, "up__echo", `{}`) // the connection of this client's calls is there
			s.Listened(t, p)
			m, asked := c.Converse(t, harness.Called("up__ask", `{"on":"get","questions":[`+harness.AskForm+`]}`),
				harness.AnswersTo)
			wantQuestions(t, asked, harness.AskForm)
			if got, want := harness.AnswersOf(t, m), `[{`+harness.Accepted+`}]`; got != want {
				t.Errorf("answers = %s, want %s", got, want)
			}
		})
	}
}

// TestQuestionsOfPromptsAndResources is the same for the other two methods that may.
func TestQuestionsOfPromptsAndResources(t *testing.T) {
	harness.Waits(t)
	instead := json.RawMessage(`{"do":"ask","questions":[` + harness.AskForm + `]}`)
	script := upstreamtest.Script{
		Prompts:   []json.RawMessage{[]byte(`{"name":"p"}`)},
		Resources: []json.RawMessage{[]byte(`{"uri":"file:///r","name":"r"}`)},
		Instead:   map[string]json.RawMessage{"p": instead, "file:///r": instead},
	}
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, script, nil)
		c := j.Talk(t)
		for _, q := range []harness.Query{{Method: "prompts/get", Params: `"name":"up__p"`},
			{Method: "resources/read", Params: `"uri":"mcp://up/file:///r"`}} {
			m, asked := c.Converse(t, q, harness.AnswersTo)
			wantQuestions(t, asked, harness.AskForm)
			if m.Error != nil || !strings.Contains(string(m.Result), `\"action\":\"accept\"`) {
				t.Errorf("%s = %s, want the answer in it", q.Method, m.Append(nil))
			}
		}
	})
}

func TestRoundsBetweenModernPeers(t *testing.T) {
	harness.Waits(t)
	const form2 = `{"key":"k é","method":"elicitation/create","params":{"message":"2"}}`
	harness.EachTransport(t, client.EraModern, client.EraModern, func(t *testing.T, p harness.Pair) {
		for _, test := range []struct {
			arguments string
			keys      [][]string
			stateless bool
		}{
			{`{"together":true,"questions":[` + harness.AskForm + `,` + form2 + `]}`, [][]string{{"q1", "k é"}}, false},
			{`{"questions":[` + harness.AskForm + `,` + form2 + `,` + harness.AskRoots + `]}`,
				[][]string{{"q1"}, {"k é"}, {"q3"}}, false},
			{`{"state":"none","questions":[` + harness.AskForm + `]}`, [][]string{{"q1"}}, true},
			{`{"state":"only","n":2,"questions":[]}`, [][]string{nil, nil}, false},
		} {
			t.Run(test.arguments[:20], func(t *testing.T) {
				s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
				c := j.Talk(t)
				q := harness.Called("up__ask", test.arguments)
				base, given := q.Params, []string{}
				for _, keys := range test.keys {
					m := c.Begin(t, q).Answer(t)
					var got, responses []string
					for _, question := range harness.Requested(t, m) {
						got = append(got, question.Key)
						responses = append(responses,
							string(raw.Quote(question.Key))+":"+strings.TrimPrefix(harness.AnswersTo(question), `"result":`))
					}
					if !slices.Equal(got, keys) {
						t.Errorf("asked %q, want %q", got, keys)
					}
					if state := harness.Member(m.Result, "requestState"); state != "" && strings.Contains(state, "what the server") {
						t.Errorf("requestState = %s is not sealed", state)
					}
					given = append(given, strings.Join(responses, ","))
					q.Params = harness.Retried(base, m, responses...)
				}
				if m := c.Begin(t, q).Answer(t); m.Error != nil || harness.Member(m.Result, "resultType") != `"complete"` {
					t.Fatalf("at last %s, want a result", m.Append(nil))
				}
				calls := harness.CallsOf(t, s.Journal, len(test.keys)+1)
				ids := map[jsonrpc.ID]bool{}
				for i, r := range calls {
					if ids[r.Message.ID] && harness.Processes() == 1 {
						t.Errorf("the id %s of call %d was used before", r.Message.ID, i)
					}
					ids[r.Message.ID] = true
					if state := harness.Member(r.Message.Params, "requestState"); i > 0 && (state == "") != test.stateless ||
						i == 0 && state != "" {
						// that it is the server's own, byte for byte, is what the server checks
						t.Errorf("call %d has the state %q", i, state)
					}
					if responses := harness.Member(r.Message.Params, "inputResponses"); i > 0 && given[i-1] != "" &&
						responses != "{"+given[i-1]+"}" {
						t.Errorf("call %d has the answers %s, want {%s}", i, responses, given[i-1])
					}
				}
			})
		}
	})
}

// TestOnlyCapableClientsAreAsked holds that upstreams know what their caller can do, and
// that one which asks all the same is refused.
func TestOnlyCapableClientsAreAsked(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, harness.Exactly)
		dumb := harness.TalkAs(t, j.URL, p.Client, "2025-11-25", `{"roots":{}}`)
		if got := harness.Member(dumb.Succeed(t, "up__capabilities", `{}`), "structuredContent",
			"capabilities"); got != `{"roots":{}}` {
			t.Errorf("the upstream was told of the capabilities %s, want those of its caller", got)
		}
		never := func(q harness.ServerRequest) string { t.Errorf("the client was asked %s", q.Method); return "" }
		m, _ := dumb.Converse(t, harness.Asking(harness.AskForm), never)
		if p.Upstream == client.EraLegacy {
			if got := harness.Member(m.Result, "content"); !strings.Contains(got, "cannot be asked") {
				t.Errorf("got %s, want what the upstream does instead", m.Append(nil))
			}
		} else if harness.WantCode(t, m, -32021); m.Error != nil {
			harness.WantJSON(t, "data of -32021", m.Error.Data, `{"requiredCapabilities":{"elicitation":{}}}`)
		}

		m, _ = dumb.Converse(t, harness.Called("up__ask", `{"always":true,"questions":[`+harness.AskForm+`]}`), never)
		switch {
		case p.Upstream == client.EraLegacy:
			if got := harness.AnswersOf(t, m); !strings.Contains(got, `"error":{"code":-326`) {
				t.Errorf("the upstream that asks all the same was answered %s, want an error", got)
			}
		case m.Error == nil:
			t.Errorf("got %s of an upstream that asks all the same, want an error", m.Append(nil))
		}

		able := j.Talk(t) // whose presence changes nothing for the other
		if m, asked := able.Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo); len(asked) != 1 ||
			m.Error != nil {
			t.Errorf("a client that can be asked got %d questions and %s", len(asked), m.Append(nil))
		}
	})
}

// TestPartOfACapabilityLimitsQuestions has clients that can do a part of what they are asked: a form
// but no page, sampling but no tools in it.
func TestPartOfACapabilityLimitsQuestions(t *testing.T) {
	harness.Waits(t)
	const (
		page = `{"method":"elicitation/create","params":{"mode":"url","message":"m","url":"https://example.com",` +
			`"elicitationId":"e"}}`
		tools = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"tools":[{"name":"t",` +
			`"inputSchema":{"type":"object"}}]}}`
	)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		for _, row := range []struct{ capabilities, question string }{
			{`{"elicitation":{}}`, page}, {`{"elicitation":{"form":{}}}`, page}, {`{"elicitation":{"url":{}}}`, harness.AskForm},
			{`{"sampling":{}}`, tools}, {`{"sampling":{},"elicitation":{}}`, harness.AskRoots},
		} {
			c := harness.TalkAs(t, j.URL, p.Client, "2025-11-25", row.capabilities)
			m, asked := c.Converse(t, harness.Called("up__ask", `{"always":true,"questions":[`+row.question+`]}`),
				harness.AnswersTo)
			if len(asked) > 0 {
				t.Errorf("a client with %s was asked %s", row.capabilities, row.question)
			}
			if p.Upstream == client.EraLegacy && !strings.Contains(harness.AnswersOf(t, m), `"error":{"code":-326`) ||
				p.Upstream == client.EraModern && m.Error == nil && harness.Member(m.Result, "isError") != "true" {
				t.Errorf("%s of a client with %s ended in %s, want an error", row.question, row.capabilities, m.Append(nil))
			}
		}
	})
}

func TestMissingCapabilityIsStatus400(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraModern, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		a := harness.TalkAs(t, j.URL, p.Client, "", `{}`).Begin(t, harness.Asking(harness.AskSampling))
		harness.WantCode(t, a.Answer(t), -32021)
		if a.Status != 400 {
			t.Errorf("status %d, want 400", a.Status)
		}
	})
}

func TestQuestionsOneAfterTheOther(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, harness.Exactly)
		n := 0
		m, asked := j.Talk(t).Converse(t,
			harness.Asking(harness.AskForm, harness.AskForm, harness.AskSampling,
				harness.AskRoots), func(q harness.ServerRequest) string {
				if n++; q.Method == "elicitation/create" {
					return fmt.Sprintf(`"result":{"action":"accept","content":{"round":%d}}`, n)
				}
				return harness.AnswersTo(q)
			})
		wantQuestions(t, asked, harness.AskForm, harness.AskForm, harness.AskSampling, harness.AskRoots)
		if got, want := harness.AnswersOf(t,
			m), `[{"result":{"action":"accept","content":{"round":1}}},{"result":{"action":"accept","content":{"round":2}}},{`+
			harness.Sampled+`},{`+harness.Rooted+`}]`; got != want {
			t.Errorf("answers = %s\nwant      %s", got, want)
		}
		if got := harness.Member(m.Result, "structuredContent", "executions"); got != "1" {
			t.Errorf("the tool did its work %s times, want once", got)
		}
		ids := map[jsonrpc.ID]bool{}
		for _, q := range asked {
			if ids[q.ID] && p.Client == client.EraLegacy {
				t.Errorf("the id %s was used for two questions", q.ID)
			}
			ids[q.ID] = true
		}
		if p.Upstream == client.EraLegacy && len(harness.CallsOf(t, s.Journal, 1)) != 1 {
			t.Error("the legacy upstream was called more than once")
		}
	})
}

func TestQuestionsAtOnce(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, harness.Exactly)
		m, asked := j.Talk(t).Converse(t,
			harness.Called("up__ask",
				`{"together":true,"questions":[`+harness.AskForm+`,`+harness.AskSampling+`,`+harness.AskRoots+`]}`),
			harness.AnswersTo)
		methods := map[string]bool{}
		for _, q := range asked {
			methods[q.Method] = true
		}
		if len(asked) != 3 && p.Upstream == client.EraModern || len(methods) != 3 {
			t.Errorf("the client was asked %d questions, want three", len(asked))
		}
		if got, want := harness.AnswersOf(t, m), `[{`+harness.Accepted+`},{`+harness.Sampled+`},{`+harness.Rooted+
			`}]`; got != want {
			t.Errorf("answers = %s\nwant      %s", got, want)
		}
	})
}

// TestUnansweredQuestionsAreAskedAgain: a modern client comes back without one of the answers, and with
// one to no question.
func TestUnansweredQuestionsAreAskedAgain(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, harness.Exactly)
			c := j.Talk(t)
			q := harness.Called("up__ask", `{"together":true,"questions":[`+harness.AskForm+`,`+harness.AskRoots+`]}`)
			base := q.Params
			m := c.Begin(t, q).Answer(t)
			open := harness.Requested(t, m)
			if len(open) == 1 { // the other was put a moment later: come back without an answer until both are there
				for len(open) < 2 {
					q.Params = harness.Retried(base, m)
					m = c.Begin(t, q).Answer(t)
					open = harness.Requested(t, m)
				}
			}
			first, second := open[0], open[1]
			q.Params = harness.Retried(base, m,
				string(raw.Quote(second.Key))+`:`+strings.TrimPrefix(harness.AnswersTo(second), `"result":`),
				`"nobody asked":{"action":"accept"}`)
			m = c.Begin(t, q).Answer(t)
			if left := harness.Requested(t, m); len(left) != 1 || left[0].Key != first.Key || left[0].Method != first.Method {
				t.Fatalf("asked again %+v, want only %s", left, first.Key)
			}
			q.Params = harness.Retried(base, m,
				string(raw.Quote(first.Key))+`:`+strings.TrimPrefix(harness.AnswersTo(first), `"result":`))
			m = c.Begin(t, q).Answer(t)
			if got, want := harness.AnswersOf(t, m), `[{`+harness.Accepted+`},{`+harness.Rooted+`}]`; got != want {
				t.Errorf("answers = %s\nwant      %s", got, want)
			}
			if n := len(harness.CallsOf(t, s.Journal, 1)); p.Upstream == client.EraLegacy && n != 1 {
				t.Errorf("the upstream was called %d times, want once", n)
			}
		})
	}
}

// TestAbandonedQuestionIsCancelled has a modern client forget a call: the upstream is told, in the
// words that fit the question, and nothing is left.
func TestAbandonedQuestionIsCancelled(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		for question, want := range map[string]string{harness.AskForm: `"result":{"action":"cancel"}`,
			harness.AskSampling: `"error":{"code":-1,`, harness.AskRoots: `"error":{"code":-32603,`} {
			t.Run(harness.Text(t, []byte(question), "method"), func(t *testing.T) {
				s := p.Serve(t, upstreamtest.Script{})
				j := harness.Start(t, p,
					harness.Setup{Upstreams: map[string]upstream.Config{"up": harness.Exact(s.Config)},
						Limits: proxy.Limits{Patience: 100 * time.Millisecond}})
				j.Offers(t, "up")
				c := j.Talk(t)
				q := harness.Asking(question)
				base := q.Params
				m := c.Begin(t, q).Answer(t)
				harness.Requested(t, m)
				answer := harness.Await(t, s.Journal, "answer",
					func(r upstreamtest.Record) bool { return r.Body != nil && r.Message.IsResponse() })
				if !strings.Contains(string(answer.Body), want) {
					t.Errorf("the upstream was answered %s, want %s", answer.Body, want)
				}
				q.Params = harness.Retried(base, m, `"q1":{}`)
				harness.WantLateAnswer(t, p.Upstream, c.Begin(t, q).Answer(t))
				if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
					t.Errorf("the upstream was called %d times, want once: what comes too late is no new call", n)
				}
				c.Succeed(t, "up__echo", `{}`)
			})
		}
	})
}

// TestAbandonedParkedCallIsCancelled is the case of an upstream that asks without end:
// being answered "cancel" does not stop it, so that the call has to be cancelled, too.
func TestAbandonedParkedCallIsCancelled(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
				Limits: proxy.Limits{Patience: 100 * time.Millisecond}})
		j.Offers(t, "up")
		harness.Requested(t, j.Talk(t).Call(t, "up__ask", `{"endless":true,"questions":[`+harness.AskForm+`]}`))
		cancelled(t, s, p, harness.CallsOf(t, s.Journal, 1)[0])
	})
}

// TestUnansweredLegacyQuestionIsCancelled is the same for a client that has a call open and says
// nothing.
func TestUnansweredLegacyQuestionIsCancelled(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			j := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
					Limits: proxy.Limits{Patience: 100 * time.Millisecond}})
			j.Offers(t, "up")
			c := j.Talk(t)
			m, asked := c.Converse(t, harness.Asking(harness.AskForm), func(harness.ServerRequest) string { return "" })
			if p.Upstream == client.EraLegacy {
				if got := harness.AnswersOf(t, m); got != `[{"result":{"action":"cancel"}}]` {
					t.Errorf("the upstream was answered %s, want that the person cancelled", got)
				}
			} else if m.Error == nil && harness.AnswersOf(t, m) != `[{"result":{"action":"cancel"}}]` {
				t.Errorf("got %s, want an error, or the answer that the person cancelled", m.Append(nil))
			}
			if status := c.Post(t,
				fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, asked[0].ID, harness.Accepted)); status/100 != 2 && status/100 != 4 {
				t.Errorf("an answer that comes too late = status %d", status)
			}
			c.Succeed(t, "up__echo", `{}`)
		})
	}
}

// TestParkedCallsAreBounded holds that the calls of one user which wait for answers
// cannot be as many as it likes.
func TestParkedCallsAreBounded(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "each process has limits.parked, so that one of them must get all requests")
	harness.EachTransport(t, client.EraModern, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Limits: proxy.Limits{Parked: 1},
				Members: 1}) // each member has this limit
		j.Offers(t, "up")
		c := j.Talk(t)
		q := harness.Asking(harness.AskForm)
		base := q.Params
		m := c.Begin(t, q).Answer(t)
		open := harness.Requested(t, m)
		if second := c.Begin(t, q).Answer(t); second.Error == nil &&
			harness.Member(second.Result, "resultType") == `"input_required"` {
			t.Errorf("got %s, want a second question refused", second.Append(nil))
		}
		q.Params = harness.Retried(base, m,
			string(raw.Quote(open[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))
		if got := harness.AnswersOf(t, c.Begin(t, q).Answer(t)); got != `[{`+harness.Accepted+`}]` {
			t.Errorf("the first call was answered %s", got)
		}
		q.Params = base
		harness.Requested(t, c.Begin(t, q).Answer(t)) // there is room again
	})
}

// TestUpstreamGivesUpItsQuestion has an upstream finish while its question is open: the result
// is there for the client that comes back.
func TestUpstreamGivesUpItsQuestion(t *testing.T) {
	harness.Waits(t)
	for _, tell := range []bool{false, true} {
		harness.EachTransport(t, client.EraModern, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c := j.Talk(t)
			q := harness.Called("up__ask", fmt.Sprintf(`{"giveUp":"now","tell":%t,"questions":[%s]}`, tell, harness.AskForm))
			base := q.Params
			m := c.Begin(t, q).Answer(t)
			open := harness.Requested(t, m)
			s.OpenGate(t, "now")
			harness.Await(t, s.Journal, "sign to give up", upstreamtest.Verb("GIVEUP")) // before that it would take the answer
			q.Params = harness.Retried(base, m,
				string(raw.Quote(open[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))
			m = c.Begin(t, q).Answer(t)
			if m.Error != nil || !strings.Contains(string(m.Result), "gave up") {
				t.Errorf("got %s, want the upstream's result", m.Append(nil))
			}
		})
	}
}

// TestTimeOfAQuestionDoesNotCount has a person take longer to answer than a call may be
// silent, and than it may take at all.
func TestTimeOfAQuestionDoesNotCount(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		harness.EachTimeout(t, 100*time.Millisecond, func(t *testing.T, timeout time.Duration) (late bool) {
			_, j := harness.Over(t, p, upstreamtest.Script{}, func(c *upstream.Config) {
				harness.Exactly(c)
				rule := upstream.Rule{Timeout: timeout, MaxTimeout: timeout * 3 / 2}
				c.Tools = upstream.Rules{{Glob: "ask", Rule: rule}, {Glob: "hang", Rule: rule}}
			})
			c, other := j.Talk(t), harness.TalkAs(t, j.URL, p.Client, "2025-11-25", `{}`)
			// The connections of both are there: else the call would fail while a process starts, and another limit
			// would have ended it.
			c.Succeed(t, "up__echo", `{}`)
			other.Succeed(t, "up__echo", `{}`)
			m, asked := c.Converse(t, harness.Asking(harness.AskForm, harness.AskRoots), func(q harness.ServerRequest) string {
				for range 2 { // meanwhile two calls of another client time out, one after the other
					harness.WantOwnError(t, other.Call(t, "up__hang", `{}`), "up", client.KindTimeout)
				}
				return harness.AnswersTo(q)
			})
			if m.Error != nil {
				harness.WantOwnError(t, m, "up", client.KindTimeout)
				return true
			}
			if len(asked) != 2 || harness.AnswersOf(t, m) != `[{`+harness.Accepted+`},{`+harness.Rooted+`}]` {
				t.Errorf("%d questions and %s", len(asked), m.Append(nil))
			}
			return false
		})
	})
}

func TestQuestionsComeOnTheStreamOfTheCall(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, harness.Exactly)
			c := j.Talk(t)
			listening := c.Get(t)
			a := c.Begin(t, harness.Asking(harness.AskForm, harness.AskRoots))
			seen := map[jsonrpc.ID]bool{}
			for range 2 {
				m, ok := a.Next(t)
				if !ok || !m.IsRequest() || seen[m.ID] {
					t.Fatalf("got %s, want a question with an id of its own", m.Append(nil))
				}
				seen[m.ID] = true
				c.Respond(t, m.ID, harness.AnswersTo(harness.ServerRequest{Method: m.Method}))
			}
			notes, m := a.All(t)
			if len(notes) > 0 || m.Error != nil || m.ID != jsonrpc.ID(a.ID) {
				t.Errorf("at the end %d notifications and %s, want one response", len(notes), m.Append(nil))
			}
			if harness.Member(m.Result, "resultType") != "" && harness.Member(m.Result, "resultType") != `"complete"` {
				t.Errorf("a legacy client got %s", m.Result)
			}
			listening.WantSilence(t)
			want := 1
			if p.Upstream == client.EraModern {
				want = 3 // the call, and two with answers
			}
			if n := len(harness.CallsOf(t, s.Journal, want)); n != want {
				t.Errorf("the upstream was called %d times, want %d", n, want)
			}
		})
	}
}

func TestErrorInPlaceOfAnAnswer(t *testing.T) {
	harness.Waits(t)
	const refused = `"error":{"code":-1,"message":"User rejected sampling request"}`
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c := j.Talk(t)
			m, _ := c.Converse(t, harness.Asking(harness.AskSampling), func(harness.ServerRequest) string { return refused })
			if p.Upstream == client.EraLegacy {
				if got := harness.AnswersOf(t, m); got != `[{`+refused+`}]` {
					t.Errorf("the upstream was answered %s, want %s", got, refused)
				}
			} else if m.Error == nil && harness.Member(m.Result, "isError") != "true" {
				t.Errorf("got %s, want an error", m.Append(nil))
			}
			if calls := harness.CallsOf(t, s.Journal, 1); len(calls) != 1 {
				t.Errorf("the upstream was called again: %s", calls[1].Body)
			}
			// A person who will not be asked has cancelled, for which there is a word.
			m, _ = c.Converse(t, harness.Asking(harness.AskForm),
				func(harness.ServerRequest) string { return `"error":{"code":-32602,"message":"no"}` })
			want := `[{"result":{"action":"cancel"}}]`
			if p.Upstream == client.EraLegacy {
				want = `[{"error":{"code":-32602,"message":"no"}}]`
			}
			if got := harness.AnswersOf(t, m); got != want {
				t.Errorf("the upstream was answered %s, want %s", got, want)
			}
		})
	}
}

func TestStateWithoutQuestionIsReturned(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraLegacy, client.EraModern, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		if got := harness.Member(c.Succeed(t, "up__ask", `{"state":"only","n":2}`), "structuredContent",
			"executions"); got != "1" {
			t.Errorf("the tool did its work %s times, want once", got)
		}
	})
}

func TestEndlessStateIsGivenUp(t *testing.T) {
	harness.Waits(t)
	if testing.Short() {
		t.Skip("the rounds are far apart, and not so few")
	}
	harness.RunPair(t, client.EraLegacy, client.EraModern, "http", func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		harness.WantOwnError(t, j.Talk(t).Call(t, "up__ask", `{"state":"only","endless":true}`), "up", client.KindInvalid)
		if n := len(harness.CallsOf(t, s.Journal, 1)); n < 3 || n > 20 {
			t.Errorf("the upstream was called %d times, want a few", n)
		}
	})
}

func TestEndlessQuestionsAreGivenUp(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraLegacy, client.EraModern, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		m, asked := j.Talk(t).Converse(t, harness.Called("up__ask", `{"endless":true,"questions":[`+harness.AskForm+`]}`),
			harness.AnswersTo)
		harness.WantOwnError(t, m, "up", client.KindInvalid)
		if len(asked) < 3 || len(asked) > 20 {
			t.Errorf("the client was asked %d times, want a few", len(asked))
		}
	})
}

func TestIncludeContextIsRemoved(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		for _, context := range []string{"thisServer", "allServers", "none"} {
			m, asked := c.Converse(t,
				harness.Asking(`{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1,"includeContext":"`+
					context+`","tools":[{"name":"search","inputSchema":{}}]}}`), harness.AnswersTo)
			if m.Error != nil || len(asked) != 1 {
				t.Fatalf("%d questions and %s", len(asked), m.Append(nil))
			}
			if got := harness.Member(asked[0].Params, "includeContext"); got != "" && got != `"none"` {
				t.Errorf("includeContext %s reached the client as %s", context, got)
			}
			if got := harness.Member(asked[0].Params, "tools"); got != `[{"name":"search","inputSchema":{}}]` {
				t.Errorf("the tools of the question reached the client as %s", got)
			}
		}
	})
}
