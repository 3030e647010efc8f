package entries

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/base/yamledit"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/ops/admin"
	"junction/cmd/pack/plan"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// adder is one run of `junction add`.
type adder struct {
	folder       string // of a pack, as a person has typed it
	stdout       io.Writer
	file         *string
	env, headers []string
	set          []string // values for inputs of a server of the registry
	transport    string
	registry     string // base URL; "" means the default
	via          string // how to run a server of the registry; "" chooses
	json, yes    bool
	auth         string // the mode of --auth
	oauth        bool   // the short form of one mode

	given  clients.Given
	server string // its name in the registry; "" for a command or URL
	values map[string][]string
}

// addCommand is `junction add`.
func addCommand(stdout io.Writer, file *string) *cobra.Command {
	a := adder{stdout: stdout, file: file}
	cmd := &cobra.Command{
		Use:   "add NAME (-- COMMAND [ARG ...] | URL | FOLDER | SERVER)",
		Short: "Add an upstream to the configuration file",
		Long: `Add an upstream to the configuration file: a command, after --, a remote server by its URL, a pack of
tools by its folder, or a server of the MCP registry by its name there, such as io.github.user/weather.
junction search finds such names. The path of a folder begins with ./, ../, ~/ or /.

Comments and order of the file stay. The new file is checked before it is written, and the old file becomes a
backup. If there is no file, the command creates it. A running junction reloads the file by itself.

Values may have references: ${NAME} is an environment variable of Junction, ${file:PATH} the content of a file.
--env NAME without a value is short for --env NAME='${NAME}'. Literal secrets go to files in the folder secrets
beside the configuration. Flags of this command stand before --; those after it belong to COMMAND.

For a server of the registry you can leave out NAME. Give the inputs that it needs by --env, --header and --set; a
required header that you do not give becomes a reference to a variable. npx runs npm packages, uvx PyPI packages,
and docker OCI images. Look at the source of a server before you add it: it runs with your rights.

For a server of the registry and for a pack, the command shows what would run, be sent and be read, and asks.
--yes answers for scripts.`,
		Example: `  junction add notes -- npx -y notes-mcp --folder /srv/notes
  junction add github --env GITHUB_TOKEN -- docker run -i --rm -e GITHUB_TOKEN ghcr.io/github/github-mcp-server
  junction add dev ./packs/dev
  junction add linear https://mcp.linear.app/mcp --oauth
  junction add search https://search.example.com/mcp --header 'Authorization: Bearer ${SEARCH_TOKEN}'
  junction add io.github.user/files --via npm --set folder=/srv/files`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.run(cmd, args) },
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if named := cli.FlagError(cmd, err); strings.Contains(named.Error(), "did you mean") {
			return named
		}
		return cli.Usagef("%w; the flags of a command stand after --: junction add NAME -- COMMAND", err)
	})
	flags := cmd.Flags()
	flags.StringArrayVarP(&a.env, "env", "e", nil,
		"an environment variable of the command, `NAME=VALUE`; may be repeated")
	flags.StringArrayVarP(&a.headers, "header", "H", nil, "a header for the URL, `'NAME: VALUE'`; may be repeated")
	flags.StringVar(&a.given.Dir, "cwd", "", "working `folder` of the command (default: the current one if the "+
		"command has relative paths, else that of Junction)")
	flags.StringVar(&a.transport, "transport", detected, "`transport` of the URL: "+transports())
	flags.StringVar(&a.auth, "auth", "", "`mode` of the credentials for the server: "+
		strings.Join(flagModes(upstream.Modes()), ", "))
	flags.BoolVar(&a.oauth, operatorMode.String(), false, "short for --auth "+operatorMode.String()+
		": the server needs a sign-in, junction login NAME")
	flags.BoolVar(&a.given.Off, "disabled", false, "add the upstream without enabling it")
	flags.StringArrayVar(&a.set, "set", nil, "a value for an input of a server of the registry, `NAME=VALUE`; may be "+
		"repeated")
	flags.StringVar(&a.via, "via", "", "`way` to run a server of the registry: remote, npm, pypi or oci (default: "+
		"the first that is possible)")
	flags.StringVar(&a.registry, "registry", "", registryUsage)
	flags.BoolVar(&a.json, "json", false, "print JSON")
	flags.BoolVar(&a.yes, "yes", false, "do not ask") // -y belongs to npx, and would hide a missing --
	return cmd
}

