package setup

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/service"
	"junction/upstream/files"
)

// TestUndoTakesBackWhatServiceInstallKept: the lines of junction service install --keep-env go, and those that a
// person has written or changed stay.
func TestUndoTakesBackWhatServiceInstallKept(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("FIRST_TOKEN", "canary-first")
	t.Setenv("SECOND_TOKEN", "canary-second")
	file := filepath.Join(t.TempDir(), "config.yaml")
	name, err := service.KeepVariables(file, []string{"FIRST_TOKEN", "SECOND_TOKEN"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := files.Read(name, config.MaxEnvironment)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), "canary-second", "canary-changed", 1) + "OWN=canary-own\n"
	if err := files.Write(name, []byte(changed)); err != nil {
		t.Fatal(err)
	}
	r := &record{Config: file}
	rest, names, err := r.variables()
	if err != nil || !slices.Equal(names, []string{"FIRST_TOKEN"}) ||
		!strings.HasSuffix(string(rest), "\nSECOND_TOKEN=canary-changed\nOWN=canary-own\n") {
		t.Errorf("variables gave %q, %v, %v", rest, names, err)
	}
	service.ForgetLines(file)
	if _, names, err := r.variables(); err != nil || len(names) > 0 {
		t.Errorf("after the lines are forgotten: %v, %v", names, err)
	}
}
