package clients

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestServersOfTwoFoldersStayApart: two projects have servers of one name, and two clients have one text that means
// two folders. Each of them gets an entry, also if the other one was imported before.
func TestServersOfTwoFoldersStayApart(t *testing.T) {
	h := mustHome(t, "linux", map[string]string{
		"shop/.mcp.json":   `{"mcpServers": {"notes": {"command": "notes-mcp"}, "fs": {"command": "fs", "args": ["."]}}}`,
		"blog/.mcp.json":   `{"mcpServers": {"notes": {"command": "notes-mcp"}, "fs": {"command": "fs", "args": ["."]}}}`,
		".claude.json":     `{"mcpServers": {"files": {"command": "files", "args": ["."]}}}`,
		".cursor/mcp.json": `{"mcpServers": {"files": {"command": "files", "args": ["."]}}}`,
	})
	existing := []Known{}
	for _, step := range []struct{ project, want string }{
		{"shop", "files new files, notes new notes, fs new fs, files new files-2"},
		{"blog", "files present files, notes new notes-2, fs present fs, files present files-2"},
	} {
		h.Project = filepath.Join(h.Dir, step.project)
		servers, errs := h.Read(h.Places())
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		m := Merge{Getenv: h.Getenv, Existing: existing, Origin: func(s *Server) string { return s.File }}
		var got []string
		for _, o := range m.Plan(servers) {
			got = append(got, o.Server.Name+" "+string(o.Result)+" "+o.Name)
			if o.Result == New {
				k := *o.Server.Entry.known(h.Getenv)
				k.Name, k.From = o.Name, o.Server.File
				existing = append(existing, k)
			}
			if o.Conflicts {
				t.Errorf("%s of %s conflicts", o.Server.Name, step.project)
			}
		}
		if text := strings.Join(got, ", "); text != step.want {
			t.Errorf("the import of %s is %s\nwant %s", step.project, text, step.want)
		}
	}
}

// TestReplaceKeepsAServerOfAnotherFolder: the entry of the configuration works in one folder, and the client's in
// that of each window: it conflicts, so that connect --replace keeps it.
func TestReplaceKeepsAServerOfAnotherFolder(t *testing.T) {
	h := mustHome(t, "linux", map[string]string{
		".claude.json": `{"mcpServers": {"s": {"command": "node", "args": ["s.js"]}}}`})
	servers, errs := h.Read(h.Places())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	m := Merge{Getenv: h.Getenv, Existing: []Known{{Name: "s", Command: []string{"node", "s.js"}, Dir: "/srv/shop"}}}
	if out := m.Plan(servers); len(out) != 1 || out[0].Result != Present || !out[0].Conflicts {
		t.Errorf("Plan = %+v, want a conflict", out)
	}
}