// run adds the server to the file. If that fails, no file stays behind.
func (a *adder) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	name, err := a.arguments(args, cmd.ArgsLenAtDash())
	if err != nil {
		return err
	}
	late, err := lateFlags(cmd, args)
	if err != nil {
		return err
	}
	if err := a.flags(); err != nil {
		return err
	}
	e, err := Edit(a.stdout, *a.file, a.json, true)
	if err == nil {
		err = e.OnlyFile(*a.file)
	}
	if err != nil {
		return err
	}
	e.Enter = cli.EnterOf(cmd)
	if err := e.Free(name); err != nil {
		return err
	}
	entry, notes, err := a.entry(ctx, name, e)
	if err != nil {
		return err
	}
	notes = append(notes, late...)
	about, next := entry.Summary(), ""
	if entry.Pack != "" {
		about = "pack " + entry.Pack
	}
	if a.server != "" && entry.Runs() { // the author of the server has chosen the command
		about = shell.Join(entry.CommandLine()...)
	}
	if err := a.review(cmd, name, entry, e); err != nil {
		return err
	}
	if p, ok := e.More.(*plan.Plan); ok {
		notes = append(notes, a.unreached(name, p, e)...)
	}
	_, running := admin.ServedAt(ctx, e.Path()) // it reports what it cannot reach or start
	if program := entry.Lacks(Lookup); program != "" && !running {
		notes = append(notes, clients.NotInstalled(program)+".")
	}
	added := &New{Name: name, Entry: entry}
	rows := Progress(cmd)
	if a.json {
		rows = nil
	}
	if err := Ask(ctx, e.Config(), []*New{added}, rows); err != nil {
		return err
	}
	err = Folders(cmd, []*New{added}, a.yes)
	if err == nil {
		e.Permits, err = Permitting(cmd, e.config, e.path, &e.home, []*New{added}, nil, a.yes)
	}
	if err != nil {
		return err
	}
	if added.Note != "" && !(added.Unreached && running) {
		notes = append(notes, added.Note)
	}
	if !running { // else the state follows, with the reason
		notes = append(notes, Silent(e.path, []*New{added})...)
	}
	if lines := SignIns(e.path, []*New{added}); len(lines) > 0 {
		next = lines[0]
	}
	return e.Add(ctx, name, entry, about, notes, next)
}

// unreached returns the note about variables that a pack reads and does not get: a process gets only
// those that its entry names.
func (a *adder) unreached(name string, p *plan.Plan, e *Editor) []string {
	var flags []string
	for _, variable := range p.Variables {
		if _, given := a.given.Env[variable]; !given {
			flags = append(flags, "--env", variable)
		}
	}
	if len(flags) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("The pack reads variables that do not reach it. To pass them, run: %s && %s",
		e.Command("remove", name), e.Command(slices.Concat([]string{"add", name, a.folder}, flags)...))}
}

// review shows what a server of the registry, or a pack, would run, and asks. What a person has typed
// is added without a question.
func (a *adder) review(cmd *cobra.Command, name string, entry *clients.Entry, e *Editor) error {
	text := ""
	switch {
	case a.server != "":
		look, err := entry.Look(name, a.server+" of the registry")
		if err != nil {
			return fmt.Errorf("cannot add %s: %w", name, err)
		}
		e.Look, text = look, clients.Looks(cli.NewPage(a.stdout), []*clients.Look{look})
	case entry.Pack != "":
		folder := entry.Pack
		if !filepath.IsAbs(folder) {
			folder = filepath.Join(filepath.Dir(e.Path()), folder)
		}
		p, err := plan.OfOwn(cmd.Context(), folder)
		if err != nil {
			return fmt.Errorf("cannot show what the pack would run: %w", err)
		}
		e.More, text = p, p.Text()
	default:
		return nil
	}
	if a.json && !a.yes && !cli.CanAsk(cmd) { // the output says what would run
		o := outcome{Config: e.Path(), Upstreams: []string{name}, Pack: e.More, Look: e.Look}
		if err := cli.PrintValue(a.stdout, o); err != nil {
			return err
		}
	}
	question := fmt.Sprintf("Add %s to %s?", name, prose.OneLine(e.Short()))
	return Review(cmd, a.stdout, a.json, a.yes, text, question)
}

// flags reads the flags.
func (a *adder) flags() error {
	g := &a.given
	row, err := a.mode()
	if err != nil {
		return err
	}
	if err := a.misplaced(row); err != nil {
		return err
	}
	var transport client.Transport
	if err := transport.UnmarshalText([]byte(a.transport)); err != nil {
		return cli.Usagef("--transport is %s, not %q", transports(), a.transport)
	}
	g.Transport = transport.Needed()
	if err := UseEnv(g, a.env); err != nil {
		return err
	}
	if err := a.pairs(); err != nil {
		return err
	}
	if g.Dir != "" && !strings.HasPrefix(g.Dir, "~/") && !strings.Contains(g.Dir, "${") {
		dir, err := filepath.Abs(g.Dir)
		g.Dir = dir
		return err
	}
	return nil
}

