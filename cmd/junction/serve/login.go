package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"junction/auth/credentials"
	"junction/auth/fetch"
	"junction/auth/oauth"
	"junction/auth/store"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/secrets"
	"junction/cmd/junction/desk/entries"
	"junction/cmd/junction/ops/signins"
	"junction/cmd/junction/ops/signon"
	"junction/upstream"
	"junction/upstream/loopback"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// operatorMode is the mode in which the operator signs in.
var operatorMode = upstream.SignInMode(upstream.OwnerOperator)

// loginOptions are the flags of `junction login`.
type loginOptions struct {
	file           *string
	stdin          io.Reader
	stdout, stderr io.Writer
	noBrowser      bool
	json           bool
	port           int
	timeout        time.Duration
	scopes         []string               // beyond those that the server asks for
	open           func(url string) error // starts a browser
}

// oneUpstream accepts the name of one upstream.
func oneUpstream(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return cli.Usagef("%s needs the name of one upstream; junction list shows them", cmd.Name())
	}
	return nil
}

// LoginCommand is `junction login`.
func LoginCommand(stdin io.Reader, stdout, stderr io.Writer, file *string) *cobra.Command {
	o := &loginOptions{file: file, stdin: stdin, stdout: stdout, stderr: stderr, open: signon.OpenBrowser}
	cmd := &cobra.Command{
		Use: "login NAME", Short: "Sign in to an upstream that uses OAuth", Args: oneUpstream,
		Long: "Sign in to an upstream that has auth: { mode: " + operatorMode.String() + ` }.

The command opens a browser and waits for the answer on this machine. The tokens are stored encrypted; a running
proxy uses them within a few seconds and renews them. Everyone who may use the upstream acts with this sign-in.

If a call fails because the sign-in lacks a scope, its error names the command: --scope asks for that scope as
well as for those of the present sign-in.

On a machine without a browser, use --no-browser: open the printed URL elsewhere, and paste the address to which
the browser returns.`,
		Example: "  junction login linear --config config.yaml\n  junction login linear --no-browser --config " +
			"config.yaml",
		RunE: func(cmd *cobra.Command, args []string) error { return o.login(cmd.Context(), args[0]) },
	}
	cmd.ValidArgsFunction = cli.CompleteUpstreams(file, 1)
	cli.JSONFlag(cmd, &o.json)
	cmd.Flags().BoolVar(&o.noBrowser, "no-browser", false, "print the URL and read the answer from standard input")
	cmd.Flags().IntVar(&o.port, "port", 0, "the local `port` for the answer, if the client is registered with one "+
		"(default: a free port)")
	cmd.Flags().StringSliceVar(&o.scopes, "scope", nil, "another `scope` to ask for; may be repeated")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 5*time.Minute, "time limit for the sign-in")
	return cmd
}

// LogoutCommand is `junction logout`.
func LogoutCommand(stdout io.Writer, file *string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "logout NAME", Short: "Revoke and delete the sign-in of an upstream", Args: oneUpstream,
		ValidArgsFunction: cli.CompleteUpstreams(file, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), signins.StorageLimit)
			defer cancel()
			client, _, closing, err := openOperator(ctx, "logout", *file, args[0])
			if err != nil {
				return err
			}
			defer closing()
			err = client.Logout(ctx, args[0])
			absent := errors.Is(err, oauth.ErrNotConnected)
			if err == nil {
				err = auditOperator(ctx, client, "upstream_disconnected", args[0])
			}
			if err != nil && !absent {
				return err
			}
			result := "Signed out of " + args[0] + ". A running proxy stops using the sign-in within a few seconds.\n"
			if absent {
				result = "Not signed in to " + args[0] + ".\n"
			}
			return cli.Print(stdout, asJSON, loginJSON{args[0], false, !absent}, result)
		},
	}
	cli.JSONFlag(cmd, &asJSON)
	return cmd
}

// loginJSON is the output of login and logout with --json.
type loginJSON struct {
	Upstream string `json:"upstream"`
	SignedIn bool   `json:"signed_in"`
	Changed  bool   `json:"changed"`
}

