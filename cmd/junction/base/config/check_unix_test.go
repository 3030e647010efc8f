//go:build unix

package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestCheckNamesAFileThatOthersCanWrite: check names the file, or the folder with the secrets of Junction, if
// other users of the machine can write it, and the command that ends this.
func TestCheckNamesAFileThatOthersCanWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte("upstreams: { a: { url: https://a.example.com } }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		file, folder fs.FileMode
		named        string
	}{
		{0o600, 0o700, ""}, {0o644, 0o755, ""}, {0o602, 0o755, file}, {0o666, 0o755, file},
		{0o600, 0o777, dir}, {0o600, 0o777 | fs.ModeSticky, ""},
	} {
		if err := os.Chmod(file, tt.file); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, tt.folder); err != nil {
			t.Fatal(err)
		}
		r, err := Inspect(file, func(string) (string, bool) { return "", false }, (*Config).Obstacles)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for _, w := range r.Warnings {
			if strings.Contains(w.Text, "other users") {
				got += w.String()
			}
		}
		want := ""
		if tt.named != "" {
			want = file + ":1: other users of this machine can write " + tt.named + ", and so change this file, which " +
				"decides what Junction runs and permits; run: chmod go-w " + tt.named
		}
		if got != want {
			t.Errorf("%v in a folder %v: check says %q, want %q", tt.file, tt.folder, got, want)
		}
	}
}

// TestCheckNamesVariablesThatOthersCanRead: check warns of the file with the variables of the service, if other users of
// the machine can read it.
func TestCheckNamesVariablesThatOthersCanRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("upstreams: { a: { url: \"${A_MISTAKE}\" } }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []fs.FileMode{0, 0o600, 0o604, 0o644} {
		if mode != 0 {
			if err := os.WriteFile(EnvironmentOf(file), []byte("TOKEN=canary-value\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(EnvironmentOf(file), mode); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Inspect(file, func(string) (string, bool) { return "", false }, (*Config).Obstacles)
		if err != nil {
			t.Fatal(err)
		}
		want := "other users of this machine can read " + EnvironmentOf(file) + ", which has the variables of servers, such as " +
			"tokens; run: chmod 600 " + EnvironmentOf(file)
		is := func(p Problem) bool { return p.Text == want }
		if got := slices.ContainsFunc(r.Warnings, is); got != (mode&0o004 != 0) {
			t.Errorf("with the mode %v: %v", mode, r.Warnings)
		}
	}
}

// TestCheckFailsForAnAuditThatCannotBeWritten: Junction does not start without its audit. Not even root can create
// a file in /sys.
func TestCheckFailsForAnAuditThatCannotBeWritten(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /sys")
	}
	for audit, want := range map[string]bool{"/sys/audit.jsonl": true, "audit.jsonl": false} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		text := "audit: { file: " + audit + " }\nupstreams: { a: { url: http://127.0.0.1:1/mcp } }\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Inspect(file, func(string) (string, bool) { return "", false }, (*Config).Obstacles)
		if err != nil {
			t.Fatal(err)
		}
		is := func(p Problem) bool { return p.Path == "audit.file" && strings.Contains(p.Text, "cannot write") }
		if got := slices.ContainsFunc(r.Rejecting, is); got != want || slices.ContainsFunc(r.Warnings, is) {
			t.Errorf("%s: %v, %v", audit, r.Rejecting, r.Warnings)
		}
	}
}
