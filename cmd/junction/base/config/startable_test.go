package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStartLeavesOut: a start names each enabled upstream that it does not run, with the line and the reason. A
// mistake elsewhere rejects the file.
func TestStartLeavesOut(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	unset := func(name string) (string, bool) {
		if name == "PATH" {
			return os.LookupEnv(name)
		}
		return "", false
	}
	load := func(text string) ([]LeftOut, error) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, left, _, err := LoadStarting(file, unset)
		return left, err
	}
	const text = `upstreams:
  good: { command: [junction, demo] }
  off: { command: [no-such-program], enabled: false }
  key: { command: [junction, demo], timeot: 5s }
  mode: { url: "https://a.example/mcp", auth: { mode: oath } }
  variable: { command: [junction, demo], env: { A: "${NOT_SET}" } }
  file: { command: [junction, demo], env: { A: "${file:nowhere}" } }
  program: { command: [no-such-program] }
  folder: { command: [junction, demo], dir: /no/such/folder }
  pack: { pack: ./nowhere }
`
	left, err := load(text)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"key": ":4: upstreams.key.timeot: unknown key", "mode": ":5: upstreams.mode.auth.mode: ",
		"variable": ":6: upstreams.variable.env.A: ", "file": ":7: upstreams.file.env.A: ",
		"program": ":8: upstreams.program.command: there is no program", "folder": ":9: upstreams.folder.dir: is no folder",
		"pack": ":10: upstreams.pack.pack: cannot read "}
	for _, l := range left {
		if want[l.Name] == "" || !strings.Contains(l.Why, want[l.Name]) {
			t.Errorf("%s is left out: %s", l.Name, l.Why)
		}
		delete(want, l.Name)
	}
	for name := range want {
		t.Errorf("%s is not left out", name)
	}
	left, err = load(text + "loging: {}\n")
	if _, ok := errors.AsType[Problems](err); !ok || len(left) > 0 {
		t.Errorf("a mistake elsewhere gives %v, %v", left, err)
	}
	if first, err := Broken(file); err != nil || !strings.Contains(first, ":11: loging: unknown key") {
		t.Errorf("the first mistake that keeps Junction from starting is %q, %v", first, err)
	}
	if left, err = load("upstreams:\n  variable: { command: [junction], env: { A: \"${NOT_SET}\" } }\n"); err != nil || len(left) != 1 {
		t.Errorf("a variable that is not set gives %v, %v", left, err)
	}
	if first, err := Broken(file); first != "" || err != nil {
		t.Errorf("a variable that this process lacks is a mistake: %q, %v", first, err)
	}
	if _, err := Broken(filepath.Join(dir, "none.yaml")); err == nil {
		t.Error("a file that does not exist is no error")
	}
}
