// Package entries has the commands that change and list the upstreams of the configuration file:
// add, remove, enable, disable and list, and search, which finds servers to add.
//
// file.go changes the file as text, so that comments and order stay. It checks the new text before
// it writes it, and keeps a backup of the old file. Mistakes elsewhere in the file do not prevent a
// change. change.go offers these changes to the commands of other packages. Its Review shows a
// person what would run, and asks, before an entry that others have written is added or enabled.
// ask.go then asks the URL of a new entry whether it requires or offers a sign-in.
package entries

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/cli"
	"junction/cmd/junction/clients"
	"junction/cmd/junction/config"
	"junction/cmd/junction/runfile"
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
}

// reloadLimit is how long a command waits for the running junction, which usually needs a tenth of
// a second.
const reloadLimit = 10 * time.Second

// A Sequel is the effect of a changed file on the running junction.
type Sequel struct {
	Running bool   // a junction serves the file
	Reload  string // why it has not applied the change
	Next    string // the next step for the user, a sentence without a full stop; "" if Reload is set
}

// Follow waits until the running junction has reloaded a changed file, and then a few seconds until
// the named upstreams have been tried.
func Follow(ctx context.Context, path string, names ...string) Sequel {
	place, running := runfile.Find(path)
	if !running {
		return Sequel{Next: "Start junction with: " + config.Start(path)}
	}
	s := Sequel{Running: true}
	ctx, cancel := context.WithTimeout(ctx, reloadLimit)
	defer cancel()
	r, err := cli.AwaitReload(ctx, path)
	switch {
	case ctx.Err() != nil:
		s.Next = fmt.Sprintf("The running junction has not reloaded the file yet; to make it, run: kill -HUP %d",
			place.PID)
	case err != nil: // its admin address is off
		s.Next = "The running junction reloads the file by itself."
	case r.Reload != "":
		s.Reload = r.Reload
	default:
		s.Next = "The running junction has reloaded the file"
		if text := results(ctx, path, names, tryLimit); text != "" {
			s.Next += ".\n" + text
		} else {
			s.Next += "; see: " + config.Command(path, "status")
		}
		if r.Restart != "" {
			s.Next += "\nA part of the file is not in force: " + r.Restart + "."
		}
	}
	return s
}

// tryLimit is how long a command waits for the first attempt of a new upstream.
const tryLimit = 5 * time.Second

// Results waits for the first attempts of the named upstreams of the running junction that serves a
// file, and returns a line for each.
func Results(ctx context.Context, path string, names []string, limit time.Duration) string {
	if text := results(ctx, path, names, limit); text != "" {
		return Lines(text)
	}
	return ""
}

// results returns what became of the named upstreams; "" if no junction answers.
func results(ctx context.Context, path string, names []string, limit time.Duration) string {
	var said []string
	for _, u := range cli.AwaitTried(ctx, path, names, limit) {
		text := u.Name + ": " + u.State
		switch {
		case u.Error != "":
			text += ": " + u.Error
			if u.Advice != "" {
				text += "; " + u.Advice
			}
		case u.State == upstream.StateReady.String():
			text += ", " + prose.Count(u.Tools, "tool") // those that clients get
		case u.Note != "":
			text += ": " + u.Note
		case u.State == upstream.StateStarting.String():
			text += "; " + config.Command(path, "status") + " shows the result"
		}
		said = append(said, prose.Flat(text))
	}
	return strings.Join(said, "\n")
}

// Refused returns the sentence about a change that the running junction did not apply.
func (s *Sequel) Refused() string {
	return "The running junction did not apply the change: " + prose.Flat(s.Reload)
}

// follow waits until the running junction has reloaded the file, and sets Running, Reload and Next.
func (o *outcome) follow(ctx context.Context, f *file) {
	s := Follow(ctx, f.path, o.Upstreams...)
	o.Running, o.Reload = s.Running, s.Reload
	if s.Reload != "" {
		o.Next = s.Refused()
	}
	o.Next = cmp.Or(o.Next, s.Next)
}

// Lines returns texts as lines. A text may have several.
func Lines(texts ...string) string {
	lines := strings.Split(strings.Join(texts, "\n"), "\n")
	for i := range lines {
		lines[i] = prose.OneLine(lines[i]) + "\n"
	}
	return strings.Join(lines, "")
}

// SetVariables returns the sentence about environment variables that are not set.
func SetVariables(names []string) string {
	return "Set these environment variables where junction starts, and restart it: " + strings.Join(names, ", ") + "."
}

// deletion says how the unused files are deleted. Junction does not delete them: the backup names them,
// and a configuration in another folder may.
func (o *outcome) deletion() string {
	return strings.Join(o.Upstreams, ", ") + " had these secrets, which only the backup uses now; " +
		Deletion(o.Unused)
}

// Deletion says how a person deletes files.
func Deletion(names []string) string {
	if runtime.GOOS == "windows" {
		return "delete them by hand: " + strings.Join(names, ", ")
	}
	return "to delete them, run: " + shell.Join(append([]string{"rm"}, names...)...)
}

// print writes the outcome. said is the first sentence, without the backup.
func (o *outcome) print(ctx context.Context, w io.Writer, f *file, asJSON bool, said string) error {
	o.Config, o.Mistakes = f.path, len(f.problems)
	if o.Changed {
		o.follow(ctx, f)
		for name, state := range cli.States(ctx, f.path) { // with the variables of its process
			if slices.Contains(o.Upstreams, name) && state == upstream.StateReady.String() {
				o.Variables = nil
			}
		}
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
	if len(o.Variables) > 0 {
		lines = append(lines, SetVariables(o.Variables))
	}
	if o.Mistakes > 0 {
		lines = append(lines, fmt.Sprintf("The file has %s elsewhere: %s.",
			prose.Count(o.Mistakes, "mistake"), config.Command(f.path, "check")))
	}
	if o.Next != "" {
		lines = append(lines, o.Next)
	}
	err := cli.Print(w, asJSON, o, Lines(lines...))
	if err != nil && o.Changed { // %v: the remedy of a full disk is to run the command again
		err = fmt.Errorf("%s was changed, but the output could not be written: %v", f.Short(), err)
	}
	return err
}
