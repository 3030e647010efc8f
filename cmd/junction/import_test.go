package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// atHome changes to a folder in a home folder with these files, which its configuration is in, too.
func atHome(t *testing.T, files map[string]string) (home string) {
	t.Helper()
	home = t.TempDir()
	for name, text := range files {
		file := filepath.Join(home, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, file, text)
	}
	if err := os.MkdirAll(filepath.Join(home, "work"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	for _, name := range []string{"XDG_CONFIG_HOME", "XDG_STATE_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "COPILOT_HOME"} {
		t.Setenv(name, "")
	}
	t.Chdir(filepath.Join(home, "work"))
	return home
}

// TestImportLists: the list shows where each server is, and no secret; one broken file hides none
// of the others.
func TestImportLists(t *testing.T) {
	atHome(t, map[string]string{
		".cursor/mcp.json": `{"mcpServers": {"one": {"command": "npx",
			"args": ["-y", "a-server", "--key", "canary-1"], "env": {"TOKEN": "canary-2"}}}}`,
		".claude.json": "{\n  \"mcpServers\": {\n    \"two\": {",
		"other.json":   `{"servers": {"three": {"url": "https://mcp.example.com/path?key=canary-3"}}}`,
	})
	got := runProgram(t, "", "import")
	want := "SERVER  FOUND IN                      RESULT\n" +
		"one     Cursor, ~/.cursor/mcp.json:1  new: one, npx a-server, 2 secrets to a file\n"
	broken := strings.HasPrefix(got.stderr, "warning: ~/.claude.json line 3: is not JSON: ")
	if got.code != 0 || !strings.HasPrefix(got.stdout, want) || !broken {
		t.Errorf("import gave %d\n%s\n%s\nwant\n%s", got.code, got.stdout, got.stderr, want)
	}
	got = runProgram(t, "", "import", "--from", "claude-code")
	if got.code != 1 || !strings.Contains(got.stderr, "line 3: ") {
		t.Errorf("import of a broken file gave %d, %s", got.code, got.stderr)
	}
	got = runProgram(t, "", "import", "--from", "../other.json", "--json")
	var list importJSON
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || len(list.Servers) != 1 {
		t.Fatalf("import --json: %v\n%s", err, got.stdout)
	}
	s := list.Servers[0]
	if s.Upstream != "three" || s.Result != "new" || len(s.Secrets) != 1 || s.Summary != "https://mcp.example.com/path" {
		t.Errorf("import --json gave %+v", s)
	}
	got = runProgram(t, "", "import", "--from", "emacs")
	if got.code != 2 || !strings.Contains(got.stderr, "the clients are claude-code, ") {
		t.Errorf("an unknown client gave %d, %s", got.code, got.stderr)
	}
}
