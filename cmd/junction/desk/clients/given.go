package clients

import (
	"fmt"
	"path/filepath"
)

// Given is a server as a person describes it on the command line: a command or a URL. Values may
// have Junction's references: ${NAME}, ${NAME:-default}, ${env:NAME} and ${file:PATH}.
type Given struct {
	Command      []string
	URL          string
	Pack         string // the path of a pack
	Env, Headers map[string]string
	Dir          string
	Folder       string // where a person has typed a command: its relative paths begin there; "" if nobody has
	Transport    string // the word of the file; "" if it needs none
	Auth         string // auth.mode; "" is none
	Off          bool
}

// addresses has a row for each kind of address, in the order in which one goes before another.
var addresses = []struct {
	given func(g *Given) bool
	field func(g *Given) (key string, value any) // as the file of a client has the address
}{
	{func(g *Given) bool { return g.URL != "" }, func(g *Given) (string, any) { return "url", g.URL }},
	// the other values of a pack are those of a command
	{func(g *Given) bool { return g.Pack != "" },
		func(*Given) (string, any) { return "command", []any{"junction-pack"} }},
	{func(g *Given) bool { return len(g.Command) > 0 },
		func(g *Given) (string, any) { return "command", listOf(g.Command) }},
}

// Addressed reports whether the server has an address.
func (g *Given) Addressed() bool {
	for _, row := range addresses {
		if row.given(g) {
			return true
		}
	}
	return false
}

// Entry returns the entry for a configuration file. As in an import, what looks like a secret
// becomes one.
func (g Given) Entry(h Home, file string) (*Entry, error) {
	for name := range g.Headers {
		if OwnHeader(name) {
			return nil, fmt.Errorf("the header %s is set by Junction itself; leave it out", name)
		}
	}
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	f := map[string]any{"env": mapOf(g.Env), "headers": mapOf(g.Headers), "cwd": g.Dir, "disabled": g.Off}
	for _, row := range addresses {
		if row.given(&g) {
			key, value := row.field(&g)
			f[key] = value
			break
		}
	}
	s := Server{Place: Place{Client: junctionItself(), Scope: User, File: file, folder: g.Folder}, fields: f}
	e, err := s.entry(h)
	if err != nil {
		return nil, err
	}
	e.Transport, e.Auth = g.Transport, g.Auth
	if g.Pack != "" {
		e.Pack, e.Command = g.Pack, nil
	}
	return e, nil
}

func listOf(words []string) []any {
	list := make([]any, len(words))
	for i, word := range words {
		list[i] = word
	}
	return list
}

func mapOf(m map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	return out
}
