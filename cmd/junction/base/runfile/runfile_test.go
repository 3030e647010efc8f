package runfile

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestFind: a process is found by its file while it runs, and not after its end, however it ended.
func TestFind(t *testing.T) {
	state, dir := t.TempDir(), t.TempDir()
	t.Setenv("XDG_STATE_HOME", state)
	file := filepath.Join(dir, "config.yaml")
	if p, ok := Find(file); ok {
		t.Fatalf("Find gives %+v before anything runs", p)
	}
	want := Place{URL: "http://127.0.0.1:1/mcp", Admin: "127.0.0.1:2", Process: This(), File: file}
	record, err := Note(os.LookupEnv, file, Place{URL: want.URL, Admin: want.Admin}, "canary-secret")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, name := range []string{file, "config.yaml", "../" + filepath.Base(dir) + "/config.yaml"} {
		if p, ok := Find(name); !ok || p != want {
			t.Errorf("Find(%s) gives %+v %v, want %+v", name, p, ok, want)
		}
	}
	for _, name := range []string{"", "other.yaml"} {
		if p, ok := Find(name); ok {
			t.Errorf("Find(%s) gives %+v", name, p)
		}
	}
	// An address in use leads to the process, also if all addresses of the machine are meant.
	for address, found := range map[string]bool{"127.0.0.1:1": true, "127.0.0.1:2": true, "0.0.0.0:1": true, ":2": true,
		"127.0.0.1:3": false, "127.0.0.1:0": false, "nonsense": false} {
		if p, ok := At(address); ok != found || ok && p != want {
			t.Errorf("At(%s) gives %+v %v", address, p, ok)
		}
	}
	if got := Secret(want.Admin); got != "canary-secret" {
		t.Errorf("the secret is %q", got)
	}
	_, port, _ := net.SplitHostPort(want.Admin)
	for _, other := range []string{"127.0.0.1:3", "192.0.2.2:" + port, "localhost:" + port, "[::1]:" + port, ":" + port, ""} {
		if got := Secret(other); got != "" {
			t.Errorf("the secret for another address, %s, is %q", other, got)
		}
	}
	for _, name := range mustGlob(t, filepath.Join(state, "junction", "running", "*")) {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("others can read %s (%v, %v)", name, info.Mode(), err)
		}
	}
	record.Forget()
	if left := mustGlob(t, filepath.Join(state, "junction", "running", "*")); len(left) > 0 {
		t.Errorf("the process has left %q", left)
	}
	if p, ok := Find(file); ok {
		t.Errorf("Find gives %+v after the end", p)
	}
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func mustJSON(t *testing.T, p any) []byte {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
