package policy

import (
	"fmt"
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
	fixed    bool           // no rule reads arguments: the decision is constant
	ends     [layers]uint32 // of each layer in rules
}

// A bound rule applies to the item if its conditions hold.
type bound struct {
	*rule
	entry   *entry
	verdict Verdict // Deny for an ask whose URI is ambiguous, else that of the rule
}

// Bind returns the ruling for an item.
func (r *Rights) Bind(it Item) *Ruling {
	g := &Ruling{rights: r, fixed: true}
	for _, c := range it.Requires {
		if !r.reaches(c) {
			g.missing = append(g.missing, c)
		}
	}
	if len(g.missing) == 0 {
		g.scopes = r.lacks(it.Requires)
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

// lacks returns all scopes that a token needs for capabilities, or "" if the subject's token has
// them.
func (r *Rights) lacks(capabilities []string) string {
	var all []string
	lacks := false
	for _, c := range capabilities {
		if scope := r.beyond[c]; scope != "" {
			lacks, all = true, append(all, scope)
		} else if r.scope[c] != "" {
			all = append(all, r.scope[c])
		}
	}
	if !lacks {
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
	odd   bool     // a URI is ambiguous; see odd
	long  bool     // a URI is too long or complex to compare
	forms []string // the URIs and all their meanings, made on demand
	made  bool
}

func newNamed(it *Item) named {
	n := named{Item: it}
	if it.Kind == Resource {
		n.long = slices.ContainsFunc(it.Names, func(uri string) bool { return len(uri) > maxURI })
		n.odd = n.long || slices.ContainsFunc(it.Names, odd)
	}
	return n
}

// make computes the forms of the URIs, unless they are too long.
func (n *named) make() {
	if n.made || n.long {
		return
	}
	all, ok := forms(n.Names)
	n.forms, n.made, n.long = all, true, !ok
}

// of reports whether the rule applies to an upstream.
func (r *rule) of(upstream string) bool { return r.upstreams == nil || r.upstreams.matches(upstream) }

// selects reports whether a rule applies to the item, and with which verdict.
func (r *rule) selects(n *named) (Verdict, bool) {
	if !r.of(n.Upstream) || n.Kind == Resource && len(r.where) > 0 { // resources have no arguments
		return r.verdict, false
	}
	if r.every {
		return r.verdict, true
	}
	globs := r.tools
	switch n.Kind {
	case Prompt:
		globs = r.prompts
	case Resource:
		return r.selectsPlace(n)
	}
	if globs == nil {
		return r.verdict, false
	}
	if len(n.Names) == 0 {
		return r.verdict, r.verdict != Allow
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
		return r.verdict, r.verdict != Allow
	case r.verdict == Allow:
		return Allow, !n.odd && slices.ContainsFunc(r.resources,
			func(p place) bool { return slices.ContainsFunc(n.Names, p.plain.match) })
	}
	n.make()
	for i := range r.resources {
		p := &r.resources[i]
		if n.long && slices.ContainsFunc(n.Names, func(uri string) bool { return p.mayMean(beginningOf(uri)) }) {
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

// someAllowed reports whether some arguments are not denied.
func (g *Ruling) someAllowed() bool {
	denied := func(b *bound, denies []bound) bool {
		return slices.ContainsFunc(denies, func(d bound) bool { return d.verdict == Deny && d.covers(b.rule) })
	}
	for l, in := range g.byLayer {
		if slices.ContainsFunc(in, bound.deniesAll) {
			return false
		}
		var asks *entry // an enforced policy that asks about every call, so its allows do not count
		for i := range in {
			switch b := &in[i]; {
			case b.verdict == Deny, b.entry == asks:
			case b.onlyAsks():
				if len(b.where) == 0 {
					asks = b.entry
				}
			case !denied(b, g.rules[:g.ends[l]]) && !denied(b, g.enforced):
				return true
			}
		}
	}
	return slices.ContainsFunc(g.enforced, func(b bound) bool { return b.onlyAsks() && !denied(&b, g.rules) })
}

// deniesAll reports whether the rule denies every call of the item.
func (b bound) deniesAll() bool { return b.verdict == Deny && len(b.where) == 0 }

// onlyAsks reports whether the rule is an ask of an enforced policy, which decides no layer.
func (b bound) onlyAsks() bool { return b.verdict == Ask && b.entry.enforced }

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
	d, err := g.decide(arguments)
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
		if b, _ := decides(in, &reading{}, false); b != nil {
			break
		}
	}
	return certain()
}

func (g *Ruling) decide(arguments raw.Object) (Decision, error) {
	a := reading{arguments: arguments}
	held, err := decides(g.enforced, &a, true)
	switch {
	case err != nil:
		return Decision{}, err
	case held != nil && held.verdict == Deny:
		return g.decisionOf(held), nil
	case held != nil && held.verdict == Allow:
		held = nil
	}
	for _, in := range g.byLayer {
		b, err := decides(in, &a, false)
		switch {
		case err != nil:
			return Decision{}, err
		case b != nil && b.verdict == Allow && held != nil:
			return g.decisionOf(held), nil
		case b != nil:
			return g.decisionOf(b), nil
		}
	}
	if held != nil {
		return g.decisionOf(held), nil
	}
	return Decision{}, nil
}

// decisionOf returns the decision of a rule.
func (g *Ruling) decisionOf(b *bound) Decision {
	d := Decision{Verdict: b.verdict, Policy: b.entry.name, Rule: b.label}
	if b.verdict != Deny && g.scopes != "" {
		d.Verdict, d.Scopes = Deny, g.scopes
	}
	return d
}

// decides returns the deciding rule of a layer, or of all enforced policies if enforcing; nil if
// none applies. In a layer, only the allows of enforced policies count: their denies were checked
// before, and their asks take precedence over their later allows without deciding the layer.
func decides(rules []bound, a *reading, enforcing bool) (*bound, error) {
	for i := range rules {
		if b := &rules[i]; b.deniesAll() {
			return b, nil // without reading any arguments
		}
	}
	for i := range rules {
		if b := &rules[i]; b.verdict == Deny && (enforcing || !b.entry.enforced) {
			if ok, err := b.holds(a); ok || err != nil {
				return b, err
			}
		}
	}
	var best *bound
	var done *entry // the policy whose first applicable rule was found
	for i := range rules {
		b := &rules[i]
		if b.verdict == Deny || b.entry == done {
			continue
		}
		ok, err := b.holds(a)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		done = b.entry
		if (enforcing || !b.onlyAsks()) && (best == nil || b.verdict < best.verdict) {
			best = b
		}
	}
	return best, nil
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

// Reason is one line of an explanation: a missing capability, a rule that applies or could apply,
// or, if Rule is "", a policy or layer without such a rule.
type Reason struct {
	Missing string // a missing capability; no other field is set
	Scopes  string // required scopes, some missing; no other field is set
	Layer   string // own, surface or global
	Policy  string // "" for a layer without matching policies
	Rule    string // such as rules[2]
	// Enforced reports that the policy is enforced: its denies and asks count in every layer.
	Enforced bool
	Verdict  Verdict
	Where    string // the conditions on the arguments; "" if there are none
	Note     string // why the rule does not count, or counts differently
}

// The notes of a policy and of a layer that decide nothing.
const (
	NoRule   = "no rule applies"
	NoPolicy = "no policy matches"
)

// Explain returns the reasons for the decisions: the missing capabilities, and then each layer in
// order.
func (g *Ruling) Explain() []Reason {
	var all []Reason
	for _, c := range g.missing {
		all = append(all, Reason{Missing: c})
	}
	if g.scopes != "" {
		all = append(all, Reason{Scopes: g.scopes})
	}
	x := newExplainer(g.rules)
	decided := false
	for l, in := range g.byLayer {
		denied := slices.IndexFunc(in, bound.deniesAll)
		before := len(all)
		for _, e := range g.rights.entries {
			if e.layer != l {
				continue
			}
			some, first := false, ""
			for i := range in {
				b := &in[i]
				if b.entry != e {
					continue
				}
				r := Reason{Layer: l.String(), Policy: e.name, Rule: b.label, Enforced: e.enforced,
					Verdict: b.verdict, Where: b.conditions()}
				switch {
				case b.label == "":
					r.Note = "there are no policies"
				case x.denies != nil && x.denies.rule != b.rule:
					r.Note = fmt.Sprintf("%s of %s, which is enforced, always denies", x.denies.label,
						x.denies.entry.name)
				// These two count in every layer.
				case e.enforced && b.verdict == Deny && b.rule.verdict == Deny, b.onlyAsks() && first == "":
				case decided && !(e.enforced && b.verdict == Deny):
					r.Note = "an earlier layer decides"
				case denied >= 0 && i != denied:
					r.Note = fmt.Sprintf("%s of %s always denies", in[denied].label, in[denied].entry.name)
				case first != "" && b.verdict != Deny:
					r.Note = first + " applies first"
				case b.verdict == Allow && x.asks != nil:
					r.Note = fmt.Sprintf("%s of %s, which is enforced, always asks", x.asks.label,
						x.asks.entry.name)
				case b.verdict != b.rule.verdict:
					r.Note = "an ask, denied because the URI is ambiguous"
				}
				all = append(all, r)
				if some = true; first == "" && b.verdict != Deny && len(b.where) == 0 {
					first = b.label
				}
			}
			if !some {
				all = append(all, Reason{Layer: l.String(), Policy: e.name, Enforced: e.enforced,
					Note: NoRule})
			}
		}
		if len(all) == before {
			all = append(all, Reason{Layer: l.String(), Note: NoPolicy})
		}
		decided = decided || slices.ContainsFunc(in, func(b bound) bool { return x.decides[b.entry] })
	}
	return all
}

// An explainer holds the rules that apply to every call.
type explainer struct {
	denies, asks *bound          // the first enforced deny and ask that apply to every call
	decides      map[*entry]bool // policies that decide their layer on every call
}

func newExplainer(rules []bound) explainer {
	x := explainer{decides: map[*entry]bool{}}
	allowed, asked := map[*entry]bool{}, map[*entry]bool{} // by an earlier rule, on some calls
	for i := range rules {
		b, e := &rules[i], rules[i].entry
		if len(b.where) == 0 {
			x.decides[e] = x.decides[e] || b.verdict == Deny || !e.enforced || b.verdict == Allow && !asked[e]
			switch {
			case !e.enforced:
			case b.verdict == Deny && x.denies == nil:
				x.denies = b
			case b.verdict == Ask && x.asks == nil && !allowed[e]:
				x.asks = b
			}
		}
		allowed[e], asked[e] = allowed[e] || b.verdict == Allow, asked[e] || b.verdict == Ask
	}
	return x
}

// conditions returns the where of a rule in one line, as in the file.
func (r *rule) conditions() string {
	var b strings.Builder
	for i, c := range r.where {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(c.name + ": ")
		var tests []string
		for k, t := range c.any {
			if k > 0 && t.re == nil && c.any[k-1].re == nil && t.text == c.any[k-1].text {
				continue // the normalised form of a number
			}
			text := show(t.text)
			if t.re != nil {
				text = "{ re: " + show(t.re.String()) + " }"
			}
			tests = append(tests, text)
		}
		if len(tests) == 1 {
			b.WriteString(tests[0])
		} else {
			b.WriteString("[" + strings.Join(tests, ", ") + "]")
		}
	}
	return b.String()
}
