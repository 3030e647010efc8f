// Package tree computes the checksum of the folder of a pack.
package tree

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// The limits of a pack.
const (
	MaxFiles = 10_000
	MaxBytes = 64 << 20 // of all files together
)

// ErrTooLarge means that a folder exceeds the limits of a pack.
var ErrTooLarge = fmt.Errorf("it has more than %d files or %d MiB", MaxFiles, MaxBytes>>20)

// Sum returns the checksum of a folder: "sha256:" and a hexadecimal SHA-256 sum. It is the sum of a
// text with one line for each file, sorted by path. A line has the kind (file or link), the sum of
// the content or of the link's target, and the quoted path. Modes and empty folders do not count,
// because systems differ in them.
func Sum(dir string) (string, error) {
	lines, err := list(dir)
	if err != nil {
		return "", err
	}
	all := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(lines)) {
		io.WriteString(all, lines[path])
	}
	return "sha256:" + hex.EncodeToString(all.Sum(nil)), nil
}

// Diff returns the differences between two folders, such as "changed run.sh", sorted by path. A
// folder that cannot be read counts as empty.
func Diff(old, next string) (changes []string) {
	before, _ := list(old)
	after, _ := list(next)
	all := map[string]string{}
	maps.Copy(all, before)
	maps.Copy(all, after)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		switch was, is := before[path], after[path]; {
		case was == is:
		case was == "":
			changes = append(changes, "added "+path)
		case is == "":
			changes = append(changes, "removed "+path)
		default:
			changes = append(changes, "changed "+path)
		}
	}
	return changes
}

// list returns the line of each file of a folder, by its path.
func list(dir string) (map[string]string, error) {
	lines := map[string]string{}
	left := int64(MaxBytes)
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if len(lines) == MaxFiles {
			return ErrTooLarge
		}
		path, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		path = filepath.ToSlash(path)
		kind, sum, err := sumOf(file, e, &left)
		lines[path] = fmt.Sprintf("%s %s %q\n", kind, sum, path)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot compute the checksum of %s: %w", dir, err)
	}
	return lines, nil
}

// sumOf returns the kind and the sum of a file. left is how many bytes may still be read.
func sumOf(file string, e fs.DirEntry, left *int64) (kind, sum string, err error) {
	h := sha256.New()
	switch e.Type() {
	case 0:
		kind = "file"
		err = read(file, h, left)
	case fs.ModeSymlink:
		kind = "link"
		var target string
		target, err = os.Readlink(file)
		io.WriteString(h, filepath.ToSlash(target))
	default:
		err = fmt.Errorf("%s is neither a file nor a link; remove it", file)
	}
	return kind, hex.EncodeToString(h.Sum(nil)), err
}

func read(file string, w io.Writer, left *int64) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("%s has changed meanwhile; try again", file))
	}
	n, err := io.Copy(w, io.LimitReader(f, *left+1))
	if *left -= n; *left < 0 {
		return ErrTooLarge
	}
	return err
}
