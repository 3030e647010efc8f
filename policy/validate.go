package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"junction/upstream/folder"
	"junction/upstream/yamlread"
)

// Validate returns all mistakes, in the order of the policies and of their keys.
func (c Config) Validate() []yamlread.Problem {
	v := &validator{}
	names := map[string]int{}
	for i := range c {
		e, at := &c[i], fmt.Sprintf("[%d]", i)
		first, twice := names[e.Name]
		switch {
		case e.Name == "":
			v.bad(at+".name", "is missing; name the policy, for messages and the audit log")
		case !word(e.Name, "._-"):
			v.bad(at+".name", "must be 1 to 64 of A-Z, a-z, 0-9, ., _ and -")
		case twice:
			v.bad(at+".name", "%s is also the name of policies[%d]; give one of them another name", e.Name, first)
		default:
			names[e.Name] = i
		}
		v.match(at+".match", e.Match)
		v.list(at+".endpoints", e.Endpoints, func(string, string) {})
		for k, path := range e.Folders {
			if problem := folder.PathProblem(path); problem != "" {
				v.bad(fmt.Sprintf("%s.folders[%d]", at, k), "%s", problem)
			}
		}
		for k, capability := range e.Capabilities {
			if !word(capability, "._:/-") {
				v.bad(fmt.Sprintf("%s.capabilities[%d]", at, k), "a capability has 1 to 64 of A-Z, a-z, 0-9, ., _, "+
					":, / and -")
			}
		}
		for k, r := range e.Rules {
			v.rule(fmt.Sprintf("%s.rules[%d]", at, k), r)
		}
		v.redact(at+".redact", &e.Redact)
		v.limits(at+".limits", e.Limits)
		v.always(at, e.Catalog, e.Always)
		if v.n == len(v.problems) && e.idle() {
			v.bad(at, "has no effect; give it rules, capabilities, limits, catalog, endpoints or redact")
		}
		v.n = len(v.problems)
	}
	return v.problems
}

// idle reports whether the policy has no effect.
func (e *Entry) idle() bool {
	return len(e.Capabilities) == 0 && len(e.Rules) == 0 && len(e.Redact.patterns()) == 0 && !e.Validate && !e.Pinned &&
		e.Limits == Limits{} && e.Catalog == CatalogFull && e.Endpoints == nil && e.Folders == nil
}

// A validator collects problems.
type validator struct {
	problems []yamlread.Problem
	n        int // problems of earlier policies
}

func (v *validator) bad(path, format string, args ...any) {
	v.problems = append(v.problems, yamlread.Problem{Path: path, Text: fmt.Sprintf(format, args...)})
}

func (v *validator) match(at string, m *Match) {
	if m == nil {
		return
	}
	given := false
	for _, f := range m.fields() {
		given = given || f.list != nil
		v.list(at+"."+f.key, f.list, func(at, s string) {
			switch {
			case f.key == "kind" && !slices.Contains([]string{"local", "key", "user", "service"}, s):
				v.bad(at, "must be local, key, user or service, not %s", show(s))
			case f.key == "cidr":
				v.network(at, s)
			case f.key == "email" && strings.Count(s, "@") != 1:
				v.bad(at, "%s is not an address; write it like ann@example.com", show(s))
			case f.key == "email_domain" && strings.Contains(s, "@"):
				v.bad(at, "must be only the part after the @; write %s", s[strings.LastIndexByte(s, '@')+1:])
			case f.key != "scope" && strings.Contains(s, "*"):
				v.bad(at, "is compared exactly, so * has no meaning; name each value")
			}
		})
	}
	if !given {
		v.bad(at, "is empty; remove the key if the policy applies to everyone")
	}
}

