package proxy

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy/sealed"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// seal returns a sealed requestState for the request.
func (s *Core) seal(x *Exchange, st sealed.State) string {
	if st.Kind == sealed.Approval || x.approved {
		st.Approval, st.Shown, st.App = rand.Text(), x.shown, x.app()
		if x.shown == nil {
			st.Shown = x.identity().ApprovalDigest()
		}
	}
	st.Roots = x.uris
	st.Principal, st.Request, st.Approved, st.Expires = x.Principal.ID, x.identity().Digest(), x.approved,
		time.Now().Add(s.limits.Patience).Unix()
	return s.sealer.State(st)
}

// ParkedAt returns the member that has the parked call to which the client returns; false if the
// request is about no parked call.
func (s *Core) ParkedAt(x *Exchange) (member string, ok bool) {
	text, err := x.Params.String("requestState")
	if err != nil {
		return "", false
	}
	st, ok := s.sealer.OpenState(text, x.Principal.ID)
	return st.Member, ok && st.Kind == sealed.Parked
}

// errState returns the error for any requestState that is invalid for the request, whatever the
// reason.
func errState() error {
	return InvalidParams("Invalid params: requestState is unknown, or has expired; make the request without it")
}

// openState reads the requestState of a modern client's request. It removes the hop's members from
// the call's params: the state, and answers that no upstream waits for. Legacy upstreams never do, nor
// does a call that needs an approval and has no state.
func (s *Core) openState(x *Exchange, c *upstream.Call) (sealed.State, error) {
	if x.Era == client.EraLegacy {
		// Junction does not declare tasks, so the member is ignored (2025-11-25,
		// basic/utilities/tasks)
		if _, err := c.Params.Get("task"); err == nil {
			return sealed.State{}, spliceParams(c, raw.Edit{Name: "task"})
		}
		return sealed.State{}, nil
	}
	v, err := c.Params.Get("requestState")
	if err == raw.ErrAbsent {
		if _, err := c.Params.Get("inputResponses"); err == nil &&
			(x.legacyTarget() || x.target.Connects || x.decision.Verdict.Asks()) {
			return sealed.State{}, spliceParams(c, raw.Edit{Name: "inputResponses"})
		}
		return sealed.State{}, nil
	} else if err != nil {
		return sealed.State{}, err
	}
	text, err := raw.String(v)
	if err != nil {
		return sealed.State{}, errState()
	}
	st, ok := s.sealer.OpenState(text, x.Principal.ID)
	if !ok && st.Kind == sealed.Parked {
		return sealed.State{}, errParkedGone() // it has expired
	}
	request := x.identity()
	if st.Kind == sealed.Roots { // the request had no folder yet
		request.Folder = ""
	}
	if !ok || string(st.Request) != string(request.Digest()) || (st.Kind == sealed.Connect) != x.target.Connects {
		return sealed.State{}, errState()
	}
	x.returned(st.Asked)
	switch st.Kind {
	case sealed.Roots:
		return sealed.State{}, spliceParams(c, raw.Edit{Name: "requestState"}, raw.Edit{Name: "inputResponses"})
	case sealed.Relayed:
		c.Rooted = st.Rooted
		return st, spliceParams(c, raw.Edit{Name: "requestState", Value: st.Upstream})
	case sealed.Again, sealed.Approval, sealed.Connect:
		return st, spliceParams(c, raw.Edit{Name: "requestState"}, raw.Edit{Name: "inputResponses"})
	}
	return st, nil
}

// identity is what the requestState of the request is about.
func (x *Exchange) identity() sealed.Request {
	return sealed.Request{Endpoint: x.Endpoint.Name, Method: x.Msg.Method, Upstream: x.target.Backend.Name(),
		Target: x.target.Name, Params: x.Params, Meta: x.Meta, Folder: x.folders.Key(),
		Forwarded: x.forwarded.Key()}
}

const (
	methodTasksGet    = "tasks/get"
	methodTasksUpdate = "tasks/update"
	methodTasksCancel = "tasks/cancel"
)

