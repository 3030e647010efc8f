package folder

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// must is for a step that cannot fail unless the test is wrong.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustFolder makes a folder below dir and returns its path without links.
func mustFolder(t *testing.T, dir string, below ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	must(t, err)
	path := filepath.Join(append([]string{dir}, below...)...)
	must(t, os.MkdirAll(path, 0o700))
	return path
}

func mustAdmit(t *testing.T, g *Guard, path string) Place {
	t.Helper()
	place, err := g.Admit(t.Context(), "local", path)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if place.Path() != path {
		t.Errorf("the place of %s has the path %s", path, place.Path())
	}
	return place
}

func mustRefuse(t *testing.T, g *Guard, path, why string) {
	t.Helper()
	place, err := g.Admit(t.Context(), "local", path)
	if _, ok := errors.AsType[*Refused](err); !ok || place != (Place{}) || !strings.Contains(err.Error(), why) {
		t.Errorf("%s: %v, %v; want %q", path, place, err, why)
	}
}

// TestPlaceIsAFolderNotAText shows that a folder that was removed and made again is another Place, at once.
func TestPlaceIsAFolderNotAText(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	shop := mustFolder(t, dir, "shop")
	g := New(Rules{Within: []string{dir}})
	first := mustAdmit(t, g, shop)
	if again := mustAdmit(t, g, shop); again != first || again.Key() != first.Key() {
		t.Error("one folder is two places")
	}
	must(t, os.WriteFile(filepath.Join(shop, "a"), nil, 0o600))
	if again := mustAdmit(t, g, shop); again != first {
		t.Error("a folder with another file is another place")
	}
	if blog := mustAdmit(t, g, mustFolder(t, dir, "blog")); blog == first || blog.Key() == first.Key() {
		t.Error("two folders are one place")
	}
	for range 100 { // the file system gives the new folder the number of the old one
		must(t, os.RemoveAll(shop))
		must(t, os.Mkdir(shop, 0o700))
		again := mustAdmit(t, g, shop)
		if again == first || again.Key() == first.Key() {
			t.Fatal("a folder that was removed and made again is the same place")
		}
		first = again
	}
	must(t, os.Rename(shop, shop+"2"))
	mustRefuse(t, g, shop, "does not exist")
	if renamed := mustAdmit(t, g, shop+"2"); renamed == first || renamed.Key() == first.Key() {
		t.Error("a process with the old path serves the renamed folder")
	}
}

// TestOpenIsTheFolderThatWasAdmitted opens a Place after another folder has taken its path.
func TestOpenIsTheFolderThatWasAdmitted(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	shop := mustFolder(t, dir, "shop")
	g := New(Rules{Within: []string{dir}})
	place := mustAdmit(t, g, shop)
	f, err := g.Open(t.Context(), "local", place)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(shop, "here"), nil, 0o600))
	if names, err := f.Readdirnames(-1); err != nil || len(names) != 1 || names[0] != "here" {
		t.Errorf("the open folder has %q, %v", names, err)
	}
	must(t, f.Close())
	must(t, os.Rename(shop, shop+"-old"))
	must(t, os.Mkdir(shop, 0o700))
	if _, err := g.Open(t.Context(), "local", place); err == nil || !strings.Contains(err.Error(), "another folder") {
		t.Errorf("another folder in the place of the first one: %v", err)
	}
}

// TestAdmitEndsWithItsContext shows that a caller whose folders hang keeps only its own turns.
func TestAdmitEndsWithItsContext(t *testing.T) {
	dir := mustFolder(t, t.TempDir())
	g := New(Rules{Within: []string{dir}})
	var ends []func()
	for range most {
		end, err := g.opening.begin(t.Context(), "slow")
		must(t, err)
		ends = append(ends, end)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Admit(ctx, "slow", dir); !errors.Is(err, context.Canceled) {
		t.Errorf("a ninth folder of one principal: %v", err)
	}
	mustAdmit(t, g, dir)
	for _, end := range ends {
		end()
	}
	if len(g.opening.turns) != 0 {
		t.Errorf("%d principals are kept", len(g.opening.turns))
	}
}
