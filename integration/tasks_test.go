package integration

import (
	"encoding/json"
	"strings"
	"testing"

	"junction/upstream"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// Tasks: the extension io.modelcontextprotocol/tasks between modern peers (T109), and the tasks of
// a legacy server, which we wait for (protocol.md §3.A row 23).

const withTasks = `{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`

// tasking talks to a junction over one upstream with tasks, as a client that knows them.
func tasking(t *testing.T, p pair, script upstreamtest.Script) (*served, *junction, *talker) {
	t.Helper()
	script.Tasks = true
	s, j := over(t, p, script, nil)
	return s, j, talkAs(t, j.url, p.client, "2025-11-25", withTasks)
}

// begun calls a tool that becomes a task, and returns its id.
func begun(t *testing.T, c *talker, q query) (id string) {
	t.Helper()
	m := c.begin(t, q).answer(t)
	if m.Error != nil || member(m.Result, "resultType") != `"task"` {
		t.Fatalf("%s is answered %s, want a task", q.params, m.Append(nil))
	}
	return text(t, m.Result, "taskId")
}

// task asks after a task until its status is another than that, and returns the result.
func (c *talker) task(t *testing.T, id, unlike string) []byte {
	t.Helper()
	for ctx := patient(t); ; {
		result := c.must(t, "tasks/get", `"taskId":`+string(raw.Quote(id)))
		if text(t, result, "status") != unlike {
			return result
		}
		if ctx.Err() != nil {
			t.Fatalf("the task stays %s", result)
		}
	}
}

func TestProtocolT109TaskFromBeginningToEnd(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraModern, ""}, func(t *testing.T, p pair) {
		s, _, c := tasking(t, p, upstreamtest.Script{})
		const link = `"content":[{"type":"resource_link","uri":"file:///r","name":"r"}]`
		id := begun(t, c, called("up__task", `{"gate":"g","questions":[`+askForm+`],"result":{`+link+`,"x":1.0}}`))
		if strings.HasPrefix(id, "task/") {
			t.Errorf("the client got the upstream's own id %s", id)
		}
		working := c.must(t, "tasks/get", `"taskId":`+string(raw.Quote(id)))
		if text(t, working, "taskId") != id || text(t, working, "resultType") != "complete" || member(working, "ttlMs") != "60000" || member(working, "pollIntervalMs") != "10" {
			t.Errorf("tasks/get = %s", working)
		}
		s.openGate(t, "g")
		asks := c.task(t, id, "working")
		requests, err := raw.Get(asks, "inputRequests", "q1", "params")
		if err != nil || text(t, asks, "status") != "input_required" {
			t.Fatalf("tasks/get = %s, want a question", asks)
		}
		wantJSON(t, "question", requests, strings.Replace(member([]byte(askForm), "params"), `"message":"`, `"message":"[up] `, 1))
		updated := c.must(t, "tasks/update", `"taskId":`+string(raw.Quote(id))+`,"inputResponses":{"q1":`+strings.TrimPrefix(accepted, `"result":`)+`}`)
		if text(t, updated, "resultType") != "complete" {
			t.Errorf("tasks/update = %s, want an acknowledgement", updated)
		}
		await(t, s.Journal, "tasks/update", func(r upstreamtest.Record) bool {
			return upstreamtest.Method("tasks/update")(r) && member(r.Message.Params, "inputResponses") == `{"q1":`+strings.TrimPrefix(accepted, `"result":`)+`}`
		})
		done := c.task(t, id, "input_required")
		if text(t, done, "status") != "completed" || member(done, "result") != `{"content":[{"type":"resource_link","uri":"mcp://up/file:///r","name":"r"}],"x":1.0}` || text(t, done, "taskId") != id {
			t.Errorf("tasks/get = %s, want the result with a URI of ours", done)
		}
		for _, r := range s.requestsOf(t, "tasks/get", 2) {
			if got := text(t, r.Message.Params, "taskId"); !strings.HasPrefix(got, "task/") || p.wire == "http" && r.Header.Get("Mcp-Name") != got {
				t.Errorf("the upstream was asked after %s with Mcp-Name %q, want its own id in both", got, r.Header.Get("Mcp-Name"))
			}
		}
	})
}

