package service

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBackgroundKeepsPath: a start from a shell with a shorter PATH has the folders of the first start, too, behind its
// own and without those that have gone.
func TestBackgroundKeepsPath(t *testing.T) {
	tools, gone, state := t.TempDir(), filepath.Join(t.TempDir(), "gone"), t.TempDir()
	h := &Host{OS: "linux", Home: t.TempDir(), Getenv: func(name string) (string, bool) {
		return state, name == "XDG_STATE_HOME"
	}}
	pathOf := func(u *Unit) string {
		for _, v := range h.environ(u) {
			if path, ok := strings.CutPrefix(v, "PATH="); ok {
				return path
			}
		}
		return ""
	}
	join := func(dirs ...string) string { return strings.Join(dirs, string(filepath.ListSeparator)) }
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	first := &Unit{Name: "junction", Env: []string{"PATH=" + join(tools, gone, "/bin")}}
	if err := h.keepPath(first); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	second := &Unit{Name: "junction", Env: []string{"LANG=C", "PATH=/bin"}}
	if got, want := pathOf(second), join("/bin", tools); got != want {
		t.Errorf("the second start has PATH %q, want %q", got, want)
	}
	if !slices.Contains(h.environ(second), "LANG=C") {
		t.Error("the second start lacks LANG")
	}
	if got := pathOf(&Unit{Name: "other", Env: second.Env}); got != "/bin" {
		t.Errorf("another service has PATH %q", got)
	}
}
