package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"junction/auth"
	"junction/policy"
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

// policyChange are the names of the policies that a file changes, sorted, and a line for each changed one.
type policyChange struct {
	added, changed, removed []string
	lines                   []string
}

// names returns all names, sorted.
func (c policyChange) names() []string {
	names := slices.Concat(c.added, c.changed, c.removed)
	slices.Sort(names)
	return names
}

// A PolicyChange is what a reload does to one policy.
type PolicyChange struct {
	Name string
	How  string // added, changed or removed
	What string // of a changed one: its rules that go and come, and its other keys
}

// PolicyChanges returns the policies that the change adds, changes and removes.
func (ch *Change) PolicyChanges() (all []PolicyChange) {
	c := comparePolicies(ch.before, ch.Config)
	for _, name := range c.added {
		all = append(all, PolicyChange{Name: name, How: "added"})
	}
	for i, name := range c.changed {
		all = append(all, PolicyChange{name, "changed", strings.TrimPrefix(c.lines[i], "the policy "+name+" ")})
	}
	for _, name := range c.removed {
		all = append(all, PolicyChange{Name: name, How: "removed"})
	}
	return all
}

// comparePolicies compares the policies of two configurations.
func comparePolicies(old, next *Config) (c policyChange) {
	before, after := policiesOf(old), policiesOf(next)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, there := before[name]
		if is := after[name]; !there {
			c.added = append(c.added, name)
		} else if does := changesOf(was, is); len(does) > 0 {
			c.changed = append(c.changed, name)
			c.lines = append(c.lines, "the policy "+name+" "+strings.Join(does, "; "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, there := after[name]; !there {
			c.removed = append(c.removed, name)
		}
	}
	return c
}

// changesOf returns the difference between two policies of one name: the rules that go and come, and the other keys.
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
		if reflect.DeepEqual(keyOf(from, key).Interface(), keyOf(to, key).Interface()) {
			continue
		}
		switch {
		case key != "rules":
			does = append(does, "changes "+key)
		case moved && len(was.Rules) == len(is.Rules):
			does = append(does, "changes the order of its rules")
		case moved: // of equal rules, one goes or comes
			does = append(does, "changes its rules")
		}
	}
	return does
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
		var keys []string
		for _, k := range c.Auth.APIKeys {
			keys = append(keys, k.Name)
		}
		return c.Policies.Spreads(keys, c.Known())
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
		if lacks(after, s) {
			lines = append(lines, "without this ask of the policy "+s.Policy+", "+s.Named()+" may lose { "+s.Items+
				" }: no other rule gave it to them")
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
