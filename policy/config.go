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

// Config is the file's policies section. Without the section everybody who is let in may use
// whatever requires no capability (see Open); with it, what nothing allows is denied. The order of
// the policies does not matter, but that of the rules of each does.
type Config []Entry

// Entry is one policy: for whom it is, what they hold, and what they may do.
type Entry struct {
	// Name is for messages, the audit log and junction why. Required, and given once.
	Name string `yaml:"name"`
	// Match says for whom the policy is; every key given must hold. Without it the policy is for
	// everybody.
	Match *Match `yaml:"match"`
	// Enforced true makes the policy's denies and asks hold in every layer: no rule of another
	// policy lifts them, and of several verdicts the strictest counts. Its allows are as those of
	// any policy. False states that a policy without a match may be overridden, so that Warnings
	// does not report it.
	Enforced *bool `yaml:"enforced"`
	// Capabilities are held by whom the policy matches. An item that requires capabilities exists
	// only for those who hold all of them.
	Capabilities []string `yaml:"capabilities"`
	// Rules are asked in their order, and the first that applies counts; but a deny that applies
	// wins wherever it stands.
	Rules []Rule `yaml:"rules"`
	// Redact is taken out of results: the word secrets stands for the known shapes of secrets, {
	// name: …, re: … } for what an RE2 expression finds.
	Redact []Redact `yaml:"redact"`
	// Validate true refuses calls whose arguments do not fit the tool's schema.
	Validate bool `yaml:"validate"`
	// Pinned true leaves only the tools whose present definition an operator has accepted.
	Pinned bool `yaml:"pinned"`
	// Limits bound how often, and how much at once.
	Limits Limits `yaml:"limits"`
}

// Match says for whom a policy is: every key given must hold, and a list means any of its values.
// Values are compared to the letter, only email and email_domain without regard to the case of A-Z.
// What a client says of itself (its name and version) is nowhere in it.
//
// A match decides the layer: with any key other than surface the policy is the caller's own, with
// surface alone it is the surface's, and without a match it is global. The first of these layers in
// which some rule applies decides.
type Match struct {
	Kind        List `yaml:"kind"`         // local (no sign-in), key, user or service.
	Key         List `yaml:"key"`          // names of API keys.
	User        List `yaml:"user"`         // as the issuer calls them; give issuer too where there are several.
	Issuer      List `yaml:"issuer"`       // who vouches for the user, a URL.
	Email       List `yaml:"email"`        // verified addresses.
	EmailDomain List `yaml:"email_domain"` // what follows the @ of a verified address; subdomains are others.
	Group       List `yaml:"group"`        // that the user is in.
	Scope       List `yaml:"scope"`        // that the token has.
	OAuthClient List `yaml:"oauth_client"` // the program that the token was made out to.
	CIDR        List `yaml:"cidr"`         // networks of the client's address, such as 10.0.0.0/8.
	Surface     List `yaml:"surface"`      // the surface of the endpoint that was called.
}

// Rule has exactly one of allow, ask and deny.
type Rule struct {
	Allow *Selector `yaml:"allow"` // is done.
	Ask   *Selector `yaml:"ask"`   // is done after the person has agreed.
	Deny  *Selector `yaml:"deny"`  // is not done, and an item that is always denied does not exist for the client.
}

// Selector says what a rule is for. At least one key is needed; { upstreams: "*" } is everything.
//
// In a glob * is any run of characters (also of slashes and line breaks), ? is one character, and \
// takes the next one as it stands. It must match the whole text, and case counts. Names are
// compared byte by byte: letters that look alike are others.
type Selector struct {
	// Upstreams are globs over the names of upstreams. Without it all are meant.
	Upstreams List `yaml:"upstreams"`
	// Tools, Prompts and Resources are globs over every name that an item has: the one that clients
	// see on /mcp and the full one before it was shortened; for a resource its URI there and at its
	// upstream, or the template. Without any of the three, all kinds are meant; with some, only
	// those given.
	//
	// A URI with . or .. segments, backslashes, or any of these percent-encoded may mean another
	// place than it says: only resources: "*" and rules without resources allow it, an ask that
	// matches it denies it, and a deny is compared with what it comes to, too. One of more than 2
	// KiB, or one that can be read in very many ways, is denied by every ask and deny of resources
	// that its scheme does not rule out.
	Tools     List `yaml:"tools"`
	Prompts   List `yaml:"prompts"`
	Resources List `yaml:"resources"`
	// Where are conditions on the arguments of a tool or a prompt, which all must hold. A name is
	// that of an argument, or a JSON pointer when it begins with a slash, in which the segment * is
	// every element of a list.
	//
	// For an allow only text matches, never a missing value or one of another type, and with * all
	// elements must match and there must be one. For ask and deny one element is enough, numbers
	// and booleans are compared as the text they are written with, and what cannot be judged
	// matches: a list or an object where the path ends, or another value where it should go on.
	// Missing values and null do not.
	//
	// Patterns see text, not what it means: a shell reads more than one command out of "git status;
	// rm -rf /", which "git *" matches.
	Where Where `yaml:"where"`
}

