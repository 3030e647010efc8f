package call

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/auth"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/admin"
	"junction/cmd/junction/ops/diagnose"
	"junction/cmd/junction/ops/signon"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/loopback"
	"junction/upstream/prose"
	"junction/upstream/transport"
)

// toolsCommand is `junction tools`, which lists the tools of an endpoint.
func toolsCommand(stdout io.Writer, file *string) *cobra.Command {
	f := clientFlags{file: file}
	cmd := &cobra.Command{
		Use:   "tools [GLOB]",
		Short: "List the tools of a running endpoint",
		Long:  "List the tools of a running endpoint. The name of a tool shows its arguments.",
		Example: `  junction tools
  junction tools demo__count
  junction tools 'demo__*'
  junction tools --url http://127.0.0.1:8420/mcp/demo --output json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.Usagef("tools takes one glob; quote it, or the shell replaces it with file names")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			glob := "*"
			if len(args) == 1 {
				glob = args[0]
			}
			if _, err := path.Match(glob, ""); err != nil {
				return cli.Usagef("%q is no glob: a [ is not closed", glob)
			}
			f.interactive(cmd, false)
			own := f.url == "" // connect sets it
			return f.connect(cmd.Context(), nil, func(ctx context.Context, e *endpoint) error {
				tools, err := e.tools(ctx)
				if err != nil {
					return err
				}
				all := len(tools)
				if len(args) == 1 {
					tools = slices.DeleteFunc(tools, func(t listedTool) bool {
						ok, _ := path.Match(glob, t.name)
						return !ok
					})
				}
				if len(args) == 1 && len(tools) == 0 && own {
					none := fmt.Errorf("no tool at %s matches %q; it has %d", e.url, glob, all)
					if err := f.notReady(ctx, strings.TrimRight(glob, "*")+"_", none); err != none {
						return err
					}
					if err := f.serverNamed(glob); err != nil {
						return err
					}
				}
				text := toolsText(tools, linesOf(stdout))
				if len(tools) == 1 && tools[0].name == glob {
					text = toolText(cli.NewPage(stdout), tools[0])
				}
				err = cli.Print(stdout, f.output == "json", toolsJSON(tools), text)
				switch {
				case err != nil:
				case len(tools) > 0 && len(args) == 0:
					cli.Tell(cmd.ErrOrStderr(), f.missing(ctx))
				case len(tools) > 0:
				case len(args) == 1:
					return fmt.Errorf("no tool at %s matches %q; it has %d", e.url, glob, all)
				default:
					cli.Tell(cmd.ErrOrStderr(), f.whyEmpty(ctx))
				}
				return err
			})
		},
	}
	f.register(cmd)
	cmd.ValidArgsFunction = f.completeTools(false)
	return cmd
}

// serverNamed returns an error about a server of the configuration that a person has named in place of a tool; nil if
// there is none.
func (f *clientFlags) serverNamed(glob string) error {
	c, err := config.LoadForCommand(*f.file)
	if err != nil {
		return nil
	}
	name, _, _ := strings.Cut(glob, cmp.Or(c.Names.Separator, "__"))
	switch u, has := c.Upstreams[name]; {
	case !has:
		return nil
	case u.Off():
		return fmt.Errorf("%s is disabled; to enable it, run: %s", name, config.Command(*f.file, "enable", name))
	case name == glob:
		return fmt.Errorf("%s is a server, and no tool; %s shows its state", name,
			config.Command(*f.file, "status", name))
	}
	return nil
}

// whyEmpty returns why the list of tools is probably empty, and which command tells more.
func (f *clientFlags) whyEmpty(ctx context.Context) string {
	r := admin.Running(ctx, *f.file)
	if r == nil || r.Tools == 0 || r.URL != f.url {
		return fmt.Sprintf("Servers that are still starting list their tools when they are ready. %s shows what is "+
			"missing, and why.\n", config.Command(*f.file, "doctor"))
	}
	text := fmt.Sprintf("No policy allows this caller any of the %s. %s shows why, with the name of a tool.\n",
		prose.Count(r.Tools, "tool"), f.whyCommand("NAME"))
	for _, w := range r.Warnings {
		if strings.HasPrefix(w.Path, config.Policies) {
			return text + "Warning: " + prose.Flat(w.String()) + "\n"
		}
	}
	return text
}

// mostMissing is the most servers that missing names.
const mostMissing = 5

// missing names the servers of which the list has no tools, because they do not work now; "" if there are none, or if
// the endpoint is not of the running junction of the file.
func (f *clientFlags) missing(ctx context.Context) string {
	r := admin.Running(ctx, *f.file)
	if r == nil || r.URL != f.url {
		return ""
	}
	var names []string
	for i := range r.Upstreams {
		if u := &r.Upstreams[i]; u.Listed == 0 && u.Need() != diagnose.NeedsNothing {
			names = append(names, u.Name+" ("+u.State+")")
		}
	}
	if len(names) == 0 {
		return ""
	}
	if more := len(names) - mostMissing; more > 0 {
		names = append(names[:mostMissing], fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("\nThe list lacks the tools of: %s. %s shows why.\n", strings.Join(names, ", "),
		config.Command(*f.file, "status"))
}

// callCommand is `junction call`, which calls one tool once.
func callCommand(stdout io.Writer, file *string) *cobra.Command {
	f := clientFlags{file: file}
	var whole string
	var progress bool
	cmd := &cobra.Command{
		Use:   "call NAME [KEY=VALUE ...]",
		Short: "Call a tool of a running endpoint",
		Long: `Call a tool of a running endpoint and print its result.

A VALUE is a string, unless the tool's input schema declares another type for its KEY (integer, number,
boolean, array or object): then it is parsed as JSON. If the tool reports an error, its result is printed
and the exit code is 1.

If standard input is a terminal, the command shows the questions of the tool, and requests for your approval,
and sends your answers. The default time limit is then ten minutes. Otherwise it is ten seconds longer than the
built-in limit for a silent server, so that the error of Junction arrives first. In both cases it is longer if the
file gives the tool a longer timeout or max_timeout.`,
		Example: `  junction call demo__echo text='hello there'
  junction call demo__count n=5 --progress
  junction call demo__echo --json '{"text": "hello"}'
  junction call demo__echo --json - < arguments.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.Usagef("call needs the name of a tool; junction tools lists them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			given, err := parseArguments(args[1:])
			if err != nil {
				return err
			}
			var arguments json.RawMessage
			if cmd.Flags().Changed("json") {
				if len(args) > 1 {
					return cli.Usagef("give the arguments either as --json or as KEY=VALUE, not both")
				}
				if arguments, err = wholeArguments(whole, cmd.InOrStdin()); err != nil {
					return err
				}
			}
			var report io.Writer
			if progress {
				report = cmd.ErrOrStderr()
			}
			f.interactive(cmd, whole != "-")
			if !cmd.Flags().Changed("timeout") {
				f.outlast(args[0])
			}
			return f.connect(cmd.Context(), report, func(ctx context.Context, e *endpoint) error {
				tool, err := e.tool(ctx, args[0])
				if err != nil {
					return f.notReady(ctx, args[0], err)
				}
				if arguments == nil {
					if arguments, err = tool.arguments(given, config.Named(*f.file)); err != nil {
						return err
					}
				}
				e.aside = cmd.ErrOrStderr()
				result, err := e.callTool(ctx, tool, arguments)
				if err != nil {
					if cli.IsTerminal(cmd.ErrOrStderr()) {
						err = f.notReady(ctx, args[0], err)
					}
					return err
				}
				if f.output == "json" {
					err = PrintJSON(stdout, result)
				} else {
					err = printResult(stdout, result)
				}
				if err == nil && resultFailed(result) {
					f.tellRemedy(ctx, cmd.ErrOrStderr(), args[0])
					err = cli.ErrTool
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&whole, "json", "", "all arguments as one JSON object; - reads standard input")
	cmd.Flags().StringVar(&f.folder, "folder", "", "the `folder` in which a server with isolation: folder works "+
		"(default, for an endpoint on this machine: the working directory)")
	f.located = true
	cmd.Flags().BoolVar(&progress, "progress", false, "print the progress of the call on standard error")
	f.register(cmd)
	cmd.ValidArgsFunction = f.completeTools(true)
	return cmd
}

// notReady returns err, which means that there is no tool of a name, with the state of the upstream to
// which the name belongs, if that has no connection now. Else it has the command that shows the reason, if the
// running junction of the file is the endpoint.
func (f *clientFlags) notReady(ctx context.Context, tool string, err error) error {
	switch name, state := f.broken(ctx, tool); state {
	case "":
		missing, ok := errors.AsType[*noToolError](err)
		if served, running := admin.ServedAt(ctx, *f.file); ok && running && strings.HasPrefix(f.url, served.URL) {
			if missing.why = f.whyCommand(tool); admin.Exposes(ctx, *f.file, f.caller(), tool) {
				missing.hint = "" // it is the name of a tool, so that another name is no correction
			}
		}
		return err
	case upstream.StateStarting.String():
		return fmt.Errorf("%w; %s is still starting: try again when it is ready (%s)", err, name,
			config.Command(*f.file, "status"))
	default:
		return fmt.Errorf("%w; %s does not work now (%s): %s", err, name, state,
			config.Command(*f.file, "status", name))
	}
}

// whyCommand returns the command that says why this caller does not have an item. Where there are API keys or
// a sign-in, it names the caller: the name of the key, or WHO, for the person to replace.
func (f *clientFlags) whyCommand(item string) string {
	if c, err := config.LoadForCommand(*f.file); err != nil || !c.Auth.Needed() {
		return config.Command(*f.file, "why", item)
	}
	return config.Command(*f.file, "why", "--as", cmp.Or(f.caller(), "WHO"), item)
}

// caller returns the name of the API key in the configuration; "" if it has no such key.
func (f *clientFlags) caller() string {
	c, err := config.LoadForCommand(*f.file)
	if err != nil {
		return ""
	}
	if k := keyOf(c, f.secret()); k != nil {
		return k.Name
	}
	return ""
}

// keyOf returns the entry of an API key in a configuration; nil if there is none.
func keyOf(c *config.Config, key string) *auth.Key {
	hash, err := auth.HashKey(key)
	if err != nil {
		return nil
	}
	for i := range c.Auth.APIKeys {
		if c.Auth.APIKeys[i].Hash == hash {
			return &c.Auth.APIKeys[i]
		}
	}
	return nil
}

// CheckKey returns an error if a text is no API key, or if the endpoint of a configuration does not accept
// it. Without a configuration, only the form is checked. The error does not contain the text.
func CheckKey(c *config.Config, key string) error {
	if _, err := auth.HashKey(key); err != nil || c == nil {
		return err
	}
	k := keyOf(c, key)
	switch {
	case k == nil:
		return errors.New("this key is not in auth.api_keys of the configuration; junction keys create NAME --write " +
			"makes one")
	case !k.Expires.IsZero() && !time.Now().Before(k.Expires.Time):
		return fmt.Errorf("this key (%s) expired on %s; junction keys create %s --write makes another one", k.Name,
			k.Expires, k.Name)
	}
	return nil
}

// secret returns the API key; "" if there is none.
func (f *clientFlags) secret() string {
	return strings.TrimSpace(cmp.Or(f.key, os.Getenv("JUNCTION_KEY")))
}

// tellRemedy tells a person at a terminal which command says why the upstream of a tool does not work.
func (f *clientFlags) tellRemedy(ctx context.Context, w io.Writer, tool string) {
	if !cli.IsTerminal(w) {
		return
	}
	if name, state := f.broken(ctx, tool); state != "" {
		cli.Tellf(w, "%s does not work now (%s). %s shows what to do.\n", name, state,
			config.Command(*f.file, "status", name))
	}
}

// broken returns the upstream to which the name of a tool belongs, and its state, if that has no
// connection now; otherwise "".
func (f *clientFlags) broken(ctx context.Context, tool string) (name, state string) {
	for name, state := range admin.States(ctx, *f.file) {
		rest, its := strings.CutPrefix(tool, name)
		away := func(s upstream.State) bool {
			return s.String() == state && s != upstream.StateReady && s != upstream.StateClosed
		}
		if its && strings.HasPrefix(rest, "_") && slices.ContainsFunc(upstream.States(), away) {
			return name, state
		}
	}
	return "", ""
}

// askingTime is the default time limit of a call during which a person may be asked.
const askingTime = 10 * time.Minute

// usualTime is the default time limit otherwise. Junction ends a call of a silent server first, and tells why.
const usualTime = upstream.DefaultTimeout + 10*time.Second

// clientFlags are the common flags of tools and call.
type clientFlags struct {
	file    *string // the value of --config
	url     string  // "" means that of the running junction that serves the file
	key     string  // "" means $JUNCTION_KEY
	folder  string  // in which servers work; "" means the working directory
	located bool    // the endpoint learns the folder
	output  string
	timeout time.Duration
	prompts *prompter // nil without a terminal
	signIn  io.Writer // where a sign-in is announced; nil without a terminal
}

func (f *clientFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.url, "url", "", "`URL` of the endpoint (default: that of the running junction)")
	cmd.Flags().StringVar(&f.key, "key", "", "API `key` (default: $JUNCTION_KEY, which does not show up in ps)")
	cli.OutputFlag(cmd, &f.output)
	cmd.SetFlagErrorFunc(cli.FlagError)
	cmd.Flags().DurationVar(&f.timeout, "timeout", usualTime, "time limit for the whole command; 0 is none")
}

// interactive makes the command sign the person in where the endpoint requires it, and with ask also
// put questions to the person, if there is a terminal.
func (f *clientFlags) interactive(cmd *cobra.Command, ask bool) {
	if !cli.IsTerminal(cmd.InOrStdin()) {
		return
	}
	f.signIn = cmd.ErrOrStderr()
	if ask {
		f.prompts = newPrompter(cmd.InOrStdin(), cmd.ErrOrStderr())
	}
	if !cmd.Flags().Changed("timeout") {
		f.timeout = askingTime
	}
}

// outlast makes the time limit longer than those that the configuration file sets for a tool.
func (f *clientFlags) outlast(tool string) {
	if f.url != "" { // perhaps that of another file
		return
	}
	if c, err := config.LoadForCommand(*f.file); err == nil {
		f.timeout = max(f.timeout, longestOf(c, tool)+10*time.Second)
	}
}

// longestOf returns the longest limit that a configuration sets for a tool with an exposed name; 0 if it sets none. A
// name that begins with that of no upstream may be one of any.
func longestOf(c *config.Config, tool string) (longest time.Duration) {
	own := false
	for _, known := range c.Known() {
		name, its := strings.CutPrefix(tool, known.Begin)
		if its = its && known.Begin != ""; own && !its {
			continue
		}
		if its && !own {
			own, longest = true, 0
		}
		timeout, most := c.Upstreams[known.Name].LimitsOf(known.Name, name, c.Defaults)
		if timeout.From != "" {
			longest = max(longest, min(timeout.Duration, most.Duration))
		}
		if most.From != "" {
			longest = max(longest, most.Duration)
		}
	}
	return longest
}

// EndpointOf returns the URL of the running junction that serves a file. If none is known, it is the
// URL of the file, or the default; an error if another junction answers there, as CheckOwn finds out.
func EndpointOf(ctx context.Context, file string) (string, error) {
	if place, ok := runfile.Find(file); ok {
		return place.URL, nil
	}
	c, err := config.LoadPlaces(file)
	if err != nil { // a junction that serves the file goes on with the content that it has
		if served, running := admin.ServedAt(ctx, file); c != nil && running {
			return served.URL, nil
		}
		return "", err
	}
	if strings.HasSuffix(c.Listen, ":0") {
		return "", fmt.Errorf("%w with %s; start one: %s", admin.ErrNotRunning, file, runfile.Start(file))
	}
	own := runfile.URL(c.Listen)
	return own, cmp.Or(admin.ServesOther(file, c.Listen), admin.CheckOwn(ctx, file, c, "give --url "+own))
}

// connect checks the flags, connects to the endpoint, calls use, and disconnects. The progress of
// calls is written to report, which may be nil.
func (f *clientFlags) connect(ctx context.Context, report io.Writer, use func(context.Context, *endpoint) error) error {
	start := ""
	if f.url == "" {
		var err error
		if f.url, err = EndpointOf(ctx, *f.file); err != nil {
			return err
		}
		start = runfile.Start(*f.file)
	}
	key := f.secret()
	if err := CheckURL(f.url, key != ""); err != nil {
		return err
	}
	if f.timeout < 0 {
		return cli.Usagef("--timeout is negative")
	}
	if err := cli.CheckOutput(f.output); err != nil {
		return err
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, &lateError{f.url, f.timeout})
		defer cancel()
	}
	e, err := f.dial(ctx, key, report)
	if nobody, ok := errors.AsType[*unreachedError](err); ok {
		nobody.start = start
	}
	if err != nil {
		return err
	}
	defer e.close()
	return use(ctx, e)
}

// dial connects with the key, or with the sign-in of the person if the endpoint requires one.
func (f *clientFlags) dial(ctx context.Context, key string, report io.Writer) (*endpoint, error) {
	o := client.Options{URL: f.url, Headers: map[string]string{}}
	if f.located {
		header, err := FolderHeader(f.folder, f.url)
		if err != nil {
			return nil, err
		}
		maps.Copy(o.Headers, header)
	}
	switch {
	case key != "":
		o.Headers["Authorization"] = "Bearer " + key
	case CheckURL(f.url, true) == nil:
		var err error
		if o.Token, err = PersonalToken(f.url, f.signIn != nil, f.signIn); err != nil {
			return nil, err
		}
		if _, err := o.Token(ctx); err != nil { // before the time limits of connecting
			return nil, err
		}
	}
	return dial(ctx, o, report, f.prompts)
}

// PersonalToken returns the source of the person's access tokens for an endpoint, as in
// transport.HTTPOptions. The first request that requires a sign-in waits for it. ask allows to open a
// browser; its URL is also written to notes.
func PersonalToken(address string, ask bool, notes io.Writer) (
	func(ctx context.Context, refused ...string) (string, error), error,
) {
	state, err := config.StateDir(os.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("cannot find the folder for state: %w; set XDG_STATE_HOME", err)
	}
	person := signon.New(signon.Options{
		URL: address, Dir: filepath.Join(state, "junction", "signins"), Ask: ask, Notes: notes,
		Open: signon.OpenBrowser,
	})
	return func(ctx context.Context, refused ...string) (string, error) {
		token, err := person.Token(ctx, refused...)
		if err != nil {
			err = &transport.TokenError{Err: err}
		}
		return token, err
	}, nil
}

// CheckURL rejects values of --url that are no endpoint, or would send a credential in plain text
// over the network.
func CheckURL(text string, hasKey bool) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return cli.Usagef("--url %q is no endpoint; write it like http://127.0.0.1:8420/mcp", text)
	case hasKey && u.Scheme == "http" && !loopback.Host(u.Hostname()):
		return cli.Usagef("--url %q is not https: the key would cross the network in plain text; use an https URL",
			text)
	}
	return nil
}

// OnThisMachine reports whether an endpoint is at a loopback address.
func OnThisMachine(address string) bool {
	u, err := url.Parse(address)
	return err == nil && loopback.Host(u.Hostname())
}
