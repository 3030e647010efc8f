// Package clients reads and edits the configuration files of MCP clients: where each client keeps
// its servers, in which form, and how a server is added or removed without a change to any other
// byte.
//
// table.go has the clients: a row for each, with all that differs between them; habits.go has what few of them
// do. place.go has their files. The package format edits their texts, and revision
// replaces a file. server.go, text.go, secret.go and entry.go translate a server into an
// entry of Junction's configuration; plan.go decides what becomes of the servers of all clients, merge.go
// compares them, and withdrawn.go remembers those that a person has removed.
// look.go shows a person what an entry would run, send and read. connect.go writes Junction's own
// entry into a client's file, and record.go remembers what the file was before. key.go decides how a client
// gets the API key, input.go has the way of VS Code, folder.go says in which folder the client is, and
// window.go in which one a command works; visited.go has the folders in which clients were used. trust.go has
// the certificates of an entry.
package clients

import (
	"fmt"
	"strings"

	"junction/cmd/junction/desk/clients/format"
	"junction/upstream/prose"
)

// A Client is a program that calls MCP servers and keeps their list in a file.
type Client struct {
	ID   string // as on the command line, such as claude-code
	Name string // as its makers write it

	format  format.Format
	keys    []string // that lead to the servers, from the root of the file
	user    []path   // files of the user; of several, those that exist
	project []path   // files of a project, relative to its folder
	syntax  syntax   // of references in values
	// entry makes the entry of a client that reads URLs; nil for one that only starts commands.
	entry   func(Target) format.Object
	command func(Target) format.Object // the entry that starts junction stdio
	env     string                     // the key of the variables in such an entry; "" if it has none
	key     KeyWay                     // with an entry in a file of the user
	reads   bool                       // entry can refer to KeyVariable
	folder  folderForm                 // how an entry refers to the folder of the client
	starts  start                      // where the client starts the commands of the user's file
	traces  []trace                    // files that name the folders in which it was used
	// folderless means that the client works in no folder, and sends no roots.
	folderless bool
	// certs names the variable with a file of certificates that the client trusts at a URL; "" if it trusts the
	// store of the system alone.
	certs string

	seen     string // where the client lists its servers: a command of it, or the way through its menus
	projects bool   // the user's file has servers of single projects, too: in projects, by folder
	alike    syntax // what clients with the same form of file expand, beside syntax
	habits   habits // what else the client says of its servers
	// program adds an entry to the user's file itself, with the arguments that adds returns; its running
	// instances write that file. "" means that Junction edits the file.
	program string
	adds    func(Target) []string
	snippet func(c *Client, t Target, s *Snippet) // sets Command and Link; nil if the client has neither
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
