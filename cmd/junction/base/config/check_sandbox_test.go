package config

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"junction/upstream/command"
	"junction/upstream/sandbox"
)

// TestSandboxesAreParsed: what the file says of a sandbox is what the command gets, and {}
// is the narrowest one, not none.
func TestSandboxesAreParsed(t *testing.T) {
	c := mustParse(t, `
upstreams:
  none: { command: [x] }
  narrow: { command: [x], sandbox: {} }
  wide:
    command: [x]
    sandbox: { read: ["${DATA}/a", "${MORE:-/srv/b}"], write: [/srv/c], tcp: [443, "${PORT}", "80"], require: true }
  closed: { command: [x], sandbox: { tcp: [] } }
  every: { command: [x], sandbox: { tcp: all } }
`, map[string]string{"DATA": "/data", "PORT": "8443"})
	if got := c.Upstreams["none"].Sandbox; got != nil {
		t.Errorf("no sandbox is read as %+v", got)
	}
	for name, want := range map[string]command.Sandbox{
		"narrow": {},
		"wide": {Read: []string{"/data/a", "/srv/b"}, Write: []string{"/srv/c"},
			TCP: command.Ports{List: []command.Port{443, 8443, 80}}, Require: true},
		"closed": {TCP: command.Ports{List: []command.Port{}}},
	} {
		if got := c.Upstreams[name].Sandbox; got == nil || !reflect.DeepEqual(*got, want) || got.TCP.All() {
			t.Errorf("%s is read as %+v, want %+v", name, got, want)
		}
	}
	if got := c.Upstreams["every"].Sandbox; got == nil || !got.TCP.All() {
		t.Errorf("tcp: all is read as %+v", got)
	}
}

