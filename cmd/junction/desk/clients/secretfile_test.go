package clients

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
