package bridge

import (
	"encoding/json"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// Tasks: the extension io.modelcontextprotocol/tasks between modern peers, and the tasks of a legacy
// server, for whose end Junction waits.

// tasking talks to a junction over one upstream with tasks, as a client that knows them.
func tasking(t *testing.T, p harness.Pair, script upstreamtest.Script) (*harness.Served, *harness.Junction,
	*harness.Talker) {
	t.Helper()
	script.Tasks = true
	s, j := harness.Over(t, p, script, nil)
	return s, j, harness.TalkAs(t, j.URL, p.Client, "2025-11-25", harness.WithTasks)
}

func TestTaskFromBeginningToEnd(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraModern, func(t *testing.T, p harness.Pair) {
		s, _, c := tasking(t, p, upstreamtest.Script{})
		const link = `"content":[{"type":"resource_link","uri":"file:///r","name":"r"}]`
		id := harness.BeginTask(t, c,
			harness.Called("up__task", `{"gate":"g","questions":[`+harness.AskForm+`],"result":{`+link+`,"x":1.0}}`))
		if strings.HasPrefix(id, "task/") {
			t.Errorf("the client got the upstream's own id %s", id)
		}
		working := c.Must(t, "tasks/get", `"taskId":`+string(raw.Quote(id)))
		if harness.Text(t, working, "taskId") != id || harness.Text(t, working, "resultType") != "complete" ||
			harness.Member(working, "ttlMs") != "60000" || harness.Member(working, "pollIntervalMs") != "10" {
			t.Errorf("tasks/get = %s", working)
		}
		s.OpenGate(t, "g")
		asks := c.Task(t, id, "working")
		requests, err := raw.Get(asks, "inputRequests", "q1", "params")
		if err != nil || harness.Text(t, asks, "status") != "input_required" {
			t.Fatalf("tasks/get = %s, want a question", asks)
		}
		harness.WantJSON(t, "question", requests,
			strings.Replace(harness.Member([]byte(harness.AskForm), "params"), `"message":"`, `"message":"[up] `, 1))
		updated := c.Must(t, "tasks/update",
			`"taskId":`+string(raw.Quote(id))+`,"inputResponses":{"q1":`+strings.TrimPrefix(harness.Accepted, `"result":`)+`}`)
		if harness.Text(t, updated, "resultType") != "complete" {
			t.Errorf("tasks/update = %s, want an acknowledgement", updated)
		}
		harness.Await(t, s.Journal, "tasks/update", func(r upstreamtest.Record) bool {
			return upstreamtest.Method("tasks/update")(r) &&
				harness.Member(r.Message.Params, "inputResponses") == `{"q1":`+strings.TrimPrefix(harness.Accepted, `"result":`)+`}`
		})
		done := c.Task(t, id, "input_required")
		if harness.Text(t, done, "status") != "completed" ||
			harness.Member(done,
				"result") != `{"content":[{"type":"resource_link","uri":"mcp://up/file:///r","name":"r"}],"x":1.0}` ||
			harness.Text(t, done, "taskId") != id {
			t.Errorf("tasks/get = %s, want the result with a URI of ours", done)
		}
		for _, r := range s.RequestsOf(t, "tasks/get", 2) {
			if got := harness.Text(t, r.Message.Params, "taskId"); !strings.HasPrefix(got, "task/") ||
				p.Transport == "http" && r.Header.Get("Mcp-Name") != got {
				t.Errorf("the upstream was asked after %s with Mcp-Name %q, want its own id in both", got, r.Header.Get("Mcp-Name"))
			}
		}
	})
}

func TestTaskFailsOrIsCancelled(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraModern, func(t *testing.T, p harness.Pair) {
		s, _, c := tasking(t, p, upstreamtest.Script{})
		failed := c.Task(t, harness.BeginTask(t, c,
			harness.Called("up__task", `{"error":{"code":7,"message":"no","data":{"n":1.0}}}`)), "working")
		if harness.Text(t, failed, "status") != "failed" ||
			harness.Member(failed, "error") != `{"code":7,"message":"no","data":{"n":1.0}}` {
			t.Errorf("tasks/get = %s", failed)
		}
		refused := c.Task(t, harness.BeginTask(t, c, harness.Called("up__task", `{"result":{"content":[],"isError":true}}`)),
			"working")
		if harness.Text(t, refused, "status") != "completed" || harness.Member(refused, "result", "isError") != "true" {
			t.Errorf("tasks/get = %s, want a result of the tool's", refused)
		}
		id := harness.BeginTask(t, c, harness.Called("up__task", `{"gate":"never"}`))
		if got := c.Must(t, "tasks/cancel",
			`"taskId":`+string(raw.Quote(id))); harness.Text(t, got, "resultType") != "complete" {
			t.Errorf("tasks/cancel = %s, want an acknowledgement", got)
		}
		if got := c.Task(t, id, "working"); harness.Text(t, got, "status") != "cancelled" {
			t.Errorf("tasks/get = %s, want it cancelled", got)
		}
		if n := len(s.RequestsOf(t, "tasks/cancel", 1)); n != 1 {
			t.Errorf("the upstream got %d tasks/cancel, want 1", n)
		}
	})
}

