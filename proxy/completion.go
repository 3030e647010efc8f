package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/policy"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// complete answers completion/complete for a prompt or a resource template by its upstream, as far
// as policy allows. For an upstream without completions it returns an empty completion, because
// Junction has declared the capability.
func complete(ctx context.Context, s *Core, x *Exchange) (Result, error) {
	offers := x.Subject.Sight().Offers
	if !offers.Takes(offers.Completions, x.Era) {
		return Result{}, x.unknownMethod()
	}
	var values *view.Completion
	r, err := s.call(ctx, x, findReference, func(x *Exchange, t *view.Target) (err error) {
		values, err = x.permitCompletion(t)
		return err
	})
	peer, ok := err.(*jsonrpc.Error)
	switch {
	case ok && peer.Code == mcp.METHOD_NOT_FOUND && !offers.Completions:
		return Result{}, x.unknownMethod()
	case err == errNoValues, ok && peer.Code == mcp.METHOD_NOT_FOUND:
		return s.ownResult(x, `"completion":{"values":[]}`), nil
	case err != nil, values == nil:
		return r, err
	}
	return s.filterCompletion(x, values, r)
}

// errNoValues means that the completion is empty and the upstream is not called.
var errNoValues = errors.New("no values")

// permitCompletion decides about a completion. If the call is allowed, it returns the filter of the
// values; nil if the caller may read all values.
func (x *Exchange) permitCompletion(t *view.Target) (values *view.Completion, err error) {
	if err = x.scoped(t); err != nil {
		return nil, err
	}
	if t.Part == upstream.PartPrompts {
		err = x.completesPrompt(t)
	} else {
		values, err = x.completes(t)
	}
	if err == nil && !view.Completes(t.Backend.Catalog(), x.Era) {
		err = errNoValues
	}
	x.decision = policy.Decision{Verdict: policy.Allow}
	return values, err
}

// findReference returns the prompt or resource of the request's ref.
func findReference(_ context.Context, _ *Core, x *Exchange) (*view.Target, error) {
	ref, err := x.Params.Object("ref")
	if err != nil && err != raw.ErrAbsent {
		return nil, err
	}
	kind, err := ref.String("type")
	if err != nil && err != raw.ErrAbsent {
		return nil, err
	}
	key := map[string]string{"ref/prompt": "name", "ref/resource": "uri"}[kind]
	if x.Info.Name, err = ref.String(key); err == raw.ErrAbsent {
		return nil, InvalidParams("Invalid params: ref is neither a prompt with a name nor a resource with a uri")
	} else if err != nil {
		return nil, err
	}
	var found *view.Target
	if key == "uri" {
		// in both eras the URI is a parameter of the request
		if found, err = x.resource(client.EraModern, x.Info.Name); err != nil {
			return nil, err
		}
	} else if found = x.named(upstream.PartPrompts, x.Info.Name); found == nil {
		return nil, unknownNamed(upstream.PartPrompts, x.Info.Name)
	}
	t := *found
	if t.Param = view.ParamRefName; key == "uri" {
		t.Param = view.ParamRefURI
	}
	x.Info.Upstream = t.Backend.Name()
	return &t, nil
}

// mostCompleted is the maximum number of values in a completion (server/utilities/completion).
const mostCompleted = 100

// completes returns the filter of the values for a resource template; nil if policy allows all of
// them.
func (x *Exchange) completes(t *view.Target) (*view.Completion, error) {
	template, ok := view.ParseTemplate(t.Name)
	values := &view.Completion{Rights: x.Subject.Rights, Target: t, Template: template}
	head := ""
	if ok {
		head, _, _ = template.Expand(nil, "")
	}
	if values.Beginning(head).Only(policy.Allow) {
		return nil, nil
	}
	if !ok || !view.ListsTemplate(t.Backend.Catalog(), t.Name) {
		return nil, uncompleted(t, "policy cannot judge the values, "+
			"because the URI is not a resource template that the server lists")
	}
	if missing, err := values.Read(x.Params); err != nil {
		return nil, err
	} else if missing != "" {
		return nil, InvalidParams("Invalid params: no %s", missing)
	}
	if !template.Has(values.Argument) {
		return nil, uncompleted(t, "policy cannot judge the values, because the template has no such variable")
	}
	text, _, reached := template.Expand(values.Values, values.Argument)
	switch possible := values.Beginning(text); {
	case possible.Only(policy.Deny):
		x.Info.Verdict = policy.Deny.String()
		return nil, errNoValues
	case possible.Only(policy.Ask):
		x.Info.Verdict = policy.Ask.String()
		return nil, uncompleted(t, "reading these resources needs the approval of a person")
	case !reached && !possible.Only(policy.Allow):
		return nil, uncompleted(t, "policy cannot judge the values without the other variables; "+
			"send them in context.arguments")
	}
	return values, nil
}