func TestProtocolT109TaskThatFailsOrIsCancelled(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraModern, ""}, func(t *testing.T, p pair) {
		s, _, c := tasking(t, p, upstreamtest.Script{})
		failed := c.task(t, begun(t, c, called("up__task", `{"error":{"code":7,"message":"no","data":{"n":1.0}}}`)), "working")
		if text(t, failed, "status") != "failed" || member(failed, "error") != `{"code":7,"message":"no","data":{"n":1.0}}` {
			t.Errorf("tasks/get = %s", failed)
		}
		refused := c.task(t, begun(t, c, called("up__task", `{"result":{"content":[],"isError":true}}`)), "working")
		if text(t, refused, "status") != "completed" || member(refused, "result", "isError") != "true" {
			t.Errorf("tasks/get = %s, want a result of the tool's", refused)
		}
		id := begun(t, c, called("up__task", `{"gate":"never"}`))
		if got := c.must(t, "tasks/cancel", `"taskId":`+string(raw.Quote(id))); text(t, got, "resultType") != "complete" {
			t.Errorf("tasks/cancel = %s, want an acknowledgement", got)
		}
		if got := c.task(t, id, "working"); text(t, got, "status") != "cancelled" {
			t.Errorf("tasks/get = %s, want it cancelled", got)
		}
		if n := len(s.requestsOf(t, "tasks/cancel", 1)); n != 1 {
			t.Errorf("the upstream got %d tasks/cancel, want 1", n)
		}
	})
}

func TestProtocolT109OnlyWhoDeclares(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraModern, ""}, func(t *testing.T, p pair) {
		s, j, c := tasking(t, p, upstreamtest.Script{})
		id := begun(t, c, called("up__task", `{"gate":"never"}`))
		simple := talkAs(t, j.url, p.client, "", `{"elicitation":{}}`)
		before := len(s.requestsOf(t, "tasks/get", 0))
		for _, q := range []query{
			{method: "tasks/get", params: `"taskId":` + string(raw.Quote(id))}, {method: "tasks/cancel", params: `"taskId":` + string(raw.Quote(id))},
			{method: "tasks/update", params: `"taskId":` + string(raw.Quote(id)) + `,"inputResponses":{}`},
		} {
			a := simple.begin(t, q)
			m := a.answer(t)
			if wantCode(t, m, -32021); a.status != 400 || m.Error == nil {
				t.Fatalf("%s: status %d, want 400", q.method, a.status)
			}
			wantJSON(t, "data", m.Error.Data, `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`)
		}
		if got := member(simple.succeed(t, "up__task", `{}`), "structuredContent", "executions"); got != "1" {
			t.Errorf("a client without tasks got the executions %q, want the result at once", got)
		}
		a := simple.begin(t, called("up__task", `{"required":true}`))
		if m := a.answer(t); a.status != 400 {
			t.Errorf("status %d and %s of a tool that needs tasks, want 400", a.status, m.Append(nil))
		}
		if n := len(s.requestsOf(t, "tasks/get", 0)) - before; n > 0 {
			t.Errorf("the upstream was asked after the task %d times", n)
		}
		for _, method := range []string{"tasks/list", "tasks/result"} {
			a := c.begin(t, query{method: method, params: `"taskId":` + string(raw.Quote(id))})
			if wantCode(t, a.answer(t), -32601); a.status != 404 {
				t.Errorf("%s: status %d, want 404", method, a.status)
			}
		}
	})
}

func TestProtocolT109IdIsOursAlone(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraModern, ""}, func(t *testing.T, p pair) {
		s, j, c := tasking(t, p, upstreamtest.Script{})
		id := begun(t, c, called("up__task", `{"gate":"never"}`))
		other := p.serve(t, upstreamtest.Script{Tasks: true})
		theirs := start(t, p, world{upstreams: map[string]upstream.Config{"up": other.config}, crowded: true})
		theirs.offers(t, "up")
		foreign := begun(t, talkAs(t, theirs.url, p.client, "", withTasks), called("up__task", `{"gate":"never"}`))
		before := len(s.requestsOf(t, "tasks/get", 0))
		bare := talkAs(t, j.url+"/up", p.client, "", withTasks)
		for what, row := range map[string]struct {
			c  *talker
			id string
		}{
			"the upstream's own": {c, "task/2"}, "another's": {c, foreign}, "cut": {c, id[:len(id)-1]}, "longer": {c, id + "A"}, "empty": {c, ""}, "of another endpoint": {bare, id},
		} {
			t.Run(what, func(t *testing.T) {
				for _, method := range []string{"tasks/get", "tasks/cancel"} {
					wantCode(t, row.c.ask(t, method, `"taskId":`+string(raw.Quote(row.id))), -32602)
				}
			})
		}
		q := query{method: "tasks/get", params: `"taskId":` + string(raw.Quote(id)), header: map[string][]string{"Mcp-Name": {foreign}}}
		a := c.begin(t, q)
		if wantCode(t, a.answer(t), -32020); a.status != 400 {
			t.Errorf("with the name of another task: status %d, want 400", a.status)
		}
		if n := len(s.requestsOf(t, "tasks/get", 0)) - before; n > 0 {
			t.Errorf("the upstream was asked %d times for what is not its task", n)
		}
		if got := c.must(t, "tasks/get", `"taskId":`+string(raw.Quote(id))); text(t, got, "status") != "working" {
			t.Errorf("the task is none the worse: %s", got)
		}
	})
}

