package entries

import (
	"fmt"
	"slices"
	"strings"

	"junction/cmd/junction/base/config"
)

// leftOut returns the note about the API keys to which no policy gives a tool of an upstream; none if every key
// may have some.
func leftOut(c *config.Config, name string) []string {
	u := c.Upstreams[name]
	_, begin := c.Names.Expose(u.PrefixOr(name), "")
	var keys []string
	for _, k := range c.Auth.APIKeys {
		if !slices.Contains(keys, k.Name) && c.Policies.LeavesOutOf(k.Name, name, u.Capabilities, begin) {
			keys = append(keys, k.Name)
		}
	}
	const most = 10 // in the note
	switch n := len(keys) - most; {
	case len(keys) == 0:
		return nil
	case n > 0:
		keys = append(keys[:most], fmt.Sprintf("and %d more", n))
	}
	return []string{fmt.Sprintf("No policy gives the keys %s a tool of %s. For all callers, add a policy without "+
		"match and with the rule: allow: { upstreams: %s }", strings.Join(keys, ", "), name, name)}
}
