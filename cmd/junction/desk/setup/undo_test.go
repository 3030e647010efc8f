package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/cmd/junction/base/revision"
)

// TestUndoOfAChangedConfiguration: the undo removes the servers of the setup from a configuration that a
// person has changed since, and keeps the changed text as a backup. What it cannot remove stays in the
// record, so that the next undo removes it.
func TestUndoOfAChangedConfiguration(t *testing.T) {
	const (
		listen   = "listen: 127.0.0.1:0\n"
		mine     = "upstreams:\n  mine: { command: [x] }\n"
		both     = "  # from Cursor\n  notes:\n    command: [n]\n    env: { T: \"${file:secrets/notes.T}\" }\n  other: { command: [o] }\n"
		slow     = "  # from Cursor\n  notes:\n    connect_timeout: 30s # slow\n    command: [n]\n  other: { command: [o] }\n# end\n"
		removed  = "Removed notes, other from ~/.config/junction/config.yaml, which has changed since. Backup: "
		deleted  = "Removed ~/.config/junction/config.yaml, which has changed since. Backup: "
		notYet   = "not undone yet: ~/.config/junction/config.yaml; "
		anchored = "  notes: &n { command: [n] }\n  other: *n\n  mine: { command: [x] }\n"
	)
	for _, test := range []struct {
		name              string
		created           bool
		before, now, want string
		says              string
	}{
		{"a file of the setup", true, "", "upstreams:\n" + slow, "", deleted},
		{"a file of the setup, in which one server is left", true, "", "upstreams:\n  other: { command: [o] }\n", "", deleted},
		{"a file of the setup with a new server", true, "", mine + slow, mine + "# end\n", removed},
		{"a file without upstreams", false, listen, listen + "\nupstreams:\n" + slow, listen + "\n# end\n", removed},
		{"an empty file", false, "", "upstreams:\n" + both + "# end\n", "# end\n", removed},
		{"a file with an upstream", false, mine + listen, mine + slow + listen, mine + "# end\n" + listen, removed},
		{"a server has another name", false, mine, mine + strings.Replace(both, "notes:", "theirs:", 1),
			mine + strings.Replace(both[:strings.Index(both, "  other")], "notes:", "theirs:", 1),
			"Removed other from ~/.config/junction/config.yaml, which has changed since. Backup: "},
		{"a mistake elsewhere", false, mine, "lisen: x\n" + mine + both, "lisen: x\n" + mine, removed},
		{"no YAML", false, mine, mine + both + "x: [\n", mine + both + "x: [\n", notYet},
		{"an endpoint of the server", false, mine, mine + both + "endpoints: { e: { upstreams: [notes] } }\n",
			mine + both + "endpoints: { e: { upstreams: [notes] } }\n", notYet},
		{"a value that another entry has", false, mine, "upstreams:\n" + anchored, "upstreams:\n" + anchored, notYet},
	} {
		t.Run(test.name, func(t *testing.T) {
			const name = ".config/junction/config.yaml"
			file := filepath.Join(atHome(t, map[string]string{name: test.now}), name)
			r, err := openRecord(file)
			if err != nil {
				t.Fatal(err)
			}
			r.Known, r.Created, r.Before, r.Upstreams = true, test.created, []byte(test.before), []string{"notes", "other"}
			r.After = []byte(test.before + both)
			if err := r.save(); err != nil {
				t.Fatal(err)
			}
			got := runProgram(t, "", "setup", "--undo", "--yes")
			fails := test.says == notYet
			if (got.code != 0) != fails || !strings.Contains(got.stdout+got.stderr, test.says) {
				t.Errorf("the undo does not say %q: %+v", test.says, got)
			}
			is, err := os.ReadFile(file)
			if string(is) != test.want || errors.Is(err, fs.ErrNotExist) != (test.says == deleted) {
				t.Errorf("the configuration is\n%s\n%v, want\n%s", is, err, test.want)
			}
			if !fails && !strings.Contains(got.stdout, " is the configuration before this undo.\n") {
				t.Errorf("the undo does not say which file is the only copy of the changed one:\n%s", got.stdout)
			}
			if n := strings.Count(got.stdout, "\n  rm "); !fails && n != 2 { // the backup, and the folder of the state
				t.Errorf("the undo has %d commands:\n%s", n, got.stdout)
			}
			if stays := "~/.config/junction/config.yaml stays"; !fails && test.says != deleted &&
				!strings.Contains(got.stdout, stays) {
				t.Errorf("the undo does not say %q:\n%s", stays, got.stdout)
			}
			backups, err := filepath.Glob(file + ".*.bak")
			if err != nil || len(backups) > 1 || (len(backups) == 0) != fails {
				t.Errorf("there are the backups %v (%v)", backups, err)
			}
			for _, b := range backups {
				if kept, err := os.ReadFile(b); err != nil || string(kept) != test.now {
					t.Errorf("the backup is\n%s\n%v, want\n%s", kept, err, test.now)
				}
			}
			again, err := openRecord(file)
			if err != nil || again.any() != fails {
				t.Errorf("the record has something to undo: %v (%v), want %v", again.any(), err, fails)
			}
		})
	}
}

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
	text, err := revision.Read(filepath.Join(home, ".cursor/mcp.json"))
	if err != nil || !strings.Contains(string(text), ":2/mcp") {
		t.Errorf("the client's file is, %v:\n%s", err, text)
	}
}