// Where gives the pattern for each argument.
type Where map[string]Pattern

// Pattern is what an argument is compared with: a glob, { re: … }, or a list of these of which any
// may match.
type Pattern []Alternative

// Alternative is one glob or one regular expression; exactly one of them.
type Alternative struct {
	Glob string `yaml:"-"`  // must match the whole text.
	Re   string `yaml:"re"` // in RE2; need only be found in the text, unless it has ^ and $.
}

// Redact is the word secrets or a rule with a name.
type Redact struct {
	Word string `yaml:"-"`    // secrets.
	Name string `yaml:"name"` // stands in place of what was removed.
	Re   string `yaml:"re"`   // in RE2; what it finds is removed.
}

// Limits bound what one principal may do; of several policies that match, the strictest of each
// counts.
type Limits struct {
	// of calls, such as 60/m, and again of lists, pings, handshakes and new streams. Default: no
	// limit.
	Rate Rate `yaml:"rate"`
	// calls at once after a pause. Default: what the rate gives in ten seconds, at least 1.
	Burst      int `yaml:"burst"`
	Concurrent int `yaml:"concurrent"` // calls in flight. Default: no limit.
}

// Rate is a number of calls per second; the file writes it as 5/s, 60/m or 1000/h.
type Rate float64

// UnmarshalText reads the number and the unit.
func (r *Rate) UnmarshalText(text []byte) error {
	number, unit, _ := strings.Cut(string(text), "/")
	seconds := map[string]float64{"s": 1, "m": 60, "h": 3600}[strings.TrimSpace(unit)]
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 32)
	if err != nil || seconds == 0 || n == 0 {
		return fmt.Errorf("%s is no rate; write 5/s, 60/m or 1000/h", show(string(text)))
	}
	*r = Rate(float64(n) / seconds)
	return nil
}

// List is written as one value or as a list of them.
type List []string

// Shape says what a node of the file is to be read into: a pointer to a part of the value, or what
// is wanted instead of such a node. It is for readers that walk over nodes themselves, such as the
// strict one of the command; UnmarshalYAML does the same for package yaml.
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

// Shape is as that of List.
func (w *Where) Shape(n *yaml.Node) (into any, want string) {
	if n.Kind == yaml.MappingNode && len(n.Content) > 0 {
		*w = Where{}
		return (*map[string]Pattern)(w), ""
	}
	return nil, `a mapping of arguments to patterns, such as { command: "git *" }`
}

// Shape is as that of List.
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

// Shape is as that of List.
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

// Shape is as that of List.
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

// shaped is a value that the file may write in more than one way.
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

// Problem is one mistake of a configuration: where in it, and what would be right.
type Problem struct {
	Path string // below the section, such as [0].rules[2].deny.where.command; empty for the section itself
	Text string
}

// Error returns the path below the section and the text.
func (p Problem) Error() string { return "policies" + p.Path + ": " + p.Text }

// Validate returns every mistake, in the order of the policies and of their keys.
func (c Config) Validate() []Problem {
	v := &validator{}
	names := map[string]int{}
	for i := range c {
		e, at := &c[i], fmt.Sprintf("[%d]", i)
		first, twice := names[e.Name]
		switch {
		case e.Name == "":
			v.bad(at+".name", "is missing; a policy needs a name, for messages and the audit log")
		case !word(e.Name, "._-"):
			v.bad(at+".name", "has 1 to 64 of A-Z, a-z, 0-9, ., _ and -")
		case twice:
			v.bad(at+".name", "%s is the name of policies[%d] already; give one of them another name", e.Name, first)
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
			v.bad(at, "says nothing; give it rules, capabilities, limits or redact")
		}
		v.n = len(v.problems)
	}
	return v.problems
}

// idle reports whether the policy makes no difference to anybody.
func (e *Entry) idle() bool {
	return len(e.Capabilities) == 0 && len(e.Rules) == 0 && len(e.Redact) == 0 && !e.Validate && !e.Pinned &&
		e.Limits == Limits{}
}

// enforced reports whether the denies and asks of the policy hold in every layer.
func (e *Entry) enforced() bool { return e.Enforced != nil && *e.Enforced }

