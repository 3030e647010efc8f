package clients

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"

	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/clients/format"
)

// A Server is one entry of a client's file.
type Server struct {
	Place
	Name string
	Line int

	Entry *Entry // nil where Junction cannot have the server
	Err   error  // why; nil otherwise

	fields map[string]any
	inputs map[string]any // of VS Code, by id
}

// Read returns the servers of some places, and an error for each file that exists and cannot be
// read.
func (h Home) Read(places []Place) ([]*Server, []error) {
	var list []*Server
	var errs []error
	failed := map[string]bool{}
	for _, p := range places {
		servers, err := h.read(p)
		if errors.Is(err, fs.ErrNotExist) || failed[p.File] {
			continue
		}
		if err != nil {
			failed[p.File] = true
			errs = append(errs, &revision.Error{File: h.Short(p.File), Err: err})
		}
		list = append(list, servers...)
	}
	return list, errs
}

func (h Home) read(p Place) ([]*Server, error) {
	text, err := revision.Read(p.File)
	if err != nil {
		return nil, err
	}
	return h.parse(p, text)
}

// maxServers is the most servers of one file: each is compared with all others.
const maxServers = 500

// parse returns the servers of a text.
func (h Home) parse(p Place, text []byte) ([]*Server, error) {
	habits := p.Client.habits.orNone()
	p.keys = p.servers(text)
	found, err := p.Client.format.Servers(text, p.keys)
	if err != nil {
		return nil, err
	}
	if len(found) > maxServers {
		return nil, fmt.Errorf("has %d servers, and Junction reads at most %d of one file", len(found), maxServers)
	}
	asked := map[string]any{}
	if p.Client.syntax&inputs != 0 {
		asked = inputsOf(text, p.keys)
	}
	var list []*Server
	settings := habits.settings(h, p)
	off, rules := habits.off(h, p, text, settings), habits.rules(text, settings)
	for _, r := range found {
		s := &Server{Place: p, Name: r.Name, Line: r.Line, fields: r.Fields, inputs: asked}
		s.Entry, s.Err = s.entry(h)
		if s.Err != nil {
			s.Entry = nil
		} else {
			s.Entry.Off = s.Entry.Off || off(s.Name)
			s.apply(rules)
		}
		list = append(list, s)
	}
	return list, nil
}

// servers returns the keys that lead to the servers in a text.
func (p Place) servers(text []byte) []string {
	if keys := p.Client.habits.orNone().keys(text); keys != nil {
		return keys
	}
	return p.keys
}

// inputsOf returns the inputs of a file of VS Code by their ids. They are beside the servers, to which
// keys lead.
func inputsOf(text []byte, keys []string) map[string]any {
	at := format.Tree(text)
	for _, key := range keys[:len(keys)-1] {
		at, _ = at[key].(map[string]any)
	}
	list, _ := at["inputs"].([]any)
	m := map[string]any{}
	for _, e := range list {
		if in, ok := e.(map[string]any); ok {
			id, _ := in["id"].(string)
			m[id] = in
		}
	}
	return m
}

func basicAuth(user, password string) string {
	return base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
}
