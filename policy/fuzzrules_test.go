package policy_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"junction/policy"
	"junction/upstream/raw"
	"junction/upstream/yamlread"
)

// A script makes policies of a fuzzer's bytes; after the end it reads zeros.
type script []byte

func (s *script) next(n int) int {
	if len(*s) == 0 {
		return 0
	}
	b := int((*s)[0])
	*s = (*s)[1:]
	return b % n
}

func pickOf[T any](s *script, list ...T) T { return list[s.next(len(list))] }

func (s *script) selector() *policy.Selector {
	sel := &policy.Selector{Tools: pickOf(s, policy.List{"u__*"}, policy.List{"u__a"}, policy.List{"*"},
		policy.List{"v__a", "u__b"}, nil)}
	if sel.Tools == nil {
		sel.Upstreams = pickOf(s, policy.List{"*"}, policy.List{"u"}, policy.List{"v"})
	}
	if name := pickOf(s, "", "x", "y", "/z/*"); name != "" {
		sel.Where = policy.Where{name: {{Glob: pickOf(s, "*", "a", "a*", "1")}}}
		if s.next(3) == 0 {
			sel.Where["x"] = policy.Pattern{{Re: pickOf(s, "a", "^b", "")}, {Glob: "1"}}
			if sel.Where["x"][0].Re == "" {
				sel.Where["x"] = sel.Where["x"][1:]
			}
		}
	}
	return sel
}

func (s *script) policies() policy.Config {
	var c policy.Config
	for i := range 1 + s.next(4) {
		e := policy.Entry{Name: fmt.Sprint("p", i),
			Match: pickOf(s, nil, &policy.Match{Key: policy.List{"k"}}, &policy.Match{Surface: policy.List{"s"}},
				&policy.Match{Key: policy.List{"k"}, Surface: policy.List{"s"}},
				&policy.Match{User: policy.List{"nobody"}}), Capabilities: []string{"c"}}
		e.Enforced = pickOf(s, nil, new(true), new(false))
		for range s.next(5) {
			switch sel := s.selector(); s.next(3) {
			case 0:
				e.Rules = append(e.Rules, policy.Rule{Allow: sel})
			case 1:
				e.Rules = append(e.Rules, policy.Rule{Ask: sel})
			default:
				e.Rules = append(e.Rules, policy.Rule{Deny: sel})
			}
		}
		c = append(c, e)
	}
	return c
}

// values are arguments as plainVerdict sees them, as JSON. Lists and objects cannot be judged.
type values map[string][]string

// texts reports whether all values are texts; for other values, an ask and a deny may both hold
// although no text matches both.
func (v values) texts() bool {
	for _, list := range v {
		if slices.ContainsFunc(list, func(s string) bool { return s[0] != '"' }) {
			return false
		}
	}
	return true
}

