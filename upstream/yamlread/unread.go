package yamlread

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// Unread is the mistake about a reference ${file:name} whose file cannot be read. It has the full path
// unless the reference has it, and the next step.
func Unread(name, full string, err error) string {
	why := err.Error()
	if absolute, err := filepath.Abs(full); err == nil {
		full = absolute
	}
	if full != name {
		why = full + ": " + why
	}
	next := "name another file"
	switch {
	case strings.HasPrefix(name, "~"):
		next = "~ means nothing here; write the whole path"
	case errors.Is(err, fs.ErrNotExist):
		next = "create the file, or correct the path"
	case errors.Is(err, fs.ErrPermission):
		next = "let the user that runs junction read it"
	}
	return fmt.Sprintf("cannot read the file of ${file:%s}: %s; %s", name, why, next)
}
