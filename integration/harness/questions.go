package harness

import (
	"strings"
	"testing"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// AnswersOf returns what the tool ask says it was answered.
func AnswersOf(t *testing.T, m jsonrpc.Message) string {
	t.Helper()
	if m.Error != nil {
		t.Fatalf("got an error %v %s, want answers", m.Error, m.Error.Data)
	}
	return Member(m.Result, "structuredContent", "answers")
}

// The server requests that the tool ask of package upstreamtest can make, and the answers of AnswersTo.
const (
	AskForm = `{"method":"elicitation/create","params":{"message":"Name?","requestedSchema":{"type":"object",` +
		`"properties":{"n":{"type":"string","x-odd":1.0}},"required":[ "n"]}}}`
	AskSampling = `{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text",` +
		`"text":"é"}}],"maxTokens":10,"x":[1E2]}}`
	AskRoots = `{"method":"roots/list"}`
	Accepted = `"result":{"action":"accept","content":{"n":"Ada \u00e9","k":1.0}}`
	Sampled  = `"result":{"role":"assistant","content":{"type":"text","text":"yes"},"model":"m","stopReason":"endTurn"}`
	Rooted   = `"result":{"roots":[{"uri":"file:///home","name":"h"}]}`
)

// AnswersTo answers every kind of question.
func AnswersTo(p ServerRequest) string {
	return map[string]string{"elicitation/create": Accepted, "sampling/createMessage": Sampled,
		"roots/list": Rooted}[p.Method]
}

// Asking is a call of the tool that asks.
func Asking(questions ...string) Query {
	return Called("up__ask", `{"questions":[`+strings.Join(questions, ",")+`]}`)
}

// WithTasks are the capabilities of a client that knows tasks.
const WithTasks = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// BeginTask calls a tool that becomes a task, and returns its id.
func BeginTask(t *testing.T, c *Talker, q Query) (id string) {
	t.Helper()
	m := c.Begin(t, q).Answer(t)
	if m.Error != nil || Member(m.Result, "resultType") != `"task"` {
		t.Fatalf("%s is answered %s, want a task", q.Params, m.Append(nil))
	}
	return Text(t, m.Result, "taskId")
}

// Task asks after a task until its status is another than that, and returns the result.
func (c *Talker) Task(t *testing.T, id, unlike string) []byte {
	t.Helper()
	for ctx := Patient(t); ; {
		result := c.Must(t, "tasks/get", `"taskId":`+string(raw.Quote(id)))
		if Text(t, result, "status") != unlike {
			return result
		}
		if ctx.Err() != nil {
			t.Fatalf("the task stays %s", result)
		}
	}
}
