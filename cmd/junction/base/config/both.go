package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"junction/auth"
	"junction/auth/authserver"
	"junction/auth/authserver/provider"
	"junction/policy"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/yamlread"
)

// This file is about a reload that is refused in part. Two files are then in force, and a call passes
// if both files let it pass: the last file that was in force as a whole, and the newest one.

// Pair are these two files.
type Pair struct{ Old, Next *Config }

// Partial has the keys of the newest file that are not in force, or not alone. An entry that only the
// newest file has is a key that waits.
type Partial struct {
	Waits   []string `json:"waits,omitempty"`   // the old value stays
	Both    []string `json:"both,omitempty"`    // the stricter value counts
	Neither []string `json:"neither,omitempty"` // the entry with the key is not in force
}

// Lines returns the keys for people, one line for each kind. A nil Partial has none.
func (p *Partial) Lines() (lines []string) {
	if p == nil {
		return nil
	}
	for _, kind := range p.kinds() {
		if len(*kind.keys) > 0 {
			lines = append(lines, kind.text+": "+strings.Join(*kind.keys, ", "))
		}
	}
	return lines
}

// Attrs returns the keys as attributes of a log line.
func (p *Partial) Attrs() (attrs []any) {
	for _, kind := range p.kinds() {
		if len(*kind.keys) > 0 {
			attrs = append(attrs, kind.word, *kind.keys)
		}
	}
	return attrs
}

// kindOfKeys is one list of a Partial.
type kindOfKeys struct {
	keys       *[]string
	word, text string
}

func (p *Partial) kinds() []kindOfKeys {
	return []kindOfKeys{{&p.Waits, "waits", "the old value stays"}, {&p.Both, "both", "the stricter value counts"},
		{&p.Neither, "neither", "the entry is not in force"}}
}

// maxPartial is the most keys of each kind that are named.
const maxPartial = 50

// cut shortens the lists, and drops the keys that wait for a restart, which have a list of their own.
func (p *Partial) cut(restart []string) {
	for _, kind := range p.kinds() {
		*kind.keys = slices.DeleteFunc(*kind.keys, func(key string) bool { return slices.Contains(restart, key) })
		if more := len(*kind.keys) - maxPartial; more > 0 {
			*kind.keys = append((*kind.keys)[:maxPartial:maxPartial], fmt.Sprintf("and %d more", more))
		}
	}
}

// whole returns the last configuration that was in force as a whole.
func (c *Config) whole() *Config {
	if c.Both != nil {
		return c.Both.Old
	}
	return c
}

// Compile returns the policy of the configuration: that of both files, after a reload that was refused
// in part.
func (c *Config) Compile() (*policy.Policy, error) {
	if c.Both != nil {
		old, err := c.Both.Old.Compile()
		if err != nil || c.Both.Old.sameRules(c.Both.Next) {
			return old, err
		}
		next, err := c.Both.Next.Compile()
		return policy.Both(old, next), err
	}
	if c.Policies == nil {
		return policy.Open().WithScopes(c.Auth.ScopeCapabilities), nil
	}
	compiled, err := policy.Compile(c.Policies)
	return compiled.WithScopes(c.Auth.ScopeCapabilities), err
}

// sameRules reports whether the policies of two files are the same.
func (c *Config) sameRules(o *Config) bool {
	return reflect.DeepEqual(c.Policies, o.Policies) &&
		reflect.DeepEqual(c.Auth.ScopeCapabilities, o.Auth.ScopeCapabilities)
}

