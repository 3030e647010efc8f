// Package files reads files whose names a user has given, such as configurations and manifests
// (files.go), replaces files in one step (write.go), and keeps other processes from files and
// folders (lock.go).
package files

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrIrregular means that a file is a folder, a pipe or a device.
var ErrIrregular = errors.New("it is no regular file")

// A TooLargeError means that a file has more bytes than it may have.
type TooLargeError struct{ Size, Limit int64 }

func (e *TooLargeError) Error() string { return fmt.Sprintf("it is larger than %d KiB", e.Limit>>10) }

// Read returns the content of a regular file of at most limit bytes. It rejects other files, which
// might block or never end. The error does not name the file.
func Read(file string, limit int64) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, Reason(err)
	}
	if !info.Mode().IsRegular() {
		return nil, ErrIrregular
	}
	if info.Size() > limit {
		return nil, &TooLargeError{info.Size(), limit}
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, Reason(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, Reason(err)
	}
	if size := int64(len(text)); size > limit { // it grows
		return nil, &TooLargeError{size, limit}
	}
	return text, nil
}

// Reason removes the operation and the paths from err, because the message around it names them.
func Reason(err error) error {
	if l, ok := errors.AsType[*os.LinkError](err); ok { // a rename
		return l.Err
	}
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// Readable reports whether the mode of a file lets other users of this machine read it. A file that cannot
// be found is not readable.
func Readable(file string) bool {
	info, err := os.Stat(file)
	return err == nil && readableMode(info)
}

// Shared returns what lets other users of this machine change a file: the file, or a folder above it, in
// which they can replace it or a part of its path. It also looks at the target of a link. It returns "" if
// there is nothing, and for a file that cannot be found. What is on a read-only file system counts as not
// shared, whatever its mode: the folder of a ConfigMap of Kubernetes has the mode 0777.
func Shared(file string) string { return sharedBy(file, readOnly) }

// sharedBy is Shared. readOnly reports whether a path is on a read-only file system.
func sharedBy(file string, readOnly func(path string) bool) string {
	given, err := filepath.Abs(file)
	if err != nil {
		return ""
	}
	target, err := filepath.EvalSymlinks(given)
	if err != nil {
		return ""
	}
	for _, path := range []string{target, given} {
		for {
			if info, err := os.Stat(path); err == nil && sharedMode(info) && !readOnly(path) {
				return path
			}
			up := filepath.Dir(path)
			if up == path {
				break
			}
			path = up
		}
	}
	return ""
}
