package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/admin"
	"junction/upstream/prose"
)

// This file asks before a restart that would lose servers. A running Junction keeps an entry whose new text has
// a mistake; a start leaves it out.

// LeftOut is an upstream that a start with the file leaves out.
type LeftOut struct {
	config.LeftOut
	Runs  bool `json:"runs"`  // a process runs it now, and a restart would end it
	Works bool `json:"works"` // it works now
}

// lost reports whether a restart loses the upstream. One that does not work now, because of its pack or of this
// machine, would not work without the restart either.
func (l LeftOut) lost() bool { return l.Works || l.Runs && l.Blocked }

// check has a process with the environment of a service check whether a start could serve the file, and what it
// would leave out. If that ends upstreams, Agree decides. The file may change during the question: the last
// check finds nothing that Agree was not asked about.
func (s *Service) check(ctx context.Context) error {
	s.Left = nil
	if s.host.Check == nil {
		return nil
	}
	var agreed []string
	for {
		left, err := s.host.Check(ctx, s.unit)
		if err != nil {
			return s.unchanged(err)
		}
		var lost []LeftOut
		for _, l := range left {
			if l.lost() && !slices.Contains(agreed, l.Name) {
				lost = append(lost, l)
			}
		}
		if len(lost) == 0 {
			s.Left = left
			return nil
		}
		agree := s.Agree
		if agree == nil {
			agree = s.Refuse
		}
		if err := agree(lost); err != nil {
			return err
		}
		for _, l := range lost {
			agreed = append(agreed, l.Name)
		}
	}
}

// unchanged returns the error of a command that neither ends nor starts a process.
func (s *Service) unchanged(err error) error {
	if stays := runfile.GoesOn(s.unit.File); stays != "" {
		return fmt.Errorf("nothing was changed: %w; %s", err, stays)
	}
	return fmt.Errorf("nothing was started: %w", err)
}

// losses returns a line for each upstream that a restart would end.
func losses(lost []LeftOut) string {
	var b strings.Builder
	for _, l := range lost[:min(len(lost), mostLines)] {
		state := "runs now"
		if l.Works {
			state = "works now"
		}
		fmt.Fprintf(&b, "  %s %s, and would not run after the restart: %s\n", prose.OneLine(l.Name), state,
			prose.Flat(l.Why))
	}
	if more := len(lost) - mostLines; more > 0 {
		fmt.Fprintf(&b, "  and %s\n", prose.Count(more, "more server"))
	}
	return b.String()
}

// mostLines is the most servers that have a line of their own.
const mostLines = 20

// Refuse returns the error of a restart that would end upstreams, with the command that restarts all the same.
func (s *Service) Refuse(lost []LeftOut) error {
	stays := cmp.Or(runfile.GoesOn(s.unit.File), "nothing was started")
	return fmt.Errorf("nothing was changed, and %s, because a restart would lose %s:\n%sCorrect the file. To restart "+
		"without %s all the same, run: %s", stays, prose.Count(len(lost), "server"), losses(lost), Names(lost),
		config.Command(s.unit.File, "service", "restart", "--without", strings.Join(namesOf(lost), ",")))
}

// Names returns the names of upstreams for a sentence.
func Names(list []LeftOut) string { return prose.OneLine(strings.Join(namesOf(list), ", ")) }

func namesOf(list []LeftOut) (names []string) {
	for _, l := range list {
		names = append(names, l.Name)
	}
	return names
}

// withoutFlag registers --without for a command that restarts Junction. The function that it returns is for
// Service.Agree: without a terminal, only the named upstreams may be lost.
func withoutFlag(cmd *cobra.Command) (agree func(*Service) func([]LeftOut) error) {
	var without []string
	cmd.Flags().StringSliceVar(&without, "without", nil,
		"`names` of servers that may be lost, because their entries have mistakes")
	return func(s *Service) func([]LeftOut) error {
		return func(lost []LeftOut) error {
			named := func(l LeftOut) bool { return slices.Contains(without, l.Name) }
			lost = slices.DeleteFunc(slices.Clone(lost), named)
			if len(lost) == 0 {
				return nil
			}
			if !cli.CanAsk(cmd) {
				return s.Refuse(lost)
			}
			return s.Ask(cmd, lost)
		}
	}
}

// ErrDeclined means that the person does not want to lose servers.
var ErrDeclined = errors.New("nothing was changed")

// Ask asks the person at the terminal whether a restart may end upstreams. The error of a no is ErrDeclined.
func (s *Service) Ask(cmd *cobra.Command, lost []LeftOut) error {
	if err := cli.Tell(cmd.ErrOrStderr(), fmt.Sprintf("A restart would lose %s:\n%s",
		prose.Count(len(lost), "server"), losses(lost))); err != nil {
		return err
	}
	agreed, err := cli.QuestionsOf(cmd).YesNo("Start Junction again without "+Names(lost)+"?", false)
	if err == nil && !agreed {
		err = fmt.Errorf("%w; %s", ErrDeclined, cmp.Or(runfile.GoesOn(s.unit.File), "nothing was started"))
	}
	return err
}

// leftOut returns the sentences about the upstreams that the start has left out; "" if there are none.
func (s *Service) leftOut() string {
	var b strings.Builder
	for _, l := range s.Left[:min(len(s.Left), mostLines)] {
		fmt.Fprintf(&b, "%s does not run: %s\n", prose.OneLine(l.Name), prose.Flat(l.Why))
	}
	if more := len(s.Left) - mostLines; more > 0 {
		fmt.Fprintf(&b, "Not running, too: %s\n", prose.Count(more, "more server"))
	}
	mistake := func(l LeftOut) bool { return l.Blocked }
	if slices.ContainsFunc(s.Left, mistake) {
		b.WriteString("Junction reloads a corrected file by itself. ")
	}
	if b.Len() > 0 {
		fmt.Fprintf(&b, "See: %s\n", config.Command(s.unit.File, "status"))
	}
	return b.String()
}

// checkOnly prints what a start of the file would leave out, for Host.Check of another process.
func (p *process) checkOnly(ctx context.Context, stdout, stderr io.Writer) error {
	if err := useEnvironment(p.file); err != nil {
		return err
	}
	replaced := present(p.file)
	list, err := p.proxy.Check(p.file, stderr, replaced)
	if err != nil {
		return err
	}
	left := []LeftOut{}
	runs := p.running(ctx, replaced)
	for _, l := range list {
		out := LeftOut{LeftOut: l}
		if out.Runs, out.Works = runs(l.Name); replaced.PID == 0 || replaced.Ending() {
			out.Runs, out.Works = false, false
		}
		left = append(left, out)
	}
	return json.NewEncoder(stdout).Encode(left)
}

// running returns a function that tells whether a process runs an upstream now, and whether it works. Without an
// admin address, the last good content of the file tells it. An upstream of which nothing is known counts as
// one that runs.
func (p *process) running(ctx context.Context, now runfile.Place) func(name string) (runs, works bool) {
	if known := admin.Runs(ctx, now.File, statusLimit); known != nil {
		return known
	}
	var good *config.Config
	if text, err := ReadGood(p.Getenv, p.file); err == nil {
		good, _ = config.ParseServing(p.file, text, os.LookupEnv) // without it, nothing is known
	}
	return func(name string) (bool, bool) {
		if good == nil {
			return true, false
		}
		u, there := good.Upstreams[name]
		return there && !u.Off() && u.Blocked == "", false
	}
}
