package clients

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestTwins: two clients have servers of one name that differ. Each of them is compared with its own entry, and
// not with that of the other client: neither by what both run, nor by variables that have no value.
func TestTwins(t *testing.T) {
	const claude, cursor = "from Claude Code, .claude.json", "from Cursor, .cursor/mcp.json"
	run := func(env string) string {
		return `{"mcpServers": {"notes": {"command": "notes", "env": {"TOKEN": "` + env + `"}}}}`
	}
	entry := func(name, from, token string, unset ...string) Known {
		return Known{Name: name, From: from, Command: []string{"notes"}, Env: map[string]string{"TOKEN": token}, Unset: unset}
	}
	for _, tt := range []struct {
		about          string
		claude, cursor string // the values of TOKEN
		existing       []Known
		want           []string // of Claude Code, and of Cursor
	}{
		{"no configuration", "1", "2", nil, []string{"new notes", "new notes-2"}},
		{"variables without a value", "${A}", "${env:B}", nil, []string{"new notes", "new notes-2"}},
		{"the same variable", "${A}", "${env:A}", nil, []string{"new notes", "same notes"}},
		{"both are there", "1", "2", []Known{entry("notes", claude, "1"), entry("notes-2", cursor, "2")},
			[]string{"present notes", "present notes-2"}},
		{"the second one has changed", "1", "3", []Known{entry("notes", claude, "1"), entry("notes-2", cursor, "2")},
			[]string{"present notes", "present notes-2 differs"}},
		{"the first one has changed", "3", "2", []Known{entry("notes", claude, "1"), entry("notes-2", cursor, "2")},
			[]string{"present notes differs", "present notes-2"}},
		{"the second one is new", "1", "2", []Known{entry("notes", claude, "1")}, []string{"present notes", "new notes-2"}},
		{"the first one is new", "1", "2", []Known{entry("notes", cursor, "2")}, []string{"new notes-2", "present notes"}},
		{"both were one, which a person has corrected", "1", "1", []Known{entry("notes", claude, "9")},
			[]string{"present notes differs", "present notes differs"}},
		{"a person has added one", "1", "2", []Known{entry("notes", "", "2")}, []string{"present notes differs", "present notes"}},
		{"the value that setup was given", "${A}", "2", []Known{entry("notes", claude, "given")},
			[]string{"present notes", "new notes-2"}},
		{"without values, both are there", "${A}", "${env:B}", []Known{entry("notes", claude, "", "A"), entry("notes-2", cursor, "", "B")},
			[]string{"present notes", "present notes-2"}},
		{"without values, the second one is new", "${A}", "${env:B}", []Known{entry("notes", claude, "", "A")},
			[]string{"present notes", "new notes-2"}},
	} {
		t.Run(tt.about, func(t *testing.T) {
			h := mustHome(t, "linux", map[string]string{".claude.json": run(tt.claude), ".cursor/mcp.json": run(tt.cursor)})
			h.Getenv = environment(nil)
			servers, errs := h.Read(h.Places())
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			m := Merge{Existing: tt.existing, Getenv: h.Getenv, Origin: func(s *Server) string {
				return "from " + s.Client.Name + ", " + strings.TrimPrefix(s.File, h.Dir+"/")
			}}
			var got []string
			for _, o := range m.Plan(servers) {
				said := fmt.Sprintf("%s %s", o.Result, o.Name)
				if strings.Contains(strings.Join(o.Notes, " "), "differs") {
					said += " differs"
				}
				got = append(got, said)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("the plan is %q, want %q", got, tt.want)
			}
		})
	}
}

// TestWithdrawals: a server that a person has removed stays out: by the place where it was imported from, also if
// it has changed there, and by what it runs. Another server of its name is offered.
func TestWithdrawals(t *testing.T) {
	w := Withdrawals{File: t.TempDir() + "/removed/x.json"}
	const from = "from Cursor, ~/.cursor/mcp.json"
	if err := w.Add(&Known{Name: "notes-2", From: from, Command: []string{"notes", "canary-secret"}}); err != nil {
		t.Fatal(err)
	}
	if text := mustRead(t, w.File); strings.Contains(text, "canary") {
		t.Errorf("the file has a value: %s", text)
	}
	for _, test := range []struct {
		name, from, command string
		want                bool
	}{
		{"notes", from, "notes", true},
		{"notes", from, "newer", true},
		{"notes-2", "", "notes", true},
		{"Notes", "elsewhere", "notes", true},
		{"notes", "elsewhere", "newer", false},
		{"wiki", from, "notes", false},
	} {
		k := &Known{Name: test.name, Command: []string{test.command, "canary-secret"}, Headers: map[string]string{}}
		if got := Has(w.Load(), k, test.from); got != test.want {
			t.Errorf("%+v is removed: %v", test, got)
		}
	}
	for n := range maxWithdrawals + 1 {
		if err := w.Add(&Known{Name: fmt.Sprint("n", n)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.Load()); n != maxWithdrawals {
		t.Errorf("%d servers are remembered", n)
	}
	if err := w.Forget(); err != nil || len(w.Load()) > 0 || w.Forget() != nil {
		t.Errorf("Forget = %v", err)
	}
}

// TestAServerOfAProjectStaysOne: the entry of a project's server that gives each folder a process of its own is that
// server at the next import, too, whatever its number, and also for a second project. It is no other one, and no
// difference.
func TestAServerOfAProjectStaysOne(t *testing.T) {
	const claude, cursor = "from Claude Code, .claude.json", "from Cursor, .cursor/mcp.json"
	const notes = `{"notes": {"command": "notes", "args": ["%s"]}}`
	h := mustHome(t, "linux", map[string]string{
		".cursor/mcp.json": `{"mcpServers": ` + fmt.Sprintf(notes, "mine") + `}`,
		".claude.json": `{"projects": {"HOME/src/shop": {"mcpServers": ` + fmt.Sprintf(notes, "x") + `}, "HOME/src/blog": {"mcpServers": ` +
			fmt.Sprintf(notes, "x") + `}}}`, "src/shop/README": "", "src/blog/README": ""})
	h.Getenv = environment(nil)
	servers, errs := h.Read(append(h.Places(), h.OtherProjects()...))
	if len(errs) > 0 || len(servers) != 3 {
		t.Fatal(len(servers), errs)
	}
	run := func(arg string) []string { return []string{"notes", arg} }
	for _, tt := range []struct {
		about    string
		existing []Known
		want     []string
	}{
		{"in the folder of one project", []Known{{Name: "notes", From: cursor, Command: run("mine")},
			{Name: "notes-2", From: claude, Command: run("x"), Dir: h.Dir + "/src/shop"}}, []string{"present notes", "new notes-3", "present notes-2"}},
		{"in each folder", []Known{{Name: "notes", From: cursor, Command: run("mine")},
			{Name: "notes-2", From: claude, Command: run("x"), Windows: true}}, []string{"present notes", "present notes-2", "present notes-2"}},
	} {
		m := Merge{Existing: tt.existing, Getenv: h.Getenv, Origin: func(s *Server) string {
			return "from " + s.Client.Name + ", " + strings.TrimPrefix(s.File, h.Dir+"/")
		}}
		var got []string
		for _, o := range m.Plan(servers) {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s", o.Result, o.Name)))
			if o.Differs || o.Conflicts {
				t.Errorf("%s: %s differs: %q", tt.about, o.Name, o.Notes)
			}
		}
		slices.Sort(got)
		slices.Sort(tt.want)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: the plan is %q, want %q", tt.about, got, tt.want)
		}
	}
}
