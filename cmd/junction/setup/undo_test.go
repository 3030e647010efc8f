package setup

import (
	"path/filepath"
	"strings"
	"testing"

	"junction/cmd/junction/clients"
)

// TestUndoKeepsAnotherJunction: a client that was connected to another configuration since the setup stays
// connected to it, and does not prevent the undo.
func TestUndoKeepsAnotherJunction(t *testing.T) {
	const file = "upstreams: { a: { command: [a] } }\n"
	home := atHome(t, map[string]string{".cursor/mcp.json": "{}", "work/a.yaml": file, "work/b.yaml": file})
	got := runProgram(t, "", "connect", "cursor", "--config", "b.yaml", "--url", "http://127.0.0.1:2/mcp")
	if got.code != 0 {
		t.Fatalf("connect gave %d\n%s", got.code, got.stderr)
	}
	r, err := openRecord("a.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r.Clients = []string{"cursor"}
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	got = runProgram(t, "", "setup", "--undo", "--yes", "--config", "a.yaml")
	const want = "is connected to another Junction (http://127.0.0.1:2/mcp); run first: junction disconnect cursor --config "
	if got.code != 0 || !strings.Contains(got.stdout, want) {
		t.Errorf("the undo gave %d\n%s%s\nwant %s", got.code, got.stdout, got.stderr, want)
	}
	text, err := clients.ReadFile(filepath.Join(home, ".cursor/mcp.json"))
	if err != nil || !strings.Contains(string(text), ":2/mcp") {
		t.Errorf("the client's file is, %v:\n%s", err, text)
	}
}
