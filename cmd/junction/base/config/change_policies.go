package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"junction/auth"
	"junction/policy"
	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// This file tells what a changed file means for policies, and for the API keys that they name.

// policiesOf returns the policies of a configuration by their names.
func policiesOf(c *Config) map[string]policy.Entry {
	all := map[string]policy.Entry{}
	for _, e := range c.Policies {
		all[e.Name] = e
	}
	return all
}

// policyChange are the names of the policies that a file changes, sorted, and what it does to each of them.
type policyChange struct {
	added, changed, removed []string
	does                    map[string]string // by name
}

// names returns all names, sorted.
func (c policyChange) names() []string {
	names := slices.Concat(c.added, c.changed, c.removed)
	slices.Sort(names)
	return names
}

// A PolicyChange is what a reload does to one policy.
type PolicyChange struct {
	Name string `json:"name"`
	How  string `json:"how"`  // added, changed or removed
	What string `json:"what"` // its rules that go and come, and the old and new values of its other keys
}

// Line returns what happens to the policy, for people.
func (c *PolicyChange) Line() string {
	which := map[string]string{"added": "new ", "removed": "removed "}[c.How]
	return strings.TrimSpace("the " + which + "policy " + c.Name + " " + c.What)
}

// each returns what happens to each of the policies.
func (c policyChange) each() (all []PolicyChange) {
	for _, list := range []struct {
		how   string
		names []string
	}{{"added", c.added}, {"changed", c.changed}, {"removed", c.removed}} {
		for _, name := range list.names {
			all = append(all, PolicyChange{name, list.how, c.does[name]})
		}
	}
	return all
}

// comparePolicies compares the policies of two configurations.
func comparePolicies(old, next *Config) (c policyChange) {
	before, after := policiesOf(old), policiesOf(next)
	c.does = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, there := before[name]
		does := changesOf(was, after[name])
		if !there {
			c.added = append(c.added, name)
			if after[name].Match == nil {
				does = append([]string{"applies to everybody"}, does...)
			}
		} else if len(does) > 0 {
			c.changed = append(c.changed, name)
		}
		c.does[name] = strings.Join(does, "; ")
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, there := after[name]; !there {
			c.removed = append(c.removed, name)
			c.does[name] = strings.Join(changesOf(before[name], policy.Entry{}), "; ")
		}
	}
	return c
}

// changesOf returns the difference between two policies: the rules that go and come, and the old and the new values
// of the other keys except the name.
func changesOf(was, is policy.Entry) (does []string) {
	lacks := func(list []policy.Rule, verb string, of []policy.Rule) {
		for i := range of {
			if !slices.ContainsFunc(list, func(r policy.Rule) bool { return reflect.DeepEqual(r, of[i]) }) {
				does = append(does, verb+" the rule "+of[i].Text())
			}
		}
	}
	lacks(is.Rules, "loses", was.Rules)
	lacks(was.Rules, "gets", is.Rules)
	moved := len(does) == 0
	from, to := reflect.ValueOf(was), reflect.ValueOf(is)
	for _, key := range slices.Sorted(maps.Keys(yamlread.Keys(from.Type()))) {
		old, next := keyOf(from, key).Interface(), keyOf(to, key).Interface()
		switch {
		case key == "name" || reflect.DeepEqual(old, next):
		case key != "rules":
			does = append(does, changeOf(key, policy.Notation(old), policy.Notation(next)))
		case moved && len(was.Rules) == len(is.Rules):
			does = append(does, "changes the order of its rules")
		case moved: // of equal rules, one goes or comes
			does = append(does, "changes its rules")
		}
	}
	return does
}

// changeOf returns how the value of a key changes; "" is a key that is not given.
func changeOf(key, old, next string) string {
	const most = 500 // such as a match with many keys
	switch a, b := prose.Cut(old, most), prose.Cut(next, most); {
	case old == next || a == b: // a default that is written now, or a difference behind the cut
		return "changes " + key
	case old == "":
		return "gets " + key + ": " + b
	case next == "":
		return "loses " + key + ": " + a
	default:
		return "changes " + key + " from " + a + " to " + b
	}
}

// movedKeys returns a line for each API key, of both configurations, that other policies name than before, and a
// line if all policies come or go.
func movedKeys(old, next *Config) (lines []string) {
	switch {
	case old.Policies == nil && next.Policies != nil:
		lines = append(lines, "the section policies is new: what no rule allows is denied")
	case old.Policies != nil && next.Policies == nil:
		lines = append(lines, "the section policies is gone: every caller may use everything that requires no "+
			"capability")
	}
	var keys []string
	for _, k := range next.Auth.APIKeys {
		if slices.ContainsFunc(old.Auth.APIKeys, func(o auth.Key) bool { return o.Name == k.Name }) {
			keys = append(keys, k.Name)
		}
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		was, is := naming(old, key), naming(next, key)
		if joins := without(is, was); len(joins) > 0 {
			line := "the key " + key + " joins the policies " + strings.Join(joins, ", ")
			if denies := few(deniesOf(next, joins)); len(denies) > 0 {
				line += "; these deny it { " + strings.Join(denies, " }, { ") + " }"
			}
			lines = append(lines, line)
		}
		if leaves := without(was, is); len(leaves) > 0 {
			lines = append(lines, "the key "+key+" leaves the policies "+strings.Join(leaves, ", "))
		}
	}
	return lines
}

// deniesOf returns what the denies of policies select, as in the file.
func deniesOf(c *Config, names []string) (denies []string) {
	for _, e := range c.Policies {
		for i := range e.Rules {
			if e.Rules[i].Deny != nil && slices.Contains(names, e.Name) {
				text := strings.TrimPrefix(e.Rules[i].Text(), "deny: { ")
				denies = append(denies, strings.TrimSuffix(text, " }"))
			}
		}
	}
	return denies
}

// spreadKeys returns a line for each ask of a policy for everyone that a change adds or removes, and that gives items
// to API keys to which no other rule gives them.
func spreadKeys(old, next *Config) (lines []string) {
	spreads := func(c *Config) []policy.Spread {
		return c.Policies.Spreads(c.keyNames(), c.Known())
	}
	before, after := spreads(old), spreads(next)
	lacks := func(list []policy.Spread, s policy.Spread) bool {
		return !slices.ContainsFunc(list, func(o policy.Spread) bool { return o.Same(&s) })
	}
	for _, s := range after {
		if lacks(before, s) {
			lines = append(lines, "the policy "+s.Policy+" "+s.Text())
		}
	}
	for _, s := range before {
		gone := func(k string) bool { return !slices.Contains(next.keyNames(), k) }
		keys := slices.DeleteFunc(slices.Clone(s.Keys), gone)
		for _, o := range after {
			if o.Policy == s.Policy && o.Items == s.Items {
				keys = without(keys, o.Keys)
			}
		}
		switch {
		case len(keys) == 0:
		case s.In(next.Policies):
			lines = append(lines, "the ask of the policy "+s.Policy+" no longer decides alone about { "+s.Items+
				" } for "+policy.NamedKeys(keys)+": another rule allows or denies it")
		default:
			lines = append(lines, "without this ask of the policy "+s.Policy+", "+policy.NamedKeys(keys)+" may lose { "+
				s.Items+" }: no other rule gave it to them")
		}
	}
	return lines
}

// naming returns the policies whose match names an API key.
func naming(c *Config, key string) (names []string) {
	for _, e := range c.Policies {
		if e.Match != nil && slices.Contains(e.Match.Key, key) {
			names = append(names, e.Name)
		}
	}
	return names
}

// without returns the names that others lack.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(others, n) })
}