// meet returns the configuration of two files, of which c was in force as a whole. It allows nothing that
// one of them does not allow. It changes neither.
func (c *Config) meet(next *Config) (*Config, Partial) {
	r, given, x := *c, *next, narrowing{}
	if c.Auth.OAuth != nil || next.Auth.OAuth != nil {
		given.keepScopes(c) // a client cannot get a new scope before the restart
	}
	r.Both = &Pair{c, &given}
	x.walk("", "", reflect.ValueOf(&r).Elem(), reflect.ValueOf(next).Elem())
	if c.Auth.OAuth != nil {
		oauth, other := *c.Auth.OAuth, &authserver.Config{}
		if next.Auth.OAuth != nil {
			other = next.Auth.OAuth
		}
		const key = "auth.oauth.identity_providers"
		x.walk(key, key, reflect.ValueOf(&oauth.IdentityProviders).Elem(), reflect.ValueOf(other.IdentityProviders))
		oauth.IdentityProviders = x.issuers(key, oauth.IdentityProviders, c.Auth.OAuth.IdentityProviders)
		r.Auth.OAuth = &oauth
	}
	x.stricter(&r, c, next)
	r.Auth.authenticates(c.Auth.Needed() || next.Auth.Needed())
	return &r, x.Partial
}

// issuers leaves out the identity providers of an issuer if one of them is already left out: a user has the
// issuer, and not the provider. old are the providers of the old file.
func (x *narrowing) issuers(key string, kept, old []provider.Config) (whole []provider.Config) {
	all, left := map[string]int{}, map[string]int{}
	for _, p := range old {
		all[p.Issuer]++
	}
	for _, p := range kept {
		left[p.Issuer]++
	}
	for _, p := range kept {
		if left[p.Issuer] < all[p.Issuer] {
			x.Neither = append(x.Neither, key+"["+p.ID+"].issuer")
			continue
		}
		whole = append(whole, p)
	}
	return whole
}

// A narrowing makes one configuration of two.
type narrowing struct{ Partial }

// walk gives the value at a path its effect. r has the old value, and gets the one that is in force;
// row is the path in effects. It returns false if the entry with the value is not in force.
func (x *narrowing) walk(path, row string, r, next reflect.Value) (stays bool) {
	effect := effects[row]
	if row == "" {
		effect = inside
	}
	switch {
	case effect != inside && reflect.DeepEqual(r.Interface(), next.Interface()):
		return true
	case effect == waits:
		x.Waits = append(x.Waits, path)
	case effect == both:
		x.Both = append(x.Both, path)
	case effect == neither:
		x.Neither = append(x.Neither, path)
		return false
	case effect != inside: // the section with the restarts names it
	case r.Kind() == reflect.Struct:
		keys := yamlread.Keys(r.Type())
		stays = true
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			i := keys[key]
			its := x.walk(yamlread.Join(path, key), yamlread.Join(row, key), r.FieldByIndex(i), next.FieldByIndex(i))
			stays = stays && its
		}
		return stays
	case r.Kind() == reflect.Pointer:
		x.optional(path, row, r, next)
	case r.Kind() == reflect.Map:
		x.entries(path, row, r, next)
	default:
		x.list(path, row, r, next)
	}
	return true
}

// optional is walk for a section that one of the files may not have.
func (x *narrowing) optional(path, row string, r, next reflect.Value) {
	switch {
	case r.IsNil() && next.IsNil():
	case r.IsNil():
		x.Waits = append(x.Waits, path)
	case next.IsNil():
		r.SetZero()
	default:
		own := reflect.New(r.Type().Elem())
		own.Elem().Set(r.Elem())
		if r.Set(own); !x.walk(path, row, own.Elem(), next.Elem()) {
			r.SetZero()
		}
	}
}

// entries is walk for a mapping of entries by name.
func (x *narrowing) entries(path, row string, r, next reflect.Value) {
	kept := reflect.MakeMap(r.Type())
	for _, name := range slices.SortedFunc(slices.Values(r.MapKeys()), byName) {
		entry := reflect.New(r.Type().Elem()).Elem()
		entry.Set(r.MapIndex(name))
		now := next.MapIndex(name)
		if now.IsValid() && x.walk(yamlread.Join(path, name.String()), row+".*", entry, now) {
			kept.SetMapIndex(name, entry)
		}
	}
	for _, name := range slices.SortedFunc(slices.Values(next.MapKeys()), byName) {
		if !r.MapIndex(name).IsValid() {
			x.Waits = append(x.Waits, yamlread.Join(path, name.String()))
		}
	}
	r.Set(kept)
}

