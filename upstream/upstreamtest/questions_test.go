package upstreamtest_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"junction/upstream/upstreamtest"
)

// able is a handshake of a client that can be asked.
const able = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{},"url":{}},"roots":{}},"clientInfo":{"name":"t"}}}`

func ableClient(t *testing.T, script upstreamtest.Script) (*upstreamtest.Server, *pipe) {
	t.Helper()
	s, p, _ := stdio(t, script)
	p.send(able)
	if _, err := p.out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s, p
}

func structured(id int, v string) string {
	quoted, _ := json.Marshal(v)
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%s}],"structuredContent":%s}}`, id, quoted, v)
}

const twoQuestions = `"questions":[{"method":"elicitation/create","params":{"message":"1"}},{"method":"elicitation/create","params":{"message":"2"}}]`

func TestLegacyQuestions(t *testing.T) {
	s, p := ableClient(t, upstreamtest.Script{})
	asked := func(n int, message string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":"ask-%d","method":"elicitation/create","params":{"message":"%s"}}`, n, message)
	}
	p.send(call(`1`, "ask", `{`+twoQuestions+`}`))
	p.want(asked(2, "1"))
	p.send(`{"jsonrpc":"2.0","id":"ask-2","result":{"action":"accept"}}`)
	p.want(asked(3, "2"))
	p.send(`{"jsonrpc":"2.0","id":"ask-3","error":{"code":-1,"message":"no"}}`)
	p.want(structured(1, `{"answers":[{"result":{"action":"accept"}},{"error":{"code":-1,"message":"no"}}],"executions":1}`))

	p.send(call(`2`, "ask", `{"together":true,`+twoQuestions+`}`))
	p.want(asked(4, "1"), asked(5, "2"))
	p.send(`{"jsonrpc":"2.0","id":"ask-5","result":{"n":2}}`, `{"jsonrpc":"2.0","id":"ask-4","result":{"n":1}}`)
	p.want(structured(2, `{"answers":[{"result":{"n":1}},{"result":{"n":2}}],"executions":2}`))

	p.send(call(`3`, "ask", `{"method":"sampling/createMessage"}`))
	p.want(text(`3`, "the client cannot be asked"))

	p.send(call(`4`, "ask", `{"giveUp":"g","tell":true,`+twoQuestions+`}`))
	p.want(asked(6, "1"))
	s.Release("g")
	p.want(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"ask-6","reason":"gave up"}}`, text(`4`, "gave up"))

	p.send(call(`5`, "url", `{"gate":"signed in"}`))
	p.want(`{"jsonrpc":"2.0","id":5,"error":{"code":-32042,"message":"This request requires more information.","data":{"elicitations":` +
		`[{"mode":"url","elicitationId":"e-1","url":"https://example.com/e-1","message":"Sign in"}]}}}`)
	s.Release("signed in")
	p.send(call(`6`, "url", `{"gate":"signed in"}`))
	p.want(structured(6, `{"executions":5}`))

	p.send(call(`7`, "capabilities", `{}`))
	p.want(structured(7, `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{},"url":{}},"roots":{}},"clientInfo":{"name":"t"}}`))
}

func TestLegacyServerAsksOfItself(t *testing.T) {
	_, p := ableClient(t, upstreamtest.Script{AsksRoots: true, Tools: []json.RawMessage{}, AsksDuring: map[string]upstreamtest.Question{"tools/list": {Method: "roots/list"}}})
	p.want(`{"jsonrpc":"2.0","id":"ask-2","method":"roots/list"}`)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	p.want(`{"jsonrpc":"2.0","id":"ask-3","method":"roots/list"}`)
	p.send(`{"jsonrpc":"2.0","id":"ask-3","error":{"code":-32602,"message":"no"}}`)
	p.want(`{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`)
}

// TestModernQuestions has the rounds of calls, whose requestState has to come back as it was.
func TestModernQuestions(t *testing.T) {
	_, p, _ := stdio(t, upstreamtest.Script{Era: "modern"})
	const able = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}`
	id := 0
	ask := func(arguments, retry, want string) {
		t.Helper()
		id++
		p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"ask","arguments":{%s}%s,%s}}`, id, arguments, retry, able))
		p.want(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, id, want))
	}
	const (
		state = "what the server wants to see again"
		own   = `"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"upstreamtest","version":"1.0.0"}}}`
		q1    = `"q1":{"method":"elicitation/create","params":{"message":"1"}}`
		q2    = `"q2":{"method":"elicitation/create","params":{"message":"2"}}`
		wrong = `"error":{"code":-32602,"message":"the requestState is not mine"}`
	)
	required := func(requests, state string) string {
		if requests != "" {
			requests = `,"inputRequests":{` + requests + `}`
		}
		if state != "" {
			quoted, _ := json.Marshal(state)
			state = `,"requestState":` + string(quoted)
		}
		return `"result":{"resultType":"input_required"` + requests + state + `}`
	}
	done := func(v string) string {
		quoted, _ := json.Marshal(v)
		return `"result":{"content":[{"type":"text","text":` + string(quoted) + `}],"structuredContent":` + v + `,` + own
	}
	ask(twoQuestions, ``, required(q1, state))
	ask(twoQuestions, `,"inputResponses":{"q1":{"n":1.0}},"requestState":"`+state+`"`, required(q2, state+` 0 0 [{"result":{"n":1.0}},null]`))
	ask(twoQuestions, `,"inputResponses":{"q2":{"n":2}},"requestState":"`+state+` 0 0 [{\"result\":{\"n\":1.0}},null]"`,
		done(`{"answers":[{"result":{"n":1.0}},{"result":{"n":2}}],"executions":1}`))
	ask(twoQuestions, `,"inputResponses":{"q1":{}},"requestState":"`+state+` "`, wrong)
	ask(twoQuestions, `,"inputResponses":{"q1":{}}`, wrong)
	ask(twoQuestions, `,"inputResponses":{"q1":{}},"requestState":"else"`, wrong)

	ask(`"together":true,`+twoQuestions, ``, required(q1+","+q2, state))
	ask(`"together":true,`+twoQuestions, `,"inputResponses":{"q2":{},"odd":{}},"requestState":"`+state+`"`, required(q1, state+` 0 0 [null,{"result":{}}]`))

	ask(`"state":"none",`+twoQuestions, ``, required(q1, ""))
	ask(`"state":"none",`+twoQuestions, `,"inputResponses":{"q1":{}}`, required(q2, ""))
	ask(`"state":"none",`+twoQuestions, `,"inputResponses":{"q2":{}}`, done(`{"answers":[null,{"result":{}}],"executions":2}`))
	ask(`"state":"none",`+twoQuestions, `,"inputResponses":{"q1":{}},"requestState":"x"`, `"error":{"code":-32602,"message":"a requestState although none was given"}`)

	ask(`"state":"only","n":1`, ``, required("", state+` 1 0 [null]`))
	ask(`"state":"only","n":1,"result":{"a": 1}`, `,"requestState":"`+state+` 1 0 [null]"`, `"result":{"a": 1}`)

	ask(`"endless":true,"questions":[{"key":"k","method":"elicitation/create"}]`, `,"inputResponses":{"k":{}},"requestState":"`+state+`"`,
		required(`"k":{"method":"elicitation/create"}`, state+` 0 1 [null]`))
	ask(`"method":"roots/list"`, ``, `"error":{"code":-32021,"message":"Missing required client capability","data":{"requiredCapabilities":{"roots":{}}}}`)
	ask(`"method":"elicitation/create","params":{"mode":"url"}`, ``, `"error":{"code":-32021,"message":"Missing required client capability","data":{"requiredCapabilities":{"elicitation":{"url":{}}}}}`)
}

