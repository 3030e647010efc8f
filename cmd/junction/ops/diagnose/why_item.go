package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"junction/auth"
	"junction/cmd/junction/base/config"
	"junction/policy"
	"junction/proxy/view"
	"junction/upstream"
)

// itemOf describes one item for a subject: the decision, its reasons, and what may be done about it.
func (p *Proxy) itemOf(x *view.Explanation, s upstream.Status, who policy.Subject, endpoint string) WhyItem {
	a := WhyItem{
		Upstream: x.Upstream, Kind: x.Part.String(), Cache: x.Cache, Own: x.Own, Exposed: x.Exposed, Visible: x.Visible,
		Listed: x.Listed, Reads: x.Reads, Problem: x.Problem,
		State: s.State.String(), Since: s.Since.UTC().Format(time.RFC3339), Error: s.Err, Reasons: []WhyReason{},
		Advice: []string{}, Changed: p.changeOf(x),
	}
	a.Limits, a.Bounds = p.limitsOf(x)
	if a.Limits != "" && x.Part == upstream.PartTools && slices.Contains(s.Asks, x.Own) {
		a.Limits += "; it has asked a person, and its server does not say in which call, so that each call has a " +
			"connection for itself"
	}
	if x.Exposed != "" { // a policy has decided
		a.Verdict = x.Verdict.String()
	}
	if x.Pinned {
		a.Held = x.Withheld
	}
	if a.Problem == "" && x.Denied != "" {
		a.Problem = x.Denied + ", and the list of the files of a skill must be complete"
	}
	for i := range x.Reasons {
		a.Reasons = append(a.Reasons, reasonOf(&x.Reasons[i]))
		a.Advice = append(a.Advice, p.reasonAdvice(x, &x.Reasons[i], who.ID)...)
	}
	if p.undecided(x) {
		a.Advice = append(a.Advice, p.ruleAdvice(x, &who, endpoint)...)
	}
	if p.Partial() != nil && !x.Visible {
		a.Advice = append(a.Advice, "a reload was refused in part, so that the old file and the new one must both "+
			"allow it: "+config.Command(p.File, "status"))
	}
	if a.Held != "" {
		a.Advice = append(a.Advice, p.pinAdvice(x.Upstream+"/"+x.Own))
	}
	switch {
	case s.State != upstream.StateReady && s.State != upstream.StateClosed:
		a.Advice = append(a.Advice, cmp.Or(s.Advice,
			"the upstream is not connected; run: "+config.Command(p.File, "doctor", x.Upstream)))
	case x.Visible && p.noFolder(x.Upstream):
		a.Advice = append(a.Advice, p.permitAdvice())
	case x.Visible && len(a.Advice) == 0 && x.Problem == "":
		a.Advice = append(a.Advice, "if a client does not show it, the client has an old list or hides tools: "+
			"reconnect the client")
	}
	if x.Visible && x.Verdict.Asks() {
		a.Advice = append(a.Advice, askAdvice(x)...)
	}
	return a
}

// askAdvice returns what a client needs for an item with an ask, and how the operator allows it without.
func askAdvice(x *view.Explanation) []string {
	kind, name := ruleFor(x)
	for _, r := range x.Reasons {
		if r.Rule != "" && r.Verdict.Asks() && r.Unmet == "" && r.Note == "" {
			return []string{fmt.Sprintf("a client without elicitation cannot ask, and its calls fail; to allow it "+
				"without an approval, add allow: { %s: %q } to the policy %s, before %s", kind, name, r.Policy, r.Rule)}
		}
	}
	return nil
}

// reasonOf returns a reason as /why sends it.
func reasonOf(r *policy.Reason) WhyReason {
	j := WhyReason{Missing: r.Missing, Scopes: r.Scopes, Layer: r.Layer, Policy: r.Policy, Enforced: r.Enforced,
		Rule: r.Rule, Where: r.Where, Annotations: r.Annotations, Note: r.Note, Unmet: r.Unmet,
		Newer: r.Also}
	if r.Rule != "" {
		j.Verdict = r.Verdict.String()
	}
	return j
}

// reasonAdvice returns what may be done about one reason; nothing if the reason hides no item.
func (p *Proxy) reasonAdvice(x *view.Explanation, r *policy.Reason, who string) []string {
	switch {
	case r.Missing != "" && p.Config().Policies == nil:
		return []string{
			fmt.Sprintf("remove the capability %s from what the item requires (upstreams.%s)", r.Missing, x.Upstream),
			fmt.Sprintf("or write policies, and give the capability %s to %s; with the section policies, everything "+
				"that no rule allows is denied", r.Missing, who),
		}
	case r.Missing != "":
		return []string{fmt.Sprintf("give the capability %s to a policy that matches %s, or take it from what the "+
			"item requires (upstreams.%s)", r.Missing, who, x.Upstream)}
	case r.Scopes != "":
		return []string{"the answer to a call names these scopes, so that the client can sign in again; give the " +
			"scopes of a token by --scope (auth.scope_capabilities)"}
	case r.Untrusted:
		return []string{fmt.Sprintf("if you trust the hints of %s, add %s to trusted in %s of the policy %s",
			x.Upstream, x.Upstream, r.Rule, r.Policy)}
	case x.Visible || r.Rule == "" || r.Unmet != "" || !r.Verdict.Denies() || r.Note != "":
		return nil
	case r.Enforced:
		return []string{fmt.Sprintf("%s of the policy %s denies it. The policy is enforced: no other policy can "+
			"allow it; change the rule, if it should not", r.Rule, r.Policy)}
	}
	if r.Annotations != "" {
		return []string{fmt.Sprintf("%s of the policy %s denies it by its hints; to allow this tool alone, give that "+
			"rule tools or upstreams that leave out %s", r.Rule, r.Policy, x.Exposed)}
	}
	return []string{fmt.Sprintf("%s of the policy %s denies it: change that, if it should not", r.Rule, r.Policy)}
}

