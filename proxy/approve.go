package proxy

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/policy"
	"junction/proxy/visible"
	"junction/upstream"
	"junction/upstream/raw"
)

// This file holds policy's "ask": the person at the client is shown the exact call, by elicitation,
// before it is made. A legacy client is asked on the stream of the call, a modern one is told
// input_required and comes back. An approval is for the principal and the values of the request
// (digest): another value asks again, another spelling of the same value does not.

// Answers that a person can choose. They are what the form shows, so that it is the same form in
// every version of the protocol.
const (
	answerOnce    = "yes, once"
	answerSession = "yes, and do not ask again for exactly this call"
	answerNo      = "no"
)

// approvalKey names our question in inputRequests.
const approvalKey = "junction_approval"

// approvals remembers what modern clients, which have no session, need not be asked again, and
// which approval requests were answered. Each principal has room of its own. The zero value is
// empty.
type approvals struct {
	mu sync.Mutex
	of map[string]*approvalsOf
}

type approvalsOf struct {
	given map[string]time.Time // digests of requests, and when each ends
	spent map[string]time.Time // askings, and when they expire anyway
}

const (
	approvalKept = time.Hour // of a modern client's approval that is to last
	maxApprovals = 1000      // remembered of one principal; some are forgotten beyond, and asked for again
	maxRemarked  = 256       // of one legacy session
)

// approve asks the person at the client if the decision is ask. It returns nil when the call may be
// made, or what to answer instead. A call about which nothing was decided is denied.
func (s *Server) approve(ctx context.Context, x *exchange, st state) (*result, error) {
	switch {
	case x.decision.Verdict == policy.Allow, x.decision.Verdict == policy.Ask && x.approved:
		return nil, nil
	case x.decision.Verdict != policy.Ask:
		return nil, x.unknown()
	case x.era == upstream.EraLegacy:
		return s.approveLegacy(ctx, x)
	}
	return s.approveModern(x, st)
}

// approveLegacy asks the person at a legacy client on the stream of the call.
func (s *Server) approveLegacy(ctx context.Context, x *exchange) (*result, error) {
	if x.session.approves(string(x.digest())) {
		x.approval, x.approved = "remembered", true
		return nil, nil
	}
	if !x.profile.Form || !x.reply.stream {
		x.approval = "impossible"
		return s.unapproved(x, x.cannotAsk())
	}
	x.approval = "declined"
	answer, err := x.send(ctx, string(mcp.MethodElicitationCreate), x.approvalForm(), nil)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return s.unapproved(x, "The request for approval of this call was not answered.")
	}
	choice := chosen(answer)
	if choice != answerOnce && choice != answerSession {
		return s.unapproved(x, "The person at the client did not approve this call.")
	}
	if err := s.permitAgain(x, (*exchange).permit); err != nil {
		x.approval = "late"
		return nil, err
	}
	if choice == answerSession {
		x.session.approve(string(x.digest()))
	}
	x.approval, x.approved = "given", true
	return nil, nil
}

