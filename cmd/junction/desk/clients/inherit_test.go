package clients

import (
	"fmt"
	"slices"
	"testing"
)

// TestAVariableByNameIsThatByReference: Codex passes a variable on by its name, and Claude Code writes a
// reference. Both have one server, unless the reference is to another variable.
func TestAVariableByNameIsThatByReference(t *testing.T) {
	h := mustHome(t, "linux", map[string]string{
		".claude.json":       `{"mcpServers": {"tickets": {"command": "tickets", "env": {"TOKEN": "${TOKEN}"}}}}`,
		".codex/config.toml": "[mcp_servers.tickets]\ncommand = \"tickets\"\nenv_vars = [\"TOKEN\"]\n",
		".cursor/mcp.json":   `{"mcpServers": {"tickets": {"command": "tickets", "env": {"TOKEN": "${env:OTHER}"}}}}`,
	})
	h.Getenv = environment(map[string]string{"TOKEN": "one", "OTHER": "two"})
	servers, errs := h.Read(h.Places())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	has := Known{Name: "mine", Command: []string{"tickets"}}
	has.Inherit([]string{"TOKEN", "LC_*"}, h.Getenv)
	for _, tt := range []struct {
		about    string
		existing []Known
		want     []string
	}{
		{"no configuration", nil, []string{"Claude Code new tickets", "Codex same tickets", "Cursor new tickets-2"}},
		{"a configuration with inherit_env", []Known{has},
			[]string{"Claude Code present mine", "Codex present mine", "Cursor new tickets"}},
	} {
		var got []string
		m := Merge{Existing: tt.existing, Getenv: h.Getenv}
		for _, o := range m.Plan(servers) {
			got = append(got, fmt.Sprintf("%s %s %s", o.Server.Place.Client.Name, o.Result, o.Name))
		}
		slices.Sort(got)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: the plan is %q, want %q", tt.about, got, tt.want)
		}
	}
}

// TestSummaryTellsScriptsApart: servers of one interpreter have the names of their scripts, and no secret.
func TestSummaryTellsScriptsApart(t *testing.T) {
	for _, tt := range []struct {
		command []string
		want    string
	}{
		{[]string{"node", "/srv/mcp/tickets.mjs", "--key", "canary"}, "node tickets.mjs"},
		{[]string{"/usr/bin/python3", "-m", "notes_mcp"}, "python3 notes_mcp"},
		{[]string{"python3", `C:\srv\notes.py`}, "python3 notes.py"},
		{[]string{"node", "-e", "console.log('canary')"}, "node"},
		{[]string{"sh", "-c", "canary"}, "sh"},
		{[]string{"node", "${file:/secret}"}, "node"},
		{[]string{"node"}, "node"},
	} {
		e, err := Given{Command: tt.command}.Entry(Home{OS: "linux", Dir: "/home/ann"}, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Summary(); got != tt.want {
			t.Errorf("the summary of %q is %q, want %q", tt.command, got, tt.want)
		}
	}
}

// TestRelativeProgramHasANote: the path of a program that begins in an unknown folder is noted, and no other one.
func TestRelativeProgramHasANote(t *testing.T) {
	for command, noted := range map[string]bool{"./bin/notes": true, "bin/notes": true, "../notes": true, "notes": false,
		"/srv/notes": false, "~/bin/notes": false, "${HOME}/notes": false} {
		for _, dir := range []string{"", "/srv"} {
			e, err := Given{Command: []string{command}}.Entry(Home{OS: "linux", Dir: "/home/ann"}, "")
			if err != nil {
				t.Fatal(err)
			}
			if dir != "" {
				e.Dir = Value{{kind: plainText, text: dir}}
			}
			if got := e.Relative() != ""; got != (noted && dir == "") {
				t.Errorf("%s in %q has the note %q", command, dir, e.Relative())
			}
		}
	}
}