// undecided reports whether an item is hidden only because no rule is about it. Without policies no
// item is undecided: the first policy would deny what it does not allow. Problem has the remedy of an
// item that the endpoint does not offer.
func (p *Proxy) undecided(x *view.Explanation) bool {
	decides := func(r policy.Reason) bool {
		return r.Missing == "" && r.Scopes == "" && r.Rule != "" && r.Unmet == "" &&
			(!r.Verdict.Denies() || r.Note == "")
	}
	return x.Exposed != "" && !x.Visible && x.Denied == "" && p.Config().Policies != nil &&
		!slices.ContainsFunc(x.Reasons, decides)
}

// ruleAdvice returns how an undecided item becomes allowed: by the policy that a caller lacks, or by a rule. If the
// hints of the item are the reason, the rule names this item alone, so that the policy still is what it is for.
func (p *Proxy) ruleAdvice(x *view.Explanation, who *policy.Subject, endpoint string) []string {
	kind, name := ruleFor(x)
	for i := range x.Reasons {
		switch r := &x.Reasons[i]; {
		case r.Untrusted: // reasonAdvice has the step
			return nil
		case r.Unmet != "":
			return []string{fmt.Sprintf("the policy %s leaves it out by its hints; to allow this tool alone, add a "+
				"rule to that policy: %s: { %s: %q }", r.Policy, r.Verdict, kind, name)}
		}
	}
	if name := p.joins(x, who, endpoint); name != "" {
		return []string{fmt.Sprintf("no policy names %s: name it in match.key of a policy, such as %s", who.Key, name)}
	}
	list := []string{"no rule allows it: add one to a policy that matches " + who.ID,
		fmt.Sprintf("such a rule is: allow: { %s: %q }", kind, name)}
	byAddress := func(e policy.Entry) bool { return e.Match != nil && len(e.Match.CIDR) > 0 }
	if !who.Address.IsValid() && slices.ContainsFunc(p.Config().Policies, byAddress) {
		list = append(list, "Policies with a cidr were not checked; give the caller's address with --from")
	}
	return list
}

// joins returns a policy that shows an item to the API keys that it names, if the caller's key gets nothing of
// any policy; "" otherwise. A key that has a part in some policy gets a rule instead.
func (p *Proxy) joins(x *view.Explanation, who *policy.Subject, endpoint string) string {
	policies := p.Config().Policies
	if !p.leftOut(who) {
		return ""
	}
	for _, e := range policies {
		if e.Match == nil || len(e.Match.Key) == 0 {
			continue
		}
		other := *who
		other.Key = e.Match.Key[0]
		other.ID = string(auth.KindKey) + ":" + other.Key
		items, _ := p.Server.Snapshot().Explain(other, endpoint, x.Exposed)
		sees := func(o view.Explanation) bool {
			by := func(r policy.Reason) bool { return r.Policy == e.Name && r.Rule != "" && r.Verdict.Allows() }
			return o.Upstream == x.Upstream && o.Part == x.Part && o.Visible && slices.ContainsFunc(o.Reasons, by)
		}
		if slices.ContainsFunc(items, sees) {
			return e.Name
		}
	}
	return ""
}

// pinAdvice returns how to see and accept the change of a withheld item.
func (p *Proxy) pinAdvice(item string) string {
	return fmt.Sprintf("%s shows what has changed, and %s accepts it", config.Command(p.File, "pins", "diff", item),
		config.Command(p.File, "pins", "accept", item))
}

// ruleFor returns the key and the name of an item in rules.
func ruleFor(x *view.Explanation) (kind, name string) {
	switch x.Part {
	case upstream.PartPrompts:
		return "prompts", x.Exposed
	case upstream.PartResources, upstream.PartTemplates:
		return "resources", x.Exposed
	case upstream.PartSkills:
		return "skills", policy.SkillPath(x.Upstream, x.Own)
	}
	return "tools", x.Exposed
}

// limitsOf returns the limits of the calls of an item, with the keys that set them: the time limits in words,
// and the others; none for an item that the caller cannot call.
func (p *Proxy) limitsOf(x *view.Explanation) (times string, others []upstream.Bound) {
	if !x.Visible {
		return "", nil
	}
	c, tool := p.Config(), ""
	if x.Part == upstream.PartTools {
		tool = x.Own
	}
	u := c.Upstreams[x.Upstream]
	return u.ExplainLimits(x.Upstream, tool, c.Defaults), u.BoundsOf(x.Upstream, tool, c.Defaults)
}

// changeOf tells how the definition of an item was changed; "" if it was not.
func (p *Proxy) changeOf(x *view.Explanation) string {
	all := p.Set.All()
	at := slices.IndexFunc(all, func(u *upstream.Upstream) bool { return u.Name() == x.Upstream })
	if at < 0 {
		return ""
	}
	c := all[at].Catalog()
	i := slices.IndexFunc(c.Mended, func(m upstream.Mended) bool { return m.Part == x.Part && m.Name == x.Own })
	if i < 0 {
		return ""
	}
	text := "the definition, because some clients reject the whole list for it: " + c.Mended[i].Changes
	if t := c.Tool(x.Own); x.Part == upstream.PartTools && t != nil && t.Loose != "" {
		text += "; calls are refused where a policy says validate"
	}
	return text
}