// plainVerdict is a simple implementation of the manual for the conditions of a script, for
// comparison.
func plainVerdict(c policy.Config, s policy.Subject, upstream, tool string, v values) policy.Verdict {
	matches := func(l policy.List, value string) bool { return l == nil || value != "" && slices.Contains(l, value) }
	globs := func(l policy.List, text string) bool {
		return l == nil || slices.ContainsFunc(l, func(g string) bool { return likeRegexp(g).MatchString(text) })
	}
	holds := func(sel *policy.Selector, isAllow bool) bool {
		if !globs(sel.Upstreams, upstream) || !globs(sel.Tools, tool) {
			return false
		}
		for name, pattern := range sel.Where {
			n := 0
			for _, value := range v[name] {
				text := strings.Trim(value, `"`)
				if isAllow && value[0] != '"' || value == "null" {
					continue
				}
				if value[0] == '[' || value[0] == '{' || slices.ContainsFunc(pattern, func(a policy.Alternative) bool {
					return a.Re != "" && regexp.MustCompile(a.Re).MatchString(text) || a.Re == "" &&
						likeRegexp(a.Glob).MatchString(text)
				}) {
					n++
				}
			}
			if n == 0 || isAllow && n < len(v[name]) {
				return false
			}
		}
		return true
	}
	// said returns whether a deny of the policy applies, and the verdict of its first other
	// applicable rule.
	said := func(e *policy.Entry) (deny, ask, allow bool) {
		for _, r := range e.Rules {
			switch {
			case r.Deny != nil:
				deny = deny || holds(r.Deny, false)
			case r.Ask != nil && !ask && !allow:
				ask = holds(r.Ask, false)
			case r.Allow != nil && !ask && !allow:
				allow = holds(r.Allow, true)
			}
		}
		return deny, ask, allow
	}
	held := policy.Allow             // the strictest of enforced policies
	var denies, asks, allows [3]bool // by layer
	for i := range c {
		e, m, layer := &c[i], c[i].Match, 2
		if m != nil {
			if layer = 0; m.Key == nil && m.User == nil {
				layer = 1
			}
			if !matches(m.Key, s.Key) || !matches(m.Surface, s.Surface) || !matches(m.User, s.User) {
				continue
			}
		}
		deny, ask, allow := said(e)
		switch enforced := e.Enforced != nil && *e.Enforced; {
		case enforced && deny:
			held = policy.Deny
		case enforced && ask:
			held = min(held, policy.Ask)
		default:
			denies[layer], asks[layer], allows[layer] = denies[layer] || deny, asks[layer] || ask, allows[layer] ||
				allow
		}
	}
	for layer := range 3 {
		switch {
		case denies[layer]:
			return policy.Deny
		case asks[layer]:
			return min(held, policy.Ask)
		case allows[layer]:
			return held
		}
	}
	if held == policy.Ask {
		return policy.Ask
	}
	return policy.Deny
}

// FuzzRules compares the decisions of generated policies with plainVerdict. An additional deny, or
// an additional enforced policy, never loosens a decision.
func FuzzRules(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		b := make([]byte, 200)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, program []byte) {
		s := script(program)
		c := s.policies()
		p, err := policy.Compile(c)
		if err != nil {
			t.Fatalf("%v: %+v", err, c)
		}
		stricter := slices.Clone(c)
		e := &stricter[s.next(len(c))]
		e.Rules = slices.Insert(slices.Clone(e.Rules), s.next(len(e.Rules)+1), policy.Rule{Deny: s.selector()})
		q, err := policy.Compile(stricter)
		if err != nil {
			t.Fatal(err)
		}
		enforcing := slices.Clone(c)
		enforcing[s.next(len(c))].Enforced = new(true)
		q2, err := policy.Compile(enforcing)
		if err != nil {
			t.Fatal(err)
		}
		subject := policy.Subject{Key: pickOf(&s, "", "k"), Surface: pickOf(&s, "", "s")}
		it := policy.Item{Upstream: pickOf(&s, "u", "v"), Requires: pickOf(&s, nil, []string{"c"})}
		it.Names = []string{it.Upstream + "__" + pickOf(&s, "a", "b")}
		g, h, k := p.For(subject).Bind(it), q.For(subject).Bind(it), q2.For(subject).Bind(it)
		if h.Visible() && !g.Visible() {
			t.Errorf("with a deny more %v is visible: %+v", it, stricter)
		}
		sure, unconditional := g.Unconditional()
		reasons := g.Explain()
		all := liftables(t, c)
		for range 8 {
			v, arguments := values{}, ""
			for _, name := range []string{"x", "y"} {
				if value := pickOf(&s, "", `"a"`, `"ab"`, `"b"`, `"1"`, "1", "1.0", "null", "true", `["a"]`,
					`{"a":"a"}`); value != "" {
					v[name] = []string{strings.TrimSuffix(value, ".0")}
					arguments += fmt.Sprintf("%q:%s,", name, value)
				}
			}
			for range s.next(3) {
				v["/z/*"] = append(v["/z/*"], pickOf(&s, `"a"`, `"ab"`, `"b"`, "null", "1", `[]`))
			}
			list := "[" + strings.Join(v["/z/*"], ",") + "]"
			if s.next(5) == 0 {
				list = pickOf(&s, `"a"`, "1", `{"0":"a"}`)
				v["/z/*"] = []string{"[]"} // no list, so nobody can judge what is in it
			}
			arguments = "{" + arguments + `"z":` + list + "}"
			args := mustParse(t, arguments)
			d, err := g.Decide(args)
			if want := plainVerdict(c, subject, it.Upstream, it.Names[0], v); err != nil || d.Verdict != want {
				if !p.For(subject).Holds("c") && it.Requires != nil && d.Verdict == policy.Deny {
					continue
				}
				t.Fatalf("%+v of %+v with %s: %v, %v, want %v, of\n%+v", it, subject, arguments, d, err, want, c)
			}
			if !g.Visible() && d.Verdict != policy.Deny {
				t.Fatalf("%+v of %+v is not visible, but with %s it is %v, of\n%+v", it, subject, arguments, d, c)
			}
			if d2, err := h.Decide(args); err != nil || d2.Verdict > d.Verdict {
				t.Fatalf("with a deny more, %+v of %+v with %s is %v, %v instead of %v: %+v", it, subject, arguments,
					d2, err, d, stricter)
			}
			if d2, err := k.Decide(args); err != nil || d2.Verdict > d.Verdict {
				t.Fatalf("with a policy more enforced, %+v of %+v with %s is %v, %v instead of %v: %+v", it, subject,
					arguments, d2, err, d, enforcing)
			}
			if rule := unwarned(all, subject, it, args, d); rule != "" && (d.Verdict == policy.Allow || v.texts()) {
				t.Fatalf("nothing warns that %s of %+v, %s, is lifted by %v, of\n%+v", it.Names[0], subject, rule, d, c)
			}
			if unconditional && sure.Verdict != d.Verdict {
				t.Fatalf("%+v of %+v is %v in any case, and %v with %s, of\n%+v", it, subject, sure, d, arguments, c)
			}
			if d.Rule != "" && !slices.ContainsFunc(reasons, func(r policy.Reason) bool {
				return r.Policy == d.Policy && r.Rule == d.Rule && r.Verdict == d.Verdict && r.Note == ""
			}) {
				t.Fatalf("%v is in none of %+v", d, reasons)
			}
		}
	})
}

