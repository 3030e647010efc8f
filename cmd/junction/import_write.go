package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"junction/cmd/junction/clients"
	"junction/cmd/junction/config"
	"junction/cmd/junction/prose"
	"junction/cmd/junction/yamledit"
)

// newFile is the first lines of a configuration file that import creates.
const newFile = "# The configuration of Junction. Validate it with: junction check --config FILE\n"

// write adds the new servers to the configuration file. If a step fails, the file stays unchanged
// and the new secret files are removed.
func (i *importer) write() (err error) {
	old := i.text
	keep := clients.SecretsOf(i.file)
	defer func() {
		if err != nil {
			keep.Undo()
		}
	}()
	if err := os.MkdirAll(filepath.Dir(i.file), 0o700); err != nil {
		return err
	}
	text, err := i.newText(old, keep)
	if err != nil || text == nil {
		return err
	}
	if i.backup, err = clients.Replace(i.file, old, text, true); err != nil {
		return fmt.Errorf("cannot write %s: it %w", i.file, err)
	}
	i.written = true
	keep.Discard(text)
	return nil
}

// newText returns the file with the new servers, or nil if there are none. A server that the
// configuration rejects is marked as skipped.
func (i *importer) newText(old []byte, keep *clients.SecretFiles) ([]byte, error) {
	for {
		entries, err := i.entries(keep)
		if err != nil || len(entries) == 0 {
			return nil, err
		}
		before := old
		if old == nil {
			before = []byte(newFile)
		}
		text, err := yamledit.Add(before, "upstreams", entries)
		if err != nil {
			return nil, fmt.Errorf("cannot add to %s: %w", i.file, err)
		}
		c, err := config.Parse(i.file, text, lookup)
		if problems, ok := errors.AsType[config.Problems](err); ok && i.skip(problems) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot add to %s: %w", i.file, err)
		}
		return text, i.verify(c)
	}
}

// entries renders the new servers, and stores their secrets.
func (i *importer) entries(keep *clients.SecretFiles) ([]yamledit.Entry, error) {
	r := clients.Renderer{Keep: keep.Store}
	var list []yamledit.Entry
	for n := range i.outcomes {
		o := &i.outcomes[n]
		if o.Result != clients.New {
			continue
		}
		s := o.Server
		comment := fmt.Sprintf("from %s, %s", s.Client.Name, prose.OneLine(i.home.Short(s.File)))
		block, err := r.YAML(o.Name, comment, s.Entry, false)
		if err != nil {
			o.Result, o.Notes = clients.Skipped, []string{err.Error()}
			continue
		}
		flow, err := r.YAML(o.Name, "", s.Entry, true)
		if err != nil {
			return nil, err
		}
		list = append(list, yamledit.Entry{Block: block, Flow: flow})
	}
	return list, nil
}

// skip marks the servers with problems as skipped. It returns false if a problem concerns anything
// else.
func (i *importer) skip(problems config.Problems) bool {
	skipped := 0
	for _, p := range problems {
		found := false
		for n := range i.outcomes {
			o := &i.outcomes[n]
			at := "upstreams." + o.Name
			if o.Name == "" || p.Path != at && !strings.HasPrefix(p.Path, at+".") {
				continue
			}
			found = true
			if o.Result == clients.New {
				key := strings.TrimPrefix(strings.TrimPrefix(p.Path, at), ".")
				o.Result, o.Notes = clients.Skipped, []string{strings.TrimSpace(key + " " + p.Text)}
				skipped++
			}
		}
		if !found {
			return false
		}
	}
	return skipped > 0
}

// verify checks that the new file adds the new servers and changes nothing else.
func (i *importer) verify(c *config.Config) error {
	var servers []*clients.Server
	var names []string
	for _, o := range i.outcomes {
		if o.Result == clients.New {
			servers, names = append(servers, o.Server), append(names, o.Name)
		}
	}
	again := clients.Merge{Existing: knownOf(c), Getenv: lookup}
	for n, o := range again.Plan(servers) {
		if o.Result != clients.Present || o.Name != names[n] || len(o.Notes) > 0 {
			return fmt.Errorf("cannot add %s to %s: the entry would mean something else; add it by hand", names[n],
				i.file)
		}
	}
	rest := *c
	rest.Upstreams = nil
	for name, u := range i.config.Upstreams {
		now := c.Upstreams[name]
		now.Reserved = u.Reserved // depends on the references of the whole file
		if !reflect.DeepEqual(now, u) {
			return fmt.Errorf("cannot add to %s without a change to %s; add the servers by hand", i.file, name)
		}
	}
	was := *i.config
	was.Upstreams = nil
	if !reflect.DeepEqual(rest, was) {
		return fmt.Errorf("cannot add to %s without a change to something else; add the servers by hand", i.file)
	}
	return nil
}
