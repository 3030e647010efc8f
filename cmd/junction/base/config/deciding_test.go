//go:build unix

package config

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// playground has the folder W, which the command of the entry a may change, and the file in another
// folder.
type playground struct {
	dir, w, file string
	vars         map[string]string
}

func newPlayground(t *testing.T) *playground {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := &playground{dir: dir, w: filepath.Join(dir, "w"), file: filepath.Join(dir, "conf", "junction.yaml")}
	p.vars = map[string]string{"XDG_STATE_HOME": filepath.Join(dir, "state"), "HOME": dir, "W": p.w,
		"PATH": p.w + ":" + os.Getenv("PATH")}
	for _, folder := range []string{"w/notes", "conf", "bin", "pack"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// write writes an executable file; W and DIR in the text are the folders.
func (p *playground) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	text = strings.NewReplacer("DIR/", p.dir+"/", " W/", " "+p.w+"/", "[W/", "["+p.w+"/", "!W/", "!"+p.w+"/", ":W/", ":"+p.w+"/", "[W]", "["+p.w+"]").Replace(text)
	if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// load loads a file, as a running proxy does, and returns what it says of each upstream: the reason for
// which it is blocked, or its warnings that name a change.
func (p *playground) load(t *testing.T, text string) (blocked, warned map[string]string) {
	t.Helper()
	p.write(t, "conf/junction.yaml", text)
	c, warnings, err := LoadServing(p.file, environment(p.vars), true)
	if err != nil {
		t.Fatalf("the file is rejected: %v\n%s", err, text)
	}
	blocked, warned = map[string]string{}, map[string]string{}
	for name, u := range c.Upstreams {
		if u.Blocked != "" {
			blocked[name] = u.Blocked
		}
	}
	for _, w := range warnings {
		if strings.Contains(w.Text, "lets the command change") {
			warned[strings.TrimPrefix(entry(w.Path), "upstreams.")] = w.Text
		}
	}
	return blocked, warned
}

// TestConfinedCommandChangesNothingThatDecides: an entry, a server of a pack and a tool of a pack do not
// start with require if their sandbox lets them change a file that decides what commands may use, and
// get a warning without. The rest of the file applies.
func TestConfinedCommandChangesNothingThatDecides(t *testing.T) {
	const a = "upstreams:\n  a: { command: [cat], sandbox: { write: [W], REQUIRE } }\n"
	const none, tool = "tools: { t: { description: d, command: ['true'] } }\n", "tools:\n  t: { description: d, command: ['true'], "
	for name, row := range map[string]struct {
		files map[string]string
		text  string
		who   string // the entry that can make the change
		what  string // "" if there is none
	}{
		"nothing":                {nil, a + "  b: { command: [cat] }\n", "a", ""},
		"the configuration file": {nil, strings.Replace(a, "[W]", "[DIR/conf]", 1), "a", "the configuration file, DIR/conf/junction.yaml"},
		"the lock file of packs": {map[string]string{"conf/packs.lock": ""},
			strings.Replace(a, "[W]", "[DIR/conf/packs.lock]", 1), "a", "the lock file of packs, DIR/conf/packs.lock"},
		"the audit": {nil, a + "audit: { file: W/audit.jsonl }\n", "a", "the audit, DIR/w/audit.jsonl"},
		"the key of a client": {nil, a + "  b: { url: 'https://b.example.com', auth: { mode: client_credentials, issuer: " +
			"'https://c.example.com', client_id: us, private_key_file: W/key.pem } }\n", "a", "the key of upstreams.b, DIR/w/key.pem"},
		"the certificate of a client": {nil, a + "  b: { url: 'https://b.example.com', auth: { mode: client_credentials, issuer: " +
			"'https://c.example.com', client_id: us, cert_file: W/us.pem, key_file: DIR/us.key } }\n", "a",
			"the certificate of upstreams.b, DIR/w/us.pem"},
		"the key of tls": {nil, a + "  b: { url: 'https://b.example.com', tls: { cert_file: DIR/us.pem, key_file: W/us.key } }\n", "a",
			"the key of upstreams.b.tls, DIR/w/us.key"},
		"a file of a reference": {map[string]string{"w/which": "x"}, a + "  b: { command: [cat, '${file:W/which}'] }\n", "a",
			"a file that a reference names, DIR/w/which"},
		"a file of a reference, which is not there": {nil, a + "  b: { command: [cat, '${file:W/which}'], enabled: false }\n", "a",
			"a file that a reference names, DIR/w/which"},
		"a manifest": {map[string]string{"w/p/pack.yaml": none}, a + "  p: { pack: W/p }\n", "a", "the manifest of the pack of upstreams.p, DIR/w/p"},
		"a manifest that is off": {map[string]string{"w/p/pack.yaml": none}, a + "  p: { pack: W/p, enabled: false }\n", "a",
			"the manifest of the pack of upstreams.p, DIR/w/p"},
		"a new manifest of a folder": {map[string]string{"pack/pack.yaml": none},
			strings.Replace(a, "[W]", "[DIR/pack]", 1) + "  p: { pack: DIR/pack }\n", "a", "the manifest of the pack of upstreams.p, DIR/pack"},
		"a folder of a pack": {map[string]string{"pack/pack.yaml": none, "pack/notes/n": ""},
			strings.Replace(a, "[W]", "[DIR/pack/notes]", 1) + "  p: { pack: DIR/pack }\n", "a", ""},
		"a file of a manifest": {map[string]string{"pack/pack.yaml": tool + "env: { X: '${file:W/which}' } }\n", "w/which": "x"},
			a + "  p: { pack: DIR/pack }\n", "a", "a file that the manifest refers to of the pack of upstreams.p, DIR/w/which"},
		"the program of a tool": {map[string]string{"pack/pack.yaml": "tools:\n  t: { description: d, command: [W/prog] }\n", "w/prog": ""},
			a + "  p: { pack: DIR/pack }\n", "a", "the program of the tool t of the pack of upstreams.p, DIR/w/prog"},
		"the program of a tool, by reference": {map[string]string{"pack/pack.yaml": "tools:\n  t: { description: d, " +
			"command: ['${TOOLS}/prog'] }\n", "w/prog": ""}, a + "  p: { pack: DIR/pack, env: { TOOLS: DIR/w } }\n", "a",
			"the program of the tool t of the pack of upstreams.p, DIR/w/prog"},
		"the program of a tool, in a folder by reference": {map[string]string{"pack/pack.yaml": "tools:\n" +
			"  t: { description: d, command: [./prog], dir: '${TOOLS}' }\n", "w/prog": ""},
			a + "  p: { pack: DIR/pack, env: { TOOLS: DIR/w } }\n", "a",
			"the program of the tool t of the pack of upstreams.p, DIR/w/prog"},
		"the program of a tool, in a PATH by reference": {map[string]string{"pack/pack.yaml": "tools:\n" +
			"  t: { description: d, command: [prog], env: { PATH: '${TOOLS}:/bin' } }\n", "w/prog": ""},
			a + "  p: { pack: DIR/pack, env: { TOOLS: DIR/w } }\n", "a",
			"the program of the tool t of the pack of upstreams.p, DIR/w/prog"},
		"the program of a tool, in the PATH of the pack": {map[string]string{"pack/pack.yaml": "tools:\n" +
			"  t: { description: d, command: [prog] }\n", "w/prog": ""},
			a + "  p: { pack: DIR/pack, env: { PATH: DIR/w } }\n", "a",
			"the program of the tool t of the pack of upstreams.p, DIR/w/prog"},
		"a program": {map[string]string{"w/prog": ""}, a + "  b: { command: [W/prog] }\n", "a", "the program of upstreams.b, DIR/w/prog"},
		"a program that is off": {map[string]string{"w/prog": ""}, a + "  b: { command: [W/prog], enabled: false }\n", "a",
			"the program of upstreams.b, DIR/w/prog"},
		"a confined program":                  {map[string]string{"w/prog": ""}, a + "  b: { command: [W/prog], sandbox: { read: [W/prog] } }\n", "a", ""},
		"a program that would be found first": {nil, a + "  b: { command: [cat] }\n", "a", ""},
		"the interpreter of a program": {map[string]string{"bin/prog": "#!W/python -x\n", "w/python": ""}, a +
			"  b: { command: [DIR/bin/prog] }\n", "a", "the program of upstreams.b, DIR/w/python"},
		"the manifest of its server": {map[string]string{"pack/pack.yaml": "servers:\n  ev: { description: d, command: [cat], " +
			"sandbox: { write: ['${PACK_DIR}'], REQUIRE } }\n"}, "upstreams:\n  p: { pack: DIR/pack, servers: [ev] }\n", "p-ev",
			"the manifest of the pack of upstreams.p, DIR/pack"},
		"the configuration file, by a tool": {map[string]string{"pack/pack.yaml": tool + "sandbox: { write: ['${CONF}'], REQUIRE } }\n"},
			"upstreams:\n  p: { pack: DIR/pack, env: { CONF: DIR/conf } }\n", "p", "the configuration file, DIR/conf/junction.yaml"},
	} {
		for _, require := range []string{"require: true", "require: false"} {
			t.Run(strings.NewReplacer(",", "", ": ", " ").Replace(name+" "+require), func(t *testing.T) {
				p := newPlayground(t)
				for file, text := range row.files {
					p.write(t, file, strings.ReplaceAll(text, "REQUIRE", require))
				}
				if strings.Contains(name, "found first") {
					row.what = "the program of upstreams.b, DIR/w/cat"
				} else {
					p.vars["PATH"] = os.Getenv("PATH")
				}
				blocked, warned := p.load(t, strings.ReplaceAll(row.text, "REQUIRE", require))
				got, other := blocked, warned
				if require == "require: false" {
					got, other = warned, blocked
				}
				what := strings.ReplaceAll(row.what, "DIR/", p.dir+"/")
				if len(other) > 0 || (what == "") != (len(got) == 0) || what != "" && (len(got) != 1 ||
					!strings.Contains(got[row.who], "lets the command change "+what+"; name a narrower path")) {
					t.Errorf("blocked are %q, and warnings %q; want that %s can change %q", blocked, warned, row.who, what)
				}
			})
		}
	}
}

// TestPrivateFolderHasNothingThatDecides: a command does not start if the program of another one is in its
// private folder.
func TestPrivateFolderHasNothingThatDecides(t *testing.T) {
	p := newPlayground(t)
	private := filepath.Join("state", "junction", "sandbox", FolderOf(p.file), "a")
	p.write(t, filepath.Join(private, "prog"), "#!/bin/sh\n")
	blocked, _ := p.load(t, "upstreams:\n  a: { command: [cat], sandbox: { require: true } }\n  b: { command: [DIR/"+
		private+"/prog] }\n  c: { command: [cat], sandbox: { require: true } }\n")
	want := "the program of upstreams.b, " + filepath.Join(p.dir, private, "prog") + ", which is in its private folder"
	if len(blocked) != 1 || !strings.Contains(blocked["a"], want) {
		t.Errorf("blocked are %q, want a with %q", blocked, want)
	}
}

// TestStateDirectoryMayHoldOtherFiles: a command may change a folder in the state directory, or in the
// folder of the key, that is not of Junction. It may change neither what Junction keeps there nor the
// whole directory.
func TestStateDirectoryMayHoldOtherFiles(t *testing.T) {
	files := []string{"key", "master.key", "junction.db", "junction.db-wal", "junction.db.lease", "connections.json",
		"setup/x.json", "service/x.yaml", "signins/x.json", "ended-sessions", "api-keys/x", "running/x.secret",
		"catalogs/x/y", "sandbox/x/b", "sandbox"}
	blocks := map[string]bool{"state/junction/notes": false, "state/junction": true, "state": true,
		"keys/notes": false, "keys": true, "keys/catalogs": true, "keys/sandbox/x/b": true, "keys/ended-sessions": true,
		"keys/api-keys/x": true, "keys/own.db-wal": true}
	for _, file := range files {
		blocks["state/junction/"+file] = true
	}
	p := newPlayground(t)
	for _, folder := range []string{"state/junction/notes", "keys/notes"} {
		if err := os.MkdirAll(filepath.Join(p.dir, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range blocks {
		blocked, _ := p.load(t, "upstreams:\n  a: { command: [cat], sandbox: { write: [DIR/"+path+"], require: true } }\n"+
			"sessions: { key_file: DIR/keys/key }\nstorage: { dsn: DIR/keys/own.db }\n")
		if got := strings.Contains(blocked["a"], "lets the command change "); got != want {
			t.Errorf("that a write of %s is blocked is %t (%q), want %t", path, got, blocked["a"], want)
		}
	}
}

// TestWriteOfDisabledEntriesCounts: what the sandboxes of disabled entries, of the servers of disabled
// packs, and of the tools of packs permit to change is known, also by reference.
func TestWriteOfDisabledEntriesCounts(t *testing.T) {
	p := newPlayground(t)
	p.write(t, "pack/pack.yaml", `
tools: { t: { description: d, command: ['true'], sandbox: { write: ["${HOME}/tool"] } } }
servers: { s: { description: d, command: [cat], sandbox: { write: ["${SUB}/server", "${PACK_DIR}/notes"] } } }
`)
	p.write(t, "conf/junction.yaml", `
upstreams:
  a: { command: [cat], sandbox: { write: ["${W}/a"] }, enabled: false }
  p: { pack: DIR/pack, servers: [s], env: { SUB: "${HOME}/sub" }, enabled: false }
  b: { command: [cat], sandbox: { read: [W/a], require: true } }
`)
	c, _, err := LoadServing(p.file, environment(p.vars), true)
	if err != nil || c.Upstreams["b"].Blocked != "" {
		t.Fatalf("%v, %q", err, c.Upstreams["b"].Blocked)
	}
	got := c.writable(p.file, environment(p.vars))
	for _, want := range []string{"w/a", "tool", "sub/server", "pack/notes"} {
		if want = filepath.Join(p.dir, want); !slices.Contains(got, want) {
			t.Errorf("commands may change %q, and not %s", got, want)
		}
	}
}

// TestUnknownWriteKeepsOthersFromStarting: if a reference in write cannot be resolved, also of an entry
// that is off, no other command with require starts, and the reason says what to do.
func TestUnknownWriteKeepsOthersFromStarting(t *testing.T) {
	const rest = `
  b: { command: [cat], sandbox: { require: true } }
  loose: { command: [cat], sandbox: {} }
  free: { command: [cat] }
`
	p := newPlayground(t)
	p.write(t, "pack/pack.yaml", "tools: { t: { description: d, command: ['true'], sandbox: { write: ['${UNSET}'] } } }\n")
	p.write(t, "program/pack.yaml", "tools: { t: { description: d, command: ['${UNSET}/prog'] } }\n")
	why := ": the environment variable UNSET is not set; set it"
	for name, row := range map[string]struct {
		entry   string
		blocked []string
		where   string
	}{
		"off":    {"a: { command: [cat], sandbox: { write: ['${UNSET}/x'] }, enabled: false }", []string{"b"}, "upstreams.a.sandbox.write[0]"},
		"on":     {"a: { command: [cat], sandbox: { write: ['${UNSET}/x'] } }", []string{"a", "b"}, "upstreams.a.sandbox.write[0]"},
		"read":   {"a: { command: [cat], sandbox: { read: ['${UNSET}/x'] }, enabled: false }", nil, ""},
		"a pack": {"a: { pack: DIR/pack, enabled: false }", []string{"b"}, "upstreams.a.pack: tools.t.sandbox.write"},
		"a program": {"a: { pack: DIR/program, enabled: false }", []string{"b"},
			"upstreams.a.pack: tools.t.command[0]"},
		"its pack": {"a: { pack: DIR/pack, sandbox: { require: true } }", []string{"b"}, "upstreams.a.pack: tools.t.sandbox.write"},
	} {
		t.Run(name, func(t *testing.T) {
			blocked, _ := p.load(t, "upstreams:\n  "+row.entry+rest)
			if got := slices.Sorted(maps.Keys(blocked)); !slices.Equal(got, row.blocked) {
				t.Errorf("blocked are %q, want %q", blocked, row.blocked)
			}
			if row.where != "" && !strings.Contains(blocked["b"], row.where+why) {
				t.Errorf("b is blocked because %q, want %q", blocked["b"], row.where+why)
			}
		})
	}
}

// TestOnlyPacksAreToldOfSandboxes: a program that serves a pack gets the paths that others may change,
// and the servers of the pack do not.
func TestOnlyPacksAreToldOfSandboxes(t *testing.T) {
	p := newPlayground(t)
	p.write(t, "pack/pack.yaml", "servers: { s: { description: d, command: [cat] } }\n")
	p.write(t, "conf/junction.yaml", "upstreams:\n  p: { pack: DIR/pack, servers: [s] }\n  a: { command: [cat] }\n")
	c, _, err := LoadServing(p.file, environment(p.vars), true)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"p": true, "p-s": false, "a": false} {
		if got := c.Upstreams[name].Confines; got != want {
			t.Errorf("that %s is told is %t, want %t", name, got, want)
		}
	}
}

// TestVariablesOfDisabledEntriesAreReserved: a command gets a variable that a disabled entry uses only by
// its exact name.
func TestVariablesOfDisabledEntriesAreReserved(t *testing.T) {
	c := mustParse(t, `
upstreams:
  off: { url: "https://x.example.com", headers: { Authorization: "Bearer ${USED_OFF}" }, enabled: false }
  all: { command: [x], inherit_env: all }
  glob: { command: [x], inherit_env: ["USED*"] }
  exact: { command: [x], inherit_env: [USED_OFF] }
`, map[string]string{"USED_OFF": "s"})
	for _, name := range []string{"all", "glob"} {
		if got := c.Upstreams[name].Reserved; !slices.Equal(got, []string{"USED_OFF"}) {
			t.Errorf("%s has %q reserved", name, got)
		}
	}
}

// TestCheckNamesWritesThatOthersRead: check names a path of write in a folder that every confined command
// may read, such as a folder of PATH.
func TestCheckNamesWritesThatOthersRead(t *testing.T) {
	mustEnforceHere(t)
	p := newPlayground(t)
	p.vars["PATH"] = filepath.Join(p.dir, "bin") + ":" + os.Getenv("PATH")
	p.vars["HOME"] = filepath.Join(p.dir, "home")
	p.write(t, "bin/sub/x", "")
	p.write(t, "conf/junction.yaml", "upstreams: { a: { command: [cat], sandbox: { write: [DIR/bin/sub, W/notes] } } }\n")
	_, warnings, err := LoadServing(p.file, environment(p.vars), false)
	var got []string
	for _, w := range warnings {
		if strings.Contains(w.Text, "every confined command may read and run files") {
			got = append(got, w.Path+" "+w.Text)
		}
	}
	want := "upstreams.a.sandbox.write[0] is in " + p.dir + "/bin, where every"
	if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("%v, and the warnings are %q, want one that begins with %q", err, got, want)
	}
}

// TestCheckWarnsAboutKeysOfClients: a file of a key is relative to the configuration, and check warns of one that
// cannot be used, but not of the file of an entry that is off.
func TestCheckWarnsAboutKeysOfClients(t *testing.T) {
	p := newPlayground(t)
	const entry = "{ url: 'https://b.example.com', auth: { mode: client_credentials, issuer: 'https://c.example.com', " +
		"client_id: us, private_key_file: key.pem }"
	p.write(t, "conf/junction.yaml", "upstreams:\n  on: "+entry+" }\n  off: "+entry+", enabled: false }\n")
	file := filepath.Join(p.dir, "conf", "key.pem")
	for want, text := range map[string]string{"cannot read " + file: "", "no private key in PEM": "canary-key"} {
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			os.Remove(file)
		}
		r, err := Inspect(p.file, environment(p.vars), func(*Config) []Problem { return nil })
		if err != nil || len(r.Mistakes) > 0 || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0].Text, want) ||
			r.Warnings[0].Path != "upstreams.on.auth.private_key_file" || strings.Contains(r.Warnings[0].Text, "canary") {
			t.Errorf("%v: %+v, want %q", err, r, want)
		}
	}
}

// TestRelativePathsBeginBesideTheFile: each file that a configuration names is found in its folder, wherever Junction
// is started.
func TestRelativePathsBeginBesideTheFile(t *testing.T) {
	p := newPlayground(t)
	p.write(t, "conf/junction.yaml", "outbound: { ca_file: own/ca.pem }\naudit: { file: own/audit.jsonl }\nupstreams:\n"+
		"  a: { url: 'https://a.example', tls: { ca_file: own/ca.pem, cert_file: own/c.pem, key_file: own/c.key } }\n"+
		"  b: { url: 'https://b.example', auth: { mode: client_credentials, issuer: 'https://c.example', client_id: us, "+
		"private_key_file: own/b.key } }\n")
	c, _, err := Load(p.file, environment(p.vars))
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Upstreams["a"].TLS, c.Upstreams["b"].Auth
	for name, got := range map[string]string{"ca.pem": c.Outbound.CAFile, "audit.jsonl": c.Audit.File, " ca.pem": a.CAFile,
		"c.pem": a.CertFile, "c.key": a.KeyFile, "b.key": b.PrivateKeyFile} {
		if want := filepath.Join(p.dir, "conf", "own", strings.TrimSpace(name)); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
