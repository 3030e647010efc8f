package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"junction/auth"
	"junction/proxy"
	"junction/proxy/view"
	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// This file is about a changed file while a proxy runs: which part of it takes effect at once.

// A Change is the effect of a changed file on the configuration in force.
type Change struct {
	Config  *Config  `json:"-"`       // to put in force
	Restart []string `json:"restart"` // the keys whose change waits for a restart; the old values stay in Config
	// Refused is why the reload is refused in part, so that both files decide; nil if all but Restart takes
	// effect.
	Refused error `json:"-"`
	// Partial has what is not in force because of Refused; nil without Refused.
	Partial *Partial `json:"partial,omitempty"`
	// The upstreams that are added, changed and removed. A disabled upstream counts as removed.
	Added   []string `json:"added"`
	Changed []string `json:"changed"`
	Removed []string `json:"removed"`
	// The names of API keys that are no longer accepted.
	Revoked []string `json:"revoked"`
	// Opens means that the new file has no authentication, and the old one has.
	Opens bool `json:"opens,omitempty"`
	// The names of the policies that are added, changed and removed.
	Policies []string `json:"policies"`
	// What happens to each of them.
	PolicyChanges []PolicyChange `json:"policy_changes,omitempty"`
	// The API keys that are accepted from now on, and those that are no longer, in the order of the
	// files. Several keys may have one name.
	AddedKeys, RevokedKeys []auth.Key `json:"-"`

	// Keys are the keys of the file with other values, outside of upstreams, policies and auth.api_keys, and
	// UpstreamKeys those of each changed upstream. Compare sets both.
	Keys         []string            `json:"keys,omitempty"`
	UpstreamKeys map[string][]string `json:"upstream_keys,omitempty"`
	// Access is what the change means for the holders of API keys, by the lists of a running Junction, and Unknown
	// the upstreams that the lists do not have. Without these lists, Listed is false, and Unlisted is why. The
	// caller of Compare sets them.
	Access   []Access `json:"access,omitempty"`
	Unknown  []string `json:"unknown,omitempty"`
	Listed   bool     `json:"listed,omitempty"`
	Unlisted string   `json:"unlisted,omitempty"`

	// Mistaken means that a file has mistakes, and that the change is between the parts without them.
	Mistaken bool `json:"mistaken,omitempty"`

	before *Config // in force before the change
	meet   *Config // of both files
	partly Partial // what meet lacks of the new file
}

// Follow returns what a running proxy does when its file changes to next, a configuration without
// mistakes. A change of some keys waits for a restart; everything else takes effect, unless the
// mixture of both files is itself a mistake, such as a listener without authentication. Then both files
// decide: the new one, and the last one that was in force as a whole. Follow changes next.
func (c *Config) Follow(next *Config) Change {
	old := c.whole()
	alone := append(next.mistakes(), old.mistakes()...)
	authenticates := next.Auth.Needed()
	change := Change{Config: next, before: c, Opens: !old.Auth.Open() && next.Auth.Open()}
	change.meet, change.partly = old.meet(next)
	change.Restart = next.carry(old)
	change.partly.cut(change.Restart)
	var refused error
	if len(change.Restart) > 0 {
		next.separate()
		for _, p := range next.mistakes() {
			if !slices.ContainsFunc(alone, func(q Problem) bool { return p.Path == q.Path && p.Text == q.Text }) {
				refused = errors.New("without these keys, " + p.Path + " " + p.Text)
				break
			}
		}
		if authenticates && !next.Auth.Needed() {
			refused = errors.New("without these keys, no request would be authenticated")
		}
	}
	if refused != nil {
		change.Refuse(refused)
	} else {
		change.compare()
	}
	return change
}

// Refuse makes both files decide, because of an error.
func (ch *Change) Refuse(why error) {
	ch.Config, ch.Partial, ch.Refused = ch.meet, &ch.partly, why
	ch.compare()
}

