package policy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"junction/policy"
	"junction/upstream/raw"
)

// refuses reports whether the call is rejected without asking a person.
func refuses(d policy.Decision, err error) bool { return err != nil || d.Verdict == policy.Deny }

// likeRegexp translates a glob to a regular expression, for comparison.
func likeRegexp(glob string) *regexp.Regexp {
	var b strings.Builder
	for r := []rune(glob); len(r) > 0; r = r[1:] {
		switch {
		case r[0] == '\\' && len(r) > 1:
			r = r[1:]
			b.WriteString(regexp.QuoteMeta(string(r[0])))
		case r[0] == '*':
			b.WriteString(".*")
		case r[0] == '?':
			b.WriteString(".")
		default:
			b.WriteString(regexp.QuoteMeta(string(r[0])))
		}
	}
	return regexp.MustCompile(`(?s)\A(?:` + b.String() + `)\z`)
}

// A reader is another parser of arguments: it chooses one of several members in its own way.
type reader struct {
	name string
	pick func(key, name string) bool
	last bool
}

var readers = []reader{
	{"the last wins", func(key, name string) bool { return key == name }, true},
	{"the first wins", func(key, name string) bool { return key == name }, false},
	{"any case, the last wins", strings.EqualFold, true},
	{"any case, the first wins", strings.EqualFold, false},
	{"C", func(key, name string) bool { key, _, _ = strings.Cut(key, "\x00"); return key == name }, false},
}

// get returns the values that the reader finds at the path, in which * is every element.
func (r reader) get(text []byte, path []string) (values []any) {
	if len(path) == 0 {
		var v any
		if err := json.Unmarshal(text, &v); err == nil {
			values = append(values, v)
		}
		return values
	}
	if path[0] == "*" {
		var list []json.RawMessage
		_ = json.Unmarshal(text, &list)
		for _, e := range list {
			values = append(values, r.get(e, path[1:])...)
		}
		return values
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return nil
	}
	var found json.RawMessage
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil
		}
		if r.pick(key.(string), path[0]) && (found == nil || r.last) {
			found = value
		}
	}
	if found == nil {
		return nil
	}
	return r.get(found, path[1:])
}

