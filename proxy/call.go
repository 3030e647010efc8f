package proxy

import (
	"context"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/policy"
	"junction/proxy/answers"
	"junction/proxy/redact"
	"junction/proxy/sealed"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file answers the requests that one upstream answers: tools/call, prompts/get and
// resources/read.

// A finder returns the target that a request names. The error is sent to the client if the caller
// has no such target.
type finder func(context.Context, *Core, *Exchange) (*view.Target, error)

// callTarget returns the handler of requests whose target find returns.
func callTarget(find finder) handler {
	return func(ctx context.Context, s *Core, x *Exchange) (Result, error) {
		return s.call(ctx, x, find, (*Exchange).permit)
	}
}

// call answers a request in these steps. Each step may end the request:
//
//	find      the target that the request names, for this caller
//	restore   text that the policy has removed from earlier answers comes back (dispatch.go)
//	permit    the policy decision about the target and the arguments: deny, ask or allow (permit.go)
//	forward   the headers of the client that go to the server are read (forward.go)
//	locate    the folder of the client, for a server with isolation: folder (folder.go)
//	validate  headers, arguments and the call tool (package search) fit the definition of the tool
//	          (validate.go)
//	approve   the user of the client agrees, if the decision is ask (approve.go)
//	call      a kept result is the answer (package answers), or the upstream answers (package
//	          upstream); the call may be parked (parked.go)
//	filter    what the policy redacts is removed from the answer
//	answer    the result or error is converted to the client's era (bridge.go)
//
// A modern upstream may answer a legacy client's call with requests to the client. Junction sends
// the client's answers back with another call (callInRounds). If the snapshot has changed meanwhile,
// permitAgain checks the call again first. The target and the arguments do not change, so the upstream
// gets exactly the call that was permitted.
// A modern client sends a new request for each round, and each request runs all steps.
//
// permit stores the policy decision in x.decision. Its error is sent to the client.
func (s *Core) call(ctx context.Context, x *Exchange, find finder, permit func(*Exchange, *view.Target) error) (
	Result, error) {
	t, err := find(ctx, s, x)
	if err != nil {
		return Result{}, err
	}
	x.target = t
	if t.Connects {
		return s.connect(ctx, x)
	}
	lost := x.restore()
	if err := permit(x, t); err != nil {
		return Result{}, err
	}
	if lost != nil {
		return s.answerLost(x, lost)
	}
	if x.sessionless() && t.Backend.Config().Isolation.OfSession() {
		return Result{}, needsSession("the server " + t.Backend.Name() + " (isolation: session)")
	}
	if err := forward(x); err != nil {
		return Result{}, err
	}
	if t.Backend.ByFolder() {
		if own, err := s.locate(ctx, x); own != nil || err != nil {
			return resultOf(own), err
		}
	}
	c := x.upstreamCall(t)
	c.Buffer, c.Guard = x.buffer, x
	if rejected, err := s.validate(ctx, x, c); rejected != nil || err != nil {
		return resultOf(rejected), err
	}
	x.front.Begin()
	st, err := s.openState(x, c)
	if err != nil {
		return Result{}, err
	}
	if declined, err := s.approve(ctx, x, st); declined != nil || err != nil {
		return resultOf(declined), err
	}
	if r, ok := s.reusable(ctx, x, c); ok {
		return s.filtered(x, r, nil)
	}
	switch {
	case st.Kind == sealed.Parked:
		return s.parked.resume(ctx, s, x, st)
	case x.Era == client.EraModern && x.legacyTarget() && x.Who.Profile.Asks():
		return s.parked.begin(ctx, s, x, c)
	}
	r, err := s.callUpstream(ctx, x, c)
	if x.Era == client.EraLegacy && err == nil && r.Type == client.TypeInputRequired {
		return s.callInRounds(ctx, x, c, r, permit)
	}
	return s.filtered(x, r, err)
}

// callInRounds goes on with a legacy client's call, to which a modern upstream has returned requests
// to the client (r). In each round the client gets the requests on its stream, and the upstream is
// called again with the responses.
func (s *Core) callInRounds(ctx context.Context, x *Exchange, c *upstream.Call, r client.Result,
	permit func(*Exchange, *view.Target) error) (Result, error) {
	var asked rounds
	for {
		var err error
		if r, err = x.filter(r, nil); err != nil {
			return s.answerError(x, err)
		}
		if err := asked.next(ctx, x, c, r); err != nil {
			return Result{}, err
		}
		if err := s.permitAgain(x, permit); err != nil {
			return Result{}, err
		}
		if declined, err := s.approve(ctx, x, sealed.State{}); declined != nil || err != nil {
			return resultOf(declined), err
		}
		if r, err = s.callUpstream(ctx, x, c); err != nil || r.Type != client.TypeInputRequired {
			return s.filtered(x, r, err)
		}
	}
}

// filtered answers with an upstream's result or error, without the parts that policy hides.
func (s *Core) filtered(x *Exchange, r client.Result, err error) (Result, error) {
	if r, err = x.filter(r, err); err != nil {
		return s.answerError(x, err)
	}
	return s.answerResult(x, r)
}

// reusable returns the kept result of an equal call of the same caller, if there is one. If there
// is none, but the result of this call may be kept, it sets x.reuse.
func (s *Core) reusable(ctx context.Context, x *Exchange, c *upstream.Call) (r client.Result, ok bool) {
	t := x.target
	// behind an authenticating proxy (auth.none), several users may be one principal
	unknown := x.Principal.Kind == auth.KindLocal && !x.Snapshot.Direct
	if t.Reuse <= 0 || unknown || len(c.Header) > 0 || x.asked.Load() {
		return r, false
	}
	kind := fmt.Sprintf("%s %+v", c.Era, c.Profile)
	if t.Backend.Config().Isolation.OfSession() {
		kind += x.Who.Session
	}
	kind += x.folders.Key() + "\x00" + x.forwarded.Key()
	key, ok := s.answers.Key(answers.Call{Account: x.Grant.Account, Source: t.Backend, Announced: t.Backend.Announced(),
		Tool: t.Name, Definition: t.Item.Definition.Text(), Client: kind, Params: c.Params})
	if !ok {
		return r, false
	}
	if text, known := s.answers.Get(key); known && t.Backend.Current(ctx) {
		var err error
		r.Type = client.TypeComplete
		r.Object, err = raw.Parse(text)
		x.Info.Cached = err == nil // always true: the text was parsed before it was kept
		return r, x.Info.Cached
	}
	x.reuse = key
	return r, false
}

// callUpstream makes the call, and keeps the result if it may be reused: a success during which the
// upstream has sent no server request.
func (s *Core) callUpstream(ctx context.Context, x *Exchange, c *upstream.Call) (client.Result, error) {
	r, err := s.callBackend(ctx, x, c)
	x.rooted = c.Rooted
	if x.reuse != (answers.Key{}) && err == nil && r.Type == client.TypeComplete && !r.Failed() && !x.asked.Load() {
		s.answers.Put(x.reuse, r.Text(), x.target.Reuse)
	}
	return r, err
}

// callBackend makes the call here, or at the member that has the state of the server.
func (s *Core) callBackend(ctx context.Context, x *Exchange, c *upstream.Call) (client.Result, error) {
	if s.members != nil {
		if holder, ok := x.target.Backend.Holder(upstream.Window{Session: x.Who.Session,
			Principal: c.Principal, Account: c.Account, Folders: c.Folders.Paths()}); ok {
			return x.front.CallStateful(ctx, x.target.Backend, holder, c)
		}
	}
	return x.target.Backend.Call(ctx, c)
}

// findNamed returns the finder of tools or prompts. It finds the connect tool of an upstream, too.
func findNamed(p upstream.Part) finder {
	return func(ctx context.Context, s *Core, x *Exchange) (*view.Target, error) {
		name, err := x.stringParam("name")
		if err != nil {
			return nil, err
		}
		t := x.named(p, name)
		if p == upstream.PartTools {
			if c := x.connecting(t, name); c != nil {
				return c, nil
			}
		}
		if t == nil {
			if t, err = s.awaitNamed(ctx, x, p, name); err != nil {
				return nil, err
			}
		}
		if t == nil || t.Tool != nil && t.Tool.HeaderProblem != "" && x.Era == client.EraModern {
			return nil, unknownNamed(p, name)
		}
		return t, nil
	}
}

// stringParam returns a member of the params that the method requires.
func (x *Exchange) stringParam(name string) (string, error) {
	text, err := x.Params.String(name)
	if err == raw.ErrAbsent {
		return "", InvalidParams("Invalid params: no %s", name)
	}
	return text, err
}

// filter removes the parts of an upstream's answer that policy hides from the caller.
func (x *Exchange) filter(r client.Result, err error) (client.Result, error) {
	if err == nil {
		r, err = x.checkSkills(r)
	}
	if err != nil || x.Subject.Redact == nil {
		return r, x.filterError(err)
	}
	kept := redact.Nothing
	switch {
	case r.Type == client.TypeInputRequired:
		kept = redact.RequestState
	case r.Type == client.TypeTask, x.method.member == "taskId":
		kept = redact.TaskID
	}
	if x.target.Part == upstream.PartSkills && r.Type == client.TypeComplete {
		return x.filterBesideSkill(r)
	}
	clean := x.redactor()
	if r.Type == client.TypeInputRequired { // a person reads it
		clean = x.reader()
	}
	var n int
	if r.Object, n, err = clean.Result(r.Object, kept); err != nil {
		err = x.invalid(err.Error())
	} else if n > 0 && mcp.MCPMethod(x.Msg.Method) == mcp.MethodResourcesRead && x.target.InSkill() {
		err = x.redactedFile()
	}
	return r, err
}

// filterError redacts an upstream's error, and removes the member that marks Junction's errors. Other
// errors are Junction's own (see fail).
func (x *Exchange) filterError(err error) error {
	if peer, ok := err.(*jsonrpc.Error); ok {
		err, _ = x.redactor().Error(unmarked(peer))
	}
	return err
}

// named returns the tool or prompt with this name; nil if the caller has none. If policy denies the
// item, x.Info gets the denying policy and rule for the audit.
func (x *Exchange) named(p upstream.Part, name string) *view.Target {
	x.Info.Name = name
	if t := x.Subject.Named(p, name); t != nil {
		if t.ForApps && x.Who.Profile.UI == "" {
			return nil
		}
		return t
	}
	if t := x.Endpoint.View.Named(p, name); t != nil {
		x.decide(t) // an error would concern the arguments, and this call is not made
		x.Info.Verdict = policy.Deny.String()
		if t.Withheld != "" && x.Subject.Safeguards.Pinned {
			x.overrule(policy.Decision{Rule: view.RulePinned})
		}
	}
	return nil
}
