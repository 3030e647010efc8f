package admin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
)

// checkCommand is `junction check`.
func checkCommand(stdout io.Writer, file *string, start Foresight) *cobra.Command {
	var asJSON, quiet bool
	var old string
	cmd := &cobra.Command{
		Use: "check", Short: "Validate a configuration file", Args: cli.NoArguments,
		Long: `Validate a configuration file. If a running Junction serves the file, also find the rules of policies
that match none of the items that its servers list. With --against FILE, also tell what a reload changes: which keys of
the file, upstreams, API keys and policies, which changes wait for a restart, and, if a running Junction serves FILE,
which API key gains or loses which tools. The variables are those of FILE.environment then, since the new content gets
the name of FILE.`,
		Example: `  junction check --config config.yaml
  junction check --config next.yaml --against config.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if *file == "" {
				return NeedsFile("check")
			}
			report, err := start.inspect(cmd.Context(), *file, old)
			if report == nil {
				return err
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

// inspect checks a file, whose content is for the file old; "" is the file itself. Without a report, the error says
// why there is none.
func (start Foresight) inspect(ctx context.Context, file, old string) (*config.Report, error) {
	served := cmp.Or(old, file) // the new content gets the name of the old file
	note, err := asService(ctx, served)
	if err != nil {
		return nil, err
	}
	running := Serving(ctx, served)
	var read *config.Config
	report, err := config.Inspect(file, os.LookupEnv, func(c *config.Config) []config.Problem {
		read = c
		return start.Obstacles(c, file)
	})
	if err != nil {
		return nil, err
	}
	if note != "" {
		report.Notes = append([]string{note}, report.Notes...)
	}
	_, report.Served = ServedAt(ctx, served)
	back, readIt := revived(running, file)
	if old != "" || !readIt {
		var unknown error
		if back, unknown = start.Revived(read, file, served); unknown != nil {
			report.Notes = append(report.Notes, "auth.api_keys: nothing is known of revoked keys: "+unknown.Error())
		}
	}
	report.Warnings = append(back, report.Warnings...)
	lists, unlisted := listsOf(ctx, served)
	if lists != nil {
		for _, p := range config.Locate(file, os.LookupEnv, config.Policies, lists.Mistyped(read)) {
			p.Text += " (by the lists of the running Junction; a rule for an item that comes later may stay)"
			report.Warnings = append(report.Warnings, p)
		}
	}
	if old == "" {
		return report, nil
	}
	if report.Reload, err = config.Compare(old, file, os.LookupEnv); err != nil {
		err = fmt.Errorf("--against: %w", err)
	}
	if report.Reload != nil {
		addAccess(report.Reload, lists, unlisted)
	}
	return report, err
}
