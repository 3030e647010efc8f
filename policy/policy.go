// Package policy decides what a subject may do. A decision is a pure function of the configured
// policies, the subject, the item, and the arguments of the call.
//
// config.go has the section policies of the file; its comments are the manual. verdict.go has a row of
// facts for each verdict. Compile makes a
// Policy from the section. Policy.For returns the Rights of a subject: the policies that match it.
// Rights.Bind returns a Ruling (ruling.go) for one item. The Ruling states whether the item is
// visible to the subject, and decides each call. So a call only has to compare its arguments
// (pattern.go), and not even these if no rule reads them. uri.go finds the possible meanings of a
// resource URI, reach.go answers questions before an item is known, beginning.go decides for URIs
// with an unknown end, items.go decides for many items at once, both.go joins two policies, explain.go gives the
// reasons of a decision, hints.go selects tools by their annotations, folders.go narrows the folders that a
// subject may name, and overridden.go warns about rules that another policy lifts.
//
// There are three layers of policies: the caller's own, the surface's, and the global ones.
// The first layer in which a rule applies decides. If a deny of this layer applies, the verdict is
// deny. Otherwise it is the strictest of the first applicable rules of the policies of this layer. Of
// the asks of a policy up to its first applicable allow, the one that remembers least counts. If no
// rule applies, the call is denied. In addition, denies and asks of enforced policies always count:
// the stricter verdict wins. An enforced ask never lifts a deny. A person's approval turns the ask
// that caused it into an allow. It never lifts a deny.
//
// Arguments are read with package raw. Ambiguous arguments that a rule must read are rejected.
package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Kind is the kind of an item. A template is a Resource.
type Kind uint8

const (
	Tool Kind = iota
	Prompt
	Resource
	Skill
	kinds
)

func (k Kind) String() string {
	var words [kinds]string = [...]string{"tool", "prompt", "resource", "skill"} // all: else it does not compile
	return words[k]
}

// Subject is the authenticated caller, its address, and the surface of the called endpoint. An
// empty field matches nothing.
type Subject struct {
	Kind    string // local, key, user or service
	ID      string // for messages; not matched by policies
	Key     string // the name of the API key
	User    string
	Issuer  string
	Email   string // only if verified
	Groups  []string
	Scopes  []string
	Address netip.Addr

	OAuthClient string
	Surface     string
}

// Item is a tool, a prompt, a resource, a template or a skill.
type Item struct {
	Kind     Kind
	Upstream string
	Names    []string // all names for rules to match; URIs of a resource, templates of a template, path of a skill
	Within   []string // of a resource: paths of skills that have it, besides those that its URI names
	Near     []string // like Within, by other readings of the URI; an allow does not count them
	Requires []string // capabilities
	Hints    Hints    // of a tool
}

// Decision is a verdict and its origin. The zero value is a deny because no rule applied.
type Decision struct {
	Verdict Verdict
	Policy  string // name of the policy
	Rule    string // within the policy, such as rules[2]
	Missing string // the first required capability that the subject lacks
	// Scopes is set if only the scopes of the subject's token are missing: all scopes that the call
	// needs, separated by spaces. Verdict is Deny.
	Scopes string
	// Remember is the most that a person's approval may cover. Only for the verdict ask.
	Remember Span
}

// layer is the layer of a policy. A smaller layer decides first.
type layer uint8

const (
	own layer = iota
	surface
	global
	layers
)

func (l layer) String() string {
	var words [layers]string = [...]string{"own", "surface", "global"} // all: else it does not compile
	return words[l]
}

// Policy is the compiled section. It is immutable. A nil Policy denies everything.
type Policy struct {
	entries []*entry            // by layer, then in the order of the file
	scopes  map[string][]string // capabilities that each scope allows; nil if scopes do not restrict
	also    *Policy             // which must allow, too; nil in the ordinary case (Both)
}

// An entry is one compiled policy.
type entry struct {
	name         string
	layer        layer
	enforced     bool
	match        matcher
	capabilities []string
	rules        []rule
	safeguards   Safeguards
	limits       Limits
	endpoints    List     // nil: all
	folders      []string // nil: all
	content      string   // for comparison
}

// A rule is one compiled rule.
type rule struct {
	label     string // such as rules[2]; "" for the rule of Open
	verdict   Verdict
	upstreams Globs // nil: all
	tools     Globs
	prompts   Globs
	resources []place
	skills    Globs
	every     bool // all kinds of items: no tools, prompts, resources or skills given
	where     []condition
	hints     *byHints // nil: by nothing
	kinds     string   // hints as in the file
	remember  Span     // of an ask
}

// Open is the policy of a file without a policies section: every subject may use every item that
// requires no capability.
func Open() *Policy {
	return &Policy{entries: []*entry{{layer: global, rules: []rule{{verdict: Allow, every: true}}}}}
}

// WithScopes returns a policy that restricts capabilities by the scopes of tokens: a user or
// service holds a capability only if a scope of the token allows it. If only a scope is missing,
// the item is visible, and Decision.Scopes says which scopes the call needs. Without scopes it
// returns p.
func (p *Policy) WithScopes(scopes map[string][]string) *Policy {
	if p == nil || len(scopes) == 0 {
		return p
	}
	return &Policy{p.entries, scopes, p.also}
}

