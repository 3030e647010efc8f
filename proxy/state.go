package proxy

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/policy"
	"junction/proxy/canon"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// state is the content of Junction's requestState, which a modern client sends back when it repeats
// its request with answers. It is sealed and valid only for the same request of the same user. The
// client is not trusted (2026-07-28, basic/patterns/mrtr#security-considerations), and an upstream
// that binds its state to a user sees only Junction.
type state struct {
	Kind     stateKind       `json:"k"`
	Upstream json.RawMessage `json:"u,omitempty"` // stateRelayed: the upstream's own state, a JSON string
	Parked   string          `json:"p,omitempty"` // stateParked: ID of the call
	Member   string          `json:"m,omitempty"` // stateParked: the process that has the call; "" if it is alone
	// stateApproval: ID of the approval request; with Approved: ID of an answer that permits one
	// more call
	Approval string `json:"a,omitempty"`
	Approved bool   `json:"y,omitempty"` // the user has approved the request, if policy requires it
	Maker    string `json:"i,omitempty"` // with Approval: Server.maker

	Asked *keptQuestions `json:"q,omitempty"` // for the Observer

	Principal string `json:"w"`
	Request   []byte `json:"r"`           // the digest of the request
	Shown     []byte `json:"s,omitempty"` // with Approval: approvalDigest of the request
	Expires   int64  `json:"e"`           // Unix seconds
}

type stateKind string

const (
	stateNone    stateKind = ""
	stateRelayed stateKind = "relayed" // the upstream is called again with its own state
	stateParked  stateKind = "parked"  // the call is in progress and gets the answers
	stateAgain   stateKind = "again"   // the upstream rejected the call, which is made again
	// stateApproval: the call was not made yet and waits for the user's approval
	stateApproval stateKind = "approval"
	stateConnect  stateKind = "connect" // the user is connecting the upstream
)

// seal returns a sealed requestState for the request.
func (s *Core) seal(x *Exchange, st state) string {
	if st.Kind == stateApproval || x.approved {
		st.Approval, st.Shown, st.Maker = rand.Text(), x.shown, s.maker
		if x.shown == nil {
			st.Shown = x.approvalDigest()
		}
	}
	st.Principal, st.Request, st.Approved, st.Expires = x.Principal.ID, x.digest(), x.approved,
		time.Now().Add(s.limits.Patience).Unix()
	text, _ := json.Marshal(st) // cannot fail: the upstream's state was parsed before
	return s.states.Seal(text)
}

// unseal returns the content of a requestState, if the principal of x got it and it has not expired.
func (s *Core) unseal(x *Exchange, sealed string) (st state, ok bool) {
	text, err := s.states.Open(sealed)
	ok = err == nil && json.Unmarshal(text, &st) == nil && st.Principal == x.Principal.ID &&
		time.Now().Unix() <= st.Expires
	return st, ok
}

// ParkedAt returns the member that has the parked call to which the client returns; false if the
// request is about no parked call.
func (s *Core) ParkedAt(x *Exchange) (member string, ok bool) {
	sealed, err := x.Params.String("requestState")
	if err != nil {
		return "", false
	}
	st, ok := s.unseal(x, sealed)
	return st.Member, ok && st.Kind == stateParked
}

// errState returns the error for any requestState that is invalid for the request, whatever the
// reason.
func errState() error {
	return InvalidParams("Invalid params: requestState is unknown, or has expired; make the request without it")
}

