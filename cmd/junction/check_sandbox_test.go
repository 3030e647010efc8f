package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"junction/upstream"
)

// TestSafety3SandboxesOfTheFile: what the file says of a sandbox is what the command gets, and {} is the
// narrowest one, not none.
func TestSafety3SandboxesOfTheFile(t *testing.T) {
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
	for name, want := range map[string]upstream.Sandbox{
		"narrow": {},
		"wide":   {Read: []string{"/data/a", "/srv/b"}, Write: []string{"/srv/c"}, TCP: upstream.Ports{List: []upstream.Port{443, 8443, 80}}, Require: true},
		"closed": {TCP: upstream.Ports{List: []upstream.Port{}}},
	} {
		if got := c.Upstreams[name].Sandbox; got == nil || !reflect.DeepEqual(*got, want) || got.TCP.All() {
			t.Errorf("%s is read as %+v, want %+v", name, got, want)
		}
	}
	if got := c.Upstreams["every"].Sandbox; got == nil || !got.TCP.All() {
		t.Errorf("tcp: all is read as %+v", got)
	}
}

// TestSafety3CheckLooksAtSandboxes: check names paths that are not there, and those that leave open what
// the sandbox should protect, and nothing else.
func TestSafety3CheckLooksAtSandboxes(t *testing.T) {
	dir := t.TempDir()
	home, state, data, configs := filepath.Join(dir, "home"), filepath.Join(dir, "state"), filepath.Join(dir, "data"), filepath.Join(dir, "configs")
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
	own, keys := "the configuration file, "+file, "the keys and sign-ins of Junction, "+filepath.Join(state, "junction")
	absent := gone + " does not exist; create it, or remove the entry; that upstream shows as waiting"
	for name, row := range map[string]struct {
		entry string
		want  []string // without upstreams.x.sandbox
	}{
		"nothing to say":            {fmt.Sprintf("command: [sh], dir: %s, sandbox: { read: [%s] }", data, data), nil},
		"a missing path to read":    {fmt.Sprintf("command: [sh], sandbox: { read: [%s, %s] }", data, gone), []string{".read[1]: " + absent}},
		"a missing path to write":   {fmt.Sprintf("command: [sh], sandbox: { write: [%s] }", gone), []string{".write[0]: " + strings.Replace(absent, "create it", "create it (a folder: mkdir -p "+gone+")", 1)}},
		"the configuration":         {fmt.Sprintf("command: [sh], sandbox: { read: [%s] }", configs), []string{".read[0]: lets the command read " + own + "; name a narrower path"}},
		"the configuration, linked": {fmt.Sprintf("command: [sh], sandbox: { write: [%s] }", link), []string{".write[0]: lets the command change " + own + "; name a narrower path"}},
		"the keys":                  {fmt.Sprintf("command: [sh], sandbox: { read: [%s/] }", state), []string{".read[0]: lets the command read " + keys + "; name a narrower path"}},
		"a file of the keys":        {fmt.Sprintf("command: [sh], sandbox: { read: [%s/junction/key] }", state), []string{".read[0]: lets the command read " + keys + "; name a narrower path"}},
		"the folder of the file":    {fmt.Sprintf("command: [sh], dir: %s, sandbox: {}", configs), []string{": makes the working directory readable, and with it " + own + "; set dir to another folder"}},
		"the accepted tools": {fmt.Sprintf("command: [sh], sandbox: { write: [%s] } }\npins: %s/pins.json #", data, data),
			[]string{".write[0]: lets the command change the accepted definitions, " + data + "/pins.json; name a narrower path"}},
		"the home as a folder": {fmt.Sprintf("command: [sh], dir: %s, sandbox: {}", home), []string{": does not make the working directory " + home +
			" readable, because it contains the home folder; name in read what the command needs there"}},
		"the home, named":     {fmt.Sprintf("command: [sh], dir: %s, sandbox: { read: [%s] }", home, home), nil},
		"npx without network": {"command: [npx, x], sandbox: {}", []string{": permits no TCP, which npx needs to download packages; add tcp: [443], or the port of your proxy"}},
		"npx with a proxy":    {"command: [npx, x], sandbox: { tcp: [3128] }", nil},
		"npx with all ports":  {"command: [npx, x], sandbox: { tcp: all }", nil},
		"without a sandbox":   {fmt.Sprintf("command: [npx, x], dir: %s", configs), nil},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, []byte("upstreams:\n  x: { "+row.entry+" }\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if err := check(&out, file, environment(map[string]string{"XDG_STATE_HOME": state, "PATH": os.Getenv("PATH")})); err != nil {
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
