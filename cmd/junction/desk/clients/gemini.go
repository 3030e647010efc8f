package clients

import "junction/cmd/junction/desk/clients/format"

// geminiOff returns which servers Gemini CLI disables: it has lists of the servers that it uses, and of those
// that it does not.
func geminiOff(_ Home, _ Place, text []byte, _ []map[string]any) func(name string) bool {
	root := format.Tree(text)
	mcp, _ := root["mcp"].(map[string]any)
	return func(name string) bool {
		excluded, _ := listed(name, mcp["excluded"], root["excludeMCPServers"])
		allowed, limited := listed(name, mcp["allowed"], root["allowMCPServers"])
		return excluded || limited && !allowed
	}
}
