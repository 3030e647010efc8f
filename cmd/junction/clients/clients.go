// Package clients reads and edits the configuration files of MCP clients: where each client keeps
// its servers, in which form, and how a server is added or removed without a change to any other
// byte.
//
// table.go has the clients and place.go their files. jsonc.go and toml.go edit the two formats, and
// file.go replaces a file. server.go, text.go, secret.go and entry.go translate a server into an
// entry of Junction's configuration; merge.go brings the servers of all clients together.
// look.go shows a person what an entry would run, send and read. connect.go writes Junction's own
// entry into a client's file, and record.go remembers what the file was before.
package clients

import (
	"fmt"
	"strings"

	"junction/upstream/prose"
)

// A Client is a program that calls MCP servers and keeps their list in a file.
type Client struct {
	ID   string // as on the command line, such as claude-code
	Name string // as its makers write it

	format  format
	keys    []string // that lead to the servers, from the root of the file
	user    []path   // files of the user; of several, those that exist
	project []path   // files of a project, relative to its folder
	syntax  syntax   // of references in values
	entry   func(Target) object
}

// format reads and edits the text of a file. None of the methods changes its argument.
type format interface {
	// decode returns what a text without a byte order mark means.
	decode(body []byte) (any, error)
	// servers returns what is below keys, in the order of the file.
	servers(text []byte, keys []string) ([]raw, error)
	// add puts a server at the end of those below keys, which it creates if necessary. The server
	// must not exist.
	add(text []byte, keys []string, name string, entry object) ([]byte, error)
	// remove takes a server out, which must exist.
	remove(text []byte, keys []string, name string) ([]byte, error)
	// block returns what restore needs to put a server back as it is written; "" if the server
	// cannot be put back.
	block(text []byte, keys []string, s raw) string
	// restore puts a server back that was removed. The server must not exist.
	restore(text []byte, keys []string, name, block string) ([]byte, error)
}

// raw is a server as a file has it.
type raw struct {
	name   string
	line   int
	fields map[string]any // nil if the value is not a mapping
}

// An object is a mapping that keeps its order.
type object []member

type member struct {
	key   string
	value any // string, bool, []string, object, written, or what encoding/json decodes
}

// written is a value of a member as a file has it.
type written string

// tree returns o as encoding/json would decode it.
func (o object) tree() map[string]any {
	m := map[string]any{}
	for _, e := range o {
		switch v := e.value.(type) {
		case object:
			m[e.key] = v.tree()
		case []string:
			list := make([]any, len(v))
			for i, s := range v {
				list[i] = s
			}
			m[e.key] = list
		default:
			m[e.key] = v
		}
	}
	return m
}

// Lookup returns the client of an id, or of a name, whatever its spaces and hyphens.
func Lookup(id string) (*Client, error) {
	plain := func(s string) string { return strings.NewReplacer(" ", "", "-", "").Replace(strings.ToLower(s)) }
	for _, c := range table() {
		if plain(c.ID) == plain(id) || plain(c.Name) == plain(id) {
			return c, nil
		}
	}
	if near := prose.Nearest(id, IDs()); near != "" {
		return nil, fmt.Errorf("there is no client %q; did you mean %s?", id, near)
	}
	return nil, fmt.Errorf("there is no client %q; the clients are %s", id, strings.Join(IDs(), ", "))
}

// All returns the clients.
func All() []*Client { return table() }

// IDs returns the ids of the clients.
func IDs() (ids []string) {
	for _, c := range table() {
		ids = append(ids, c.ID)
	}
	return ids
}

// A SyntaxError is a file that cannot be parsed.
type SyntaxError struct {
	Line int // 0 if it is unknown
	Err  error
}

func (e *SyntaxError) Error() string { return e.Err.Error() }
func (e *SyntaxError) Unwrap() error { return e.Err }
