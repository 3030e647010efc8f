package clients

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestReplaceAtOnce: several commands change one file at once. Each change is in the file, or its
// command fails.
func TestReplaceAtOnce(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a folder has no lock")
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	for range 50 {
		if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		var replaced atomic.Int32
		for _, text := range []string{"a", "b", "c", "d"} {
			group.Go(func() {
				if _, err := Replace(file, []byte("old"), []byte(text), false); err == nil {
					replaced.Add(1)
				}
			})
		}
		group.Wait()
		if n := replaced.Load(); n != 1 {
			t.Fatalf("%d commands report that they have replaced the same content", n)
		}
	}
}

// TestSecretFileIsNotedBeforeItExists: who undoes a step that was interrupted must know each file with a
// secret. A file that cannot be noted is not created.
func TestSecretFileIsNotedBeforeItExists(t *testing.T) {
	dir := t.TempDir()
	secrets := SecretsOf(filepath.Join(dir, "config.yaml"))
	var noted []string
	secrets.Note = func(file string) error {
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s exists before it was noted", file)
		}
		noted = append(noted, filepath.Base(file))
		return nil
	}
	for _, value := range []string{"canary-one", "canary-two", "canary-one"} {
		if _, err := secrets.Store("wiki", "TOKEN", value); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"wiki.TOKEN", "wiki.TOKEN-2"}; !slices.Equal(noted, want) {
		t.Errorf("noted are %q, want %q: a file that is used again is not new", noted, want)
	}
	secrets.Note = func(string) error { return errors.New("the disk is full") }
	if _, err := secrets.Store("wiki", "OTHER", "canary-three"); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("Store without a note gave %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "secrets", "wiki.OTHER")); err == nil {
		t.Error("a file that could not be noted was created")
	}
}
