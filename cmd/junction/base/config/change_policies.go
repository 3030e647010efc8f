package config

import (
	"reflect"
	"slices"
	"strings"

	"junction/auth"
	"junction/policy"
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

// changedPolicies returns the names of the policies that one of two configurations lacks, or that differ, sorted.
func changedPolicies(old, next *Config) (names []string) {
	before, after := policiesOf(old), policiesOf(next)
	for name, e := range after {
		if was, there := before[name]; !there || !reflect.DeepEqual(was, e) {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, there := after[name]; !there {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
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
			lines = append(lines, "the key "+key+" joins the policies "+strings.Join(joins, ", "))
		}
		if leaves := without(was, is); len(leaves) > 0 {
			lines = append(lines, "the key "+key+" leaves the policies "+strings.Join(leaves, ", "))
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
