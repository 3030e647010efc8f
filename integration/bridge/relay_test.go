package bridge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// What goes beside a question: that it is taken back, how far the answer is, that roots have
// changed; and answers of upstreams that are none.

// TestProtocolRelayProgressOfAnAnswer has a client tell how far it is with an answer: an upstream
// of its own era hears it under its own token.
func TestProtocolRelayProgressOfAnAnswer(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraLegacy, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		a := c.Begin(t, harness.Asking(strings.Replace(harness.AskSampling, `"maxTokens"`,
			`"_meta":{"progressToken":"of the server","k":1.0},"maxTokens"`, 1)))
		question, _ := a.Next(t)
		token := harness.Member(question.Params, "_meta", "progressToken")
		if token == "" || harness.Member(question.Params, "_meta", "k") != "1.0" {
			t.Fatalf("the question is %s, want a token and all else in _meta", question.Append(nil))
		}
		c.Notify(t, "notifications/progress", `"progressToken":"nobody's","progress":1`)
		c.Notify(t, "notifications/progress", `"progressToken":`+token+`,"progress":2,"message":"é"`)
		r := harness.Await(t, s.Journal, "progress", upstreamtest.Method("notifications/progress"))
		harness.WantJSON(t, "progress", r.Message.Params, `{"progressToken":"of the server","progress":2,"message":"é"}`)
		c.Respond(t, question.ID, harness.Sampled)
		if got := harness.AnswersOf(t, a.Answer(t)); got != `[{`+harness.Sampled+`}]` {
			t.Errorf("answers = %s", got)
		}
	})
}

func TestProtocolRelayRootsHaveChanged(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, harness.Exactly)
			c := harness.TalkAs(t, j.URL, p.Client, "2025-11-25", `{"roots":{"listChanged":true}}`)
			c.Succeed(t, "up__echo", `{}`)
			c.Notify(t, "notifications/roots/list_changed", ``)
			if p.Upstream == client.EraLegacy {
				harness.Await(t, s.Journal, "change of the roots", upstreamtest.Method("notifications/roots/list_changed"))
			}
			c.Succeed(t, "up__echo", `{}`)
			if n := len(s.RequestsOf(t, "notifications/roots/list_changed", 0)); p.Upstream == client.EraModern && n > 0 {
				t.Errorf("a modern upstream heard %d times of a change", n)
			}
		})
	}
}

// TestProtocolRelaySessionEndsWithAQuestionOpen has the client delete its session: the upstream is
// told that the call is over.
func TestProtocolRelaySessionEndsWithAQuestionOpen(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c := j.Talk(t)
			a := c.Begin(t, harness.Called("up__ask", `{"endless":true,"questions":[`+harness.AskForm+`]}`))
			if m, ok := a.Next(t); !ok || m.Method != "elicitation/create" {
				t.Fatalf("got %s, want a question", m.Append(nil))
			}
			if status := harness.Deleted(t, c); status/100 != 2 {
				t.Fatalf("DELETE = status %d", status)
			}
			if p.Upstream == client.EraLegacy {
				cancelled(t, s, p, harness.CallsOf(t, s.Journal, 1)[0])
			}
			for {
				m, ok := a.Next(t)
				if !ok {
					break
				}
				if m.IsRequest() || m.IsResponse() && m.Error == nil {
					t.Errorf("after the end of the session came %s", m.Append(nil))
				}
			}
		})
	}
}

