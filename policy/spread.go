package policy

import (
	"fmt"
	"slices"
	"strings"

	"junction/upstream/yamlread"
)

// A Spread is an ask of a policy for everyone that gives items to some API keys, to which no other rule gives them,
// while another rule gives them to other callers. The writer most likely wants to ask those other callers only.
type Spread struct {
	Policy, Rule string   // such as careful and rules[0]
	Items        string   // as in the rule
	Keys         []string // that get all or some of the items by this rule alone, in the order of the argument
	Some         []string // of Keys: those to which other rules give some of the items
	path         string
	enforced     bool
	shared       string // a policy for everyone that gives some of the items; "" if there is none
}

// Spreads returns the asks that spread, for the names of all API keys. It returns nothing for an invalid section.
func (c Config) Spreads(keys []string, upstreams []Known) (all []Spread) {
	asks := func(e Entry) bool {
		return e.Match == nil && slices.ContainsFunc(e.Rules, func(r Rule) bool { return r.Ask != nil })
	}
	if len(keys) == 0 || !slices.ContainsFunc(c, asks) || len(c.Validate()) > 0 {
		return nil
	}
	x := newComparison(c, upstreams)
	for i := range x.entries {
		if c[i].Match != nil {
			continue
		}
		for k := range x.entries[i].rules {
			ask := &x.entries[i].rules[k]
			if !ask.verdict.Asks() || len(x.givers(i, k, nil)) == 0 {
				continue
			}
			s := Spread{Policy: c[i].Name, Rule: ask.label, Items: ask.selector.named(),
				path: fmt.Sprintf("[%d].rules[%d].ask", i, k), enforced: x.entries[i].enforced}
			for _, key := range keys {
				givers := x.givers(i, k, &key)
				if slices.Contains(s.Keys, key) || x.covered(ask, append(x.denies(global, key), sides(givers)...)) {
					continue
				}
				if s.Keys = append(s.Keys, key); len(givers) > 0 {
					s.Some = append(s.Some, key)
				}
				for _, g := range givers {
					if c[g.entry].Match == nil {
						s.shared = c[g.entry].Name
					}
				}
			}
			if len(s.Keys) > 0 {
				all = append(all, s)
			}
		}
	}
	return all
}

// A giver is a rule that allows or asks, and the index of its policy.
type giver struct {
	*side
	entry int
}

// givers returns the other rules that allow or ask for some items of rule k of policy i, to a caller with the key; nil
// is any caller.
func (x *comparison) givers(i, k int, key *string) (list []giver) {
	ask := &x.entries[i].rules[k]
	for j := range x.entries {
		if key != nil && !x.config[j].Match.mayHold(*key) {
			continue
		}
		for m := range x.entries[j].rules {
			a := &x.entries[j].rules[m]
			if (j != i || m != k) && !a.verdict.Denies() && !(a.verdict.Asks() && x.config[j].Match == nil) &&
				x.shares(ask, a) {
				list = append(list, giver{a, j})
			}
		}
	}
	return list
}

func sides(givers []giver) (list []*side) {
	for _, g := range givers {
		list = append(list, g.side)
	}
	return list
}

// shares reports whether both rules apply to some items.
func (x *comparison) shares(d, a *side) bool {
	for kind := range kinds {
		for _, p := range d.patterns[kind] {
			for _, q := range a.patterns[kind] {
				if x.lifted(kind, both{d, p}, both{a, q}, nil) {
					return true
				}
			}
		}
	}
	return false
}

// denies returns the rules that deny something to each call with the key, so that a rule of the layer cannot give it.
func (x *comparison) denies(l layer, key string) (list []*side) {
	for j := range x.entries {
		e := &x.entries[j]
		if e.layer > l && !e.enforced || !x.config[j].Match.always(key) {
			continue
		}
		for m := range e.rules {
			if e.rules[m].verdict.Denies() {
				list = append(list, &e.rules[m])
			}
		}
	}
	return list
}

