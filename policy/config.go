package policy

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// Config is the policies section of the file. Without the section, every authenticated caller may
// use every item that requires no capability (see Open). With it, whatever no rule allows is
// denied. The order of policies does not matter; the order of a policy's rules does.
type Config []Entry

// Entry is one policy: who it applies to, the capabilities it gives, and its rules.
type Entry struct {
	// Name appears in messages, the audit log and junction why. Required and unique.
	Name string `yaml:"name"`
	// Match says who the policy applies to; every given key must match. Without it the policy
	// applies to everyone.
	Match *Match `yaml:"match"`
	// Enforced: true makes the denies and asks of the policy count in every layer: no other policy
	// lifts them, and the strictest verdict wins. Its allows are like those of any policy.
	// Enforced: false states that other policies may override a policy without a match, so that
	// Warnings does not report it.
	Enforced *bool `yaml:"enforced"`
	// Capabilities are given to everyone whom the policy matches. An item that requires
	// capabilities exists only for those who hold all of them.
	Capabilities []string `yaml:"capabilities"`
	// Rules are tried in order, and the first that applies counts; but a deny that applies always
	// wins.
	Rules []Rule `yaml:"rules"`
	// Redact removes text from results: the word secrets stands for known forms of secrets, and {
	// name: …, re: … } for matches of an RE2 expression.
	Redact []Redact `yaml:"redact"`
	// Validate: true rejects calls whose arguments do not match the tool's schema.
	Validate bool `yaml:"validate"`
	// Pinned: true hides every tool whose current definition no operator has accepted.
	Pinned bool `yaml:"pinned"`
	// Limits limit the rate and the number of concurrent calls.
	Limits Limits `yaml:"limits"`
}

// Match says who a policy applies to: every given key must match, and a list matches any of its
// values. Values are compared exactly; only email and email_domain ignore the case of A-Z.
// Client-supplied names and versions are never used.
//
// Match decides the layer: with any key except surface, the policy is the caller's own; with
// surface alone, it is the surface's; without a match, it is global. The first of these layers in
// which a rule applies decides.
type Match struct {
	Kind        List `yaml:"kind"`         // local (no sign-in), key, user or service.
	Key         List `yaml:"key"`          // names of API keys.
	User        List `yaml:"user"`         // subjects at their issuer; with several issuers, set issuer too.
	Issuer      List `yaml:"issuer"`       // URLs of the issuers of users.
	Email       List `yaml:"email"`        // verified addresses.
	EmailDomain List `yaml:"email_domain"` // domains of verified addresses, without subdomains.
	Group       List `yaml:"group"`        // groups of the user.
	Scope       List `yaml:"scope"`        // scopes of the token.
	OAuthClient List `yaml:"oauth_client"` // OAuth clients that tokens were issued to.
	CIDR        List `yaml:"cidr"`         // client networks, such as 10.0.0.0/8.
	Surface     List `yaml:"surface"`      // surfaces of the called endpoint.
}

// Rule has exactly one of allow, ask and deny.
type Rule struct {
	Allow *Selector `yaml:"allow"` // calls are made.
	Ask   *Selector `yaml:"ask"`   // calls are made after the person has approved.
	Deny  *Selector `yaml:"deny"`  // calls are rejected; an item that is always denied is hidden.
}

// Selector says which items and calls a rule applies to. At least one key is required; { upstreams:
// "*" } selects everything.
//
// In a glob, * matches any characters (also slashes and line breaks), ? matches one character, and
// \ escapes the next one. A glob must match the whole text, and is case-sensitive. Names are
// compared byte by byte, so that look-alike letters differ.
type Selector struct {
	// Upstreams are globs for names of upstreams. Default: all.
	Upstreams List `yaml:"upstreams"`
	// Tools, Prompts and Resources are globs for every name of an item: the name on /mcp, and the
	// full name before shortening; for a resource its URI on /mcp and at its upstream, or its
	// template. Without any of the three, the rule applies to all kinds; with some of them, only to
	// those.
	//
	// A URI with . or .. segments, backslashes, or any of these percent-encoded is ambiguous. Only
	// resources: "*" and rules without resources allow such a URI; an ask that matches it denies
	// it; a deny is also compared with the URI's possible meanings. A URI of more than 2 KiB, or
	// with too many meanings, is denied by every ask and deny of resources whose scheme may fit.
	Tools     List `yaml:"tools"`
	Prompts   List `yaml:"prompts"`
	Resources List `yaml:"resources"`
	// Where are conditions on the arguments of a tool or prompt; all must hold. The key is the name
	// of an argument, or a JSON pointer that begins with a slash, in which * stands for every
	// element of a list.
	//
	// An allow matches only text: a missing value or one of another type does not match, and with *
	// there must be an element and all elements must match. For ask and deny, one matching element
	// is enough, numbers and booleans are compared as their JSON text, and a value that cannot be
	// judged matches: a list or object at the end of the path, or another type in the middle.
	// Missing values and null do not match.
	//
	// Patterns see text, not its meaning: "git *" matches "git status; rm -rf /", which a shell
	// runs as two commands.
	Where Where `yaml:"where"`
}