// mistakes returns the mistakes of a configuration that is not that of one file. It does not change c,
// which may be in force.
func (c *Config) mistakes() Problems {
	d := newDecoder("", func(string) (string, bool) { return "", true }, nil)
	own := *c // validate completes audit.file
	own.validate(d)
	return d.Problems
}

// carry replaces the values of c that need a restart by the old ones, and returns their keys.
func (c *Config) carry(old *Config) (keys []string) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(old).Elem()
	for _, key := range slices.Sorted(maps.Keys(effects)) {
		if effects[key] != restarts || strings.HasPrefix(key, "auth.oauth.") {
			continue
		}
		value, was := keyOf(to, key), keyOf(from, key)
		if reflect.DeepEqual(withDefaults(value), withDefaults(was)) {
			continue
		}
		value.Set(was)
		if keys = append(keys, key); key == "replicas" {
			c.Audit = old.Audit // its file may have the name of the replica
		}
	}
	if old.Replicas.On() {
		keys = append(keys, c.carryHard(old)...)
	}
	if old.Auth.OAuth == nil && !slices.Contains(keys, "auth.oauth") {
		slices.Sort(keys)
		return keys
	}
	if old.PublicURL != c.PublicURL { // tokens and pages are bound to the URL
		keys, c.PublicURL = append(keys, "public_url"), old.PublicURL
	}
	if !slices.Equal(scopes(old), scopes(c)) {
		keys = append(keys, "auth.scope_capabilities")
		c.keepScopes(old)
	}
	slices.Sort(keys)
	return keys
}

// carryHard replaces the values that all members must have equal by the old ones, and returns their keys: a
// member that changed them alone would keep the others out.
func (c *Config) carryHard(old *Config) (keys []string) {
	for _, path := range hardDiffering(old, c) {
		if path == "auth" { // authentication is on or off
			c.Auth = old.Auth
			return []string{"auth"}
		}
		at := strings.Split(path, ".")
		key := at[0]
		if key == "auth" {
			key += "." + at[1]
		}
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
			keyOf(reflect.ValueOf(c).Elem(), key).Set(keyOf(reflect.ValueOf(old).Elem(), key))
		}
	}
	return keys
}

// keyOf returns the field of a key, such as auth.oauth.
func keyOf(v reflect.Value, key string) reflect.Value {
	for name := range strings.SplitSeq(key, ".") {
		v = v.FieldByIndex(yamlread.Keys(v.Type())[name])
	}
	return v
}

