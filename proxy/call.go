package proxy

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/policy"
	"junction/proxy/schema"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// permit decides about a call of the target. The error is what unknown returns, that of a thing
// that does not exist, where it is denied; or one of the request itself.
func (x *exchange) permit(t *view.Target, info *CallInfo, unknown func() error) error {
	if err := x.decide(t, info); err != nil {
		return err
	}
	switch {
	case x.decision.Scopes != "":
		return x.stepUp(x.decision.Scopes)
	case x.decision.Verdict == policy.Deny:
		return unknown()
	}
	return nil
}

// decide finds out what policy says of a call of the target.
func (x *exchange) decide(t *view.Target, info *CallInfo) error {
	info.Upstream, info.Own = t.Backend.Name(), t.Name
	g := x.subject.Ruling(t)
	var arguments raw.Object
	if g.Reads() {
		var err error
		if arguments, err = x.arguments(); err != nil {
			return err
		}
	}
	d, err := g.Decide(arguments)
	if err != nil {
		return err
	}
	x.decision = d
	info.Verdict, info.Policy, info.Rule, info.Missing = d.Verdict.String(), d.Policy, d.Rule, cmp.Or(d.Missing, d.Scopes)
	if d.Verdict == policy.Ask { // a person reads the arguments: what two readers may read in two ways is shown to nobody
		_, err = x.arguments()
	}
	return err
}

// arguments are those of a call, for who has to read them; absent when there are none. What is no
// object cannot be judged, and an upstream might read it all the same.
func (x *exchange) arguments() (raw.Object, error) {
	v, err := x.params.Get("arguments")
	switch {
	case err == raw.ErrAbsent, err == nil && string(v) == "null":
		return raw.Object{}, nil
	case err != nil:
		return raw.Object{}, err
	case v[0] != '{':
		return raw.Object{}, invalidParams("Invalid params: arguments is no object")
	}
	return x.params.Object("arguments")
}

// scoped is permit for what has no arguments that policy reads: the error says which scopes the
// caller's token lacks, if it does.
func (x *exchange) scoped(t *view.Target) error {
	if scopes := x.subject.Ruling(t).Scopes(); scopes != "" {
		return x.stepUp(scopes)
	}
	return nil
}

// stepUp is the refusal of what the caller may use with a token of more scopes: a client that is
// told so asks its person for one.
func (x *exchange) stepUp(scopes string) error {
	e := refuse(http.StatusForbidden, mcp.INVALID_REQUEST, "The token lacks a scope; needed are: %s", scopes)
	e.challenge = x.snapshot.guard.Resources.StepUp(x.request.URL.Path, strings.Fields(scopes))
	return e
}

// filter takes out of what an upstream answered what policy does not let the caller read.
func (x *exchange) filter(r upstream.Result, err error) (upstream.Result, error) {
	if x.subject.redact == nil {
		return r, err
	}
	if peer, ok := err.(*jsonrpc.Error); ok { // others are ours
		clean, _ := x.subject.redact.Error(peer)
		return r, clean
	}
	if err == nil {
		if r.Object, _, err = x.subject.redact.Result(r.Object); err != nil {
			err = x.invalid(err.Error())
		}
	}
	return r, err
}

// findNamed returns the tool or prompt of that name; nil when there is none for the caller. Of one that
// it is denied the audit has what denies it.
func (x *exchange) findNamed(p upstream.Part, name string, info *CallInfo) *view.Target {
	info.Name = name
	if t := x.subject.Named(p, name); t != nil {
		if t.ForApps && x.who.profile.UI == "" {
			return nil
		}
		return t
	}
	if t := x.endpoint.view.Named(p, name); t != nil {
		x.decide(t, info) // an error would be about the arguments of a call that is not made
		info.Verdict = policy.Deny.String()
		if t.Held != "" && x.subject.Guards.Pinned {
			info.Rule = "pinned"
		}
	}
	return nil
}