// TestProtocolRow19LegacyClientsGetNoTask holds that a client of the legacy era never sees a task
// of the extension, and that what it says of its own is for nobody.
func TestProtocolRow19LegacyClientsGetNoTask(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraLegacy, up, ""}, func(t *testing.T, p pair) {
			s, _, c := tasking(t, p, upstreamtest.Script{})
			q := called("up__task", `{"questions":[`+askForm+`]}`)
			q.params += `,"task":{"ttl":1}`
			m, asked := c.converse(t, q, answersTo)
			if len(asked) != 1 || answersOf(t, m) != `[{`+accepted+`}]` {
				t.Errorf("%d questions and %s, want the result", len(asked), m.Append(nil))
			}
			if got := member(callsOf(t, s.Journal, 1)[0].Message.Params, "task"); got != "" && p.upstream == upstream.EraModern {
				t.Errorf("the upstream got the client's task %s", got)
			}
			wantCode(t, c.ask(t, "tasks/get", `"taskId":"task/1"`), -32601)
		})
	}
}

// onlyTask is a tool of 2025-11-25 that can be called as a task only.
var onlyTask = []json.RawMessage{[]byte(`{"name":"report","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}`), []byte(`{"name":"echo","inputSchema":{"type":"object"}}`)}

func TestProtocolRow23TasksOfALegacyServer(t *testing.T) {
	for _, client := range eras {
		eachWire(t, pair{client, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{Tasks: true, Tools: onlyTask}, nil)
			c := j.talk(t)
			result := func(members string) string { return `{"do":"task",` + members + `}` }
			got := c.succeed(t, "up__report", result(`"result":{"content":[{"type":"resource_link","uri":"file:///r","name":"r"}],"x":1.0}`))
			if list := member(got, "content"); list != `[{"type":"resource_link","uri":"mcp://up/file:///r","name":"r"}]` || member(got, "x") != "1.0" {
				t.Errorf("result = %s", got)
			}
			if taskID := member(got, "_meta", "io.modelcontextprotocol/related-task"); taskID != "" {
				t.Errorf("the client got the task of another hop: %s", got)
			}
			m := c.call(t, "up__report", result(`"error":{"code":7,"message":"no","data":{"n":1.0}}`))
			if m.Error == nil || string(m.Error.Append(nil)) != `{"code":7,"message":"no","data":{"n":1.0}}` {
				t.Errorf("got %s, want the upstream's error", m.Append(nil))
			}
			if got := c.succeed(t, "up__report", result(`"result":{"content":[],"isError":true}`)); member(got, "isError") != "true" {
				t.Errorf("got %s, want an error of the tool's", got)
			}
			for _, r := range callsOf(t, s.Journal, 3) {
				if member(r.Message.Params, "task") == "" {
					t.Errorf("the upstream got %s, which it has to refuse", r.Body)
				}
			}
			tools, _ := c.list(t, "")
			if support := member(tools[0], "execution", "taskSupport"); support == `"required"` {
				t.Errorf("the client is told %s of a tool that it can just call", tools[0])
			}
		})
	}
}

// TestProtocolRow23CancelledTask has the client go away: the server is told that the task is.
func TestProtocolRow23CancelledTask(t *testing.T) {
	for _, client := range eras {
		eachWire(t, pair{client, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{Tasks: true, Tools: onlyTask}, nil)
			c := j.talk(t)
			a := c.begin(t, called("up__report", `{"do":"task","gate":"never"}`))
			callsOf(t, s.Journal, 1)
			await(t, s.Journal, "question after the task", func(r upstreamtest.Record) bool { return strings.HasPrefix(r.Message.Method, "tasks/") })
			if p.client == upstream.EraModern {
				a.drop()
			} else {
				c.notify(t, "notifications/cancelled", `"requestId":`+a.id)
			}
			await(t, s.Journal, "tasks/cancel", func(r upstreamtest.Record) bool {
				return r.Message.Method == "tasks/cancel" && member(r.Message.Params, "taskId") != ""
			})
		})
	}
}

// TestProtocolRow23TaskOfALegacyServerAsks has such a task ask a question, which is the client's
// own as if there were no task.
func TestProtocolRow23TaskOfALegacyServerAsks(t *testing.T) {
	for _, client := range eras {
		eachWire(t, pair{client, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
			_, j := over(t, p, upstreamtest.Script{Tasks: true, Tools: onlyTask}, nil)
			m, asked := j.talk(t).converse(t, called("up__report", `{"do":"task","questions":[`+askForm+`]}`), answersTo)
			wantQuestions(t, asked, askForm)
			if answersOf(t, m) != `[{`+accepted+`}]` {
				t.Errorf("got %s, want the answer", m.Append(nil))
			}
		})
	}
}
