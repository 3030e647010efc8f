package config

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"junction/upstream/folder"
)

// mustGuard returns the Guard of a file, whose paths DIR stand for the folder with the file.
func mustGuard(t *testing.T, dir, text string) *folder.Guard {
	t.Helper()
	file := filepath.Join(dir, "conf", "junction.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, file, strings.ReplaceAll(text, "DIR", dir))
	getenv := environment(map[string]string{"XDG_STATE_HOME": filepath.Join(dir, "state"), "PATH": filepath.Join(dir, "bin")})
	c, _, err := Load(file, getenv)
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.PermittedFolders(file, getenv)
	if err != nil {
		t.Fatal(err)
	}
	return folder.New(c.FolderRules(file, list))
}

// TestFoldersKeepApartFromJunction permits a folder around everything: no client can name a folder with a
// file of Junction, and an entry with a sandbox gets no folder with what another entry runs or may change.
func TestFoldersKeepApartFromJunction(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"src/shop", "src/blog", "src/private/a", "audit", "pins", "keys", "db", "token", "bin/tools",
		"state/junction/x", "dir", "write", "write/in", "packs/p", "state/other"}
	for _, name := range names {
		if err := os.MkdirAll(filepath.Join(dir, filepath.FromSlash(name)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"bin/server", "token/t"} {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(file)), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	g := mustGuard(t, dir, `
folders: { within: ["DIR"], except: ["DIR/src/private"] }
audit: { file: "DIR/audit/a.jsonl" }
pins: "DIR/pins/pins.json"
sessions: { key_file: "DIR/keys/key" }
storage: { dsn: "DIR/db/junction.db" }
upstreams:
  a: { command: [server], dir: "DIR/dir", env: { T: "${file:DIR/token/t}" } }
  b: { command: [server], sandbox: { write: ["DIR/write"] } }
`)
	admits := func(g *folder.Guard, name string) string {
		_, err := g.Admit(t.Context(), "local", filepath.Join(dir, filepath.FromSlash(name)))
		if err == nil {
			return ""
		}
		return err.Error()
	}
	for name, why := range map[string]string{"conf": "the configuration file", "audit": "the audit", "pins": "the accepted definitions",
		"keys": "the key of sessions", "db": "the sign-ins", "token": "a file that a reference names",
		"state": "the keys and sign-ins", "state/junction/x": "the keys and sign-ins", "src/private": "folders.except",
		"src/private/a": "folders.except", "src": "folders.except", ".": "it contains"} {
		if got := admits(g, name); !strings.Contains(got, why) {
			t.Errorf("%s: %q, want %q", name, got, why)
		}
	}
	for _, name := range []string{"src/shop", "src/blog", "dir", "write", "state/other", "bin"} {
		if got := admits(g, name); got != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if runtime.GOOS == "windows" {
		return // a program has another name there
	}
	for name, why := range map[string]string{"bin": "the program of upstreams.", "dir": "dir of upstreams.a",
		"write": "a path of write of upstreams.b", "write/in": "a path of write of upstreams.b"} {
		if got := admits(g.Beside("c"), name); !strings.Contains(got, why) {
			t.Errorf("%s, for an entry with a sandbox: %q, want %q", name, got, why)
		}
	}
	if got := admits(g.Beside("b"), "write"); got != "" { // its own
		t.Errorf("what the entry itself may write: %s", got)
	}
}

// TestFoldersOfARefusedReload: a folder is permitted only if both files permit it.
func TestFoldersOfARefusedReload(t *testing.T) {
	within := func(paths ...string) Folders { return Folders{Within: paths} }
	for _, test := range []struct{ a, b, want Folders }{
		{within("/u/src"), within("/u/src/"), within("/u/src")},
		{within("/u"), within("/u/src", "/v"), within("/u/src")},
		{within("/u/src", "/w"), within("/u", "/w/x"), within("/u/src", "/w/x")},
		{within("/u/src"), within("/u/src2", "/u/sr"), Folders{}},
		{within("/u"), Folders{}, Folders{}},
		{Folders{Except: []string{"/a"}}, Folders{Except: []string{"/b"}}, Folders{Except: []string{"/a", "/b"}}},
	} {
		for _, pair := range [][2]Folders{{test.a, test.b}, {test.b, test.a}} {
			got := pair[0].meet(pair[1])
			if !slices.Equal(got.Within, test.want.Within) || !slices.Equal(got.Except, test.want.Except) {
				t.Errorf("%v and %v give %v, want %v", pair[0], pair[1], got, test.want)
			}
		}
	}
	const upstreams = "upstreams: { u: { command: [x] } }\n"
	_, _, change := refusedPair(t, upstreams+"folders: { within: [/u, /v] }\n", upstreams+"folders: { within: [/u/src], except: [/u/src/p] }\n")
	if got := change.Config.Folders; !slices.Equal(got.Within, []string{"/u/src"}) || !slices.Equal(got.Except, []string{"/u/src/p"}) {
		t.Errorf("in force is %v", got)
	}
	if got := change.Partial.Both; !slices.Contains(got, "folders.within") || !slices.Contains(got, "folders.except") {
		t.Errorf("both files decide %q", got)
	}
}

// TestCheckWarnsAboutFolders: several principals, replicas, and folders that nobody can name.
func TestCheckWarnsAboutFolders(t *testing.T) {
	dir := t.TempDir()
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	key := func(name string, n int) string { return fmt.Sprintf("{ name: %s, hash: \"sha256:%064d\" }", name, n) }
	const upstreams = "upstreams: { u: { command: [junction, demo], isolation: folder } }\n"
	within := "folders: { within: [" + dir + "] }\n"
	for _, test := range []struct {
		text  string
		want  string // "" for none
		allow bool   // dir is permitted by junction folders
	}{
		{"", "", true},
		{"auth: { api_keys: [" + key("a", 1) + ", " + key("b", 2) + "] }\n", "every principal can name each of the folders of junction folders list", true},
		{"auth: { api_keys: [" + key("a", 1) + ", " + key("b", 2) + "] }\n", "", false},
		{within, "", false},
		{"auth: { api_keys: [" + key("a", 1) + "] }\n" + within, "", false},
		{"auth: { api_keys: [" + key("a", 1) + ", " + key("b", 2) + "] }\n" + within, "every principal can name", false},
		{"auth: { api_keys: [" + key("a", 1) + ", " + key("b", 2) + "] }\n" + within +
			"policies: [{ name: p, folders: [" + dir + "], rules: [{ allow: { upstreams: \"*\" } }] }]\n", "", false},
		{"replicas: { listen: \"127.0.0.1:0\", advertise: \"127.0.0.1:0\" }\n" + within, "that of the machine of the process", false},
		{"folders: { within: [" + filepath.Join(home, ".ssh") + "] }\n", ".ssh is a hidden folder", false},
		{"folders: { within: [" + filepath.Join(home, "Library") + "] }\n", "private data", false},
		{"folders: { within: [" + filepath.Join(dir, "missing") + "] }\n", "there is no folder", false},
	} {
		file := filepath.Join(t.TempDir(), "junction.yaml")
		mustWrite(t, file, upstreams+test.text)
		getenv := environment(map[string]string{"XDG_STATE_HOME": filepath.Join(filepath.Dir(file), "state")})
		if test.allow {
			c, _, err := Load(file, getenv)
			if err == nil {
				_, err = c.AllowFolders(t.Context(), file, getenv, dir)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		_, warnings, _ := Load(file, getenv)
		var got []string
		for _, w := range warnings {
			if strings.Contains(w.Text, "folder") {
				got = append(got, w.Text)
			}
		}
		if text := strings.Join(got, "\n"); test.want == "" && text != "" || !strings.Contains(text, test.want) || len(got) > 1 {
			t.Errorf("warnings of\n%s\ngot %q, want %q", test.text, got, test.want)
		}
	}
}