// completesPrompt returns an error unless policy allows the prompt with any arguments.
func (x *Exchange) completesPrompt(t *view.Target) error {
	d, sure := x.Subject.Ruling(t).Unconditional()
	if !sure {
		x.Info.Verdict = policy.Deny.String()
		return uncompleted(t, "policy decides by the prompt's arguments, which are not known yet")
	}
	x.Info.Verdict, x.Info.Policy, x.Info.Rule, x.Info.Missing = d.Verdict.String(), d.Policy, d.Rule, d.Missing
	switch {
	case d.Verdict.Asks():
		return uncompleted(t, "getting the prompt needs the approval of a person")
	case d.Verdict.Denies():
		return unknownNamed(t.Part, x.Info.Name)
	}
	return nil
}

// uncompleted returns the error for a completion that policy does not allow.
func uncompleted(t *view.Target, why string) error {
	e := failure(t.Backend.Name(), kindApproval, "no completion: "+why)
	return &Refusal{code: e.Code, text: e.Message, Data: e.Data}
}

// filterCompletion returns the result without the values that the caller may not read. It drops
// total, hasMore and all other members of the completion in any case: they would count the hidden
// values or reveal them.
func (s *Core) filterCompletion(x *Exchange, allowed *view.Completion, r Result) (Result, error) {
	o, err := raw.Parse(bytes.Join([][]byte{r.Head, r.Body, r.Tail}, nil))
	if err != nil {
		return Result{}, x.invalid(err.Error())
	}
	completion, err := o.Object("completion")
	if err == raw.ErrAbsent {
		if _, err := o.Get("inputRequests"); err == nil {
			return r, nil // the server sends its requests first
		}
		return s.ownResult(x, `"completion":{"values":[]}`), nil
	} else if err != nil {
		return Result{}, x.invalid(err.Error())
	}
	values, err := completion.Elements("values")
	if err != nil && err != raw.ErrAbsent {
		return Result{}, x.invalid(err.Error())
	}
	var kept [][]byte
	for _, v := range values[:min(len(values), mostCompleted)] {
		if text, err := raw.String(v); err == nil && allowed.Allows(text) {
			kept = append(kept, v)
		}
	}
	list := fmt.Appendf(nil, `{"values":[%s]}`, bytes.Join(kept, []byte{','}))
	text, err := o.Splice(raw.Edit{Name: "completion", Value: list})
	if err != nil {
		return Result{}, x.invalid(fmt.Sprintf("completion: %v", err))
	}
	return Result{Body: text}, nil
}

// findResource returns the target of the request's uri. The caller may use the target, perhaps only
// after an approval.
func findResource(_ context.Context, _ *Core, x *Exchange) (*view.Target, error) {
	uri, err := x.stringParam("uri")
	if err != nil {
		return nil, err
	}
	return x.resource(x.Era, uri)
}

// resource returns the target of a URI. The error is in the form of the given era. If policy denies
// the resource, x.Info gets the denying policy and rule for the audit.
func (x *Exchange) resource(era client.Era, uri string) (*view.Target, error) {
	x.Info.Name = uri
	t, err := x.Subject.Resource(uri)
	if err != nil {
		if denied, other := view.Everything(x.Endpoint.View).Resource(uri); other == nil {
			x.decide(denied)
			x.Info.Verdict = policy.Deny.String()
		}
		return nil, noResource(era, uri, err)
	}
	x.Info.Upstream, x.Info.Own = t.Backend.Name(), t.Name
	return t, nil
}