// approveModern does the same for a modern client, with the state that it brought back.
func (s *Server) approveModern(x *exchange, st state) (*result, error) {
	// A parked call is made once, however often it is asked after; every other state that comes
	// back is a call.
	unused := func() bool { return s.approvals.spend(x.principal.ID, st.Approval, time.Unix(st.Expires, 0)) }
	if st.Approved && (st.Kind == stateParked || unused()) {
		x.approval, x.approved = "given", true // in an earlier request about the same call
		return nil, nil
	}
	request := string(x.digest())
	if s.approvals.has(x.principal.ID, request) {
		x.approval, x.approved = "remembered", true
		return nil, nil
	}
	if st.Kind != stateNone && st.Kind != stateApproval {
		return nil, errState() // the request began before policy said ask
	}
	if !x.profile.Form {
		x.approval = "impossible"
		return s.unapproved(x, x.cannotAsk())
	}
	if st.Kind == stateApproval {
		answers, err := x.params.Object("inputResponses")
		if err != nil && err != raw.ErrAbsent {
			return nil, err
		}
		answer, err := answers.Get(approvalKey)
		if err != nil && err != raw.ErrAbsent {
			return nil, err
		}
		if err == nil {
			if !s.approvals.spend(x.principal.ID, st.Approval, time.Unix(st.Expires, 0)) {
				return nil, errState() // each asking is answered once
			}
			switch chosen(answer) {
			case answerSession:
				s.approvals.give(x.principal.ID, request)
			case answerOnce:
			default:
				x.approval = "declined"
				return s.unapproved(x, "The person at the client did not approve this call.")
			}
			x.approval, x.approved = "given", true
			return nil, nil
		}
	}
	x.approval = "asked"
	b := append([]byte(`{"resultType":"input_required","inputRequests":{"`+approvalKey+
		`":{"method":"elicitation/create","params":`), x.approvalForm()...)
	b = raw.AppendQuote(append(b, `}},"requestState":`...), s.seal(x, state{Kind: stateApproval}))
	b = append(append(b, `,"_meta":`...), s.modernMeta...)
	return &result{body: append(b, '}')}, nil
}

// chosen is what a person chose; "" when nothing was accepted.
func chosen(answer []byte) string {
	o, err := raw.Parse(answer)
	if err != nil {
		return ""
	}
	if action, err := o.String("action"); err != nil || action != "accept" {
		return ""
	}
	content, err := o.Object("content")
	if err != nil {
		return ""
	}
	text, _ := content.String("answer")
	return text
}

// approvalForm is the elicitation that shows the call. Its words are ours: those of upstreams begin
// with the upstream's name in brackets (question.go).
func (x *exchange) approvalForm() []byte {
	t := x.target
	message := fmt.Sprintf("This call needs your approval.\nServer: %s\n%s: %s", t.Backend.Name(),
		kindName(x.msg.Method), shown(t.Name, maxShown))
	member := "arguments"
	if mcp.MCPMethod(x.msg.Method) == mcp.MethodResourcesRead {
		member = ""
	}
	if member != "" {
		arguments, err := x.params.Get(member)
		if err != nil {
			arguments = []byte("{}")
		}
		message += "\nArguments: " + shownArguments(arguments)
	}
	b := raw.AppendQuote([]byte(`{"message":`), message)
	b = append(b, `,"requestedSchema":{"type":"object","properties":{"answer":{"type":"string",`+
		`"title":"May it be made?","enum":["`+answerOnce+`","`+answerSession+`","`+answerNo+`"]}},"required":["answer"]}}`...)
	return b
}

// maxShown bounds the arguments in an approval; what is left out is said. An argument may have
// leastShown in any case.
const (
	maxShown   = 2000
	leastShown = 60
)

// shownArguments is the arguments of a call as a person reads them. Of long ones each is cut off by
// itself, so that none is hidden behind another.
func shownArguments(text []byte) string {
	o, err := raw.Parse(text)
	if err != nil || len(text) <= maxShown {
		return shown(string(text), maxShown)
	}
	var b strings.Builder
	b.WriteByte('{')
	i, each := 0, max(leastShown, maxShown/max(1, o.Len()))
	for m := range o.All() {
		if i > 0 {
			b.WriteByte(',')
		}
		if b.Len() > 2*maxShown {
			fmt.Fprintf(&b, " … (%d more arguments are not shown)", o.Len()-i)
			break
		}
		b.WriteString(shown(string(m.Key), leastShown) + ":" + shown(string(m.Value), each))
		i++
	}
	return b.String() + "}"
}

// kindName is the word for what a method uses.
func kindName(method string) string {
	switch mcp.MCPMethod(method) {
	case mcp.MethodPromptsGet:
		return "Prompt"
	case mcp.MethodResourcesRead:
		return "Resource"
	}
	return "Tool"
}

