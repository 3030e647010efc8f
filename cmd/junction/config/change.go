package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"junction/auth"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/prose"
)

// This file is about a changed file while a proxy runs: which part of it takes effect at once.

// A Change is the effect of a changed file on the configuration in force.
type Change struct {
	Config  *Config  `json:"-"`       // to put in force
	Restart []string `json:"restart"` // the keys whose change waits for a restart; the old values stay in Config
	// Refused is why Config is the old configuration without the parts that the new file removes; nil
	// if all but Restart takes effect.
	Refused error `json:"-"`
	// The upstreams that are added, changed and removed. A disabled upstream counts as removed.
	Added   []string `json:"added"`
	Changed []string `json:"changed"`
	Removed []string `json:"removed"`
	// The names of API keys that are no longer accepted.
	Revoked []string `json:"revoked"`
	// The API keys that are accepted from now on, and those that are no longer, in the order of the
	// files. Several keys may have one name.
	AddedKeys, RevokedKeys []auth.Key `json:"-"`
}

// Follow returns what a running proxy does when its file changes to next, a configuration without
// mistakes. A change of some keys waits for a restart; everything else takes effect, unless the
// mixture of both files is itself a mistake, such as a listener without authentication. Then only
// denies, revocations and removals take effect. Follow changes next.
func (c *Config) Follow(next *Config) Change {
	alone := append(next.mistakes(), c.mistakes()...)
	authenticates := next.Auth.Needed()
	stripped := c.without(next)
	change := Change{Config: next, Restart: next.carry(c)}
	if len(change.Restart) > 0 {
		next.separate()
		for _, p := range next.mistakes() {
			if !slices.ContainsFunc(alone, func(q Problem) bool { return p.Path == q.Path && p.Text == q.Text }) {
				change.Refused = errors.New("without these keys, " + p.Path + " " + p.Text)
				break
			}
		}
		if authenticates && !next.Auth.Needed() {
			change.Refused = errors.New("without these keys, no request would be authenticated")
		}
	}
	if change.Refused != nil {
		change.Config = stripped
	}
	change.compare(c)
	return change
}

// Refuse replaces the change by one that only removes, because of an error.
func (ch *Change) Refuse(old, next *Config, why error) {
	ch.Config, ch.Refused = old.without(next), why
	ch.compare(old)
}

// mistakes returns the mistakes of a configuration that is not that of one file. It does not change c,
// which may be in force.
func (c *Config) mistakes() Problems {
	d := newDecoder("", func(string) (string, bool) { return "", true })
	own := *c // validate completes audit.file
	own.validate(d)
	return d.Problems
}

// carry replaces the values of c that need a restart by the old ones, and returns their keys.
func (c *Config) carry(old *Config) (keys []string) {
	changed := func(key string, a, b any, keep func()) {
		if !reflect.DeepEqual(a, b) {
			keys = append(keys, key)
			keep()
		}
	}
	changed("listen", old.Listen, c.Listen, func() { c.Listen = old.Listen })
	changed("admin", old.Admin, c.Admin, func() { c.Admin = old.Admin })
	changed("metrics", old.Metrics, c.Metrics, func() { c.Metrics = old.Metrics })
	changed("limits", old.Limits.WithDefaults(), c.Limits.WithDefaults(), func() { c.Limits = old.Limits })
	changed("sessions", old.Sessions, c.Sessions, func() { c.Sessions = old.Sessions })
	changed("log", old.Log, c.Log, func() { c.Log = old.Log })
	changed("shutdown_grace", old.ShutdownGrace, c.ShutdownGrace, func() { c.ShutdownGrace = old.ShutdownGrace })
	changed("drain_delay", old.DrainDelay, c.DrainDelay, func() { c.DrainDelay = old.DrainDelay })
	changed("pins", old.Pins, c.Pins, func() { c.Pins = old.Pins })
	changed("storage", old.Storage, c.Storage, func() { c.Storage = old.Storage })
	changed("replicas", old.Replicas, c.Replicas, func() { c.Replicas, c.Audit = old.Replicas, old.Audit })
	changed("outbound", old.Outbound, c.Outbound, func() { c.Outbound = old.Outbound })
	if old.Auth.OAuth != nil || c.Auth.OAuth != nil { // tokens and pages are bound to the URL
		changed("public_url", old.PublicURL, c.PublicURL, func() { c.PublicURL = old.PublicURL })
		changed("auth.scope_capabilities", scopes(old), scopes(c), func() { c.keepScopes(old) })
	}
	changed("auth.oauth", old.Auth.OAuth, c.Auth.OAuth, func() { c.Auth.OAuth = old.Auth.OAuth })
	return keys
}

