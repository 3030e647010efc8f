package sandbox

import (
	"os/exec"
	"path/filepath"
	"slices"
)

// A Decider is a file or a folder that decides what commands may use, or that Junction itself reads
// and writes with all its rights. A confined command must not change it.
type Decider struct {
	What, Path string // Path is absolute
	Inside     bool   // a command must not change a part of the folder, either
}

func (d Decider) String() string { return d.What + ", " + d.Path }

// Deciders lists them.
type Deciders []Decider

// In returns the Deciders that commands can change which may change the paths, so that Changed has
// little to compare.
func (l Deciders) In(paths []string) Deciders {
	w, err := NewWritable(paths)
	if err != nil {
		return l
	}
	var in Deciders
	for _, d := range l {
		at, err := w.place(d.Path)
		inside := func(p string) bool { return d.Inside && within(p, at.path) }
		if err != nil || at.root != "" || slices.ContainsFunc(w, inside) {
			in = append(in, d)
		}
	}
	return in
}

// Changed returns the first Decider that a command can change which may change the path; nil if there
// is none.
func (l Deciders) Changed(path string) *Decider {
	if in := l.In([]string{path}); filepath.IsAbs(path) && len(in) > 0 {
		return &in[0]
	}
	return nil
}

// Searched returns the paths that decide which program a command runs: where the program is searched,
// up to the one that is found, and the interpreters of a script. dir is the working directory, and
// path the value of PATH.
func Searched(program, dir, path string) (list []string) {
	candidates := []string{program}
	switch {
	case filepath.IsAbs(program):
	case filepath.Base(program) != program:
		candidates[0] = filepath.Join(dir, program)
	default:
		candidates = nil
		for _, folder := range filepath.SplitList(path) {
			candidates = append(candidates, filepath.Join(folder, program))
		}
	}
	for _, c := range candidates {
		if !filepath.IsAbs(c) {
			continue // os/exec ignores relative parts of PATH, too
		}
		list = append(list, c)
		if _, err := exec.LookPath(c); err != nil {
			continue
		}
		for range 3 { // an interpreter may be a script itself
			if c = interpreter(c); !filepath.IsAbs(c) {
				break
			}
			list = append(list, c)
		}
		break
	}
	return list
}
