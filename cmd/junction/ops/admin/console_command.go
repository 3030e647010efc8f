package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/ops/console"
	"junction/cmd/junction/ops/diagnose"
	"junction/cmd/junction/ops/signon"
	"junction/upstream/prose"
)

// consoleOptions are the flags of `junction console`.
type consoleOptions struct {
	admin          string
	file           *string
	noBrowser, end bool
}

// consoleCommand is `junction console`.
func consoleCommand(stdout io.Writer, file *string) *cobra.Command {
	o := consoleOptions{file: file}
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Open the pages of a running junction that are for its owner",
		Long: `Open the pages of a running junction that are for its owner, the console, in a browser of this machine.
Only the user who runs Junction can do this. The page shows a code, and the terminal asks whether the two are
the same: another user of the machine who opens the address first gets nothing. The address has no secret.

A session ends after an hour without use, after twelve hours, with the process, and by --end, which ends the
sessions of all browsers.

From another machine, forward the port of the admin address, and open the address that --no-browser prints:
ssh -L 8421:127.0.0.1:8421 HOST, or kubectl port-forward POD 8421. A published port of a container does not work.`,
		Example: "  junction console\n  junction console --no-browser\n  junction console --end",
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkAdmin(cmd, o.admin); err != nil {
				return err
			}
			return o.run(cmd, stdout)
		},
	}
	cmd.Flags().BoolVar(&o.noBrowser, "no-browser", false, "print the address, and start no browser")
	cmd.Flags().BoolVar(&o.end, "end", false, "end the sessions of all browsers")
	adminFlag(cmd, &o.admin)
	return cmd
}

func (o *consoleOptions) run(cmd *cobra.Command, stdout io.Writer) error {
	ctx := cmd.Context()
	address, err := adminAddress(ctx, o.admin, *o.file)
	if err == nil && address == "" {
		err = ErrNotRunning
	}
	if err == nil && !o.end && !cli.CanAsk(cmd) {
		return cli.Usagef("console asks whether the page shows the right code, and standard input is not a terminal; " +
			"run it at a terminal")
	}
	ask := func(path string, query url.Values, into any) error {
		if err != nil {
			return err
		}
		return adminRequest{method: http.MethodPost, path: path, query: query, owner: true}.send(ctx, address,
			diagnose.Patience, into)
	}
	if o.end {
		var ended console.Ended
		if err := o.explain(ask(console.EndPath, nil, &ended)); err != nil {
			return err
		}
		if ended.Sessions == 0 {
			_, err := fmt.Fprintln(stdout, "There was no session of the console.")
			return err
		}
		_, err := fmt.Fprintf(stdout, "%s of the console ended.\n", prose.Count(ended.Sessions, "session"))
		return err
	}
	var invited console.Invitation
	if err := o.explain(ask(console.InvitePath, nil, &invited)); err != nil {
		return err
	}
	where := "http://" + address + invited.Path
	if o.noBrowser || signon.OpenBrowser(where) != nil {
		fmt.Fprintf(stdout, "Open this address in a browser of this machine:\n  %s\n", where)
	} else {
		fmt.Fprintf(stdout, "The console opens in the browser. If it did not, open this address:\n  %s\n", where)
	}
	name := url.Values{"name": {invited.Name}}
	code, err := o.awaitCode(ctx, func(into *console.Compared) error { return ask(console.StagePath, name, into) })
	if err != nil {
		return err
	}
	same, err := cli.QuestionsOf(cmd).YesNo("Does the page show the code "+code+"?", false)
	if err != nil {
		same = false // nobody gets a session without an answer
	}
	name.Set("code", code)
	name.Set("same", fmt.Sprint(same))
	// After an interrupt, too, the browser that has the code is refused.
	refusing := context.WithoutCancel(ctx)
	answered := adminRequest{method: http.MethodPost, path: console.AnswerPath, query: name, owner: true}.send(refusing,
		address, diagnose.Patience, new(console.Compared))
	switch {
	case err != nil:
		return err
	case answered != nil:
		return answered
	case !same:
		return errors.New("the browser with this code was refused; if you have not opened the page there, another " +
			"user of this machine has: run junction console --no-browser, which shows the address to nobody else")
	}
	_, err = fmt.Fprintln(stdout, "The console is open in the browser.")
	return err
}

// awaitCode waits until a browser has opened the page, and returns its code.
func (o *consoleOptions) awaitCode(ctx context.Context, stage func(*console.Compared) error) (string, error) {
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		var c console.Compared
		if err := stage(&c); err != nil {
			return "", err
		}
		switch c.Stage {
		case console.Opened:
			return prose.Flat(c.Code), nil
		case console.Gone:
			return "", errors.New("no browser has opened the page in time; run junction console again")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// explain adds what a person does if no junction runs.
func (o *consoleOptions) explain(err error) error {
	if errors.Is(err, ErrNotRunning) && !strings.Contains(err.Error(), ": to use that one") {
		return fmt.Errorf("%w; %s", err, startOne(o.admin, *o.file, ""))
	}
	return err
}