// login signs in to one upstream.
func (o *loginOptions) login(ctx context.Context, name string) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout,
		fmt.Errorf("no answer within %v; nothing was stored", o.timeout))
	defer cancel()
	client, lacks, closing, err := openOperator(ctx, "login", *o.file, name)
	if err != nil {
		return err
	}
	defer closing()
	var change *entries.Change // sets auth after the sign-in
	if lacks {
		if change, err = entries.SetAuth(*o.file, name, operatorMode); err != nil {
			return err
		}
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", o.port))
	if err != nil {
		return fmt.Errorf("cannot wait for the answer: %w; choose another --port", err)
	}
	defer listener.Close()
	attempt, err := client.Login(ctx, name, "http://"+listener.Addr().String()+oauth.CallbackPath(name), o.scopes...)
	if err != nil {
		return interrupted(ctx, unheard(ctx, name, plainProblem(err)))
	}
	where, err := attempt.URL()
	if err != nil {
		return err
	}
	answers, stop, err := signon.Callback(ctx, listener, oauth.CallbackPath(name), attempt.Mine,
		"Signed in to "+name+". You can close this window.", "Start again with: "+shell.Join("junction", "login", name))
	if err != nil {
		return err
	}
	defer stop()
	for _, note := range attempt.Notes() {
		cli.Tellf(o.stderr, "Note: %s.\n", prose.Flat(note))
	}
	o.invite(ctx, where, attempt, answers)
	select {
	case a := <-answers:
		err := plainProblem(attempt.Finish(ctx, a.Values))
		a.Result <- err
		if err != nil {
			return interrupted(ctx, err)
		}
	case <-ctx.Done():
		return interrupted(ctx, context.Cause(ctx))
	}
	if err := auditOperator(ctx, client, "upstream_connected", name); err != nil {
		return err
	}
	result := "Signed in to " + name + ".\n"
	if change != nil {
		text, err := change.Make(ctx)
		if err != nil {
			return fmt.Errorf("signed in to %s; set auth: { mode: %s } of it by hand: %w", name, operatorMode, err)
		}
		result += text
	}
	return cli.Print(o.stdout, o.json, loginJSON{name, true, true}, result)
}

// interrupted replaces the error of a sign-in that a signal has ended.
func interrupted(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return errors.New("the sign-in was interrupted; nothing was stored")
	}
	return err
}

