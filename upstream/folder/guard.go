package folder

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"junction/upstream/files"
)

// Rules are what a Guard decides by. All paths are absolute.
type Rules struct {
	// Within are folders that clients may name, with everything in them.
	Within []string
	// Allowed returns more of them at each call, such as those that a person has permitted since the
	// start. It may be nil.
	Allowed func() ([]Root, error)
	// Own are the files of Junction, and what the operator excludes.
	Own []Own
	// Homes are the home folders of the user of Junction.
	Homes []string
	// Permit returns the command that permits a path. It may be nil.
	Permit func(path string) string
}

// A Root is a permitted folder: the path by which people know it, and the one without links that it had
// when it was permitted.
type Root struct{ Name, Real string }

// NewRoot returns the Root of a path, and follows its links. A path that does not exist is its own.
func NewRoot(path string) Root {
	path = filepath.Clean(path)
	return Root{Name: path, Real: real(path)}
}

// real follows the links of the part of a path that exists.
func real(path string) string {
	rest := ""
	for at := path; ; at = filepath.Dir(at) {
		if to, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(to, rest)
		}
		if filepath.Dir(at) == at {
			return path
		}
		rest = filepath.Join(filepath.Base(at), rest)
	}
}

// A Guard decides which folders clients may name. It is immutable, and its methods may be called at the
// same time. A nil Guard permits nothing.
type Guard struct {
	within  []Root
	allowed func() ([]Root, error)
	own     []excluded
	homes   []string
	permit  func(path string) string

	narrow []func(path string) bool // each must permit a path
	entry  string                   // the entry with a sandbox that gets the folder; "" for none

	opening *opening
}

// excluded is an Own with its path, and the one without links.
type excluded struct {
	Own
	paths []string
}

// New returns a Guard. It follows the links of the paths now, and none later.
func New(r Rules) *Guard {
	g := &Guard{allowed: r.Allowed, permit: r.Permit, opening: &opening{turns: map[string]*turns{}}}
	for _, path := range r.Within {
		g.within = append(g.within, NewRoot(path))
	}
	for _, own := range r.Own {
		g.own = append(g.own, excluded{own, both(own.Path)})
	}
	for _, home := range r.Homes {
		g.homes = append(g.homes, both(home)...)
	}
	return g
}

// Narrowed returns the Guard that permits only what permits does, too: the rights of a caller. permits gets
// absolute paths, and touches no file. A nil function permits nothing.
func (g *Guard) Narrowed(permits func(path string) bool) *Guard {
	if g == nil || permits == nil {
		return nil
	}
	n := *g
	n.narrow = append(n.narrow[:len(n.narrow):len(n.narrow)], permits)
	return &n
}

// Beside returns the Guard for an entry with a sandbox, which can change what is in the folder: the folder
// must be apart from the programs and folders of other entries.
func (g *Guard) Beside(entry string) *Guard {
	if g == nil {
		return nil
	}
	n := *g
	n.entry = entry
	return &n
}

// counts reports whether an Own counts for the entry.
func (g *Guard) counts(own Own) bool { return own.Entry == "" || g.entry != "" && own.Entry != g.entry }

// both returns a path and the one without links, if it is another one.
func both(path string) []string {
	root := NewRoot(path)
	if root.Name == root.Real {
		return []string{root.Name}
	}
	return []string{root.Name, root.Real}
}

// A Refused error says why a folder cannot be used. Its text is for the caller. It is the same for each
// path outside the permitted folders, whether a file exists there or not.
type Refused struct {
	Path, Why string
	Permit    string // the command that permits the folder; "" if nothing does
}

func (r *Refused) Error() string {
	text := fmt.Sprintf("the folder %q cannot be used: %s", short(r.Path), r.Why)
	if r.Permit != "" {
		text += "; to permit it, run on the machine of Junction: " + r.Permit
	}
	return text
}

// Admit returns the Place of an absolute path that a client of the principal has named, or a *Refused. Call
// it for each call: the folder may be another one each time. It blocks while the principal has as many
// folders opened as it may, or until ctx ends.
func (g *Guard) Admit(ctx context.Context, principal, path string) (Place, error) {
	place, dir, err := g.open(ctx, principal, path)
	if err != nil {
		return Place{}, err
	}
	return place, dir.Close()
}

