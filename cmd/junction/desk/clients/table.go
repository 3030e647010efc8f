package clients

import (
	"cmp"

	"junction/cmd/junction/desk/clients/format"
)

// table returns the clients. The order decides which of two equal servers names the entry.
func table() []*Client {
	return []*Client{
		{
			ID: "claude-code", Name: "Claude Code", format: format.JSON{}, keys: []string{"mcpServers"},
			syntax:  dollar | fallback,
			user:    []path{{file: "$CLAUDE_CONFIG_DIR/.claude.json"}, {file: ".claude.json"}},
			project: []path{{file: ".mcp.json"}},
			entry:   remote("http", "url", "Bearer ${"+KeyVariable+"}"), reads: true,
			folder: ofShell, starts: startsInFolder, traces: claudeTraces,
			command: stdioEntry("stdio"), env: "env",
			certs: nodeCerts, seen: "/mcp", projects: true, alike: dollarEnv | folders | inputs,
			program: "claude", adds: claudeAdds, snippet: claudeSnippet, habits: claudeHabits,
		},
		{
			// The app reads no URLs and expands nothing; junction stdio reads the key itself.
			ID: "claude-desktop", Name: "Claude Desktop", format: format.JSON{}, keys: []string{"mcpServers"},
			user:    []path{{base: appConfig, file: "Claude/claude_desktop_config.json"}},
			command: stdioEntry(""), env: "env", key: ByFile, seen: "Settings > Developer", folderless: true,
		},
		{
			ID: "cursor", Name: "Cursor", format: format.JSON{}, keys: []string{"mcpServers"},
			syntax:  dollarEnv | folders,
			user:    []path{{file: ".cursor/mcp.json"}},
			project: []path{{file: ".cursor/mcp.json"}},
			entry:   remote("", "url", "Bearer ${env:"+KeyVariable+"}"), reads: true,
			folder: ofEditor, starts: startsAtHome, traces: editorTraces("Cursor"),
			command: stdioEntry(""), env: "env", key: ByFile, seen: "Settings > Tools & MCP", snippet: cursorSnippet,
		},
		{
			ID: "vscode", Name: "VS Code", format: format.JSON{}, keys: []string{"servers"},
			syntax:  dollarEnv | folders | inputs,
			user:    vsCodeFiles(),
			project: []path{{file: ".vscode/mcp.json"}},
			entry: func(t Target) format.Object {
				return remote("http", "url", "Bearer ${input:"+cmp.Or(t.input, inputID(t.Name))+"}")(t)
			},
			command: stdioEntry("stdio"), env: "env", key: ByInput, reads: true,
			folder: ofEditor.inProjects(), starts: startsAtHome, traces: editorTraces("Code", "Code - Insiders"),
			seen: `the command "MCP: List Servers"`, snippet: vsCodeSnippet,
		},
		{
			ID: "codex", Name: "Codex", format: format.TOML{}, keys: []string{"mcp_servers"},
			user:    []path{{file: "$CODEX_HOME/config.toml"}, {file: ".codex/config.toml"}},
			project: []path{{file: ".codex/config.toml"}},
			entry:   codexEntry, command: stdioEntry(""), env: "env", reads: true,
			folder: ofVariables, starts: startsInFolder, traces: codexTraces,
			certs: sslCerts, seen: "/mcp", snippet: codexSnippet,
		},
		{
			ID: "gemini", Name: "Gemini CLI", format: format.JSON{}, keys: []string{"mcpServers"},
			syntax:  dollar | unbraced | fallback,
			user:    []path{{file: ".gemini/settings.json"}},
			project: []path{{file: ".gemini/settings.json"}},
			entry:   remote("", "httpUrl", "Bearer ${"+KeyVariable+"}"), reads: true,
			folder: ofShell, starts: startsInFolder, traces: geminiTraces,
			command: stdioEntry(""), env: "env",
			certs: nodeCerts, seen: "/mcp", snippet: geminiSnippet, habits: habits{off: geminiOff},
		},
		{
			ID: "copilot", Name: "Copilot CLI", format: format.JSON{}, keys: []string{"mcpServers"},
			syntax:  dollar | unbraced | fallback,
			user:    []path{{file: "$COPILOT_HOME/mcp-config.json"}, {file: ".copilot/mcp-config.json"}},
			project: []path{{file: ".github/mcp.json"}},
			entry:   withAllTools(remote("http", "url", "Bearer ${"+KeyVariable+"}")), reads: true,
			folder: ofShell, starts: startsInFolder, traces: copilotTraces,
			command: withAllTools(stdioEntry("local")), env: "env", certs: nodeCerts, seen: "/mcp show",
		},
		{
			ID: "opencode", Name: "opencode", format: format.JSON{}, keys: []string{"mcp"}, syntax: braces,
			user: []path{{base: config, file: "opencode/opencode.json"},
				{base: config, file: "opencode/opencode.jsonc"}},
			project: []path{{file: "opencode.json"}, {file: "opencode.jsonc"}},
			entry:   remote("remote", "url", "Bearer {env:"+KeyVariable+"}"), reads: true,
			folder: ofBraces, starts: startsInFolder,
			command: func(t Target) format.Object {
				return format.Object{{Key: "type", Value: "local"}, {Key: "command", Value: stdioWords(t)}}
			},
			env: "environment", certs: nodeCerts,
			seen: "opencode mcp list", habits: opencodeHabits,
		},
		{
			ID: "windsurf", Name: "Windsurf", format: format.JSON{}, keys: []string{"mcpServers"},
			syntax: dollarEnv | dollarFile,
			user:   []path{{file: ".codeium/windsurf/mcp_config.json"}},
			entry:  remote("", "serverUrl", "Bearer ${env:"+KeyVariable+"}"), reads: true,
			command: stdioEntry(""), env: "env", key: ByFile, seen: "Settings > Cascade > MCP Servers",
			traces: editorTraces("Windsurf"),
		},
		{
			ID: "zed", Name: "Zed", format: format.JSON{}, keys: []string{"context_servers"},
			user: []path{
				{base: config, file: "zed/settings.json", os: "linux"},
				{base: config, file: "zed/settings.json", os: "darwin"},
				{base: appConfig, file: "Zed/settings.json", os: "windows"},
			},
			project: []path{{file: ".zed/settings.json"}},
			entry:   remote("", "url", ""), // it expands nothing
			command: stdioEntry(""), env: "env", key: ByFile, seen: "the settings of the Agent Panel",
		},
		gooseClient(),
	}
}

