package packs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/junction/desk/packs/fetch"
	"junction/cmd/pack/lock"
	"junction/cmd/pack/plan"
	"junction/cmd/pack/tree"
	"junction/upstream/prose"
)

// shownPack is a pack in the output of --json.
type shownPack struct {
	Name     string     `json:"name"`
	Enabled  bool       `json:"enabled"`
	Folder   string     `json:"folder"`
	Source   string     `json:"source,omitempty"` // the rest is for installed packs
	Ref      string     `json:"ref,omitempty"`
	Commit   string     `json:"commit,omitempty"`
	Checksum string     `json:"checksum,omitempty"`
	Mistakes []string   `json:"mistakes,omitempty"`
	Plan     *plan.Plan `json:"plan,omitempty"`
}

func (r *run) shown(name string, p lock.Pack, all *plan.Plan) *shownPack {
	return &shownPack{Name: name, Folder: r.path(lock.Dir(name, p.Commit)), Source: p.Source, Ref: p.Ref,
		Commit: p.Commit, Checksum: p.Checksum, Plan: all}
}

// packs returns the packs of the configuration file.
func (r *run) packs() (all []*shownPack) {
	for _, e := range r.edit.Packs() {
		s := &shownPack{Name: e.Name, Enabled: e.Enabled, Folder: e.Pack, Mistakes: e.Mistakes}
		if name, commit, ok := lock.Split(e.Pack); ok {
			p := r.lock.Packs[name]
			s.Source, s.Ref, s.Commit, s.Checksum = p.Source, p.Ref, commit, p.Checksum
			_, err := lock.Check(r.edit.Path(), config.Named(r.edit.Path()), e.Pack)
			if err != nil && !e.Enabled { // if enabled, it is a mistake
				s.Mistakes = append(s.Mistakes, "pack "+filepath.Base(e.Pack)+" "+err.Error())
			}
		}
		all = append(all, s)
	}
	return all
}

// find returns one of the packs.
func (r *run) find(name string) (*shownPack, error) {
	if err := r.edit.Has(name); err != nil {
		return nil, err
	}
	for _, s := range r.packs() {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%s is an upstream without a pack; junction packs list shows those with one", name)
}

// planned returns what the pack would do.
func (s *shownPack) planned(ctx context.Context) (*plan.Plan, error) {
	if s.Commit != "" {
		return plan.Of(ctx, s.Folder)
	}
	return plan.OfOwn(ctx, s.Folder)
}

// from returns where a pack comes from, for people.
func (s *shownPack) from() string {
	if s.Commit == "" {
		return "this machine"
	}
	return fetch.Source{URL: s.Source, Ref: s.Ref}.String()
}

func (r *run) list() error {
	all := r.packs()
	if r.json {
		return cli.PrintValue(r.stdout, struct {
			Config string       `json:"config"`
			Packs  []*shownPack `json:"packs"`
		}{r.edit.Path(), append([]*shownPack{}, all...)})
	}
	if len(all) == 0 {
		err := cli.Tellf(r.stdout, "%s has no packs. Install one with: junction packs install OWNER/REPO@REF\n",
			r.edit.Short())
		return err
	}
	err := cli.Table(r.stdout, func(row func(...any)) {
		row("NAME", "STATE", "FROM", "COMMIT")
		for _, s := range all {
			state := "disabled"
			switch {
			case len(s.Mistakes) > 0:
				state = "refused"
			case s.Enabled:
				state = "enabled"
			}
			row(prose.OneLine(s.Name), state, prose.OneLine(s.from()), cmp.Or(s.Commit[:min(len(s.Commit), 12)], "-"))
		}
	})
	if err != nil {
		return err
	}
	for _, s := range all {
		for _, m := range s.Mistakes {
			cli.Tellf(r.stdout, "%s: %s\n", s.Name, prose.OneLine(m))
		}
	}
	return nil
}

func (r *run) show(cmd *cobra.Command, name string) error {
	s, err := r.find(name)
	if err != nil {
		return err
	}
	if s.Plan, err = s.planned(cmd.Context()); err != nil {
		return err
	}
	if r.json {
		return cli.PrintValue(r.stdout, s)
	}
	var b strings.Builder
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-9s %s\n", key, prose.OneLine(value))
		}
	}
	line("pack", name)
	line("from", s.from())
	line("folder", s.Folder)
	line("commit", s.Commit)
	line("checksum", s.Checksum)
	for _, m := range s.Mistakes {
		line("refused", m)
	}
	b.WriteString("\n" + s.Plan.Text())
	_, err = io.WriteString(r.stdout, b.String())
	return err
}