func TestPromptAsks(t *testing.T) {
	script := upstreamtest.Script{Prompts: []json.RawMessage{}, Instead: map[string]json.RawMessage{"p": []byte(`{"do":"ask","method":"elicitation/create"}`)}}
	_, p := ableClient(t, script)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p"}}`)
	p.want(`{"jsonrpc":"2.0","id":"ask-2","method":"elicitation/create"}`)
	p.send(`{"jsonrpc":"2.0","id":"ask-2","result":{}}`)
	p.want(`{"jsonrpc":"2.0","id":1,"result":{"messages":[{"role":"user","content":{"type":"text","text":"{\"answers\":[{\"result\":{}}],\"executions\":1}"}}]}}`)
}

func TestLegacyTasks(t *testing.T) {
	s, p := ableClient(t, upstreamtest.Script{Tasks: true, Tools: []json.RawMessage{[]byte(`{"name":"report","execution":{"taskSupport":"required"}}`)}})
	const task = `{"taskId":"task/2","status":"%s","createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttl":60000,"pollInterval":10}`
	const arguments = `{"do":"task","gate":"g","questions":[{"method":"elicitation/create","params":{"message":"1"}}]}`
	status := func(s string) string {
		return `{"jsonrpc":"2.0","method":"notifications/tasks/status","params":` + fmt.Sprintf(task, s) + `}`
	}
	p.send(call(`1`, "report", arguments))
	p.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"The tool is called as a task"}}`)
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"report","arguments":` + arguments + `,"task":{"ttl":5}}}`)
	p.want(`{"jsonrpc":"2.0","id":2,"result":{"task":` + fmt.Sprintf(task, "working") + `,"_meta":{"sent":{"ttl":5}}}}`)
	s.Release("g")
	p.want(status("input_required"))
	p.send(`{"jsonrpc":"2.0","id":3,"method":"tasks/result","params":{"taskId":"task/2"}}`)
	p.want(`{"jsonrpc":"2.0","id":"ask-3","method":"elicitation/create","params":{"message":"1","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"task/2"}}}}`)
	p.send(`{"jsonrpc":"2.0","id":"ask-3","result":{}}`)
	const v = `{\"answers\":[{\"result\":{}}],\"executions\":1}`
	p.wantAny(status("completed"), `{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"`+v+`"}],"structuredContent":{"answers":[{"result":{}}],"executions":1},`+
		`"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"task/2"}}}}`)
	p.send(`{"jsonrpc":"2.0","id":4,"method":"tasks/cancel","params":{"taskId":"task/2"}}`)
	p.want(`{"jsonrpc":"2.0","id":4,"error":{"code":-32602,"message":"The task has ended"}}`)
}

