package revision

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestReplaceAtOnce: several commands change one file at once. Each change is in the file, or its
// command fails.
func TestReplaceAtOnce(t *testing.T) {
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

// TestManyCommandsKeepTheFirstBackupOfTheHour: what a person had before several commands in a row stays, until an
// hour after them. Without it, five commands remove it.
func TestManyCommandsKeepTheFirstBackupOfTheHour(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("by a person"), 0o600); err != nil {
		t.Fatal(err)
	}
	old := "by a person"
	revise := func(text string) {
		t.Helper()
		if _, err := Revise(file, []byte(old), []byte(text)); err != nil {
			t.Fatal(err)
		}
		old = text
	}
	texts := func() (all []string) {
		for _, name := range Backups(file) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(text))
		}
		return all
	}
	for n := range 8 {
		revise(fmt.Sprint("command ", n))
	}
	if all := texts(); len(all) != mostBackups+1 || all[0] != "command 6" || all[mostBackups] != "by a person" {
		t.Errorf("after several commands, the backups are %q", all)
	}
	for i, name := range Backups(file) { // they were made long ago
		at := time.Now().Add(-2*time.Hour - time.Duration(i)*time.Second)
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if revise("later"); len(texts()) != mostBackups || texts()[0] != "command 7" {
		t.Errorf("hours later, the backups are %q", texts())
	}
}
