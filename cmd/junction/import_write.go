package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"junction/cmd/junction/clients"
	"junction/cmd/junction/config"
	"junction/cmd/junction/prose"
	"junction/cmd/junction/yamledit"
)

// newFile is the first lines of a configuration file that import creates.
const newFile = "# The configuration of Junction. Validate it with: junction check --config FILE\n\n"

// write adds the new servers to the configuration file. If a step fails, the file stays unchanged
// and the new secret files are removed.
func (i *importer) write() (err error) {
	old := i.text
	keep := &secretFiles{dir: filepath.Join(filepath.Dir(i.file), "secrets")}
	defer func() {
		if err != nil {
			keep.undo()
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
	keep.discard(text)
	return nil
}

// newText returns the file with the new servers, or nil if there are none. A server that the
// configuration rejects is marked as skipped.
func (i *importer) newText(old []byte, keep *secretFiles) ([]byte, error) {
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
func (i *importer) entries(keep *secretFiles) ([]yamledit.Entry, error) {
	r := clients.Renderer{Keep: keep.store}
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
			return fmt.Errorf("cannot add %s to %s: the entry would mean something else; add it by hand", names[n], i.file)
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

// secretFiles stores each secret in its own file, readable only by the owner.
type secretFiles struct {
	dir     string
	created []string
	madeDir bool
}

var notInFileName = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// store returns the path of a file with the secret, relative to the configuration. It does not
// overwrite a file: it uses an existing file with the same content, or chooses another name.
func (s *secretFiles) store(upstream, label, secret string) (string, error) {
	if err := os.Mkdir(s.dir, 0o700); err == nil {
		s.madeDir = true
	} else if !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	label = strings.Trim(notInFileName.ReplaceAllString(label, "-"), "-.")
	base := upstream + "." + label[:min(len(label), 64)]
	content := []byte(secret + "\n")
	for n := 1; ; n++ {
		name := base
		if n > 1 {
			name = fmt.Sprintf("%s-%d", base, n)
		}
		file := filepath.Join(s.dir, name)
		f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if errors.Is(err, fs.ErrExist) && n < 1000 {
			if has, err := clients.ReadFile(file); err == nil && bytes.Equal(has, content) {
				return "secrets/" + name, nil
			}
			continue
		}
		if err != nil {
			return "", err
		}
		s.created = append(s.created, file)
		_, err = f.Write(content)
		return "secrets/" + name, errors.Join(err, f.Close())
	}
}

// discard removes the new files that text does not refer to: those of skipped servers.
func (s *secretFiles) discard(text []byte) {
	for _, file := range s.created {
		if !bytes.Contains(text, []byte("${file:secrets/"+filepath.Base(file)+"}")) {
			os.Remove(file)
		}
	}
	os.Remove(s.dir) // if it is empty
}

// undo removes everything that store has created.
func (s *secretFiles) undo() {
	for _, file := range s.created {
		os.Remove(file)
	}
	if s.madeDir {
		os.Remove(s.dir)
	}
}
