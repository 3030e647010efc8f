package clients

import (
	"path/filepath"
	"slices"

	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/clients/format"
	named "junction/upstream/folder"
)

// This file finds the folders in which a person works with a client, by what the client has written down.

// A trace is a file in which a client notes folders in which it was used.
type trace struct {
	path    path
	folders func(text []byte) []string // absolute paths, or what is none
}

// Traces of several clients.
var (
	// The list that has the servers of single projects, too, has each project that was opened.
	claudeTraces = []trace{{path{file: "$CLAUDE_CONFIG_DIR/.claude.json"}, keysIn(format.JSON{}, "projects")},
		{path{file: ".claude.json"}, keysIn(format.JSON{}, "projects")}}
	codexTraces = []trace{{path{file: "$CODEX_HOME/config.toml"}, keysIn(format.TOML{}, "projects")},
		{path{file: ".codex/config.toml"}, keysIn(format.TOML{}, "projects")}}
	geminiTraces  = []trace{{path{file: ".gemini/trustedFolders.json"}, trustedByGemini}}
	copilotTraces = []trace{{path{file: "$COPILOT_HOME/config.json"}, listIn("trusted_folders")},
		{path{file: ".copilot/config.json"}, listIn("trusted_folders")}}
)

// editorTraces returns the traces of an editor that is built on VS Code. folders have its files of the user.
func editorTraces(folders ...string) (list []trace) {
	for _, user := range folders {
		file := user + "/User/workspaceStorage/*/workspace.json"
		list = append(list, trace{path{base: appConfig, file: file}, windowFolder})
	}
	return list
}

// keysIn returns the names of the tables below a key.
func keysIn(f format.Format, key string) func([]byte) []string {
	return func(text []byte) (names []string) {
		tables, _ := f.Servers(text, []string{key})
		for _, one := range tables {
			names = append(names, one.Name)
		}
		return names
	}
}

// listIn returns the strings in the list of a key of JSON.
func listIn(key string) func([]byte) []string {
	return func(text []byte) (names []string) {
		list, _ := format.Tree(text)[key].([]any)
		for _, one := range list {
			name, _ := one.(string)
			names = append(names, name)
		}
		return names
	}
}

// trustedByGemini returns the folders that a person trusts. A trusted parent is left out: it is wider.
func trustedByGemini(text []byte) (names []string) {
	for name, trust := range format.Tree(text) {
		if trust == "TRUST_FOLDER" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// windowFolder returns the folder of a window of an editor.
func windowFolder(text []byte) []string {
	uri, _ := format.Tree(text)["folder"].(string)
	path, err := named.URI(uri) // that of another machine has another scheme
	if err != nil {
		return nil
	}
	return []string{path}
}

// maxVisited is the most folders of one client.
const maxVisited = 100

// Visited returns the folders in which a client was used, as far as its files name them, and without those that
// are no absolute paths. They may not exist any more.
func (h Home) Visited(c *Client) (list []string) {
	for _, t := range c.traces {
		file, ok := h.file(t.path)
		if !ok {
			continue
		}
		for _, file := range inFolders(file) {
			text, err := revision.Read(file)
			if err != nil {
				continue
			}
			for _, path := range t.folders(text) {
				if path = filepath.Clean(path); filepath.IsAbs(path) && !slices.Contains(list, path) &&
					len(list) < maxVisited {
					list = append(list, path)
				}
			}
		}
	}
	return list
}

// NamesFolders reports whether a client can say in which folder it works, by a header, a flag or roots.
func (c *Client) NamesFolders() bool { return !c.folderless }
