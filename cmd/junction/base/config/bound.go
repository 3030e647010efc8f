package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"junction/policy"
	"junction/upstream/prose"
)

// This file checks who is bound to which endpoints. A mistake there would let a caller use more, or
// nothing.

// validateBound adds to d the mistakes in endpoints.NAME.match, and in the endpoints of keys and of
// policies.
func (c *Config) validateBound(d *decoder) {
	for _, name := range inOrder(d, "endpoints", c.Endpoints) {
		at := "endpoints." + name
		for _, p := range policy.ValidateMatch(c.Endpoints[name].Match) {
			if path := at + p.Path; !d.broken(path) && !d.within(path) {
				d.invalid(path, "%s", p.Text)
			}
		}
	}
	for i, k := range c.Auth.APIKeys {
		at := fmt.Sprintf("auth.api_keys[%d].endpoints", i)
		if d.has(at) && len(k.Endpoints) == 0 && !d.broken(at) {
			d.invalid(at, "is empty, so that the key could use nothing; name an endpoint, or remove the key endpoints")
		}
		c.validateNamed(d, at, k.Endpoints)
	}
	for i, p := range c.Policies {
		c.validateNamed(d, fmt.Sprintf("policies[%d].endpoints", i), p.Endpoints)
	}
}

// validateNamed adds to d the names of a list that are no endpoints.
func (c *Config) validateNamed(d *decoder, at string, list []string) {
	all := append([]string{"mcp"}, slices.Sorted(maps.Keys(c.Endpoints))...)
	for name := range c.Upstreams {
		all = append(all, "mcp/"+name)
	}
	for i, name := range list {
		path := fmt.Sprintf("%s[%d]", at, i)
		if len(list) == 1 && !d.has(path) {
			path = at
		}
		if slices.Contains(all, name) || d.broken(path) || d.within(path) {
			continue
		}
		problem := "there is no endpoint " + prose.Quote(name) + "; name an entry of endpoints, mcp for /mcp, or " +
			"mcp/NAME for /mcp/NAME"
		if near := prose.Closest(all, strings.TrimSuffix(strings.TrimPrefix(name, "/"), "/mcp")); len(near) > 0 {
			problem = "there is no endpoint " + prose.Quote(name) + "; did you mean " + near[0] + "?"
		}
		d.invalid(path, "%s", problem)
	}
}
