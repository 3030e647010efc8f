package admin

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/diagnose"
)

// checkCommand is `junction check`.
func checkCommand(stdout io.Writer, file *string, start Foresight) *cobra.Command {
	var asJSON bool
	var old string
	cmd := &cobra.Command{
		Use: "check", Short: "Validate a configuration file", Args: cli.NoArguments,
		Long: `Validate a configuration file. With --against, also tell what a reload changes: which upstreams, keys and
policies, and which changes wait for a restart.`,
		Example: `  junction check --config config.yaml
  junction check --config next.yaml --against config.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if *file == "" {
				return NeedsFile("check")
			}
			running := Serving(cmd.Context(), *file)
			var read *config.Config
			report, err := config.Inspect(*file, lookupFor(running), func(c *config.Config) []config.Problem {
				read = c
				return start.Obstacles(c, *file)
			})
			if err != nil {
				return err
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
				if report.Reload, err = config.Compare(old, *file, os.LookupEnv); err != nil {
					err = fmt.Errorf("--against: %w", err)
				}
			}
			if asJSON {
				return errors.Join(cli.PrintValue(stdout, report), report.Err(), err)
			}
			var text bytes.Buffer
			mistakes := report.Print(&text)
			return errors.Join(cli.Tell(stdout, text.String()), mistakes, err)
		},
	}
	cmd.Flags().StringVar(&old, "against", "", "the `FILE` that a running Junction has in force")
	cli.JSONFlag(cmd, &asJSON)
	return cmd
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

// lookupFor returns the variables of this shell for a check. If a service serves the file, mistakes name the
// file with its variables.
func lookupFor(r *diagnose.Running) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if name == config.ServiceVariables && r != nil {
			return r.Variables, r.Variables != ""
		}
		return os.LookupEnv(name)
	}
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
