package upstreamtest

import (
	"context"
	"fmt"
	"strings"

	"junction/upstream/raw"
)

// task is a call that goes on after its answer. It works until its gate is open, then it asks its
// questions, and then it is completed.
type task struct {
	id   string
	args arguments
	// working, input_required, completed, failed, cancelled; guarded by Server.state, as answers
	// are
	status    string
	answers   [][]byte      // modern: nil where there is none
	asking    chan struct{} // closed when it asks
	answered  chan struct{} // closed when the questions have their answers
	done      chan struct{} // closed when the status is one of the last three
	outcome   []byte        // the member result or error
	listening *stream
}

// becomeTask answers a call of the tool task: with a task, if the client can have one, and else as
// a tool that is not in a hurry.
func (c *call) becomeTask(ctx context.Context, a arguments) {
	legacy, err := raw.Get(c.m.Params, "task")
	switch {
	case !c.s.script.Tasks || c.modern && !c.declares("extensions", extensionTasks) || !c.modern && err != nil:
		if c.modern && a.Required {
			c.lacks(`{"extensions":{"` + extensionTasks + `":{}}}`)
		} else if a.Questions != nil {
			c.question(ctx, a)
		} else if !c.pause(ctx, arguments{Gate: a.Gate}) {
			return
		} else if a.Error != nil {
			c.refuse(a.Error)
		} else {
			c.answered(a, nil, c.execute())
		}
		return
	case c.modern:
		t := c.s.begunTask(a, nil)
		c.answer(fmt.Appendf(nil, `{"resultType":"task",%s}`, c.s.describe(t, true)))
		go c.s.drive(t)
	default:
		t := c.s.begunTask(a, c.se.out)
		c.answer(fmt.Appendf(nil, `{"task":{%s},"_meta":{"sent":%s}}`, c.s.describe(t, false), legacy))
		go c.s.drive(t)
	}
}

func (s *Server) begunTask(a arguments, listening *stream) *task {
	t := &task{id: "task/" + s.next(), args: a, status: "working", answers: make([][]byte, len(a.Questions)),
		listening: listening}
	t.asking, t.answered, t.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	if len(a.Questions) == 0 {
		close(t.answered)
	}
	s.state.Lock()
	defer s.state.Unlock()
	s.tasks[t.id] = t
	return t
}

// describe returns the members of a task in the words of the era.
func (s *Server) describe(t *task, modern bool) string {
	s.state.Lock()
	defer s.state.Unlock()
	ttl, poll := "ttl", "pollInterval"
	if modern {
		ttl, poll = "ttlMs", "pollIntervalMs"
	}
	interval := t.args.Poll
	if interval == 0 {
		interval = 10
	}
	return fmt.Sprintf(`"taskId":%s,"status":"%s",`+
		`"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z","%s":60000,"%s":%d`,
		raw.Quote(t.id), t.status, ttl, poll, interval)
}

// detail is describe with what there is to know beside the status (modern).
func (s *Server) detail(t *task) string {
	members := s.describe(t, true)
	s.state.Lock()
	defer s.state.Unlock()
	switch t.status {
	case "completed", "failed":
		members += "," + string(t.outcome)
	case "input_required":
		var requests []string
		for i, q := range t.args.Questions {
			if t.answers[i] == nil {
				requests = append(requests, string(q.request(i)))
			}
		}
		members += `,"inputRequests":{` + strings.Join(requests, ",") + `}`
	}
	return members
}

