package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/base/secrets"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream"
	"junction/upstream/prose"
)

// checkCommand is `junction check`.
func checkCommand(stdout io.Writer, file *string, start Foresight) *cobra.Command {
	var asJSON, quiet, connect bool
	var old string
	cmd := &cobra.Command{
		Use: "check", Short: "Validate a configuration file", Args: cli.NoArguments,
		Long: `Validate a configuration file. With --against FILE, also tell what a reload changes: which upstreams,
keys and policies, and which changes wait for a restart. The variables are those of FILE.environment then, since the new
content gets the name of FILE.

With --connect, a file without mistakes is also tried: programs that print secrets run, and authorization servers at
which Junction has a client of its own are asked for a token, which is dropped.`,
		Example: `  junction check --config config.yaml
  junction check --config next.yaml --against config.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if *file == "" {
				return NeedsFile("check")
			}
			running := Serving(cmd.Context(), *file)
			lookup, note, err := lookupFor(running, cmp.Or(old, *file)) // the new content gets the name of the old file
			if err != nil {
				return err
			}
			var read *config.Config
			report, err := config.Inspect(*file, lookup, func(c *config.Config) []config.Problem {
				read = c
				return start.Obstacles(c, *file)
			})
			if err != nil {
				return err
			}
			if note != "" {
				report.Notes = append([]string{note}, report.Notes...)
			}
			_, report.Served = ServedAt(cmd.Context(), *file)
			back, readIt := revived(running, *file)
			if !readIt {
				var unknown error
				if back, unknown = start.Revived(read, *file); unknown != nil {
					report.Notes = append(report.Notes,
						"auth.api_keys: nothing is known of revoked keys: "+unknown.Error())
				}
			}
			report.Warnings = append(back, report.Warnings...)
			if old != "" {
				if report.Reload, err = config.Compare(old, *file, lookup); err != nil {
					err = fmt.Errorf("--against: %w", err)
				}
			}
			tried, failed := new(signInDoctor), error(nil)
			if connect && report.Err() == nil {
				tried, failed = tryTokens(cmd.Context(), stdout, *file)
			}
			if asJSON {
				all := struct {
					*config.Report
					Connected []findingJSON `json:"connected,omitempty"` // with --connect
				}{report, tried.findings}
				return errors.Join(cli.PrintValue(stdout, all), report.Err(), err, failed)
			}
			if quiet {
				report.Notes = nil
			}
			var text bytes.Buffer
			mistakes := report.Print(&text)
			if tried.out != nil {
				text.WriteString(tried.out.String())
			}
			return errors.Join(cli.Tell(stdout, text.String()), mistakes, err, failed)
		},
	}
	cmd.Flags().StringVar(&old, "against", "", "the `FILE` that a running Junction has in force")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "leave out the notes, such as before each start of a service")
	cmd.Flags().BoolVar(&connect, "connect", false, "ask authorization servers for the tokens of Junction itself")
	cli.JSONFlag(cmd, &asJSON)
	return cmd
}

// tryTokens asks for the credentials of Junction itself, and drops them. The error counts the problems.
func tryTokens(ctx context.Context, stdout io.Writer, file string) (*signInDoctor, error) {
	d := &signInDoctor{out: cli.NewPage(stdout)}
	c, err := secrets.Load(ctx, file, nil)
	if err != nil {
		return d, err
	}
	fetcher, err := c.Outbound.Fetcher()
	if err != nil {
		return d, err
	}
	sources, done := diagnose.Unstored(c, fetcher)
	defer done()
	asked := map[string]upstream.Config{}
	for name, u := range c.Upstreams {
		if row := u.Auth.Mode.Row(); (row.Owner == upstream.OwnerJunction || u.Blocked != "") && !u.Off() {
			asked[name] = u
		}
	}
	sources.Use(asked)
	d.servers(ctx, sources, asked)
	if d.problems > 0 {
		return d, errors.New(prose.Count(d.problems, "problem"))
	}
	return d, nil
}

// Serving returns the state of the junction of this machine that serves a file; nil if there is none, or if it
// does not answer.
func Serving(ctx context.Context, file string) *diagnose.Running {
	place, running := ServedAt(ctx, file)
	var r diagnose.Running
	if !running || place.Admin == "" || askAdmin(ctx, place.Admin, "/status", nil, ownLimit, &r) != nil {
		return nil
	}
	return &r
}

// lookupFor returns the variables for a check of a file: those of the file that its service reads, and those of this
// shell. The note says so. If there is a service, mistakes name its file.
func lookupFor(r *diagnose.Running, file string) (lookup func(string) (string, bool), note string, err error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, "", err
	}
	own, err := config.Environment(path)
	if err != nil {
		return nil, "", fmt.Errorf("%w; the service does not start with this line", err)
	}
	service := ""
	if _, background := runfile.LastBackground(path); own != nil || background {
		service = config.EnvironmentOf(path)
	} else if r != nil {
		service = r.Variables
	}
	if own != nil {
		note = "the variables of " + prose.Tilde(service) + " count, as for the service, and then those of this shell"
	}
	return func(name string) (string, bool) {
		if name == config.ServiceVariables {
			return service, service != ""
		}
		if value, ok := own[name]; ok {
			return value, true
		}
		return os.LookupEnv(name)
	}, note, nil
}

// revived returns the warnings of the running junction about revoked API keys that are in a file again. ok is false
// if no junction has read this content of the file.
func revived(r *diagnose.Running, file string) (list config.Problems, ok bool) {
	sum, err := config.Checksum(file)
	if r == nil || err != nil || r.Read != hex.EncodeToString(sum[:]) {
		return nil, false
	}
	for _, w := range r.Warnings {
		if config.Revived(w) {
			list = append(list, w)
		}
	}
	return list, true
}