// TestProtocolRelayAnswersThatAreNone has a modern server answer with what 2026-07-28 does not
// know: no client takes it for a result, and no person is asked anything.
func TestProtocolRelayAnswersThatAreNone(t *testing.T) {
	harness.Waits(t)
	for what, result := range map[string]string{
		"unknown type":          `{"resultType":"weird","content":[]}`,
		"neither":               `{"resultType":"input_required"}`,
		"requests are a list":   `{"resultType":"input_required","inputRequests":[]}`,
		"request is a text":     `{"resultType":"input_required","inputRequests":{"a":"elicitation/create"}}`,
		"request has no method": `{"resultType":"input_required","inputRequests":{"a":{"params":{}}}}`,
		"request is unknown": `{"resultType":"input_required","inputRequests":{"a":{"method":"tools/call",` +
			`"params":{"name":"up__echo"}}}}`,
		"params are a list": `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create",` +
			`"params":[]}}}`,
		"mode is unknown": `{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create",` +
			`"params":{"mode":"voice","message":"m"}}}}`,
		"method twice": `{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list",` +
			`"method":"elicitation/create"}}}`,
		"task unasked": `{"resultType":"task","taskId":"t","status":"working","createdAt":"","lastUpdatedAt":"","ttlMs":null}`,
		"no object":    `[]`,
	} {
		t.Run(what, func(t *testing.T) {
			for _, clientEra := range harness.Eras {
				harness.RunPair(t, clientEra, client.EraModern, "http", func(t *testing.T, p harness.Pair) {
					s, j := harness.Over(t, p,
						upstreamtest.Script{Rules: []upstreamtest.Rule{{Method: "tools/call", Times: 1,
							Result: json.RawMessage(result)}}}, nil)
					c := j.Talk(t)
					notes, m := c.Begin(t, harness.Called("up__echo", `{}`)).All(t)
					for _, n := range notes {
						t.Errorf("the client got %s", n.Append(nil))
					}
					// which is what a question is that cannot be put
					if m.Error == nil || !strings.Contains(string(m.Error.Data), `"kind":"unanswered"`) {
						harness.WantOwnError(t, m, "up", client.KindInvalid)
					}
					if n := len(harness.CallsOf(t, s.Journal, 1)); n != 1 {
						t.Errorf("the upstream was called %d times, want once", n)
					}
					c.Succeed(t, "up__echo", `{}`)
				})
			}
		})
	}
}

// TestProtocolRelayStrangeAnswersOfAClient has a legacy client answer what nobody asked, and answer
// twice.
func TestProtocolRelayStrangeAnswersOfAClient(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			_, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c, other := j.Talk(t), j.Talk(t)
			a := c.Begin(t, harness.Asking(harness.AskForm))
			question, ok := a.Next(t)
			if !ok || !question.IsRequest() {
				t.Fatalf("got %s, want a question", question.Append(nil))
			}
			const forged = `"result":{"action":"accept","content":{"n":"forged"}}`
			other.Post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, question.ID, forged)) // of another session
			c.Post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":"nobody's",%s}`, forged))
			c.Post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s}`, question.ID))
			c.Respond(t, question.ID, harness.Accepted)
			c.Post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, question.ID, forged))
			if got := harness.AnswersOf(t, a.Answer(t)); got != `[{`+harness.Accepted+`}]` {
				t.Errorf("answers = %s, want %s", got, harness.Accepted)
			}
		})
	}
}

func TestProtocolRelayQuestionTakenBack(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraLegacy, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
		c := j.Talk(t)
		a := c.Begin(t, harness.Called("up__ask", `{"giveUp":"now","tell":true,"questions":[`+harness.AskForm+`]}`))
		question, ok := a.Next(t)
		if !ok || question.Method != "elicitation/create" {
			t.Fatalf("got %s, want a question", question.Append(nil))
		}
		s.OpenGate(t, "now")
		notes, m := a.All(t)
		if m.Error != nil || !strings.Contains(string(m.Result), "gave up") {
			t.Errorf("got %s, want the upstream's result", m.Append(nil))
		}
		if len(notes) != 1 || notes[0].Method != "notifications/cancelled" ||
			harness.Member(notes[0].Params, "requestId") != string(question.ID) {
			t.Errorf("%d notifications, want that question %s is taken back", len(notes), question.ID)
		}
		if status := c.Post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, question.ID, harness.Accepted)); status/100 != 2 &&
			status/100 != 4 {
			t.Errorf("the answer that comes too late = status %d", status)
		}
		c.Succeed(t, "up__echo", `{}`)
		for _, r := range s.Received() {
			if r.Body != nil && r.Message.IsResponse() {
				t.Errorf("the upstream was answered %s although it has taken the question back", r.Body)
			}
		}
	})
}

// TestProtocolRelayMalformedResults are results of which a member has a type that it cannot have.
func TestProtocolRelayMalformedResults(t *testing.T) {
	harness.Waits(t)
	for what, result := range map[string]string{
		"type is no string":  `{"resultType":7,"content":[]}`,
		"state is an object": `{"resultType":"input_required","inputRequests":{},"requestState":{}}`,
	} {
		t.Run(what, func(t *testing.T) {
			for _, clientEra := range harness.Eras {
				harness.RunPair(t, clientEra, client.EraModern, "http", func(t *testing.T, p harness.Pair) {
					_, j := harness.Over(t, p,
						upstreamtest.Script{Rules: []upstreamtest.Rule{{Method: "tools/call", Times: 1, Result: []byte(result)}}}, nil)
					harness.WantOwnError(t, j.Talk(t).Call(t, "up__echo", `{}`), "up", client.KindInvalid)
				})
			}
		})
	}
}
