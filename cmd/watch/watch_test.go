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

// TestFilesOfOtherMachines: a change that the kernel does not report is found by a look at the file, once.
func TestFilesOfOtherMachines(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a")
	f, err := start(func(fsnotify.Event, bool) bool { return false }, 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Add(file); err != nil {
		t.Fatal(err)
	}
	<-f.Changed
	for _, text := range []string{"one", "three"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		<-f.Changed
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	<-f.Changed
	if f.differ() {
		t.Error("a change that was reported still counts")
	}
}
