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
	Keys         []string // that get the items by this rule alone, in the order of the argument
	path         string
	enforced     bool
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
			if !ask.verdict.Asks() || !x.givenElsewhere(i, k, nil) {
				continue
			}
			s := Spread{Policy: c[i].Name, Rule: ask.label, Items: ask.selector.named(),
				path: fmt.Sprintf("[%d].rules[%d].ask", i, k), enforced: x.entries[i].enforced}
			for _, key := range keys {
				if !x.givenElsewhere(i, k, &key) && !x.denied(ask, key) && !slices.Contains(s.Keys, key) {
					s.Keys = append(s.Keys, key)
				}
			}
			if len(s.Keys) > 0 {
				all = append(all, s)
			}
		}
	}
	return all
}

// givenElsewhere reports whether another rule allows or asks for some items of rule k of policy i, to a caller with
// the key; nil is any caller.
func (x *comparison) givenElsewhere(i, k int, key *string) bool {
	ask := &x.entries[i].rules[k]
	for j := range x.entries {
		if key != nil && !x.config[j].Match.mayHold(*key) {
			continue
		}
		for m := range x.entries[j].rules {
			a := &x.entries[j].rules[m]
			if (j != i || m != k) && !a.verdict.Denies() && !(a.verdict.Asks() && x.config[j].Match == nil) &&
				x.shares(ask, a) {
				return true
			}
		}
	}
	return false
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

// denied reports whether rules deny all items of an ask of a policy for everyone to a caller with the key.
func (x *comparison) denied(ask *side, key string) bool {
	var denies []*side
	for j := range x.entries {
		for m := range x.entries[j].rules {
			if s := &x.entries[j].rules[m]; s.verdict.Denies() && s.covers(ask.rule) && x.config[j].Match.always(key) {
				denies = append(denies, s)
			}
		}
	}
	for kind := range kinds {
		for _, p := range ask.patterns[kind] {
			if x.lifted(kind, both{ask, p}, both{ask, p}, denies) {
				return false
			}
		}
	}
	return true
}

// always reports whether each call with the API key of this name matches.
func (m *Match) always(key string) bool {
	return m == nil || m.mayHold(key) && m.CIDR == nil && m.Surface == nil
}

// Named returns the keys for people.
func (s *Spread) Named() string { return namedKeys(s.Keys) }

// Same reports whether both give the same items to the same keys by the same policy.
func (s *Spread) Same(o *Spread) bool {
	return s.Policy == o.Policy && s.Items == o.Items && slices.Equal(s.Keys, o.Keys)
}

func namedKeys(keys []string) string {
	const most = 5
	n := len(keys)
	switch {
	case n == 1:
		return "the key " + keys[0]
	case n > most:
		return fmt.Sprintf("the keys %s and %d more", strings.Join(keys[:most], ", "), n-most)
	}
	return "the keys " + strings.Join(keys[:n-1], ", ") + " and " + keys[n-1]
}

// Text says who gets the items, and how to ask only those who may use them without this rule.
func (s *Spread) Text() string {
	fix := "add the policy"
	if !s.enforced {
		fix = "add enforced: true to this policy, and the policy"
	}
	return fmt.Sprintf("gives { %s } to %s, too: no other rule does, and they approve their own calls; to ask only "+
		"those who may use it already, %s { name: %s-others, enforced: false, rules: [{ deny: { %s } }] }",
		s.Items, s.Named(), fix, s.Policy, s.Items)
}

// Problem returns the spread as a warning about the section.
func (s *Spread) Problem() yamlread.Problem { return yamlread.Problem{Path: s.path, Text: s.Text()} }
