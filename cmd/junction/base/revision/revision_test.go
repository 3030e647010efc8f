package revision

import (
	"os"
	"path/filepath"
	"runtime"
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