// withDefaults returns a value of a key, with the defaults of its package.
func withDefaults(v reflect.Value) any {
	switch section := v.Interface().(type) {
	case proxy.Limits:
		return section.WithDefaults()
	case view.Names:
		return section.WithDefaults()
	}
	return v.Interface()
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

// KeyNames returns the keys as people read them: the name and the ID of each.
func KeyNames(keys []auth.Key) (names []string) {
	for _, k := range keys {
		names = append(names, k.Name+" ("+k.Hash.ID()+")")
	}
	return names
}

// compare sets the lists of what the configuration changes.
func (ch *Change) compare() {
	old := ch.before
	ch.Added, ch.Changed, ch.Removed, ch.Revoked = nil, nil, nil, nil
	policies := comparePolicies(old, ch.Config)
	ch.Policies, ch.PolicyChanges = policies.names(), policies.each()
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
	p := comparePolicies(ch.before, ch.Config)
	for _, list := range []struct {
		key   string
		names []string
	}{{"added", ch.Added}, {"changed", ch.Changed}, {"removed", ch.Removed}, {"revoked", ch.Revoked},
		{"policies_added", few(p.added)}, {"policies_changed", few(p.changed)}, {"policies_removed", few(p.removed)}} {
		if len(list.names) > 0 {
			attrs = append(attrs, list.key, list.names)
		}
	}
	return attrs
}

// few returns as many names as a log line shows, and how many more there are.
func few(names []string) []string {
	if more := len(names) - maxPartial; more > 0 {
		return append(names[:maxPartial:maxPartial], fmt.Sprintf("and %d more", more))
	}
	return names
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

// Rejected returns the sentence about why the reload is refused in part, or "".
func (ch *Change) Rejected() string {
	if ch.Refused == nil {
		return ""
	}
	text := ch.Refused.Error()
	if waiting := ch.Waiting(); waiting != "" {
		text = waiting + "; " + text
	}
	return text + "; a call passes only if the old file and the new one let it pass"
}

// Compare returns what a running proxy with the file old does when its file gets the content of
// next. If next has a mistake that rejects it, or old has one, the error names it, and the change is that between
// what can be read of both; it is nil if a file is no YAML.
func Compare(old, next string, getenv func(string) (string, bool)) (*Change, error) {
	before, _, err := LoadServing(old, getenv, false)
	was, ok := errors.AsType[Problems](err)
	if err != nil && !ok {
		return nil, err
	}
	text, err := readFile(next)
	if err != nil {
		return nil, err
	}
	after, d := parse(old, text, getenv, nil) // relative names are beside the old file, whose name the content gets
	is, _ := errors.AsType[Problems](d.err())
	if len(is) > 0 {
		is = after.block(d, is, true)
	}
	switch {
	case len(is) > 0:
		err = fmt.Errorf("%s has %s; a reload changes nothing", next, prose.Count(len(is), "mistake"))
	case len(was) > 0:
		err = fmt.Errorf("%s has %s: %w", old, prose.Count(len(was), "mistake"), was)
	}
	if slices.ContainsFunc(slices.Concat(was, is), func(p Problem) bool { return p.Path == "" }) {
		return nil, err
	}
	keys, ofUpstreams := changedKeys(before, after)
	change := before.Follow(after)
	change.Keys, change.UpstreamKeys = keys, ofUpstreams
	change.Mistaken = err != nil
	return &change, err
}

// Report returns what a reload does, for people.
func (ch *Change) Report() string {
	var does []string
	policies := comparePolicies(ch.before, ch.Config)
	now, later := ch.keysAtOnce()
	for _, list := range []struct {
		verb  string
		names []string
	}{{"adds", ch.Added}, {"changes", ch.withKeys()}, {"removes", ch.Removed},
		{"adds the keys", KeyNames(ch.AddedKeys)}, {"revokes the keys", KeyNames(ch.RevokedKeys)},
		{"adds the policies", policies.added},
		{"changes the policies", policies.changed}, {"removes the policies", policies.removed},
		{"changes these keys of the file:", few(now)}} {
		if len(list.names) > 0 {
			does = append(does, list.verb+" "+strings.Join(list.names, ", "))
		}
	}
	reload := "a reload"
	if ch.Mistaken {
		reload = "without the lines that have mistakes, a reload"
	}
	text := reload + " leaves all upstreams, keys and policies as they are"
	if len(does) > 0 {
		text = reload + " " + strings.Join(does, "; ")
	}
	if ch.Opens && ch.Refused == nil {
		text = "WARNING: authentication ends: with the new file, every program and user of this machine can connect " +
			"without a key; to keep it, put the section auth back\n" + text
	}
	for _, c := range ch.PolicyChanges {
		text += "\n" + c.Line()
	}
	for _, line := range slices.Concat(movedKeys(ch.before, ch.Config), spreadKeys(ch.before, ch.Config),
		ch.toolLines()) {
		text += "\n" + line
	}
	if rejected := ch.Rejected(); rejected != "" {
		return strings.Join(append([]string{text, rejected}, ch.Partial.Lines()...), "\n")
	} else if waiting := ch.Waiting(); waiting != "" {
		if len(later) > 0 {
			waiting += ": " + strings.Join(few(later), ", ")
		}
		return text + "\n" + waiting
	}
	return text
}
