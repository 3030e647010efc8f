package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/ops/diagnose"
	"junction/proxy/pins"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// pinsCommand is `junction pins`.
func pinsCommand(stdout io.Writer, file *string) *cobra.Command {
	var admin string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "pins",
		Short: "List the tools and whether their definitions are accepted",
		Long: `Compare the current definitions of tools with the accepted ones. Pinned policies hide tools whose current
definition is not accepted.

The command asks the admin address of the running proxy. The accepted definitions are in the file that the
configuration names (pins); the proxy notices changes of that file. A tool is written UPSTREAM/TOOL, with the
upstream's own name of the tool; UPSTREAM means all its tools.`,
		Example: `  junction pins --config config.yaml
  junction pins diff --config config.yaml
  junction pins accept github/create_issue --config config.yaml
  junction pins accept --all --config config.yaml`,
		Args: cli.NoArguments,
	}
	cmd.PersistentFlags().StringVar(&admin, "admin", "",
		"admin `address` of the running proxy; overrides admin in the configuration file")
	cmd.PersistentFlags().BoolVar(&asJSON, "json", false, "print JSON")
	run := func(do func(p *pinning, names []string) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, names []string) error {
			p, err := openPins(cmd.Context(), stdout, admin, *file)
			if err != nil {
				return err
			}
			p.json = asJSON
			return do(p, names)
		}
	}
	list := run((*pinning).list)
	cmd.RunE = list
	var all bool
	accept := &cobra.Command{
		Use: "accept {NAME ... | --all}", Short: "Accept the current definitions and show the differences",
		Args: func(_ *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return cli.Usagef("accept needs the names of tools, or --all; junction pins lists them")
			}
			return nil
		},
		RunE: run((*pinning).accept),
	}
	accept.Flags().BoolVar(&all, "all", false, "accept all current tools")
	cmd.AddCommand(
		&cobra.Command{Use: "list", Short: "List all tools", Args: cli.NoArguments, RunE: list},
		&cobra.Command{Use: "diff [NAME ...]", Short: "Show the differences to the accepted definitions",
			RunE: run((*pinning).diff)},
		accept,
	)
	return cmd
}

// pinning is one run of the command.
type pinning struct {
	stdout io.Writer
	file   string
	pins   *pins.Pins
	now    []pins.Definition // the current definitions
	json   bool
}

func openPins(ctx context.Context, stdout io.Writer, admin, file string) (*pinning, error) {
	if file == "" {
		return nil, cli.Usagef("pins needs --config FILE, which names the file of accepted definitions")
	}
	c, err := config.LoadAsService(file)
	address := ""
	if err == nil {
		address, err = adminAddress(ctx, admin, file)
	}
	switch {
	case err != nil:
		return nil, err
	case c.Pins == "":
		beside, err := filepath.Abs(filepath.Join(filepath.Dir(file), "pins.json"))
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%s names no file of accepted definitions; add pins: %s", file, beside)
	case address == "":
		return nil, fmt.Errorf("%s does not say where the running proxy is (admin); name its address with --admin",
			file)
	}
	p := &pinning{stdout: stdout, file: c.Pins}
	if p.pins, err = pins.Load(c.Pins, config.Named(file)); err != nil {
		return nil, err
	}
	var r diagnose.Pins
	err = askAdmin(ctx, address, "/pins", nil, diagnose.Patience, &r)
	if errors.Is(err, ErrNotRunning) {
		return nil, fmt.Errorf("%w; only a running one knows what the upstreams offer; %s", err,
			startOne(admin, file, ""))
	} else if err != nil {
		return nil, err
	}
	for _, t := range r.Tools {
		p.now = append(p.now, pins.Definition{Upstream: t.Upstream, Name: t.Name, Definition: t.Definition})
	}
	return p, nil
}

func pinName(d pins.Definition) string { return d.Upstream + "/" + d.Name }

// named returns the definitions of the named tools and upstreams, or all if names is empty.
func (p *pinning) named(names []string) ([]pins.Definition, error) {
	if len(names) == 0 {
		return p.now, nil
	}
	var list []pins.Definition
	var known []string
	for _, d := range p.now {
		known = append(known, pinName(d))
		if slices.Contains(names, d.Upstream) || slices.Contains(names, pinName(d)) {
			list = append(list, d)
		}
	}
	for _, name := range names {
		named := func(d pins.Definition) bool { return d.Upstream == name || pinName(d) == name }
		if !slices.ContainsFunc(list, named) {
			problem := "no upstream offers " + name + " now"
			if near := prose.DidYouMean(known, name, ""); near != "" {
				problem += "; " + near
			}
			return nil, errors.New(shell.Visible(problem))
		}
	}
	return list, nil
}

