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

// TestImportHoldsProjects: the servers of the current project are listed, and decide nothing about
// those that are imported: neither their names, nor whether they are enabled.
func TestImportHoldsProjects(t *testing.T) {
	home := atHome(t, map[string]string{
		".cursor/mcp.json": `{"mcpServers": {"notes": {"command": "one"},
			"off": {"command": "two", "cwd": "~/work", "disabled": true}}}`,
		"work/.mcp.json":        `{"mcpServers": {"notes": {"command": "evil"}, "off": {"command": "two"}}}`,
		"work/.cursor/mcp.json": `{"mcpServers": {`,
	})
	for _, args := range [][]string{{"import", "--json"}, {"import", "--json", "--write", "--yes"}} {
		got := runProgram(t, "", args...)
		var list importJSON
		if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || got.code != 0 {
			t.Fatalf("%v gave %d, %v\n%s", args, got.code, err, got.stderr)
		}
		var said []string
		for _, s := range list.Servers {
			said = append(said, s.Server+" "+string(s.Scope)+" "+string(s.Result)+" "+s.Upstream)
		}
		want := "notes user new notes, off user new off, notes project held , off project same off"
		if got := strings.Join(said, ", "); got != want {
			t.Errorf("%v gave %s, want %s", args, got, want)
		}
		if len(list.Failures) != 1 || list.Servers[0].Look == nil || list.Servers[2].Look != nil {
			t.Errorf("%v gave %d failures, looks %v and %v", args, len(list.Failures), list.Servers[0].Look, list.Servers[2].Look)
		}
	}
	text, err := os.ReadFile(filepath.Join(home, ".config/junction/config.yaml"))
	if err != nil || strings.Contains(string(text), "evil") || !strings.Contains(string(text), "enabled: false") {
		t.Errorf("the configuration is, %v:\n%s", err, text)
	}
}
