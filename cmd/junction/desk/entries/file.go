package entries

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/base/yamledit"
	"junction/cmd/junction/desk/clients"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// newFile returns the first lines of a configuration file that add creates.
func newFile(path string) string {
	return config.EditorLine + "# The configuration of Junction. Validate it with: " + config.Command(path, "check") +
		"\n"
}

// ownStorage is the section of a new file that must not use the default database, with its DSN.
const ownStorage = "# Two files cannot share one database of sign-ins.\nstorage: { dsn: %q }\n"

// file is a configuration file before a change.
type file struct {
	path     string
	home     clients.Home
	text     []byte          // nil if the file does not exist
	config   *config.Config  // the readable part
	problems config.Problems // mistakes of the file
}

// read reads the file of a command. Mistakes in the file are not errors.
func read(flag string) (*file, error) {
	path, err := config.File(flag)
	if err != nil {
		return nil, err
	}
	f := &file{path: path}
	if f.home, err = clients.HomeOf(""); err != nil {
		return nil, err
	}
	f.text, err = revision.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		f.config, _, err = config.Load("", os.LookupEnv)
		if err == nil {
			f.config.Storage.DSN = config.OwnStorage(path, os.LookupEnv)
		}
		return f, err
	}
	if err != nil {
		return nil, &revision.Error{File: f.Short(), Err: err}
	}
	f.config, f.problems, err = parse(path, f.text)
	return f, err
}

// OnlyFile returns a usage error for a command that would begin a second configuration beside that of the Junction
// that runs. flag is the value of --config.
func (e *Editor) OnlyFile(flag string) error {
	p, ok := runfile.Only()
	if e.text != nil || flag != "" || !ok || p.File == "" || p.File == e.path {
		return nil
	}
	return cli.Usagef("there is no configuration %s, and a Junction of yours serves %s; add --config %s",
		e.Short(), e.home.Short(p.File), shell.Quote(p.File))
}

// readExisting is read for a command that needs the file.
func readExisting(flag string) (*file, error) {
	f, err := read(flag)
	if err == nil && f.text == nil {
		kept, _ := config.LastGood(os.LookupEnv, f.path)
		return nil, fmt.Errorf("there is no configuration %s%s; %s creates it", f.Short(),
			revision.Lost(f.path, kept, f.home.Short), config.Command(f.path, "add", "NAME", "--", "COMMAND"))
	}
	return f, err
}

// Lookup is os.LookupEnv with an unset variable as an empty one: such a variable blocks an upstream
// later, but must not prevent a change of the file.
func Lookup(name string) (string, bool) { return os.Getenv(name), true }

// parse returns the readable part of a text and its mistakes.
func parse(path string, text []byte) (*config.Config, config.Problems, error) {
	c, err := config.Parse(path, text, Lookup)
	if problems, ok := errors.AsType[config.Problems](err); ok {
		return c, problems, nil
	}
	return c, nil, err
}

// Short returns the path of the file for display.
func (f *file) Short() string { return f.home.Short(f.path) }

// Has returns nil if the file has the upstream. Otherwise the error lists similar names.
func (f *file) Has(name string) error {
	if _, there := f.config.Upstreams[name]; there {
		return nil
	}
	known := slices.Sorted(maps.Keys(f.config.Upstreams))
	said := fmt.Sprintf("there is no upstream %s in %s", prose.Quote(name), f.Short())
	switch near := prose.DidYouMean(known, name, ""); {
	case slices.ContainsFunc(f.problems, func(p config.Problem) bool { return p.Path == "" }):
		return runfile.Unchanged(f.path, f.problems)
	case near != "":
		said += "; " + near
	case len(known) > 0:
		said += "; it has " + strings.Join(known, ", ")
	}
	return errors.New(said)
}

// adding returns the text of the file with new upstreams.
func (f *file) adding(list ...yamledit.Entry) ([]byte, error) {
	before := f.text
	if before == nil {
		before = f.begin()
	}
	text, err := yamledit.Add(before, section, list)
	if err != nil {
		return nil, &revision.Error{File: f.Short(), Err: err}
	}
	return text, nil
}

// begin returns the first lines of the file, if it does not exist yet.
func (f *file) begin() []byte {
	text := []byte(newFile(f.path))
	if dsn := f.config.Storage.DSN; dsn != "" {
		text = fmt.Appendf(text, ownStorage, dsn)
	}
	return text
}

// Replace replaces the text of the file. It returns the path of the backup, or "" if the file is
// new. The new text must have no mistake that the old one did not have, except that it may have no
// upstreams, and may differ in the meaning of the named upstreams and of new endpoints only.
func (f *file) Replace(text []byte, names ...string) (backup string, err error) {
	c, problems, err := f.check(text, names)
	if err != nil {
		return "", err
	}
	return f.put(text, c, problems)
}

