package clients

import "junction/cmd/junction/desk/clients/format"

// This file has the habits of opencode.

// opencodeHabits are two layouts of the file, and rules about tools, whose names are SERVER_TOOL.
var opencodeHabits = habits{
	keys: opencodeKeys, firstList: true,
	rules: func(text []byte, _ []map[string]any) []rule { return opencodeRules(text) },
}

// opencodeKeys returns the keys that lead to the servers in a text: they are in mcp, or in mcp.servers.
func opencodeKeys(text []byte) []string {
	mcp, _ := format.Tree(text)["mcp"].(map[string]any)
	servers, ok := mcp["servers"].(map[string]any)
	if !ok {
		return nil
	}
	for _, own := range []string{"type", "command", "url"} { // then servers is the name of a server
		if _, isText := scalar(servers[own]); isText {
			return nil
		}
	}
	return []string{"mcp", "servers"}
}

// opencodeRules returns what tools and permission of opencode say. Since version 1.1.1, opencode puts the
// rules of tools before those of permission.
func opencodeRules(text []byte) (rules []rule) {
	root := format.Tree(text)
	for _, key := range []string{"tools", "permission"} {
		if all, ok := root[key].(string); ok {
			rules = append(rules, rule{"*", all})
		}
		values, _ := root[key].(map[string]any)
		members, _ := format.JSON{}.Servers(text, []string{key}) // in their order
		for _, m := range members {
			switch v := values[m.Name].(type) {
			case bool:
				rules = append(rules, rule{m.Name, map[bool]string{true: "allow", false: "deny"}[v]})
			case string:
				rules = append(rules, rule{m.Name, v})
			case map[string]any: // by arguments, which a call of MCP does not have there: it matches "*" alone
				action, _ := v["*"].(string)
				rules = append(rules, rule{m.Name, action})
				if len(v) > 1 || action == "" {
					rules = append(rules, rule{m.Name, patterns})
				}
			}
		}
	}
	return rules
}