func TestTasksNeedTheCapability(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraModern, func(t *testing.T, p harness.Pair) {
		s, j, c := tasking(t, p, upstreamtest.Script{})
		id := harness.BeginTask(t, c, harness.Called("up__task", `{"gate":"never"}`))
		simple := harness.TalkAs(t, j.URL, p.Client, "", `{"elicitation":{}}`)
		before := len(s.RequestsOf(t, "tasks/get", 0))
		for _, q := range []harness.Query{
			{Method: "tasks/get", Params: `"taskId":` + string(raw.Quote(id))},
			{Method: "tasks/cancel", Params: `"taskId":` + string(raw.Quote(id))},
			{Method: "tasks/update", Params: `"taskId":` + string(raw.Quote(id)) + `,"inputResponses":{}`},
		} {
			a := simple.Begin(t, q)
			m := a.Answer(t)
			if harness.WantCode(t, m, -32021); a.Status != 400 || m.Error == nil {
				t.Fatalf("%s: status %d, want 400", q.Method, a.Status)
			}
			harness.WantJSON(t, "data", m.Error.Data,
				`{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`)
		}
		if got := harness.Member(simple.Succeed(t, "up__task", `{}`), "structuredContent", "executions"); got != "1" {
			t.Errorf("a client without tasks got the executions %q, want the result at once", got)
		}
		a := simple.Begin(t, harness.Called("up__task", `{"required":true}`))
		if m := a.Answer(t); a.Status != 400 {
			t.Errorf("status %d and %s of a tool that needs tasks, want 400", a.Status, m.Append(nil))
		}
		if n := len(s.RequestsOf(t, "tasks/get", 0)) - before; n > 0 {
			t.Errorf("the upstream was asked after the task %d times", n)
		}
		for _, method := range []string{"tasks/list", "tasks/result"} {
			a := c.Begin(t, harness.Query{Method: method, Params: `"taskId":` + string(raw.Quote(id))})
			if harness.WantCode(t, a.Answer(t), -32601); a.Status != 404 {
				t.Errorf("%s: status %d, want 404", method, a.Status)
			}
		}
	})
}

func TestTaskIDIsBoundToItsEndpoint(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraModern, func(t *testing.T, p harness.Pair) {
		s, j, c := tasking(t, p, upstreamtest.Script{})
		id := harness.BeginTask(t, c, harness.Called("up__task", `{"gate":"never"}`))
		other := p.Serve(t, upstreamtest.Script{Tasks: true})
		theirs := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": other.Config}})
		theirs.Offers(t, "up")
		foreign := harness.BeginTask(t, harness.TalkAs(t, theirs.URL, p.Client, "", harness.WithTasks),
			harness.Called("up__task", `{"gate":"never"}`))
		before := len(s.RequestsOf(t, "tasks/get", 0))
		bare := harness.TalkAs(t, j.URL+"/up", p.Client, "", harness.WithTasks)
		for what, row := range map[string]struct {
			c  *harness.Talker
			id string
		}{
			"the upstream's own": {c, "task/2"}, "another's": {c, foreign}, "cut": {c, id[:len(id)-1]}, "longer": {c, id + "A"},
			"empty": {c, ""}, "of another endpoint": {bare, id},
		} {
			t.Run(what, func(t *testing.T) {
				for _, method := range []string{"tasks/get", "tasks/cancel"} {
					harness.WantCode(t, row.c.Ask(t, method, `"taskId":`+string(raw.Quote(row.id))), -32602)
				}
			})
		}
		q := harness.Query{Method: "tasks/get", Params: `"taskId":` + string(raw.Quote(id)),
			Header: map[string][]string{"Mcp-Name": {foreign}}}
		a := c.Begin(t, q)
		if harness.WantCode(t, a.Answer(t), -32020); a.Status != 400 {
			t.Errorf("with the name of another task: status %d, want 400", a.Status)
		}
		if n := len(s.RequestsOf(t, "tasks/get", 0)) - before; n > 0 {
			t.Errorf("the upstream was asked %d times for what is not its task", n)
		}
		if got := c.Must(t, "tasks/get", `"taskId":`+string(raw.Quote(id))); harness.Text(t, got, "status") != "working" {
			t.Errorf("the task is none the worse: %s", got)
		}
	})
}

