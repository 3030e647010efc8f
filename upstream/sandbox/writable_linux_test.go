package sandbox

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWritableOpensNoLink opens paths below a writable path as the wrapper does, with openat2 and
// without.
func TestWritableOpensNoLink(t *testing.T) {
	dir := t.TempDir()
	mustLay(t, dir, "secret/key", "w/in/file", "w/last -> /secret", "w/middle -> /secret", "w/magic -> x")
	os.Remove(filepath.Join(dir, "w/magic"))
	if err := os.Symlink("/proc/self/cwd", filepath.Join(dir, "w/magic")); err != nil {
		t.Fatal(err)
	}
	folder, err := unix.Open(filepath.Join(dir, "w"), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(folder)
	for way, open := range map[string]func(int, string) (int, error){"openat2": openBelow, "a walk": walkBelow} {
		for path, want := range map[string]error{
			"in": nil, "in/file": nil, "last": unix.ELOOP, "middle/key": unix.ELOOP, "magic": unix.ELOOP,
			"magic/x": unix.ELOOP, "none": unix.ENOENT, "in/file/x": unix.ENOTDIR,
		} {
			fd, err := open(folder, path)
			if err == nil {
				unix.Close(fd)
			}
			if way == "a walk" && want == unix.ELOOP && errors.Is(err, unix.ENOTDIR) {
				continue // a link is no folder
			}
			if !errors.Is(err, want) || (err == nil) != (want == nil) {
				t.Errorf("%s of %s: %v, want %v", way, path, err, want)
			}
		}
	}
}

// TestSandboxWrapperRefusesLinks: the wrapper starts nothing if a path of the rules, or the working
// directory, leads through a link that a command may have made after Junction looked at it.
func TestSandboxWrapperRefusesLinks(t *testing.T) {
	enforced(t, abiMove)
	dir := t.TempDir()
	mustLay(t, dir, "secret/key", "w/folder/", "w/link -> /secret")
	at := func(name string) string { return filepath.Join(dir, name) }
	writable, err := NewWritable([]string{at("w")})
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		rules Rules
		dir   string
		fails bool
	}{
		"read":            {Rules{Read: []string{at("w/link")}}, "", true},
		"write":           {Rules{Write: []string{at("w"), at("w/link")}}, "", true},
		"below a link":    {Rules{Read: []string{at("w/link/key")}}, "", true},
		"dir":             {Rules{Write: []string{at("w")}}, at("w/link"), true},
		"no link":         {Rules{Read: []string{at("w/folder")}}, at("w/folder"), false},
		"a default":       {Rules{Default: []string{at("w/link")}}, "", false}, // is left out
		"outside of them": {Rules{Read: []string{at("secret")}}, at("secret"), false},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/bin/pwd")
			cmd.Dir = row.dir
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			r := row.rules
			r.Writable, r.Default = writable, append(r.Default, System()...)
			h, err := Wrap(cmd, r, Kernel())
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			err = h.Started()
			cmd.Wait()
			if errors.Is(err, ErrSetUp) != row.fails || !row.fails && err != nil {
				t.Errorf("the error is %v, want one: %v", err, row.fails)
			}
			if row.dir != "" && !row.fails && out.String() != row.dir+"\n" {
				t.Errorf("the command stands in %q, want %s", &out, row.dir)
			}
		})
	}
}