// Compile makes a Policy of a section. The error is the first mistake. An empty section denies
// everything.
func Compile(c Config) (*Policy, error) {
	if problems := c.Validate(); len(problems) > 0 {
		return nil, fmt.Errorf("policies%s: %s", problems[0].Path, problems[0].Text)
	}
	p := &Policy{}
	for i := range c {
		p.entries = append(p.entries, compileEntry(&c[i]))
	}
	slices.SortStableFunc(p.entries, func(a, b *entry) int { return int(a.layer) - int(b.layer) })
	return p, nil
}

// compileEntry compiles a policy without mistakes.
func compileEntry(c *Entry) *entry {
	content, _ := json.Marshal(c) // cannot fail: a Rate is finite
	e := &entry{name: c.Name, layer: global, enforced: c.enforced(), capabilities: slices.Clone(c.Capabilities),
		limits: c.Limits.withDefaults(), endpoints: slices.Clone(c.Endpoints), folders: folders(c.Folders),
		content: string(content)}
	if m := c.Match; m != nil {
		e.match, e.layer = compileMatch(m), own
		if only := (Match{Surface: m.Surface}); m.equal(&only) {
			e.layer = surface
		}
	}
	e.safeguards = Safeguards{Validate: c.Validate, Pinned: c.Pinned, Search: c.Catalog == CatalogSearch,
		Always: CompileGlobs(c.Always)}
	for _, r := range c.Redact.patterns() {
		if r.Word != "" {
			e.safeguards.Secrets, e.safeguards.LoseSecrets = true, !c.Redact.Restore
			continue
		}
		e.safeguards.Redactions = append(e.safeguards.Redactions,
			Redaction{r.Name, regexp.MustCompile(r.Re), c.Redact.Restore})
	}
	for i, r := range c.Rules {
		e.rules = append(e.rules, compileRule(fmt.Sprintf("rules[%d]", i), r))
	}
	return e
}

func compileRule(label string, c Rule) rule {
	s := c.selectors()[0]
	r := rule{
		label: label, verdict: s.verdict,
		every:     s.Tools == nil && s.Prompts == nil && s.Resources == nil && s.Skills == nil,
		upstreams: CompileGlobs(s.Upstreams), tools: CompileGlobs(s.Tools), prompts: CompileGlobs(s.Prompts),
		resources: compileAll(s.Resources, compilePlace), skills: CompileGlobs(s.Skills),
		hints: compileHints(s.Annotations), kinds: s.Annotations.text(),
	}
	if s.verdict.Asks() {
		r.remember = c.Remember.span()
	}
	for _, name := range sortedKeys(s.Where) {
		r.where = append(r.where, compileCondition(name, s.Where[name], s.verdict))
	}
	return r
}

func compileAll[T any](l List, compile func(string) T) []T {
	var all []T
	for _, s := range l {
		all = append(all, compile(s))
	}
	return all
}

func sortedKeys(w Where) []string { return slices.Sorted(maps.Keys(w)) }

// A matcher is a compiled match.
type matcher struct {
	fields []field
	cidr   []netip.Prefix
}

// compileMatch compiles the keys that are given.
func compileMatch(c *Match) matcher {
	var m matcher
	for _, f := range c.fields() {
		switch {
		case f.list == nil:
		case f.key == "cidr":
			m.cidr = compileAll(f.list, netip.MustParsePrefix)
		default:
			m.fields = append(m.fields, field{f.key, slices.Clone(f.list)})
		}
	}
	return m
}

func (m *Match) equal(o *Match) bool {
	return slices.EqualFunc(m.fields(), o.fields(), func(a, b field) bool { return slices.Equal(a.list, b.list) })
}

func (m *matcher) matches(s *Subject) bool {
	if m.cidr != nil {
		a := s.Address.Unmap().WithZone("")
		if !slices.ContainsFunc(m.cidr, func(p netip.Prefix) bool { return p.Contains(a) }) {
			return false
		}
	}
	for i := range m.fields {
		if !m.fields[i].matches(s) {
			return false
		}
	}
	return true
}

func (f *field) matches(s *Subject) bool {
	is := func(values ...string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return v != "" && slices.Contains(f.list, v) })
	}
	folded := func(value string) bool {
		return value != "" && slices.ContainsFunc(f.list, func(v string) bool { return lower(v) == lower(value) })
	}
	switch f.key {
	case "kind":
		return is(s.Kind)
	case "key":
		return is(s.Key)
	case "user":
		return is(s.User)
	case "issuer":
		return is(s.Issuer)
	case "email":
		return folded(s.Email)
	case "email_domain":
		at := strings.LastIndexByte(s.Email, '@')
		return at > 0 && folded(s.Email[at+1:])
	case "group":
		return is(s.Groups...)
	case "scope":
		return is(s.Scopes...)
	case "oauth_client":
		return is(s.OAuthClient)
	case "surface":
		return is(s.Surface)
	}
	return false
}

