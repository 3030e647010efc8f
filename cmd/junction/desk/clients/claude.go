package clients

import (
	"path/filepath"
	"strings"

	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/clients/format"
)

// This file has the habits of Claude Code.

// claudeHabits are settings beside the file, and lists of servers for each project.
var claudeHabits = habits{
	settings: claudeSettings, off: claudeOff, rules: claudeRules,
	// mcp__SERVER__TOOL is the name of a tool, and mcp__SERVER stands for all of a server.
	names: func(name string) (begin, all string) { return "mcp__" + name + "__", "mcp__" + name },
}

// claudeOff returns which servers of a project its user has disabled or rejected.
func claudeOff(h Home, p Place, text []byte, settings []map[string]any) func(name string) bool {
	if !p.ofProject() {
		return func(string) bool { return false }
	}
	var off, rejected []any
	for _, project := range h.claudeProjects(p, text) {
		off, rejected = append(off, project["disabledMcpServers"]), append(rejected, project[rejectedServers])
	}
	for _, s := range settings {
		rejected = append(rejected, s[rejectedServers])
	}
	return func(name string) bool {
		disabled, _ := listed(name, off...)
		if p.Scope == Project && !disabled { // the lists with the names of rules are for the file of a project
			disabled, _ = listed(ruleName(name), namesOf(rejected)...)
		}
		return disabled
	}
}

// rejectedServers is a key of Claude Code. A server that a user accepts (enabledMcpjsonServers) and
// that is in this list is rejected.
const rejectedServers = "disabledMcpjsonServers"

// namesOf returns lists with the names of servers as they are in rules.
func namesOf(lists []any) (named []any) {
	for _, l := range lists {
		list, _ := l.([]any)
		var names []any
		for _, v := range list {
			if name, ok := v.(string); ok {
				names = append(names, ruleName(name))
			}
		}
		named = append(named, names)
	}
	return named
}

// claudeProjects returns what the user's files of Claude Code have about the project of a place. text
// is the text of the place.
func (h Home) claudeProjects(p Place, text []byte) (list []map[string]any) {
	texts := [][]byte{text}
	if p.Scope == Project {
		texts = nil
		for _, u := range p.Client.user {
			if file, ok := h.file(u); ok {
				if text, err := revision.Read(file); err == nil {
					texts = append(texts, text)
				}
			}
		}
	}
	for _, text := range texts {
		projects, _ := format.Tree(text)["projects"].(map[string]any)
		if project, ok := projects[p.folder].(map[string]any); ok {
			list = append(list, project)
		}
	}
	return list
}

// claudeSettings returns the settings of Claude Code for a place, without those that cannot be read. The
// settings of a project count for its servers only.
func claudeSettings(h Home, p Place) (list []map[string]any) {
	if p.named {
		return nil
	}
	folder := filepath.Join(h.Dir, ".claude")
	if dir, _ := h.Getenv("CLAUDE_CONFIG_DIR"); dir != "" {
		folder = dir
	}
	files := []string{filepath.Join(folder, "settings.json")}
	if p.folder != "" {
		for _, name := range []string{"settings.json", "settings.local.json"} {
			files = append(files, filepath.Join(p.folder, ".claude", name))
		}
	}
	for _, file := range files {
		if text, err := revision.Read(file); err == nil {
			list = append(list, format.Tree(text))
		}
	}
	return list
}

// claudeRules returns the rules that deny tools of servers.
func claudeRules(_ []byte, settings []map[string]any) (rules []rule) {
	for _, s := range settings {
		permissions, _ := s["permissions"].(map[string]any)
		list, _ := permissions["deny"].([]any)
		for _, v := range list {
			if glob, _ := v.(string); strings.HasPrefix(glob, "mcp__") {
				rules = append(rules, rule{glob, "deny"})
			}
		}
	}
	return rules
}