// scopes returns the scopes that the authorization server may grant beyond the default one. The
// server reads them only at its start.
func scopes(c *Config) []string { return slices.Sorted(maps.Keys(c.Auth.ScopeCapabilities)) }

// keepScopes leaves out new scopes, and takes all capabilities from removed ones. If the file has no
// scopes any more, which lifts a restriction, the old ones stay.
func (c *Config) keepScopes(old *Config) {
	next := c.Auth.ScopeCapabilities
	if len(next) == 0 {
		c.Auth.ScopeCapabilities = old.Auth.ScopeCapabilities
		return
	}
	c.Auth.ScopeCapabilities = map[string][]string{}
	if len(old.Auth.ScopeCapabilities) == 0 { // no token has a scope yet, and the restriction holds at once
		for scope := range next {
			c.Auth.ScopeCapabilities[scope] = nil
		}
	}
	for scope := range old.Auth.ScopeCapabilities {
		c.Auth.ScopeCapabilities[scope] = next[scope]
	}
}

// without returns c without what next does not have: keys, issuers, upstreams, tools, endpoints,
// origins and hosts. What both have is as narrow as in either, or is left out if that cannot be said. So
// the result allows no more than c, and no more than next but for the keys that wait for a restart.
func (c *Config) without(next *Config) *Config {
	r := *c
	r.Auth.Config = narrowedAuth(&c.Auth.Config, &next.Auth.Config)
	// without any key, no request would be authenticated
	if (c.Auth.Needed() || next.Auth.Needed()) && !r.Auth.Needed() {
		r.Auth = c.Auth
		// no key has the hash of zeros
		r.Auth.JWT, r.Auth.Introspection, r.Auth.APIKeys = nil, nil, []auth.Key{{Name: "nobody"}}
	}
	switch {
	case c.Policies == nil: // it allows everything
		r.Policies = next.Policies
	case next.Policies != nil:
		r.Policies = strictest(c.Policies, next.Policies)
	}
	r.AllowedOrigins = common(c.AllowedOrigins, next.AllowedOrigins)
	r.AllowedHosts = common(c.AllowedHosts, next.AllowedHosts)
	r.Upstreams = map[string]upstream.Config{}
	for name, u := range c.Upstreams {
		if n, there := next.Upstreams[name]; there && !n.Off() {
			r.Upstreams[name] = narrowed(u, n)
		}
	}
	r.Endpoints = maps.Clone(c.Endpoints)
	for name, e := range c.Endpoints {
		n, there := next.Endpoints[name]
		if !there || e.Surface != n.Surface || !reflect.DeepEqual(e.Match, n.Match) {
			delete(r.Endpoints, name) // policies and callers see another endpoint
		} else if e.Upstreams == nil && n.Upstreams != nil {
			e.Upstreams = slices.DeleteFunc(slices.Clone(n.Upstreams), func(u string) bool {
				_, runs := r.Upstreams[u]
				return !runs
			})
			r.Endpoints[name] = e
		} else if e.Upstreams != nil {
			e.Upstreams = slices.DeleteFunc(slices.Clone(e.Upstreams), func(u string) bool {
				_, runs := r.Upstreams[u]
				return !runs || n.Upstreams != nil && !slices.Contains(n.Upstreams, u)
			})
			r.Endpoints[name] = e
		}
	}
	r.separate()
	return &r
}