// put replaces the text of the file by one that was checked, and returns the path of the backup, or "".
func (f *file) put(text []byte, c *config.Config, problems config.Problems) (backup string, err error) {
	if f.text == nil {
		if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
			return "", err
		}
		if dsn := f.config.Storage.DSN; dsn != "" {
			_ = os.MkdirAll(filepath.Dir(dsn), 0o700) // junction reports the lack of a storage that it needs
		}
	}
	if err := config.WriteSchema(f.path, text); err != nil {
		return "", fmt.Errorf("cannot write the schema for editors beside %s: %w", f.Short(), err)
	}
	if backup, err = revision.Revise(f.path, f.text, text); err != nil {
		if f.text == nil {
			config.RemoveSchema(f.path)
		}
		return backup, &revision.Error{File: f.Short(), Err: err}
	}
	f.text, f.config, f.problems = text, c, problems
	return backup, nil
}

// Listening returns the text of the file with lines for listen and admin; false if the file cannot have them as lines.
func (f *file) Listening(lines []string) (text []byte, possible bool) {
	text = bytes.Clone(f.text)
	if f.text == nil {
		text = append(f.begin(), section+": {}\n"...)
	}
	for _, line := range lines {
		key, _, _ := strings.Cut(line, ":")
		if old := regexp.MustCompile(`(?m)^` + key + `:[ ]+\S+`); old.Match(text) {
			text = old.ReplaceAllLiteral(text, []byte(line))
			continue
		}
		if !bytes.HasSuffix(text, []byte("\n")) {
			text = append(text, '\n')
		}
		text = append(text, line+"\n"...)
	}
	c, problems, err := parse(f.path, text)
	if err != nil || len(problems) > len(f.problems) {
		return nil, false
	}
	for _, line := range lines {
		possible = line == "listen: "+c.Listen || line == "admin: "+*c.Admin
		if !possible {
			break
		}
	}
	return text, possible
}

// Listen replaces the text of the file by one that Listening has returned, and returns the path of the backup, or "".
func (f *file) Listen(text []byte) (backup string, err error) {
	c, problems, err := parse(f.path, text)
	if err != nil {
		return "", err
	}
	return f.put(text, c, problems)
}

// againFor is how long again tries.
const againFor = 10 * time.Second

// again changes the file, and does so once more if another process has changed it meanwhile: change must compute
// the new text from f as it is then. Replace takes turns with other processes, so that one of them always gets on.
func (f *file) again(change func() error) error {
	for until := time.Now().Add(againFor); ; {
		err := change()
		if err == nil || time.Now().After(until) {
			return err
		}
		now, unreadable := read(f.path)
		if unreadable != nil || bytes.Equal(now.text, f.text) {
			return err
		}
		*f = *now
	}
}

// check returns what Replace would put into the file, or why it would not.
func (f *file) check(text []byte, names []string) (*config.Config, config.Problems, error) {
	c, problems, err := parse(f.path, text)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range problems {
		known := func(old config.Problem) bool { return old.Path == p.Path && old.Text == p.Text }
		none := p.Path == section && len(c.Upstreams) == 0
		if !none && !slices.ContainsFunc(f.problems, known) {
			return nil, nil, fmt.Errorf("%s was not changed: %s", f.Short(),
				strings.TrimPrefix(p.Path+": "+p.Text, ": "))
		}
	}
	if !f.only(c, names) {
		return nil, nil, fmt.Errorf("%s was not changed: the change would affect more than %s; edit the file by hand",
			f.Short(), strings.Join(names, ", "))
	}
	return c, problems, nil
}

// only reports whether c differs from the present configuration in the named upstreams and in new endpoints at most.
func (f *file) only(c *config.Config, names []string) bool {
	was, is := f.config.Stated(), c.Stated()
	was.Upstreams, is.Upstreams = maps.Clone(was.Upstreams), maps.Clone(is.Upstreams)
	was.Packs, is.Packs = nil, nil // the commands of the upstreams name them
	is.Endpoints = maps.Clone(is.Endpoints)
	for name := range is.Endpoints {
		if _, there := was.Endpoints[name]; !there {
			delete(is.Endpoints, name)
		}
	}
	if len(is.Endpoints) == 0 && len(was.Endpoints) == 0 {
		is.Endpoints = was.Endpoints
	}
	for _, all := range []*config.Config{&was, &is} {
		for _, name := range names {
			delete(all.Upstreams, name)
		}
		for other, u := range all.Upstreams {
			u.Reserved = nil // depends on the references of the whole file
			all.Upstreams[other] = u
		}
		if len(all.Upstreams) == 0 {
			all.Upstreams = nil
		}
	}
	return reflect.DeepEqual(was, is)
}
