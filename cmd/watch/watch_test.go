package watch

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// TestFiles: Changed receives at the start, and after a file of a watched folder was replaced. Other
// files do not count.
func TestFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a")
	f, err := New(func(e fsnotify.Event, _ bool) bool { return filepath.Base(e.Name) == "a" })
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Add(file); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Add(filepath.Join(t.TempDir(), "missing", "a")); err == nil {
		t.Error("a missing folder can be watched")
	}
	changed := func() {
		t.Helper()
		select {
		case <-f.Changed:
		case <-time.After(30 * time.Second):
			t.Fatal("no change is reported")
		}
	}
	changed()
	for range 3 { // in several steps
		if err := os.WriteFile(file+".new", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	changed()
	f.Close()
}
