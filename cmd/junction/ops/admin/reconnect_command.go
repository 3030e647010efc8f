package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"junction/cmd/junction/base/runfile"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/prose"
)

// reconnectCommand is `junction reconnect`.
func reconnectCommand(stdout io.Writer, file *string) *cobra.Command {
	var admin string
	cmd := &cobra.Command{
		Use:               "reconnect UPSTREAM",
		ValidArgsFunction: cli.CompleteUpstreams(file, 1),
		Short:             "Connect an upstream of a running junction again",
		Long: `Connect an upstream of a running junction again. Its processes and connections end, with the calls on
them. Only the user who runs Junction can do this. The command asks the admin address of the process that
serves the configuration file.`,
		Example: `  junction reconnect github
  junction reconnect github --config config.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("reconnect needs the name of one upstream; junction status shows the names")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkAdmin(cmd, admin); err != nil {
				return err
			}
			if err := reconnect(cmd.Context(), admin, *file, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(stdout, "%s is being connected again; its state: %s\n", prose.Flat(args[0]),
				config.Command(*file, "status", args[0]))
			return nil
		},
	}
	adminFlag(cmd, &admin)
	return cmd
}

// reconnect asks the running proxy to connect an upstream again.
func reconnect(ctx context.Context, admin, file, name string) error {
	address, err := adminAddress(ctx, admin, file)
	if err != nil {
		return err
	}
	if address == "" {
		err = ErrNotRunning
	} else {
		ask := adminRequest{method: http.MethodPost, path: "/reconnect", owner: true,
			query: url.Values{"upstream": {name}}}
		err = ask.send(ctx, address, diagnose.Patience, new(struct{}))
	}
	if errors.Is(err, ErrNotRunning) && file != "" && admin == "" {
		return fmt.Errorf("%w with %s; start one: %s", ErrNotRunning, file, runfile.Start(file))
	}
	return err
}
