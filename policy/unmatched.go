package policy

import (
	"fmt"
	"slices"

	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// Places are the names that the policies of a file can refer to.
type Places struct {
	Upstreams []Known
	Keys      []string // of API keys
	Surfaces  []string // of endpoints
	Users     bool     // whether users can sign in
}

const unmatchedName = "matches no name: names begin with the prefix of an upstream, such as %s"

// Unmatched returns the names and globs of the policy that match nothing in the file. These are most
// likely typos: a deny with a typo denies nothing. The paths are below the policy.
func (e *Entry) Unmatched(places Places) []yamlread.Problem {
	var ps []yamlread.Problem
	bad := func(path, format string, args ...any) {
		ps = append(ps, yamlread.Problem{Path: path, Text: fmt.Sprintf(format, args...)})
	}
	e.Match.unmatched(places, bad)
	for i, r := range e.Rules {
		for _, s := range r.selectors() {
			at := fmt.Sprintf(".rules[%d].%s", i, s.verdict)
			for k, g := range s.Upstreams {
				if !places.upstream(g) {
					bad(element(at+".upstreams", k, len(s.Upstreams)), "matches no upstream of this file")
				}
			}
			for k, g := range s.Tools {
				if !places.begins(g) {
					bad(element(at+".tools", k, len(s.Tools)), unmatchedName, places.Upstreams[0].Begin)
				}
			}
			for k, g := range s.Prompts {
				if !places.begins(g) {
					bad(element(at+".prompts", k, len(s.Prompts)), unmatchedName, places.Upstreams[0].Begin)
				}
			}
			if s.Annotations == nil {
				continue
			}
			for k, g := range s.Annotations.Trusted {
				if !places.upstream(g) {
					bad(element(at+".annotations.trusted", k, len(s.Annotations.Trusted)),
						"matches no upstream of this file")
				}
			}
		}
	}
	return ps
}

// upstream reports whether a glob matches the name of an upstream.
func (p *Places) upstream(glob string) bool {
	g := compileGlob(glob)
	return slices.ContainsFunc(p.Upstreams, func(u Known) bool { return g.match(u.Name) })
}

// begins reports whether a glob can match the name of a tool or a prompt of an upstream. Without an
// upstream nothing is known, and nothing is a typo.
func (p *Places) begins(glob string) bool {
	steps := compileGlob(glob).tokens()
	return len(p.Upstreams) == 0 || slices.ContainsFunc(p.Upstreams, func(u Known) bool {
		return u.Begin == "" || len(after(steps, u.Begin)) > 0
	})
}

// unmatched reports the values that no caller has.
func (m *Match) unmatched(places Places, bad func(path, format string, args ...any)) {
	if m == nil {
		return
	}
	exact := func(key string, given List, names []string, format string) {
		for k, name := range given {
			if slices.Contains(names, name) {
				continue
			}
			hint := ""
			if near := prose.Closest(names, name); len(near) > 0 {
				hint = "; did you mean " + near[0] + "?"
			}
			bad(element(".match."+key, k, len(given)), format+"%s", prose.Quote(name), hint)
		}
	}
	exact("key", m.Key, places.Keys, "there is no API key %s")
	exact("surface", m.Surface, places.Surfaces, "no endpoint has the surface %s")
	if places.Users {
		return
	}
	for _, f := range m.fields() {
		switch f.key {
		case "user", "issuer", "email", "email_domain", "group", "scope", "oauth_client":
			if f.list != nil {
				bad(".match."+f.key, "matches no caller, because no sign-in is configured (auth)")
			}
		}
	}
}
