package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/base/yamledit"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/junction/desk/service"
	"junction/upstream/files"
	"junction/upstream/prose"
)

// undoing is one setup --undo. A step that fails does not prevent the others, and its part of the record
// stays.
type undoing struct {
	*guide
	later    []clients.Connection // clients that were connected after the setup, and still are
	changed  []*clients.Client    // clients with changed files
	failures []error
}

// undoAll makes everything what it was before the setup.
func (g *guide) undoAll(ctx context.Context) (err error) {
	if g.home, err = clients.HomeOf(""); err != nil {
		return err
	}
	if g.file, err = config.File(g.file); err != nil {
		return err
	}
	g.name = callable()
	if g.record, err = openRecord(g.file); err != nil {
		return err
	}
	later, stay, err := g.record.connections()
	if err != nil {
		return err
	}
	if !g.record.any() {
		g.say("There is no setup of %s to undo.", g.short())
		g.stillUse(append(stay, later...))
		return nil
	}
	g.say("%s", g.record.plan(g.short(), g.labels(later)))
	g.stillUse(stay)
	if !g.yes {
		if agreed, err := g.agreeAtTerminal("Undo the setup?"); err != nil || !agreed {
			return err
		}
	}
	u := &undoing{guide: g, later: later}
	u.clients()
	u.programs(ctx)
	u.configuration()
	for _, line := range restart(u.changed, "") {
		g.say("%s", line)
	}
	return u.close()
}

// fail notes an error, and reports whether it is one.
func (u *undoing) fail(err error) bool {
	if err != nil {
		u.failures = append(u.failures, err)
	}
	return err != nil
}

// clients disconnects the clients.
func (u *undoing) clients() {
	disconnect := func(id, project string) (done bool) {
		c, err := u.disconnect(id, project)
		if c != nil {
			u.changed = append(u.changed, c)
		}
		return !u.fail(err)
	}
	r := u.record
	for _, id := range slices.Clone(r.Clients) {
		if disconnect(id, "") {
			r.Clients = slices.DeleteFunc(r.Clients, func(one string) bool { return one == id })
			u.fail(r.save()) // the next run names the backup, if this one ends in the middle
		}
	}
	u.later = slices.DeleteFunc(u.later, func(c clients.Connection) bool { return disconnect(c.Client.ID, c.Project) })
}

// programs removes the service, and ends the process in the background.
func (u *undoing) programs(ctx context.Context) {
	r := u.record
	r.Service = r.Service && u.fail(u.removeService(ctx))
	p, running := runfile.Find(r.Config)
	if r.PID <= 0 || u.fail(stop(ctx, r.Config, r.PID)) {
		return
	}
	if running && p.PID == r.PID {
		u.say("Stopped Junction (process %d).", r.PID)
	}
	r.PID = 0
	if h, err := service.ThisHost(); err == nil {
		h.Forget(r.Config)
	}
}

// configuration restores the configuration, and removes the other files, unless a client or a program still
// uses them.
func (u *undoing) configuration() {
	r := u.record
	if len(r.Clients)+len(u.later) > 0 || r.Service || r.PID != 0 || u.fail(u.restoreConfig()) {
		return
	}
	if used := u.removeFiles(); len(used) > 0 {
		u.say("These values stay, because a configuration still uses them: %s", strings.Join(used, ", "))
	}
	u.fail(u.removeVariables())
	u.sayRemaining()
	if len(u.failures) > 0 {
		return
	}
	u.sayState()
	u.fail(u.unlink()) // last: until then a person calls the program by the link
}

// close removes the record, or keeps what could not be undone.
func (u *undoing) close() error {
	r := u.record
	if len(u.failures) > 0 {
		return errors.Join(append(u.failures, u.incomplete(u.labels(u.later)), r.save())...)
	}
	if removed, err := entries.Withdrawals(r.Config); err == nil {
		_ = removed.Forget() // the next setup offers all servers
	}
	return os.Remove(r.name)
}

// stop ends the process in the background with an ID.
func stop(ctx context.Context, file string, pid int) error {
	h, err := service.ThisHost()
	if err != nil {
		return err
	}
	return h.Stop(ctx, file, pid)
}

func (g *guide) removeService(ctx context.Context) error {
	h, err := service.ThisHost()
	if err != nil {
		return err
	}
	s, err := h.Of(g.record.Config)
	if err != nil {
		return err
	}
	p, running := runfile.Find(g.record.Config)
	removed, err := s.Uninstall(ctx)
	switch {
	case removed && running && err == nil:
		g.say("Stopped Junction (process %d), and removed the service %s.", p.PID, s.Name())
	case removed:
		g.say("Removed the service %s.", s.Name())
	}
	return err
}

