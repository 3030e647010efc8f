//go:build unix

package folder

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestListBelongsToTheServiceThatReadsIt permits a folder as root, in the state of another user.
func TestListBelongsToTheServiceThatReadsIt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has files of another user")
	}
	const service = 65534
	state := mustFolder(t, t.TempDir(), "junction")
	must(t, os.Chown(state, service, service))
	file := filepath.Join(state, "folders", "a.json")
	for range 2 {
		_, err := NewList(file).Allow(t.Context(), Root{"/u", "/u"}, Root{t.Name(), "/v"})
		must(t, err)
		for _, path := range []string{filepath.Dir(file), file, file + ".lock"} {
			info, err := os.Stat(path)
			must(t, err)
			if owner := info.Sys().(*syscall.Stat_t); owner.Uid != service || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s belongs to %d, with the mode %v", path, owner.Uid, info.Mode())
			}
		}
	}
}
