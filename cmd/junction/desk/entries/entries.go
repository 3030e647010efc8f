// Package entries has the commands that change and list the upstreams of the configuration file:
// add, remove, enable, disable and list, and search, which finds servers to add.
//
// file.go changes the file as text, so that comments and order stay. It checks the new text before
// it writes it, and keeps a backup of the old file. Mistakes elsewhere in the file do not prevent a
// change. change.go offers these changes to the commands of other packages. Its Review shows a
// person what would run, and asks, before an entry that others have written is added or enabled.
// known.go compares entries with the servers of clients, and remembers removed ones.
// ask.go then asks the URL of a new entry whether it requires or offers a sign-in.
package entries

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/ops/admin"
	"junction/upstream"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// section is the key of the upstreams in the file.
const section = "upstreams"

// Commands returns the commands. file points to the value of --config.
func Commands(stdout io.Writer, file *string) []*cobra.Command {
	all := append(changeCommands(stdout, file), addCommand(stdout, file), listCommand(stdout, file))
	return append(cli.OfFile(all...), searchCommand(stdout, file))
}

// outcome is what a command did, and the output of --json.
type outcome struct {
	Config    string   `json:"config"`
	Upstreams []string `json:"upstreams"`
	Changed   bool     `json:"changed"`
	Backup    string   `json:"backup,omitempty"`
	Secrets   []string `json:"secrets,omitempty"`   // files with the secrets of a new upstream
	Unused    []string `json:"unused,omitempty"`    // files with secrets that only a removed upstream used
	Variables []string `json:"variables,omitempty"` // environment variables that are not set
	Notes     []string `json:"notes,omitempty"`
	Mistakes  int      `json:"mistakes,omitempty"` // in the file, elsewhere
	Running   bool     `json:"running"`            // a junction serves the file
	Reload    string   `json:"reload,omitempty"`   // why it has not applied the change
	Next      string   `json:"next,omitempty"`     // the next step for the user
	Pack      any      `json:"pack,omitempty"`

	Look *clients.Look `json:"look,omitempty"` // what a new upstream would do

	enter func() bool // see Editor
}

// Lines returns texts as lines. A text may have several.
func Lines(texts ...string) string {
	if len(texts) == 0 {
		return ""
	}
	lines := strings.Split(strings.Join(texts, "\n"), "\n")
	for i := range lines {
		lines[i] = prose.OneLine(lines[i]) + "\n"
	}
	return strings.Join(lines, "")
}

// SetVariables returns the sentence about environment variables that are not set. If a service of the user serves
// the file, the sentence names the file with the variables of the service.
func SetVariables(ctx context.Context, file string, names []string) string {
	service := ""
	if r := admin.Running(ctx, file); r != nil {
		service = r.Variables
	}
	return "Set these environment variables " + config.ToSet(service) + ": " + strings.Join(names, ", ") + "."
}

// deletion says how the unused files are deleted. Junction does not delete them: the backup names them,
// and a configuration in another folder may.
func (o *outcome) deletion() string {
	return strings.Join(o.Upstreams, ", ") + " had these secrets, which only the backup uses now; " +
		Deletion(o.Unused)
}

// Deletion says how a person deletes files. The command begins a line, and has one file a line, so that it can
// be copied from a terminal, which breaks long lines.
func Deletion(names []string) string {
	if runtime.GOOS == "windows" {
		return "delete them by hand: " + strings.Join(names, ", ")
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = shell.Quote(name)
	}
	return "to delete them, run:\n  rm " + strings.Join(quoted, " \\\n    ")
}

// DeletionOf is Deletion for one file, or for a folder with what is in it.
func DeletionOf(path string) string {
	if runtime.GOOS == "windows" {
		return "delete it by hand: " + path
	}
	command := "rm "
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		command = "rm -r "
	}
	return "delete it with:\n  " + command + shell.Quote(path)
}

// print writes the outcome, and then the states of its upstreams. said is the first sentence, without the
// backup. The error may be that the running junction does not apply the change.
func (o *outcome) print(ctx context.Context, w io.Writer, f *file, asJSON bool, said string) error {
	if err := o.write(ctx, w, f, asJSON, said); err != nil || o.Reload == "" {
		return err
	}
	return fmt.Errorf("%s was changed, and the running Junction did not apply the change", f.Short())
}

func (o *outcome) write(ctx context.Context, w io.Writer, f *file, asJSON bool, said string) (err error) {
	defer func() {
		if err != nil && o.Changed { // %v: the remedy of a full disk is to run the command again
			err = fmt.Errorf("%s was changed, but the output could not be written: %v", f.Short(), err)
		}
	}()
	o.Config, o.Mistakes = f.path, len(f.problems)
	var s Sequel
	if o.Changed {
		s = Follow(ctx, f.path, o.Upstreams...)
		o.Running, o.Reload = s.Running, s.Reload
		if o.Next != "" {
			s.watched = nil // the next step is another one
		}
		if o.Next = cmp.Or(o.Next, s.Next); s.Reload != "" {
			o.Next = s.Refused()
		}
	}
	if asJSON {
		if text := s.Results(ctx); text != "" {
			o.Next += "\n" + text
		}
		o.dropVariables(ctx)
		return cli.PrintValue(w, o)
	}
	if o.Backup != "" {
		said += " Backup: " + f.home.Short(o.Backup) + "."
	}
	lines := append([]string{said}, o.Notes...)
	if len(o.Secrets) > 0 {
		lines = append(lines, "Secrets are in "+f.home.Short(filepath.Dir(o.Secrets[0]))+".")
	}
	if len(o.Unused) > 0 {
		lines = append(lines, o.deletion())
	}
	if len(s.watched) == 0 {
		lines = append(lines, o.variables(ctx)...)
	}
	if o.Mistakes > 0 {
		lines = append(lines, fmt.Sprintf("The file has %s elsewhere: %s.",
			prose.Count(o.Mistakes, "mistake"), config.Command(f.path, "check")))
	}
	if o.Next != "" {
		lines = append(lines, o.Next)
	}
	if err := cli.Tell(w, Lines(lines...)); err != nil || len(s.watched) == 0 {
		return err
	}
	s.Show(ctx, w, o.enter)
	return cli.Tell(w, Lines(o.variables(ctx)...))
}

// variables returns the sentence about variables that are not set, unless an upstream works with those of
// the running junction.
func (o *outcome) variables(ctx context.Context) []string {
	if o.dropVariables(ctx); len(o.Variables) == 0 {
		return nil
	}
	return []string{SetVariables(ctx, o.Config, o.Variables)}
}

func (o *outcome) dropVariables(ctx context.Context) {
	if len(o.Variables) == 0 || !o.Running {
		return
	}
	for name, state := range admin.States(ctx, o.Config) { // with the variables of its process
		if slices.Contains(o.Upstreams, name) && state == upstream.StateReady.String() {
			o.Variables = nil
		}
	}
}
