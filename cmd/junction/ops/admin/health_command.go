package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/prose"
)

// healthCommand is `junction health`.
func healthCommand(stdout io.Writer, file *string) *cobra.Command {
	var admin string
	live, limit := false, 5*time.Second
	cmd := &cobra.Command{
		Use: "health", Short: "Check that the running proxy is ready", Args: cli.NoArguments,
		Long: `Check that the running proxy is ready, for containers and supervisors. The command needs no key.

It asks /readyz at the admin address: --admin, or that of the proxy that serves the configuration file, or
that of the file. Without a file it asks the only running proxy, or ` + config.DefaultAdmin + `.
With --live it asks /healthz, which answers as long as the process works.

The exit code is 0 if the proxy is ready, and 1 otherwise.`,
		Example: "  junction health\n  junction health --live --admin 127.0.0.1:8421",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeoutCause(cmd.Context(), limit,
				fmt.Errorf("not ready: no answer within %v", limit))
			defer cancel()
			address, err := healthAddress(ctx, admin, *file, cmd.Flags().Changed("config"))
			if err != nil {
				return err
			}
			state, err := askHealth(ctx, address, live)
			if err != nil {
				return err
			}
			return cli.Tell(stdout, state+"\n")
		},
	}
	adminFlag(cmd, &admin)
	cmd.Flags().BoolVar(&live, "live", false, "check only that the process works")
	cmd.Flags().DurationVar(&limit, "timeout", limit, "time limit for the answer")
	return cmd
}

// healthAddress returns the admin address to ask. Without --admin, --config and a file of the user, that
// is the address of the only running proxy: the probe of a container does not know its configuration
// file.
func healthAddress(ctx context.Context, admin, file string, given bool) (string, error) {
	if only, ok := runfile.Only(); ok && admin == "" && file == "" && !given {
		if only.Admin == "" {
			return "", errors.New("the running proxy has no admin address; set admin in its configuration file")
		}
		return only.Admin, nil
	}
	if admin == "" && file == "" {
		admin = config.DefaultAdmin
	}
	address, err := adminAddress(ctx, admin, file)
	if err == nil && address == "" {
		err = errors.New("not ready: no junction is running with this configuration file, which names no admin address")
	}
	return address, err
}

// askHealth returns the status of the proxy. The error says why it is not ready.
func askHealth(ctx context.Context, address string, live bool) (string, error) {
	path := "/readyz"
	if live {
		path = "/healthz"
	}
	status, text, err := adminRequest{path: path}.answer(ctx, address)
	switch {
	case ctx.Err() != nil && err != nil:
		return "", err // has the text of the time limit
	case err != nil:
		return "", fmt.Errorf("not ready: %w", err)
	case live && status == http.StatusOK:
		return "alive", nil
	}
	var report diagnose.Report
	if live || json.Unmarshal(text, &report) != nil || report.Status == "" {
		return "", fmt.Errorf("not ready: the server at %s is not the admin address of a junction: %d %s", address,
			status, http.StatusText(status))
	}
	if status == http.StatusOK {
		return report.Status, nil
	}
	return "", errors.New("not ready: " + whyUnready(&report))
}

// whyUnready returns the status of a report, and the parts that fail.
func whyUnready(r *diagnose.Report) string {
	why := []string{r.Status}
	for _, p := range r.Parts {
		if !p.OK {
			why = append(why, p.Name+": "+prose.Cut(prose.Flat(p.Error), 200))
		}
	}
	return strings.Join(why, "; ")
}
