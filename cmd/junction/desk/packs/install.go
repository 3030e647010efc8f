package packs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/junction/desk/packs/fetch"
	"junction/cmd/pack/lock"
	"junction/cmd/pack/plan"
	"junction/cmd/pack/tree"
	"junction/upstream/files"
	"junction/upstream/prose"
)

// fetched is a pack that was fetched into a temporary folder.
type fetched struct {
	lock.Pack
	name  string
	temp  string // has the folder tree; removed by close
	plan  *plan.Plan
	notes []string
}

// fetch fetches a pack.
func (r *run) fetch(ctx context.Context, s fetch.Source, name string) (_ *fetched, err error) {
	parent := r.path(lock.Folder)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, err
	}
	f := &fetched{name: name, Pack: lock.Pack{Source: s.URL, Ref: s.Ref}}
	if f.temp, err = os.MkdirTemp(parent, ".new-*"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	got, err := fetch.Fetch(ctx, s, f.temp, f.dir())
	if err != nil {
		return nil, err
	}
	f.Commit, f.notes = got.Commit, got.Notes
	if f.plan, err = plan.Of(ctx, f.dir()); err != nil {
		text := strings.ReplaceAll(err.Error(), f.dir()+string(filepath.Separator), "")
		return nil, fmt.Errorf("%s is no pack that can be used: %s", s,
			strings.ReplaceAll(text, "folder "+f.dir(), "repository"))
	}
	f.Checksum, err = tree.Sum(f.dir())
	return f, err
}

func (f *fetched) dir() string { return filepath.Join(f.temp, "tree") }

func (f *fetched) close() { os.RemoveAll(f.temp) }

// path returns the path of a file beside the configuration file.
func (r *run) path(name string) string {
	return filepath.Join(filepath.Dir(r.edit.Path()), filepath.FromSlash(name))
}

// keep moves the files to their place, and writes the lock file. undo takes this back, unless the
// configuration uses the pack meanwhile: a command may fail after it has changed the configuration.
func (r *run) keep(f *fetched) (undo func(), err error) {
	before, there := r.lock.Packs[f.name]
	place := r.path(lock.Dir(f.name, f.Commit))
	if err := discard(place); err != nil {
		return nil, err
	}
	if err := os.Rename(f.dir(), place); err != nil {
		return nil, err
	}
	if err := protect(place, 0o555); err != nil {
		return nil, err
	}
	undo = func() {
		if r.uses(place) {
			return
		}
		r.relock(func(l *lock.File) {
			if l.Packs[f.name] = before; !there {
				delete(l.Packs, f.name)
			}
		})
		if before.Commit != f.Commit {
			discard(place)
		}
	}
	if err := r.relock(func(l *lock.File) { l.Packs[f.name] = f.Pack }); err != nil {
		undo()
		return nil, err
	}
	return undo, nil
}

// uses reports whether an upstream has the pack in a folder.
func (r *run) uses(folder string) bool {
	if full, err := filepath.Abs(folder); err == nil {
		folder = full
	}
	return slices.ContainsFunc(r.edit.Packs(), func(e entries.PackEntry) bool { return e.Pack == folder })
}

// relock changes the lock file, which another command may have changed meanwhile.
func (r *run) relock(change func(*lock.File)) error {
	defer files.Lock(filepath.Dir(r.lockFile))()
	l, err := lock.Read(r.lockFile)
	if err != nil {
		return err
	}
	change(l)
	r.lock = l
	return l.Write(r.lockFile)
}

// protect sets the mode of the folders of a pack. Read-only folders keep programs such as Python
// from adding files, which would change the checksum.
func protect(dir string, mode os.FileMode) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			err = os.Chmod(path, mode)
		}
		if path == dir && errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// discard removes the folder of a pack.
