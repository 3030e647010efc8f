package folder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"junction/upstream/files"
)

// Bounds of the file of a List.
const (
	maxRoots = 1000
	maxList  = 4 << 20
)

// A List is a file with the folders that a person has permitted. Several processes may change it at the
// same time. Only its owner can read it. Its methods may be called at the same time.
type List struct {
	file string

	mu    sync.Mutex
	roots []Root
	seen  fs.FileInfo // the file with the roots; nil without one
}

// NewList returns the List in a file, which need not exist.
func NewList(file string) *List { return &List{file: file} }

// stored is the content of the file.
type stored struct {
	Folders []storedRoot `json:"folders"`
}

type storedRoot struct {
	Path string `json:"path"`
	Real string `json:"real,omitempty"` // without links, if it is another path
}

// Roots returns the permitted folders, in the order in which they were permitted. It looks whether the file
// has changed. With a file that cannot be read, no folder is permitted, and there is an error.
func (l *List) Roots() ([]Root, error) {
	info, err := os.Stat(l.file)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l.roots, l.seen = nil, nil
		return nil, nil
	case err == nil && l.seen != nil && os.SameFile(l.seen, info) && info.Size() == l.seen.Size() &&
		info.ModTime().Equal(l.seen.ModTime()):
		return l.roots, nil
	}
	l.roots, l.seen = nil, nil
	roots, err := l.read()
	if err != nil {
		return nil, err
	}
	l.roots, l.seen = roots, info
	return roots, nil
}

func (l *List) read() ([]Root, error) {
	text, err := files.Read(l.file, maxList)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var s stored
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && len(s.Folders) > maxRoots {
		err = fmt.Errorf("it has %d folders, and at most %d are possible", len(s.Folders), maxRoots)
	}
	if err != nil {
		return nil, fmt.Errorf("read the permitted folders %s: %w; remove the file, and permit the folders again",
			l.file, err)
	}
	var roots []Root
	for _, r := range s.Folders {
		root := Root{r.Path, r.Path}
		if r.Real != "" {
			root.Real = r.Real
		}
		if filepath.IsAbs(root.Name) && filepath.IsAbs(root.Real) {
			roots = append(roots, root)
		}
	}
	return roots, nil
}

// Allow adds folders, and returns those that the file did not have.
func (l *List) Allow(ctx context.Context, roots ...Root) (added []Root, err error) {
	err = l.change(ctx, func(now []Root) ([]Root, error) {
		for _, r := range roots {
			if !slices.Contains(now, r) {
				now, added = append(now, r), append(added, r)
			}
		}
		if len(now) > maxRoots {
			return nil, fmt.Errorf("there would be %d permitted folders, and at most %d are possible; forget some of "+
				"them, or permit a folder around them", len(now), maxRoots)
		}
		return now, nil
	})
	return added, err
}

// Forget removes the folders with one of the paths, and returns them.
func (l *List) Forget(ctx context.Context, paths ...string) (removed []Root, err error) {
	err = l.change(ctx, func(now []Root) ([]Root, error) {
		return slices.DeleteFunc(now, func(r Root) bool {
			gone := slices.Contains(paths, r.Name) || slices.Contains(paths, r.Real)
			if gone {
				removed = append(removed, r)
			}
			return gone
		}), nil
	})
	return removed, err
}

// change replaces the list in one step, while no other process changes it.
func (l *List) change(ctx context.Context, next func(now []Root) ([]Root, error)) error {
	if err := os.MkdirAll(filepath.Dir(l.file), 0o700); err != nil {
		return err
	}
	unlock, err := files.LockFile(ctx, l.file+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	before, err := l.read()
	if err != nil {
		return err
	}
	after, err := next(slices.Clone(before))
	if err != nil || slices.Equal(before, after) {
		return err
	}
	s := stored{Folders: []storedRoot{}}
	for _, r := range after {
		row := storedRoot{Path: r.Name}
		if r.Real != r.Name {
			row.Real = r.Real
		}
		s.Folders = append(s.Folders, row)
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := files.WriteSync(l.file, append(text, '\n')); err != nil {
		return err
	}
	return adopt(filepath.Dir(l.file), l.file, l.file+".lock")
}