// FuzzArguments compares decisions with the readings of other parsers: a value that any of them
// reads as denied is denied, and an allowed value is read alike by all.
func FuzzArguments(f *testing.F) {
	for _, s := range stories {
		for _, r := range s.rows {
			if r.arguments != "" {
				f.Add([]byte(r.arguments), "other", []byte(`{"command":"git x"}`))
			}
		}
	}
	f.Add([]byte(`{"command":"rm x","options":{"cwd":"/etc"},"files":[{"path":"a.env"}]}`), "Command",
		[]byte(`"git status"`))
	f.Add([]byte(`{"command":22.0,"files":{"a":{"path":".env"}}}`), "command", []byte(`1e3`))
	denied := []struct {
		path    []string
		pattern *regexp.Regexp
	}{
		{[]string{"command"}, likeRegexp("rm *")}, {[]string{"command"}, likeRegexp("22")},
		{[]string{"command"}, likeRegexp("true")},
		{[]string{"options", "cwd"}, likeRegexp("/etc*")}, {[]string{"files", "*", "path"}, likeRegexp("*.env")},
	}
	deny := mustCompile(f, `
- name: deny
  rules:
    - deny: { tools: "*", where: { command: ["rm *", "22", "true"] } }
    - deny: { tools: "*", where: { /options/cwd: "/etc*" } }
    - deny: { tools: "*", where: { /files/*/path: "*.env" } }
    - allow: { tools: "*" }
`)
	allow := mustCompile(f, `
- { name: allow, rules: [{ allow: { tools: "*", where: { command: "git *", /files/*/path: "/srv/*" } } }] }
`)
	item := policy.Item{Upstream: "u", Names: []string{"u__t"}}
	f.Fuzz(func(t *testing.T, text []byte, name string, value []byte) {
		o, err := raw.ParseDepth(text, 200)
		if err != nil {
			return
		}
		before := bytes.Clone(text)
		decide := func(p *policy.Policy, text []byte) (policy.Decision, error) {
			o, err := raw.Parse(text)
			if err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			return p.Decide(policy.Subject{}, item, o)
		}
		d, err := deny.Decide(policy.Subject{}, item, o)
		for _, r := range readers {
			for _, rule := range denied {
				for _, v := range r.get(text, rule.path) {
					s, ok := v.(string)
					if !ok {
						if v == nil {
							continue
						}
						b, _ := json.Marshal(v)
						s = string(b)
					}
					if rule.pattern.MatchString(s) && !refuses(d, err) {
						t.Errorf("%s: %v, %v, but where %s, %v is %q", text, d, err, r.name, rule.path, s)
					}
				}
			}
		}
		a, allowErr := allow.Decide(policy.Subject{}, item, o)
		if !refuses(a, allowErr) {
			for _, r := range readers {
				commands, paths := r.get(text, []string{"command"}), r.get(text, []string{"files", "*", "path"})
				if len(commands) != 1 || len(paths) == 0 {
					t.Errorf("%s: allowed, but where %s there are the commands %q and the paths %q", text, r.name,
						commands, paths)
				}
				for _, v := range commands {
					if s, ok := v.(string); !ok || !strings.HasPrefix(s, "git ") {
						t.Errorf("%s: allowed, but where %s the command is %q", text, r.name, v)
					}
				}
				for _, v := range paths {
					if s, ok := v.(string); !ok || !strings.HasPrefix(s, "/srv/") {
						t.Errorf("%s: allowed, but where %s a path is %q", text, r.name, v)
					}
				}
			}
		}

		// An additional member lifts no deny.
		if value, err := raw.Scan(value, 200); err == nil && utf8.ValidString(name) {
			more := slices.Concat([]byte("{"), raw.Quote(name), []byte(":"), value)
			for _, m := range o.Members() {
				more = slices.Concat(more, []byte(","), m.Key, []byte(":"), m.Value)
			}
			more = append(more, '}')
			if d2, err2 := decide(deny, more); refuses(d, err) && !refuses(d2, err2) {
				t.Errorf("%s: %v, %v; and %s: %v, %v", text, d, err, more, d2, err2)
			}
		}
		// The order of members and the escaping of names and texts change nothing.
		for _, other := range [][]byte{reversed(o), escaped(o)} {
			if other == nil {
				continue
			}
			if d2, err2 := decide(deny, other); refuses(d, err) != refuses(d2, err2) {
				t.Errorf("%s: %v, %v; but %s: %v, %v", text, d, err, other, d2, err2)
			}
			if a2, err2 := decide(allow, other); refuses(a, allowErr) != refuses(a2, err2) {
				t.Errorf("%s: %v, %v; but %s: %v, %v", text, a, allowErr, other, a2, err2)
			}
		}
		if !bytes.Equal(text, before) {
			t.Errorf("the arguments were changed to %s", text)
		}
	})
}

// reversed returns the object with its members in reverse order.
func reversed(o raw.Object) []byte {
	var parts [][]byte
	for _, m := range slices.Backward(o.Members()) {
		parts = append(parts, slices.Concat(m.Key, []byte(" : "), m.Value))
	}
	return slices.Concat([]byte("{"), bytes.Join(parts, []byte(",")), []byte("}"))
}

