package policy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
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
