package clients

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tableIn returns the rows of the table in the README below a head, by their first cells, and these cells in order.
func tableIn(t *testing.T, head string) (rows map[string][]string, order []string) {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(readme), "\n| "+head)
	if !found {
		t.Fatalf("README.md has no table with the head %q", head)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	rows = map[string][]string{}
	for _, line := range strings.Split(table, "\n")[2:] {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		order = append(order, cells[0])
		rows[cells[0]] = cells[1:]
	}
	return rows, order
}

// TestTheReadmeHasTheFilesOfEachClient: the table of files has a row for each client in the order of the clients, with
// the names of its files.
func TestTheReadmeHasTheFilesOfEachClient(t *testing.T) {
	rows, order := tableIn(t, "client | files of the user |")
	var names []string
	for _, c := range table() {
		names = append(names, c.Name)
		cells := append(rows[c.Name], "", "")
		for i, files := range [][]path{c.user, c.project} {
			if files == nil && cells[i] != "" {
				t.Errorf("%s: the table names the files %q, and the client has none", c.Name, cells[i])
			}
			for _, f := range files {
				if !f.readOnly && f.os != "windows" && !strings.HasPrefix(f.file, ".vscode-server/") && !strings.Contains(f.file, "Insiders") &&
					!strings.Contains(cells[i], filepath.Base(f.file)) {
					t.Errorf("%s: the table does not name its file %s: %q", c.Name, f.file, cells[i])
				}
			}
		}
	}
	if !slices.Equal(order, names) {
		t.Errorf("the table of files has the clients %q, want %q", order, names)
	}
}

// keyCells are the cells about the ways of keys.
var keyCells = map[KeyWay]string{
	ByVariable: "from the variable `" + KeyVariable + "`",
	ByInput:    "asks for it (`inputs` in mcp.json), and keeps it encrypted",
	ByFile:     "`junction stdio` reads it from a file",
}

// TestTheReadmeHasTheWayOfEachKey: the table of keys has the clients of each way in the order of the clients.
func TestTheReadmeHasTheWayOfEachKey(t *testing.T) {
	rows, _ := tableIn(t, "client | how it gets the key |")
	var not []string // in the file of a project
	ways := map[KeyWay][]string{}
	for _, c := range table() {
		way := c.KeyWay(User)
		ways[way] = append(ways[way], c.Name)
		if c.KeyWay(Project) != ByVariable {
			not = append(not, c.Name)
		}
	}
	for _, way := range slices.Sorted(maps.Keys(ways)) {
		names := strings.Join(ways[way], ", ")
		if cell := rows[names]; len(cell) != 1 || keyCells[way] == "" || cell[0] != keyCells[way] {
			t.Errorf("the table of keys says %q of %q, want %q, as keyCells has it for the way %v", cell, names, keyCells[way], way)
		}
	}
	if first := "each but " + strings.Join(not, " and ") + ", in the file of a project"; rows[first] == nil {
		t.Errorf("the table of keys has no row %q", first)
	}
}

// startCells are the cells about the folders in which clients start commands.
var startCells = map[start]string{startsAnywhere: "not tried", startsInFolder: "its folder", startsAtHome: "the home folder"}

// TestTheReadmeHasTheFolderOfEachClient: the table of folders has each client, with the header of its entry and with the
// folder in which it starts a command.
func TestTheReadmeHasTheFolderOfEachClient(t *testing.T) {
	rows, order := tableIn(t, "client | the header in its entry |")
	for _, c := range table() {
		// with a version, with other clients, or of VS Code with the file: the first row is that of a project
		at := slices.IndexFunc(order, func(first string) bool {
			return slices.ContainsFunc(strings.Split(first, ", "), func(name string) bool {
				return name == c.Name || strings.HasPrefix(name, c.Name+" ")
			})
		})
		if at < 0 {
			t.Errorf("%s: the table of folders has no row of the client", c.Name)
			continue
		}
		cells, header := append(rows[order[at]], "", "", ""), "none"
		if c.folder.value != "" {
			header = "`" + c.folder.value + "`"
		}
		if !strings.HasPrefix(cells[0], header) {
			t.Errorf("%s: the table of folders has the header %q, want %s", c.Name, cells[0], header)
		}
		if !strings.HasPrefix(cells[2], startCells[c.starts]) {
			t.Errorf("%s: the table of folders says that it starts commands in %q, want %q", c.Name, cells[2], startCells[c.starts])
		}
	}
}
