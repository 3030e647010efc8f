package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
)

// TestANewFileIsExplainedByEditors: a configuration file that a command creates begins with the line for
// editors, whose schema is beside the file. An undo removes both.
func TestANewFileIsExplainedByEditors(t *testing.T) {
	home := atHome(t, map[string]string{".cursor/mcp.json": `{"mcpServers": {"notes": {"command": "n"}}}`})
	if got := runProgram(t, "", "import", "--write", "--yes"); got.code != 0 {
		t.Fatalf("import gave %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	dir := filepath.Join(home, ".config/junction")
	text, err := revision.Read(filepath.Join(dir, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	name, ok := strings.CutPrefix(line, "# yaml-language-server: $schema=")
	schema, err := os.ReadFile(filepath.Join(dir, name))
	if !ok || err != nil || string(schema) != config.Schema() {
		t.Errorf("the file begins with %q, and the schema there is %.60q (%v)", line, schema, err)
	}
	r, err := openRecord(filepath.Join(dir, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r.Known, r.Created, r.Folder, r.After, r.Upstreams = true, true, true, text, []string{"notes"}
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	got := runProgram(t, "", "setup", "--undo", "--yes")
	const plan = "delete ~/.config/junction/config.yaml with its schema for editors, which setup has created"
	if got.code != 0 || !strings.Contains(got.stdout, plan) {
		t.Fatalf("the undo gave %d\n%s%s\nwant %s", got.code, got.stdout, got.stderr, plan)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		list, _ := filepath.Glob(dir + "/*")
		t.Errorf("after the undo, the folder of the configuration stays, with %v", list)
	}
}
