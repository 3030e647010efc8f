package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// Places are the names that the policies of a file can refer to.
type Places struct {
	Upstreams []Known
	Keys      []string // of API keys
	Surfaces  []string // of endpoints
	Users     bool     // whether users can sign in
	Issuers   []string // at which users can sign in
}

// Unmatched returns the names and globs of the policy that match nothing in the file. These are most
// likely typos: a deny with a typo denies nothing. The paths are below the policy.
func (e *Entry) Unmatched(places Places) []yamlread.Problem {
	ps := e.Match.Unmatched(places)
	bad := func(path, format string, args ...any) {
		ps = append(ps, yamlread.Problem{Path: path, Text: fmt.Sprintf(format, args...)})
	}
	for i, r := range e.Rules {
		for _, s := range r.selectors() {
			at := fmt.Sprintf(".rules[%d].%s", i, s.verdict)
			for k, g := range s.Upstreams {
				if !places.upstream(g) {
					bad(element(at+".upstreams", k, len(s.Upstreams)), "%s", places.noUpstream(g))
				}
			}
			for k, g := range s.Tools {
				if !places.begins(g) {
					bad(element(at+".tools", k, len(s.Tools)), "%s", places.noName(g))
				}
			}
			for k, g := range s.Prompts {
				if !places.begins(g) {
					bad(element(at+".prompts", k, len(s.Prompts)), "%s", places.noName(g))
				}
			}
			if s.Annotations == nil {
				continue
			}
			for k, g := range s.Annotations.Trusted {
				if !places.upstream(g) {
					bad(element(at+".annotations.trusted", k, len(s.Annotations.Trusted)), "%s", places.noUpstream(g))
				}
			}
		}
	}
	return ps
}

// AllowsNothing reports whether no rule allows or asks for an item of any upstream, so that all callers
// have empty lists. Without the section, and without an upstream, it returns false.
func (c Config) AllowsNothing(places Places) bool {
	if c == nil || len(places.Upstreams) == 0 {
		return false
	}
	for i := range c {
		for _, r := range c[i].Rules {
			s := cmp.Or(r.Allow, r.Ask)
			if s == nil || s.Upstreams != nil && !slices.ContainsFunc(s.Upstreams, places.upstream) {
				continue
			}
			if s.Tools == nil || slices.ContainsFunc(s.Tools, places.begins) ||
				s.Prompts != nil || s.Resources != nil || s.Skills != nil {
				return false
			}
		}
	}
	return true
}

// Holding returns the names of the policies that an API key of this name can match.
func (c Config) Holding(key string) (names []string) {
	for i := range c {
		if c[i].Match.mayHold(key) {
			names = append(names, c[i].Name)
		}
	}
	return names
}

// LeavesOutOf reports whether no policy that an API key of this name can match has a rule that allows or asks for a
// tool of an upstream, whose tools have names that begin with begin and require these capabilities. Without the
// section, and for a section with mistakes, it returns false.
func (c Config) LeavesOutOf(key, upstream string, requires []string, begin string) bool {
	matching := slices.DeleteFunc(slices.Clone(c), func(e Entry) bool { return !e.Match.mayHold(key) })
	if c == nil || len(matching.Validate()) > 0 {
		return false
	}
	r := &Rights{held: map[string]bool{}}
	for i := range matching {
		r.add(compileEntry(&matching[i]))
	}
	return !r.Reaches(Tool, upstream, requires, begin)
}

// mayHold reports whether a caller with the API key of this name can have all values of the match.
func (m *Match) mayHold(key string) bool {
	return m == nil || (m.Key == nil || slices.Contains(m.Key, key)) &&
		(m.Kind == nil || slices.Contains(m.Kind, "key")) &&
		!slices.ContainsFunc(m.fields(), func(f field) bool { return f.list != nil && signedInKey(f.key) })
}

// upstream reports whether a glob matches the name of an upstream.
func (p *Places) upstream(glob string) bool {
	g := compileGlob(glob)
	return slices.ContainsFunc(p.Upstreams, func(u Known) bool { return g.match(u.Name) })
}

// noUpstream returns the problem of a glob that matches no upstream.
func (p *Places) noUpstream(glob string) string {
	var names []string
	for _, u := range p.Upstreams {
		names = append(names, u.Name)
	}
	problem := prose.Quote(glob) + " matches no upstream of this file"
	word := strings.Trim(glob, "*")
	if near := prose.Nearest(word, names); near != "" && (word == glob || len(word) >= minWord) {
		problem += "; did you mean " + near + "?"
	}
	return problem
}

// noName returns the problem of a glob that matches no tool or prompt of any upstream.
func (p *Places) noName(glob string) string {
	if near := p.nearestName(glob); near != "" {
		return "matches no name: names begin with the prefix of an upstream; did you mean " + near + "?"
	}
	return "matches no name: names begin with the prefix of an upstream, such as " + p.Upstreams[0].Begin
}

// separators end a prefix, and divide the words of a name.
const separators = "_-./"

