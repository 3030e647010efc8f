package setup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/service"
	"junction/upstream/prose"
)

// setupCommand is `junction setup`, which runs the other commands of this package in their order.
func setupCommand(stdout, stderr io.Writer, file *string) *cobra.Command {
	g := guide{stdout: stdout, stderr: stderr}
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Set up Junction: servers, service and clients",
		Long: `Set up Junction, step by step. The command

  1. finds the servers in the files of your MCP clients, shows what each would
     run, and asks which ones Junction should serve;
  2. asks for the values that they lack, and keeps them in the folder secrets
     beside the configuration, for your eyes only;
  3. links junction into ~/.local/bin, if your shell does not find it;
  4. starts Junction, as a service that starts again at each login;
  5. connects your clients to Junction, and removes from their files the servers
     that work in Junction.

It changes nothing before your answer. With --undo it makes all files what they
were before. Without a terminal it prints the commands that do the same.`,
		Example: `  junction setup
  junction setup --yes
  junction setup --undo`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			g.file, g.cmd = *file, cmd
			if g.undo {
				return g.undoAll(cmd.Context())
			}
			return g.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&g.undo, "undo", false, "undo the setup of this configuration file")
	cli.YesFlag(cmd, &g.yes)
	return cmd
}

// guide is one run of the command.
type guide struct {
	stdout, stderr io.Writer
	cmd            *cobra.Command
	file           string // the configuration file
	name           string // by which the shell finds this program: junction, or its path
	called         string // how to call this program, if this shell does not find it; "" if it does
	yes, undo      bool

	home   clients.Home
	record *record // what was done, for --undo
	// described are variables without a value that the file of a client describes.
	described []clients.Missing
	left      []string // variables whose values were left for later, and what they are for
	// changedCopy is the backup that the undo has made of a configuration that has changed since the setup.
	changedCopy string
	typed       *typedKey // the API key; nil if nobody is asked for it
	probes      *probes
	has         []string // clients whose files have Junction already
	kept        bool     // clients keep servers that do not work in Junction yet
}

// say prints a paragraph.
func (g *guide) say(format string, args ...any) {
	_ = cli.Tell(g.stdout, fmt.Sprintf(format+"\n", args...)) // a later step finds a closed output
}

// agree asks, or says yes with --yes.
func (g *guide) agree(question string) (bool, error) {
	if g.yes {
		return true, nil
	}
	return cli.QuestionsOf(g.cmd).YesNo(question, true)
}

// agreeAtTerminal asks before an undo, which needs a terminal or --yes.
func (g *guide) agreeAtTerminal(question string) (bool, error) {
	if !cli.CanAsk(g.cmd) {
		return false, cli.Usagef("setup --undo needs --yes, because standard input is not a terminal")
	}
	return cli.QuestionsOf(g.cmd).YesNo(question, true)
}

