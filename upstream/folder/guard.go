package folder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Rules are what a Guard decides by. All paths are absolute.
type Rules struct {
	// Within are folders that clients may name, with everything in them.
	Within []string
	// Allowed returns more of them at each call, such as those that a person has permitted since the
	// start. It may be nil.
	Allowed func() []Root
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

// A Guard decides which folders clients may name. Its methods may be called at the same time.
type Guard struct {
	within  []Root
	allowed func() []Root
	own     []excluded
	homes   []string
	permit  func(path string) string

	mu    sync.Mutex
	turns map[string]*turns
}

// excluded is an Own with its path, and the one without links.
type excluded struct {
	Own
	paths []string
}

// New returns a Guard. It follows the links of the paths now, and none later.
func New(r Rules) *Guard {
	g := &Guard{allowed: r.Allowed, permit: r.Permit, turns: map[string]*turns{}}
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
	path, err := g.permitted(path)
	if err != nil {
		return Place{}, nil, err
	}
	if err := g.begin(ctx, principal); err != nil {
		return Place{}, nil, err
	}
	defer g.end(principal)
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

// permitted returns the path without the links of the permitted folder that contains it. It touches no file.
func (g *Guard) permitted(path string) (string, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0) {
		return "", &Refused{Path: path, Why: "it is no absolute path, or it has needless parts"}
	}
	roots := g.within
	if g.allowed != nil {
		roots = append(roots[:len(roots):len(roots)], g.allowed()...)
	}
	best, found := Root{}, false
	for _, root := range roots {
		for _, name := range []string{root.Name, root.Real} {
			if _, inside := relative(name, path); inside && (!found || len(name) > len(best.Name)) {
				best, found = Root{name, root.Real}, true
			}
		}
	}
	if !found {
		refused := &Refused{Path: path, Why: "it is outside the permitted folders"}
		if g.permit != nil && g.never(path, path) == "" {
			refused.Permit = g.permit(path)
		}
		return "", refused
	}
	below, _ := relative(best.Name, path)
	at := filepath.Join(best.Real, below)
	for _, p := range []struct{ path, root string }{{path, best.Name}, {at, best.Real}} {
		if why := g.never(p.path, p.root); why != "" {
			return "", &Refused{Path: path, Why: why}
		}
	}
	return at, nil
}

// Never returns why nobody may name a path, whatever is permitted; "" if somebody may. Commands ask it
// before they permit a folder.
func (g *Guard) Never(path string) string {
	for _, p := range both(path) {
		if why := g.never(p, p); why != "" {
			return why
		}
	}
	return ""
}

// most is how many folders a principal opens at the same time. A folder of a file system that does not
// answer keeps its turn, so one principal never holds more threads of the system.
const most = 8

// turns counts the folders that a principal is opening, and those who wait.
type turns struct {
	free  chan struct{}
	users int
}

func (g *Guard) begin(ctx context.Context, principal string) error {
	g.mu.Lock()
	t := g.turns[principal]
	if t == nil {
		t = &turns{free: make(chan struct{}, most)}
		g.turns[principal] = t
	}
	t.users++
	g.mu.Unlock()
	select {
	case t.free <- struct{}{}:
		return nil
	case <-ctx.Done():
		g.leave(principal, t)
		return errors.Join(errors.New("the folder was not opened in time"), context.Cause(ctx))
	}
}

func (g *Guard) end(principal string) {
	g.mu.Lock()
	t := g.turns[principal]
	g.mu.Unlock()
	<-t.free
	g.leave(principal, t)
}

func (g *Guard) leave(principal string, t *turns) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(g.turns, principal)
	}
}
