package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
	"junction/policy"
	"junction/proxy/approval"
	"junction/proxy/sealed"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// This file implements policy's "ask": the user sees the exact call in an elicitation and approves
// it before it is made. A call that the form cannot show in full is refused. A legacy client gets the
// elicitation on the stream of the call. A modern client gets input_required and returns. An approval
// is valid for the principal and the values of the request and its _meta (sealed.Request): another
// value needs a new approval, another spelling of the same value does not. The user may allow more at
// once, if the rule permits it (offer): any call of the tool or of the server, for a time.

// The values of CallInfo.Approval.
const (
	approvalAsked      = "asked"
	approvalGiven      = "given"
	approvalRemembered = "remembered"
	approvalDeclined   = "declined"
	approvalUnanswered = "unanswered"
	approvalLate       = "late"
	approvalImpossible = "impossible"
)

// approvalKey is the key of Junction's elicitation in inputRequests.
const approvalKey = "junction_approval"

// approve requests the user's approval if the decision is ask. It returns nil if the call may be
// made, else the result for the client. A call without a decision is denied.
func (s *Core) approve(ctx context.Context, x *Exchange, st sealed.State) (*Result, error) {
	switch {
	case x.decision.Verdict.Allows(), x.decision.Verdict.Asks() && x.approved:
		return nil, nil
	case !x.decision.Verdict.Asks():
		return nil, x.unknown()
	case x.Era == client.EraLegacy:
		return s.approveLegacy(ctx, x)
	}
	return s.approveModern(ctx, x, st)
}

// approveLegacy requests approval from a legacy client on the stream of the call.
func (s *Core) approveLegacy(ctx context.Context, x *Exchange) (*Result, error) {
	if x.remembered(x.Session.approves) {
		x.Info.Approval, x.approved = approvalRemembered, true
		return nil, nil
	}
	if !x.Who.Profile.Form || !x.front.Hears() {
		return s.unapproved(x, approvalImpossible, x.cannotAsk())
	}
	form, err := x.approvalForm()
	if err != nil {
		return s.unapproved(x, approvalImpossible, x.cannotShow(err))
	}
	x.Info.Approval = approvalUnanswered
	answer, err := x.send(ctx, Question{Method: string(mcp.MethodElicitationCreate)}, form, nil)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return s.unapproved(x, approvalUnanswered, "The request for approval of this call was not answered.")
	}
	span, ok := x.offer().Chosen(answer)
	if !ok {
		return s.unapproved(x, approvalDeclined, "The person at the client did not approve this call.")
	}
	shown := x.spanKey(span)
	if err := s.permitAgain(x, (*Exchange).permit); err != nil {
		x.Info.Approval = approvalLate
		return nil, err
	}
	// the policy, or the server, may have changed meanwhile
	if span > policy.SpanOnce && span <= x.offer().Most && x.spanKey(span) == shown {
		x.Session.approve(shown)
	}
	x.Info.Approval, x.approved = approvalGiven, true
	return nil, nil
}

