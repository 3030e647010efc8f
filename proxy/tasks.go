package proxy

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/raw"
)

// This file holds the extension for tasks, between peers of the modern era: a call is answered by a
// task, which the client asks after. A task's id is an upstream's own, so that clients get one that
// says whose it is, and that is good for its user alone: to the upstream all users are one, us
// (io.modelcontextprotocol/tasks, security). A legacy server's tasks are nobody's business but
// ours: see upstream/task.go.

// taskID is what a task's id says, sealed.
type taskID struct {
	Upstream  string `json:"u"`
	ID        string `json:"t"`
	Tool      string `json:"n"` // as the client called it
	Endpoint  string `json:"e"`
	Principal string `json:"w"`
}

const (
	methodTasksGet    = "tasks/get"
	methodTasksUpdate = "tasks/update"
	methodTasksCancel = "tasks/cancel"
)

// wrapTask makes the result that begins a task one whose id the client can come back with.
func (s *Server) wrapTask(x *exchange, o raw.Object) (result, error) {
	id, err := o.String("taskId")
	if err != nil || id == "" {
		return result{}, x.invalid("a task without taskId")
	}
	// strings: this cannot fail
	text, _ := json.Marshal(taskID{x.target.Backend.Name(), id, x.target.Exposed, x.endpoint.name, x.principal.ID})
	return s.taskResult(x, o, s.tasks.Seal(text), upstream.TypeTask)
}

// aboutTask passes tasks/get, tasks/update or tasks/cancel on to the upstream that has the task. An
// id that is not ours for this user and endpoint is that of no task.
func aboutTask(ctx context.Context, s *Server, x *exchange, info *CallInfo) (result, error) {
	if !x.share.Sight().Offers.Tasks {
		return result{}, unknownMethod(x.era, x.msg.Method)
	}
	if !x.profile.Tasks {
		return result{}, &refusal{status: http.StatusBadRequest, code: codeMissingCapability, text: "Missing required client capability: " + upstream.ExtensionTasks,
			data: []byte(`{"requiredCapabilities":{"extensions":{"` + upstream.ExtensionTasks + `":{}}}}`)}
	}
	sealed, err := x.params.String("taskId")
	if err != nil && err != raw.ErrAbsent {
		return result{}, err
	}
	var id taskID
	text, err := s.tasks.Open(sealed)
	if err != nil || json.Unmarshal(text, &id) != nil || id.Endpoint != x.endpoint.name || id.Principal != x.principal.ID {
		return result{}, unknownTask()
	}
	info.Name = id.Tool
	switch t := x.share.Named(upstream.PartTools, id.Tool); {
	case t == nil && x.endpoint.view.Named(upstream.PartTools, id.Tool) != nil:
		return result{}, unknownTask() // the tool is denied meanwhile
	case t != nil:
		if err := x.scoped(t); err != nil {
			return result{}, err
		}
	}
	for st := range x.share.Sight().Stocks() {
		b := st.Backend
		if b.Name() != id.Upstream || st.Catalog.Era == upstream.EraLegacy {
			continue
		}
		info.Upstream = b.Name()
		x.target = &view.Target{Backend: b, Part: upstream.PartTools, Name: id.ID, Exposed: sealed, Member: []string{"taskId"}, Bare: x.share.View.Bare}
		x.begin()
		r, err := x.fit(b.Call(ctx, x.call(x.target, nil)))
		if err != nil {
			return s.modernError(x, err)
		}
		return s.taskResult(x, r.Object, sealed, upstream.TypeComplete)
	}
	return result{}, unknownTask()
}

func unknownTask() error { return invalidParams("Invalid params: unknown taskId") }

// taskResult is a result about a task with the id that the client knows, and with all that a result
// of a call and its questions have for clients.
func (s *Server) taskResult(x *exchange, o raw.Object, id, kind string) (result, error) {
	edits := []raw.Edit{{Name: "resultType", Value: raw.Quote(kind)}}
	if _, err := o.Get("taskId"); err != raw.ErrAbsent {
		edits = append(edits, raw.Edit{Name: "taskId", Value: raw.Quote(id)})
	}
	if inner, err := o.Object("result"); err == nil {
		renamed, err := x.target.RenameResult(string(mcp.MethodToolsCall), inner)
		if err != nil {
			return result{}, x.invalid(err.Error())
		}
		edits = append(edits, raw.Edit{Name: "result", Value: renamed.Text()})
	}
	if requests, err := o.Object("inputRequests"); err == nil {
		text, err := x.inputRequests(requests)
		if err != nil {
			return result{}, err
		}
		edits = append(edits, raw.Edit{Name: "inputRequests", Value: text})
	}
	text, err := o.Splice(edits...)
	if err != nil {
		return result{}, x.invalid(err.Error())
	}
	whole, err := raw.Parse(text)
	if err != nil {
		return result{}, x.invalid(err.Error())
	}
	return s.modernResult(x.msg.Method, whole, x.target)
}
