package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/secrets"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream"
	"junction/upstream/prose"
)

// noticeAfter is how long doctor is silent.
const noticeAfter = 3 * time.Second

// A ClientFault is a fault of a client of this user, with its remedy.
type ClientFault struct{ Text, Advice string }

// ClientFaults returns the faults of the clients that are connected to the Junction of a configuration file. Nil
// finds none.
type ClientFaults func(file string) []ClientFault

// Connected finds the faults of connected clients: all, and those that have another address of Junction.
type Connected struct{ Faults, Moved ClientFaults }

// doctorCommand is `junction doctor`.
func doctorCommand(stdout io.Writer, version string, file *string, connected ClientFaults) *cobra.Command {
	var admin, output string
	cmd := &cobra.Command{
		Use:               "doctor [UPSTREAM ...]",
		ValidArgsFunction: cli.CompleteUpstreams(file, 100),
		Short:             "Check the upstreams end to end",
		Long: `Check the upstreams end to end: open another connection, list everything, and check the definitions. The
report names each fault and its remedy. Without UPSTREAM, it also names the rules of policies that match no tool,
prompt, resource or skill of the upstreams, the warnings of the file, and the clients of yours whose API key is
missing, not accepted or readable for others, or that have another address of this Junction.

ERA is the protocol that a server speaks: modern is MCP 2026-07-28, legacy is 2025-11-25 or older. START, HANDSHAKE,
LIST and PING are the times of the steps.

The running proxy does the check, at its admin address: --admin, or that of the file, or ` + config.DefaultAdmin + `.
If no proxy is running, --config FILE starts the upstreams of the file for the check, with the variables of
FILE.environment, and then those of this shell.

The exit code is 1 if an item is missing for clients, a connection of a user does not work or a sandbox is not
enforced, and 0 if only some clients may have problems.`,
		Example: `  junction doctor
  junction doctor github --output json
  junction doctor --config config.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := cmp.Or(cli.CheckOutput(output), checkAdmin(cmd, admin)); err != nil {
				return err
			}
			progress := cmd.ErrOrStderr()
			if output == "json" {
				progress = io.Discard
			}
			d, err := consult(cmd.Context(), progress, version, admin, *file, args)
			if err != nil {
				return err
			}
			if of := cmp.Or(d.Config, *file); of != "" && len(args) == 0 && connected != nil {
				for _, f := range connected(of) {
					d.Findings = append(d.Findings, diagnose.Finding{Text: f.Text, Advice: f.Advice})
				}
			}
			text := diagnosisText(cli.NewPage(stdout), &d, time.Now())
			if err := cli.Print(stdout, output == "json", d, text); err != nil {
				return err
			}
			return counted(&d)
		},
	}
	adminFlag(cmd, &admin)
	cli.OutputFlag(cmd, &output)
	return cmd
}

// consult asks the running proxy. If none is running, it checks the upstreams of the file itself, and shows
// each result when it is known.
func consult(ctx context.Context, progress io.Writer, version, admin, file string, only []string) (
	diagnose.Diagnosis, error) {
	var d diagnose.Diagnosis
	address, err := adminAddress(ctx, admin, file)
	if errors.Is(err, ErrNotRunning) || errors.Is(err, errNoAdmin) {
		address = "" // another file is served there, or nobody can be asked: check this one
	} else if err != nil {
		return d, err
	}
	if address != "" {
		notice := time.AfterFunc(noticeAfter, func() {
			cli.Tellf(progress, "Still checking. The check takes %s at most.\n", prose.Age(diagnose.Limit))
		})
		defer notice.Stop()
		ask := adminRequest{path: "/doctor", query: url.Values{"upstream": only}, owner: true}
		err = ask.send(ctx, address, diagnose.Limit+diagnose.Patience, &d)
	}
	switch {
	case file == "" && errors.Is(err, ErrNotRunning):
		return d, fmt.Errorf("%w; start one, name its admin address with --admin, or check the upstreams of a file "+
			"with --config FILE", err)
	case admin != "" && errors.Is(err, ErrNotRunning):
		return d, err
	case address == "" || errors.Is(err, ErrNotRunning):
		variables, err := config.UseEnvironment(file)
		if err != nil {
			return d, err
		}
		c, err := secrets.Load(ctx, file, only)
		if err != nil {
			return d, err
		}
		how := cli.Waiting{Out: progress, Limit: diagnose.Limit, Quiet: time.Second, Brief: true, Doing: "Checking"}
		how.While(ctx, func(rows *cli.Rows) {
			end := func(name, result string) { rows.End(name, name+": "+result) }
			d, err = diagnose.File(ctx, version, file, c, only, diagnose.Progress{Begin: rows.Begin, End: end})
		}, func() {})
		d.Variables = variables
		return d, err
	}
	return d, err
}

// counted returns an error with the number of entries under each title; nil if there are none under
// Problems.
func counted(d *diagnose.Diagnosis) error {
	problems, lesser := len(groupsOf(d, isProblem)), len(groupsOf(d, isLesser))
	switch {
	case problems == 0:
		return nil
	case lesser == 0:
		return errors.New(prose.Count(problems, "problem"))
	}
	return fmt.Errorf("%s, and %d with some clients", prose.Count(problems, "problem"), lesser)
}

// diagnosisText returns a table of the upstreams, and then the findings with their remedies, grave
// ones first, on an empty page.
func diagnosisText(b *prose.Page, d *diagnose.Diagnosis, now time.Time) string {
	switch {
	case d.Running:
		fmt.Fprintf(b, "Asked the running proxy%s.\n\n", fileSuffix(d.Config))
	default:
		fmt.Fprintf(b, "No proxy was asked; the upstreams%s were started for this check.\n", fileSuffix(d.Config))
		if d.Variables != "" {
			b.Wrap("", "", "The variables of "+prose.Flat(prose.Tilde(d.Variables))+" count, as for the service, and "+
				"then those of this shell.")
		}
		b.WriteByte('\n')
	}
	writeUpstreams(b, d, now)
	if all := len(d.Upstreams); all > 0 {
		works, stuck := 0, 0
		for i := range d.Upstreams {
			if d.Upstreams[i].OK || d.Upstreams[i].State == diagnose.PerUser {
				works++
			}
			stuck += d.Upstreams[i].Stuck
		}
		fmt.Fprintf(b, "\n%s.\n", diagnose.Works(works, all)+diagnose.Stuck(stuck))
	}
	if d.Tools > 0 {
		with := ""
		if d.Bytes > 0 { // those of a server that is not ready are not known
			with = fmt.Sprintf(", with definitions of %s (some %d tokens)", cli.Size(d.Bytes), diagnose.Tokens(d.Bytes))
		}
		fmt.Fprintf(b, "%s for clients of /mcp%s.\n", prose.Count(d.Tools, "tool"), with)
	}
	if !slices.ContainsFunc(d.Findings, func(f diagnose.Finding) bool { return !isNote(&f) }) {
		b.WriteString("\nNo problems found.\n")
	}
	for _, part := range []struct {
		title string
		has   func(*diagnose.Finding) bool
	}{{"Problems", isProblem}, {"Problems with some clients", isLesser}, {"Rules that match nothing", isRule},
		{"Warnings of the file", isWarning}, {"Notes", isNote}} {
		groups := groupsOf(d, part.has)
		if len(groups) > 0 {
			fmt.Fprintf(b, "\n%s\n", part.title)
		}
		for i, g := range groups {
			g.write(b, append(groups[i+1:], nil)[0])
		}
	}
	return b.String()
}

func fileSuffix(file string) string {
	if file == "" {
		return ""
	}
	return " of " + prose.Flat(prose.Tilde(file))
}

// writeUpstreams writes one line per upstream.
func writeUpstreams(b *prose.Page, d *diagnose.Diagnosis, now time.Time) {
	if len(d.Upstreams) == 0 {
		b.WriteString("  no upstreams are enabled\n")
		return
	}
	rows := [][]string{{"UPSTREAM", "STATE", "ERA", "TOOLS", "START", "HANDSHAKE", "LIST", "PING"}}
	if !d.Running {
		rows[0][1] = "CHECK"
	}
	for _, u := range d.Upstreams {
		state := u.Shown(now)
		if u.Since != nil && state == u.State {
			state += " " + prose.Age(now.Sub(*u.Since))
		}
		switch {
		case d.Running:
		case u.Waits:
			state = upstream.StateWaiting.String()
		default:
			state = map[bool]string{true: "ok", false: "failed"}[u.OK]
		}
		row := []string{prose.Cut(prose.Flat(u.Name), 14), prose.Flat(state), cmp.Or(prose.Flat(u.Era), "-"), "-", "-",
			"-", "-", "-"}
		starts := d.Running && u.State == upstream.StateStarting.String() // it has no lists yet
		if u.Tools > 0 || u.OK && !starts {
			row[3] = strconv.Itoa(u.Tools)
		}
		for i, s := range u.Steps {
			at := slices.Index([]string{"start", "handshake", "list", "ping"}, s.Name)
			if at < 0 {
				continue
			}
			if row[4+at] = brief(s.Took); !u.OK && !u.Waits && i == len(u.Steps)-1 {
				row[4+at] = "failed"
			}
		}
		rows = append(rows, row)
	}
	for _, line := range cli.Aligned(rows, 3, b.Terminal-2, "ERA", "START", "LIST", "PING") {
		b.WriteString("  " + line + "\n")
	}
}

// brief formats milliseconds for a narrow column.
func brief(ms float64) string {
	switch {
	case ms < 10:
		return fmt.Sprintf("%.1fms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0fms", ms)
	}
	return fmt.Sprintf("%.1fs", ms/1000)
}

// group is one finding about several items of one upstream.
type group struct {
	diagnose.Finding
	items []string // names, with the detail of each
}

// isProblem, isLesser, isRule, isWarning and isNote say under which title a finding is.
func isProblem(f *diagnose.Finding) bool { return f.Grave }
func isLesser(f *diagnose.Finding) bool {
	return !f.Grave && !isRule(f) && !isWarning(f) && !isNote(f)
}
func isRule(f *diagnose.Finding) bool    { return !f.Grave && f.Kind == diagnose.KindRule }
func isWarning(f *diagnose.Finding) bool { return !f.Grave && f.Kind == diagnose.KindWarning }
func isNote(f *diagnose.Finding) bool    { return f.Kind == diagnose.KindNote }

// groupsOf groups findings that have the same text.
func groupsOf(d *diagnose.Diagnosis, has func(*diagnose.Finding) bool) []*group {
	var list []*group
	for _, f := range d.Findings {
		if !has(&f) {
			continue
		}
		i := slices.IndexFunc(list, func(g *group) bool {
			return g.Upstream == f.Upstream && g.Kind == f.Kind && g.Text == f.Text && g.Advice == f.Advice
		})
		if i < 0 {
			i = len(list)
			list = append(list, &group{Finding: f})
		}
		list[i].items = append(list[i].items, strings.TrimSpace(prose.Flat(f.Name)+" "+inParentheses(f.Detail)))
	}
	slices.SortStableFunc(list, func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.Upstream, b.Upstream), cmp.Compare(a.Advice, b.Advice))
	})
	return list
}

// mostItems bounds the items that are named in a group; --output json names all.
const mostItems = 8

// write prints the finding, and its advice unless next has the same advice.
func (g *group) write(b *prose.Page, next *group) {
	text := prose.Flat(g.Text)
	switch n := len(g.items); {
	case n == 1:
		text += " " + inParentheses(g.Detail)
		if g.Name != "" {
			text = g.Kind + " " + prose.Flat(g.Name) + ": " + text
		}
	default:
		text = prose.Count(n, g.Kind) + ": " + text + ": " + strings.Join(g.items[:min(n, mostItems)], ", ")
		if more := n - mostItems; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	}
	if g.Upstream != "" {
		text = prose.Flat(g.Upstream) + ": " + text
	}
	b.Wrap("  ", "    ", prose.Tilde(text))
	if g.Advice != "" && (next == nil || next.Upstream != g.Upstream || next.Advice != g.Advice) {
		b.Wrap("    → ", "      ", prose.Tilde(prose.Flat(g.Advice)))
	}
}

func inParentheses(s string) string {
	if s = prose.Flat(s); s == "" {
		return ""
	}
	return "(" + s + ")"
}