// approveModern requests approval from a modern client, or reads its answer. st is the state that
// the client returned.
func (s *Core) approveModern(ctx context.Context, x *Exchange, st sealed.State) (*Result, error) {
	if st.Approval != "" && st.Kind != sealed.Parked && !bytes.Equal(st.App, x.app()) {
		return nil, InvalidParams("Invalid params: another client has shown the form for the approval of this call, " +
			"and only that client can return the answer; make the request without requestState to get a form")
	}
	request := x.identity().ApprovalDigest()
	if st.Approved && (st.Kind == sealed.Parked || bytes.Equal(st.Shown, request)) {
		// A parked call is made once, however often the client polls it. With any other state, each
		// request is a call.
		unused := st.Kind == sealed.Parked
		if !unused {
			var err error
			if unused, err = s.spend(ctx, x, st); err != nil {
				return nil, err
			}
		}
		if unused {
			// in an earlier request about the same call
			x.Info.Approval, x.approved, x.shown = approvalGiven, true, st.Shown
			return nil, nil
		}
	}
	has := func(key string) bool { return s.approvals.Has(x.Principal.ID, key) }
	if x.remembered(has) {
		x.Info.Approval, x.approved = approvalRemembered, true
		return nil, nil
	}
	if st.Kind != sealed.None && st.Kind != sealed.Approval {
		return nil, errState() // the request began before policy required approval
	}
	if !x.Who.Profile.Form {
		return s.unapproved(x, approvalImpossible, x.cannotAsk())
	}
	if st.Kind == sealed.Approval && bytes.Equal(st.Shown, request) { // else the user was shown another _meta
		answers, err := x.Params.Object("inputResponses")
		if err != nil && err != raw.ErrAbsent {
			return nil, err
		}
		answer, err := answers.Get(approvalKey)
		if err != nil && err != raw.ErrAbsent {
			return nil, err
		}
		if err == nil {
			if first, err := s.spend(ctx, x, st); err != nil {
				return nil, err
			} else if !first {
				return nil, errState() // each approval request is answered once
			}
			span, ok := x.offer().Chosen(answer)
			if !ok {
				return s.unapproved(x, approvalDeclined, "The person at the client did not approve this call.")
			}
			if span <= policy.SpanCall || bytes.Equal(st.Spans, x.spans()) { // else it is asked again
				if span > policy.SpanOnce {
					s.approvals.Give(x.Principal.ID, x.spanKey(span))
				}
				x.Info.Approval, x.approved = approvalGiven, true
				return nil, nil
			}
		}
	}
	form, err := x.approvalForm()
	if err != nil {
		return s.unapproved(x, approvalImpossible, x.cannotShow(err))
	}
	x.Info.Approval = approvalAsked
	ask := fmt.Appendf(nil, `"%s":{"method":"elicitation/create","params":%s}`, approvalKey, form)
	return new(s.inputRequired(x, [][]byte{ask}, sealed.State{Kind: sealed.Approval, Spans: x.spans(),
		Asked: x.asking("", string(mcp.MethodElicitationCreate))})), nil
}

// offer returns what the user may allow at once. More than one call is for tools. In the modern era,
// several users behind a proxy that authenticates may be one principal: what one of them approves
// covers no other call, which could be another user's.
func (x *Exchange) offer() approval.Offer {
	o := approval.Offer{Most: x.decision.Remember, Session: x.Era == client.EraLegacy}
	shared := x.Principal.Kind == auth.KindLocal && !x.Snapshot.Direct
	switch {
	case shared && !o.Session:
		o.Most = policy.SpanOnce
	case x.target.Part != upstream.PartTools:
		o.Most = min(o.Most, policy.SpanCall)
	}
	return o
}

// remembered reports whether an earlier approval covers the call, and the rule that asks about the call
// lets approvals cover so much. is looks a key up.
func (x *Exchange) remembered(is func(key string) bool) bool {
	for span := policy.SpanCall; span <= x.offer().Most; span++ {
		if is(x.spanKey(span)) {
			return true
		}
	}
	return false
}

// spanKey returns the key of a remembered approval. It is a digest of the endpoint, the server with its
// address or command, and, in the modern era, the program and the sign-in; for one exact call also of the
// request, and for a tool of its name and its definition, so that a tool that has changed needs a new
// approval.
func (x *Exchange) spanKey(span policy.Span) string {
	server := x.target.Backend.Config()
	parts := append([]any{span, x.Endpoint.Name, x.target.Backend.Name()}, server.Address()...)
	if x.Era == client.EraModern {
		parts = append(parts, x.app())
	}
	if x.folders != nil {
		parts = append(parts, x.folders.Key())
	}
	if len(x.forwarded) > 0 {
		parts = append(parts, "headers", x.forwarded.Key())
	}
	switch span {
	case policy.SpanCall:
		parts = append(parts, x.identity().ApprovalDigest())
	case policy.SpanTool:
		parts = append(parts, x.target.Name, string(x.target.Item.Definition.Text()))
	}
	return fmt.Sprintf("%d %x", span, digestOf(parts))
}

// app returns a digest of a modern client: the account, and the name that the program and the sign-in
// have. It is the same in all members, since the answer to a form may reach another one.
func (x *Exchange) app() []byte {
	return digestOf([]any{x.Grant.Account.Principal, x.Grant.Agent(), x.Grant.Account.From.String(),
		x.Principal.Kind, x.Principal.OAuthClient, x.Principal.Grant, x.Info.Client})[:16]
}

// digestOf returns a digest of values.
func digestOf(parts []any) []byte {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%#v,", part)
	}
	return h.Sum(nil)
}

// spans returns a digest of what the form offers beyond the exact call; nil for nothing. A modern client
// returns with the answer in a later request: if the tool or the server has another definition by then,
// the user has not seen what the answer would allow.
func (x *Exchange) spans() []byte {
	if x.offer().Most <= policy.SpanCall {
		return nil
	}
	sum := sha256.Sum256([]byte(x.spanKey(policy.SpanTool) + x.spanKey(policy.SpanServer)))
	return sum[:16]
}