func TestModernTasks(t *testing.T) {
	s, p, _ := stdio(t, upstreamtest.Script{Era: "modern", Tasks: true})
	const (
		able  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
		lacks = `"error":{"code":-32021,"message":"Missing required client capability","data":{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}`
		own   = `"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"upstreamtest","version":"1.0.0"}}}}`
		times = `"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","ttlMs":60000,"pollIntervalMs":10`
		tag   = `"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}`
		ask   = `"inputRequests":{"q1":{"method":"elicitation/create","params":{"message":"1"}}}`
	)
	p.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"task","arguments":{"gate":"g","questions":[{"method":"elicitation/create","params":{"message":"1"}}]},` + able + `}}`)
	p.want(`{"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"task/2","status":"working",` + times + `}}`)
	p.send(`{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"taskId":"task/2",` + meta + `}}`)
	p.want(`{"jsonrpc":"2.0","id":2,` + lacks)
	p.send(`{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":{"notifications":{"taskIds":["task/2"]},` + able + `}}`)
	p.want(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"taskIds":["task/2"]},` + tag)
	s.Release("g")
	p.want(`{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"task/2","status":"input_required",` + times + `,` + ask + `,` + tag)
	p.send(`{"jsonrpc":"2.0","id":3,"method":"tasks/get","params":{"taskId":"task/2",` + able + `}}`)
	p.want(`{"jsonrpc":"2.0","id":3,"result":{"taskId":"task/2","status":"input_required",` + times + `,` + ask + `,` + own)
	p.send(`{"jsonrpc":"2.0","id":4,"method":"tasks/update","params":{"taskId":"task/2","inputResponses":{"q1":{"n":1}},` + able + `}}`)
	const result = `"result":{"content":[{"type":"text","text":"{\"answers\":[{\"result\":{\"n\":1}}],\"executions\":1}"}],"structuredContent":{"answers":[{"result":{"n":1}}],"executions":1}}`
	p.wantAny(`{"jsonrpc":"2.0","id":4,"result":{`+own, `{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"task/2","status":"completed",`+times+`,`+result+`,`+tag)
	p.send(`{"jsonrpc":"2.0","id":5,"method":"tasks/get","params":{"taskId":"task/2",` + able + `}}`)
	p.want(`{"jsonrpc":"2.0","id":5,"result":{"taskId":"task/2","status":"completed",` + times + `,` + result + `,` + own)
	p.send(`{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"task","arguments":{"required":true},` + meta + `}}`)
	p.want(`{"jsonrpc":"2.0","id":6,` + lacks)
	p.send(`{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{"taskId":"task/9",` + able + `}}`)
	p.want(`{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"Unknown task"}}`)
}
