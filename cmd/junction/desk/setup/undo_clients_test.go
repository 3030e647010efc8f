package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUndoOfLaterConnections: an undo also disconnects the clients that junction connect has connected since, of
// projects, too. It says so before it asks. A client that was connected before the setup stays connected, and
// the undo does not propose to delete the state that its disconnect needs.
func TestUndoOfLaterConnections(t *testing.T) {
	const (
		file   = "upstreams: { a: { command: [a] } }\n"
		client = "{ \"mcpServers\": { \"other\": { \"command\": \"x\" } } } // mine\n"
	)
	home := atHome(t, map[string]string{".cursor/mcp.json": client, ".gemini/settings.json": client,
		"project/.cursor/mcp.json": client, "work/a.yaml": file})
	connect := func(words ...string) {
		t.Helper()
		got := runProgram(t, "", append(append([]string{"connect"}, words...), "--config", "a.yaml", "--url",
			"http://127.0.0.1:2/mcp")...)
		if got.code != 0 {
			t.Fatalf("connect gave %d\n%s", got.code, got.stderr)
		}
	}
	connect("gemini")
	r, err := openRecord("a.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.noteEarlier(); err != nil {
		t.Fatal(err)
	}
	r.Upstreams = []string{"gone"}
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	connect("cursor")
	connect("cursor", "--project", filepath.Join(home, "project"))

	got := runProgram(t, "", "setup", "--undo", "--yes", "--config", "a.yaml")
	for _, want := range []string{
		"\n  - disconnect cursor, cursor in ~/project\n",
		"Gemini CLI still uses this Junction, because it was not connected by a setup. To disconnect it, run: " +
			"junction disconnect gemini --config a.yaml\n",
		"Do not delete it: junction disconnect needs it for clients that are still connected.",
	} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("the undo does not say %q", want)
		}
	}
	if got.code != 0 || strings.Contains(got.stdout, "rm -r") {
		t.Errorf("the undo gave %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	for _, name := range []string{".cursor/mcp.json", "project/.cursor/mcp.json"} {
		if is, err := os.ReadFile(filepath.Join(home, name)); err != nil || string(is) != client {
			t.Errorf("%s is, %v:\n%s", name, err, is)
		}
	}
	if is, err := os.ReadFile(filepath.Join(home, ".gemini/settings.json")); err != nil || string(is) == client {
		t.Errorf("the client that was connected before is disconnected, %v:\n%s", err, is)
	}

	// A second undo has nothing to do, but names the client that still uses this Junction.
	got = runProgram(t, "", "setup", "--undo", "--yes", "--config", "a.yaml")
	if got.code != 0 || !strings.Contains(got.stdout, "There is no setup of a.yaml to undo.\nGemini CLI still uses ") {
		t.Errorf("the second undo gave %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	if got = runProgram(t, "", "disconnect", "gemini", "--config", "a.yaml"); got.code != 0 {
		t.Errorf("the disconnect gave %d\n%s%s", got.code, got.stdout, got.stderr)
	}
}

// TestDisconnectWithoutItsState: a disconnect after the state was deleted takes the entry out, and names the
// backup that connect has made, because it may have the servers that connect took out.
func TestDisconnectWithoutItsState(t *testing.T) {
	const client = "{ \"mcpServers\": { \"other\": { \"command\": \"x\" } } }\n"
	home := atHome(t, map[string]string{".cursor/mcp.json": client,
		".config/junction/config.yaml": "listen: 127.0.0.1:2\nupstreams: { a: { command: [a] } }\n"})
	if got := runProgram(t, "", "connect", "cursor", "--url", "http://127.0.0.1:2/mcp"); got.code != 0 {
		t.Fatal(got)
	}
	backups, err := filepath.Glob(filepath.Join(home, ".cursor", "mcp.json.*.bak"))
	if err != nil || len(backups) != 1 {
		t.Fatalf("the backups are %v (%v)", backups, err)
	}
	if err := os.RemoveAll(filepath.Join(home, ".local", "state", "junction")); err != nil {
		t.Fatal(err)
	}
	got := runProgram(t, "", "disconnect", "cursor")
	want := "so that no server was put back. The newest backup of the file before this change is ~/.cursor/" +
		filepath.Base(backups[0]) + ".\n"
	if got.code != 0 || !strings.Contains(got.stdout, want) {
		t.Errorf("the disconnect gave %d\n%s%s\nwant %s", got.code, got.stdout, got.stderr, want)
	}
}

// TestEachBackupIsNamed: a second connect makes a backup of a file that has got a secret since. A disconnect and an
// undo name this backup, too.
func TestEachBackupIsNamed(t *testing.T) {
	for _, words := range [][]string{{"disconnect", "cursor"}, {"setup", "--undo", "--yes"}} {
		home := atHome(t, map[string]string{".cursor/mcp.json": "{ \"mcpServers\": { \"other\": { \"command\": \"x\" } } }\n",
			"a.yaml": "upstreams: { a: { command: [a] } }\n"})
		file := filepath.Join(home, ".cursor", "mcp.json")
		connect := func(url string) {
			t.Helper()
			if got := runProgram(t, "", "connect", "cursor", "--config", "a.yaml", "--url", url); got.code != 0 {
				t.Fatal(got)
			}
		}
		connect("http://127.0.0.1:2/mcp")
		r, err := openRecord("a.yaml")
		if err != nil {
			t.Fatal(err)
		}
		r.Clients = []string{"cursor"}
		if err := r.save(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		more := strings.Replace(string(text), `"other"`, `"tickets": { "command": "y", "env": { "TOKEN": "s" } }, "other"`, 1)
		if err := os.WriteFile(file, []byte(more), 0o600); err != nil {
			t.Fatal(err)
		}
		connect("http://127.0.0.1:3/mcp")
		backups, err := filepath.Glob(file + ".*.bak")
		if err != nil || len(backups) != 2 {
			t.Fatalf("the backups are %v (%v)", backups, err)
		}
		got := runProgram(t, "", append(words, "--config", "a.yaml")...)
		_, command, found := strings.Cut(got.stdout, " stay, and may contain secrets; to delete them, run:\n  rm ")
		for _, backup := range backups {
			if name := filepath.Base(backup); !found || !strings.Contains(command, name) {
				t.Errorf("%v does not name %s:\n%s%s", words, name, got.stdout, got.stderr)
			}
		}
	}
}
