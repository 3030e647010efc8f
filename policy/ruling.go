package policy

import (
	"slices"
	"strings"

	"junction/upstream/raw"
)

// Ruling is the result of the rights of one subject for one item. It is immutable.
type Ruling struct {
	rights   *Rights
	missing  []string // capabilities
	scopes   string   // see Decision; "" if no scope is missing
	rules    []bound  // applicable rules, by layer, policy and position
	enforced []bound  // the rules of enforced policies
	decision Decision // if fixed
	visible  bool
	fixed    bool           // the decision does not depend on arguments
	ends     [layers]uint32 // of each layer in rules
	also     *Ruling        // by the other policy; nil in the ordinary case (Both)
}

// A bound rule applies to the item if its conditions hold.
type bound struct {
	*rule
	entry   *entry
	verdict Verdict // Deny for an ask whose URI is ambiguous, else the verdict of the rule
}

// Bind returns the ruling for an item.
func (r *Rights) Bind(it Item) *Ruling {
	g := r.bind(it)
	if r.also != nil {
		g.meet(r.also.Bind(it))
	}
	return g
}

// bind is Bind without the other policy.
func (r *Rights) bind(it Item) *Ruling {
	g := &Ruling{rights: r, fixed: true}
	for _, c := range it.Requires {
		if !r.reaches(c) {
			g.missing = append(g.missing, c)
		}
	}
	if len(g.missing) == 0 {
		g.scopes = r.requiredScopes(it.Requires)
	}
	n := newNamed(&it)
	for _, e := range r.entries {
		for i := range e.rules {
			rule := &e.rules[i]
			if v, ok := rule.selects(&n); ok {
				g.rules = append(g.rules, bound{rule, e, v})
				if e.enforced {
					g.enforced = append(g.enforced, bound{rule, e, v})
				}
				g.fixed = g.fixed && len(rule.where) == 0
			}
		}
		for l := e.layer; l < layers; l++ {
			g.ends[l] = uint32(len(g.rules))
		}
	}
	if len(g.missing) > 0 {
		g.fixed, g.decision = true, Decision{Missing: g.missing[0]}
		return g
	}
	g.visible = g.someAllowed()
	if g.fixed {
		g.decision, _ = g.decide(raw.Object{})
	}
	return g
}

// requiredScopes returns all scopes that a token needs for capabilities, or "" if the subject's
// token has them.
func (r *Rights) requiredScopes(capabilities []string) string {
	var all []string
	missing := false
	for ; r != nil; r = r.also {
		for _, c := range capabilities {
			if scope := r.beyond[c]; scope != "" {
				missing, all = true, append(all, scope)
			} else if r.scope[c] != "" {
				all = append(all, r.scope[c])
			}
		}
	}
	if !missing {
		return ""
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " ")
}

// Scopes returns all scopes that a token needs for the item, separated by spaces, if only scopes
// are missing; "" otherwise.
func (g *Ruling) Scopes() string { return g.scopes }

// named is an item during the comparison of its names.
type named struct {
	*Item
	odd   bool     // a URI is ambiguous (see odd), or long
	long  bool     // a URI is too long or complex to compare
	forms []string // the URIs and all their meanings, by computeForms
	made  bool     // computeForms was called
}

func newNamed(it *Item) named {
	n := named{Item: it}
	if it.Kind == Resource {
		n.long = slices.ContainsFunc(it.Names, func(uri string) bool { return len(uri) > maxURI })
		n.odd = n.long || slices.ContainsFunc(it.Names, odd)
	}
	return n
}

// computeForms computes the forms of the URIs, unless they are too long.
func (n *named) computeForms() {
	if n.made || n.long {
		return
	}
	all, ok := forms(n.Names)
	n.forms, n.made, n.long = all, true, !ok
}

// appliesTo reports whether the rule applies to an upstream.
func (r *rule) appliesTo(upstream string) bool {
	return r.upstreams == nil || r.upstreams.matches(upstream)
}

// selects reports whether a rule applies to the item, and with which verdict.
func (r *rule) selects(n *named) (Verdict, bool) {
	if !r.appliesTo(n.Upstream) || !r.hints.selects(n.Item) ||
		n.Kind >= Resource && len(r.where) > 0 { // these have no arguments
		return r.verdict, false
	}
	if r.every {
		return r.verdict, true
	}
	globs := r.tools
	switch n.Kind {
	case Prompt:
		globs = r.prompts
	case Skill:
		globs = r.skills
	case Resource:
		if v, ok := r.selectsPlace(n); ok && v.Denies() || r.skills == nil {
			return v, ok
		} else if inSkill, in := r.selectsInSkill(n); in {
			return min(v, inSkill), true
		} else {
			return v, ok
		}
	}
	if globs == nil {
		return r.verdict, false
	}
	if len(n.Names) == 0 {
		return r.verdict, r.verdict.doubts()
	}
	return r.verdict, globs.Match(n.Names)
}

