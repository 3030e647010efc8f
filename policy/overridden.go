package policy

import (
	"fmt"
	"slices"
	"strings"

	"junction/upstream/yamlread"
)

// Known is what the file says about an upstream.
type Known struct {
	Name  string
	Begin string // common beginning of the names of its tools and prompts; "" if unknown
}

// Warnings returns valid settings that are most likely mistakes: an enforced policy without a deny
// or ask, endpoints with a match of the surface, a deny with several conditions, and global denies and
// asks that a policy of another layer lifts. It returns nothing for an invalid section.
//
// A rule with the shortened name of a tool and a rule with its full name count as rules for two
// tools.
func (c Config) Warnings(upstreams []Known) []yamlread.Problem {
	if len(c.Validate()) > 0 {
		return nil
	}
	var ps []yamlread.Problem
	for i := range c {
		e, at := &c[i], fmt.Sprintf("[%d]", i)
		if e.enforced() && !slices.ContainsFunc(e.Rules, func(r Rule) bool { return r.Allow == nil }) {
			ps = append(ps, yamlread.Problem{Path: at + ".enforced",
				Text: "has no effect: only denies and asks are enforced, and this policy has none; " +
					"add one, or remove the key"})
		}
		if text := c.unrestored(e); text != "" {
			ps = append(ps, yamlread.Problem{Path: at + ".redact.restore", Text: text})
		}
		if e.Endpoints != nil && e.Match != nil && e.Match.Surface != nil {
			ps = append(ps, yamlread.Problem{Path: at + ".endpoints",
				Text: "does not bind callers of an endpoint with another surface, because the policy does not match " +
					"such calls; remove surface from match"})
		}
		for k, r := range e.Rules {
			if r.Deny != nil && len(r.Deny.Where) > 1 {
				ps = append(ps, yamlread.Problem{Path: fmt.Sprintf("%s.rules[%d].deny.where", at, k),
					Text: r.Deny.separately()})
			}
		}
	}
	return append(ps, newComparison(c, upstreams).overridden()...)
}

// unrestored describes a restore that has no effect for some pattern, because a policy for everyone
// removes the same pattern without restore; "" if there is none.
func (c Config) unrestored(e *Entry) string {
	if !e.Redact.Restore {
		return ""
	}
	for _, r := range e.Redact.patterns() {
		for i := range c {
			if o := &c[i]; o.Match == nil && !o.Redact.Restore && slices.Contains(o.Redact.patterns(), r) {
				return fmt.Sprintf("has no effect for %s: the policy %s is for everyone, and removes it without "+
					"restore; add restore: true there, or give that policy a match", r.Word+r.Name, o.Name)
			}
		}
	}
	return ""
}

// separately describes how to write a deny with several conditions as one rule per condition.
func (s *Selector) separately() string {
	var rules []string
	compiled := compileRule("", Rule{Deny: s})
	for i := range compiled.where {
		one := *s
		one.Where = Where{compiled.where[i].name: s.Where[compiled.where[i].name]}
		rules = append(rules, (&Rule{Deny: &one}).Text())
	}
	return fmt.Sprintf("denies only calls that match all %d keys; to deny calls that match any of them, "+
		"write a rule for each: %s", len(rules), strings.Join(rules, " and "))
}

// A comparison finds calls to which the rules of two policies apply.
type comparison struct {
	config    Config
	upstreams []Known
	entries   []compared // as in config
	patterns  map[patternKey]*pattern
	meets     map[[2]*pattern]bool
}

type compared struct {
	*entry
	rules []side
	peers []int // policies that apply wherever this one does, including itself
}

// A side is one of two compared rules, with its patterns.
type side struct {
	*rule
	selector *Selector
	patterns [kinds][]*pattern // by kind
	at       []bool            // by upstream: whether the rule applies to it
	hinted   []hintSet         // by upstream: the tools that the rule selects
}

type patternKey struct {
	kind Kind
	text string
}

// A pattern is a pattern of rules for one kind of items. Rules with equal texts share it.
type pattern struct {
	text   string // "" for all items of a rule's upstreams
	tokens []token
	place  *place      // for resources
	behind [][][]token // by upstream: the rest of the pattern after Known.Begin
}

func newComparison(c Config, upstreams []Known) *comparison {
	x := &comparison{config: c, upstreams: upstreams, patterns: map[patternKey]*pattern{},
		meets: map[[2]*pattern]bool{}}
	for i := range c {
		e := compileEntry(&c[i])
		all := compared{entry: e}
		for k := range e.rules {
			s := side{rule: &e.rules[k], selector: c[i].Rules[k].selectors()[0].Selector}
			// one of each kind: else it does not compile
			var lists [kinds]List = [...]List{s.selector.Tools, s.selector.Prompts, s.selector.Resources,
				s.selector.Skills}
			for kind, list := range lists {
				s.patterns[kind] = x.patternsOf(Kind(kind), list, s.rule)
			}
			for _, u := range upstreams {
				s.at = append(s.at, s.appliesTo(u.Name))
				s.hinted = append(s.hinted, s.hints.at(u.Name))
			}
			all.rules = append(all.rules, s)
		}
		x.entries = append(x.entries, all)
	}
	return x
}

