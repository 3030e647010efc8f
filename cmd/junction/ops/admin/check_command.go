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
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/prose"
)

// checkCommand is `junction check`.
func checkCommand(stdout io.Writer, file *string, start Foresight) *cobra.Command {
	var asJSON, quiet bool
	var old string
	cmd := &cobra.Command{
		Use: "check", Short: "Validate a configuration file", Args: cli.NoArguments,
		Long: `Validate a configuration file. With --against FILE, also tell what a reload changes: which upstreams,
keys and policies, and which changes wait for a restart. The variables are those of FILE.environment then, since the new
content gets the name of FILE.`,
		Example: `  junction check --config config.yaml
  junction check --config next.yaml --against config.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if *file == "" {
				return NeedsFile("check")
			}
			note, err := asService(cmd.Context(), cmp.Or(old, *file)) // the new content gets the name of the old file
			if err != nil {
				return err
			}
			running := Serving(cmd.Context(), *file)
			var read *config.Config
			report, err := config.Inspect(*file, os.LookupEnv, func(c *config.Config) []config.Problem {
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
				if report.Reload, err = config.Compare(old, *file, os.LookupEnv); err != nil {
					err = fmt.Errorf("--against: %w", err)
				}
			}
			if asJSON {
				return errors.Join(cli.PrintValue(stdout, report), report.Err(), err)
			}
			if quiet {
				report.Notes = nil
			}
			var text bytes.Buffer
			mistakes := report.Print(&text)
			return errors.Join(cli.Tell(stdout, text.String()), mistakes, err)
		},
	}
	cmd.Flags().StringVar(&old, "against", "", "the `FILE` that a running Junction has in force")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "leave out the notes, such as before each start of a service")
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

// asService sets the variables of the service of a file in this process. The note says so. If there is a service,
// also without variables, mistakes name the file for them.
func asService(ctx context.Context, file string) (note string, err error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	service, err := config.UseEnvironment(path)
	if err != nil || service != "" {
		return "the variables of " + prose.Tilde(service) + " count, as for the service, and then those of this shell",
			err
	}
	if _, background := runfile.LastBackground(path); background {
		service = config.EnvironmentOf(path)
	} else if r := Serving(ctx, file); r != nil {
		service = r.Variables
	}
	if service == "" {
		return "", nil
	}
	return "", os.Setenv(config.ServiceVariables, service)
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