func (r *rule) selectsPlace(n *named) (Verdict, bool) {
	switch {
	case r.resources == nil:
		return r.verdict, false
	case slices.ContainsFunc(r.resources, func(p place) bool { return p.plain.everything() }):
		return r.verdict, true
	case len(n.Names) == 0:
		return r.verdict, r.verdict.doubts()
	case !r.verdict.doubts():
		return r.verdict, !n.odd && slices.ContainsFunc(r.resources,
			func(p place) bool { return slices.ContainsFunc(n.Names, p.plain.match) })
	}
	n.computeForms()
	for i := range r.resources {
		p := &r.resources[i]
		if n.long && p.mayMeanOne(n.Names) {
			return Deny, true
		}
		if p.means(n.forms) {
			if n.odd {
				return Deny, true // a person cannot approve an ambiguous URI
			}
			return r.verdict, true
		}
	}
	return r.verdict, false
}

// byLayer yields each layer with its rules.
func (g *Ruling) byLayer(yield func(layer, []bound) bool) {
	from := uint32(0)
	for l, end := range g.ends {
		if !yield(layer(l), g.rules[from:end]) {
			return
		}
		from = end
	}
}

// someAllowed reports whether at least one call of the item could be allowed or asked about.
func (g *Ruling) someAllowed() bool {
	for l, in := range g.byLayer {
		if slices.ContainsFunc(in, bound.deniesAll) {
			return false
		}
		if g.layerAllows(l, in) {
			return true
		}
	}
	return slices.ContainsFunc(g.enforced, func(b bound) bool { return b.onlyAsks() && !b.deniedBy(g.rules) })
}

// layerAllows reports whether a rule of a layer could allow a call or ask about it. The denies of
// this layer, of earlier layers and of enforced policies count.
func (g *Ruling) layerAllows(l layer, in []bound) bool {
	var asks *entry // an enforced policy that asks about every call, so its allows do not count
	for i := range in {
		switch b := &in[i]; {
		case b.verdict.Denies(), b.entry == asks:
		case b.onlyAsks():
			if len(b.where) == 0 {
				asks = b.entry
			}
		case !b.deniedBy(g.rules[:g.ends[l]]) && !b.deniedBy(g.enforced):
			return true
		}
	}
	return false
}

// deniedBy reports whether one of these rules denies every call to which b applies.
func (b *bound) deniedBy(rules []bound) bool {
	return slices.ContainsFunc(rules, func(d bound) bool { return d.verdict.Denies() && d.covers(b.rule) })
}

// deniesAll reports whether the rule denies every call of the item.
func (b bound) deniesAll() bool { return b.verdict.Denies() && len(b.where) == 0 }

// onlyAsks reports whether the rule is an ask of an enforced policy, which decides no layer.
func (b bound) onlyAsks() bool { return b.verdict.Asks() && b.entry.enforced }

// covers reports whether r, a deny, applies whenever o does. It recognises only simple cases.
func (r *rule) covers(o *rule) bool {
	for i := range r.where {
		if !slices.ContainsFunc(o.where, func(c condition) bool { return r.where[i].covers(&c) }) {
			return false
		}
	}
	return true
}

// Visible reports whether the item exists for the subject: the subject holds its capabilities, and
// some arguments are not denied. If only several denies together cover all arguments, the item
// stays visible, and each call is denied.
func (g *Ruling) Visible() bool { return g.visible }

// Decide returns the decision on a call with these arguments; the zero Object if there are none.
// The caller must reject arguments that are not an object. The error is raw.ErrAmbiguous if a rule
// must read ambiguous arguments; the caller must reject the call. An invisible item is denied
// without an error.
func (g *Ruling) Decide(arguments raw.Object) (Decision, error) {
	if g.fixed {
		return g.decision, nil
	}
	d, err := g.decideBoth(arguments)
	if err != nil && !g.visible {
		return Decision{}, nil
	}
	return d, err
}

// Unconditional returns the decision on every call of the item, and false if the decision depends
// on the arguments.
func (g *Ruling) Unconditional() (Decision, bool) {
	if g.fixed {
		return g.decision, true
	}
	d, sure := g.unconditional()
	if g.also == nil || sure && d.final() {
		return d, sure
	}
	o, also := g.also.Unconditional()
	if also && o.final() {
		return o, true
	}
	return strictestDecision(d, o), sure && also
}

