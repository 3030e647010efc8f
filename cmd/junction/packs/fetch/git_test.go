package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"junction/cmd/junction-pack/tree"
)

// TestManyFiles: a repository of a few objects can have billions of files. It ends neither the program
// nor the memory.
func TestManyFiles(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
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
