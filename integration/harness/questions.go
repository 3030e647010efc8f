package harness

import (
	"strings"
	"testing"

	"junction/upstream/jsonrpc"
)

// AnswersOf returns what the tool ask says it was answered.
func AnswersOf(t *testing.T, m jsonrpc.Message) string {
	t.Helper()
	if m.Error != nil {
		t.Fatalf("got an error %v %s, want answers", m.Error, m.Error.Data)
	}
	return Member(m.Result, "structuredContent", "answers")
}

const (
	AskForm     = `{"method":"elicitation/create","params":{"message":"Name?","requestedSchema":{"type":"object","properties":{"n":{"type":"string","x-odd":1.0}},"required":[ "n"]}}}`
	AskSampling = `{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"é"}}],"maxTokens":10,"x":[1E2]}}`
	AskRoots    = `{"method":"roots/list"}`
	Accepted    = `"result":{"action":"accept","content":{"n":"Ada \u00e9","k":1.0}}`
	Sampled     = `"result":{"role":"assistant","content":{"type":"text","text":"yes"},"model":"m","stopReason":"endTurn"}`
	Rooted      = `"result":{"roots":[{"uri":"file:///home","name":"h"}]}`
)

// AnswersTo answers every kind of question.
func AnswersTo(p ServerRequest) string {
	return map[string]string{"elicitation/create": Accepted, "sampling/createMessage": Sampled, "roots/list": Rooted}[p.Method]
}

// Asking is a call of the tool that asks.
func Asking(questions ...string) Query {
	return Called("up__ask", `{"questions":[`+strings.Join(questions, ",")+`]}`)
}