// TestLegacyClientsGetNoTask: a client of the legacy era never sees a task of the extension, and its own
// task metadata is not forwarded.
func TestLegacyClientsGetNoTask(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			s, _, c := tasking(t, p, upstreamtest.Script{})
			q := harness.Called("up__task", `{"questions":[`+harness.AskForm+`]}`)
			q.Params += `,"task":{"ttl":1}`
			m, asked := c.Converse(t, q, harness.AnswersTo)
			if len(asked) != 1 || harness.AnswersOf(t, m) != `[{`+harness.Accepted+`}]` {
				t.Errorf("%d questions and %s, want the result", len(asked), m.Append(nil))
			}
			if got := harness.Member(harness.CallsOf(t, s.Journal, 1)[0].Message.Params, "task"); got != "" &&
				p.Upstream == client.EraModern {
				t.Errorf("the upstream got the client's task %s", got)
			}
			harness.WantCode(t, c.Ask(t, "tasks/get", `"taskId":"task/1"`), -32601)
		})
	}
}

// onlyTask is a tool of 2025-11-25 that can be called as a task only.
var onlyTask = []json.RawMessage{
	[]byte(`{"name":"report","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}`),
	[]byte(`{"name":"echo","inputSchema":{"type":"object"}}`)}

func TestLegacyTaskIsAwaited(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{Tasks: true, Tools: onlyTask}, nil)
			c := j.Talk(t)
			result := func(members string) string { return `{"do":"task",` + members + `}` }
			got := c.Succeed(t, "up__report",
				result(`"result":{"content":[{"type":"resource_link","uri":"file:///r","name":"r"}],"x":1.0}`))
			if list := harness.Member(got,
				"content"); list != `[{"type":"resource_link","uri":"mcp://up/file:///r","name":"r"}]` ||
				harness.Member(got, "x") != "1.0" {
				t.Errorf("result = %s", got)
			}
			if taskID := harness.Member(got, "_meta", "io.modelcontextprotocol/related-task"); taskID != "" {
				t.Errorf("the client got the task of another hop: %s", got)
			}
			m := c.Call(t, "up__report", result(`"error":{"code":7,"message":"no","data":{"n":1.0}}`))
			if m.Error == nil || string(m.Error.Append(nil)) != `{"code":7,"message":"no","data":{"n":1.0}}` {
				t.Errorf("got %s, want the upstream's error", m.Append(nil))
			}
			if got := c.Succeed(t, "up__report",
				result(`"result":{"content":[],"isError":true}`)); harness.Member(got, "isError") != "true" {
				t.Errorf("got %s, want an error of the tool's", got)
			}
			for _, r := range harness.CallsOf(t, s.Journal, 3) {
				if harness.Member(r.Message.Params, "task") == "" {
					t.Errorf("the upstream got %s, which it has to refuse", r.Body)
				}
			}
			tools, _ := c.List(t, "")
			if support := harness.Member(tools[0], "execution", "taskSupport"); support == `"required"` {
				t.Errorf("the client is told %s of a tool that it can just call", tools[0])
			}
		})
	}
}

// TestCancelledCallCancelsItsLegacyTask has the client go away: the server is told that the task is.
func TestCancelledCallCancelsItsLegacyTask(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{Tasks: true, Tools: onlyTask}, nil)
			c := j.Talk(t)
			a := c.Begin(t, harness.Called("up__report", `{"do":"task","gate":"never"}`))
			harness.CallsOf(t, s.Journal, 1)
			harness.Await(t, s.Journal, "question after the task",
				func(r upstreamtest.Record) bool { return strings.HasPrefix(r.Message.Method, "tasks/") })
			if p.Client == client.EraModern {
				a.Drop()
			} else {
				c.Notify(t, "notifications/cancelled", `"requestId":`+a.ID)
			}
			harness.Await(t, s.Journal, "tasks/cancel", func(r upstreamtest.Record) bool {
				return r.Message.Method == "tasks/cancel" && harness.Member(r.Message.Params, "taskId") != ""
			})
		})
	}
}

// TestLegacyTaskAsksItsClient has such a task ask a question, which is the client's
// own as if there were no task.
func TestLegacyTaskAsksItsClient(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			_, j := harness.Over(t, p, upstreamtest.Script{Tasks: true, Tools: onlyTask}, nil)
			m, asked := j.Talk(t).Converse(t, harness.Called("up__report", `{"do":"task","questions":[`+harness.AskForm+`]}`),
				harness.AnswersTo)
			wantQuestions(t, asked, harness.AskForm)
			if harness.AnswersOf(t, m) != `[{`+harness.Accepted+`}]` {
				t.Errorf("got %s, want the answer", m.Append(nil))
			}
		})
	}
}