// vsCodeFiles returns the files of the user of VS Code. Connect writes the first one that exists; the
// import also reads those of profiles, and the settings, where versions before 1.102 had the servers.
func vsCodeFiles() (files []path) {
	variants := []string{"Code/User/", "Code - Insiders/User/"}
	for _, user := range variants {
		files = append(files, path{base: appConfig, file: user + "mcp.json"})
	}
	// of a machine that is used remotely
	files = append(files, path{file: ".vscode-server/data/User/mcp.json", os: "linux"})
	settings := []string{"mcp", "servers"}
	for _, user := range variants {
		files = append(files,
			path{base: appConfig, file: user + "profiles/*/mcp.json", readOnly: true},
			path{base: appConfig, file: user + "settings.json", keys: settings, readOnly: true},
			path{base: appConfig, file: user + "profiles/*/settings.json", keys: settings, readOnly: true})
	}
	return files
}

// Seen returns where the client lists its servers: a command of it, or the way through its menus.
func (c *Client) Seen() string { return c.seen }

// remote returns the entry of a client that reads URLs, below key. kind is the value of type, if
// the client has that key. reference is how the client refers to the variable with the API key; ""
// means that it cannot.
func remote(kind, key, reference string) func(Target) format.Object {
	return func(t Target) (o format.Object) {
		if kind != "" {
			o = format.Object{{Key: "type", Value: kind}}
		}
		o = append(o, format.Member{Key: key, Value: t.URL})
		if t.Key && reference != "" {
			o = append(o, format.Member{Key: "headers", Value: format.Object{
				{Key: "Authorization", Value: reference}}})
		}
		return o
	}
}

// codexEntry names the variable of the key instead of referring to it.
func codexEntry(t Target) format.Object {
	o := format.Object{{Key: "url", Value: t.URL}}
	if t.Key {
		o = append(o, format.Member{Key: "bearer_token_env_var", Value: KeyVariable})
	}
	return o
}

// stdioWords returns the command line of junction stdio.
func stdioWords(t Target) []string {
	words := []string{cmp.Or(t.Program, "junction"), "stdio", "--url", t.URL}
	if t.KeyFile != "" {
		words = append(words, "--key-file", t.KeyFile)
	}
	return append(words, t.form.flags()...)
}

// stdioEntry returns the entry of a client that starts junction stdio. kind is the value of type, if the
// client has that key for commands.
func stdioEntry(kind string) func(Target) format.Object {
	return func(t Target) (o format.Object) {
		if kind != "" {
			o = format.Object{{Key: "type", Value: kind}}
		}
		words := stdioWords(t)
		return append(o, format.Member{Key: "command", Value: words[0]}, format.Member{Key: "args", Value: words[1:]})
	}
}

// withAllTools adds the list of tools that Copilot CLI expects of each entry.
func withAllTools(entry func(Target) format.Object) func(Target) format.Object {
	return func(t Target) format.Object {
		return append(entry(t), format.Member{Key: "tools", Value: []string{"*"}})
	}
}