// approvalForm returns the elicitation that shows the call (package approval). The error says why the
// form cannot show all of it.
func (x *Exchange) approvalForm() ([]byte, error) {
	c := approval.Call{Server: x.target.Backend.Name(), Kind: x.target.PolicyItem().Kind.String(),
		Name: x.target.Name, Folders: x.folders.Paths(), Offer: x.offer()}
	own := []raw.Edit{{Name: "_meta"}, {Name: "inputResponses"}, {Name: "requestState"}}
	if x.Era == client.EraLegacy {
		own = append(own, raw.Edit{Name: "task"}) // see openState
	}
	if x.target.Part == upstream.PartResources || x.target.Part == upstream.PartSkills { // without arguments
		own = append(own, raw.Edit{Name: "uri"})
	} else {
		own = append(own, raw.Edit{Name: "name"}, raw.Edit{Name: "arguments"})
		var err error
		if c.Arguments, err = x.Params.Get("arguments"); err != nil {
			c.Arguments = []byte("{}")
		}
	}
	others, err := x.Params.With(own...)
	if err != nil {
		return nil, errors.New("a parameter occurs twice, or in another letter case")
	}
	if others.Len() > 0 {
		c.Others = others.Text()
	}
	var ok bool
	if c.Meta, ok = x.identity().ApprovedMeta(); !ok {
		return nil, errors.New("a member of _meta occurs twice, or in another letter case")
	}
	return approval.Form(c)
}

// cannotAsk returns the text for a client that does not support elicitation. The model that calls must not learn how
// to weaken the policy.
func (x *Exchange) cannotAsk() string {
	why := "it has not declared elicitation. Use a client that has, such as junction call at a terminal"
	if x.sessionless() {
		why = "its request has no session. Use a client that sends Mcp-Session-Id"
	}
	return "This call needs the approval of a person, and this client cannot ask for it: " + why +
		", or ask the operator of Junction, whose log has more."
}

// cannotShow returns the text for a call that a form cannot show in full. A user must not approve what
// the form hides.
func (x *Exchange) cannotShow(why error) string {
	return fmt.Sprintf("This call needs the approval of a person, and the form cannot show all of it (%v). "+
		"Make a smaller or clearer call, or ask the operator of Junction, whose log has more.", why)
}

// allowing tells the operator which rule allows the call without an approval.
func (x *Exchange) allowing() string {
	item := x.target.PolicyItem()
	return fmt.Sprintf("to allow it without an approval, add allow: { %ss: %q } to the policy %s, before %s",
		item.Kind, item.Names[0], x.decision.Policy, x.decision.Rule)
}

// unapproved answers a call that was not approved, and stores how: a tool call with a result for the
// model, others with an error.
func (s *Core) unapproved(x *Exchange, how, text string) (*Result, error) {
	if x.Info.Approval = how; how == approvalImpossible {
		s.log.Info("a call needs an approval, and its client cannot ask for it, or cannot show it", "principal",
			x.Info.Principal, "name", x.Info.Name, "policy", x.decision.Policy, "rule", x.decision.Rule, "advice",
			x.allowing())
	}
	if mcp.MCPMethod(x.Msg.Method) != mcp.MethodToolsCall {
		e := failure(x.target.Backend.Name(), kindApproval, text)
		return nil, &Refusal{code: e.Code, text: e.Message, Data: e.Data}
	}
	return new(s.toolText(x, text, isError)), nil
}

// kindApproval is the kind of Junction's error for a call that was not approved.
const kindApproval = "approval"

// resultOf returns *r, or the zero result if r is nil.
func resultOf(r *Result) Result {
	if r == nil {
		return Result{}
	}
	return *r
}

// spend marks the approval request of a state as answered, for all members. It returns false if the
// request was answered before, or may have been: a process that is alone forgets that when it ends.
func (s *Core) spend(ctx context.Context, x *Exchange, st sealed.State) (bool, error) {
	if !s.sealer.Made(st) {
		return false, nil
	}
	until := time.Unix(st.Expires, 0)
	if s.members == nil {
		return s.approvals.Spend(x.Principal.ID, st.Approval, until), nil
	}
	first, err := s.members.Once(ctx, st.Approval, until)
	if err != nil {
		return false, UnavailableError("the approval cannot be checked now: the database cannot be reached")
	}
	return first, nil
}