// nearestName returns a glob with the prefix of an upstream that was most likely meant; "" if there is none.
func (p *Places) nearestName(glob string) string {
	g := compileGlob(glob)
	head := g.segments[0][0]
	if _, one := g.literal(); one && !strings.Contains(head, "_") || !strings.HasPrefix(glob, head) {
		return "" // it may be any word, or the glob has a backslash
	}
	begins, stems := map[string]string{}, []string(nil)
	for _, u := range p.Upstreams {
		stem := strings.TrimRight(u.Begin, separators)
		begins[stem], stems = u.Begin, append(stems, stem)
	}
	end := p.Upstreams[0].Begin[len(strings.TrimRight(p.Upstreams[0].Begin, separators)):]
	given, rest, divided := strings.Cut(head, cmp.Or(end, "__"))
	near := prose.Nearest(given, stems)
	if len(given) < minWord || near == "" {
		return ""
	}
	name := begins[near] + rest + glob[len(head):]
	if !divided {
		name = near + glob[len(head):]
	}
	if !p.begins(name) {
		return ""
	}
	return name
}

// minWord is the least length of a word that is compared with others: shorter ones are all alike.
const minWord = 3

// didYouMean returns the end of a problem: the nearest name, or "".
func didYouMean(names []string, want string) string {
	if near := prose.Closest(names, want); len(near) > 0 {
		return "; did you mean " + near[0] + "?"
	}
	return ""
}

// begins reports whether a glob can match the name of a tool or a prompt of an upstream. Without an
// upstream nothing is known, and nothing is a typo.
func (p *Places) begins(glob string) bool {
	steps := compileGlob(glob).tokens()
	return len(p.Upstreams) == 0 || slices.ContainsFunc(p.Upstreams, func(u Known) bool {
		return u.Begin == "" || len(after(steps, u.Begin)) > 0
	})
}

// Unmatched returns the values that no caller has, and the match if no caller has all of its
// values. The paths begin with .match.
func (m *Match) Unmatched(places Places) (ps []yamlread.Problem) {
	if m == nil {
		return nil
	}
	bad := func(path, format string, args ...any) {
		ps = append(ps, yamlread.Problem{Path: path, Text: fmt.Sprintf(format, args...)})
	}
	exact := func(key string, given List, names []string, format string) {
		for k, name := range given {
			if slices.Contains(names, name) {
				continue
			}
			bad(element(".match."+key, k, len(given)), format+"%s", prose.Quote(name), didYouMean(names, name))
		}
	}
	exact("key", m.Key, places.Keys, "there is no API key %s")
	exact("surface", m.Surface, places.Surfaces, "no endpoint has the surface %s")
	if places.Users {
		exact("issuer", m.Issuer, places.Issuers, "auth has no issuer %s")
	}
	signedIn := ""
	for _, f := range m.fields() {
		if f.list == nil || !signedInKey(f.key) {
			continue
		}
		signedIn = cmp.Or(signedIn, f.key)
		if !places.Users {
			bad(".match."+f.key, "matches no caller, because no sign-in is configured (auth)")
		}
	}
	if signedIn != "" && !places.Users {
		return ps
	}
	if problem := m.excludes(places, signedIn); problem != "" {
		bad(".match", "matches no caller: %s", problem)
	}
	return ps
}

// signedInKey reports whether only users and services have a value for this key of a match.
func signedInKey(key string) bool {
	switch key {
	case "user", "issuer", "email", "email_domain", "group", "scope", "oauth_client":
		return true
	}
	return false
}

// excludes returns why no caller has all values of the match, because each value excludes another
// one; "" if some caller may have them. signedIn is the first key for users and services; "" if
// there is none.
func (m *Match) excludes(places Places, signedIn string) string {
	kinds := func(of ...string) bool {
		return m.Kind == nil || slices.ContainsFunc(m.Kind, func(k string) bool { return slices.Contains(of, k) })
	}
	switch {
	case m.Key != nil && signedIn != "":
		return fmt.Sprintf("key is for callers with an API key, and %s for users who sign in; write a policy for each",
			signedIn)
	case m.Key != nil && !kinds("key"):
		return "a caller with an API key has kind: key; remove kind"
	case signedIn != "" && !kinds("user", "service"):
		return fmt.Sprintf("a caller with %s has kind: user or service; correct kind", signedIn)
	case !m.addressed():
		return "no address of email is in email_domain; remove one of the two"
	case kinds("key") && (len(places.Keys) > 0 || m.Key != nil), kinds("user", "service") && places.Users,
		kinds("local") && len(places.Keys) == 0 && !places.Users:
		return ""
	case kinds("local"):
		return "kind: local is without sign-in, and auth has API keys or a sign-in; correct kind"
	case kinds("key"):
		return "auth has no API keys; correct kind, or add a key"
	}
	return "no sign-in is configured (auth); correct kind"
}

// addressed reports whether an address of email is in email_domain, if the match has both.
func (m *Match) addressed() bool {
	domain := field{"email_domain", m.EmailDomain}
	return m.Email == nil || m.EmailDomain == nil ||
		slices.ContainsFunc(m.Email, func(a string) bool { return domain.matches(&Subject{Email: a}) })
}
