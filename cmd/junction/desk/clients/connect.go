package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/clients/format"
	"junction/upstream/files"
)

// A Target is what the entry of Junction in a client's file says.
type Target struct {
	Name string
	URL  string
	Key  bool // the endpoint wants an API key
	// Given: a person has named the URL, which the configuration does not have.
	Given bool
	// For entries that start junction stdio: the path of this program ("" means that it is in PATH), and of
	// the file with the API key ("" means KeyVariable).
	Program, KeyFile string
	// Secret is the API key. Connect writes it to KeyFile, which must be that of Records.KeyFile. "" writes
	// nothing.
	Secret string
	Env    map[string]string // variables of junction stdio; see Outfit.Trust
	Own    []string          // all URLs of the endpoint, to recognize an entry by
	Config string            // the absolute path of the configuration file of Junction
	// Bridged: the entry starts junction stdio, although the client reads URLs; see Client.Bridges.
	Bridged bool

	form  folderForm // of the folder of the client; Connect sets it
	input string     // the ID of the input with which VS Code asks for the key
}

// is reports whether a server is this Junction.
func (t Target) is(s *Server, h Home) bool {
	return s.Entry != nil && (&Merge{Own: t.Own}).isOwn(s.Entry.known(h.Getenv))
}

// An Outfit is what connecting and disconnecting needs.
type Outfit struct {
	Home    Home
	Records *Records
	// Run runs a client's own command. The error is exec.ErrNotFound if the command is not
	// installed. Nil edits files only.
	Run func(ctx context.Context, program string, args ...string) error
}

// A Done is what Connect or Disconnect did to a file.
type Done struct {
	File    string
	Changed bool
	Stored  bool     // the API key was written to the file of the target
	Command bool     // the client's own command did it
	Backup  string   // "" if there is none
	Stays   []string // the older backups of the file that Disconnect leaves there, the newest first
	Removed []string // servers that were taken out, or put back
	Lost    []string // servers that Disconnect could not put back; the notes say where they are
	Notes   []string
}

// Connect puts the entry of Junction into a file, and takes the servers in remove out of it. It
// remembers what the file was. A file that cannot be parsed stays as it is. So does one with the entry of
// another Junction: the error is an OtherError.
func (o *Outfit) Connect(ctx context.Context, p Place, t Target, remove []string) (*Done, error) {
	t.form = p.Client.formOf(t, p.Scope, o.Home.OS)
	c := connecting{Outfit: o, place: p, target: t, done: &Done{File: p.File}}
	err := c.recall()
	if err != nil {
		return nil, err
	}
	c.keepProgram()
	if remove, err = c.begin(remove); err != nil {
		return nil, c.failed(err)
	}
	if c.states, err = o.edit(p, c.target, c.base, remove, c.record); err != nil {
		return nil, c.failed(err)
	}
	for _, r := range c.record.Removed {
		if c.last == nil || !c.last.has(r.Name) {
			c.done.Removed = append(c.done.Removed, r.Name)
		}
	}
	if c.old != nil && bytes.Equal(c.text(), c.old) {
		return c.done, o.keepKey(p, t, c.last, c.done)
	}
	if o.byCommand(ctx, p, t, c.base, c.old, c.record, c.done) {
		c.done.Changed = true
		return c.done, o.Records.put(p, c.record)
	}
	if err = c.prepare(); err == nil {
		err = c.write()
	}
	if err != nil {
		return nil, err
	}
	c.done.Changed = true
	if c.record.Backup == "" {
		c.record.Backup = c.done.Backup
	}
	if err := o.Records.put(p, c.record); err != nil {
		return c.done, err
	}
	return c.done, o.dropKey(c.known, c.done)
}

// connecting is one call of Connect.
type connecting struct {
	*Outfit
	place  Place
	target Target
	done   *Done

	old    []byte   // the file; nil if it does not exist
	known  *Record  // what is remembered of the file, also if that is stale
	last   *Record  // known, unless it is stale
	record *Record  // of this call
	base   []byte   // the file without the changes of last
	lost   []Lost   // servers that base lacks, because they could not be put back
	states [][]byte // the text of the file after each change, beginning with base
}

