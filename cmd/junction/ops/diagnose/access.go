package diagnose

import (
	"maps"
	"slices"

	"junction/cmd/junction/base/config"
	"junction/policy"
	"junction/upstream"
)

// This file finds which callers gain or lose which tools by a change of the file.

// An access is what a caller may do with a tool; a greater one is more.
type access uint8

const (
	noAccess    access = iota
	asked              // after an approval
	byArguments        // it depends on the arguments
	allowed
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

// at returns what a caller with the rights may do with the tool.
func (a *accessible) at(r *policy.Rights) access {
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

// Accesses returns what a change means for each API key and for users, by the lists of the running proxy, and the
// enabled upstreams of the new configuration whose tools the lists do not have. Callers that nothing changes for are
// left out.
func (all Lists) Accesses(before, after *config.Config) (callers []config.Access, unknown []string, err error) {
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
	for _, who := range callersOf(before, after) {
		a := config.Access{Key: who.key, Users: who.users}
		old, next := placesOf(before, was, who), placesOf(after, is, who)
		for i := range all {
			all[i].compare(before, after, old, next, &a)
		}
		for _, name := range unknown {
			if _, had := before.Upstreams[name]; !had && reaches(after, name, next) {
				a.Joins = append(a.Joins, name)
			}
		}
		if !a.None() {
			callers = append(callers, a)
		}
	}
	return callers, unknown, nil
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
func (l *UpstreamList) compare(before, after *config.Config, old, next []place, a *config.Access) {
	tools := l.Items[upstream.PartTools.String()]
	if _, there := after.Upstreams[l.Name]; there && (Lists{*l}).of(after, l.Name) == nil {
		return // the new program may list others
	}
	for i := range tools {
		from, to := under(before, l.Name, &tools[i]), under(after, l.Name, &tools[i])
		had, has := from.of(l.Name, old), to.of(l.Name, next)
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
