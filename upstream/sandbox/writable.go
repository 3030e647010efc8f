package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Writable are the files and folders that confined commands may change: sorted real paths. A
// command may replace any file below them by a link, at any time. So no link below them is followed,
// and no file below them is read, to decide what a command may use.
type Writable []string

// Told is the variable that tells a program, which confines commands itself, the paths that the confined
// commands of Junction may change. Tell makes its value, and Listen reads it.
const Told = "JUNCTION_WRITABLE"

// Tell returns the value of Told for a list of paths.
func Tell(paths []string) string {
	text, _ := json.Marshal(paths) // strings can be marshalled
	return string(text)
}

// Listen returns the paths that the value of Told has. An empty value has none.
func Listen(value string) (paths []string, err error) {
	if value == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(value), &paths); err != nil {
		return nil, fmt.Errorf("the variable %s is no list of paths; unset it, or start the pack by Junction: %w",
			Told, err)
	}
	return paths, nil
}

// maxLinks limits the links of one path, as the kernel does.
const maxLinks = 40

// maxRounds limits how often NewWritable resolves the paths.
const maxRounds = 8

// NewWritable returns the real paths of the given paths. Links outside of all of them are followed.
func NewWritable(paths []string) (Writable, error) {
	var w Writable
	for _, p := range paths {
		if filepath.IsAbs(p) {
			w = append(w, filepath.Clean(p))
		}
	}
	paths = slices.Clone(w)
	slices.Sort(w)
	for range maxRounds { // the real path of one may show that another one is below it
		var next Writable
		for _, p := range paths {
			at, err := w.place(p)
			if err != nil {
				return nil, err
			}
			next = append(next, at.path)
		}
		slices.Sort(next)
		next = slices.Compact(next)
		if slices.Equal(next, w) {
			return w, nil
		}
		w = next
	}
	return nil, errors.New("the paths of write lead through one another by links; name their targets instead")
}

// A place is a path whose links outside of the writable paths are followed.
type place struct {
	path string // the path, below root as written
	root string // the writable path that contains it; "" if none does
	rest string // the path below root; "" for root itself
}

// place follows the links of an absolute path up to a writable path. A path that does not exist is
// its own place.
func (w Writable) place(path string) (place, error) {
	if filepath.Separator != '/' { // only Linux enforces rules
		return place{path: path}, nil
	}
	at, rest, links := "/", strings.Split(filepath.Clean(path), "/"), 0
	for {
		if _, found := slices.BinarySearch(w, at); found {
			below := strings.Trim(strings.Join(rest, "/"), "/")
			if slices.Contains(rest, "..") {
				return place{}, fmt.Errorf("%s leads out of %s again; name its target instead", path, at)
			}
			return place{path: filepath.Join(at, below), root: at, rest: below}, nil
		}
		if len(rest) == 0 {
			return place{path: at}, nil
		}
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		to, err := os.Readlink(next)
		if err != nil { // no link
			at = next
			continue
		}
		if links++; links > maxLinks {
			return place{}, fmt.Errorf("%s: %w", path, syscall.ELOOP)
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = slices.Concat(strings.Split(to, "/"), rest)
	}
}

// Holds returns the writable path that contains a path; "" if none does. A path whose links lead too
// far counts as inside.
func (w Writable) Holds(path string) string {
	at, err := w.place(path)
	if err != nil {
		return path
	}
	return at.root
}

// Below is Holds without the writable paths themselves.
func (w Writable) Below(path string) string {
	if at, err := w.place(path); err == nil && at.rest == "" {
		return ""
	}
	return w.Holds(path)
}

// Permits reports whether one of the paths that a command may use contains a path.
func (w Writable) Permits(used []string, path string) bool {
	at, err := w.place(path)
	return err == nil && slices.ContainsFunc(used, func(p string) bool {
		its, err := w.place(p)
		return err == nil && within(at.path, its.path)
	})
}

// problem returns why a path below a writable path cannot be used, with what to do; "" if it can, or if
// it does not exist.
func (w Writable) problem(key, path string) string {
	at, err := w.place(path)
	if err != nil {
		return err.Error()
	}
	step := at.root
	for name := range strings.SplitSeq(at.rest, "/") {
		if at.rest == "" {
			break
		}
		step = filepath.Join(step, name)
		if info, err := os.Lstat(step); err == nil && info.Mode().Type() == fs.ModeSymlink {
			return fmt.Sprintf("%s is a link below %s, which confined commands may change, so it is not followed; "+
				"replace the link by its target, or name the target in %s", step, at.root, key)
		}
	}
	return ""
}
