package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