// misplaced returns the error about a flag that is for another kind of server. row is that of the mode.
func (a *adder) misplaced(row upstream.Mode) error {
	g, ofRegistry := &a.given, a.server != ""
	kind := client.ServerKindOf(g.Command, g.URL) // a pack is a command
	switch {
	case !ofRegistry && (len(a.set) > 0 || a.via != "" || a.registry != ""):
		return cli.Usagef("--set, --via and --registry are for a server of the registry")
	case ofRegistry && a.transport != detected:
		return cli.Usagef("--transport is for a URL; the registry names the transport of %s", a.server)
	case ofRegistry: // its entry in the registry decides
	case !kind.HTTP && len(a.headers) > 0:
		return cli.Usagef("--header is for a URL; a command takes --env")
	case !kind.HTTP && (!row.Has(kind) || a.transport != detected):
		return cli.Usagef("%s and --transport are for a URL", a.authFlag())
	case !row.Has(kind):
		return cli.Usagef("%s is for a command", a.authFlag())
	case !kind.Process && (len(a.env) > 0 || g.Dir != ""):
		return cli.Usagef("--env and --cwd are for a command; a URL takes --header")
	}
	return nil
}

// pairs reads the flags with a name and a value.
func (a *adder) pairs() error {
	a.given.Headers = map[string]string{}
	for _, field := range a.headers {
		name, value, ok := strings.Cut(field, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return cli.Usagef("--header needs 'NAME: VALUE'")
		}
		a.given.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	a.values = map[string][]string{}
	for _, pair := range a.set {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return cli.Usagef("--set needs NAME=VALUE")
		}
		a.values[name] = append(a.values[name], value)
	}
	return nil
}

// operatorMode is the mode that has a flag of its own.
var operatorMode = upstream.SignInMode(upstream.OwnerOperator)

// detected is the default of --transport.
var detected = client.TransportAuto.Words()[0]

// transports names the words of --transport.
func transports() string {
	words := client.TransportAuto.Words()
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// mode reads --auth and its short form into given, and returns the row of the mode.
func (a *adder) mode() (row upstream.Mode, err error) {
	if a.oauth && a.auth != "" && a.auth != operatorMode.String() {
		return row, cli.Usagef("--%s is short for --auth %s; leave out one of the two", operatorMode, operatorMode)
	}
	if a.oauth {
		a.auth = operatorMode.String()
	}
	if a.given.Auth = a.auth; a.auth == "" {
		return upstream.AuthMode("").Row(), nil
	}
	mode, err := upstream.ParseMode(a.auth)
	if err != nil {
		return row, cli.Usagef("--auth: %w", err)
	}
	row = mode.Row()
	return row, lackedKeys(row)
}

// flagModes returns the words of the modes that need no other key of auth, because no flag gives one.
func flagModes(rows []upstream.Mode) (words []string) {
	for _, row := range rows {
		if len(row.AuthNeeds)+len(row.AuthOne) == 0 {
			words = append(words, row.Word.String())
		}
	}
	return words
}

// lackedKeys returns the error about a mode that needs other keys of auth.
func lackedKeys(row upstream.Mode) error {
	needs := slices.Clone(row.AuthNeeds)
	if len(row.AuthOne) > 0 {
		needs = append(needs, row.AuthOne[0])
	}
	if len(needs) == 0 {
		return nil
	}
	return cli.Usagef("--auth %s needs auth.%s, which no flag gives; add the server without --auth, and write "+
		"auth: { mode: %[1]s, %[3]s: … } into its entry", row.Word, strings.Join(needs, " and auth."),
		strings.Join(needs, ": …, "))
}

// authFlag returns the flag of the mode, for an error.
func (a *adder) authFlag() string {
	if a.oauth || a.auth == "" {
		return "--" + operatorMode.String()
	}
	return "--auth " + a.auth
}

// entry returns the entry, and notes for the user.
func (a *adder) entry(ctx context.Context, name string, e *Editor) (*clients.Entry, []string, error) {
	if a.server != "" {
		return a.fromRegistry(ctx, name, e.home)
	}
	if a.given.Pack != "" {
		var err error
		if a.given.Pack, err = packPath(a.given.Pack, e.file); err != nil {
			return nil, nil, err
		}
	}
	entry, err := e.Entry(a.given)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot add %s: %w", name, err)
	}
	var notes []string
	for _, note := range entry.Notes {
		notes = append(notes, "Note: "+note+".")
	}
	return entry, notes, nil
}

// with returns the text of the file with a new upstream. It stores the upstream's secrets in keep.
func (f *file) with(name string, entry *clients.Entry, keep *clients.SecretFiles) ([]byte, error) {
	if f.text == nil {
		if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
			return nil, err
		}
	}
	block, flow, err := entry.YAML(name, "", keep.Store)
	if err != nil {
		return nil, fmt.Errorf("cannot add %s: %w", name, err)
	}
	text, err := f.adding(yamledit.Entry{Block: block, Flow: flow})
	if err != nil && len(f.problems) > 0 {
		return nil, runfile.Unchanged(f.path, f.problems)
	}
	return text, err
}
