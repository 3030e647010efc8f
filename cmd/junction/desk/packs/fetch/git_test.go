package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/cmd/pack/tree"
	"junction/integration/harness/needs"
)

// TestLinks: a link leads to a file or folder of the pack, also through other links. Other links are
// refused.
func TestLinks(t *testing.T) {
	for _, test := range []struct {
		ok    bool
		links []string // name, target
	}{
		{true, []string{"a", "file"}}, {true, []string{"d/a", "../file"}}, {true, []string{"a", "b", "b", "file"}},
		{false, []string{"a", "/etc/hosts"}}, {false, []string{"a", "../out"}}, {false, []string{"d/a", "../../out"}},
		{false, []string{"a", "none"}}, {false, []string{"a", "a"}},
		{false, []string{"d/e/up", "../..", "d/e/out", "up/../out"}},
	} {
		above := t.TempDir()
		dir := filepath.Join(above, "pack")
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "d", "e"), 0o700), os.WriteFile(filepath.Join(above, "out"), nil, 0o600),
			os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		var list []entry
		targets := map[string]string{}
		for i := 0; i < len(test.links); i += 2 {
			list, targets[test.links[i]] = append(list, entry{path: test.links[i]}), test.links[i+1]
		}
		if err := link(root, dir, list, targets); (err == nil) != test.ok {
			t.Errorf("links %q: %v", test.links, err)
		}
		root.Close()
	}
}

// TestFetchChecks: a source that did not come from Parse, such as one of a lock file, is checked, too.
func TestFetchChecks(t *testing.T) {
	for _, s := range []Source{{"https://127.0.0.1:1/x", "--upload-pack=x"}, {"file:///etc", ""}, {"--upload-pack=x", ""}} {
		dir := t.TempDir()
		_, err := Fetch(t.Context(), s, dir, filepath.Join(dir, "pack"))
		if want := s.Check(); err == nil || want == nil || err.Error() != want.Error() {
			t.Errorf("Fetch of %v = %v, want %v", s, err, want)
		}
	}
}

// TestManyFiles: a repository of a few objects can have billions of files. It ends neither the program
// nor the memory.
func TestManyFiles(t *testing.T) {
	needs.Git.Require(t)
	g := git{repo: t.TempDir()}
	if _, err := g.run(t.Context(), "init", "--quiet", "--bare", "--template=", g.repo); err != nil {
		t.Fatal(err)
	}
	object := func(kind, mode, of string) string { // a tree with ten times the same object
		var b bytes.Buffer
		for i := range 10 {
			fmt.Fprintf(&b, "%s %s %s\tf%d\n", mode, kind, of, i)
		}
		cmd := g.command(t.Context(), "mktree")
		cmd.Stdin = &b
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	cmd := g.command(t.Context(), "hash-object", "-w", "--stdin")
	cmd.Stdin = strings.NewReader("x")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	id := object("blob", plainFile, strings.TrimSpace(string(out)))
	for range 9 {
		id = object("tree", "040000", id)
	}
	if _, err := g.list(t.Context(), id); !errors.Is(err, tree.ErrTooLarge) {
		t.Errorf("a list of 10,000,000,000 files: %v, want %v", err, tree.ErrTooLarge)
	}
	ten := object("blob", plainFile, strings.TrimSpace(string(out)))
	if list, err := g.list(t.Context(), ten); err != nil || len(list) != 10 {
		t.Errorf("a list of ten files has %d, %v", len(list), err)
	}
}
