package diagnose

import (
	"maps"
	"slices"

	"junction/auth"
	"junction/cmd/junction/base/config"
	"junction/policy"
	"junction/upstream"
)

// This file finds which API keys gain or lose which tools by a change of the file.

// An access is what a caller may do with a tool.
type access uint8

const (
	noAccess access = iota
	asked           // after an approval
	allowed
	byArguments // it depends on the arguments
)

// An accessible is a tool under the names of one configuration.
type accessible struct {
	item    policy.Item
	offered bool
}

// under returns a tool of a list under the names of a configuration.
func under(c *config.Config, upstreamName string, tool *ListItem) accessible {
	u, there := c.Upstreams[upstreamName]
	if !there || u.Off() {
		return accessible{}
	}
	parsed, err := upstream.ParseItem(tool.Name, tool.Definition)
	rule, offered := u.Offers(tool.Name)
	if err != nil || !offered {
		return accessible{}
	}
	it := itemNamed(c, upstreamName, upstream.PartTools, tool.Name).Item
	it.Hints = policy.HintsOf(parsed.Definition)
	it.Requires = slices.Concat(u.Capabilities, rule.Capabilities, tool.Requires)
	return accessible{it, true}
}

// of returns what a caller with the rights may do with the tool.
func (a *accessible) of(r *policy.Rights) access {
	if !a.offered {
		return noAccess
	}
	ruling := r.Bind(a.item)
	if !ruling.Visible() {
		return noAccess
	}
	switch d, sure := ruling.Unconditional(); {
	case !sure:
		return byArguments
	case d.Verdict.Allows():
		return allowed
	case d.Verdict.Asks():
		return asked
	}
	return noAccess
}

// Accesses returns what a change means for each API key, by the lists of the running proxy, and the enabled
// upstreams of the new configuration whose tools the lists do not have. Keys that nothing changes for are left out.
func (all Lists) Accesses(before, after *config.Config) (keys []config.Access, unknown []string, err error) {
	was, err := before.Compile()
	if err != nil {
		return nil, nil, err
	}
	is, err := after.Compile()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(after.Upstreams)) {
		if u := after.Upstreams[name]; !u.Off() && all.of(after, name) == nil {
			unknown = append(unknown, name)
		}
	}
	for _, key := range namesOf(before, after) {
		who := policy.Subject{Kind: string(auth.KindKey), ID: string(auth.KindKey) + ":" + key, Key: key}
		a := config.Access{Key: key}
		old, next := rightsOf(before, was, who), rightsOf(after, is, who)
		for i := range all {
			all[i].compare(before, after, old, next, &a)
		}
		for _, name := range unknown {
			u := after.Upstreams[name]
			k := slices.IndexFunc(after.Known(), func(k policy.Known) bool { return k.Name == name })
			if _, had := before.Upstreams[name]; !had && next != nil &&
				!after.Policies.LeavesOutOf(key, name, u.Capabilities, after.Known()[k].Begin) {
				a.Joins = append(a.Joins, name)
			}
		}
		if !a.None() {
			keys = append(keys, a)
		}
	}
	return keys, unknown, nil
}

// rightsOf returns the rights of a caller; nil if the configuration does not have its key.
func rightsOf(c *config.Config, p *policy.Policy, who policy.Subject) *policy.Rights {
	if !slices.ContainsFunc(c.Auth.APIKeys, func(k auth.Key) bool { return k.Name == who.Key }) {
		return nil
	}
	return p.For(who)
}

// namesOf returns the names of the API keys of both configurations, sorted.
func namesOf(before, after *config.Config) (names []string) {
	for _, k := range slices.Concat(before.Auth.APIKeys, after.Auth.APIKeys) {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// compare adds what changes for a caller with the tools of an upstream. The lists are those of before.
func (l *UpstreamList) compare(before, after *config.Config, old, next *policy.Rights, a *config.Access) {
	tools := l.Items[upstream.PartTools.String()]
	if _, there := after.Upstreams[l.Name]; there && (Lists{*l}).of(after, l.Name) == nil {
		return // the new program may list others
	}
	for i := range tools {
		from, to := under(before, l.Name, &tools[i]), under(after, l.Name, &tools[i])
		had, has := noAccess, noAccess
		if old != nil {
			had = from.of(old)
		}
		if next != nil {
			has = to.of(next)
		}
		switch {
		case had == has:
		case has == noAccess:
			a.Loses = append(a.Loses, exposed(&from))
		case had == noAccess:
			a.Gains = append(a.Gains, exposed(&to))
			if has == asked {
				a.Asks = append(a.Asks, exposed(&to))
			}
		case has == asked:
			a.Asks = append(a.Asks, exposed(&to))
		case had == asked && has == allowed:
			a.Unasked = append(a.Unasked, exposed(&to))
		default:
			a.Other = append(a.Other, exposed(&to))
		}
	}
}

// exposed returns the name of a tool for clients.
func exposed(a *accessible) string { return a.item.Names[len(a.item.Names)-1] }