// narrowedAuth returns the keys, issuers and proxies that both sections have.
func narrowedAuth(old, next *auth.Config) auth.Config {
	r := *old
	r.None = old.None && next.None
	r.TrustedProxies = common(old.TrustedProxies, next.TrustedProxies)
	r.ScopeCapabilities = narrowedScopes(old.ScopeCapabilities, next.ScopeCapabilities)
	// A proxy that only one file trusts has its own address now, and its clients' address in that file.
	unsure := func(c auth.CIDR) bool {
		return slices.ContainsFunc(slices.Concat(old.TrustedProxies, next.TrustedProxies), func(p auth.CIDR) bool {
			return !slices.Contains(r.TrustedProxies, p) && p.Overlaps(c.Prefix)
		})
	}
	r.APIKeys = nil
	for _, k := range old.APIKeys {
		i := slices.IndexFunc(next.APIKeys, func(n auth.Key) bool { return n.Hash == k.Hash && n.Name == k.Name })
		if i < 0 {
			continue
		}
		k, ok := narrowedKey(k, next.APIKeys[i])
		bound := len(k.CIDRs) > 0
		k.CIDRs = slices.DeleteFunc(slices.Clone(k.CIDRs), unsure)
		if ok && (!bound || len(k.CIDRs) > 0) {
			r.APIKeys = append(r.APIKeys, k)
		}
	}
	r.JWT = nil
	for _, o := range old.JWT {
		i := slices.IndexFunc(next.JWT, func(n auth.Issuer) bool { return n.Issuer == o.Issuer })
		if i < 0 {
			continue
		}
		n := next.JWT[i]
		rules, ok := narrowedRules(o.TokenRules, n.TokenRules)
		if o.TokenRules, n.TokenRules = rules, rules; ok && reflect.DeepEqual(o, n) {
			r.JWT = append(r.JWT, o)
		}
	}
	if r.Introspection = nil; old.Introspection != nil && next.Introspection != nil {
		o, n := *old.Introspection, *next.Introspection
		rules, ok := narrowedRules(o.TokenRules, n.TokenRules)
		if o.TokenRules, n.TokenRules = rules, rules; ok && reflect.DeepEqual(o, n) {
			r.Introspection = &o
		}
	}
	return r
}

// narrowedKey returns a key that is accepted where both entries accept it. ok is false if that is nowhere.
func narrowedKey(a, b auth.Key) (k auth.Key, ok bool) {
	k = a
	if len(a.CIDRs) == 0 {
		k.CIDRs = b.CIDRs
	} else if len(b.CIDRs) > 0 {
		k.CIDRs = nil
		for _, x := range a.CIDRs {
			for _, y := range b.CIDRs {
				if x.Overlaps(y.Prefix) { // the longer one is within the other
					k.CIDRs = append(k.CIDRs, map[bool]auth.CIDR{true: x, false: y}[x.Bits() >= y.Bits()])
				}
			}
		}
		if len(k.CIDRs) == 0 {
			return k, false
		}
	}
	if len(a.Endpoints) == 0 {
		k.Endpoints = b.Endpoints
	} else if len(b.Endpoints) > 0 {
		if k.Endpoints = common(a.Endpoints, b.Endpoints); len(k.Endpoints) == 0 {
			return k, false
		}
	}
	if a.Expires.IsZero() || !b.Expires.IsZero() && b.Expires.Before(a.Expires.Time) {
		k.Expires = b.Expires
	}
	return k, true
}

// narrowedRules returns rules that accept a token if both do. ok is false if the rules are too different.
func narrowedRules(a, b auth.TokenRules) (r auth.TokenRules, ok bool) {
	r = a
	r.Audiences = common(a.Audiences, b.Audiences)
	r.RequiredScopes = slices.Concat(a.RequiredScopes, b.RequiredScopes)
	slices.Sort(r.RequiredScopes)
	r.RequiredScopes = slices.Compact(r.RequiredScopes)
	r.RequiredClaims = maps.Clone(a.RequiredClaims)
	for name, value := range b.RequiredClaims {
		if was, there := r.RequiredClaims[name]; there && was != value {
			return r, false
		}
		if r.RequiredClaims == nil {
			r.RequiredClaims = map[string]string{}
		}
		r.RequiredClaims[name] = value
	}
	return r, len(r.Audiences) > 0 && a.Issuer == b.Issuer && a.AudienceClaim == b.AudienceClaim &&
		reflect.DeepEqual(a.Claims, b.Claims)
}

