package diagnose

import (
	"cmp"
	"maps"
	"slices"

	"junction/auth"
	"junction/cmd/junction/base/config"
	"junction/policy"
)

// This file has the callers whose access a change of the file is compared for, and the endpoints that they may use.

// A caller is the holder of an API key, or a user who has only what a policy names.
type caller struct {
	key, users string // as in config.Access
	subject    policy.Subject
}

// callersOf returns the callers of both configurations: those with API keys, and if users can sign in, a user for each
// group, name and address that a policy names, and one with none of them.
func callersOf(before, after *config.Config) (list []caller) {
	for _, key := range namesOf(before, after) {
		list = append(list, caller{key: key,
			subject: policy.Subject{Kind: string(auth.KindKey), ID: string(auth.KindKey) + ":" + key, Key: key}})
	}
	if !before.Auth.SignsIn() && !after.Auth.SignsIn() {
		return list
	}
	users := map[string]policy.Subject{"each user whom no policy names": {}}
	for _, e := range slices.Concat(before.Policies, after.Policies) {
		if m := e.Match; m != nil {
			for _, name := range m.Group {
				users["a user of the group "+name] = policy.Subject{Groups: []string{name}}
			}
			for _, name := range m.User {
				users["the user "+name] = policy.Subject{User: name}
			}
			for _, address := range m.Email {
				users["the user with the address "+address] = policy.Subject{Email: address}
			}
			for _, domain := range m.EmailDomain {
				users["a user with an address of "+domain] = policy.Subject{Email: "someone@" + domain}
			}
		}
	}
	issuer := ""
	if all := slices.Concat(after.Auth.Issuers(), before.Auth.Issuers()); len(all) > 0 {
		issuer = all[0]
	}
	for _, who := range slices.Sorted(maps.Keys(users)) {
		s := users[who]
		s.Kind, s.ID, s.Issuer = string(auth.KindUser), who, issuer
		list = append(list, caller{users: who, subject: s})
	}
	return list
}

// A place is an endpoint that a caller may use, with the rights there.
type place struct {
	rights    *policy.Rights
	upstreams []string // of the endpoint; nil for all
}

// placesOf returns the endpoints that a caller may use: /mcp alone, which has all upstreams, or those to which a key or
// a policy binds the caller. It returns none if the configuration does not have the key.
func placesOf(c *config.Config, p *policy.Policy, who caller) (list []place) {
	var bound []string
	free := who.key == "" && c.Auth.SignsIn()
	for _, k := range c.Auth.APIKeys {
		if k.Name == who.key && who.key != "" {
			free = free || k.Endpoints == nil
			bound = append(bound, k.Endpoints...)
		}
	}
	if !free && bound == nil {
		return nil
	}
	add := func(word, surface string, upstreams []string, match *policy.Match) bool {
		s := who.subject
		s.Surface = surface
		rights := p.For(s)
		if !free && !slices.Contains(bound, word) || rights.Outside(word) != "" ||
			!policy.CompileMatch(match).Matches(s) {
			return false
		}
		list = append(list, place{rights, upstreams})
		return true
	}
	if add("mcp", "", nil, nil) {
		return list
	}
	for _, name := range slices.Sorted(maps.Keys(c.Endpoints)) {
		e := c.Endpoints[name]
		add(name, cmp.Or(e.Surface, name), e.Upstreams, e.Match)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Upstreams)) {
		add("mcp/"+name, "", []string{name}, nil)
	}
	return list
}

// of returns the most that a caller may do with a tool of an upstream at one of the places.
func (a *accessible) of(upstream string, places []place) (most access) {
	for _, p := range places {
		if p.upstreams == nil || slices.Contains(p.upstreams, upstream) {
			most = max(most, a.at(p.rights))
		}
	}
	return most
}

// reaches reports whether a caller may be able to use a tool of an upstream whose tools are not known.
func reaches(c *config.Config, name string, places []place) bool {
	known := c.Known()
	i := slices.IndexFunc(known, func(k policy.Known) bool { return k.Name == name })
	return slices.ContainsFunc(places, func(p place) bool {
		return (p.upstreams == nil || slices.Contains(p.upstreams, name)) &&
			p.rights.Reaches(policy.Tool, name, c.Upstreams[name].Capabilities, known[i].Begin)
	})
}