// run sets up Junction, step by step.
func (g *guide) run(ctx context.Context) (err error) {
	if g.home, err = clients.HomeOf(""); err != nil {
		return err
	}
	if g.file, err = config.File(g.file); err != nil {
		return err
	}
	g.name = callable()
	if !g.yes && !cli.CanAsk(g.cmd) {
		return g.commands()
	}
	if g.record, err = openRecord(g.file); err != nil {
		return err
	}
	if err := g.prepare(ctx); err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	if !g.record.stored {
		if err := g.record.noteEarlier(); err != nil {
			return err
		}
	}
	defer func() {
		if err != nil && g.record.stored && g.record.any() {
			err = fmt.Errorf("%w; to undo what was done: %s", err, g.command("setup", "--undo"))
		}
	}()
	added, err := g.servers(ctx)
	if err == nil {
		err = g.earlier(ctx)
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(g.file); err != nil {
		return g.withoutServers()
	}
	return g.use(ctx, added)
}

// withoutServers ends a setup that has found no servers.
func (g *guide) withoutServers() error {
	if err := g.link(); err != nil {
		return err
	}
	g.say("\nJunction has no servers yet. Add one, and run junction setup again:\n  %s\n  %s",
		g.command("search", "WORD"), g.command("add", "NAME", "--", "COMMAND"))
	g.sayCalled()
	return nil
}

// use starts Junction and connects the clients. added are the new servers.
func (g *guide) use(ctx context.Context, added []string) error {
	if text, err := revision.Read(g.file); err == nil {
		_ = config.WriteSchema(g.file, text) // the schema of an older program does no harm
	}
	if err := g.link(); err != nil { // the service and the clients get the path of the link
		return err
	}
	running, err := g.start(ctx, added)
	if err != nil {
		return err
	}
	ctx = g.cmd.Context() // an interrupt has ended only the waiting of start
	changed, failure := g.connect(ctx, running)
	g.finish(ctx, changed, running)
	return failure
}

// commands prints the commands that do the same, for a script or a person without a terminal.
func (g *guide) commands() error {
	start := firstStart(g.cmd.Context(), g.file)
	g.say("junction setup asks questions, which needs a terminal. Nothing was changed.\nThese commands do the same:\n"+
		"  %s\n  %s\n  %s\n  %s\nThis one answers yes to each question:\n  %s",
		g.command("import"), g.command("import", "--write", "--yes"),
		g.command("service", start), g.command("connect", "--all", "--replace"),
		g.command("setup", "--yes"))
	return errors.New("nothing was changed, because the questions need a terminal")
}

// firstStart returns the command of junction service that starts Junction with a file: install if there is a service
// manager and no service yet.
func firstStart(ctx context.Context, file string) string {
	h, err := service.ThisHost()
	if err != nil {
		return "start"
	}
	if s, err := h.Of(file); err != nil || s.Installed() || s.Reach(ctx) != nil {
		return "start"
	}
	return "install"
}

// servers adds the servers of the clients to the configuration, and returns the names of the added
// ones.
func (g *guide) servers(ctx context.Context) (added []string, err error) {
	i := importer{stdout: g.stdout, stderr: g.stderr, file: g.file, add: true, yes: g.yes, asks: !g.yes,
		brief: true, called: g.name}
	if err := i.read(); err != nil {
		return nil, err
	}
	g.file = i.file
	g.describe(i.outcomes)
	for _, o := range i.outcomes {
		if o.Own && !slices.Contains(g.has, o.Server.Client.ID) {
			g.has = append(g.has, o.Server.Client.ID)
		}
	}
	if err := i.print(); err != nil {
		return nil, err
	}
	if len(i.looks) == 0 {
		g.say("%s", strings.TrimRight(i.summary(ctx), "\n"))
		return nil, nil
	}
	if len(i.rows()) > 0 {
		fmt.Fprintln(g.stdout)
	}
	g.say("%s", strings.TrimRight(clients.Looks(cli.NewPage(g.stdout), i.newLooks()), "\n"))
	if err := g.choose(&i); err != nil {
		return nil, err
	}
	if len(i.looks) == 0 {
		g.say("No server was added.")
		return nil, nil
	}
	if err := g.values(&i); err != nil {
		return nil, err
	}
	return g.add(ctx, &i)
}

// add writes the new servers, and returns their names. The record has them before, so that an undo works if
// this process ends in the middle.
func (g *guide) add(ctx context.Context, i *importer) ([]string, error) {
	before, err := revision.Read(g.file)
	if err != nil {
		before = nil
	}
	g.record.begin(g.file, before)
	upstreams, secrets := g.record.Upstreams, g.record.Secrets
	g.record.Upstreams = append(g.record.Upstreams, i.fresh()...)
	if err := g.record.save(); err != nil { // nothing was changed yet
		return nil, err
	}
	i.note = func(file string) error {
		g.record.Secrets = append(g.record.Secrets, file)
		return g.record.save()
	}
	if err = i.ask(g.cmd); err == nil {
		err = i.write(ctx)
	}
	g.record.Upstreams, g.record.Secrets = slices.Clip(upstreams), slices.Clip(secrets)
	if err != nil {
		return nil, errors.Join(err, g.record.save())
	}
	i.next, i.follows = "", true // start prints the states
	added := i.fresh()
	g.record.wrote(i, added)
	if err := g.record.save(); err != nil {
		return nil, err
	}
	g.say("%s", strings.TrimRight(i.summary(ctx), "\n"))
	return added, nil
}

// fresh returns the names of the servers that are added.
func (i *importer) fresh() (names []string) {
	for _, o := range i.outcomes {
		if o.Result == clients.New {
			names = append(names, o.Name)
		}
	}
	return names
}

// choose asks which of the new servers are added, and drops the others.
func (g *guide) choose(i *importer) error {
	chosen, err := g.which("Which servers should Junction serve?", i.fresh())
	if err != nil {
		return err
	}
	i.outcomes = slices.DeleteFunc(i.outcomes, func(o clients.Outcome) bool {
		drop := o.Result == clients.New && !slices.Contains(chosen, o.Name)
		if drop {
			delete(i.looks, o.Server)
		}
		return drop
	})
	return nil
}

// which asks for some of all. The answer is a list of names; nothing means all.
func (g *guide) which(question string, all []string) ([]string, error) {
	if g.yes {
		return all, nil
	}
	for {
		line, err := cli.QuestionsOf(g.cmd).Line(question + "\n  " + strings.Join(all, ", ") +
			"\nNames, all, none, or -NAME to omit it [all]:")
		if err != nil {
			return nil, err
		}
		chosen, unknown := pick(line, all)
		if unknown == "" {
			return chosen, nil
		}
		cli.Tellf(g.cmd.ErrOrStderr(), "There is no %s here; answer all, none, names of the list, or -NAME to "+
			"omit it.\n", prose.Quote(unknown))
	}
}

// pick returns the elements of all that an answer names, and the first word that is none of them. An
// answer that begins with -NAME, or with all, means all but the names with a hyphen. Yes is all, and no
// is none, unless they are names.
func pick(line string, all []string) (chosen []string, unknown string) {
	words := strings.FieldsFunc(line, func(r rune) bool { return r == ',' || r == ' ' })
	if len(words) == 0 {
		return all, ""
	}
	named := func(name string) bool { return strings.EqualFold(name, words[0]) }
	if len(words) == 1 && !slices.ContainsFunc(all, named) {
		switch strings.ToLower(words[0]) {
		case "all", "y", "yes":
			return all, ""
		case "none", "n", "no":
			return nil, ""
		}
	}
	every := strings.EqualFold(words[0], "all")
	if every || strings.HasPrefix(words[0], "-") {
		chosen = slices.Clone(all)
	}
	if every {
		words = words[1:]
	}
	for _, word := range words {
		word, leave := strings.CutPrefix(word, "-")
		at := slices.IndexFunc(all, func(name string) bool { return strings.EqualFold(name, word) })
		if at < 0 {
			return nil, word
		}
		switch has := slices.Contains(chosen, all[at]); {
		case leave:
			chosen = slices.DeleteFunc(chosen, func(name string) bool { return name == all[at] })
		case !has:
			chosen = append(chosen, all[at])
		}
	}
	return chosen, ""
}

// finish says what the person has to do.
func (g *guide) finish(ctx context.Context, changed []*clients.Client, running bool) {
	fmt.Fprintln(g.stdout)
	for _, line := range restart(changed, "junction") {
		g.say("%s", line)
	}
	if how := afterReboot(ctx, g.file, g.command); how != "" && len(g.record.Clients) > 0 {
		g.say("After a reboot, the clients have no servers of Junction until it runs; %s", how)
	} else if how != "" && running {
		g.say("After a reboot, Junction does not run by itself; %s", how)
	}
	if line := g.cron(ctx); line != "" && running {
		g.say("To start it with the machine, add this line with crontab -e:\n  %s", prose.OneLine(line))
	}
	for _, name := range g.signIns(ctx) {
		g.say("Sign in to %s with: %s", prose.OneLine(name), g.command("login", name))
	}
	for _, line := range g.folders() {
		g.say("%s", line)
	}
	if g.kept {
		g.say("%s", replaceLater(g.command))
	}
	if len(g.left) > 0 {
		folder := g.home.Short(filepath.Join(filepath.Dir(g.file), "secrets"))
		g.say("Left for later: %s. %s asks again, and keeps the values in %s.", strings.Join(g.left, ", "),
			g.command("setup"), prose.OneLine(folder))
	}
	g.say("Look at the servers with: %s\nUndo all of it with: %s", g.command("status"),
		g.command("setup", "--undo"))
	g.sayCalled()
}

// sayCalled says how to call this program, if this shell does not find it.
func (g *guide) sayCalled() {
	if g.called != "" {
		g.say("%s", g.called)
	}
}

func (g *guide) short() string { return prose.OneLine(g.home.Short(g.file)) }