func discard(dir string) error {
	if err := protect(dir, 0o755); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

type installOptions struct {
	name string
	env  []string
	yes  bool
}

// packName is the form of the names of packs, which are names of upstreams, too.
var packName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,31}$`)

// install fetches a pack and adds a disabled upstream.
func (r *run) install(cmd *cobra.Command, text string, o installOptions) error {
	ctx := cmd.Context()
	s, err := fetch.Parse(text)
	if err != nil {
		return cli.Usagef("%w", err)
	}
	name := cmp.Or(o.name, s.Name())
	if !packName.MatchString(name) {
		return cli.Usagef("%q is no name for a pack; give one of letters, digits, _ and - with --name", name)
	}
	given := clients.Given{Off: true}
	if err := entries.UseEnv(&given, o.env); err != nil {
		return err
	}
	if err := r.edit.Free(name); err != nil {
		return err
	}
	f, err := r.fetch(ctx, s, name)
	if err != nil {
		return err
	}
	defer f.close()
	if old, there := r.lock.Packs[name]; there {
		if err := agree(name, old, f.Pack); err != nil {
			return err
		}
	}
	r.look(f, s)
	if err := entries.Confirm(cmd, o.yes, "Install "+name+"?"); err != nil {
		return err
	}
	undo, err := r.keep(f)
	if err != nil {
		return err
	}
	given.Pack = lock.Dir(name, f.Commit)
	entry, err := r.edit.Entry(given)
	if err == nil {
		err = r.installed(ctx, f, entry)
	}
	if err != nil {
		undo()
	}
	return err
}

// look shows what a fetched pack would do.
func (r *run) look(f *fetched, s fetch.Source) {
	if !r.json {
		cli.Tellf(r.stdout, "%s is the commit %s. Nothing of it has run. Once enabled, it would do this:\n\n%s\n",
			s, f.Commit, f.plan.Text())
	}
}

// installed adds the upstream of a pack.
func (r *run) installed(ctx context.Context, f *fetched, entry *clients.Entry) error {
	r.edit.More = r.shown(f.name, f.Pack, f.plan)
	notes := f.notes
	var lacks []string
	for _, v := range f.plan.Variables {
		if _, given := entry.Env[v]; !given && v != "PACK_DIR" {
			lacks = append(lacks, v)
		}
	}
	if len(lacks) > 0 {
		notes = append(notes, fmt.Sprintf("The pack reads variables that it does not get yet: %s. "+
			"Add those that it needs to env of the upstream.", strings.Join(lacks, ", ")))
	}
	next := "Enable it with: " + r.edit.Command("packs", "enable", f.name)
	return r.edit.Add(ctx, f.name, entry, "pack "+entry.Pack, notes, next)
}

// agree returns an error if the fetched pack differs from the one in the lock file.
func agree(name string, old, now lock.Pack) error {
	switch {
	case old.Source != now.Source:
		return fmt.Errorf("packs.lock has a pack %s of %s; choose another name with --name", name, old.Source)
	case old.Commit != now.Commit:
		return fmt.Errorf("%s is refused: it has the commit %s, and packs.lock has %s; "+
			"remove the pack from packs.lock to accept the new commit", name, now.Commit, old.Commit)
	case old.Checksum != now.Checksum:
		return fmt.Errorf("%s is refused: it has the checksum %s, and packs.lock has %s; "+
			"remove the pack from packs.lock to accept it", name, now.Checksum, old.Checksum)
	}
	return nil
}

// restore fetches the packs of the lock file whose folder is missing or differs.
func (r *run) restore(cmd *cobra.Command, yes bool) error {
	var restored, failed []string
	for _, name := range slices.Sorted(maps.Keys(r.lock.Packs)) {
		p := r.lock.Packs[name]
		if sum, err := tree.Sum(r.path(lock.Dir(name, p.Commit))); err == nil && sum == p.Checksum {
			continue
		}
		if err := r.restoreOne(cmd, name, p, yes); err != nil {
			failed = append(failed, err.Error())
			continue
		}
		restored = append(restored, name)
	}
	if err := r.restored(restored); err != nil {
		return err
	}
	if len(failed) > 0 {
		return errors.New(strings.Join(failed, "; "))
	}
	return nil
}

func (r *run) restored(names []string) error {
	if r.json {
		return cli.PrintValue(r.stdout, struct {
			Config   string   `json:"config"`
			Restored []string `json:"restored"`
		}{r.edit.Path(), append([]string{}, names...)})
	}
	verb := "are"
	if len(r.lock.Packs) == 1 {
		verb = "is"
	}
	text := fmt.Sprintf("%s of packs.lock %s in place.\n", prose.Count(len(r.lock.Packs), "pack"), verb)
	if len(names) > 0 {
		text = "Restored " + strings.Join(names, ", ") + ".\n"
		if place, running := runfile.Find(r.edit.Path()); running {
			text += fmt.Sprintf("To start the packs that the running junction has refused, run: kill -HUP %d\n",
				place.PID)
		}
	}
	_, err := io.WriteString(r.stdout, text)
	return err
}

// restoreOne asks before it keeps a pack, because the file with the lock may be another person's, and a
// running junction starts the pack if it is enabled.
func (r *run) restoreOne(cmd *cobra.Command, name string, p lock.Pack, yes bool) error {
	if !packName.MatchString(name) {
		return fmt.Errorf("packs.lock has a pack with the name %q, which is no name; remove it there", name)
	}
	s := fetch.Source{URL: p.Source, Ref: p.Commit}
	f, err := r.fetch(cmd.Context(), s, name)
	if err != nil {
		return err
	}
	defer f.close()
	if err := agree(name, p, f.Pack); err != nil {
		return err
	}
	r.look(f, s)
	if err := entries.Confirm(cmd, yes, "Restore "+name+"?"); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	f.Ref = p.Ref
	_, err = r.keep(f)
	return err
}
