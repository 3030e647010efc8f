package tree

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestSum: content, names and links count; modes, empty folders and the place do not.
func TestSum(t *testing.T) {
	made := func(change func(dir string) error) (dir, sum string) {
		t.Helper()
		dir = t.TempDir()
		for name, text := range map[string]string{"pack.yaml": "a", "sub/run.sh": "b"} {
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := change(dir)
		if err == nil {
			sum, err = Sum(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		return dir, sum
	}
	in := filepath.Join
	first, sum := made(func(string) error { return nil })
	for name, change := range map[string]func(dir string) error{
		"a mode":          func(dir string) error { return os.Chmod(in(dir, "sub/run.sh"), 0o755) },
		"an empty folder": func(dir string) error { return os.Mkdir(in(dir, "empty"), 0o700) },
	} {
		if _, got := made(change); got != sum {
			t.Errorf("%s changes the checksum", name)
		}
	}
	for want, change := range map[string]func(dir string) error{
		"changed pack.yaml":  func(dir string) error { return os.WriteFile(in(dir, "pack.yaml"), []byte("c"), 0o600) },
		"removed pack.yaml":  func(dir string) error { return os.Remove(in(dir, "pack.yaml")) },
		"added x":            func(dir string) error { return os.WriteFile(in(dir, "x"), nil, 0o600) },
		"added link":         func(dir string) error { return os.Symlink("pack.yaml", in(dir, "link")) },
		"changed sub/run.sh": func(dir string) error { return os.WriteFile(in(dir, "sub/run.sh"), nil, 0o600) },
	} {
		dir, got := made(change)
		if got == sum {
			t.Errorf("%s: the checksum is the same", want)
		}
		if changes := Diff(first, dir); !slices.Equal(changes, []string{want}) {
			t.Errorf("Diff = %q, want %q", changes, want)
		}
	}
	dir, _ := made(func(string) error { return nil })
	if err := os.Truncate(in(dir, "pack.yaml"), MaxBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Sum(dir); err == nil {
		t.Error("a folder that is too large has a checksum")
	}
}