// drive does what the task is for, on a goroutine of its own.
func (s *Server) drive(t *task) {
	wait := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		case <-t.done:
		case <-s.ctx.Done():
		}
		return false
	}
	if t.args.Gate != "" && !wait(s.gate(t.args.Gate)) {
		return
	}
	if len(t.args.Questions) > 0 && (!s.become(t, "input_required", nil) || !wait(t.answered)) {
		return
	}
	s.state.Lock()
	s.executed++
	outcome, status := t.args.Result, "completed"
	if outcome == nil {
		v := fmt.Appendf(nil, `{"answers":%s,"executions":%d}`, array(t.answers), s.executed)
		outcome = fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}],"structuredContent":%s}`,
			raw.Quote(string(v)), v)
	}
	s.state.Unlock()
	outcome = append([]byte(`"result":`), outcome...)
	if t.args.Error != nil {
		outcome, status = append([]byte(`"error":`), t.args.Error...), "failed"
	}
	s.become(t, status, outcome)
}

// become changes the status, unless the task has ended, and tells those who want to know.
func (s *Server) become(t *task, status string, outcome []byte) bool {
	s.state.Lock()
	select {
	case <-t.done:
		s.state.Unlock()
		return false
	default:
	}
	t.status, t.outcome = status, outcome
	if status == "input_required" {
		defer close(t.asking)
	} else {
		defer close(t.done)
	}
	s.state.Unlock()
	if t.listening != nil {
		t.listening.notify("notifications/tasks/status", []byte("{"+s.describe(t, false)+"}"))
	}
	_, listens := s.listeners()
	for _, l := range listens {
		for _, id := range l.tasks {
			if id == t.id {
				l.tell("notifications/tasks", s.detail(t)+",")
			}
		}
	}
	return true
}

// task answers the methods about tasks.
func (c *call) task(ctx context.Context, verb string) {
	if c.modern && !c.declares("extensions", extensionTasks) {
		c.lacks(`{"extensions":{"` + extensionTasks + `":{}}}`)
		return
	}
	c.s.state.Lock()
	t := c.s.tasks[c.param("taskId")]
	c.s.state.Unlock()
	switch {
	case verb == "list":
		c.listTasks()
	case t == nil:
		c.fail(200, -32602, "Unknown task", nil)
	case verb == "get" && c.modern:
		c.result("%s", c.s.detail(t))
	case verb == "get":
		c.result("%s", c.s.describe(t, false))
	case verb == "update":
		c.updateTask(t)
		c.result("")
	case verb == "cancel" && c.modern:
		c.s.become(t, "cancelled", nil)
		c.result("")
	case verb == "cancel" && c.s.become(t, "cancelled", nil):
		c.result("%s", c.s.describe(t, false))
	case verb == "cancel":
		c.fail(200, -32602, "The task has ended", nil)
	default:
		c.taskResult(ctx, t)
	}
}

func (c *call) listTasks() {
	c.s.state.Lock()
	var all []*task
	for _, t := range c.s.tasks {
		all = append(all, t)
	}
	c.s.state.Unlock()
	var list []string
	for _, t := range all {
		list = append(list, "{"+c.s.describe(t, false)+"}")
	}
	c.result(`"tasks":[%s]`, strings.Join(list, ","))
}

// updateTask takes answers to the questions of a task; those to other questions are ignored.
func (c *call) updateTask(t *task) {
	responses, _ := raw.Get(c.m.Params, "inputResponses")
	c.s.state.Lock()
	defer c.s.state.Unlock()
	lacking := 0
	for i, q := range t.args.Questions {
		if v, err := raw.Get(responses, q.key(i)); err == nil && t.answers[i] == nil {
			t.answers[i] = append(append([]byte(`{"result":`), v...), '}')
		}
		if t.answers[i] == nil {
			lacking++
		}
	}
	if lacking == 0 {
		t.answer()
	}
}

// answer says that the questions have their answers. Server.state is held.
func (t *task) answer() {
	select {
	case <-t.answered:
	default:
		close(t.answered)
	}
}

// taskResult answers tasks/result of 2025-11-25 when the task has ended, and puts its questions on
// the way.
func (c *call) taskResult(ctx context.Context, t *task) {
	asking := t.asking
	for {
		select {
		case <-asking:
			asking = nil
			a := t.args
			a.related = t.id
			answers, err := c.request(ctx, a)
			if err != nil {
				return
			}
			c.s.state.Lock()
			t.answers = answers
			t.answer()
			c.s.state.Unlock()
		case <-t.done:
			c.finished(t)
			return
		case <-ctx.Done():
			return
		}
	}
}

// finished answers tasks/result.
func (c *call) finished(t *task) {
	c.s.state.Lock()
	status, outcome := t.status, string(t.outcome)
	c.s.state.Unlock()
	if e, ok := strings.CutPrefix(outcome, `"error":`); ok {
		c.refuse([]byte(e))
	} else if result, ok := strings.CutPrefix(outcome, `"result":`); ok {
		c.answer(related([]byte(result), t.id))
	} else {
		c.fail(200, -32602, "The task is "+status, nil)
	}
}

// related returns the object with the id of a task in its _meta, as 2025-11-25 ties messages to
// tasks.
func related(object []byte, id string) []byte {
	value, path := fmt.Appendf(nil, `{"taskId":%s}`, raw.Quote(id)), []string{"_meta", keyRelatedTask}
	if len(object) == 0 {
		object = []byte("{}")
	}
	if _, err := raw.Get(object, "_meta"); err != nil {
		value, path = fmt.Appendf(nil, `{"%s":%s}`, keyRelatedTask, value), path[:1]
	}
	object, _ = raw.Set(object, value, path...) // fails only for what is no object, which is a mistake in a test
	return object
}