// Where maps arguments to patterns.
type Where map[string]Pattern

// Pattern is a glob, { re: … }, or a list of these, one of which must match.
type Pattern []Alternative

// Alternative is either a glob or a regular expression.
type Alternative struct {
	Glob string `yaml:"-"`  // matches the whole text.
	Re   string `yaml:"re"` // RE2; matches anywhere in the text unless it has ^ and $.
}

// Redact is the word secrets, or a named expression.
type Redact struct {
	Word string `yaml:"-"`    // secrets.
	Name string `yaml:"name"` // replaces the removed text.
	Re   string `yaml:"re"`   // RE2; its matches are removed.
}

// Limits limit one principal. If several policies match, the strictest value of each limit counts.
type Limits struct {
	// of calls, such as 60/m, and separately of lists, pings, handshakes and new streams. Default:
	// no limit.
	Rate Rate `yaml:"rate"`
	// largest burst of calls. Default: ten seconds of the rate, at least 1.
	Burst      int `yaml:"burst"`
	Concurrent int `yaml:"concurrent"` // calls in flight. Default: no limit.
}

// Rate is a number of calls per second, written as 5/s, 60/m or 1000/h.
type Rate float64

// UnmarshalText parses the number and the unit.
func (r *Rate) UnmarshalText(text []byte) error {
	number, unit, _ := strings.Cut(string(text), "/")
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[strings.TrimSpace(unit)]
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 32)
	if err != nil || seconds == 0 || n == 0 {
		return fmt.Errorf("%s is not a rate; write 5/s, 60/m or 1000/h", show(string(text)))
	}
	*r = Rate(float64(n) / seconds)
	return nil
}

// List is written as one value or a list.
type List []string

// Shape returns what to decode a YAML node into, a pointer to a part of the value, or else the
// expected form of the node. It is for decoders that walk over nodes, such as the strict one of the
// command; UnmarshalYAML does the same for package yaml.
func (l *List) Shape(n *yaml.Node) (into any, want string) {
	if n.Kind == yaml.SequenceNode && len(n.Content) > 0 {
		return (*[]string)(l), ""
	}
	if n.Kind == yaml.ScalarNode {
		*l = make(List, 1)
		return &(*l)[0], ""
	}
	return nil, "text, or a list such as [one, two]"
}

// Shape is like List.Shape.
func (w *Where) Shape(n *yaml.Node) (into any, want string) {
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 {
		*w = Where{}
		return (*map[string]Pattern)(w), ""
	}
	return nil, `a mapping of arguments to patterns, such as { command: "git *" }`
}

// Shape is like List.Shape.
func (p *Pattern) Shape(n *yaml.Node) (into any, want string) {
	switch {
	case n.Kind == yaml.SequenceNode && len(n.Content) > 0:
		return (*[]Alternative)(p), ""
	case n.Kind == yaml.SequenceNode:
		return nil, wantedPattern
	}
	*p = make(Pattern, 1)
	return &(*p)[0], ""
}

const wantedPattern = `a glob such as "git *", { re: "^git " }, or a list of these`

// Shape is like List.Shape.
func (a *Alternative) Shape(n *yaml.Node) (into any, want string) {
	switch {
	case n.Kind == yaml.ScalarNode:
		return &a.Glob, ""
	case n.Kind == yaml.MappingNode && len(n.Content) > 0:
		type mapping Alternative
		return (*mapping)(a), ""
	}
	return nil, wantedPattern
}

// Shape is like List.Shape.
func (r *Redact) Shape(n *yaml.Node) (into any, want string) {
	switch {
	case n.Kind == yaml.ScalarNode:
		return &r.Word, ""
	case n.Kind == yaml.MappingNode && len(n.Content) > 0:
		type mapping Redact
		return (*mapping)(r), ""
	}
	return nil, `the word secrets, or a mapping such as { name: ticket, re: "TCK-[0-9]{8}" }`
}

// shaped is a value with several notations in the file.
type shaped interface {
	Shape(n *yaml.Node) (into any, want string)
}

