package serve

import (
	"os"
	"path/filepath"
	"testing"

	"junction/cmd/build"
)

// TestStatusNamesTheProgramOnDisk: an upgrade replaces the file of a running program. The file that was there at
// the start is no news, and neither is one that is no program.
func TestStatusNamesTheProgramOnDisk(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "junction")
	write := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(path+"~", content, 0o700); err != nil {
			t.Fatal(err)
		}
		mustRename(t, path+"~", path)
	}
	write(program)
	started, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	i := &installed{path: path, started: started, own: "0.0.1"}
	wants := func(when, want string) {
		t.Helper()
		for range 2 {
			if got := i.other(); got != want {
				t.Errorf("%s: the program on disk is %q, want %q", when, got, want)
			}
		}
	}
	version := build.Read().Version
	wants("at the start", "")
	write(program)
	wants("after an upgrade", version)
	write([]byte("half of a program"))
	wants("while it is copied", "")
	i.own = version
	write(program)
	wants("after the same commit was built again", "another build of "+version)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	wants("without a file", "")
}
