package cli

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"junction/upstream/shell"
)

//go:embed example.yaml
var example []byte

// Init writes an example manifest into a folder, which it makes. It never replaces a file.
func Init(w io.Writer, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("cannot make the folder: %w", err)
	}
	path := filepath.Join(dir, "pack.yaml")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists already; name another folder, or remove it", path)
	}
	if err == nil {
		_, err = f.Write(example)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("cannot write the example: %w", err)
	}
	_, err = fmt.Fprintf(w, `wrote %[1]s; try it:

  junction-pack check %[2]s
  junction-pack call %[2]s search text=tools

and make it an upstream of Junction:

  junction add %[3]s %[4]s
`, path, shell.Quote(dir), upstream(filepath.Base(absolute(dir))), shell.Quote(absolute(dir)))
	return err
}

// upstream returns a name of an upstream of Junction that is like the name of a folder.
func upstream(folder string) string {
	name := strings.Trim(regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(folder, "-"), "-")
	return cmp.Or(name[:min(len(name), 32)], "tools")
}

// absolute returns the absolute path; the path itself if the working directory is gone.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}