// A liftable rule is a deny or ask of a global policy that is not enforced; warned says whether a
// warning names it.
type liftable struct {
	path   string
	warned bool
	alone  *policy.Policy // without the policy's denies and what follows
	rule   string         // its name there
	others []string       // policies of other layers
}

// liftables returns the liftable rules.
func liftables(t *testing.T, c policy.Config) (all []liftable) {
	warnings := c.Warnings([]policy.Known{{Name: "u", Begin: "u__"}, {Name: "v", Begin: "v__"}})
	var others []string
	for _, e := range c {
		if e.Match != nil {
			others = append(others, e.Name)
		}
	}
	for i, e := range c {
		if e.Match != nil || e.Enforced != nil {
			continue
		}
		for k, r := range e.Rules {
			if r.Allow != nil {
				continue
			}
			path, before := fmt.Sprintf("[%d].rules[%d].deny", i, k), []policy.Rule(nil)
			if r.Ask != nil {
				path = fmt.Sprintf("[%d].rules[%d].ask", i, k)
				before = slices.DeleteFunc(slices.Clone(e.Rules[:k]), func(r policy.Rule) bool { return r.Deny != nil })
			}
			alone, err := policy.Compile(policy.Config{{Name: "alone", Rules: append(before, r)}})
			if err != nil {
				t.Fatal(err)
			}
			warned := slices.ContainsFunc(warnings, func(p yamlread.Problem) bool { return p.Path == path })
			all = append(all, liftable{path, warned, alone, fmt.Sprintf("rules[%d]", len(before)), others})
		}
	}
	return all
}

// unwarned returns an applicable rule that another layer lifts without a warning; "" if there is
// none.
func unwarned(rules []liftable, s policy.Subject, it policy.Item, arguments raw.Object, d policy.Decision) string {
	for _, r := range rules {
		alone, err := r.alone.Decide(s, it, arguments)
		applies := err == nil && alone.Rule == r.rule
		if applies && !r.warned && slices.Contains(r.others, d.Policy) && d.Verdict > alone.Verdict {
			return r.path
		}
	}
	return ""
}