// openState reads the requestState of a modern client's request. It removes the hop's members from
// the call's params: the state, and answers that no upstream waits for. Legacy upstreams never do, nor
// does a call that needs an approval and has no state.
func (s *Core) openState(x *Exchange, c *upstream.Call) (state, error) {
	if x.Era == client.EraLegacy {
		// Junction does not declare tasks, so the member is ignored (2025-11-25,
		// basic/utilities/tasks)
		if _, err := c.Params.Get("task"); err == nil {
			return state{}, spliceParams(c, raw.Edit{Name: "task"})
		}
		return state{}, nil
	}
	v, err := c.Params.Get("requestState")
	if err == raw.ErrAbsent {
		if _, err := c.Params.Get("inputResponses"); err == nil &&
			(x.legacyTarget() || x.target.Connects || x.decision.Verdict == policy.Ask) {
			return state{}, spliceParams(c, raw.Edit{Name: "inputResponses"})
		}
		return state{}, nil
	} else if err != nil {
		return state{}, err
	}
	sealed, err := raw.String(v)
	if err != nil {
		return state{}, errState()
	}
	st, ok := s.unseal(x, sealed)
	if !ok || string(st.Request) != string(x.digest()) || (st.Kind == stateConnect) != x.target.Connects {
		return state{}, errState()
	}
	x.returned(st.Asked)
	switch st.Kind {
	case stateRelayed:
		return st, spliceParams(c, raw.Edit{Name: "requestState", Value: st.Upstream})
	case stateAgain, stateApproval, stateConnect:
		return st, spliceParams(c, raw.Edit{Name: "requestState"}, raw.Edit{Name: "inputResponses"})
	}
	return st, nil
}

// digest identifies a request by its endpoint, its method, its current target and the values of its
// params. Two spellings of the same params have the same digest. Members that change when a client
// repeats a request do not count, unless one of their names is ambiguous. Params without a
// canonical form count as bytes.
func (x *Exchange) digest() []byte {
	text, err := x.Params.Splice(raw.Edit{Name: "_meta"}, raw.Edit{Name: "inputResponses"},
		raw.Edit{Name: "requestState"})
	if err != nil {
		text = x.Params.Text()
	}
	form, ok := canon.Value(text)
	kind := byte('v')
	if !ok {
		form, kind = text, 'b'
	}
	h := sha256.New()
	for _, part := range [][]byte{[]byte(x.Endpoint.Name), {0}, []byte(x.Msg.Method), {0},
		[]byte(x.target.Backend.Name()), {0}, []byte(x.target.Name), {0, kind}, form} {
		h.Write(part)
	}
	return h.Sum(nil)[:16]
}

// approvalDigest is the digest of what an approval covers: the request with its _meta, except the
// members that the protocol puts there for each request.
func (x *Exchange) approvalDigest() []byte {
	meta, ok := x.approvedMeta()
	if !ok {
		meta = x.Meta.Text()
	}
	form, ok := canon.Value(meta)
	kind := byte('v')
	if !ok {
		form, kind = meta, 'b'
	}
	h := sha256.New()
	h.Write(append(x.digest(), kind))
	h.Write(form)
	return h.Sum(nil)[:16]
}

// approvedMeta returns the members of _meta that an approval covers; nil for none. It returns false if
// _meta is ambiguous.
func (x *Exchange) approvedMeta() (text []byte, ok bool) {
	if !x.Meta.Present() {
		text, err := x.Params.Get("_meta") // not an object
		return text, err == nil || err == raw.ErrAbsent
	}
	return canon.Without(x.Meta, func(name string) bool {
		switch name {
		case "progressToken", "traceparent", "tracestate", "baggage":
			return true
		}
		return strings.HasPrefix(name, "io.modelcontextprotocol/")
	})
}

// taskID is the sealed content of a task ID.
type taskID struct {
	Upstream  string `json:"u"`
	ID        string `json:"t"`
	Tool      string `json:"n"` // as the client sent it
	Endpoint  string `json:"e"`
	Principal string `json:"w"`
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
	// strings: this cannot fail
	text, _ := json.Marshal(taskID{x.target.Backend.Name(), id, x.target.Exposed, x.Endpoint.Name, x.Principal.ID})
	return s.taskResult(x, o, s.tasks.Seal(text), client.TypeTask)
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
	var id taskID
	text, err := s.tasks.Open(sealed)
	if err != nil || json.Unmarshal(text, &id) != nil || id.Endpoint != x.Endpoint.Name ||
		id.Principal != x.Principal.ID {
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
			Member: []string{"taskId"}, Bare: x.Subject.View.Bare}
		x.front.Begin()
		r, err := x.filter(b.Call(ctx, x.upstreamCall(x.target)))
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
