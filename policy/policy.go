// Package policy decides who may do what. It is a pure function: of the policies of the file, the
// subject who calls, the item that is called, and its arguments.
//
// config.go has the file's section and is its manual. Compile makes a Policy of it. For takes the
// policies that match a subject, once per principal: its Rights. Bind takes the rules of these that
// can apply to one item, once per principal and world: a Ruling (ruling.go), which says whether the
// item exists for the subject at all and decides each call. So a call only costs what its arguments
// cost (pattern.go), and nothing where no rule reads them. What the URI of a resource may mean is
// in uri.go, and what can be said before there is an item in reach.go, or of a URI that is not
// known to its end in beginning.go.
//
// Policies stand in three layers: the caller's own, those of the surface, and the global ones. The
// first layer in which some rule applies decides: with the first deny, if there is any, otherwise
// with the first rule that applies of each policy, and of these the strictest. Where no rule
// applies the verdict is deny. The denies and asks of enforced policies hold whatever a layer
// decides: the stricter verdict counts. An enforced ask lifts no deny, of whichever layer. An
// approval that a person gave for an ask is no layer: it turns this very ask into an allow, never a
// deny.
//
// Arguments are read by package raw, as by everybody in this program: what a rule has to read and
// two readers may read in two ways is refused, not guessed.
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

	"junction/upstream/raw"
)

// Verdict is what a rule says, or all of them together.
type Verdict uint8

// The stricter verdict is the lesser.
const (
	Deny Verdict = iota
	Ask
	Allow
)

func (v Verdict) String() string {
	switch v {
	case Ask:
		return "ask"
	case Allow:
		return "allow"
	}
	return "deny"
}

// Kind is what an item is. A template is a Resource.
type Kind uint8

const (
	Tool Kind = iota
	Prompt
	Resource
)

func (k Kind) String() string {
	switch k {
	case Prompt:
		return "prompt"
	case Resource:
		return "resource"
	}
	return "tool"
}

// Subject is who calls, as far as it is known for sure: what was authenticated, where the
// connection comes from, and which endpoint was called. An empty field matches nothing.
type Subject struct {
	Kind    string // local, key, user or service
	ID      string // for messages; policies do not match it
	Key     string // the name of the API key
	User    string
	Issuer  string
	Email   string // only if it is verified
	Groups  []string
	Scopes  []string
	Address netip.Addr

	OAuthClient string
	Surface     string
}

// Item is what is called: a tool, a prompt, a resource or a template.
type Item struct {
	Kind     Kind
	Upstream string
	Names    []string // every name that a rule may mean it by; of a resource the URIs, of a template the templates
	Requires []string // capabilities
}

// Decision is a verdict and where it comes from. The zero value is a deny because nothing applied.
type Decision struct {
	Verdict Verdict
	Policy  string // its name
	Rule    string // in it, such as rules[2]
	Missing string // the first capability that is required and not held
	// Scopes is set where nothing but the scopes of the subject's token is in the way: all that the
	// token needs for the call, with spaces between them. Verdict is Deny.
	Scopes string
}

// layer is where a policy stands; the lesser one decides before the greater.
type layer uint8

const (
	own layer = iota
	surface
	global
	layers = 3
)

func (l layer) String() string { return [layers]string{"own", "surface", "global"}[l] }

// Policy is the compiled section. It is immutable. A nil Policy lets nobody do anything.
type Policy struct {
	entries []*entry            // by layer, and in it in the order of the file
	scopes  map[string][]string // capabilities by the scope that gives them; nil if scopes take nothing away
}

// An entry is one compiled policy.
type entry struct {
	name         string
	layer        layer
	enforced     bool
	match        matcher
	capabilities []string
	rules        []rule
	guards       Guards
	limits       Limits
	content      string // tells it from another
}

// A rule is one compiled rule.
type rule struct {
	label     string // such as rules[2]; empty when the file does not have it
	verdict   Verdict
	upstreams []glob // nil: all
	tools     []glob
	prompts   []glob
	resources []place
	every     bool // all kinds of items: none of the three is given
	where     []condition
}

// Open is what a file without a policies section means: everybody may use whatever requires no
// capability.
func Open() *Policy {
	return &Policy{entries: []*entry{{layer: global, rules: []rule{{verdict: Allow, every: true}}}}}
}

// WithScopes returns the policy for tokens whose scopes give capabilities: a user or a service
// holds what the policies give only as far as one of the scopes of the token gives it too. A
// capability that another scope would give is not out of reach: its items are there, and calling
// one needs another token, with Decision.Scopes. Without scopes it is p itself.
func (p *Policy) WithScopes(scopes map[string][]string) *Policy {
	if p == nil || len(scopes) == 0 {
		return p
	}
	return &Policy{p.entries, scopes}
}

// Compile makes a Policy of the section. The error is the first Problem. A section without policies
// denies everything.
func Compile(c Config) (*Policy, error) {
	if problems := c.Validate(); len(problems) > 0 {
		return nil, problems[0]
	}
	p := &Policy{}
	for i := range c {
		e, err := compileEntry(&c[i])
		if err != nil {
			return nil, err
		}
		p.entries = append(p.entries, e)
	}
	slices.SortStableFunc(p.entries, func(a, b *entry) int { return int(a.layer) - int(b.layer) })
	return p, nil
}