// text is the new text of the file.
func (c *connecting) text() []byte { return c.states[len(c.states)-1] }

func (c *connecting) failed(err error) error {
	return &revision.Error{File: c.Home.Short(c.place.File), Err: err}
}

// recall reads the file, and what is remembered of it.
func (c *connecting) recall() (err error) {
	if c.old, err = c.readOrNil(c.place); err != nil {
		return err
	}
	if c.known, err = c.Records.find(c.place); err != nil || c.known == nil {
		return err
	}
	switch of := c.known.isOf(c.target); {
	case c.old != nil && c.known.stale(c.place, c.old), c.old == nil && !of:
		return nil
	case !of:
		return c.failed(c.known.other(c.place))
	}
	c.last = c.known
	return nil
}

// begin makes the record and the base. It returns all servers to remove.
func (c *connecting) begin(remove []string) ([]string, error) {
	p, t := c.place, c.target
	c.record = &Record{Client: p.Client.ID, File: p.File, Name: t.Name, Config: t.Config, URL: t.URL,
		Given: t.Given, Created: c.old == nil}
	if p.Scope == Project {
		c.record.Project = p.folder
	}
	c.noteKey(t, c.last, c.record)
	c.base = c.old
	if c.last == nil {
		return remove, nil
	}
	var err error
	if c.base, c.lost, err = c.last.restore(p, c.old); err != nil {
		return nil, err
	}
	if remove, err = c.last.stayOut(p, c.old, remove); err != nil {
		return nil, err
	}
	c.record.Created, c.record.Folder, c.record.Backup = c.last.Created, c.last.Folder, c.last.Backup
	for _, l := range c.lost { // a later Disconnect tries again
		c.record.Removed = append(c.record.Removed, l.Removed)
	}
	return remove, nil
}

// prepare makes the folder of the file, if a project has none, and stores the record.
func (c *connecting) prepare() error {
	c.record.seal(c.states...)
	if len(c.lost) > 0 {
		c.record.Before = "" // not all of the changes undone
	}
	if c.place.Scope == Project && c.old == nil {
		if err := os.Mkdir(filepath.Dir(c.place.File), 0o755); err == nil {
			c.record.Folder = true
		} else if !errors.Is(err, fs.ErrExist) {
			return c.failed(files.Reason(err))
		}
	}
	return c.Records.put(c.place, c.record)
}

// write writes the API key and the file. After an error, the key and the record are what they were.
func (c *connecting) write() error {
	undoKey, err := c.writeKey(c.target, c.done)
	if err != nil {
		return errors.Join(err, c.Records.put(c.place, c.last))
	}
	own := c.last != nil && c.last.After == sum(c.old) // what Connect wrote needs no backup
	literal := literalKey.Match(c.old) && !literalKey.Match(c.text())
	if literal {
		c.done.Notes = append(c.done.Notes, "The file had an API key in it. No backup was made beside it: disconnect "+
			"puts the old entry back from "+c.Home.Short(c.Records.File)+", which only you can read.")
	}
	c.done.Backup, err = revision.Replace(c.place.File, c.old, c.text(), !own && !literal)
	if err != nil {
		return errors.Join(c.failed(err), undoKey(), c.Records.put(c.place, c.last))
	}
	return nil
}

// stayOut returns the servers to remove: those in remove, and those that r took out before. One
// that a person has put back counts only if it is in remove.
func (r *Record) stayOut(p Place, text []byte, remove []string) ([]string, error) {
	servers, err := p.Client.format.Servers(text, p.servers(text))
	has := fieldsOf(servers)
	for _, removed := range r.Removed {
		if _, back := has[removed.Name]; !back {
			remove = append(remove, removed.Name)
		}
	}
	return remove, err
}

// Ready returns an error if the file of a client cannot be read, or if the client has no folder for it.
func (o *Outfit) Ready(p Place) error {
	_, err := o.readOrNil(p)
	return err
}

