package clients

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestVisitedFolders: a client's own files name the folders in which it was used; those of another machine, and what
// is no absolute path, are left out.
func TestVisitedFolders(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		".claude.json":                `{"projects": {"/src/shop": {}, "shop": {}, "/src/shop/": {}}}`,
		".codex/config.toml":          "[projects.\"/src/blog\"]\ntrust_level = \"trusted\"\n",
		".gemini/trustedFolders.json": `{"/src/a": "TRUST_FOLDER", "/src": "TRUST_PARENT", "/src/b": "DO_NOT_TRUST"}`,
		".copilot/config.json":        `{"trusted_folders": ["/src/c", 7]}`,
		".config/Code/User/workspaceStorage/1/workspace.json":   `{"folder": "file:///src/with%20space"}`,
		".config/Code/User/workspaceStorage/2/workspace.json":   `{"folder": "vscode-remote://ssh/src/far"}`,
		".config/Code/User/workspaceStorage/3/workspace.json":   `{"workspace": "file:///src/x.code-workspace"}`,
		".config/Cursor/User/workspaceStorage/1/workspace.json": `{"folder": "file:///src/cursor"}`,
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := Home{OS: "linux", Dir: dir, Getenv: func(string) (string, bool) { return "", false }}
	for id, want := range map[string][]string{
		"claude-code": {"/src/shop"}, "codex": {"/src/blog"}, "gemini": {"/src/a"}, "copilot": {"/src/c"},
		"vscode": {"/src/with space"}, "cursor": {"/src/cursor"}, "zed": nil,
	} {
		c, err := Lookup(id)
		if err != nil {
			t.Fatal(err)
		}
		if got := h.Visited(c); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
}
