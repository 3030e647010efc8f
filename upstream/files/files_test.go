package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Ensure that a file is read up to its limit, and that each refusal has a reason without the path.
func TestRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, make([]byte, 2<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		file  string
		limit int64
		want  string
	}{
		{file, 2 << 10, ""},
		{file, 1 << 10, "it is larger than 1 KiB"},
		{dir, 1 << 20, "it is no regular file"},
		{file + ".gone", 1 << 20, fs.ErrNotExist.Error()},
	} {
		text, err := Read(test.file, test.limit)
		got := ""
		if errors.Is(err, fs.ErrNotExist) {
			got = fs.ErrNotExist.Error() // each system has words of its own
		} else if err != nil {
			got = err.Error()
		}
		if got != test.want || err == nil && len(text) != 2<<10 {
			t.Errorf("Read(%s, %d) = %d bytes, %v; want %q", test.file, test.limit, len(text), err, test.want)
		}
	}
}

// Ensure that a written file is its owner's alone, that a replaced one keeps its mode and its link,
// and that neither leaves anything behind, not even after a failure.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	file, link, folder := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	want := func(text string, mode fs.FileMode) {
		t.Helper()
		got, err := os.ReadFile(file)
		if info, statErr := os.Stat(file); err != nil || statErr != nil || string(got) != text ||
			runtime.GOOS != "windows" && info.Mode() != mode {
			t.Fatalf("the file is %q, %v; want %q with mode %v", got, errors.Join(err, statErr), text, mode)
		}
	}
	for _, write := range []func(string, []byte) error{Write, WriteSync} {
		for _, text := range []string{"new", "newer"} {
			if err := write(file, []byte(text)); err != nil {
				t.Fatal(err)
			}
			want(text, 0o600)
		}
		if err := write(folder, nil); err == nil {
			t.Error("a file has replaced a folder")
		}
	}
	if err := errors.Join(os.Chmod(file, 0o640), os.Symlink("file", link)); err != nil {
		t.Fatal(err)
	}
	if err := Replace(link, []byte("newest")); err != nil {
		t.Fatal(err)
	}
	want("newest", 0o640)
	if to, err := os.Readlink(link); to != "file" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	if err := Replace(filepath.Join(dir, "none"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// TestReplaceIf: a file is checked when its new content is on the disk, and a check that fails leaves
// nothing behind.
func TestReplaceIf(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("it has changed")
	written := ""
	check := func() error {
		temp, err := filepath.Glob(filepath.Join(dir, Temporary+"*"))
		if err != nil || len(temp) != 1 {
			t.Fatalf("during the check there is %q, %v", temp, err)
		}
		text, err := os.ReadFile(temp[0])
		written = string(text)
		return errors.Join(err, failure)
	}
	if err := ReplaceIf(file, []byte("new"), check); !errors.Is(err, failure) || written != "new" {
		t.Errorf("ReplaceIf = %v with %q on the disk; want the error of the check and the new content", err, written)
	}
	entries, err := os.ReadDir(dir)
	if text, readErr := os.ReadFile(file); err != nil || readErr != nil || len(entries) != 1 || string(text) != "old" {
		t.Errorf("the file is %q, and the folder has %d files; want old alone", text, len(entries))
	}
}