// changed reports whether a person has changed the configuration since setup wrote it.
func (r *record) changed(now []byte) bool { return r.Mixed || !bytes.Equal(now, r.After) }

// unwritten reports whether the configuration is what it was before the setup.
func (r *record) unwritten(now []byte) bool {
	return !r.Known || !r.Created && bytes.Equal(now, r.Before)
}

// without returns a text of the configuration without the servers of the setup, and their names. The text
// is nil if nothing else is left of a file that setup has created.
func (r *record) without(now []byte) (text []byte, removed []string, err error) {
	const section = "upstreams"
	text = now
	for _, name := range r.Upstreams {
		less, err := yamledit.Remove(text, section, name)
		last := err == nil && yamledit.Empty(less, section)
		switch {
		case errors.Is(err, yamledit.ErrNoKey): // a person has removed it
			continue
		case last && r.Created:
			return nil, append(removed, name), nil
		case last:
			less, err = yamledit.RemoveSection(text, section)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("cannot remove %s: %w", name, err)
		}
		text, removed = less, append(removed, name)
	}
	return text, removed, nil
}

// restoreConfig gives the configuration its old content. If it has changed since, only the servers of
// the setup are removed, and a backup is kept.
func (g *guide) restoreConfig() error {
	r := g.record
	e, err := entries.Edit(io.Discard, r.Config, false, true)
	if err != nil {
		return err
	}
	now, err := revision.Read(r.Config)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", g.short(), err)
	case r.unwritten(now):
		return nil
	case r.changed(now):
		return g.removeServers(e, now)
	case r.Created:
		if err := os.Remove(r.Config); err != nil {
			return fmt.Errorf("cannot remove %s: %w", r.Config, files.Reason(err))
		}
		g.say("Removed %s.", g.short())
		return nil
	}
	if _, err := revision.Replace(r.Config, now, r.Before, false); err != nil {
		return fmt.Errorf("%s: %w", r.Config, err)
	}
	g.say("Restored %s.", g.short())
	return nil
}

// removeServers removes the servers of the setup from a configuration that has changed since.
func (g *guide) removeServers(e *entries.Editor, now []byte) error {
	text, removed, err := g.record.without(now)
	if err != nil {
		return fmt.Errorf("%s: %w", g.short(), err)
	}
	if len(removed) == 0 {
		return nil
	}
	var backup string
	what := g.short()
	if text == nil {
		if backup, err = revision.Delete(g.record.Config, now); err != nil {
			return fmt.Errorf("cannot remove %s: %w", what, err)
		}
	} else {
		if backup, err = e.Replace(text, removed...); err != nil {
			return err
		}
		what = strings.Join(removed, ", ") + " from " + what
	}
	g.changedCopy = backup
	g.say("Removed %s, which has changed since. Backup: %s.", what, prose.OneLine(g.home.Short(backup)))
	return nil
}

// used returns the files with values of the setup that a configuration uses, if text becomes the content
// of the file.
func (r *record) used(text []byte) (used []string) {
	inUse := entries.NamesSecret(r.Config, text)
	for _, file := range r.Secrets {
		if inUse(filepath.Base(file)) {
			used = append(used, file)
		}
	}
	return used
}

// removeFiles removes the files that the setup has made, if nothing uses them, and returns the files with
// values that stay, for display. Errors are ignored: such a file does no harm.
func (g *guide) removeFiles() (stay []string) {
	r := g.record
	text, _ := revision.Read(r.Config) // nil if it is gone
	used := r.used(text)
	for _, file := range r.Secrets {
		if !slices.Contains(used, file) {
			os.Remove(file)
		} else if _, err := os.Stat(file); err == nil {
			stay = append(stay, prose.OneLine(g.home.Short(file)))
		}
	}
	for _, b := range r.Backups { // a backup that is what the file is now, or what setup has written
		copied, err := revision.Read(b.File)
		now, nowErr := revision.Read(b.Of)
		if err == nil && (nowErr == nil && bytes.Equal(copied, now) || slices.Contains(r.Written, sum(copied))) {
			os.Remove(b.File)
		}
	}
	dir := filepath.Dir(r.Config)
	os.Remove(filepath.Join(dir, "secrets")) // if it is empty
	if r.Created {
		config.RemoveSchema(r.Config)
	}
	if r.Folder {
		os.Remove(dir) // if it is empty
	}
	return stay
}