// Permits reports whether a client may name an absolute path, as text. It touches no file but the list of a
// person.
func (g *Guard) Permits(path string) bool {
	_, _, err := g.permitted(path)
	return err == nil
}

// Open is Admit for a Place from an earlier call, and returns the open folder, which the caller must close.
// It fails if another folder has the path now.
func (g *Guard) Open(ctx context.Context, principal string, place Place) (*os.File, error) {
	now, dir, err := g.open(ctx, principal, place.path)
	if err != nil {
		return nil, err
	}
	if now != place {
		dir.Close()
		return nil, &Refused{Path: place.path, Why: "another folder was put in its place; call again"}
	}
	return dir, nil
}

func (g *Guard) open(ctx context.Context, principal, path string) (Place, *os.File, error) {
	path, root, err := g.permitted(path)
	if err != nil {
		return Place{}, nil, err
	}
	if point := files.Crossing(root, path); point != "" {
		return Place{}, nil, &Refused{Path: path, Why: "it is on a file system of another machine, mounted at " +
			point + "; permit a folder of it"}
	}
	end, err := g.opening.begin(ctx, principal)
	if err != nil {
		return Place{}, nil, err
	}
	defer end()
	o, err := openFolder(path)
	if err != nil {
		return Place{}, nil, &Refused{Path: path, Why: err.Error()}
	}
	if why := g.neverOpened(o); why != "" {
		o.dir.Close()
		return Place{}, nil, &Refused{Path: path, Why: why}
	}
	return Place{path: path, id: o.id}, o.dir, nil
}

// outside is why a folder is refused that nobody has permitted, or not to this caller.
const outside = "it is outside the permitted folders"

// permitted returns the path without the links of the permitted folder that contains it, and that folder. It
// touches no file but the list of a person.
func (g *Guard) permitted(path string) (at, within string, err error) {
	switch {
	case g == nil:
		return "", "", &Refused{Path: path, Why: outside}
	case !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0):
		return "", "", &Refused{Path: path, Why: "it is no absolute path, or it has needless parts"}
	}
	root, below, found, err := g.rootOf(path)
	switch {
	case !found && err != nil:
		return "", "", &Refused{Path: path, Why: "the list of permitted folders cannot be read; " +
			"junction folders list shows the reason"}
	case !found:
		refused := &Refused{Path: path, Why: outside}
		if g.permit != nil && g.narrowed(path) && g.never(path) == "" {
			refused.Permit = g.permit(path)
		}
		return "", "", refused
	}
	name, at := filepath.Join(root.Name, below), filepath.Join(root.Real, below)
	if !g.narrowed(name, at) {
		return "", "", &Refused{Path: path, Why: outside}
	}
	for _, p := range []string{name, at} {
		if why := g.never(p); why != "" {
			return "", "", &Refused{Path: path, Why: why}
		}
	}
	return at, root.Real, nil
}

// rootOf returns the innermost permitted folder that contains a path, and the part of the path below it.
func (g *Guard) rootOf(path string) (best Root, below string, found bool, err error) {
	roots := g.within
	if g.allowed != nil {
		var more []Root
		more, err = g.allowed()
		roots = append(roots[:len(roots):len(roots)], more...)
	}
	for _, root := range roots {
		for _, name := range []string{root.Name, root.Real} {
			if rest, inside := relative(name, path); inside && (!found || len(rest) < len(below)) {
				best, below, found = root, rest, true
			}
		}
	}
	return best, below, found, err
}

// narrowed reports whether the caller may have a folder under one of its names.
func (g *Guard) narrowed(names ...string) bool {
	for _, permits := range g.narrow {
		if !slices.ContainsFunc(names, permits) {
			return false
		}
	}
	return true
}

// Permitted returns the permitted folders, without links. It leaves out those of a list that cannot be read.
func (g *Guard) Permitted() (paths []string) {
	if g == nil {
		return nil
	}
	roots := g.within
	if g.allowed != nil {
		more, _ := g.allowed() // Admit reports the error
		roots = slices.Concat(roots, more)
	}
	for _, root := range roots {
		paths = append(paths, root.Real)
	}
	return paths
}

// Never returns why nobody may name a path, whatever is permitted; "" if somebody may. Commands ask it
// before they permit a folder.
func (g *Guard) Never(path string) string {
	for _, p := range both(path) {
		if why := g.never(p); why != "" {
			return why
		}
	}
	return ""
}