// wrapTask replaces the task ID in a result by a sealed ID for the client.
func (s *Core) wrapTask(x *Exchange, o raw.Object) (Result, error) {
	id, err := o.String("taskId")
	if err != nil || id == "" {
		return Result{}, x.invalid("a task without taskId")
	}
	own := s.sealer.Task(sealed.Task{Upstream: x.target.Backend.Name(), ID: id, Tool: x.target.Exposed,
		Endpoint: x.Endpoint.Name, Principal: x.Principal.ID, Folder: x.folders.Path(), Roots: x.uris,
		Place: x.folders.Key(), Forwarded: carried(x.forwarded)})
	return s.taskResult(x, o, own, client.TypeTask)
}

// aboutTask passes tasks/get, tasks/update or tasks/cancel on to the upstream that has the task. An
// ID that was not issued for this user and endpoint is unknown.
func aboutTask(ctx context.Context, s *Core, x *Exchange) (Result, error) {
	if !x.Subject.Sight().Offers.Tasks {
		return Result{}, x.unknownMethod()
	}
	if !x.Who.Profile.Tasks {
		return Result{}, &Refusal{reason: ReasonRequest, code: codeMissingCapability,
			text: "Missing required client capability: " + client.ExtensionTasks,
			Data: []byte(`{"requiredCapabilities":{"extensions":{"` + client.ExtensionTasks + `":{}}}}`)}
	}
	sealed, err := x.Params.String("taskId")
	if err != nil && err != raw.ErrAbsent {
		return Result{}, err
	}
	id, ok := s.sealer.OpenTask(sealed)
	if !ok || id.Endpoint != x.Endpoint.Name || id.Principal != x.Principal.ID {
		return Result{}, unknownTask()
	}
	x.Info.Name = id.Tool
	switch t := x.Subject.Named(upstream.PartTools, id.Tool); {
	case t == nil && x.Endpoint.View.Named(upstream.PartTools, id.Tool) != nil:
		return Result{}, unknownTask() // policy denies the tool now
	case t != nil:
		if err := x.scoped(t); err != nil {
			return Result{}, err
		}
	}
	for st := range x.Subject.Sight().Stocks() {
		b := st.Backend
		if b.Name() != id.Upstream || st.Catalog.Era == client.EraLegacy {
			continue
		}
		x.Info.Upstream = b.Name()
		x.target = &view.Target{Backend: b, Part: upstream.PartTools, Name: id.ID, Exposed: sealed,
			Param: view.ParamTask, Bare: x.Subject.View.Bare}
		if err := forwardAgain(x, id); err != nil {
			return Result{}, err
		}
		if err := x.admitAgain(ctx, id); err != nil {
			return Result{}, InvalidParams("Invalid params: the folder of the task: %v", err)
		}
		if x.folders.Key() != id.Place {
			return Result{}, unknownTask() // another folder has the path now, or another root is permitted
		}
		x.Info.Folder = x.folders.Path()
		x.front.Begin()
		r, err := x.filter(s.callBackend(ctx, x, x.upstreamCall(x.target)))
		if err != nil {
			return s.answerError(x, err)
		}
		return s.taskResult(x, r.Object, sealed, client.TypeComplete)
	}
	return Result{}, unknownTask()
}

func unknownTask() error { return InvalidParams("Invalid params: unknown taskId") }

// taskResult returns a result about a task with the client's task ID. It converts the inner result
// and the requests as for a call.
func (s *Core) taskResult(x *Exchange, o raw.Object, id, kind string) (Result, error) {
	edits := []raw.Edit{{Name: "resultType", Value: raw.Quote(kind)}}
	if _, err := o.Get("taskId"); err != raw.ErrAbsent {
		edits = append(edits, raw.Edit{Name: "taskId", Value: raw.Quote(id)})
	}
	if inner, err := o.Object("result"); err == nil {
		renamed, err := x.target.RenameResult(string(mcp.MethodToolsCall), inner)
		if err != nil {
			return Result{}, x.invalid(err.Error())
		}
		edits = append(edits, raw.Edit{Name: "result", Value: renamed.Text()})
	}
	if requests, err := o.Object("inputRequests"); err == nil {
		text, _, err := x.inputRequests(requests)
		if err != nil {
			return Result{}, err
		}
		edits = append(edits, raw.Edit{Name: "inputRequests", Value: text})
	}
	o, err := o.With(edits...)
	if err != nil {
		return Result{}, x.invalid(err.Error())
	}
	return s.modernResult(x.Msg.Method, o, x.target)
}