func byName(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }

// identities has the key that tells the entries of a list apart.
var identities = map[string]string{"auth.api_keys": "hash", "auth.jwt": "issuer",
	"auth.oauth.identity_providers": "id", "auth.oauth.clients.static": "id"}

// list is walk for a list of entries.
func (x *narrowing) list(path, row string, r, next reflect.Value) {
	kept := reflect.MakeSlice(r.Type(), 0, r.Len())
	id := func(list reflect.Value, i int) any {
		entry := list.Index(i)
		return entry.FieldByIndex(yamlread.Keys(entry.Type())[identities[row]]).Interface()
	}
	find := func(list reflect.Value, id0 any) int {
		for i := range list.Len() {
			if id(list, i) == id0 {
				return i
			}
		}
		return -1
	}
	for i := range r.Len() {
		entry := reflect.New(r.Type().Elem()).Elem()
		entry.Set(r.Index(i))
		k := find(next, id(r, i))
		if k >= 0 && x.walk(path+"["+shownEntry(entry, id(r, i))+"]", row, entry, next.Index(k)) {
			kept = reflect.Append(kept, entry)
		}
	}
	for i := range next.Len() {
		if find(r, id(next, i)) < 0 {
			x.Waits = append(x.Waits, path+"["+shownEntry(next.Index(i), id(next, i))+"]")
		}
	}
	if kept.Len() == 0 {
		kept = reflect.Zero(r.Type()) // an empty list of keys is a mistake
	}
	r.Set(kept)
}

// shownEntry returns the name of an entry of a list.
func shownEntry(entry reflect.Value, id any) string {
	if k, is := entry.Interface().(auth.Key); is {
		return KeyNames([]auth.Key{k})[0]
	}
	return fmt.Sprint(id)
}

// stricter sets in r the values of the keys that both files decide, besides those of the policies.
func (x *narrowing) stricter(r, old, next *Config) {
	r.AllowedOrigins = common(old.AllowedOrigins, next.AllowedOrigins)
	r.AllowedHosts = common(old.AllowedHosts, next.AllowedHosts)
	r.Names = strictestNames(old.Names, next.Names)
	r.Folders = old.Folders.meet(next.Folders)
	r.Own = slices.Concat(old.Own, next.Own)
	r.Auth.None = old.Auth.None && next.Auth.None
	r.Auth.TrustedProxies = overlap(old.Auth.TrustedProxies, next.Auth.TrustedProxies)
	if r.readsAddresses() {
		r.Auth.Disputed = disputed(old.Auth.TrustedProxies, next.Auth.TrustedProxies)
	}
	x.audiences(r, old, next)
	r.Writable = union(union(old.Writable, next.Writable),
		union(upstream.Writable(old.Upstreams, ""), upstream.Writable(next.Upstreams, "")))
	for name, u := range r.Upstreams {
		n := next.Upstreams[name]
		if n.Off() {
			delete(r.Upstreams, name)
			continue
		}
		u.Capabilities = union(u.Capabilities, n.Capabilities)
		u.Separate = u.Separate || n.Separate
		u.Blocked = cmp.Or(n.Blocked, u.Blocked)
		if !reflect.DeepEqual(u.Tools, n.Tools) || u.Expose != n.Expose || u.PrefixOr(name) != n.PrefixOr(name) {
			u.Also = &upstream.Config{Prefix: n.Prefix, Expose: n.Expose, Tools: n.Tools}
		}
		r.Upstreams[name] = u
	}
	for name, e := range r.Endpoints {
		switch of := next.Endpoints[name].Upstreams; {
		case len(e.Upstreams) == 0: // all
			e.Upstreams = of
		case len(of) > 0:
			e.Upstreams = common(e.Upstreams, of)
		}
		removed := func(u string) bool { _, runs := r.Upstreams[u]; return !runs }
		bound := len(e.Upstreams) > 0 || len(old.Endpoints[name].Upstreams) > 0
		if e.Upstreams = slices.DeleteFunc(slices.Clone(e.Upstreams), removed); bound && len(e.Upstreams) == 0 {
			delete(r.Endpoints, name) // an empty list would be all
			continue
		}
		r.Endpoints[name] = e
	}
}

