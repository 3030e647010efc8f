//go:build unix

package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// entry is a file or a folder with a mode, an owner and a group.
type entry struct {
	fs.FileInfo
	mode fs.FileMode
	stat syscall.Stat_t
}

func (e entry) Mode() fs.FileMode { return e.mode }
func (e entry) Sys() any          { return &e.stat }

// TestModesThatShareAFile: a file is shared by what a group of several users, or everybody, may write.
func TestModesThatShareAFile(t *testing.T) {
	for _, tt := range []struct {
		mode     fs.FileMode
		uid, gid uint32
		want     bool
	}{
		{0o600, 1000, 1000, false}, {0o644, 1000, 100, false}, {0o755 | fs.ModeDir, 1000, 100, false},
		{0o666, 1000, 1000, true}, {0o602, 0, 0, true}, {0o777 | fs.ModeDir, 1000, 1000, true},
		{0o664, 1000, 100, true}, {0o660, 0, 100, true}, {0o775 | fs.ModeDir, 1000, 100, true},
		{0o664, 1000, 1000, false}, {0o775 | fs.ModeDir, 1000, 1000, false}, // the private group of the user
		{0o664, 1000, 0, false},                           // the group of root
		{0o777 | fs.ModeDir | fs.ModeSticky, 0, 0, false}, // as /tmp
		{0o666 | fs.ModeSticky, 0, 0, true},
	} {
		e := entry{mode: tt.mode, stat: syscall.Stat_t{Uid: tt.uid, Gid: tt.gid}}
		if got := sharedMode(e); got != tt.want {
			t.Errorf("%v of user %d and group %d is shared: %t, want %t", tt.mode, tt.uid, tt.gid, got, tt.want)
		}
	}
}

// TestWhatSharesAFile finds the file, a folder above it, and the target of a link.
func TestWhatSharesAFile(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	deep, file := filepath.Join(base, "a", "b"), filepath.Join(base, "a", "b", "config.yaml")
	link := filepath.Join(base, "link.yaml")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	want := func(what, file, want string) {
		t.Helper()
		if got := Shared(file); got != want {
			t.Errorf("%s: %s is shared by %q, want %q", what, file, got, want)
		}
	}
	want("nothing", file, "")
	for _, shared := range []struct {
		path       string
		mode, back fs.FileMode
	}{{file, 0o646, 0o644}, {deep, 0o757, 0o755}, {filepath.Dir(deep), 0o757, 0o755}} {
		if err := os.Chmod(shared.path, shared.mode); err != nil {
			t.Fatal(err)
		}
		want("the path", file, shared.path)
		want("the link", link, shared.path)
		if err := os.Chmod(shared.path, shared.back); err != nil {
			t.Fatal(err)
		}
	}
	want("all is as before", link, "")
	want("no file", filepath.Join(base, "none.yaml"), "")
}

// TestReadOnlyFoldersShareNoFile: a mode counts only where a file system can be written. The folder above a
// read-only one still counts.
func TestReadOnlyFoldersShareNoFile(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	mount := filepath.Join(base, "mount")
	file, link := filepath.Join(mount, "..data", "config.yaml"), filepath.Join(mount, "config.yaml")
	for _, dir := range []string{mount, filepath.Dir(file)} { // as Kubernetes mounts a ConfigMap
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o777)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(file, nil, 0o644), os.Symlink(file, link)); err != nil {
		t.Fatal(err)
	}
	mounted := func(path string) bool { return path == mount || strings.HasPrefix(path, mount+"/") }
	if got := sharedBy(link, mounted); got != "" {
		t.Errorf("on a read-only file system, the file is shared by %q", got)
	}
	if got, want := sharedBy(link, func(string) bool { return false }), filepath.Dir(file); got != want {
		t.Errorf("where it can be written, the file is shared by %q, want %q", got, want)
	}
	if err := os.Chmod(base, 0o757); err != nil {
		t.Fatal(err)
	}
	if got := sharedBy(link, mounted); got != base {
		t.Errorf("in a shared folder, the mount is shared by %q, want %q", got, base)
	}
	if readOnly(base) {
		t.Errorf("%s counts as read-only", base)
	}
}