// Capabilities returns those that some policy gives, sorted.
func (c Config) Capabilities() []string {
	var all []string
	for _, e := range c {
		all = append(all, e.Capabilities...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Unmatched returns the globs of the policy over upstreams that match none of the names: most
// likely slips, and a deny with a slip denies nothing. The paths are below the policy.
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

// selectors returns those that are given.
func (r *Rule) selectors() []keyed {
	return slices.DeleteFunc([]keyed{{"allow", r.Allow}, {"ask", r.Ask}, {"deny", r.Deny}},
		func(s keyed) bool { return s.Selector == nil })
}

// A validator collects problems.
type validator struct {
	problems []Problem
	n        int // problems of the policies before
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
				v.bad(at, "%s is none of local, key, user, service", show(s))
			case f.key == "cidr":
				v.network(at, s)
			case f.key == "email" && strings.Count(s, "@") != 1:
				v.bad(at, "%s is no address; write it like ann@example.com", show(s))
			case f.key == "email_domain" && strings.Contains(s, "@"):
				v.bad(at, "is what follows the @; write %s", s[strings.LastIndexByte(s, '@')+1:])
			case f.key != "scope" && strings.Contains(s, "*"):
				v.bad(at, "is compared to the letter, in which * means nothing; name each value")
			}
		})
	}
	if !given {
		v.bad(at, "names nobody; remove the key if the policy is for everybody")
	}
}

func (v *validator) network(at, s string) {
	p, err := netip.ParsePrefix(s)
	if err == nil {
		switch {
		case p.Addr().Is4In6():
			v.bad(at, "write IPv4 networks as such, like 10.0.0.0/8")
		case p != p.Masked():
			v.bad(at, "has bits behind the prefix; write %v", p.Masked())
		}
		return
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		v.bad(at, "is an address; write %v if it alone is meant", netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
		return
	}
	v.bad(at, "%s is no network; write it like 10.0.0.0/8", show(s))
}

// list checks what all lists have in common, and then each value.
func (v *validator) list(at string, l List, each func(at, s string)) {
	if l != nil && len(l) == 0 {
		v.bad(at, "is an empty list; name something, or remove the key")
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

// textProblem says what is wrong with any value that something is compared with.
func textProblem(s string) string {
	switch {
	case s == "":
		return "is empty; give it a value, or remove it"
	case len(s) > maxPattern:
		return fmt.Sprintf("is longer than %d bytes", maxPattern)
	case !utf8.ValidString(s):
		return "is not UTF-8 text"
	case strings.ContainsRune(s, 0):
		return "holds a NUL character; remove it"
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
					`has a %s, which no name has and which stands for itself in these globs; write a list of globs instead`, c)
			}
		})
	}
	if !given {
		v.bad(at, `selects nothing; write { upstreams: "*" } if everything is meant`)
	}
	if s.Where == nil {
		return
	}
	if len(s.Where) == 0 {
		v.bad(at+".where", "names no argument; name one, or remove the key")
	}
	if s.Resources != nil {
		v.bad(at+".where", "is for the arguments of tools and prompts, which resources do not have; write a rule "+
			"for resources alone")
	}
	for _, name := range sortedKeys(s.Where) {
		v.pattern(at+".where."+name, name, s.Where[name])
	}
}

// plainBracket returns the first of the characters that other globs give a meaning and ours do not.
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
		v.bad(at, "names no argument")
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
			hint = "; RE2 does not look ahead or behind"
		}
		v.bad(at, "is no RE2 expression: %s at %s%s", e.Code, show(e.Expr), hint)
	} else if err != nil {
		v.bad(at, "is no RE2 expression: %v", err)
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
			v.bad(at, `%s is not known; write secrets, or { name: …, re: … }`, show(r.Word))
			continue
		case r.Name == "":
			v.bad(at+".name", "is missing; it stands in place of what is removed")
		case !word(r.Name, "._-"):
			v.bad(at+".name", "has 1 to 64 of A-Z, a-z, 0-9, ., _ and -")
		case names[r.Name]:
			v.bad(at+".name", "%s is the name of another; give one of them another name", r.Name)
		}
		names[r.Name] = true
		if r.Re == "" {
			v.bad(at+".re", "is missing; it finds what is removed")
		} else if re := v.expression(at+".re", r.Re); re != nil && re.MatchString("") {
			v.bad(at+".re", "finds the empty text, which is everywhere; make it need a character")
		}
	}
}

func (v *validator) limits(at string, l Limits) {
	if l.Rate < 0 || math.IsNaN(float64(l.Rate)) || math.IsInf(float64(l.Rate), 0) {
		v.bad(at+".rate", "is no rate; write 5/s, 60/m or 1000/h")
	}
	if l.Burst < 0 {
		v.bad(at+".burst", "is negative")
	}
	if l.Concurrent < 0 {
		v.bad(at+".concurrent", "is negative")
	}
	if l.Burst > 0 && l.Rate == 0 {
		v.bad(at+".burst", "is how far calls may run ahead of a rate; give a rate too, such as 60/m")
	}
}

// word reports whether s has 1 to 64 letters, digits and bytes of more.
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
