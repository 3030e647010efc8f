package entries

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/yamledit"
	"junction/cmd/pack/lock"
)

// names accepts the names of upstreams.
func names(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cli.Usagef("%s needs the name of an upstream; junction list shows them", cmd.Name())
	}
	return nil
}

// changeCommands are `junction remove`, `junction enable` and `junction disable`.
func changeCommands(stdout io.Writer, file *string) (all []*cobra.Command) {
	for _, c := range []struct {
		name, alias, short, long string
		change                   func(e *Editor, ctx context.Context, names []string) error
	}{
		{"remove", "rm", "Remove upstreams from the configuration file",
			"Remove upstreams from the configuration file, with the comment directly above each. The old file " +
				"becomes a backup.\nA running junction ends the upstreams when it reloads the file. Files in the " +
				"folder secrets stay, because the backup names them. The command prints those that nothing else " +
				"uses.",
			func(e *Editor, ctx context.Context, names []string) error { return e.Remove(ctx, names...) }},
		{"enable", "", "Enable disabled upstreams",
			"Enable disabled upstreams in the configuration file. The old file becomes a backup. A running junction " +
				"starts them when it reloads the file.",
			(*Editor).enable},
		{"disable", "", "Disable upstreams and keep their entries",
			"Disable upstreams in the configuration file, which keeps their entries. The old file becomes a backup. " +
				"A running junction ends them when it reloads the file.",
			func(e *Editor, ctx context.Context, names []string) error { return e.Switch(ctx, false, names...) }},
	} {
		var asJSON bool
		cmd := &cobra.Command{
			Use: c.name + " NAME ...", Short: c.short, Long: c.long, Example: "  junction " + c.name + " notes memory",
			Args: names, ValidArgsFunction: cli.CompleteUpstreams(file, many),
			RunE: func(cmd *cobra.Command, args []string) error {
				e, err := Edit(stdout, *file, asJSON, false)
				if err != nil {
					return err
				}
				e.Enter = cli.EnterOf(cmd)
				return c.change(e, cmd.Context(), args)
			},
		}
		if c.alias != "" {
			cmd.Aliases = []string{c.alias}
		}
		cli.JSONFlag(cmd, &asJSON)
		all = append(all, cmd)
	}
	return all
}

// ofFile is a reference to a file.
var ofFile = regexp.MustCompile(`\$\{file:([^}]+)\}`)

// NamesSecret returns whether a file with a name in the folder secrets is in use: by text, the content of a
// configuration file, or by another configuration in its folder.
func NamesSecret(path string, text []byte) func(name string) bool {
	texts := [][]byte{text}
	for _, pattern := range []string{"*.yaml", "*.yml"} {
		all, _ := filepath.Glob(filepath.Join(filepath.Dir(path), pattern)) // without other folders
		for _, other := range all {
			if is, err := revision.Read(other); err == nil && !revision.SamePath(other, path) {
				texts = append(texts, is)
			}
		}
	}
	return func(name string) bool {
		return slices.ContainsFunc(texts, func(t []byte) bool { return bytes.Contains(t, []byte("secrets/"+name+"}")) })
	}
}

// unused returns the files in the folder secrets that the entry of an upstream names, and neither text, the new
// content of the file, nor another configuration in its folder.
func (e *Editor) unused(name string, text []byte) (unused []string) {
	inUse := NamesSecret(e.path, text)
	for _, line := range e.linesOf(name) {
		for _, m := range ofFile.FindAllStringSubmatch(line, -1) {
			file := filepath.FromSlash(m[1])
			if !filepath.IsAbs(file) {
				file = filepath.Join(filepath.Dir(e.path), file)
			}
			_, err := os.Lstat(file)
			ours := err == nil && revision.SamePath(filepath.Dir(file), filepath.Join(filepath.Dir(e.path), "secrets"))
			if ours && !inUse(filepath.Base(file)) && !slices.Contains(unused, file) {
				unused = append(unused, file)
			}
		}
	}
	slices.Sort(unused)
	return unused
}

// many is the most names that are completed for a command.
const many = 100

// enable enables upstreams whose entries a person has seen.
func (e *Editor) enable(ctx context.Context, names []string) error {
	for _, name := range names {
		if _, _, installed := lock.Split(e.config.Packs[name]); installed && e.config.Upstreams[name].Off() {
			return fmt.Errorf("%s is an installed pack; to see what it would run, and to enable it, run: %s", name,
				e.Command("packs", "enable", name))
		}
	}
	return e.Switch(ctx, true, names...)
}

// switched returns the text of the file with an upstream enabled or disabled. enabled: false is
// removed rather than changed, so that enable undoes disable byte for byte.
func (f *file) switched(before []byte, name string, on bool) ([]byte, error) {
	const key = "enabled"
	if !on {
		return yamledit.Set(before, section, name, key, "false")
	}
	if text, err := yamledit.Unset(before, section, name, key); err == nil {
		if c, _, err := parse(f.path, text); err == nil && !c.Upstreams[name].Off() {
			return text, nil
		}
	}
	return yamledit.Set(before, section, name, key, "true")
}