func (l *List) UnmarshalYAML(n *yaml.Node) error        { return unmarshal(n, l) }
func (w *Where) UnmarshalYAML(n *yaml.Node) error       { return unmarshal(n, w) }
func (p *Pattern) UnmarshalYAML(n *yaml.Node) error     { return unmarshal(n, p) }
func (a *Alternative) UnmarshalYAML(n *yaml.Node) error { return unmarshal(n, a) }
func (r *Redact) UnmarshalYAML(n *yaml.Node) error      { return unmarshal(n, r) }

func unmarshal(n *yaml.Node, s shaped) error {
	into, want := s.Shape(n)
	if into == nil {
		return fmt.Errorf("line %d: want %s", n.Line, want)
	}
	return n.Decode(into)
}

var _ encoding.TextUnmarshaler = (*Rate)(nil)

// Problem is one mistake of a configuration: its path, and a text that says what is wrong and how
// to fix it.
type Problem struct {
	Path string // below the section, such as [0].rules[2].deny.where.command; "" for the section
	Text string
}

// Error returns the path below the section and the text.
func (p Problem) Error() string { return "policies" + p.Path + ": " + p.Text }

// Validate returns all mistakes, in the order of the policies and of their keys.
func (c Config) Validate() []Problem {
	v := &validator{}
	names := map[string]int{}
	for i := range c {
		e, at := &c[i], fmt.Sprintf("[%d]", i)
		first, twice := names[e.Name]
		switch {
		case e.Name == "":
			v.bad(at+".name", "is missing; name the policy, for messages and the audit log")
		case !word(e.Name, "._-"):
			v.bad(at+".name", "want 1 to 64 of A-Z, a-z, 0-9, ., _ and -")
		case twice:
			v.bad(at+".name", "%s is also the name of policies[%d]; give one of them another name", e.Name, first)
		default:
			names[e.Name] = i
		}
		v.match(at+".match", e.Match)
		for k, capability := range e.Capabilities {
			if !word(capability, "._:/-") {
				v.bad(fmt.Sprintf("%s.capabilities[%d]", at, k), "a capability has 1 to 64 of A-Z, a-z, 0-9, ., _, "+
					":, / and -")
			}
		}
		for k, r := range e.Rules {
			v.rule(fmt.Sprintf("%s.rules[%d]", at, k), r)
		}
		v.redact(at+".redact", e.Redact)
		v.limits(at+".limits", e.Limits)
		if v.n == len(v.problems) && e.idle() {
			v.bad(at, "has no effect; give it rules, capabilities, limits or redact")
		}
		v.n = len(v.problems)
	}
	return v.problems
}

// idle reports whether the policy has no effect.
func (e *Entry) idle() bool {
	return len(e.Capabilities) == 0 && len(e.Rules) == 0 && len(e.Redact) == 0 && !e.Validate && !e.Pinned &&
		e.Limits == Limits{}
}

// enforced reports whether the denies and asks of the policy count in every layer.
func (e *Entry) enforced() bool { return e.Enforced != nil && *e.Enforced }

