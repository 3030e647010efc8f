package harness

import (
	"testing"

	"junction/upstream/raw"
)

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
