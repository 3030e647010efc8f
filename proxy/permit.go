package proxy

import (
	"cmp"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/policy"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// This file asks the policy about a call.

// permit decides about a call of the target. A target that is denied with all arguments does not exist
// for the client. If the client sees the target, and only these arguments are denied, the error tells
// so, but neither the rule nor the value. The error may also be about the request itself: an ambiguous
// argument, or a missing scope.
func (x *Exchange) permit(t *view.Target) error {
	if err := x.decide(t); err != nil {
		return err
	}
	switch {
	case x.decision.Scopes != "":
		return x.stepUp(x.decision.Scopes)
	case !x.decision.Verdict.Denies():
		return nil
	case x.Subject.Ruling(t).Reads():
		return deniedArguments(t.Part, x.Info.Name)
	}
	return x.unknown()
}

// decide stores the policy decision about a call of the target in x.decision and in x.Info.
func (x *Exchange) decide(t *view.Target) error {
	x.Info.Upstream, x.Info.Own = t.Backend.Name(), t.Name
	d, err := x.judge(x.Subject.Ruling(t))
	if err != nil {
		return err
	}
	x.decision = d
	x.Info.Verdict, x.Info.Policy, x.Info.Rule = d.Verdict.String(), d.Policy, d.Rule
	x.Info.Missing = cmp.Or(d.Missing, d.Scopes)
	// the user reads the arguments, so they must not be ambiguous
	if d.Verdict.Asks() {
		_, err = x.arguments()
	}
	return err
}

// judge returns what a ruling decides about the arguments of the call.
func (x *Exchange) judge(g *policy.Ruling) (policy.Decision, error) {
	if !g.Reads() {
		return g.Decide(raw.Object{})
	}
	arguments, err := x.arguments()
	if err != nil {
		return policy.Decision{}, err
	}
	return g.Decide(arguments)
}

// Still implements upstream.Guard. It returns why the call is no longer permitted, if the caller or the policy has
// changed while the call has waited for its server, and changes nothing of the exchange.
func (x *Exchange) Still() error {
	now := x.core.snapshot.Load()
	switch {
	case now != x.Snapshot:
	case x.Principal.Kind == auth.KindLocal, x.Principal.Kind == auth.KindKey: // only a reload takes these rights
		return nil
	case now.Config.Guard.Still(x.Principal):
		return nil
	}
	caller := now.Adopt(x.Caller)
	switch {
	case !now.Config.Guard.Still(x.Principal):
		return errRejected
	case caller.Subject == nil:
		return x.unknown()
	}
	d, err := x.judge(caller.Subject.Ruling(x.target))
	switch {
	case err != nil:
		return err
	case d.Scopes != "":
		return x.stepUp(d.Scopes)
	case d.Verdict.Denies():
		return x.unknown()
	case d.Verdict.Asks() && !x.decision.Verdict.Asks():
		return errAsksNow
	}
	return nil
}

// errAsksNow is the error of a call that needs an approval only since it was sent.
var errAsksNow = InvalidParams("This call needs an approval now, because the policy has changed since it was sent; " +
	"send it again")

// errRejected is the error of a call whose caller may not connect any more since it was sent.
var errRejected = &Refusal{code: mcp.INVALID_PARAMS, Outcome: Denied, text: "The call was not sent, because the " +
	"key or the sign-in of the client is no longer valid; use another key, or sign in again"}

// permitAgain finds and permits the target of x again in the current snapshot. The policy may have
// changed while the user was answering. x.target and x.Info do not change.
func (s *Core) permitAgain(x *Exchange, permit func(*Exchange, *view.Target) error) error {
	w := s.snapshot.Load()
	if w == x.Snapshot {
		return nil
	}
	denied := x.unknown()
	now := w.Adopt(x.Caller)
	if now.Subject == nil {
		return denied
	}
	var t *view.Target
	if x.target.Part == upstream.PartResources {
		t, _ = now.Subject.Resource(x.target.Exposed)
	} else if x.target.Part == upstream.PartSkills {
		t, _ = now.Subject.Skill(x.target.Exposed)
	} else {
		t = now.Subject.Named(x.target.Part, x.target.Exposed)
	}
	if t == nil || t.Backend.Name() != x.target.Backend.Name() || t.Name != x.target.Name {
		return denied
	}
	x.Caller = now
	defer func(first CallInfo) { x.Info = first }(x.Info)
	return permit(x, t)
}

// unknown returns the error for a target that does not exist.
func (x *Exchange) unknown() error {
	if x.target.Part == upstream.PartResources {
		return unknownResource(x.Era, x.target.Exposed)
	} else if x.target.Part == upstream.PartSkills {
		return unknownResource(client.EraModern, x.target.Exposed)
	}
	return unknownNamed(x.target.Part, x.Info.Name)
}

// arguments returns the arguments of the call; absent if the call has none. Arguments that are not
// an object are rejected: policy cannot judge them, and an upstream might still accept them.
func (x *Exchange) arguments() (raw.Object, error) { return argumentsOf(x.sent()) }

func argumentsOf(params raw.Object) (raw.Object, error) {
	v, err := params.Get("arguments")
	switch {
	case err == raw.ErrAbsent, err == nil && string(v) == "null":
		return raw.Object{}, nil
	case err != nil:
		return raw.Object{}, err
	case v[0] != '{':
		return raw.Object{}, InvalidParams("Invalid params: arguments is no object")
	}
	return params.Object("arguments")
}

// scoped replaces permit for requests without arguments that policy reads. The error lists the
// scopes that the caller's token lacks.
func (x *Exchange) scoped(t *view.Target) error {
	if scopes := x.Subject.Ruling(t).Scopes(); scopes != "" {
		return x.stepUp(scopes)
	}
	return nil
}

// stepUp returns the error for a token that lacks scopes. Its challenge tells the client to ask the
// user for a token with these scopes.
func (x *Exchange) stepUp(scopes string) error {
	e := Refuse(ReasonScope, mcp.INVALID_REQUEST, "The token lacks a scope; needed are: %s", scopes)
	e.Outcome = Denied
	e.Scopes = scopes
	return e
}