// shown is a text as a person who decides by it reads it: nothing in it is invisible, and what is
// cut off is counted.
func shown(text string, limit int) string {
	if len(text) <= limit {
		return visible.Text(text)
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return visible.Text(text[:limit]) + fmt.Sprintf(" … (%d more bytes are not shown)", len(text)-limit)
}

// cannotAsk returns the text for a client that cannot ask its person: how to allow the call.
func (x *exchange) cannotAsk() string {
	return fmt.Sprintf("This call needs the approval of a person, and this client cannot ask for it: "+
		"it has not declared elicitation. Use a client that has, or have the operator allow it: in policy %s, before %s, add allow: { %s: %q }.", x.decision.Policy, x.decision.Rule,
		strings.ToLower(kindName(x.msg.Method))+"s", x.policyName())
}

// policyName is the name by which a rule can speak of the call's target.
func (x *exchange) policyName() string { return x.target.PolicyItem().Names[0] }

// unapproved answers a call that was not made: a tool's by a result that the model reads, others by
// an error of ours.
func (s *Server) unapproved(x *exchange, text string) (*result, error) {
	if mcp.MCPMethod(x.msg.Method) != mcp.MethodToolsCall {
		e := failure(x.target.Backend.Name(), kindApproval, text)
		return nil, &refusal{status: http.StatusOK, code: e.Code, text: e.Message, data: e.Data}
	}
	members := string(raw.AppendQuote([]byte(`"content":[{"type":"text","text":`), text)) + `}],"isError":true`
	r := s.ownResult(x, members)
	return &r, nil
}

// kindApproval is the kind of our error for a call that was not approved.
const kindApproval = "approval"

// resultOf is the result, or the zero one.
func resultOf(r *result) result {
	if r == nil {
		return result{}
	}
	return *r
}

// its returns what is remembered of a principal; a.mu is held. If many principals are remembered,
// it first removes those without entries.
func (a *approvals) its(principal string) *approvalsOf {
	if its := a.of[principal]; its != nil {
		return its
	}
	if a.of == nil || len(a.of) >= maxApprovals {
		now := time.Now()
		maps.DeleteFunc(a.of, func(_ string, its *approvalsOf) bool {
			its.end(now)
			return len(its.given)+len(its.spent) == 0
		})
	}
	if a.of == nil {
		a.of = map[string]*approvalsOf{}
	}
	its := &approvalsOf{map[string]time.Time{}, map[string]time.Time{}}
	a.of[principal] = its
	return its
}

// end takes out what has ended.
func (its *approvalsOf) end(now time.Time) {
	for _, m := range [...]map[string]time.Time{its.given, its.spent} {
		maps.DeleteFunc(m, func(_ string, until time.Time) bool { return !now.Before(until) })
	}
}

// has reports whether the request need not be asked for again.
func (a *approvals) has(principal, request string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	its := a.of[principal]
	return its != nil && time.Now().Before(its.given[request])
}

func (a *approvals) give(principal, request string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	its, now := a.its(principal), time.Now()
	if len(its.given) >= maxApprovals {
		its.end(now)
	}
	for other := range its.given {
		if len(its.given) < maxApprovals {
			break
		}
		delete(its.given, other) // that is asked for again
	}
	its.given[request] = now.Add(approvalKept)
}

// spend reports whether an asking was not answered before.
func (a *approvals) spend(principal, id string, until time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	its := a.its(principal)
	if len(its.spent) >= maxApprovals {
		its.end(time.Now())
	}
	if _, ok := its.spent[id]; ok || len(its.spent) >= maxApprovals {
		return false // rather asked for again than made twice
	}
	its.spent[id] = until
	return true
}

// approves reports whether the session's person has approved the request for good.
func (s *session) approves(request string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.approved[request]
}

func (s *session) approve(request string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.approved == nil || len(s.approved) >= maxRemarked {
		s.approved = map[string]bool{}
	}
	s.approved[request] = true
}
