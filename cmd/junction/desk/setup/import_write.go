package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/yamledit"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/entries"
	"junction/upstream/prose"
)

// write adds the new servers to the configuration file. If a step fails, the file stays unchanged
// and the new secret files are removed.
func (i *importer) write(ctx context.Context) (err error) {
	keep := clients.SecretsOf(i.file)
	keep.Note = i.note
	defer func() {
		if err != nil {
			keep.Discard(nil)
		}
	}()
	if err := os.MkdirAll(filepath.Dir(i.file), 0o700); err != nil {
		return err
	}
	text, names, err := i.newText(keep)
	if err != nil || text == nil {
		return err
	}
	if i.backup, err = i.editor.Replace(text, names...); err != nil {
		return err
	}
	i.written = true
	var added []*clients.Entry
	for _, o := range i.outcomes {
		if o.Result == clients.New {
			added = append(added, o.Server.Entry)
		}
	}
	var permits string
	i.folders, permits = entries.Permit(ctx, i.editor.Config(), i.file, &i.home, i.permitted, added...)
	if permits != "" {
		i.permits = []string{permits}
	}
	keep.Discard(text)
	i.secrets = keep.Created()
	i.sequel = entries.Follow(ctx, i.file, names...)
	i.follows = i.sequel.Running && i.sequel.Reload == ""
	if i.next = i.sequel.Next; i.sequel.Reload != "" {
		i.next = i.sequel.Refused()
	} else if !i.sequel.Running {
		i.next = "Start Junction with: " + config.CommandOf(callable(), i.file, "service", firstStart(ctx, i.file))
	}
	return nil
}

// ask asks the servers of the new entries whether they require a sign-in. The person has confirmed
// the entries.
func (i *importer) ask(cmd *cobra.Command) error {
	for n := range i.outcomes {
		if o := &i.outcomes[n]; o.Result == clients.New {
			i.asked = append(i.asked, &entries.New{Name: o.Name, Entry: o.Server.Entry})
		}
	}
	rows := entries.Progress(cmd)
	if i.json {
		rows = nil
	}
	err := entries.Ask(cmd.Context(), i.editor.Config(), i.asked, rows)
	if err == nil {
		err = entries.Folders(cmd, i.asked, i.yes)
	}
	if err == nil {
		i.permitted, err = entries.Permitting(cmd, i.editor.Config(), i.file, &i.home, i.asked, i.workplaces(), i.yes)
	}
	for _, a := range i.asked {
		n := slices.IndexFunc(i.outcomes, func(o clients.Outcome) bool { return o.Server.Entry == a.Entry })
		if a.Note != "" {
			i.outcomes[n].Notes = append(i.outcomes[n].Notes, a.Note)
		}
	}
	return err
}

// workplaces returns the folders of the projects whose servers were found.
func (i *importer) workplaces() (list []string) {
	for _, o := range i.outcomes {
		if o.Server.Scope != clients.User {
			list = append(list, o.Server.Folder())
		}
	}
	return list
}

// newText returns the file with the new servers, and their names, or nil if there are none. A server
// that the configuration rejects is marked as skipped.
func (i *importer) newText(keep *clients.SecretFiles) (text []byte, names []string, err error) {
	for {
		list, names, err := i.entries(keep)
		if err != nil {
			return nil, nil, err
		}
		if len(list) == 0 {
			return nil, nil, nil
		}
		text, added, err := i.editor.Adding(list)
		switch problems, ok := errors.AsType[config.Problems](err); {
		case ok && i.skip(problems):
			continue
		case ok:
			return nil, nil, fmt.Errorf("cannot add to %s: %w", i.file, err)
		case err != nil:
			return nil, nil, err
		}
		if err := i.verify(added, names); err != nil {
			return nil, nil, err
		}
		text, err = i.withEndpoints(text)
		return text, names, err
	}
}

// entries renders the new servers, and stores their secrets. The error means that a secret cannot be
// stored; a server that cannot be rendered is marked as skipped.
func (i *importer) entries(keep *clients.SecretFiles) (list []yamledit.Entry, names []string, err error) {
	var full error
	store := func(upstream, label, secret string) (string, error) {
		place, err := keep.Store(upstream, label, secret)
		full = cmp.Or(full, err)
		return place, err
	}
	for n := range i.outcomes {
		o := &i.outcomes[n]
		if o.Result != clients.New {
			continue
		}
		s := o.Server
		block, flow, err := s.Entry.YAML(o.Name, i.origin(s), store)
		if full != nil {
			return nil, nil, full
		}
		if err != nil {
			o.Result, o.Notes = clients.Skipped, []string{err.Error()}
			continue
		}
		list, names = append(list, yamledit.Entry{Block: block, Flow: flow}), append(names, o.Name)
	}
	return list, names, nil
}

// origin returns the comment above the entry of an imported server.
func (i *importer) origin(s *clients.Server) string { return originIn(&i.home, s) }

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

