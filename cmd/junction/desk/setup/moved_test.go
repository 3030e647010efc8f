package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMoved: after a change of listen, the clients that connect has given the old address are named, also in projects.
// A client whose address a person has given, and one whose entry a person has changed, are not.
func TestMoved(t *testing.T) {
	const empty = "{ \"mcpServers\": {} }\n"
	home := atHome(t, map[string]string{".cursor/mcp.json": empty, ".gemini/settings.json": empty,
		"project/.cursor/mcp.json": empty, "work/a.yaml": "listen: 127.0.0.1:2\nupstreams: { a: { command: [a] } }\n"})
	for _, words := range [][]string{{"cursor"}, {"cursor", "--project", filepath.Join(home, "project")},
		{"gemini", "--url", "http://127.0.0.1:3/mcp"}} {
		if got := runProgram(t, "", append([]string{"connect", "--config", "a.yaml"}, words...)...); got.code != 0 {
			t.Fatal(got)
		}
	}
	if moved := Moved("a.yaml"); len(moved) > 0 {
		t.Errorf("before the change: %v", moved)
	}
	mustWrite(t, "a.yaml", "listen: 127.0.0.1:4\nupstreams: { a: { command: [a] } }\n")
	moved := Moved("a.yaml")
	project := filepath.Join(home, "project")
	if len(moved) != 1 || moved[0].Text != "2 clients have another address of this Junction than "+
		"http://127.0.0.1:4/mcp: Cursor, Cursor in "+project || moved[0].Advice !=
		"run: junction connect --all --config a.yaml; junction connect cursor --project "+project+" --config a.yaml" {
		t.Errorf("after the change: %v", moved)
	}
	for _, name := range []string{filepath.Join(home, ".cursor", "mcp.json"), filepath.Join(project, ".cursor", "mcp.json")} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		mustWrite(t, name, strings.Replace(string(text), "127.0.0.1:2", "127.0.0.1:9", 1))
	}
	if moved := Moved("a.yaml"); len(moved) > 0 {
		t.Errorf("after a person has changed the entries: %v", moved)
	}
}