// lower converts only A to Z to lower case, so that look-alikes of other alphabets stay different.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// withDefaults sets the burst of a rate.
func (l Limits) withDefaults() Limits {
	if l.Rate > 0 && l.Burst == 0 {
		l.Burst = max(1, int(math.Ceil(float64(l.Rate)*10)))
	}
	return l
}

// For returns the rights of a subject; never nil. It keeps nothing of the subject.
func (p *Policy) For(s Subject) *Rights {
	r := &Rights{held: map[string]bool{}}
	if p == nil {
		return r
	}
	for _, e := range p.entries {
		if e.match.matches(&s) {
			r.add(e)
		}
	}
	if p.scopes != nil && (s.Kind == "user" || s.Kind == "service") {
		r.narrow(p.scopes, s.Scopes)
	}
	if p.also != nil {
		r.meet(p.also.For(s))
	}
	return r
}

// narrow removes the capabilities that no scope of the subject allows.
func (r *Rights) narrow(gives map[string][]string, scopes []string) {
	r.scope, r.beyond = map[string]string{}, map[string]string{}
	for c := range r.held {
		for _, scope := range slices.Sorted(maps.Keys(gives)) { // sorted, so that the choice is stable
			switch {
			case !slices.Contains(gives[scope], c):
			case slices.Contains(scopes, scope):
				r.scope[c] = scope
			case r.beyond[c] == "":
				r.beyond[c] = scope
			}
		}
		if r.scope[c] == "" {
			delete(r.held, c)
		} else {
			delete(r.beyond, c)
		}
	}
}

// Rights are the policies that match one subject. They are immutable.
type Rights struct {
	entries []*entry
	held    map[string]bool // capabilities
	// by capability, a scope of the subject that allows it; nil if scopes do not restrict
	scope      map[string]string
	beyond     map[string]string // by capability that only lacks a scope: such a scope
	safeguards Safeguards        // of also, too
	limits     Limits            // of also, too
	also       *Rights           // by the other policy; nil in the ordinary case (Both)
}

func (r *Rights) add(e *entry) {
	r.entries = append(r.entries, e)
	for _, c := range e.capabilities {
		r.held[c] = true
	}
	r.safeguards.add(&e.safeguards)
	r.limits = r.limits.strictest(e.limits)
}

// strictest returns the lesser of each limit.
func (l Limits) strictest(o Limits) Limits {
	// without keys, so that a new limit without a value here does not compile
	return Limits{strictest(l.Rate, o.Rate), strictest(l.Burst, o.Burst), strictest(l.Concurrent, o.Concurrent)}
}

// strictest returns the lesser of two limits, where 0 means no limit.
func strictest[T Rate | int](a, b T) T {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}

// reaches reports whether the subject holds a capability, or would with another token.
func (r *Rights) reaches(capability string) bool {
	return r.held[capability] || r.beyond[capability] != ""
}

// Safeguards are the checks and changes on the content of calls and lists.
type Safeguards struct {
	Redactions  []Redaction
	Secrets     bool // redact known forms of secrets too
	LoseSecrets bool // they do not come back in arguments
	Validate    bool
	Pinned      bool
	Search      bool  // tools are found by search
	Always      Globs // the tools that are listed nevertheless
}

// Redaction is a pattern to remove from results. Its name replaces each match.
type Redaction struct {
	Name    string
	Re      *regexp.Regexp
	Restore bool // the text comes back in arguments
}

func (g *Safeguards) add(o *Safeguards) {
	for _, r := range o.Redactions {
		i := slices.IndexFunc(g.Redactions,
			func(q Redaction) bool { return q.Name == r.Name && q.Re.String() == r.Re.String() })
		if i < 0 {
			g.Redactions = append(g.Redactions, r)
		} else if !r.Restore { // all policies with the pattern must restore its matches
			g.Redactions[i].Restore = false
		}
	}
	g.Secrets, g.Validate, g.Pinned = g.Secrets || o.Secrets, g.Validate || o.Validate, g.Pinned || o.Pinned
	g.LoseSecrets = g.LoseSecrets || o.LoseSecrets
	g.Search, g.Always = g.Search || o.Search, append(g.Always, o.Always...)
}

// Safeguards returns the safeguards of all matching policies; never nil. Do not modify it.
func (r *Rights) Safeguards() *Safeguards { return &r.safeguards }

// Limits returns the strictest value of each limit; 0 means none. With a Rate there is a Burst.
func (r *Rights) Limits() Limits { return r.limits }

// Equal reports whether two rights are of policies with the same content, so that nothing has
// changed for the subject.
func (r *Rights) Equal(o *Rights) bool {
	if r.also == nil || o.also == nil {
		if r.also != o.also {
			return false
		}
	} else if !r.also.Equal(o.also) {
		return false
	}
	return slices.EqualFunc(r.entries, o.entries, func(a, b *entry) bool { return a.content == b.content }) &&
		maps.Equal(r.held, o.held) &&
		maps.Equal(r.beyond, o.beyond) && maps.Equal(r.scope, o.scope)
}