// strictestNames returns names with which an item exists only if both sections give it the same name.
func strictestNames(old, next view.Names) view.Names {
	shown := func(n view.Names) int { // false is stricter than the default, and that is stricter than true
		switch {
		case n.AppTools == nil:
			return 1
		case *n.AppTools:
			return 2
		}
		return 0
	}
	r := old
	if shown(next) < shown(old) {
		r.AppTools = next.AppTools
	}
	a, b := old.WithDefaults(), next.WithDefaults()
	if a.MaxLength != b.MaxLength || a.Separator != b.Separator {
		r.Also = &next
	}
	return r
}

// audiences leaves out the issuers whose tokens are for one endpoint by one file, and perhaps for all by
// the other one: those with a URL as audience, if public_url differs.
func (x *narrowing) audiences(r, old, next *Config) {
	if old.PublicURL == next.PublicURL {
		return
	}
	isURL := func(s string) bool { return strings.Contains(s, "://") }
	r.Auth.JWT = slices.DeleteFunc(slices.Clone(r.Auth.JWT), func(i auth.Issuer) bool {
		bound := slices.ContainsFunc(i.Audiences, isURL)
		if bound {
			x.Neither = append(x.Neither, "auth.jwt["+i.Issuer+"].audiences")
		}
		return bound
	})
	if i := r.Auth.Introspection; i != nil && slices.ContainsFunc(i.Audiences, isURL) {
		x.Neither, r.Auth.Introspection = append(x.Neither, "auth.introspection.audiences"), nil
	}
}

// readsAddresses reports whether the address of a client decides anything.
func (c *Config) readsAddresses() bool {
	policies := c.Policies
	if c.Both != nil {
		policies = slices.Concat(c.Both.Old.Policies, c.Both.Next.Policies)
	}
	bound := func(m *policy.Match) bool { return m != nil && len(m.CIDR) > 0 }
	return slices.ContainsFunc(c.Auth.APIKeys, func(k auth.Key) bool { return len(k.CIDRs) > 0 }) ||
		slices.ContainsFunc(policies, func(e policy.Entry) bool { return bound(e.Match) }) ||
		slices.ContainsFunc(slices.Collect(maps.Keys(c.Endpoints)), func(name string) bool {
			return bound(c.Endpoints[name].Match)
		})
}

// overlap returns the networks that are in networks of both lists.
func overlap(a, b []auth.CIDR) (both []auth.CIDR) {
	for _, x := range a {
		for _, y := range b {
			if !x.Overlaps(y.Prefix) {
				continue
			}
			longer := x // which is within the other
			if y.Bits() > x.Bits() {
				longer = y
			}
			if !slices.Contains(both, longer) {
				both = append(both, longer)
			}
		}
	}
	return both
}

// disputed returns the networks of both lists; nil if the lists have the same ones.
func disputed(a, b []auth.CIDR) []auth.CIDR {
	in := func(list []auth.CIDR) func(auth.CIDR) bool {
		return func(c auth.CIDR) bool { return !slices.Contains(list, c) }
	}
	if !slices.ContainsFunc(a, in(b)) && !slices.ContainsFunc(b, in(a)) {
		return nil
	}
	return slices.Concat(a, b)
}

// union returns the sorted elements of both lists.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// common returns the elements of a that b has, too.
func common[T comparable](a, b []T) []T {
	return slices.DeleteFunc(slices.Clone(a), func(v T) bool { return !slices.Contains(b, v) })
}
