package proxy

import (
	"cmp"
	"context"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/policy"
	"junction/proxy/redact"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/definition"
	"junction/upstream/raw"
)

// This file has the methods of the extension for skills (SEP-2640), besides the list, which is a list
// like the others. A skill has the digests of all its files. So nothing that Junction hides may change
// the bytes of a file or the list of files: it hides the whole skill instead.

// findSkill returns the target of the request's uri, which may be in no list. Its upstream always
// answers the request: that is how a client gets the digests of files that have changed.
func findSkill(_ context.Context, _ *Core, x *Exchange) (*view.Target, error) {
	uri, err := x.skillURI()
	if err != nil {
		return nil, err
	}
	t, err := x.Subject.Skill(uri)
	if err != nil {
		if denied, other := view.Everything(x.Endpoint.View).Skill(uri); other == nil {
			x.decide(denied)
			x.Info.Verdict = policy.Deny.String()
		}
		return nil, noResource(client.EraModern, uri, err) // -32602 in both eras
	}
	x.Info.Upstream, x.Info.Own = t.Backend.Name(), t.Name
	return t, nil
}

// skillURI returns the uri of a request of the extension. The error is for an endpoint without
// skills, and for a missing uri.
func (x *Exchange) skillURI() (string, error) {
	if !x.Subject.Sight().Offers.Skills {
		return "", x.unknownMethod()
	}
	uri, err := x.stringParam("uri")
	x.Info.Name = uri
	return uri, err
}

// listSkills answers skills/list.
func listSkills(ctx context.Context, s *Core, x *Exchange) (Result, error) {
	if !x.Subject.Sight().Offers.Skills {
		return Result{}, x.unknownMethod()
	}
	return s.list(ctx, x, upstream.PartSkills)
}

// findDirectory returns the folder that the request names.
func findDirectory(_ context.Context, _ *Core, x *Exchange) (*view.Target, error) {
	uri, err := x.skillURI()
	if err != nil {
		return nil, err
	}
	t, err := x.resource(client.EraModern, uri)
	if err == nil && !t.ReadsDirectories() {
		return nil, noDirectory(uri)
	}
	return t, err
}

// noDirectory returns the error for a URI that is no directory.
func noDirectory(uri string) *Refusal {
	e := InvalidParams("Not a directory that this server can list: %.200s", uri)
	e.Data = view.URIData(uri)
	return e
}

// checkSkills returns the result of a method whose result has files of skills, as the caller may see
// it: without the files that do not exist for the caller, or with an error.
func (x *Exchange) checkSkills(r client.Result) (client.Result, error) {
	if r.Type != client.TypeComplete {
		return r, nil
	}
	var err error
	switch mcp.MCPMethod(x.Msg.Method) {
	case view.MethodSkillsGet:
		err = x.checkSkill(r.Object)
	case view.MethodDirectoryRead:
		if r.Object, err = x.Subject.Children(x.target, r.Object); err != nil {
			err = x.invalid(err.Error())
		}
	}
	return r, err
}

// checkSkill returns the error if the skill in a result of skills/get is not as the extension demands,
// or if the caller does not see it. If it differs from the list, the upstream is listed again.
func (x *Exchange) checkSkill(result raw.Object) error {
	entry, err := result.Object("skill")
	if err != nil {
		return x.invalid("skill: " + err.Error())
	}
	if uri, _ := entry.String("uri"); uri != x.target.Name {
		return x.invalid("it returned another skill")
	}
	if problem := definition.CheckSkill(entry); problem != "" {
		if x.Subject.Redact != nil && !x.Subject.Redact.Leaves(entry) { // the problem quotes parts of the entry
			return x.withheld(policy.Decision{Rule: ruleRedact})
		}
		return x.invalid("a skill that clients cannot use: " + problem)
	}
	if listed := x.target.Item; listed != nil && string(listed.Definition.Text()) != string(entry.Text()) {
		x.target.Backend.Relist()
	}
	if by, is := x.Subject.Withheld(x.target, entry); is {
		return x.withheld(by)
	}
	if x.Subject.Redact != nil && (!x.target.Recognised() || !x.Subject.Redact.Leaves(entry)) {
		return x.withheld(policy.Decision{Rule: ruleRedact})
	}
	return nil
}

// filterBesideSkill redacts the result of skills/get except the skill, which checkSkill has compared.
func (x *Exchange) filterBesideSkill(r client.Result) (client.Result, error) {
	skill, err := r.Object.Get("skill")
	if err != nil {
		return r, x.invalid("skill: " + err.Error())
	}
	rest, err := r.Object.With(raw.Edit{Name: "skill"})
	n := 0
	if err == nil {
		rest, n, err = x.redactor().Result(rest, redact.Nothing)
	}
	if err == nil && n > 0 {
		r.Object, err = rest.With(raw.Edit{Name: "skill", Value: skill})
	}
	if err != nil {
		err = x.invalid(err.Error())
	}
	return r, err
}

// overrule stores a deny in x.Info that replaces an earlier decision about the call.
func (x *Exchange) overrule(by policy.Decision) {
	x.Info.Verdict, x.Info.Policy, x.Info.Rule = policy.Deny.String(), by.Policy, by.Rule
	x.Info.Missing = cmp.Or(by.Missing, by.Scopes)
}

// ruleRedact stands for a rule in the records of a call whose answer redaction withholds.
const ruleRedact = "redact"

// withheld returns the error for a skill that the caller does not see because of its content, and
// records the decision.
func (x *Exchange) withheld(by policy.Decision) error {
	x.overrule(by)
	e := unknownResource(client.EraModern, x.target.Exposed)
	e.Outcome = Denied
	return e
}

// redactedFile returns the error for a file of a skill in which a policy redacts something, and
// records the decision. With another text, the file would not have the digest that the skill
// promises.
func (x *Exchange) redactedFile() *Refusal {
	x.overrule(policy.Decision{Rule: ruleRedact})
	e := InvalidParams("A policy redacts text in this file. It is a file of a skill, whose bytes must not change, " +
		"so it cannot be read")
	e.Data = []byte(`{"junction":{"kind":"denied"}}`)
	e.Outcome = Denied
	return e
}