// TestCheckWarnsAboutSandboxes: check names paths that are not there, and those that leave open
// what the sandbox should protect, and nothing else.
func TestCheckWarnsAboutSandboxes(t *testing.T) {
	dir := t.TempDir()
	home, state := filepath.Join(dir, "home"), filepath.Join(dir, "state")
	data, configs := filepath.Join(dir, "data"), filepath.Join(dir, "configs")
	for _, d := range []string{home, filepath.Join(state, "junction"), data, configs} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(state, "junction", "key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(configs, link); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	file, gone := filepath.Join(configs, "junction.yaml"), filepath.Join(dir, "gone")
	own := "the configuration file, " + file
	keys := "the keys and sign-ins of Junction, " + filepath.Join(state, "junction")
	absent := gone + " does not exist; create it, or remove the entry; that upstream cannot start"
	uncreated := strings.Replace(absent, "create it", "create it (a folder: mkdir -p "+gone+")", 1)
	lets := func(verb, what string) string {
		return "." + map[string]string{"read": "read", "change": "write"}[verb] + "[0]: lets the command " + verb + " " +
			what + "; name a narrower path"
	}
	in := func(dir string) string { // the beginning of an entry with that working directory
		if dir != "" {
			dir = ", dir: " + dir
		}
		return "command: [sh]" + dir + ", sandbox: { "
	}
	for name, row := range map[string]struct {
		entry string
		want  []string // without upstreams.x.sandbox
	}{
		"nothing to say":            {in(data) + "read: [" + data + "] }", nil},
		"a missing path to read":    {in("") + "read: [" + data + ", " + gone + "] }", []string{".read[1]: " + absent}},
		"a missing path to write":   {in("") + "write: [" + gone + "] }", []string{".write[0]: " + uncreated}},
		"the configuration":         {in("") + "read: [" + configs + "] }", []string{lets("read", own)}},
		"the configuration, linked": {in("") + "write: [" + link + "] }", []string{lets("change", own)}},
		"the keys":                  {in("") + "read: [" + state + "/] }", []string{lets("read", keys)}},
		"a file of the keys": {in("") + "read: [" + state + "/junction/key] }", []string{
			lets("read", "the key of sessions, "+state+"/junction/key")}},
		"the accepted tools": {in("") + "write: [" + data + "] } }\npins: " + data + "/pins.json #",
			[]string{lets("change", "the accepted definitions, "+data+"/pins.json")}},
		"the folder of the file": {in(configs) + "}", []string{
			": makes the working directory readable, and with it " + own + "; set dir to another folder"}},
		"the home as a folder": {in(home) + "}", []string{": does not make the working directory " + home +
			" readable, because it contains the home folder; name in read what the command needs there"}},
		"the home, named": {in(home) + "read: [" + home + "] }", nil},
		"npx without network": {"command: [npx, x], sandbox: {}", []string{
			": permits no TCP, which npx needs to download packages; add tcp: [443], or the port of your proxy"}},
		"npx with a proxy":   {"command: [npx, x], sandbox: { tcp: [3128] }", nil},
		"npx with all ports": {"command: [npx, x], sandbox: { tcp: all }", nil},
		"without a sandbox":  {"command: [npx, x], dir: " + configs, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte("upstreams:\n  x: { "+row.entry+" }\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			getenv := environment(map[string]string{"XDG_STATE_HOME": state, "PATH": os.Getenv("PATH")})
			if err := checkFile(&out, file, getenv); err != nil {
				t.Fatal(err)
			}
			var got []string
			for line := range strings.Lines(out.String()) {
				_, text, ours := strings.Cut(strings.TrimSuffix(line, "\n"), ": upstreams.x.sandbox")
				if ours && !strings.Contains(text, "this machine ") { // which is about the kernel
					got = append(got, text)
				}
			}
			if !slices.Equal(got, row.want) {
				t.Errorf("check says\n%q, want\n%q", got, row.want)
			}
		})
	}
}

// TestCheckNamesWhatCommandsMayChange: check names each program, dir and path that a confined command
// of the file may change, and the line that another entry needs.
func TestCheckNamesWhatCommandsMayChange(t *testing.T) {
	mustEnforceHere(t)
	dir := t.TempDir()
	w := filepath.Join(dir, "w")
	for _, d := range []string{"w/in", "w/dir", "other"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(w, "server")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "other"), filepath.Join(w, "link")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "junction.yaml")
	text := strings.ReplaceAll(`upstreams:
  own: { command: [W/server], dir: W/dir, sandbox: { write: [W, W/in] } }
  other: { command: [W/server], dir: W/dir, sandbox: {} }
  named: { command: [W/server], sandbox: { read: [W/server, W/link] } }
`, "W", w)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	getenv := environment(map[string]string{"XDG_STATE_HOME": dir, "PATH": os.Getenv("PATH")})
	if err := checkFile(&out, file, getenv); err != nil {
		t.Fatal(err)
	}
	in := " is in " + w + ", which confined commands may change, so "
	unread := func(path string) string {
		return path + in + "it is not readable by default; add it to sandbox: { read: [" + path +
			"] }; that upstream cannot start"
	}
	followed := in + "no link there is followed"
	for _, want := range []string{
		"upstreams.own.command: the program " + program + followed, "upstreams.own.dir: the folder " + w + "/dir" + followed,
		"upstreams.own.sandbox.write[1]: the path " + w + "/in" + followed,
		"upstreams.other.command: the program " + unread(program), "upstreams.other.dir: the folder " + unread(w+"/dir"),
		"upstreams.named.command: the program " + program + followed,
		"upstreams.named.sandbox.read[1]: " + w + "/link is a link below " + w +
			", which confined commands may change, so it is not followed; replace the link by its target, " +
			"or name the target in read; that upstream cannot start",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("check does not say %q", want)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

// mustEnforceHere skips a test of warnings that only a kernel with Landlock has.
func mustEnforceHere(t *testing.T) {
	t.Helper()
	if !sandbox.Kernel().Enforces() {
		t.Skip("NOT TESTED: " + sandbox.Kernel().Why)
	}
}