// covered reports whether for each item of a rule, one of the shields applies to all calls to which the rule applies.
// It may return false for items that several shields cover together.
func (x *comparison) covered(r *side, shields []*side) bool {
	shields = slices.DeleteFunc(shields, func(s *side) bool { return !s.covers(r.rule) })
	for kind := range kinds {
		for _, p := range r.patterns[kind] {
			if x.lifted(kind, both{r, p}, both{r, p}, shields) {
				return false
			}
		}
	}
	return true
}

// LeftOut returns those of the keys that no policy gives anything: each rule that allows or asks is for other callers,
// or another rule denies all of its items. Without the section it returns nil.
func (c Config) LeftOut(keys []string, upstreams []Known) (out []string) {
	if c == nil {
		return nil
	}
	var x *comparison
	if len(upstreams) > 0 && len(c.Validate()) == 0 {
		x = newComparison(c, upstreams)
	}
	for _, key := range keys {
		if !slices.Contains(out, key) && !c.gives(x, key) {
			out = append(out, key)
		}
	}
	return out
}

// gives reports whether a policy gives something to a caller with the key. Without a comparison, denies do not count.
func (c Config) gives(x *comparison, key string) bool {
	for i := range c {
		if !c[i].Match.mayHold(key) {
			continue
		}
		for k := range c[i].Rules {
			if c[i].Rules[k].Deny == nil &&
				(x == nil || !x.covered(&x.entries[i].rules[k], x.denies(x.entries[i].layer, key))) {
				return true
			}
		}
	}
	return false
}

// always reports whether each call with the API key of this name matches.
func (m *Match) always(key string) bool {
	return m == nil || m.mayHold(key) && m.CIDR == nil && m.Surface == nil
}

// Named returns the keys for people.
func (s *Spread) Named() string { return NamedKeys(s.Keys) }

// In reports whether a configuration has the ask.
func (s *Spread) In(c Config) bool {
	return slices.ContainsFunc(c, func(e Entry) bool {
		return e.Name == s.Policy && e.Match == nil &&
			slices.ContainsFunc(e.Rules, func(r Rule) bool { return r.Ask != nil && r.Ask.named() == s.Items })
	})
}

// Same reports whether both give the same items to the same keys by the same policy.
func (s *Spread) Same(o *Spread) bool {
	return s.Policy == o.Policy && s.Items == o.Items && slices.Equal(s.Keys, o.Keys)
}

// NamedKeys returns at least one key for people.
func NamedKeys(keys []string) string {
	if n := len(keys); n > 1 {
		return "the keys " + strings.Join(keys[:n-1], ", ") + " and " + keys[n-1]
	}
	return "the key " + keys[0]
}

// Text says who gets the items, and how to ask only those who may use them without this rule.
func (s *Spread) Text() string {
	others := "no other rule does"
	if n := len(s.Some); n > 0 {
		has := map[bool]string{true: "has", false: "have"}[n == 1]
		others = fmt.Sprintf("no other rule gives them all of it (%s %s a part)", NamedKeys(s.Some), has)
	}
	text := fmt.Sprintf("gives { %s } to %s, too: %s, and they approve their own calls; to ask only those who may "+
		"use it already, ", s.Items, s.Named(), others)
	if s.shared != "" { // a deny for everyone would take this part from them
		return text + "add match: { key: [NAMES OF THEIR KEYS] } to this policy"
	}
	fix := "add the policy"
	if !s.enforced {
		fix = "add enforced: true to this policy, and the policy"
	}
	return text + fmt.Sprintf("%s { name: %s-others, enforced: false, rules: [{ deny: { %s } }] }", fix, s.Policy,
		s.Items)
}

// Problem returns the spread as a warning about the section.
func (s *Spread) Problem() yamlread.Problem { return yamlread.Problem{Path: s.path, Text: s.Text()} }