// callTool passes a call on to the tool's upstream.
func callTool(ctx context.Context, s *Server, x *exchange, info *CallInfo) (result, error) {
	name, err := x.params.String("name")
	if err == raw.ErrAbsent {
		return result{}, invalidParams("Invalid params: no name")
	} else if err != nil {
		return result{}, err
	}
	t := x.findNamed(upstream.PartTools, name, info)
	if c := x.connecting(t, name); c != nil {
		return s.connect(ctx, x, c, info)
	}
	if t == nil {
		if t, err = s.awaitNamed(ctx, x, upstream.PartTools, name, info); err != nil {
			return result{}, err
		}
	}
	if t == nil || x.era == upstream.EraModern && t.Tool.HeaderProblem != "" {
		return result{}, unknownTool(name)
	}
	if err := x.permit(t, info, func() error { return unknownTool(name) }); err != nil {
		return result{}, err
	}
	var extra []upstream.HeaderField
	if x.era == upstream.EraModern {
		if extra, err = checkParamHeaders(x, t.Tool); err != nil {
			return result{}, err
		}
	}
	if x.subject.Guards.Validate {
		if wrong, err := s.checkArguments(x, t); err != nil {
			return result{}, err
		} else if wrong != nil {
			info.Outcome = "invalid_arguments"
			return s.ownResult(x, string(wrong[1:len(wrong)-1])), nil
		}
	}
	return s.call(ctx, x, t, extra)
}

// checkArguments compares the arguments of a call with the tool's schema. It returns the result
// that says what is wrong with them; nil when nothing is, or when the schema cannot be used.
func (s *Server) checkArguments(x *exchange, t *view.Target) ([]byte, error) {
	arguments, err := x.arguments()
	if err != nil {
		return nil, err
	}
	problems, err := s.schemas.Check(t.Item.Definition.Text(), arguments)
	if err != nil {
		s.log.Warn("the arguments of a tool are not checked: its schema cannot be used", "upstream", t.Backend.Name(), "name", t.Name, "error", err)
	}
	if len(problems) == 0 {
		return nil, nil
	}
	return schema.InvalidResult(t.Exposed, problems), nil
}

// checkParamHeaders compares the Mcp-Param headers with the arguments that they repeat (2026-07-28,
// streamable-http#server-validation), and returns those that no argument is declared for.
func checkParamHeaders(x *exchange, tool *upstream.Tool) ([]upstream.HeaderField, error) {
	var extra []upstream.HeaderField
	const prefix = "Mcp-Param-"
	for name, values := range x.header {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		declared := false
		for _, p := range tool.Params {
			declared = declared || strings.EqualFold(name, p.Header())
		}
		if !declared {
			for _, v := range values {
				extra = append(extra, upstream.HeaderField{Name: name, Value: v})
			}
		}
	}
	if len(tool.Params) == 0 {
		return extra, nil
	}
	arguments, err := x.params.Object("arguments")
	if err != nil && err != raw.ErrAbsent {
		return nil, err
	}
	for _, p := range tool.Params {
		want, given := p.Value(arguments)
		values := x.header[http.CanonicalHeaderKey(p.Header())]
		switch {
		case !given && len(values) == 0:
		case !given:
			return nil, mismatch("%s is set, and the argument that it repeats is not", p.Header())
		case len(values) != 1:
			return nil, mismatch("%s is missing, or occurs twice", p.Header())
		default:
			got, ok := mcp.DecodeHeaderValue(strings.TrimSpace(values[0]))
			if !ok || !p.Matches(got, want) {
				return nil, mismatch("%s differs from the argument that it repeats", p.Header())
			}
		}
	}
	return extra, nil
}

// getPrompt has a prompt filled in by its upstream.
func getPrompt(ctx context.Context, s *Server, x *exchange, info *CallInfo) (result, error) {
	name, err := x.params.String("name")
	if err == raw.ErrAbsent {
		return result{}, invalidParams("Invalid params: no name")
	} else if err != nil {
		return result{}, err
	}
	t := x.findNamed(upstream.PartPrompts, name, info)
	if t == nil {
		if t, err = s.awaitNamed(ctx, x, upstream.PartPrompts, name, info); err != nil {
			return result{}, err
		}
	}
	if t == nil {
		return result{}, unknownPrompt(name)
	}
	if err := x.permit(t, info, func() error { return unknownPrompt(name) }); err != nil {
		return result{}, err
	}
	return s.call(ctx, x, t, nil)
}

// readResource passes a read on to the upstream that the URI belongs to.
func readResource(ctx context.Context, s *Server, x *exchange, info *CallInfo) (result, error) {
	t, err := x.requestedResource(info)
	if err != nil {
		return result{}, err
	}
	if err := x.permit(t, info, func() error { return unknownResource(x.era, info.Name) }); err != nil {
		return result{}, err
	}
	return s.call(ctx, x, t, nil)
}

// requestedResource returns what the request's uri stands for: something that the caller may use, if only
// after it was asked.
func (x *exchange) requestedResource(info *CallInfo) (*view.Target, error) {
	uri, err := x.params.String("uri")
	if err == raw.ErrAbsent {
		return nil, invalidParams("Invalid params: no uri")
	} else if err != nil {
		return nil, err
	}
	return x.findResource(x.era, uri, info)
}

