package policy

import (
	"encoding"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// Config is the policies section of the file. Without the section, every authenticated caller may
// use every item that requires no capability (see Open). With it, whatever no rule allows is
// denied. The order of policies does not matter; the order of a policy's rules does.
type Config []Entry

// Entry is one policy: who it applies to, the capabilities it gives, and its rules.
type Entry struct {
	// A name, for messages and the audit. Required and unique.
	Name string `yaml:"name" change:"list,both"`
	// Every key must hold; a list means any of its values. Without it, the policy applies to
	// everybody.
	Match *Match `yaml:"match" change:"list,both"`
	// true: the denies and asks of this policy hold in every layer; its allows do not. false: other
	// policies may lift the denies and asks, and junction check does not warn.
	Enforced *bool `yaml:"enforced" change:"list,both"`
	// For the callers that the policy matches, only these endpoints exist: names of endpoints, mcp
	// for /mcp, and mcp/NAME for /mcp/NAME.
	//
	// If several policies have the key, the endpoints that all of them name exist. Default: all.
	Endpoints List `yaml:"endpoints" example:"[web, mcp/memory]" change:"list,both"`
	// The callers that the policy matches may name only these folders, and folders in them, of those
	// that folders.within or junction folders allow permits. [] is none. Absolute paths.
	//
	// If several policies have the key, a folder must be in folders of each of them. Default: all.
	Folders []string `yaml:"folders" example:"[/home/ann/src]" change:"list,both"`
	// The callers that the policy matches hold these capabilities.
	//
	// An item that requires capabilities exists only for callers who hold all of them.
	Capabilities []string `yaml:"capabilities" change:"list,both"`
	// Tried in order; the first rule that applies counts, but a deny that applies always wins. In
	// globs * is any text, ? is one character, and \ before a character means that character
	// itself. The names are those that clients see.
	Rules []Rule `yaml:"rules" change:"list,both"`
	// Removed from all messages of servers; the word secrets stands for the known shapes of
	// secrets. With restore, the same server gets the text back where a later argument has its
	// placeholder; a list of patterns alone, such as redact: [secrets], restores nothing.
	Redact Redactions `yaml:"redact" example:"[secrets]" change:"list,both"`
	// Reject arguments that do not fit the schema of the tool, or that cannot be checked. Default
	// false.
	Validate bool `yaml:"validate" change:"list,both"`
	// Offer only tools whose definition an operator has accepted. Default false.
	Pinned bool `yaml:"pinned" change:"list,both"`
	// Limits of calls for each caller. Lists, pings and new streams have the same rate once more.
	//
	// If several policies match, the strictest value of each limit counts.
	Limits Limits `yaml:"limits" change:"list,both"`
	// full (the default), or search: instead of all tools, the list has search_tools and the tools
	// call_read_tool, call_write_tool and call_destructive_tool. For clients that cannot handle
	// many tools and do not search by themselves. Allowed tools can still be called by their names.
	Catalog Catalog `yaml:"catalog" change:"list,both"`
	// With catalog: search, the tools that stay listed.
	Always List `yaml:"always" change:"list,both"`
}

// Example returns the type in YAML.
func (Entry) Example() string {
	return `{ name: everybody, rules: [{ allow: { tools: "files__*" } }] }`
}

// Match says who a policy applies to: every given key must match, and a list matches any of its
// values. Values are compared exactly; only email and email_domain ignore the case of A-Z.
// Client-supplied names and versions are never used.
//
// Match decides the layer: with any key except surface, the policy is the caller's own; with
// surface alone, it is the surface's; without a match, it is global. The first of these layers in
// which a rule applies decides.
type Match struct {
	// local (no authentication), key, user or service.
	Kind List `yaml:"kind"`
	// Names of API keys.
	Key List `yaml:"key"`
	// Names of users at their identity provider.
	//
	// If there are several providers, set issuer, too.
	User List `yaml:"user"`
	// URLs of the identity providers of users.
	Issuer List `yaml:"issuer"`
	// Verified addresses, in any case of A-Z.
	Email List `yaml:"email"`
	// Domains of verified addresses, without subdomains.
	EmailDomain List `yaml:"email_domain"`
	// As the provider sends them; of several, set issuer, too.
	Group List `yaml:"group"`
	// Scopes of the token.
	Scope List `yaml:"scope"`
	// OAuth clients with which users signed in.
	OAuthClient List `yaml:"oauth_client"`
	// Networks of the client's address.
	CIDR List `yaml:"cidr"`
	// Surfaces of the endpoint that is called.
	Surface List `yaml:"surface"`
}

// Example returns the type in YAML.
func (Match) Example() string { return "{ group: engineering }" }

// Rule has exactly one of allow, ask and deny.
type Rule struct {
	// Calls are made.
	Allow *Selector `yaml:"allow"`
	// Calls are made after the user at the client has approved them.
	Ask *Selector `yaml:"ask"`
	// Calls are rejected; an item that is always denied is hidden.
	Deny *Selector `yaml:"deny"`
	// The most that one answer to ask may allow: once, call (the default: the same call again),
	// tool, or server (any call of any tool of it).
	//
	// call, tool and server hold until the session ends; in the modern era, which has no sessions,
	// for an hour. If several asks apply to a call, the least of them counts.
	Remember Remember `yaml:"remember"`
}

// Example returns the type in YAML.
func (Rule) Example() string { return `{ allow: { tools: "files__*" } }` }

// Selector says which items and calls a rule applies to. At least one key is required; { upstreams:
// "*" } selects everything.
//
// In a glob, * matches any characters (also slashes and line breaks), ? matches one character, and
// \ escapes the next one. A glob must match the whole text, and is case-sensitive. Names are
// compared byte by byte, so that look-alike letters differ.
type Selector struct {
	// Globs for the names of upstreams. Default: all.
	Upstreams List `yaml:"upstreams"`
	// Globs for the names of tools on /mcp, and their full names before shortening. Without tools,
	// prompts, resources and skills, a rule applies to all kinds; with some of them, only to those.
	Tools List `yaml:"tools"`
	// Globs for the names of prompts on /mcp, and their full names before shortening.
	Prompts List `yaml:"prompts"`
	// Globs for the URIs of resources on /mcp and at their upstreams, or their templates.
	//
	// A URI with . or .. segments, backslashes, or any of these percent-encoded is ambiguous. Only
	// resources: "*" and rules without resources allow such a URI; an ask that matches it denies
	// it. A deny and an ask are also compared with the other readings of a URI: decoded, as a path
	// whose first part is a folder (notes://x/../a is notes://a, and notes:///a is notes://a), and
	// without the user and the port (in the schemes of the web, only without the default port). A
	// URI of more than 2 KiB, or with too many readings, is denied by every ask and deny of
	// resources whose scheme may fit.
	Resources List `yaml:"resources"`
	// Globs for the path of a skill: the name of its upstream, and the folder of its SKILL.md, such
	// as files/acme/refunds; */NAME is a skill on any upstream.
	//
	// A rule for a skill also applies to the files in its folder. A skill with a denied file is
	// hidden, because its list of files must be complete.
	Skills List `yaml:"skills"`
	// Conditions on the arguments of a tool or prompt; all must hold. The key is the name of an
	// argument, or a JSON pointer that begins with a slash, in which * stands for every element of
	// a list.
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
	// Tools by their hints, with the defaults of MCP: without annotations a tool is destructive.
	// The rule applies to no other kind of item.
	//
	// The hints are the server's word about itself, and a server may lie. The key pinned of a
	// policy hides a tool whose hints have changed.
	Annotations *Annotations `yaml:"annotations"`
}

// Example returns the type in YAML.
func (Selector) Example() string { return `{ tools: "files__*" }` }

// Annotations select tools by their hints; all given hints must have the given values. A missing hint
// has the default of MCP: a tool without annotations changes and destroys things (readOnlyHint: false,
// destructiveHint: true, idempotentHint: false, openWorldHint: true). A tool that only reads is not
// destructive, and is idempotent. A tool that declares readOnlyHint: true and destructiveHint: true is
// destructive.
//
// The hints are the server's word about itself, and a server may lie. The key pinned of a policy hides
// a tool whose hints have changed.
type Annotations struct {
	// The tool changes nothing.
	ReadOnly *bool `yaml:"readOnlyHint"`
	// The tool may delete or overwrite.
	Destructive *bool `yaml:"destructiveHint"`
	// To repeat a call changes nothing more.
	Idempotent *bool `yaml:"idempotentHint"`
	// The tool reaches things outside, such as the web.
	OpenWorld *bool `yaml:"openWorldHint"`
	// Globs for the upstreams whose hints count. The tools of all others have the defaults.
	// Default: all; an allow without upstreams needs the key.
	Trusted List `yaml:"trusted"`
}

// Example returns the type in YAML.
func (Annotations) Example() string { return "{ readOnlyHint: false }" }

// Where maps arguments to patterns.
type Where map[string]Pattern

// Pattern is a glob, { re: … }, or a list of these, one of which must match.
type Pattern []Alternative

// Alternative is either a glob or a regular expression.
type Alternative struct {
	Glob string `yaml:"-"` // matches the whole text.
	// A regular expression (RE2). It matches anywhere in the text unless it has ^ and $.
	Re string `yaml:"re"`
}

// Redactions are the patterns of one policy. In the file, a list stands for the patterns alone.
type Redactions struct {
	// The text to remove: the word secrets stands for known forms of secrets, and { name: …, re: …
	// } for matches of an RE2 expression. With restore, the default is [secrets].
	Patterns []Redact `yaml:"patterns"`
	// true keeps removed text for the session, and marks its place by [redacted: NAME #REFERENCE].
	// Where a later argument of the same caller for the same upstream contains that placeholder,
	// the upstream gets the text. If another policy removes the same pattern without restore, the
	// text does not come back.
	Restore bool `yaml:"restore"`
	// Mapped: the file has a mapping.
	Mapped bool `yaml:"-" json:"-"`
}

// Redact is the word secrets, or a named expression.
type Redact struct {
	Word string `yaml:"-"` // secrets.
	// Stands in place of the removed text.
	Name string `yaml:"name"`
	// A regular expression (RE2); its matches are removed.
	Re string `yaml:"re"`
}

// Limits limit one principal. If several policies match, the strictest value of each limit counts.
type Limits struct {
	// Of calls, such as 60/m, and separately of lists, pings, handshakes and new streams. Default:
	// no limit.
	Rate Rate `yaml:"rate"`
	// The largest burst of calls. Default: ten seconds of the rate, at least 1.
	Burst int `yaml:"burst"`
	// Calls in flight. Default: no limit.
	Concurrent int `yaml:"concurrent"`
}

// None reports whether nothing limits calls or, with other, requests that are not calls. A new field
// limits both unless None excludes it.
func (l Limits) None(other bool) bool {
	l.Burst = 0 // without a rate it limits nothing
	if other {
		l.Concurrent = 0
	}
	return l == Limits{}
}

// Example returns the type in YAML.
func (Limits) Example() string { return "{ rate: 60/m }" }

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
func (r *Redactions) Shape(n *yaml.Node) (into any, want string) {
	switch n.Kind {
	case yaml.SequenceNode:
		return &r.Patterns, ""
	case yaml.MappingNode:
		if r.Mapped = true; len(n.Content) > 0 {
			type mapping Redactions
			return (*mapping)(r), ""
		}
	}
	return nil, "a list such as [secrets], or a mapping such as { restore: true }"
}

// patterns returns the patterns with their default.
func (r *Redactions) patterns() []Redact {
	if len(r.Patterns) == 0 && r.Restore {
		return []Redact{{Word: wordSecrets}}
	}
	return r.Patterns
}

// wordSecrets stands for known forms of secrets.
const wordSecrets = "secrets"

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
func (r *Redactions) UnmarshalYAML(n *yaml.Node) error  { return unmarshal(n, r) }
func (r *Redact) UnmarshalYAML(n *yaml.Node) error      { return unmarshal(n, r) }

func unmarshal(n *yaml.Node, s shaped) error {
	into, want := s.Shape(n)
	if into == nil {
		return fmt.Errorf("line %d: must be %s", n.Line, want)
	}
	return n.Decode(into)
}

var _ encoding.TextUnmarshaler = (*Rate)(nil)

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

// given is a selector with its key, which is that of the verdict.
type given struct {
	verdict Verdict
	*Selector
}

// selectors returns the given selectors.
func (r *Rule) selectors() (all []given) {
	for v, row := range slices.Backward(verdicts[:]) {
		if s := row.selector(r); s != nil {
			all = append(all, given{Verdict(v), s})
		}
	}
	return all
}

// field is a key of a mapping with its list.
type field struct {
	key  string
	list List
}

// fields returns the lists of names.
func (s *Selector) fields() []field {
	return []field{{"upstreams", s.Upstreams}, {"tools", s.Tools}, {"prompts", s.Prompts}, {"resources", s.Resources},
		{"skills", s.Skills}}
}

func (m *Match) fields() []field {
	return []field{{"kind", m.Kind}, {"key", m.Key}, {"user", m.User}, {"issuer", m.Issuer}, {"email", m.Email},
		{"email_domain", m.EmailDomain},
		{"group", m.Group}, {"scope", m.Scope}, {"oauth_client", m.OAuthClient}, {"cidr", m.CIDR},
		{"surface", m.Surface}}
}