// readOrNil reads a client's file; one that does not exist is nil if its folder does.
func (o *Outfit) readOrNil(p Place) ([]byte, error) {
	text, err := revision.Read(p.File)
	if err == nil {
		return text, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, &revision.Error{File: o.Home.Short(p.File), Err: err}
	}
	folder := filepath.Dir(p.File)
	if p.Scope == Project { // the client reads the file of a project, and need not have written it
		folder = p.folder
	}
	if _, err := os.Stat(folder); err != nil && p.Scope == Project {
		return nil, fmt.Errorf("there is no folder %s", o.Home.Short(folder))
	} else if err != nil {
		return nil, fmt.Errorf("there is no folder %s; install %s and start it once",
			o.Home.Short(folder), p.Client.Name)
	}
	return nil, nil
}

// keepProgram keeps the path of the program in the present entry, if that starts the same program: it may have got a
// link since, and the entry goes on to work.
func (c *connecting) keepProgram() {
	servers, err := c.Home.parse(c.place, c.old)
	if err != nil {
		return // edit returns it
	}
	for _, s := range servers {
		if program := c.place.Client.startsSame(s.fields, c.target); s.Name == c.target.Name && program != "" {
			c.target.Program = program
		}
	}
}

// startsSame returns the program of an entry that starts junction stdio as the one for a target would, by another path
// of the same program; "" if it does not.
func (c *Client) startsSame(fields map[string]any, t Target) string {
	program, _ := fields["command"].(string)
	if words, ok := fields["command"].([]any); ok && len(words) > 0 {
		program, _ = words[0].(string)
	}
	if program == "" || t.Program == "" || !filepath.IsAbs(program) || !revision.SamePath(program, t.Program) {
		return ""
	}
	t.Program = program
	if !equalTrees(fields, c.entryFor(t).Tree()) {
		return ""
	}
	return program
}

// edit brings base step by step to a text with the entry of Junction and without the servers in
// remove, which it notes in rec. It returns all states of the text, beginning with base.
func (o *Outfit) edit(p Place, t Target, base []byte, remove []string, rec *Record) (states [][]byte, err error) {
	servers, err := o.Home.parse(p, base)
	if err != nil {
		return nil, err
	}
	keys, same, added := p.servers(base), false, base
	if t.Key && !p.Client.Commanded(t) && p.Client.KeyWay(p.Scope) == ByInput {
		if added, t.input, err = withInput(base, t.Name, rec); err != nil {
			return nil, err
		}
	}
	entry := p.Client.entryFor(t)
	states = [][]byte{base, added}
	drop := func(name string) error {
		text, err := p.Client.format.Remove(states[len(states)-1], keys, name)
		states = append(states, text)
		return err
	}
	for _, s := range servers {
		out := slices.Contains(remove, s.Name)
		if s.Name == t.Name {
			if !t.is(s, o.Home) {
				return nil, fmt.Errorf("has another server called %q; choose a name with --name", t.Name)
			}
			same = equalTrees(s.fields, entry.Tree())
			out = !same
		} else if out {
			block := p.Client.format.Block(base, keys, format.Server{Name: s.Name, Fields: s.fields})
			rec.Removed = append(rec.Removed, Removed{s.Name, s.fields, block})
		}
		if out {
			if err := drop(s.Name); err != nil {
				return nil, err
			}
		}
	}
	if same {
		return states, nil
	}
	text, err := p.Client.format.Add(states[len(states)-1], keys, t.Name, entry)
	return append(states, text), err
}

// byCommand has the client add the entry itself: its running instances write the same file. It
// returns false where the command is not installed or does not do it; then the file is as before.
func (o *Outfit) byCommand(ctx context.Context, p Place, t Target, base, old []byte, rec *Record, done *Done) bool {
	if o.Run == nil || p.Client.adds == nil || p.Scope != User || p.Client.Commanded(t) ||
		!bytes.Equal(base, old) || len(rec.Removed) > 0 {
		return false
	}
	err := o.Run(ctx, p.Client.program, p.Client.adds(t)...)
	if errors.Is(err, exec.ErrNotFound) {
		return false
	}
	now, readErr := revision.Read(p.File)
	if err != nil || readErr != nil || bytes.Equal(now, old) {
		done.Notes = append(done.Notes, p.Client.program+" mcp add failed; the file was edited instead")
		return false
	}
	rec.Command = true
	rec.seal(base, now)
	done.Command = true
	return true
}

