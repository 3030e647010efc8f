package entries

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/admin"
	"junction/upstream/prose"
)

// This file shows what the running junction makes of a changed file.

// reloadLimit is how long a command waits for the running junction, which usually needs a tenth of
// a second.
const reloadLimit = 10 * time.Second

// A Sequel is the effect of a changed file on the running junction.
type Sequel struct {
	Running bool   // a junction serves the file
	Reload  string // why it has not applied the change
	Next    string // the next step for the user, in lines; "" if Reload is set

	stays   string // what goes on while the change is not applied; "" if both files decide
	file    string
	watched []string // the upstreams that Show and Results describe
}

// Follow waits until the running junction has reloaded a changed file. It does not wait for the named
// upstreams: Show and Results of the Sequel do.
func Follow(ctx context.Context, path string, names ...string) Sequel {
	served, running := admin.ServedAt(ctx, path)
	if !running {
		return Sequel{Next: "Start junction with: " + runfile.Start(path)}
	}
	s := Sequel{Running: true, file: path}
	limited, cancel := context.WithTimeout(ctx, reloadLimit)
	defer cancel()
	r, err := admin.AwaitReload(limited, path)
	switch {
	case limited.Err() != nil && served.Other():
		s.Next = fmt.Sprintf("The running junction (%s) has not reloaded the file yet.", served.Process())
	case limited.Err() != nil:
		s.Next = fmt.Sprintf("The running junction has not reloaded the file yet; to make it, run: kill -HUP %d",
			served.PID)
	case err != nil: // its admin address is off
		s.Next = "The running junction reloads the file by itself."
	case r.Reload != "":
		if s.Reload = r.Reload; r.Partial == nil {
			s.stays = fmt.Sprintf("; %s goes on serving what it did. Junction reloads the file by itself when "+
				"it is correct: %s", served.Process(), config.Command(path, "check"))
		}
	default:
		for _, u := range admin.AwaitTried(ctx, path, names, 0) {
			s.watched = append(s.watched, u.Name)
		}
		if s.Next = "The running junction has reloaded the file"; len(s.watched) == 0 {
			s.Next += "; see: " + config.Command(path, "status")
		} else {
			s.Next += "."
		}
		if r.Restart != "" {
			s.Next += "\nA part of the file is not in force: " + r.Restart + "."
		}
	}
	return s
}

// Refused returns the sentence about a change that the running junction did not apply.
func (s *Sequel) Refused() string {
	return "The running junction did not apply the change: " + prose.Flat(s.Reload) + s.stays
}

const (
	// tryLimit is how long a command waits for the first attempt of a new upstream.
	tryLimit = 5 * time.Second
	// watchLimit is tryLimit for a person who sees the rows, and can end the waiting.
	watchLimit = 2 * time.Minute
)

// Show prints a row for each upstream, and waits for those that are starting. enter is that of cli.Waiting.
func (s *Sequel) Show(ctx context.Context, w io.Writer, enter func() bool) {
	if len(s.watched) == 0 {
		return
	}
	limit := tryLimit
	if enter != nil && cli.IsTerminal(w) {
		limit = watchLimit
	}
	admin.WatchTried(ctx, s.file, s.watched, &cli.Waiting{Out: w, Limit: limit, Enter: enter, CtrlC: true,
		Else: "leaves the rest for later"})
}

// Results is Show for a command that prints no rows. It returns a line for each upstream.
func (s *Sequel) Results(ctx context.Context) string {
	var lines []string
	for _, u := range admin.AwaitTried(ctx, s.file, s.watched, tryLimit) {
		r := admin.RowOf(s.file, &u)
		lines = append(lines, r.Text+r.Later)
	}
	return strings.Join(lines, "\n")
}