// invite starts the browser, or prints the URL and reads the answer from stdin.
func (o *loginOptions) invite(ctx context.Context, where string, attempt *oauth.Login, answers chan<- signon.Answer) {
	if !o.noBrowser && o.open(where) == nil {
		cli.Tellf(o.stderr, "%s\nContinue in the browser. If it did not open, visit:\n\n  %s\n\n",
			attempt.About(), where)
		return
	}
	cli.Tellf(o.stderr, "%s\nOpen this URL in a browser:\n\n  %s\n\n"+
		"If the browser runs on another machine, its last page cannot be shown. Copy the address of that page and "+
		"paste it here:\n", attempt.About(), where)
	go func() { // ends with standard input or with the program
		lines := bufio.NewScanner(o.stdin)
		for lines.Scan() {
			at, err := url.Parse(strings.TrimSpace(lines.Text()))
			if err != nil || !attempt.Mine(at.Query()) {
				fmt.Fprintln(o.stderr, "This is not the address of the last page of this sign-in. Paste the whole "+
					"address:")
				continue
			}
			select {
			case answers <- signon.Answer{Values: at.Query(), Result: make(chan error, 1)}:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
}

// openOperator opens the store for the operator's sign-in at an upstream, and creates the store if
// there is none. With lacks, the entry of the upstream still needs operatorMode. The caller must call
// closing.
func openOperator(ctx context.Context, what, file, name string) (client *oauth.Client, lacks bool, closing func(),
	err error) {
	if file == "" {
		return nil, false, nil, cli.Usagef("%s needs --config FILE", what)
	}
	c, err := secrets.Load(ctx, file, []string{name})
	if err != nil {
		return nil, false, nil, err
	}
	if lacks, err = lacksSignIn(c, what, file, name); err != nil {
		return nil, false, nil, err
	}
	fetcher, err := c.Outbound.Fetcher()
	if err != nil {
		return nil, false, nil, err
	}
	s, err := operatorStore(ctx, c.Storage)
	if err != nil {
		return nil, false, nil, err
	}
	client = oauth.New(oauth.Options{Store: s, Name: "Junction", Fetch: fetcher, HTTP: config.Trusting(fetcher)})
	client.Apply(credentials.SignIns(upstream.OwnerOperator, c.Upstreams))
	return client, lacks, func() { client.Close(); _ = s.Close() }, nil
}

// lacksSignIn returns an error if the operator cannot sign in to an upstream. For a login, an entry
// without auth is no error: lacksSignIn sets auth in c, and returns true.
func lacksSignIn(c *config.Config, what, file, name string) (lacks bool, err error) {
	u, there := c.Upstreams[name]
	switch row := u.Auth.Mode.Row(); {
	case u.Blocked != "":
		return false, errors.New(u.Blocked)
	case u.OperatorSignsIn() && !u.Off():
	case !there:
		problem := fmt.Sprintf("there is no upstream %s in %s", prose.Quote(name), file)
		if near := prose.DidYouMean(slices.Sorted(maps.Keys(c.Upstreams)), name, ""); near != "" {
			problem += "; " + near
		}
		return false, errors.New(problem)
	case u.Off():
		return false, fmt.Errorf("%s is disabled in %s; run: %s", name, file,
			config.Command(file, "enable", name))
	case row.Login != "":
		return false, errors.New(row.About(row.Login, name))
	case !u.Kind().HTTP:
		return false, fmt.Errorf("%s is a command; only servers with a url have an OAuth sign-in", name)
	case what == "login" && c.Auth.SignInMode() == operatorMode:
		u.Auth.Mode = operatorMode
		c.Upstreams[name] = u
		return true, nil
	default:
		return false, fmt.Errorf("upstreams.%s has no OAuth sign-in; add auth: { mode: %s } to it in %s, then "+
			"run: %s", name, operatorMode, file, config.Command(file, "login", name))
	}
	return false, nil
}

// auditOperator stores an event of the operator's sign-in at an upstream.
func auditOperator(ctx context.Context, client *oauth.Client, what, name string) error {
	return client.Store.Audit(ctx, store.Event{Event: what, Detail: store.DetailJSON(map[string]string{
		"detail": name + ", by the operator"})})
}

// operatorStore opens the store, also while a proxy uses it, and creates it if there is none.
func operatorStore(ctx context.Context, c config.Storage) (*store.Store, error) {
	place, err := c.Place(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	ring, _, err := signins.MasterKeys(c, os.LookupEnv)
	if err != nil {
		return nil, err
	}
	exists := false
	if c.Driver != store.Postgres {
		_, err := os.Stat(place)
		if exists = err == nil; !exists {
			if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
				return nil, fmt.Errorf("storage.dsn: %w", err)
			}
		}
	}
	return signins.OpenStore(ctx, c, place, ring, exists)
}

// unheard returns the error of the beginning of a sign-in, with what to do if no server listens. An authorization
// server on this machine is not asked unless outbound.allow_private permits it, so that it is asked here whether it
// listens: else the error would name a key that changes nothing.
func unheard(ctx context.Context, name string, err error) error {
	refused, ok := errors.AsType[*fetch.Error](err)
	if !ok || refused.Class != fetch.Plain && refused.Class != fetch.Private {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("%w; %s", err, fetch.Advice(err))
		}
		return err
	}
	if host, _ := loopback.Name(refused.Host); !loopback.Host(host) {
		return err
	}
	dialer := net.Dialer{Timeout: time.Second}
	conn, closed := dialer.DialContext(ctx, "tcp", refused.Host)
	if closed == nil {
		conn.Close()
		return err
	}
	if !errors.Is(closed, syscall.ECONNREFUSED) {
		return err
	}
	return fmt.Errorf("%s names the authorization server %s, and %s; when it listens, permit its address with "+
		"outbound.allow_private", name, refused.Host, fetch.Advice(closed))
}

// plainProblem returns an error with only the text of a *oauth.UserError that has no cause. Other
// errors are returned as they are.
func plainProblem(err error) error {
	if p, ok := errors.AsType[*oauth.UserError](err); ok && p.Err == nil {
		return errors.New(p.Text)
	}
	return err
}