// Disconnect makes the file what it was before Connect: byte for byte if nothing else has changed,
// otherwise without the entry of Junction and with the servers that Connect took out. It fails with an
// OtherError if the entry belongs to another Junction.
func (o *Outfit) Disconnect(p Place, t Target) (*Done, error) {
	done := &Done{File: p.File}
	last, err := o.Records.find(p)
	if err != nil {
		return nil, err
	}
	known := last // also if it is stale
	old, err := revision.Read(p.File)
	if errors.Is(err, fs.ErrNotExist) {
		return done, o.forget(p, last, done)
	}
	fail := func(err error) (*Done, error) { return nil, &revision.Error{File: o.Home.Short(p.File), Err: err} }
	if err != nil {
		return fail(err)
	}
	if last != nil && !last.isOf(t) {
		if !last.stale(p, old) {
			return fail(last.other(p))
		}
		last = nil
	}
	var text []byte
	var lost []Lost
	if last == nil {
		text, err = o.without(p, t, old)
	} else {
		text, lost, err = last.restore(p, old)
	}
	if err != nil {
		return fail(err)
	}
	if last != nil {
		o.report(last, lost, done)
	}
	exact, earlier := last != nil && last.After == sum(old), revision.Newest(p.File)
	switch {
	case last != nil && last.Created && !last.Command && len(bytes.TrimSpace(text)) == 0:
		if err = os.Remove(p.File); err == nil && last.Folder {
			os.Remove(filepath.Dir(p.File)) // if nothing else is in it
		}
	case !bytes.Equal(text, old):
		done.Backup, err = revision.Replace(p.File, old, text, !exact) // what Connect wrote needs no backup
	default:
		return done, o.forget(p, known, done)
	}
	if err != nil {
		return fail(files.Reason(err))
	}
	done.Changed = true
	if last == nil {
		o.forgotten(earlier, done) // names the newest backup
	} else if last.Backup != "" && len(lost) == 0 {
		discard(last.Backup, text)
	}
	done.Stays = slices.DeleteFunc(revision.Backups(p.File), func(name string) bool {
		return done.Backup != "" && filepath.Base(name) == filepath.Base(done.Backup)
	})
	if last == nil && len(done.Stays) == 1 {
		done.Stays = nil
	}
	return done, o.forget(p, known, done)
}

// report notes the servers that were put back, and those that were not.
func (o *Outfit) report(last *Record, lost []Lost, done *Done) {
	for _, r := range last.Removed {
		i := slices.IndexFunc(lost, func(l Lost) bool { return l.Name == r.Name })
		if i < 0 {
			done.Removed = append(done.Removed, r.Name)
			continue
		}
		done.Lost = append(done.Lost, r.Name)
		where := "; copy it from the backup " + o.Home.Short(last.Backup)
		if _, err := os.Stat(last.Backup); err != nil {
			where = "; add it by hand:\n" + r.Block
		}
		done.Notes = append(done.Notes, fmt.Sprintf("Could not put %q back: %v%s", r.Name, lost[i].Err, where))
	}
}

// discard removes the backup of the file as it was, which may hold secrets, if the file is that again.
func discard(backup string, text []byte) {
	if copied, err := revision.Read(backup); err == nil && bytes.Equal(copied, text) {
		os.Remove(backup) // one that stays does no harm
	}
}

// without returns a text without the entry of Junction, for a file of which nothing is remembered.
func (o *Outfit) without(p Place, t Target, text []byte) ([]byte, error) {
	servers, err := o.Home.parse(p, text)
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		if s.Name == t.Name && t.is(s, o.Home) {
			return p.Client.format.Remove(text, p.servers(text), s.Name)
		}
	}
	return text, nil
}
