// Package entries has the commands that change and list the upstreams of the configuration file:
// add, remove, enable, disable and list, and search, which finds servers to add.
//
// file.go changes the file as text, so that comments and order stay. It checks the new text before
// it writes it, and keeps a backup of the old file. Mistakes elsewhere in the file do not prevent a
// change. change.go offers these changes to the commands of other packages.
package entries

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/cli"
	"junction/cmd/junction/config"
	"junction/cmd/junction/prose"
	"junction/cmd/junction/runfile"
)

// section is the key of the upstreams in the file.
const section = "upstreams"

// Commands returns the commands. file points to the value of --config.
func Commands(stdout io.Writer, file *string) []*cobra.Command {
	return []*cobra.Command{
		addCommand(stdout, file),
		removeCommand(stdout, file),
		switchCommand(stdout, file, true),
		switchCommand(stdout, file, false),
		listCommand(stdout, file),
		searchCommand(stdout),
	}
}

// outcome is what a command did, and the output of --json.
type outcome struct {
	Config    string   `json:"config"`
	Upstreams []string `json:"upstreams"`
	Changed   bool     `json:"changed"`
	Backup    string   `json:"backup,omitempty"`
	Secrets   []string `json:"secrets,omitempty"`   // files with the secrets of a new upstream
	Variables []string `json:"variables,omitempty"` // environment variables that are not set
	Notes     []string `json:"notes,omitempty"`
	Mistakes  int      `json:"mistakes,omitempty"` // in the file, elsewhere
	Running   bool     `json:"running"`            // a junction serves the file
	Reload    string   `json:"reload,omitempty"`   // why it has not applied the change
	Next      string   `json:"next,omitempty"`     // the next step for the user
	Pack      any      `json:"pack,omitempty"`
}

// reloadLimit is how long a command waits for the running junction, which usually needs a tenth of
// a second.
const reloadLimit = 10 * time.Second

// follow waits until the running junction has reloaded the file, and sets Running, Reload and Next.
func (o *outcome) follow(ctx context.Context, f *file) {
	place, running := runfile.Find(f.path)
	o.Running = running
	next := "Start junction with: " + config.Start(f.path)
	if o.Running {
		ctx, cancel := context.WithTimeout(ctx, reloadLimit)
		defer cancel()
		problem, err := cli.AwaitReload(ctx, f.path)
		switch {
		case ctx.Err() != nil:
			next = fmt.Sprintf("The running junction has not reloaded the file yet; to make it, run: kill -HUP %d",
				place.PID)
		case err != nil: // its admin address is off
			next = "The running junction reloads the file by itself."
		case problem != "":
			o.Reload = problem
			o.Next, next = "", "The running junction did not apply the change: "+prose.Flat(problem)
		default:
			next = "The running junction has reloaded the file; see: junction status"
		}
	}
	o.Next = cmp.Or(o.Next, next)
}

// print writes the outcome. said is the first sentence, without the backup.
func (o *outcome) print(ctx context.Context, w io.Writer, f *file, asJSON bool, said string) error {
	o.Config, o.Mistakes = f.path, len(f.problems)
	if o.Changed {
		o.follow(ctx, f)
	}
	if asJSON {
		return cli.PrintValue(w, o)
	}
	if o.Backup != "" {
		said += " Backup: " + f.home.Short(o.Backup) + "."
	}
	lines := append([]string{said}, o.Notes...)
	if len(o.Secrets) > 0 {
		lines = append(lines, "Secrets are in "+f.home.Short(f.secretsDir())+".")
	}
	if len(o.Variables) > 0 {
		lines = append(lines, "Set these environment variables for Junction: "+strings.Join(o.Variables, ", ")+".")
	}
	if o.Mistakes > 0 {
		lines = append(lines, fmt.Sprintf("The file has %s elsewhere: junction check --config %s.",
			prose.Count(o.Mistakes, "mistake"), f.path))
	}
	if o.Next != "" {
		lines = append(lines, o.Next)
	}
	for i := range lines {
		lines[i] = prose.OneLine(lines[i]) + "\n"
	}
	_, err := io.WriteString(w, strings.Join(lines, ""))
	return err
}