func (v *validator) network(at, s string) {
	p, err := netip.ParsePrefix(s)
	if err == nil {
		switch {
		case p.Addr().Is4In6():
			v.bad(at, "must be an IPv4 network in IPv4 notation, such as 10.0.0.0/8")
		case p != p.Masked():
			v.bad(at, "the address has bits set after the prefix; write %v", p.Masked())
		}
		return
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		v.bad(at, "must be a network; write %v for this one address", netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
		return
	}
	v.bad(at, "%s is not a network; write it like 10.0.0.0/8", show(s))
}

// list checks a list, and then each value with each.
func (v *validator) list(at string, l List, each func(at, s string)) {
	if l != nil && len(l) == 0 {
		v.bad(at, "is an empty list; add a value, or remove the key")
	}
	for i, s := range l {
		at := element(at, i, len(l))
		if problem := textProblem(s); problem != "" {
			v.bad(at, "%s", problem)
		} else {
			each(at, s)
		}
	}
}

// element returns the path of element i of n. A list of one may be written as its element.
func element(list string, i, n int) string {
	if n == 1 {
		return list
	}
	return fmt.Sprintf("%s[%d]", list, i)
}

// textProblem returns what is wrong with a value that is compared, or "".
func textProblem(s string) string {
	switch {
	case s == "":
		return "is empty; give it a value, or remove it"
	case len(s) > maxPattern:
		return fmt.Sprintf("is longer than %d bytes", maxPattern)
	case !utf8.ValidString(s):
		return "is not UTF-8 text"
	case strings.ContainsRune(s, 0):
		return "contains a NUL character; remove it"
	}
	return ""
}

const maxPattern = 1024

func (v *validator) rule(at string, r Rule) {
	selectors := r.selectors()
	for _, s := range selectors {
		v.selector(at+"."+s.verdict.String(), s.Selector)
		v.annotations(at+"."+s.verdict.String(), s.verdict, s.Selector)
	}
	switch {
	case r.Remember != "" && r.Ask == nil:
		v.bad(at+".remember", "belongs to an ask; remove it")
	case r.Remember.span() > SpanCall && r.Ask.Tools == nil && (r.Ask.Prompts != nil || r.Ask.Resources != nil ||
		r.Ask.Skills != nil):
		v.bad(at+".remember", "%s is for tools, and this rule selects none; write call or once", string(r.Remember))
	}
	switch n := len(selectors); {
	case n == 0:
		v.bad(at, `needs one of allow, ask and deny, such as allow: { tools: "files__*" }`)
	case n > 1:
		v.bad(at, "has more than one of allow, ask and deny; write a rule for each")
	}
}

func (v *validator) selector(at string, s *Selector) {
	given := s.Where != nil || s.Annotations != nil
	for _, f := range s.fields() {
		given = given || f.list != nil
		v.list(at+"."+f.key, f.list, func(at, g string) {
			if f.key != "resources" || globProblem(g) != "" {
				v.toolGlob(at, g)
			}
			if f.key == "skills" && !strings.ContainsAny(g, "/*") {
				v.bad(at, "matches no skill, because the path of each begins with its upstream; write %s",
					show("*/"+g))
			}
		})
	}
	if !given {
		v.bad(at, `is empty; write { upstreams: "*" } to select everything`)
	}
	if s.Where == nil {
		return
	}
	if len(s.Where) == 0 {
		v.bad(at+".where", "is empty; name an argument, or remove the key")
	}
	if s.Resources != nil || s.Skills != nil {
		v.bad(at+".where", "applies to arguments of tools and prompts, which resources and skills do not have; write "+
			"a separate rule for these")
	}
	for _, name := range sortedKeys(s.Where) {
		v.pattern(at+".where."+name, name, s.Where[name])
	}
}

// toolGlob checks a glob for names.
func (v *validator) toolGlob(at, g string) {
	if problem := globProblem(g); problem != "" {
		v.bad(at, "%s", problem)
	} else if c := plainBracket(g); c != "" {
		v.bad(at, "contains %s, which has no special meaning in these globs and is in no name; "+
			"write a list of globs instead", c)
	}
}

// plainBracket returns the first character that is special in other globs but not in these, or "".
func plainBracket(g string) string {
	for i := 0; i < len(g); i++ {
		switch g[i] {
		case '\\':
			i++
		case '[', '{':
			return g[i : i+1]
		}
	}
	return ""
}

func (v *validator) pattern(at, name string, p Pattern) {
	if name == "" {
		v.bad(at, "is empty; name an argument")
	} else if problem := cmp.Or(textProblem(name), pointerProblem(name)); problem != "" {
		v.bad(at, "%s", problem)
	}
	if len(p) == 0 {
		v.bad(at, "must be %s", wantedPattern)
	}
	for i, a := range p {
		at := element(at, i, len(p))
		switch {
		case a.Glob == "" && a.Re == "":
			v.bad(at, `is empty; write "*" for any text, or { re: "^$" } for none`)
		case a.Glob != "" && a.Re != "":
			v.bad(at, "has a glob and a re; keep one")
		case a.Re != "":
			v.expression(at+".re", a.Re)
		default:
			if problem := cmp.Or(textProblem(a.Glob), globProblem(a.Glob)); problem != "" {
				v.bad(at, "%s", problem)
			}
		}
	}
}

func (v *validator) expression(at, re string) *regexp.Regexp {
	if problem := textProblem(re); problem != "" {
		v.bad(at, "%s", problem)
		return nil
	}
	r, err := regexp.Compile(re)
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		hint := ""
		if strings.Contains(re, "(?=") || strings.Contains(re, "(?!") || strings.Contains(re, "(?<!") ||
			strings.Contains(re, "(?<=") {
			hint = "; RE2 has no lookahead or lookbehind"
		}
		v.bad(at, "is not an RE2 expression: %s at %s%s", e.Code, show(e.Expr), hint)
	} else if err != nil {
		v.bad(at, "is not an RE2 expression: %v", err)
	}
	return r
}

