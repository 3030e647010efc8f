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
		Long: `Validate a configuration file. If a running Junction serves the file, also find the rules of policies
that match none of the items that its servers list. With --against FILE, also tell what a reload changes: which keys of
the file, upstreams, API keys and policies, which changes wait for a restart, and, if a running Junction serves FILE,
which API key, and which users of a policy, gain or lose which tools. The variables are those of FILE.environment
then, since the new content gets the name of FILE.

With --connect, a file without mistakes is also tried: programs that print secrets run, and authorization servers at
which Junction has a client of its own are asked for a token, which is dropped.`,
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
