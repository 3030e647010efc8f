package setup

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/entries"
	"junction/upstream/prose"
)

// sayRemaining names what stays after an undo, and one command that deletes all files which nothing uses.
func (g *guide) sayRemaining() {
	if _, err := os.Stat(g.record.Config); err == nil {
		g.say("%s stays%s.", g.short(), g.content())
	}
	g.sayVariables()
	if g.changedCopy != "" {
		g.say("The backup %s is the configuration before this undo.", prose.OneLine(g.home.Short(g.changedCopy)))
	}
	if stay := g.remaining(); len(stay) > 0 {
		g.say("These files stay, and may contain secrets; %s", entries.Deletion(stay))
	}
}

// content is what the configuration has after an undo, as the end of a sentence.
func (g *guide) content() string {
	e, err := entries.Read(io.Discard, g.record.Config, false)
	if err != nil || e.Usable() != nil {
		return ""
	}
	names := slices.Sorted(maps.Keys(e.Config().Upstreams))
	if len(names) == 0 {
		return ", without servers"
	}
	return ", with what was not of this setup: " + prose.OneLine(strings.Join(names, ", "))
}

// remaining returns the backups that stay, and the files with secrets beside the configuration that no
// configuration there uses: those of other commands, or those that a person has changed.
func (g *guide) remaining() (stay []string) {
	const most = 20                           // names on a command line that a person reads
	text, _ := revision.Read(g.record.Config) // nil if it is gone
	inUse := entries.NamesSecret(g.record.Config, text)
	dir := filepath.Dir(g.record.Config)
	backup := filepath.Base(g.record.Config) + "."
	add := func(file string) {
		info, err := os.Lstat(file)
		if err == nil && info.Mode().IsRegular() && !slices.Contains(stay, file) && len(stay) < most {
			stay = append(stay, file)
		}
	}
	for _, folder := range []string{dir, filepath.Join(dir, "secrets")} {
		list, _ := os.ReadDir(folder) // a folder that is gone has no files
		for _, f := range list {
			name := f.Name()
			of := folder != dir || strings.HasPrefix(name, backup) && strings.HasSuffix(name, ".bak")
			if used := folder != dir && inUse(name); of && !used {
				add(filepath.Join(folder, name))
			}
		}
	}
	for _, b := range g.record.Backups {
		add(b.File)
	}
	for _, file := range g.record.Stays {
		add(file)
	}
	return stay
}