func compileEntry(c *Entry) (*entry, error) {
	content, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", c.Name, err)
	}
	e := &entry{name: c.Name, layer: global, enforced: c.enforced(), capabilities: slices.Clone(c.Capabilities),
		limits: c.Limits.withDefaults(), content: string(content)}
	if m := c.Match; m != nil {
		e.match, e.layer = compileMatch(m), own
		if only := (Match{Surface: m.Surface}); m.equal(&only) {
			e.layer = surface
		}
	}
	e.guards = Guards{Validate: c.Validate, Pinned: c.Pinned}
	for _, r := range c.Redact {
		if r.Word != "" {
			e.guards.Secrets = true
			continue
		}
		e.guards.Redactions = append(e.guards.Redactions, Redaction{r.Name, regexp.MustCompile(r.Re)})
	}
	for i, r := range c.Rules {
		e.rules = append(e.rules, compileRule(fmt.Sprintf("rules[%d]", i), r))
	}
	return e, nil
}

func compileRule(label string, c Rule) rule {
	s, v := c.Deny, Deny
	switch {
	case c.Allow != nil:
		s, v = c.Allow, Allow
	case c.Ask != nil:
		s, v = c.Ask, Ask
	}
	r := rule{
		label: label, verdict: v, every: s.Tools == nil && s.Prompts == nil && s.Resources == nil,
		upstreams: compileAll(s.Upstreams, compileGlob), tools: compileAll(s.Tools,
			compileGlob), prompts: compileAll(s.Prompts, compileGlob),
		resources: compileAll(s.Resources, compilePlace),
	}
	for _, name := range sortedKeys(s.Where) {
		r.where = append(r.where, compileCondition(name, s.Where[name], v))
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

// compileMatch leaves out the keys that are not given.
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

// lower is strings.ToLower for A to Z alone: other letters that look alike in another case stay
// others.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// withDefaults fills in the burst of a rate.
func (l Limits) withDefaults() Limits {
	if l.Rate > 0 && l.Burst == 0 {
		l.Burst = max(1, int(math.Ceil(float64(l.Rate)*10)))
	}
	return l
}

// For returns the rights of a subject; never nil. Nothing of the subject is kept.
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
	return r
}

// narrow takes away the capabilities that no scope of the subject's gives.
func (r *Rights) narrow(gives map[string][]string, scopes []string) {
	r.scope, r.beyond = map[string]string{}, map[string]string{}
	for c := range r.held {
		for _, scope := range slices.Sorted(maps.Keys(gives)) { // of several that would do always the same one
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

// Decide is For, Bind and Decide in one.
func (p *Policy) Decide(s Subject, it Item, arguments raw.Object) (Decision, error) {
	return p.For(s).Bind(it).Decide(arguments)
}

// Rights are the policies that match one subject. They are immutable.
type Rights struct {
	entries []*entry
	held    map[string]bool // capabilities
	// by the capability, one of the subject's scopes that gives it; nil where scopes take nothing
	// away
	scope  map[string]string
	beyond map[string]string // capabilities that are not held for want of a scope alone, and such a scope
	guards Guards
	limits Limits
}

func (r *Rights) add(e *entry) {
	r.entries = append(r.entries, e)
	for _, c := range e.capabilities {
		r.held[c] = true
	}
	r.guards.add(&e.guards)
	r.limits = Limits{strictest(r.limits.Rate, e.limits.Rate), strictest(r.limits.Burst, e.limits.Burst),
		strictest(r.limits.Concurrent, e.limits.Concurrent)}
}

// strictest returns the lesser of two limits, of which 0 is none.
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

// Holds reports whether the subject holds a capability.
func (r *Rights) Holds(capability string) bool { return r.held[capability] }

// Guards are what is done to the content of calls.
type Guards struct {
	Redactions []Redaction
	Secrets    bool // known shapes of secrets are taken out, too
	Validate   bool
	Pinned     bool
}

// Redaction is a rule of what to take out of results.
type Redaction struct {
	Name string
	Re   *regexp.Regexp
}

func (g *Guards) add(o *Guards) {
	for _, r := range o.Redactions {
		if !slices.ContainsFunc(g.Redactions,
			func(q Redaction) bool { return q.Name == r.Name && q.Re.String() == r.Re.String() }) {
			g.Redactions = append(g.Redactions, r)
		}
	}
	g.Secrets, g.Validate, g.Pinned = g.Secrets || o.Secrets, g.Validate || o.Validate, g.Pinned || o.Pinned
}

// Guards returns what any of the policies wants; never nil, and not to be modified.
func (r *Rights) Guards() *Guards { return &r.guards }

// Limits returns the strictest of each limit of the policies; 0 is none. Where there is a Rate
// there is a Burst.
func (r *Rights) Limits() Limits { return r.limits }

// Equal reports whether the same policies with the same content match, so that nothing has changed
// for the subject.
func (r *Rights) Equal(o *Rights) bool {
	return slices.EqualFunc(r.entries, o.entries, func(a, b *entry) bool { return a.content == b.content }) &&
		maps.Equal(r.held, o.held) &&
		maps.Equal(r.beyond, o.beyond) && maps.Equal(r.scope, o.scope)
}