// findResource returns what a URI stands for; the error is one for a client of that era. Of what the caller
// is denied the audit has what denies it.
func (x *exchange) findResource(era upstream.Era, uri string, info *CallInfo) (*view.Target, error) {
	info.Name = uri
	t, err := x.subject.Resource(uri)
	if err != nil {
		if denied, other := view.Everything(x.endpoint.view).Resource(uri); other == nil {
			x.decide(denied, info)
			info.Verdict = policy.Deny.String()
		}
		return nil, noResource(era, uri, err)
	}
	info.Upstream, info.Own = t.Backend.Name(), t.Name
	return t, nil
}

// call makes one call, whichever eras meet, and returns the result as the client's era wants it.
func (s *Server) call(ctx context.Context, x *exchange, t *view.Target, header []upstream.HeaderField) (result, error) {
	x.begin()
	x.target = t
	c := x.call(t, header)
	if x.era == upstream.EraLegacy {
		if asked, err := s.approveLegacy(ctx, x); asked != nil || err != nil {
			return resultOf(asked), err
		}
		return s.callForLegacy(ctx, x, c)
	}
	legacy := t.Backend.Catalog().Era == upstream.EraLegacy
	st, err := s.openState(x, c, legacy)
	if err != nil {
		return result{}, err
	}
	if asked, err := s.approveModern(x, st); asked != nil || err != nil {
		return resultOf(asked), err
	}
	switch {
	case st.Kind == stateParked:
		return s.parked.resume(ctx, s, x, st)
	case legacy && x.profile.Asks():
		return s.parked.begin(ctx, s, x, c)
	}
	c.Buffer = x.buffer
	r, err := x.filter(t.Backend.Call(ctx, c))
	if err != nil {
		return s.modernError(x, err)
	}
	return s.finishModern(x, r)
}

// callForLegacy makes the call of a legacy client, and asks it what a modern upstream wants to
// know.
func (s *Server) callForLegacy(ctx context.Context, x *exchange, c *upstream.Call) (result, error) {
	// we have not declared tasks, so that it means nothing (2025-11-25, basic/utilities/tasks)
	if _, err := c.Params.Get("task"); err == nil {
		if err := spliceParams(c, raw.Edit{Name: "task"}); err != nil {
			return result{}, err
		}
	}
	c.Buffer = x.buffer
	waits := 0 // rounds after which nothing but time may make a difference
	for round := 0; ; round++ {
		r, err := x.filter(x.target.Backend.Call(ctx, c))
		if err != nil {
			return s.legacyError(x, err)
		}
		switch r.Type {
		case upstream.TypeComplete:
			x.closeElicitations()
			if r.Object, err = x.target.RenameResult(x.msg.Method, r.Object); err != nil {
				return result{}, x.invalid(err.Error())
			}
			return s.legacyResult(x, r)
		case upstream.TypeInputRequired:
		default:
			return result{}, x.invalid("a result of type " + r.Type)
		}
		if round == maxRounds {
			return result{}, x.invalid("it asks again and again")
		}
		requests, err := r.Object.Object("inputRequests")
		if err != nil && err != raw.ErrAbsent {
			return result{}, x.invalid("inputRequests: " + err.Error())
		}
		state, err := r.Get("requestState")
		if err != nil && err != raw.ErrAbsent {
			return result{}, x.invalid("requestState: " + err.Error())
		} else if err == nil && state[0] != '"' {
			return result{}, x.invalid("requestState is no string")
		}
		opened := len(x.opened)
		// r is overwritten by the next call
		edits := []raw.Edit{{Name: "inputResponses"}, {Name: "requestState", Value: append([]byte(nil), state...)}}
		if requests.Len() > 0 {
			if edits[0].Value, err = x.askAll(ctx, requests); err != nil {
				return result{}, err
			}
		} else if state == nil {
			return result{}, x.invalid("input_required without a request and without a state")
		}
		if requests.Len() == 0 || len(x.opened) > opened { // it waits for something that happens elsewhere
			if err := pause(ctx, waits); err != nil {
				return result{}, err
			}
			waits++
		}
		if err := spliceParams(c, edits...); err != nil {
			return result{}, err
		}
		// It is another call, and the person may have thought for a while.
		if err := s.permittedStill(x); err != nil {
			return result{}, err
		}
		if x.approved {
			continue
		}
		if asked, err := s.approveLegacy(ctx, x); asked != nil || err != nil {
			return resultOf(asked), err
		}
	}
}

// maxRounds bounds how often an upstream may ask for one call of a legacy client's.
const maxRounds = 10
