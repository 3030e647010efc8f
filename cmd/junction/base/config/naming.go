package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"junction/auth"
	"junction/policy"
)

// NamingKey returns the places of the file that name an API key which the file does not have any more, each
// with what to remove. It returns nil if a key of the name is left, or if the file cannot be read.
func NamingKey(file, name string, getenv func(string) (string, bool)) (ps Problems) {
	c, d, _, _ := load(file, getenv, nil) // a mistake elsewhere does not matter
	if c == nil || d == nil {
		return nil
	}
	for _, k := range c.Auth.APIKeys {
		if k.Name == name {
			return nil
		}
	}
	accepted := func(k string) bool {
		return slices.ContainsFunc(c.Auth.APIKeys, func(a auth.Key) bool { return a.Name == k })
	}
	look := func(at, what string, m *policy.Match) {
		if m == nil || !slices.Contains(m.Key, name) {
			return
		}
		path := at + ".match.key"
		others := slices.DeleteFunc(slices.Clone(m.Key), func(k string) bool { return k == name })
		var kept, gone []string
		for _, k := range others {
			if accepted(k) {
				kept = append(kept, k)
			} else {
				gone = append(gone, k)
			}
		}
		text := fmt.Sprintf("take %s out of the list", name)
		if len(kept) > 0 {
			text += "; it keeps " + strings.Join(kept, ", ")
		}
		if len(gone) > 0 {
			text += "; there is no API key " + strings.Join(gone, ", ")
		}
		if len(others) == 0 { // without the line, the match would be wider
			text = fmt.Sprintf("delete the whole %s, which is for %s only", what, name)
		}
		ps = append(ps, Problem{File: d.File, Line: d.line(path), Path: path, Text: text})
	}
	for i := range c.Policies {
		look(fmt.Sprintf("policies[%d]", i), "policy "+c.Policies[i].Name, c.Policies[i].Match)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Endpoints)) {
		look("endpoints."+name, "endpoint "+name, c.Endpoints[name].Match)
	}
	return ps
}

// NamingPolicies returns the places of the file where a policy names API keys, each with the name of the policy and
// the keys. It returns nil if the file cannot be read.
func NamingPolicies(file string, getenv func(string) (string, bool)) (ps Problems) {
	c, d, _, _ := load(file, getenv, nil) // a mistake elsewhere does not matter
	if c == nil || d == nil {
		return nil
	}
	for i, e := range c.Policies {
		if e.Match == nil || len(e.Match.Key) == 0 {
			continue
		}
		path := fmt.Sprintf("policies[%d].match.key", i)
		ps = append(ps, Problem{File: d.File, Line: d.line(path), Path: path,
			Text: e.Name + ", which names " + strings.Join(e.Match.Key, ", ")})
	}
	return ps
}

// Unmatched returns the warnings about policies and endpoints of a file, such as a rule for an upstream that is not
// in it. It returns nil if the file cannot be read.
func Unmatched(file string, getenv func(string) (string, bool)) Problems {
	_, _, warnings, _ := load(file, getenv, nil) // a mistake elsewhere does not matter
	return slices.DeleteFunc(warnings, func(p Problem) bool {
		section, _, _ := strings.Cut(p.Path, ".")
		section, _, _ = strings.Cut(section, "[")
		return section != Policies && section != "endpoints"
	})
}