// verify checks that the new entries mean the servers that were found.
func (i *importer) verify(added *entries.Editor, names []string) error {
	var servers []*clients.Server
	for _, o := range i.outcomes {
		if o.Result == clients.New {
			servers = append(servers, o.Server)
		}
	}
	known := added.Known()
	for n, s := range servers {
		again := clients.Merge{Getenv: entries.Lookup}
		for _, k := range known {
			if k.Name == names[n] {
				again.Existing = append(again.Existing, k)
			}
		}
		if o := again.Plan([]*clients.Server{s})[0]; o.Result != clients.Present || len(o.Notes) > 0 {
			return fmt.Errorf("cannot add %s to %s: the entry would mean something else; add it by hand", names[n],
				i.file)
		}
	}
	return nil
}

// newLooks returns what the new servers would do, in the order of the table. If that is brief, they have what
// the table would say of them.
func (i *importer) newLooks() (looks []*clients.Look) {
	for _, o := range i.outcomes {
		look := i.looks[o.Server]
		if look == nil {
			continue
		}
		if i.brief {
			look.Notes = append(look.Notes, i.unlooked(o, look)...)
		}
		looks = append(looks, look)
	}
	return looks
}

// unlooked returns what the table says of a new server and its look does not.
func (i *importer) unlooked(o clients.Outcome, look *clients.Look) (notes []string) {
	named := func(note string) bool { return strings.HasSuffix(note, " "+o.Server.Name) }
	if o.Server.Name != o.Name && !slices.ContainsFunc(o.Notes, named) {
		notes = append(notes, "the client calls it "+prose.OneLine(o.Server.Name))
	}
	for _, note := range o.Notes {
		if note = prose.OneLine(note); note != clients.NotInstalled(look.Lacks) && !slices.Contains(look.Notes, note) {
			notes = append(notes, note)
		}
	}
	if n := len(o.Server.Entry.Secrets()); n > 0 {
		notes = append(notes, prose.Count(n, "secret")+" to a file")
	}
	return notes
}

// confirm asks the person about the new servers. Nothing is asked if nothing is to be written.
func (i *importer) confirm(cmd *cobra.Command) error {
	looks := i.newLooks()
	if len(looks) == 0 {
		return nil
	}
	if !i.add {
		if !i.json {
			return cli.Tell(i.stdout, "\n"+clients.Looks(cli.NewPage(i.stdout), looks))
		}
		return nil
	}
	if !i.json {
		fmt.Fprintln(i.stdout)
	}
	return entries.Review(cmd, i.stdout, i.json, i.yes, clients.Looks(cli.NewPage(i.stdout), looks),
		fmt.Sprintf("Add %s to %s?", prose.Count(len(looks), "server"), prose.OneLine(i.home.Short(i.file))))
}

// writing returns the command that adds the servers of this list.
func (i *importer) writing() string {
	words := []string{"import"}
	if i.project != "" {
		words = append(words, "--project", i.project)
	}
	for _, from := range i.from {
		words = append(words, "--from", from)
	}
	return i.command(append(append(words, "--write"), i.names...)...)
}

// again returns the words of the command that adds a server which a person has removed.
func (i *importer) again(o clients.Outcome) []string {
	words := []string{"import", "--write", o.Name}
	if o.Server.Scope != clients.User {
		words = append(words, "--project", o.Server.Folder())
	}
	return words
}

// left returns the lines about the servers that the table does not have: Junction itself, and in a setup those
// that a person has removed.
func (i *importer) left() (lines []string) {
	var connected, removed []string
	for _, o := range i.outcomes {
		switch name := prose.OneLine(o.Server.Client.Name); {
		case o.Own && !slices.Contains(connected, name):
			connected = append(connected, name)
		case i.brief && o.Result == clients.Withdrawn && !slices.Contains(removed, o.Name):
			removed = append(removed, o.Name)
		}
	}
	if len(connected) > 0 {
		lines = append(lines, "These clients have Junction already: "+strings.Join(connected, ", ")+".")
	}
	if len(removed) > 0 {
		lines = append(lines, "You have removed these servers from the configuration, so they stay out: "+
			strings.Join(removed, ", ")+". To add one again: "+i.command("import", "--write", "NAME"))
	}
	return lines
}

// skipped returns a line for each server that was shown and then rejected by the configuration.
func (i *importer) skipped() string {
	text := ""
	for _, o := range i.outcomes {
		if o.Result == clients.Skipped && i.looks[o.Server] != nil {
			text += prose.OneLine(fmt.Sprintf("%s was skipped: %s", o.Name, strings.Join(o.Notes, "; "))) + "\n"
		}
	}
	return text
}

// none returns the line about clients without servers. The configuration may have servers nevertheless, and
// a file that could not be read may, too.
func (i *importer) none() string {
	text := "No servers found in the files of MCP clients"
	if n := len(i.failures); n > 0 {
		text += fmt.Sprintf("; %s could not be read", prose.Count(n, "file"))
	}
	if n := len(i.editor.Config().Upstreams); n > 0 {
		text += fmt.Sprintf("; %s has %s", prose.OneLine(i.home.Short(i.file)), prose.Count(n, "server"))
	}
	return text + ".\n"
}