// escaped returns the object with its names and texts escaped; nil if that is not possible.
func escaped(o raw.Object) []byte {
	escape := func(quoted []byte) []byte {
		s, err := raw.String(quoted)
		if err != nil {
			return nil
		}
		b := []byte{'"'}
		for _, r := range s {
			if r > 0xffff {
				r -= 0x10000
				b = fmt.Appendf(b, `\u%04x\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
			} else {
				b = fmt.Appendf(b, `\u%04x`, r)
			}
		}
		return append(b, '"')
	}
	var parts [][]byte
	for _, m := range o.Members() {
		key, value := escape(m.Key), m.Value
		if value[0] == '"' {
			value = escape(value)
		}
		if key == nil || value == nil {
			return nil
		}
		parts = append(parts, slices.Concat(key, []byte(":"), value))
	}
	return slices.Concat([]byte("{"), bytes.Join(parts, []byte(",")), []byte("}"))
}

// FuzzGlob compares globs with equivalent regular expressions.
func FuzzGlob(f *testing.F) {
	for _, glob := range []string{"*", "a*", "*a", "a*b*c", "a?c", `\*`, `\\`, "??", "*?b?*", "é?", "**a**", "a*a",
		"?*?", `\?*`, "*ab?ab"} {
		for _, text := range []string{"", "a", "abc", "*", `\`, "aa", "é1", "a\nb/c", "xabyab", "b\xff", "git \x00x",
			"ababab"} {
			f.Add(glob, text)
		}
	}
	f.Fuzz(func(t *testing.T, glob, text string) {
		if !utf8.ValidString(text) || len(text) > 200 {
			return
		}
		where := policy.Where{"x": {{Glob: glob}}}
		tools := policy.List{"t"}
		p, err := policy.Compile(policy.Config{
			{Name: "deny", Rules: []policy.Rule{{Deny: &policy.Selector{Tools: tools, Where: where}},
				{Allow: &policy.Selector{Tools: tools}}}},
			{Name: "allow", Match: &policy.Match{Key: policy.List{"k"}},
				Rules: []policy.Rule{{Allow: &policy.Selector{Tools: tools, Where: where}},
					{Deny: &policy.Selector{Prompts: tools}}}},
			{Name: "other", Match: &policy.Match{Surface: policy.List{"s"}},
				Rules: []policy.Rule{{Deny: &policy.Selector{Upstreams: policy.List{"*"}}}}},
		})
		if err != nil {
			return
		}
		if json.Valid([]byte(glob)) {
			return // a number, which has other spellings
		}
		re, item := likeRegexp(glob), policy.Item{Upstream: "u", Names: []string{"t"}}
		arguments := mustParse(t, `{"x":`+string(raw.Quote(text))+`}`)
		begin, _, cut := strings.Cut(text, "\x00")
		want := re.MatchString(text)
		if d, err := p.Decide(policy.Subject{}, item, arguments); err != nil ||
			(d.Verdict == policy.Deny) != (want || re.MatchString(begin)) {
			t.Errorf("a deny of %q for %q: %v, %v; regexp says %v", glob, text, d, err, want)
		}
		if d, err := p.Decide(policy.Subject{Key: "k", Surface: "s"}, item, arguments); err != nil ||
			(d.Verdict == policy.Allow) != (want && !cut) {
			t.Errorf("an allow of %q for %q: %v, %v; regexp says %v", glob, text, d, err, want)
		}
	})
}

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
			warned := slices.ContainsFunc(warnings, func(p policy.Problem) bool { return p.Path == path })
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

// FuzzURI compares decisions on URIs with the readings of net/url and of a file system.
func FuzzURI(f *testing.F) {
	for _, s := range stories {
		for _, r := range s.rows {
			if what, ok := strings.CutPrefix(r.what, "resource "); ok {
				what, _, _ = strings.Cut(what, " @")
				f.Add(what)
			}
		}
	}
	deny := mustCompile(f, `
- { name: deny, rules: [{ deny: { resources: "file:///etc/*" } }, { allow: { resources: "*" } }] }
`)
	allow := mustCompile(f, `
- { name: allow, rules: [{ allow: { resources: "file:///srv/*" } }] }
`)
	ask := mustCompile(f, `
- { name: ask, rules: [{ ask: { resources: "file:///etc/*" } }, { allow: { resources: "*" } }] }
`)
	f.Fuzz(func(t *testing.T, uri string) {
		item := policy.Item{Kind: policy.Resource, Upstream: "files", Names: []string{uri}}
		d, err := deny.Decide(policy.Subject{}, item, raw.Object{})
		if err != nil {
			t.Fatal(err)
		}
		q, _ := ask.Decide(policy.Subject{}, item, raw.Object{})
		a, _ := allow.Decide(policy.Subject{}, item, raw.Object{})
		check := func(what, place string) {
			if strings.HasPrefix(place, "/etc/") && (d.Verdict != policy.Deny || q.Verdict == policy.Allow) {
				t.Errorf("%q is %s to %s, and the verdicts are %v and %v", uri, place, what, d, q)
			}
			if !strings.HasPrefix(place, "/srv/") && place != "/srv" && a.Verdict != policy.Deny {
				t.Errorf("%q is %s to %s, and allowed", uri, place, what)
			}
		}
		if u, err := url.Parse(uri); err == nil && u.Scheme == "file" && u.Opaque == "" &&
			(u.Host == "" || strings.EqualFold(u.Host, "localhost")) {
			check("net/url", path.Clean("/"+u.Path))
			if twice, err := url.PathUnescape(u.Path); err == nil {
				check("somebody who decodes twice", path.Clean("/"+twice))
			}
			check("a reader of DOS", path.Clean("/"+strings.ReplaceAll(u.Path, `\`, "/")))
		}
		if rest, ok := strings.CutPrefix(uri, "file://"); ok && strings.HasPrefix(rest, "/") {
			check("somebody who cuts off file://", path.Clean(rest))
		}
	})
}