// TestUndoIsRunAgain: while a step fails, the link by which a person calls the program stays, and the next run names
// the backups of the first one, too.
func TestUndoIsRunAgain(t *testing.T) {
	const broken = "upstreams:\n  notes: { command: [n] }\nx: [\n"
	home := atHome(t, map[string]string{".cursor/mcp.json": "{}", "work/a.yaml": "upstreams: { notes: { command: [n] } }\n",
		".local/bin/program": ""})
	if got := runProgram(t, "", "connect", "cursor", "--config", "a.yaml", "--url", "http://127.0.0.1:2/mcp"); got.code != 0 {
		t.Fatalf("connect gave %d\n%s", got.code, got.stderr)
	}
	r, err := openRecord("a.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l := link{filepath.Join(home, ".local/bin/junction"), filepath.Join(home, ".local/bin/program")}
	r.Known, r.Upstreams, r.Clients, r.Links.Files = true, []string{"notes"}, []string{"cursor"}, []link{l}
	if err := errors.Join(r.save(), os.Symlink(l.To, l.File)); err != nil {
		t.Fatal(err)
	}
	client := filepath.Join(home, ".cursor", "mcp.json")
	text, err := revision.Read(client)
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, client, string(text)+"\n\n") // so that disconnect keeps a backup
	mustWrite(t, "a.yaml", broken)
	got := runProgram(t, "", "setup", "--undo", "--yes", "--config", "a.yaml")
	if _, err := os.Lstat(l.File); got.code == 0 || err != nil || !strings.Contains(got.stdout, "Removed Junction from ~/.cursor/mcp.json") {
		t.Errorf("the link is gone (%v) after an undo that must run again:\n%+v", err, got)
	}
	backups, err := filepath.Glob(client + ".*.bak")
	if err != nil || len(backups) == 0 {
		t.Fatalf("the first run has made no backup: %v", err)
	}
	mustWrite(t, "a.yaml", strings.TrimSuffix(broken, "x: [\n"))
	got = runProgram(t, "", "setup", "--undo", "--yes", "--config", "a.yaml")
	if _, err := os.Lstat(l.File); got.code != 0 || err == nil {
		t.Errorf("the second undo leaves the link:\n%+v", got)
	}
	_, stay, _ := strings.Cut(got.stdout, "These files stay")
	for _, b := range backups {
		if !strings.Contains(stay, filepath.Base(b)) {
			t.Errorf("the second undo does not name %s, a backup of the first one:\n%s", b, got.stdout)
		}
	}
}
