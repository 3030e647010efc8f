package policy

import "junction/upstream/raw"

// This file has the meet of two policies. Policy, Rights and Ruling each refer to their counterpart in
// the other policy; nil is the ordinary case of one policy. Both answer each question, and the stricter
// answer counts.

// Both returns the policy that allows what both policies allow: an item exists if it exists for
// both, the stricter verdict wins, the smaller limits count, and the redactions and checks of both
// hold.
func Both(a, b *Policy) *Policy {
	if a == nil || b == nil {
		return nil
	}
	both := *a
	if both.also = b; a.also != nil {
		both.also = Both(a.also, b)
	}
	return &both
}

// meet adds the rights of the subject by the other policy.
func (r *Rights) meet(o *Rights) {
	r.also = o
	r.safeguards.add(&o.safeguards)
	r.limits = r.limits.strictest(o.limits)
}

// all yields the policies that match the subject, and then the matching ones of the other policy.
func (r *Rights) all(yield func(*entry) bool) {
	for ; r != nil; r = r.also {
		for _, e := range r.entries {
			if !yield(e) {
				return
			}
		}
	}
}

// meet adds the ruling for the item by the other policy.
func (g *Ruling) meet(o *Ruling) {
	g.also, g.visible = o, g.visible && o.visible
	if len(o.missing) > 0 {
		g.scopes = "" // another token does not help
	}
	switch {
	case g.fixed && g.decision.final():
	case o.fixed && o.decision.final():
		g.fixed, g.decision = true, o.decision
	case g.fixed && o.fixed:
		g.decision = strictestDecision(g.decision, o.decision)
	default:
		g.fixed = false
	}
}

// decideBoth returns the stricter decision of both policies on a call that depends on arguments.
func (g *Ruling) decideBoth(arguments raw.Object) (Decision, error) {
	d, err := g.decide(arguments)
	if g.also == nil || err != nil {
		return d, err
	}
	o, err := g.also.Decide(arguments)
	return strictestDecision(d, o), err
}

// final reports whether the decision is a deny that no other token lifts.
func (d Decision) final() bool { return d.Verdict.Denies() && d.Scopes == "" }

// strictestDecision returns the stricter decision of two. A deny because of scopes is less strict
// than another deny, so that a client does not sign in again in vain. Of two equal ones it returns a.
func strictestDecision(a, b Decision) Decision {
	if a.Verdict.Denies() && b.Verdict.Denies() {
		if b.final() && !a.final() {
			return b
		}
		return a
	}
	if b.Verdict < a.Verdict || b.Verdict.Asks() && a.Verdict.Asks() && b.Remember < a.Remember {
		return b
	}
	return a
}