// Capabilities returns the sorted capabilities that policies give.
func (c Config) Capabilities() []string {
	var all []string
	for _, e := range c {
		all = append(all, e.Capabilities...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Unmatched returns the policy's globs over upstreams that match none of the names, which are most
// likely typos: a deny with a typo denies nothing. The paths are below the policy.
func (e *Entry) Unmatched(names []string) []Problem {
	var ps []Problem
	for i, r := range e.Rules {
		for _, s := range r.selectors() {
			for k, g := range s.Upstreams {
				if glob := compileGlob(g); !slices.ContainsFunc(names, glob.match) {
					at := fmt.Sprintf(".rules[%d].%s.upstreams", i, s.key)
					if len(s.Upstreams) > 1 {
						at = fmt.Sprintf("%s[%d]", at, k)
					}
					ps = append(ps, Problem{at, "matches no upstream of this file"})
				}
			}
		}
	}
	return ps
}

// keyed is a selector with its key.
type keyed struct {
	key string
	*Selector
}

// selectors returns the given selectors.
func (r *Rule) selectors() []keyed {
	return slices.DeleteFunc([]keyed{{"allow", r.Allow}, {"ask", r.Ask}, {"deny", r.Deny}},
		func(s keyed) bool { return s.Selector == nil })
}

// A validator collects problems.
type validator struct {
	problems []Problem
	n        int // problems of earlier policies
}

func (v *validator) bad(path, format string, args ...any) {
	v.problems = append(v.problems, Problem{path, fmt.Sprintf(format, args...)})
}

// field is a key of a mapping with its list.
type field struct {
	key  string
	list List
}

func (m *Match) fields() []field {
	return []field{{"kind", m.Kind}, {"key", m.Key}, {"user", m.User}, {"issuer", m.Issuer}, {"email", m.Email},
		{"email_domain", m.EmailDomain},
		{"group", m.Group}, {"scope", m.Scope}, {"oauth_client", m.OAuthClient}, {"cidr", m.CIDR},
		{"surface", m.Surface}}
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
				v.bad(at, "want local, key, user or service, not %s", show(s))
			case f.key == "cidr":
				v.network(at, s)
			case f.key == "email" && strings.Count(s, "@") != 1:
				v.bad(at, "%s is not an address; write it like ann@example.com", show(s))
			case f.key == "email_domain" && strings.Contains(s, "@"):
				v.bad(at, "want only the part after the @; write %s", s[strings.LastIndexByte(s, '@')+1:])
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
			v.bad(at, "want an IPv4 network in IPv4 notation, such as 10.0.0.0/8")
		case p != p.Masked():
			v.bad(at, "the address has bits set after the prefix; write %v", p.Masked())
		}
		return
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		v.bad(at, "want a network; write %v for this one address", netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
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
		at := at
		if len(l) > 1 {
			at = fmt.Sprintf("%s[%d]", at, i)
		}
		if problem := textProblem(s); problem != "" {
			v.bad(at, "%s", problem)
		} else {
			each(at, s)
		}
	}
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
		v.selector(at+"."+s.key, s.Selector)
	}
	switch n := len(selectors); {
	case n == 0:
		v.bad(at, `needs one of allow, ask and deny, such as allow: { tools: "files__*" }`)
	case n > 1:
		v.bad(at, "has more than one of allow, ask and deny; write a rule for each")
	}
}

func (v *validator) selector(at string, s *Selector) {
	given := s.Where != nil
	for _, f := range []field{{"upstreams", s.Upstreams}, {"tools", s.Tools}, {"prompts", s.Prompts},
		{"resources", s.Resources}} {
		given = given || f.list != nil
		v.list(at+"."+f.key, f.list, func(at, g string) {
			if problem := globProblem(g); problem != "" {
				v.bad(at, "%s", problem)
			} else if c := plainBracket(g); c != "" && f.key != "resources" {
				v.bad(at,
					`contains %s, which has no special meaning in these globs and is in no name; write a list of globs instead`, c)
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
	if s.Resources != nil {
		v.bad(at+".where", "applies to arguments of tools and prompts, which resources do not have; write a separate "+
			"rule for resources")
	}
	for _, name := range sortedKeys(s.Where) {
		v.pattern(at+".where."+name, name, s.Where[name])
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
	switch {
	case name == "":
		v.bad(at, "is empty; name an argument")
	case textProblem(name) != "":
		v.bad(at, "%s", textProblem(name))
	case pointerProblem(name) != "":
		v.bad(at, "%s", pointerProblem(name))
	}
	if len(p) == 0 {
		v.bad(at, "want %s", wantedPattern)
	}
	for i, a := range p {
		at := at
		if len(p) > 1 {
			at = fmt.Sprintf("%s[%d]", at, i)
		}
		switch {
		case a.Glob == "" && a.Re == "":
			v.bad(at, `is empty; write "*" for any text, or { re: "^$" } for none`)
		case a.Glob != "" && a.Re != "":
			v.bad(at, "has a glob and a re; keep one")
		case a.Re != "":
			v.expression(at+".re", a.Re)
		case textProblem(a.Glob) != "":
			v.bad(at, "%s", textProblem(a.Glob))
		case globProblem(a.Glob) != "":
			v.bad(at, "%s", globProblem(a.Glob))
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

func (v *validator) redact(at string, list []Redact) {
	names := map[string]bool{}
	for i, r := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		switch {
		case r.Word == "secrets" && r.Name == "" && r.Re == "":
			continue
		case r.Word != "":
			v.bad(at, `%s is unknown; write secrets, or { name: …, re: … }`, show(r.Word))
			continue
		case r.Name == "":
			v.bad(at+".name", "is missing; it replaces the removed text")
		case !word(r.Name, "._-"):
			v.bad(at+".name", "want 1 to 64 of A-Z, a-z, 0-9, ., _ and -")
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
	if l.Rate < 0 || math.IsNaN(float64(l.Rate)) || math.IsInf(float64(l.Rate), 0) {
		v.bad(at+".rate", "is not a rate; write 5/s, 60/m or 1000/h")
	}
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
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(more, c) >= 0) {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// show quotes a value of the file for a message.
func show(s string) string {
	if r := []rune(s); len(r) > 60 {
		s = string(r[:60]) + "…"
	}
	return strconv.Quote(s)
}