// pinJSON is a tool in the output of --json.
type pinJSON struct {
	Upstream string   `json:"upstream"`
	Name     string   `json:"name"`
	State    string   `json:"state"` // before this command
	Accepted string   `json:"accepted,omitempty"`
	Diff     []string `json:"diff,omitempty"`
}

// printJSON prints tools: all of them, or those that differ from what was accepted, with the
// differences. done tells that they are accepted now.
func (p *pinning) printJSON(list []pins.Definition, all, done bool) error {
	found := []pinJSON{}
	for _, d := range list {
		state, accepted := p.pins.State(d.Upstream, d.Name, d.Definition)
		if !all && state == pins.StateAccepted {
			continue
		}
		j := pinJSON{Upstream: d.Upstream, Name: d.Name, State: fmt.Sprint(state)}
		if !accepted.IsZero() {
			j.Accepted = accepted.UTC().Format(time.RFC3339)
		}
		if !all {
			j.Diff = p.pins.Diff(d)
		}
		found = append(found, j)
	}
	return cli.PrintValue(p.stdout, struct {
		Tools    []pinJSON `json:"tools"`
		Accepted bool      `json:"accepted,omitempty"`
	}{found, done})
}

// list prints one line per tool: its state, and when it was accepted.
func (p *pinning) list([]string) error {
	if p.json {
		return p.printJSON(p.now, true, false)
	}
	return cli.Table(p.stdout, func(row func(...any)) {
		offered := map[string]bool{}
		for _, d := range p.now {
			offered[pinName(d)] = true
			state, accepted := p.pins.State(d.Upstream, d.Name, d.Definition)
			row(shell.Visible(pinName(d)), state, when(accepted))
		}
		for _, upstream := range p.pins.Names("") {
			for _, name := range p.pins.Names(upstream) {
				if d := (pins.Definition{Upstream: upstream, Name: name}); !offered[pinName(d)] {
					_, accepted := p.pins.State(upstream, name, nil)
					row(shell.Visible(pinName(d)), "not offered", when(accepted))
				}
			}
		}
	})
}

func when(t time.Time) string {
	if t.IsZero() {
		return "never accepted"
	}
	return "accepted " + t.UTC().Format(time.RFC3339)
}

// diff prints the differences to the accepted definitions.
func (p *pinning) diff(names []string) error {
	list, err := p.named(names)
	if err != nil {
		return err
	}
	if p.json {
		return p.printJSON(list, false, false)
	}
	n := p.show(list)
	if n == 0 {
		err = cli.Tell(p.stdout, "nothing differs from what was accepted\n")
	}
	return err
}

// show prints the differences to the accepted definitions and returns the number of tools that
// differ.
func (p *pinning) show(list []pins.Definition) (n int) {
	for _, d := range list {
		state, accepted := p.pins.State(d.Upstream, d.Name, d.Definition)
		if state == pins.StateAccepted {
			continue
		}
		if n > 0 {
			fmt.Fprintln(p.stdout)
		}
		n++
		cli.Tellf(p.stdout, "%s: %s, %s\n", shell.Visible(pinName(d)), state, when(accepted))
		for _, line := range p.pins.Diff(d) {
			cli.Tellf(p.stdout, "  %s\n", line)
		}
	}
	return n
}

// accept accepts the definitions and prints them: they may have changed since the operator looked.
func (p *pinning) accept(names []string) error {
	list, err := p.named(names)
	if err != nil {
		return err
	}
	n, skills := 0, 0
	if !p.json {
		n = p.show(list)
	}
	for _, d := range list {
		state, _ := p.pins.State(d.Upstream, d.Name, d.Definition)
		if state != pins.StateAccepted && strings.Contains(d.Name, "://") { // a tool has no such name
			skills++
		}
	}
	next, err := p.pins.Accept(list, time.Now())
	if err == nil {
		err = next.Write(p.file)
	}
	if err != nil {
		return err
	}
	if p.json {
		return p.printJSON(list, false, true)
	}
	accepted := prose.Count(n-skills, "tool")
	if skills > 0 {
		accepted += " and " + prose.Count(skills, "skill")
	}
	err = cli.Tellf(p.stdout, "accepted: %s\n", accepted)
	return err
}
