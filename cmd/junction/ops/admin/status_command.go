package admin

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/revision"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/prose"
)

// statusEvery is the interval of --watch.
const statusEvery = 2 * time.Second

// statusCommand is `junction status`.
func statusCommand(stdout io.Writer, file *string, moved ClientFaults) *cobra.Command {
	s := statusOptions{stdout: stdout, file: file, moved: moved}
	cmd := &cobra.Command{
		Use:               "status [NAME ...]",
		ValidArgsFunction: cli.CompleteUpstreams(file, 100),
		Short:             "Show the upstreams of a running junction",
		Long: `Show the upstreams of a running junction: state, full error and remedy, tools, processes with the
folders of clients, their memory, calls in progress, and the last call. The command asks the admin address of
the process that serves the configuration file.

The exit code is 1 if no junction is running. junction doctor checks the upstreams end to end.`,
		Example: `  junction status
  junction status github --watch
  junction status --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			s.only = args
			if err := checkAdmin(cmd, s.admin); err != nil {
				return err
			}
			if own, err := config.File(""); err == nil && *s.file == "" { // a command has no file that was deleted
				if _, running := runfile.Present(own); running {
					s.file = &own
				}
			}
			if s.watch {
				return s.repeat(cmd.Context(), s.ask)
			}
			r, err := s.ask(cmd.Context())
			if err == nil && s.admin == "" && !s.current(r) {
				r, err = s.settled(cmd.Context())
			}
			if err != nil {
				return err
			}
			return s.show(r, nil)
		},
	}
	adminFlag(cmd, &s.admin)
	cmd.Flags().BoolVarP(&s.watch, "watch", "w", false, "refresh every two seconds, until interrupted")
	cli.JSONFlag(cmd, &s.json)
	return cmd
}

// statusOptions are the arguments of the command.
type statusOptions struct {
	stdout io.Writer
	file   *string
	admin  string
	only   []string // names of upstreams; empty means all
	watch  bool
	json   bool
	moved  ClientFaults // finds the clients with another address of Junction
	last   string       // the last output of --watch
}

// ask returns the status of the running proxy, with the wanted upstreams.
func (s *statusOptions) ask(ctx context.Context) (*diagnose.Running, error) {
	address, err := adminAddress(ctx, s.admin, *s.file)
	if err != nil {
		return nil, err
	}
	var r diagnose.Running
	if address == "" {
		err = ErrNotRunning
	} else {
		err = adminRequest{path: "/status", owner: true}.send(ctx, address, diagnose.Patience, &r)
	}
	switch {
	case errors.Is(err, ErrNotRunning) && *s.file != "" && s.admin == "":
		return nil, notRunning(*s.file)
	case errors.Is(err, ErrNotRunning):
		return nil, fmt.Errorf("%w; start one, or name its file with --config", err)
	case err != nil:
		return nil, err
	}
	var known []string
	for _, u := range r.Upstreams {
		known = append(known, u.Name)
	}
	for _, name := range s.only {
		if slices.Contains(r.Disabled, name) {
			return nil, fmt.Errorf("%s is disabled; run: %s", name, config.Command(*s.file, "enable", name))
		}
		if slices.Contains(known, name) {
			continue
		} else if at, removed := r.Reloaded.Removed(name); removed {
			return nil, fmt.Errorf("there is no upstream %s any more; it was removed from the file %s ago",
				prose.Quote(name), prose.Age(time.Since(at)))
		} else {
			return nil, fmt.Errorf("there is no upstream %s; %s", prose.Quote(name),
				prose.DidYouMean(known, name, config.Command(*s.file, "list")+" shows the upstreams of the file"))
		}
	}
	if len(s.only) > 0 {
		r.Disabled, r.Reloaded = nil, nil
		r.Upstreams = slices.DeleteFunc(r.Upstreams,
			func(u diagnose.UpstreamStatus) bool { return !slices.Contains(s.only, u.Name) })
	}
	return &r, nil
}

// settleLimit is how long status waits until the running junction has read a changed file. It is longer than the
// junction waits for the end of a file that is being written.
const settleLimit = 4 * time.Second

// current reports whether a status is that of the present content of the file.
func (s *statusOptions) current(r *diagnose.Running) bool {
	if *s.file == "" { // the junction serves the file of another home folder, or none
		return true
	}
	sum, err := config.Checksum(*s.file)
	return err != nil && s.gone(r) == "" || r.Read == "" || r.Read == hex.EncodeToString(sum[:])
}

// gone says that the file does not exist any more; "" if it does, or if it may be that of another machine, such as a
// container.
func (s *statusOptions) gone(r *diagnose.Running) string {
	_, err := os.Lstat(r.File)
	if p, own := runfile.Find(r.File); !own || p.PID != r.PID || !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	short := func(path string) string { return prose.OneLine(prose.Tilde(path)) }
	kept, _ := config.LastGood(os.LookupEnv, r.File)
	return short(r.File) + " is gone, and Junction goes on with the content that it has" +
		revision.Lost(r.File, kept, short)
}

// settled returns the status after the running junction has read the file, or what is wrong with the file if the
// junction has not read it.
func (s *statusOptions) settled(ctx context.Context) (*diagnose.Running, error) {
	limited, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	_, _ = AwaitReload(limited, *s.file) // the status shows the result
	r, err := s.ask(ctx)
	if err != nil || s.current(r) {
		return r, err
	}
	if r.Gone = s.gone(r); r.Gone != "" {
		return r, nil
	}
	r.Reload = "the file has changed, and Junction has not read it yet"
	if broken, err := config.Broken(*s.file); err == nil && broken != "" {
		r.Reload += "; it has a mistake: " + broken
	}
	return r, nil
}

// notRunning returns the error for a file that no junction serves: how the last process has ended, the first
// mistake of the file, and the next step.
func notRunning(file string) error {
	text, next := "", "start one: "
	if ended := runfile.Ended(file); ended != "" {
		text = "; the last one: " + prose.Flat(ended)
	}
	if broken, err := config.Broken(file); err == nil && broken != "" {
		text, next = text+"; the file has a mistake: "+prose.Flat(broken), "correct it, then start one: "
	}
	return fmt.Errorf("%w with %s%s; %s%s", ErrNotRunning, file, text, next, runfile.Start(file))
}

// repeat asks and shows again and again until ctx ends, or until show fails. An error of ask is shown.
func (s *statusOptions) repeat(ctx context.Context, ask func(context.Context) (*diagnose.Running, error)) error {
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	for {
		r, err := ask(ctx)
		if ctx.Err() != nil {
			return nil // the person has seen enough
		}
		if err := s.show(r, err); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// show prints a status, or why there is none. With --watch a terminal is redrawn; anything else gets
// what has changed, as JSON in one line.
func (s *statusOptions) show(r *diagnose.Running, failed error) error {
	b := cli.NewPage(s.stdout)
	switch {
	case s.json && failed != nil:
		cli.PrintErrorJSON(b, failed)
	case s.json:
		write := cli.PrintValue
		if s.watch {
			write = cli.PrintLine
		}
		if err := write(b, r); err != nil {
			return err
		}
	case failed != nil:
		b.Wrap("", "", prose.Flat(failed.Error()))
	default:
		if text := whose(r); *s.file == "" && s.admin == "" && text != "" {
			b.Wrap("", "", text)
		}
		writeStatus(b, r, time.Now())
		s.writeMoved(b, r)
		if background, ok := runfile.InBackground(r.Config); ok {
			b.Wrap("\nLog: ", "  ", prose.Flat(prose.Tilde(background.Log)))
		}
	}
	if s.watch {
		if b.String() == s.last {
			return nil
		}
		s.last = b.String()
		switch {
		case s.json:
		case cli.IsTerminal(s.stdout) && os.Getenv("TERM") != "dumb":
			width, height := cli.TerminalSize(s.stdout)
			_, err := fmt.Fprint(s.stdout, "\x1b[H\x1b[J", screenful(b.String(), width, height)) // top left, clear
			return err
		default:
			b.WriteByte('\n') // between two tables
		}
	}
	if s.json {
		_, err := b.WriteTo(s.stdout)
		return err
	}
	return cli.Tell(s.stdout, b.String())
}

// writeMoved writes which clients of this user have another address of the junction.
func (s *statusOptions) writeMoved(b *prose.Page, r *diagnose.Running) {
	if s.moved == nil || r.Config == "" || len(s.only) > 0 {
		return
	}
	for _, f := range s.moved(r.Config) {
		b.Wrap("\n", "  ", prose.Flat(prose.Tilde(f.Text)))
		fmt.Fprintf(b, "  → %s\n", prose.Flat(prose.Tilde(f.Advice))) // whole, to be copied
	}
}

// screenful returns as much of a text as a terminal shows without scrolling, so that its beginning, with
// the broken upstreams, stays in sight.
func screenful(text string, width, height int) string {
	if height < 3 {
		return text
	}
	text = cli.Fit(text, width)
	rows, lines := 0, strings.SplitAfter(text, "\n")
	for i, line := range lines {
		rows += max(1, (utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))+width-1)/max(1, width))
		if rows >= height-1 && i < len(lines)-2 {
			return strings.Join(lines[:i], "") + cli.Fit(fmt.Sprintf("… %d more lines; junction status shows all\n",
				len(lines)-1-i), width)
		}
	}
	return text
}

// writeStatus writes the table of the upstreams, the broken ones first. Below a row is its error,
// uncut, and the remedy.
func writeStatus(b *prose.Page, r *diagnose.Running, now time.Time) {
	fmt.Fprintf(b, "Junction serves %s%s.\n", runfile.Addresses(r.URL, r.Public),
		fileSuffix(r.Config))
	fmt.Fprintf(b, "%s.\n", diagnose.Summary(r.Upstreams))
	offers := prose.Count(r.Tools, "tool")
	if r.Skills > 0 {
		offers += " and " + prose.Count(r.Skills, "skill")
	}
	fmt.Fprintf(b, "Junction %s is %s, offers %s, and has run for %s.\n", prose.Flat(r.Version), r.Status, offers,
		prose.Age(now.Sub(r.Started)))
	if r.Installed != "" {
		b.Wrap("", "", "The program on disk is "+prose.Flat(r.Installed)+". "+toRun(r))
	}
	for _, part := range r.Parts {
		if !part.OK {
			b.Wrap("", "  ", part.Name+": "+prose.Flat(part.Error))
		}
	}
	if line := r.Certificate.Sentence(now); line != "" {
		b.Wrap("", "", line)
	}
	for _, line := range r.Unfollowed() {
		b.Wrap("", "", prose.Tilde(line))
	}
	switch n := len(r.Warnings) + r.MoreWarnings; n {
	case 0:
	case 1:
		b.WriteString("The file has 1 warning, which follows the table.\n")
	default:
		fmt.Fprintf(b, "The file has %s, which follow the table.\n", prose.Count(n, "warning"))
	}
	writeReplicas(b, r, now)
	b.WriteByte('\n')
	rows := [][]string{{"UPSTREAM", "STATE", "TOOLS", "PROCESSES", "MEMORY", "LAST CALL"}}
	list := diagnose.BrokenFirst(r.Upstreams)
	for i := range list {
		rows = append(rows, statusRow(&list[i], now))
	}
	for i, line := range cli.Aligned(rows, len(rows[0]), b.Terminal, "PROCESSES", "MEMORY") {
		b.WriteString(line + "\n")
		if i == 0 {
			continue
		}
		u := &list[i-1]
		for _, text := range []string{u.Error, u.Note} {
			if text != "" {
				b.Wrap("    ", "    ", prose.Tilde(prose.Flat(text)))
			}
		}
		for _, c := range u.Stuck {
			b.Wrap("    ", "      ", c.String())
		}
		if u.MoreStuck > 0 {
			b.Wrap("    ", "      ", fmt.Sprintf("and %d more", u.MoreStuck))
		}
		if u.Advice != "" {
			b.Wrap("    → ", "      ", prose.Tilde(prose.Flat(u.Advice)))
		}
		for i := range u.Secrets {
			if u.Error != "" && u.Secrets[i].At.IsZero() { // the error says why
				continue
			}
			b.Wrap("    ", "      ", prose.Tilde(u.Secrets[i].Shown(now)))
		}
		for _, text := range u.Sends {
			b.Wrap("    ", "      ", prose.Tilde(prose.Flat(text)))
		}
		processes, more := u.FewProcesses()
		for _, c := range processes {
			b.Wrap("    ", "      ", fmt.Sprintf("process %d, %s old%s", c.PID, prose.Age(now.Sub(c.Started)), c.Use()))
		}
		if more > 0 {
			b.Wrap("    ", "      ", fmt.Sprintf("and %d more; %s --json shows all", more,
				config.Command(r.Config, "status", u.Name)))
		}
	}
	if len(r.Upstreams) == 0 {
		b.WriteString("no upstreams are enabled\n")
	}
	if len(r.Disabled) > 0 {
		b.Wrap("\nDisabled: ", "  ", strings.Join(r.Disabled, ", "))
	}
	for i := range r.Reloaded {
		title := "Change of the file, "
		if i == 0 {
			title = "\nLast change of the file, "
		}
		b.Wrap(title+prose.Age(now.Sub(r.Reloaded[i].Time))+" ago: ", "  ", prose.Flat(r.Reloaded[i].String()))
	}
	if line := staleVariables(r); line != "" {
		b.Wrap("\n", "  ", line)
	}
	if n := len(r.Problems); n > 0 {
		fmt.Fprintf(b, "\n%s of tools: %s\n", prose.Count(n, "problem"), config.Command(r.Config, "doctor"))
	}
	if len(r.Warnings)+r.MoreWarnings > 0 {
		b.WriteByte('\n')
		writeWarnings(b, r)
	}
}

// staleVariables returns that the file with the variables of the service has changed since the process read it, at its
// start; "" if it has not.
func staleVariables(r *diagnose.Running) string {
	if r.Variables == "" {
		return ""
	}
	info, err := os.Stat(r.Variables)
	if err != nil || !info.ModTime().After(r.Started) {
		return ""
	}
	return fmt.Sprintf("%s has changed since Junction started, and is read only then; run: %s",
		prose.Flat(prose.Tilde(r.Variables)), config.Command(r.Config, "service", "restart"))
}

// toRun says how a person restarts Junction, so that the program on disk runs. Only a service of the user, and a
// process in the background, have a command for it.
func toRun(r *diagnose.Running) string {
	if _, background := runfile.InBackground(r.Config); background || r.Variables != "" {
		return "To run it: " + config.Command(r.Config, "service", "restart")
	}
	return fmt.Sprintf("To run it, end the process %d, and start Junction again as you did: %s", r.PID,
		config.Start(r.Config))
}

// mostWarnings is the most warnings of the file that status prints; --json has more.
const mostWarnings = 8

// writeWarnings writes a line for each likely mistake of the file in force.
func writeWarnings(b *prose.Page, r *diagnose.Running) {
	shown := r.Warnings[:min(len(r.Warnings), mostWarnings)]
	for _, w := range shown {
		b.Wrap("Warning: ", "  ", prose.Flat(prose.Tilde(w.String())))
	}
	if more := len(r.Warnings) - len(shown) + r.MoreWarnings; more > 0 {
		b.Wrap("", "  ", prose.Count(more, "more warning")+"; "+config.Command(r.Config, "check")+" shows all")
	}
}

// writeReplicas writes a line for each process over the same database, if there may be several.
func writeReplicas(b *prose.Page, r *diagnose.Running, now time.Time) {
	for _, m := range r.Replicas {
		line := fmt.Sprintf("%s, version %s, for %s", m.Address, m.Version, prose.Age(now.Sub(m.Begun)))
		switch {
		case m.Self:
			line += "; this process"
		case m.Error != "":
			line += "; cannot connect: " + m.Error
		}
		if m.Configuration > 0 {
			line += fmt.Sprintf("; configuration number %d", m.Configuration)
		}
		if m.Draining {
			line += "; is stopping"
		}
		for i, d := range m.Differs {
			line += [...]string{"; differs in ", ", "}[min(i, 1)] + d.String() + " since " +
				d.Since.Format(time.RFC3339)
		}
		b.Wrap("Replica at ", "  ", prose.Flat(line))
	}
}

// statusRow returns the cells of an upstream.
func statusRow(u *diagnose.UpstreamStatus, now time.Time) []string {
	row := []string{prose.Flat(u.Name), u.Shown(now), strconv.Itoa(u.Tools), "-", "-", "-"}
	if u.State == diagnose.PerUser {
		row[2] = "-" // each user has their own
	}
	if u.Processes > 0 {
		row[3] = strconv.Itoa(u.Processes)
	}
	if u.Memory > 0 {
		row[4] = fmt.Sprintf("%d MB", (u.Memory+500_000)/1_000_000)
	}
	var calls []string
	if u.Calls > 0 {
		calls = append(calls, fmt.Sprintf("%d in progress", u.Calls))
	}
	if u.Waiting > 0 {
		calls = append(calls, fmt.Sprintf("%d waiting", u.Waiting))
	}
	if c := u.LastCall; c != nil {
		calls = append(calls, fmt.Sprintf("%s %s ago, %s", prose.Cut(cmp.Or(prose.Flat(c.Name), "?"), 40),
			prose.Age(now.Sub(c.Time)), c.Outcome))
	}
	if len(calls) > 0 {
		row[5] = strings.Join(calls, "; ")
	}
	return row
}