func (x *comparison) patternsOf(kind Kind, list List, r *rule) (all []*pattern) {
	switch {
	case kind >= Resource && len(r.where) > 0, kind != Tool && r.hints != nil: // these have neither
		return nil
	case r.every:
		list = List{""}
	}
	for _, text := range list {
		key := patternKey{kind, text}
		p := x.patterns[key]
		if p == nil {
			p = &pattern{text: text, tokens: []token{star}}
			if text != "" {
				p.tokens = compileGlob(text).tokens()
			}
			if kind == Resource && text != "" {
				at := compilePlace(text)
				p.place = &at
			}
			x.patterns[key] = p
		}
		all = append(all, p)
	}
	return all
}

// overridden returns the global denies and asks that a policy of another layer lifts, unless the
// file sets enforced.
func (x *comparison) overridden() (ps []yamlread.Problem) {
	for i, e := range x.entries {
		if e.layer != global || x.config[i].Enforced != nil {
			continue
		}
		for k := range e.rules {
			d := &e.rules[k]
			if d.verdict.Allows() {
				continue
			}
			var by []string
			var first lifting
			for j := range x.entries {
				if l, ok := x.lifts(j, i, k); ok {
					if by = append(by, x.entries[j].name); len(by) == 1 {
						first = l
					}
				}
			}
			if len(by) > 0 {
				key := d.verdict.String()
				ps = append(ps, yamlread.Problem{Path: fmt.Sprintf("[%d].rules[%d].%s", i, k, key),
					Text: first.text(key, e.name, by)})
			}
		}
	}
	return ps
}

// A lifting is a rule that lifts another one, with the patterns of both.
type lifting struct {
	layer                 layer
	rule, pattern, lifted string
}

// text describes the policies that lift a rule of the policy name, and how to fix that.
func (l *lifting) text(key, name string, by []string) string {
	const most = 3
	lift, policies := "lifts", "policy "+by[0]
	if n := len(by); n > most {
		lift, policies = "lift", fmt.Sprintf("policies %s and %d more", strings.Join(by[:most], ", "), n-most)
	} else if n > 1 {
		lift, policies = "lift", "policies "+strings.Join(by[:n-1], ", ")+" and "+by[n-1]
	}
	return fmt.Sprintf("%s %s this %s of %s: %s of %s is %s, and %s policies decide before global ones; add "+
		"enforced: true to policy %s, "+
		"or enforced: false if that is intended", policies, lift, key, l.lifted, l.rule, by[0], l.pattern, l.layer,
		name)
}

// lifts returns the first rule of policy j that lifts rule k of policy i, a global deny or ask, for
// some calls.
func (x *comparison) lifts(j, i, k int) (lifting, bool) {
	e, d := &x.entries[j], &x.entries[i].rules[k]
	if e.layer == global {
		return lifting{}, false
	}
	for m := range e.rules {
		a := &e.rules[m]
		if a.verdict <= d.verdict || !mayHoldBoth(d.rule, a.rule) {
			continue
		}
		shields := x.shields(j, m, d)
		if d.verdict.Asks() {
			shields = append(shields, x.entries[i].before(k, a.rule)...)
		}
		for kind := range kinds {
			for _, p := range d.patterns[kind] {
				for _, q := range a.patterns[kind] {
					if x.lifted(kind, both{d, p}, both{a, q}, shields) {
						return lifting{e.layer, a.label, fmt.Sprintf("%s: { %s }", a.verdict, q.named(kind, a)),
							p.named(kind, d)}, true
					}
				}
			}
		}
	}
	return lifting{}, false
}

// named returns the pattern as written in the rule.
func (p *pattern) named(kind Kind, s *side) string {
	if p.text != "" {
		return fmt.Sprintf("%ss: %s", kind, show(p.text))
	}
	if text := s.selector.named(); text != "" {
		return text
	}
	return `upstreams: "*"` // equivalent
}

// mayHoldBoth reports whether the conditions of both rules may hold for one call. It ignores that
// an ask and a deny also match arguments that are not text.
func mayHoldBoth(d, a *rule) bool {
	for i := range d.where {
		for k := range a.where {
			if c, o := &d.where[i], &a.where[k]; slices.Equal(c.path, o.path) && !c.mayMeet(o) {
				return false
			}
		}
	}
	return true
}

// both is a rule with one of its patterns.
type both struct {
	*side
	*pattern
}