// unconditional is Unconditional without the other policy.
func (g *Ruling) unconditional() (Decision, bool) {
	conditional := func(b bound) bool { return len(b.where) > 0 }
	certain := func() (Decision, bool) {
		d, err := g.decide(raw.Object{})
		return d, err == nil
	}
	if slices.ContainsFunc(g.enforced, bound.deniesAll) {
		return certain()
	}
	if slices.ContainsFunc(g.enforced, conditional) {
		return Decision{}, false
	}
	for _, in := range g.byLayer {
		if slices.ContainsFunc(in, conditional) && !slices.ContainsFunc(in, bound.deniesAll) {
			return Decision{}, false
		}
		if b, _ := decideLayer(in, &reading{}); b != nil {
			break
		}
	}
	return certain()
}

// decide applies the enforced policies first: their deny decides. Then the first layer with an
// applicable rule decides. An enforced ask replaces the allow of that layer, and decides alone if no
// layer has an applicable rule. Without any rule the call is denied.
func (g *Ruling) decide(arguments raw.Object) (Decision, error) {
	a := reading{arguments: arguments}
	enforced, err := decideEnforced(g.enforced, &a)
	switch {
	case err != nil:
		return Decision{}, err
	case enforced != nil && enforced.verdict.Denies():
		return g.decisionOf(enforced), nil
	case enforced != nil && enforced.verdict.Allows():
		enforced = nil // it counts in its layer only
	}
	for _, in := range g.byLayer {
		b, err := decideLayer(in, &a)
		switch {
		case err != nil:
			return Decision{}, err
		case b != nil && !b.verdict.Denies() && enforced != nil && enforced.stricter(b):
			return g.decisionOf(enforced), nil
		case b != nil:
			return g.decisionOf(b), nil
		}
	}
	if enforced != nil {
		return g.decisionOf(enforced), nil
	}
	return Decision{}, nil
}

// decisionOf returns the decision of a rule.
func (g *Ruling) decisionOf(b *bound) Decision {
	d := Decision{Verdict: b.verdict, Policy: b.entry.name, Rule: b.label}
	if !b.verdict.Denies() && g.scopes != "" {
		d.Verdict, d.Scopes = Deny, g.scopes
	}
	if d.Verdict.Asks() {
		d.Remember = b.remember
	}
	return d
}

// decideEnforced returns the deciding one of all enforced rules, of every layer; nil if none
// applies.
func decideEnforced(rules []bound, a *reading) (*bound, error) {
	every := func(*bound) bool { return true }
	if b, err := firstDeny(rules, a, every); b != nil || err != nil {
		return b, err
	}
	return firstOfEach(rules, a, every)
}

// decideLayer returns the deciding rule of a layer, after decideEnforced has returned no deny; nil
// if none applies. An ask of an enforced policy decides no layer, but it hides the later allows of
// its policy.
func decideLayer(rules []bound, a *reading) (*bound, error) {
	if b, err := firstDeny(rules, a, func(b *bound) bool { return !b.entry.enforced }); b != nil || err != nil {
		return b, err
	}
	return firstOfEach(rules, a, func(b *bound) bool { return !b.onlyAsks() })
}

// firstDeny returns the first deny that counts and applies; nil if there is none. A deny without
// conditions comes before the others, so that no arguments are read.
func firstDeny(rules []bound, a *reading, counts func(*bound) bool) (*bound, error) {
	for i := range rules {
		if b := &rules[i]; b.deniesAll() && counts(b) {
			return b, nil
		}
	}
	for i := range rules {
		if b := &rules[i]; b.verdict.Denies() && counts(b) {
			if ok, err := b.holds(a); ok || err != nil {
				return b, err
			}
		}
	}
	return nil, nil
}

// firstOfEach takes the first applicable ask or allow of each policy, and after an ask also the asks
// up to its first applicable allow. It returns the strictest of those that count; nil if there is
// none. Of two asks, the one that remembers less is stricter. The rules of one policy follow each
// other.
func firstOfEach(rules []bound, a *reading, counts func(*bound) bool) (*bound, error) {
	var best *bound
	var done *entry // the policy whose first applicable allow was found
	var asks *bound // the strictest applicable ask of a policy so far
	for i := range rules {
		b := &rules[i]
		asked := asks != nil && asks.entry == b.entry
		if b.verdict.Denies() || b.entry == done || asked && b.verdict.Asks() && !b.stricter(asks) {
			continue
		}
		ok, err := b.holds(a)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if b.verdict.Asks() {
			asks = b
		} else if done = b.entry; asked {
			continue
		}
		if counts(b) && (best == nil || b.stricter(best)) {
			best = b
		}
	}
	return best, nil
}

// stricter reports whether b has a stricter verdict than o, or both ask and b lets a person allow less at
// once.
func (b *bound) stricter(o *bound) bool {
	return b.verdict < o.verdict || b.verdict.Asks() && o.verdict.Asks() && b.remember < o.remember
}

// holds reports whether all conditions hold.
func (b *bound) holds(a *reading) (bool, error) {
	for i := range b.where {
		if ok, err := b.where[i].holds(a, b.verdict); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}
