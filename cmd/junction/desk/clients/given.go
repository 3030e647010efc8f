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
	SSE          bool   // the transport is HTTP+SSE
	Auth         string // auth.mode; "" is none
	Off          bool
}

// Remote reports whether the server has a URL.
func (g *Given) Remote() bool { return g.URL != "" }

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
	switch {
	case g.Remote():
		f["url"] = g.URL
	case g.Pack != "":
		f["command"] = []any{"junction-pack"} // its other values are those of a command
	default:
		list := make([]any, len(g.Command))
		for i, word := range g.Command {
			list[i] = word
		}
		f["command"] = list
	}
	s := Server{Place: Place{Client: junctionItself(), Scope: User, File: file}, fields: f}
	e, err := s.entry(h)
	if err != nil {
		return nil, err
	}
	e.SSE, e.Auth = g.SSE, g.Auth
	if g.Pack != "" {
		e.Pack, e.Command = g.Pack, nil
	}
	return e, nil
}

func mapOf(m map[string]string) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		out[k] = v
	}
	return out
}