func (v *validator) redact(at string, all *Redactions) {
	if all.Mapped && len(all.patterns()) == 0 {
		v.bad(at, "has no effect; add restore: true, or patterns such as [secrets]")
	}
	if all.Mapped {
		at += ".patterns"
	}
	names := map[string]bool{}
	for i, r := range all.Patterns {
		at := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case r.Word == wordSecrets && r.Name == "" && r.Re == "":
			continue
		case r.Word != "":
			v.bad(at, `%s is unknown; write secrets, or { name: …, re: … }`, show(r.Word))
			continue
		case r.Name == "":
			v.bad(at+".name", "is missing; it replaces the removed text")
		case !word(r.Name, "._-"):
			v.bad(at+".name", "must be 1 to 64 of A-Z, a-z, 0-9, ., _ and -")
		case names[r.Name]:
			v.bad(at+".name", "%s is a duplicate; give one of them another name", r.Name)
		}
		names[r.Name] = true
		if r.Re == "" {
			v.bad(at+".re", "is missing; write the expression for the text to remove")
		} else if re := v.expression(at+".re", r.Re); re != nil && re.MatchString("") {
			v.bad(at+".re", "matches the empty text; make it require a character")
		}
	}
}

func (v *validator) limits(at string, l Limits) {
	if l.Burst < 0 {
		v.bad(at+".burst", "is negative")
	}
	if l.Concurrent < 0 {
		v.bad(at+".concurrent", "is negative")
	}
	if l.Burst > 0 && l.Rate == 0 {
		v.bad(at+".burst", "has no effect without a rate; set a rate too, such as 60/m")
	}
}

// word reports whether s has 1 to 64 letters, digits and characters of more.
func word(s, more string) bool {
	const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && len(s) <= 64 && strings.Trim(s, alphanumeric+more) == ""
}

// show quotes a value of the file for a message.
func show(s string) string {
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return strconv.Quote(s)
}
