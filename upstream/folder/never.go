package folder

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
)

// An Own is a file or a folder of Junction, or one that the operator excludes: no client may name a folder
// in it or around it.
type Own struct {
	What, Path string // Path is absolute
	// Entry is the name of the entry that the file belongs to; "" if it is of Junction. It counts for other
	// entries with a sandbox (Beside).
	Entry string
}

// private are the folders below a home folder with the data of programs, besides hidden ones.
var private = []string{"Library", "AppData"}

// never returns why nobody may name a path, as text; "" if the text says nothing against it. No file is
// touched.
func (g *Guard) never(path string) string {
	base := filepath.VolumeName(path) + string(filepath.Separator)
	for _, home := range g.homes {
		switch below, inside := relative(home, path); {
		case inside && below == "":
			return "it is a home folder; name a folder in it"
		case inside:
			for _, name := range private {
				if strings.EqualFold(visible(first(below)), name) {
					return "programs keep private data in " + plain(filepath.Join(home, first(below)))
				}
			}
			if len(home) > len(base) { // a home folder may be in another one
				base = home
			}
		}
		if _, around := relative(path, home); around {
			return "it contains a home folder; name a folder with a project"
		}
	}
	if filepath.Dir(path) == path {
		return "it is the whole file system; name a folder with a project"
	}
	below, _ := relative(base, path)
	for name := range strings.SplitSeq(below, string(filepath.Separator)) {
		if strings.HasPrefix(visible(name), ".") {
			return plain(name) + " is a hidden folder"
		}
	}
	for _, own := range g.own {
		if !g.counts(own.Own) {
			continue
		}
		for _, p := range own.paths {
			if why := touches(path, p, own.What); why != "" {
				return why
			}
		}
	}
	return ""
}

// visible returns a name without the characters that some file systems ignore in it (HFS+).
func visible(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return r
	}, name)
}

// touches returns why a folder cannot be named if it is in the path of an Own, or around it.
func touches(folder, path, what string) string {
	if _, in := relative(path, folder); in {
		return "it is in " + what
	}
	if _, around := relative(folder, path); around {
		return "it contains " + what
	}
	return ""
}

// neverOpened is never for a folder that is open, whatever its text is: a mount, or a file system that does
// not distinguish case, gives a folder a second path.
func (g *Guard) neverOpened(o opened) string {
	last := o.path[len(o.path)-1]
	seen := map[string]node{} // the zero node is no file
	at := func(path string) node {
		n, known := seen[path]
		if !known {
			n, _ = nodeOf(path)
			seen[path] = n
		}
		return n
	}
	for _, own := range g.own {
		if !g.counts(own.Own) {
			continue
		}
		for _, p := range own.paths {
			if n := at(p); n != (node{}) && slices.Contains(o.path, n) {
				return "it is in " + own.What
			}
			for ; filepath.Dir(p) != p; p = filepath.Dir(p) {
				if at(p) == last {
					return "it contains " + own.What
				}
			}
		}
	}
	if slices.ContainsFunc(g.homes, func(home string) bool { return at(home) == last }) {
		return "it is a home folder; name a folder in it"
	}
	return ""
}

// nodeOf returns the node of a file that exists, of its target if it is a link.
func nodeOf(path string) (node, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return node{}, false
	}
	return nodeOfInfo(path, info)
}

// Contains reports whether a path is folder, or is below it, as text. Both are absolute and clean.
func Contains(folder, path string) bool {
	_, inside := relative(folder, path)
	return inside
}

// relative returns the part of path below folder, and whether path is folder or below it. Both are clean.
func relative(folder, path string) (below string, inside bool) {
	if len(path) < len(folder) || !sameText(path[:len(folder)], folder) {
		return "", false
	}
	rest := path[len(folder):]
	if rest == "" {
		return "", true
	}
	if os.IsPathSeparator(folder[len(folder)-1]) { // the root of the file system
		return rest, true
	}
	if !os.IsPathSeparator(rest[0]) {
		return "", false
	}
	return rest[1:], true
}

// first returns the first part of a relative path.
func first(below string) string {
	name, _, _ := strings.Cut(below, string(filepath.Separator))
	return name
}