// narrowedScopes returns what a scope allows in both sections. An empty section does not restrict.
func narrowedScopes(a, b map[string][]string) map[string][]string {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	both := map[string][]string{}
	for scope := range a {
		both[scope] = common(a[scope], b[scope])
	}
	return both
}

// narrowed returns u with the tools off and the capabilities required that either of u and n has.
func narrowed(u, n upstream.Config) upstream.Config {
	if reflect.DeepEqual(u.Tools, n.Tools) && slices.Equal(u.Capabilities, n.Capabilities) {
		return u
	}
	tools := upstream.Rules{}
	capabilities := slices.Concat(u.Capabilities, n.Capabilities)
	for _, g := range n.Tools {
		if g.Off() {
			tools = append(tools, g) // the first rule that matches counts
		}
		capabilities = append(capabilities, g.Capabilities...)
	}
	slices.Sort(capabilities)
	u.Tools, u.Capabilities = append(tools, u.Tools...), slices.Compact(capabilities)
	return u
}

// strictest returns policies that allow what both lists allow with the same entry, and deny, ask and
// restrict as each of them does.
func strictest(old, next policy.Config) policy.Config {
	all := policy.Config{} // an empty list denies everything
	of := func(list policy.Config, name string) (policy.Entry, bool) {
		i := slices.IndexFunc(list, func(e policy.Entry) bool { return e.Name == name })
		if i < 0 {
			return policy.Entry{}, false
		}
		return list[i], true
	}
	strip := func(e, other policy.Entry, both bool) policy.Entry {
		both = both && reflect.DeepEqual(e.Match, other.Match)
		e.Capabilities = slices.DeleteFunc(slices.Clone(e.Capabilities), func(c string) bool {
			return !both || !slices.Contains(other.Capabilities, c)
		})
		e.Rules = slices.DeleteFunc(slices.Clone(e.Rules), func(r policy.Rule) bool {
			return r.Allow != nil && !(both && slices.ContainsFunc(other.Rules, func(o policy.Rule) bool {
				return reflect.DeepEqual(r, o)
			}))
		})
		return e
	}
	for _, e := range next {
		o, there := of(old, e.Name)
		all = append(all, strip(e, o, there))
	}
	for i, e := range old {
		n, there := of(next, e.Name)
		if reflect.DeepEqual(e, n) {
			continue
		}
		e = strip(e, n, there)
		e.Name = fmt.Sprintf("%.50s.before.%d", e.Name, i)
		all = append(all, e)
	}
	return slices.DeleteFunc(all, func(e policy.Entry) bool { // what has no effect is a mistake
		_, err := policy.Compile(policy.Config{e})
		return err != nil
	})
}

// lackedKeys returns the keys of b that a lacks, by name and hash.
func lackedKeys(a, b *Config) (list []auth.Key) {
	for _, k := range b.Auth.APIKeys {
		has := func(o auth.Key) bool { return o.Hash == k.Hash && o.Name == k.Name }
		if k.Hash != (auth.Hash{}) && !slices.ContainsFunc(a.Auth.APIKeys, has) { // no key has the zero hash
			list = append(list, k)
		}
	}
	return list
}

// keyNames returns the keys as people read them: the name and the ID of each.
func keyNames(keys []auth.Key) (names []string) {
	for _, k := range keys {
		names = append(names, k.Name+" ("+k.Hash.ID()+")")
	}
	return names
}

// common returns the elements of a that b has, too.
func common[T comparable](a, b []T) []T {
	return slices.DeleteFunc(slices.Clone(a), func(v T) bool { return !slices.Contains(b, v) })
}

