package policy

import (
	"fmt"
	"slices"
	"strings"
)

// This file explains the decisions of a Ruling to operators.

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
	// Annotations are the hints by which the rule selects the tool; "" if it does not read them.
	Annotations string
	Note        string // why the rule does not count, or counts differently
	// Unmet is why the rule does not apply: it would, but for the hints of the item. Untrusted reports that
	// trust in the upstream is all that is missing.
	Unmet     string
	Untrusted bool
	// Also reports that the reason is one of the other policy that must allow, too (Both).
	Also bool
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
		before := len(all)
		for _, e := range g.rights.entries {
			if e.layer == l {
				all = append(all, x.policy(e, in, decided)...)
			}
		}
		if len(all) == before {
			all = append(all, Reason{Layer: l.String(), Note: NoPolicy})
		}
		decided = decided || slices.ContainsFunc(in, func(b bound) bool { return x.decides[b.entry] })
	}
	if g.also != nil {
		for _, reason := range g.also.Explain() {
			reason.Also = true
			all = append(all, reason)
		}
	}
	return all
}

// Explain returns the reasons of the ruling for an item. If the subject does not see the item, the rules
// that would allow it, or ask about it, but for its hints stand in their policies.
func (r *Rights) Explain(it Item) []Reason {
	g := r.Bind(it)
	all := g.Explain()
	if g.Visible() {
		return all
	}
	var rest []Reason
	for rights, also := r, false; rights != nil; rights, also = rights.also, true {
		for _, e := range rights.entries {
			if near := e.unmet(&it, also); len(near) > 0 {
				of := func(x Reason) bool { return x.Policy == e.name && x.Also == also }
				all = slices.DeleteFunc(all, func(x Reason) bool { return of(x) && x.Rule == "" && x.Note == NoRule })
				rest = append(rest, near...)
			}
		}
	}
	return append(all, rest...)
}

// unmet returns the rules of a policy that do not apply to an item only because of its hints.
func (e *entry) unmet(it *Item, also bool) (all []Reason) {
	n := newNamed(it)
	for i := range e.rules {
		rule := e.rules[i]
		hints := rule.hints
		if rule.hints = nil; hints.selects(it) || rule.verdict.Denies() {
			continue
		}
		if _, ok := rule.selects(&n); !ok || it.Kind != Tool {
			continue
		}
		x := Reason{Layer: e.layer.String(), Policy: e.name, Enforced: e.enforced, Rule: rule.label, Also: also,
			Verdict: rule.verdict, Where: rule.conditions(), Annotations: rule.kinds}
		x.Unmet, x.Untrusted = hints.unmet(it)
		all = append(all, x)
	}
	return all
}

// policy returns the reasons of one policy. in are the rules of its layer; decided reports that an
// earlier layer decides every call.
func (x *explainer) policy(e *entry, in []bound, decided bool) (all []Reason) {
	at := position{decided: decided}
	if i := slices.IndexFunc(in, bound.deniesAll); i >= 0 {
		at.denies = &in[i]
	}
	for i := range in {
		b := &in[i]
		if b.entry != e {
			continue
		}
		all = append(all, Reason{Layer: e.layer.String(), Policy: e.name, Rule: b.label, Enforced: e.enforced,
			Verdict: b.verdict, Where: b.conditions(), Annotations: b.kinds, Note: x.note(b, at)})
		if b.verdict.Denies() || len(b.where) > 0 {
			continue
		}
		if at.before(b) == nil {
			at.first = b
		}
		if b.verdict.Allows() && at.allows == nil {
			at.allows = b
		}
	}
	if len(all) == 0 {
		all = []Reason{{Layer: e.layer.String(), Policy: e.name, Enforced: e.enforced, Note: NoRule}}
	}
	return all
}

// A position is what comes before a rule, or beside it in its layer.
type position struct {
	decided bool   // an earlier layer decides every call
	denies  *bound // the first rule of the layer that denies every call; nil for none
	first   *bound // the ask or allow of the policy that counts for every call, so far; nil for none
	allows  *bound // the first allow of the policy that applies to every call; nil for none
}

// before returns the rule of the policy because of which a later ask or allow never counts; nil for none.
func (at position) before(b *bound) *bound {
	if at.first != nil && at.first.verdict.Asks() && b.stricter(at.first) {
		return at.allows // an ask that lets a person allow less at once counts up to the first allow
	}
	return at.first
}

// note returns why a rule does not count, or counts differently; "" if it counts.
func (x *explainer) note(b *bound, at position) string {
	e, hidden := b.entry, at.before(b)
	switch {
	case b.label == "":
		return "there are no policies"
	case x.denies != nil && x.denies.rule != b.rule:
		return fmt.Sprintf("%s of %s, which is enforced, always denies", x.denies.label, x.denies.entry.name)
	// These two count in every layer.
	case e.enforced && b.verdict.Denies() && b.rule.verdict.Denies(), b.onlyAsks() && hidden == nil:
		return ""
	case at.decided && !(e.enforced && b.verdict.Denies()):
		return "an earlier layer decides"
	case at.denies != nil && at.denies != b:
		return fmt.Sprintf("%s of %s always denies", at.denies.label, at.denies.entry.name)
	case hidden != nil && !b.verdict.Denies():
		return hidden.label + " applies first"
	case b.verdict.Allows() && x.asks != nil:
		return fmt.Sprintf("%s of %s, which is enforced, always asks", x.asks.label, x.asks.entry.name)
	case b.verdict != b.rule.verdict:
		return "an ask, denied because the URI is ambiguous"
	}
	return ""
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
			x.decides[e] = x.decides[e] || b.verdict.Denies() || !e.enforced || b.verdict.Allows() && !asked[e]
			switch {
			case !e.enforced:
			case b.verdict.Denies() && x.denies == nil:
				x.denies = b
			case b.verdict.Asks() && x.asks == nil && !allowed[e]:
				x.asks = b
			}
		}
		allowed[e], asked[e] = allowed[e] || b.verdict.Allows(), asked[e] || b.verdict.Asks()
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