// enable shows what the pack would run, asks, and enables its upstream.
func (r *run) enable(cmd *cobra.Command, name string, yes bool) error {
	s, err := r.find(name)
	if err != nil {
		return err
	}
	if len(s.Mistakes) > 0 {
		return fmt.Errorf("%s cannot be enabled: %s", name, strings.Join(s.Mistakes, "; "))
	}
	if s.Plan, err = s.planned(cmd.Context()); err != nil {
		return err
	}
	if r.edit.More = s; !s.Enabled {
		if r.json && !yes && !cli.CanAsk(cmd) { // the output says what would run
			if err := cli.PrintValue(r.stdout, s); err != nil {
				return err
			}
		}
		if err := entries.Review(cmd, r.stdout, r.json, yes, s.Plan.Text()+"\n", "Enable "+name+"?"); err != nil {
			return err
		}
	}
	s.Enabled = true
	return r.edit.Switch(cmd.Context(), true, name)
}

func (r *run) disable(cmd *cobra.Command, name string) error {
	if _, err := r.find(name); err != nil {
		return err
	}
	return r.edit.Switch(cmd.Context(), false, name)
}

// remove removes the upstream of a pack, and the files of an installed one.
func (r *run) remove(cmd *cobra.Command, name string) error {
	s, err := r.find(name)
	if err != nil {
		return err
	}
	if err := r.edit.Remove(cmd.Context(), name); err != nil {
		return err
	}
	own, _, ok := lock.Split(s.Folder)
	if !ok || r.uses(s.Folder) {
		return nil // it is not installed, or another upstream has it
	}
	return errors.Join(r.relock(func(l *lock.File) { delete(l.Packs, own) }), r.clean(own))
}

// clean removes the folders of a pack, except those with the commits.
func (r *run) clean(name string, except ...string) error {
	found, err := os.ReadDir(r.path(lock.Folder))
	if err != nil {
		return err
	}
	for _, e := range found {
		if own, commit, ok := lock.Split(e.Name()); ok && own == name && !slices.Contains(except, commit) {
			err = errors.Join(err, discard(filepath.Join(r.path(lock.Folder), e.Name())))
		}
	}
	return err
}

// difference is the output of --json of an update.
type difference struct {
	Name    string        `json:"name"`
	Before  string        `json:"before"` // the commits
	Commit  string        `json:"commit"`
	Changes []plan.Change `json:"changes"` // of what the pack would run
	Files   []string      `json:"files"`
}

// update replaces an installed pack by another commit.
func (r *run) update(cmd *cobra.Command, name, to string, yes bool) error {
	s, err := r.find(name)
	if err != nil {
		return err
	}
	own, before, ok := lock.Split(s.Folder)
	p := r.lock.Packs[own]
	if !ok || p.Source == "" {
		return fmt.Errorf("%s was not installed by junction packs install; change its files in %s", name, s.Folder)
	}
	source := fetch.Source{URL: p.Source, Ref: p.Ref}
	if to != "" {
		source.Ref = to
	} else if source.IsCommit() {
		return cli.Usagef("%s was installed at a commit, which does not change; name another ref with --to", name)
	}
	if err := source.Check(); err != nil {
		return cli.Usagef("%w", err)
	}
	f, err := r.fetch(cmd.Context(), source, own)
	if err != nil {
		return err
	}
	defer f.close()
	if f.Commit == before {
		return r.current(name, before)
	}
	old, err := plan.Of(cmd.Context(), s.Folder)
	if err != nil {
		old = &plan.Plan{} // everything is new
	}
	d := &difference{name, before, f.Commit, append([]plan.Change{}, old.Diff(f.plan)...), tree.Diff(s.Folder, f.dir())}
	if !r.json {
		r.printDifference(d, f.plan)
	}
	if err := entries.Confirm(cmd, yes, "Update "+name+"?"); err != nil {
		return err
	}
	undo, err := r.keep(f)
	if err != nil {
		return err
	}
	r.edit.More = d
	updated := fmt.Sprintf("Updated %s to the commit %s.", name, f.Commit)
	if err := r.edit.SetPack(cmd.Context(), name, lock.Dir(own, f.Commit), updated); err != nil {
		undo()
		return err
	}
	return r.clean(own, f.Commit, before) // calls of the old pack may be in progress
}

func (r *run) current(name, commit string) error {
	if r.json {
		return cli.PrintValue(r.stdout, difference{name, commit, commit, []plan.Change{}, []string{}})
	}
	err := cli.Tellf(r.stdout, "%s is up to date: commit %s.\n", name, commit)
	return err
}

func (r *run) printDifference(d *difference, next *plan.Plan) {
	cli.Tellf(r.stdout, "%s changes from the commit %s to %s.\n\n", d.Name, d.Before, d.Commit)
	if len(d.Changes) == 0 {
		cli.Tell(r.stdout, "The manifests run the same as before.\n")
	}
	cli.Tell(r.stdout, plan.Print(d.Changes))
	for _, f := range d.Files {
		cli.Tellf(r.stdout, "file %s\n", prose.OneLine(f))
	}
	cli.Tellf(r.stdout, "\n%s\n", next.Summary())
}