// lifted reports whether a applies to some items that d applies to, and that no shield covers.
func (x *comparison) lifted(kind Kind, d, a both, shields []*side) bool {
	if kind != Resource && !x.meet(d.pattern, a.pattern) {
		return false
	}
	for i, u := range x.upstreams {
		tools := d.hinted[i] & a.hinted[i]
		if !d.at[i] || !a.at[i] || tools == 0 {
			continue
		}
		begin := u.Begin
		if kind == Resource {
			if begin = ""; !meetPlaces(d.pattern, a.pattern, u.Name) {
				continue
			}
		} else if !x.meetBehind(d.pattern, a.pattern, i) {
			continue
		}
		if !slices.ContainsFunc(shields, func(s *side) bool {
			return s.at[i] && tools&^s.hinted[i] == 0 && slices.ContainsFunc(s.patterns[kind], func(p *pattern) bool {
				return includesAfter(p.tokens, d.tokens, begin) || includesAfter(p.tokens, a.tokens, begin)
			})
		}) {
			return true
		}
	}
	return false
}

// meet caches the function meet for pairs of patterns.
func (x *comparison) meet(p, q *pattern) bool {
	key := [2]*pattern{p, q}
	is, known := x.meets[key]
	if !known {
		is = meet(p.tokens, q.tokens)
		x.meets[key] = is
	}
	return is
}

// meetBehind reports whether the name of a tool or prompt of upstream i may match both.
func (x *comparison) meetBehind(p, q *pattern, i int) bool {
	for _, one := range []*pattern{p, q} {
		if one.behind == nil {
			one.behind = make([][][]token, len(x.upstreams))
			for k, u := range x.upstreams {
				one.behind[k] = after(one.tokens, u.Begin)
			}
		}
	}
	return slices.ContainsFunc(p.behind[i], func(a []token) bool {
		return slices.ContainsFunc(q.behind[i], func(b []token) bool { return meet(a, b) })
	})
}

// includesAfter reports whether a matches every text that begins with begin and matches b.
func includesAfter(a, b []token, begin string) bool {
	return !slices.ContainsFunc(after(b, begin), func(rest []token) bool {
		return !includes(a, inOrder(slices.Concat(characters(begin), rest)))
	})
}

// shields returns the rules that apply besides rule m of policy j and are at least as strict as d:
// denies for the same callers in the same layer, or enforced ones; and for an ask, also earlier
// asks of the same policy and asks of enforced policies.
func (x *comparison) shields(j, m int, d *side) (all []*side) {
	e := &x.entries[j]
	if e.peers == nil {
		for k, other := range x.entries {
			same := other.layer == e.layer && x.config[k].Match.equal(x.config[j].Match)
			if same || other.layer == global && other.enforced {
				e.peers = append(e.peers, k)
			}
		}
	}
	for _, k := range e.peers {
		other := &x.entries[k]
		allowed := false
		for i := range other.rules {
			s := &other.rules[i]
			allowed = allowed || s.verdict.Allows()
			asks := s.verdict.Asks() && d.verdict.Asks() && (k == j && i < m || other.enforced && !allowed)
			if (s.verdict.Denies() || asks) && (s.covers(d.rule) || s.covers(e.rules[m].rule)) {
				all = append(all, s)
			}
		}
	}
	return all
}

// before returns the allows before rule k, an ask, that apply whenever a does, so that the ask does
// not count.
func (e *compared) before(k int, a *rule) (all []*side) {
	for i := range e.rules[:k] {
		if s := &e.rules[i]; s.verdict.Allows() && s.covers(a) {
			all = append(all, s)
		}
	}
	return all
}

// meetPlaces reports whether both may apply to one resource of an upstream. A pattern may name it
// by the upstream's URI, or by the URI for clients: mcp://NAME/URI, or ui://NAME/… for ui://….
func meetPlaces(p, q *pattern, upstream string) bool {
	if p.place != nil && q.place != nil {
		if uri, ok := q.place.plain.literal(); ok && !odd(uri) {
			if all, ok := forms([]string{uri}); ok && p.place.means(all) {
				return true
			}
		}
	}
	for _, a := range p.spellings(upstream) {
		for _, b := range q.spellings(upstream) {
			if meet(a, b) || meet(exposed(a, upstream), b) || meet(a, exposed(b, upstream)) {
				return true
			}
		}
	}
	return false
}

// spellings returns the pattern as written and in the normalised form, without patterns for other
// upstreams.
func (p *pattern) spellings(upstream string) [][]token {
	all := [][]token{p.tokens}
	if p.place != nil {
		for _, g := range p.place.others {
			all = append(all, g.tokens())
		}
	}
	return slices.DeleteFunc(all, func(t []token) bool {
		return hasPrefix(t, "mcp://") && len(after(t, "mcp://"+upstream+"/")) == 0
	})
}

// exposed returns the pattern for the client-facing URIs of those that t matches; nil, which
// matches only the empty text, if these are the same.
func exposed(t []token, upstream string) []token {
	switch {
	case hasPrefix(t, "mcp:"), hasPrefix(t, "http:"), hasPrefix(t, "https:"):
		return nil
	case hasPrefix(t, "ui://"):
		return slices.Concat(characters("ui://"+upstream+"/"), t[len("ui://"):])
	}
	return slices.Concat(characters("mcp://"+upstream+"/"), t)
}

// hasPrefix reports whether the glob begins with this literal text.
func hasPrefix(t []token, text string) bool {
	return len(t) >= len(text) && slices.Equal(t[:len(text)], characters(text))
}
