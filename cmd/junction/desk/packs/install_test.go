package packs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"junction/cmd/junction/desk/clients"
	"junction/cmd/pack/lock"
	"junction/cmd/pack/plan"
)

var errFull = errors.New("the disk is full")

// full is an output that cannot be written.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestPackStaysWithItsEntry: if the output cannot be written, the pack stays whose entry is in the file. If
// the file was not changed, neither the folder nor the lock has the pack.
func TestPackStaysWithItsEntry(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", "")
	for _, written := range []bool{true, false} {
		folder := t.TempDir()
		t.Chdir(folder)
		r, err := open(full{}, "config.yaml", false, true)
		if err != nil {
			t.Fatal(err)
		}
		f := &fetched{Pack: lock.Pack{Commit: "0123456789012345678901234567890123456789"}, name: "tools",
			temp: t.TempDir(), plan: &plan.Plan{}}
		if err := errors.Join(os.Mkdir(f.dir(), 0o755), os.Mkdir(r.path(lock.Folder), 0o755)); err != nil {
			t.Fatal(err)
		}
		undo, err := r.keep(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { protect(folder, 0o755) })
		place := lock.Dir(f.name, f.Commit)
		if written {
			entry, err := r.edit.Entry(clients.Given{Off: true, Pack: place})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.installed(t.Context(), f, entry); err == nil {
				t.Fatal("the output was written")
			}
		}
		undo()
		_, err = os.Stat(filepath.Join(folder, place))
		l, lockErr := lock.Read(r.lockFile)
		if lockErr != nil {
			t.Fatal(lockErr)
		}
		if _, locked := l.Packs["tools"]; (err == nil) != written || locked != written {
			t.Errorf("the entry is written: %t; the folder is there: %t, the lock: %t", written, err == nil, locked)
		}
	}
}