// compare sets the lists of what the configuration changes.
func (ch *Change) compare(old *Config) {
	ch.Added, ch.Changed, ch.Removed, ch.Revoked = nil, nil, nil, nil
	ch.AddedKeys, ch.RevokedKeys = lackedKeys(old, ch.Config), lackedKeys(ch.Config, old)
	for name, c := range ch.Config.Upstreams {
		before, there := old.Upstreams[name]
		switch on, was := !c.Off(), there && !before.Off(); {
		case on && !was:
			ch.Added = append(ch.Added, name)
		case was && !on:
			ch.Removed = append(ch.Removed, name)
		case on && !reflect.DeepEqual(before, c):
			ch.Changed = append(ch.Changed, name)
		}
	}
	for name, c := range old.Upstreams {
		if _, there := ch.Config.Upstreams[name]; !there && !c.Off() {
			ch.Removed = append(ch.Removed, name)
		}
	}
	for _, k := range ch.RevokedKeys {
		ch.Revoked = append(ch.Revoked, k.Name)
	}
	for _, list := range [][]string{ch.Added, ch.Changed, ch.Removed, ch.Revoked} {
		slices.Sort(list)
	}
}

// Attrs returns the lists as attributes of a log line.
func (ch *Change) Attrs() (attrs []any) {
	for _, list := range []struct {
		key   string
		names []string
	}{{"added", ch.Added}, {"changed", ch.Changed}, {"removed", ch.Removed}, {"revoked", ch.Revoked}} {
		if len(list.names) > 0 {
			attrs = append(attrs, list.key, list.names)
		}
	}
	return attrs
}

// Waiting returns the sentence about the keys that wait for a restart, or "".
func (ch *Change) Waiting() string {
	switch n := len(ch.Restart); n {
	case 0:
		return ""
	case 1:
		return ch.Restart[0] + " has changed, which needs a restart"
	default:
		return strings.Join(ch.Restart[:n-1], ", ") + " and " + ch.Restart[n-1] + " have changed, which needs a restart"
	}
}

// Rejected returns the sentence about why only denies, revocations and removals take effect, or "".
func (ch *Change) Rejected() string {
	if ch.Refused == nil {
		return ""
	}
	text := ch.Refused.Error()
	if waiting := ch.Waiting(); waiting != "" {
		text = waiting + "; " + text
	}
	return text + "; only what the file takes away is in force"
}

// Compare returns what a running proxy with the file old does when its file gets the content of
// next. If next has a mistake that rejects it, or old has one, the error counts the mistakes.
func Compare(old, next string, getenv func(string) (string, bool)) (*Change, error) {
	before, _, err := LoadServing(old, getenv, false)
	if ps, ok := errors.AsType[Problems](err); ok {
		return nil, Unusable(old, ps)
	} else if err != nil {
		return nil, err
	}
	after, _, err := LoadServing(next, getenv, true)
	if ps, ok := errors.AsType[Problems](err); ok {
		return nil, fmt.Errorf("%s has %s; a reload changes nothing", next, prose.Count(len(ps), "mistake"))
	} else if err != nil {
		return nil, err
	}
	change := before.Follow(after)
	return &change, nil
}

// Report returns what a reload does, for people.
func (ch *Change) Report() string {
	var does []string
	for _, list := range []struct {
		verb  string
		names []string
	}{{"adds", ch.Added}, {"changes", ch.Changed}, {"removes", ch.Removed}, {"adds the keys", keyNames(ch.AddedKeys)},
		{"revokes the keys", keyNames(ch.RevokedKeys)}} {
		if len(list.names) > 0 {
			does = append(does, list.verb+" "+strings.Join(list.names, ", "))
		}
	}
	text := "a reload leaves all upstreams and keys as they are"
	if len(does) > 0 {
		text = "a reload " + strings.Join(does, "; ")
	}
	if rejected := ch.Rejected(); rejected != "" {
		return text + "\n" + rejected
	} else if waiting := ch.Waiting(); waiting != "" {
		return text + "\n" + waiting
	}
	return text
}
