package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"junction/upstream/prose"
)

// This file shows what a command waits for.

// A Row is the line about one of the things that a command waits for.
type Row struct {
	Name, Text string // Text is the whole line
	Known      bool   // the line does not change any more
	Later      string // follows Text if the waiting ends before the line is known
}

// Waiting shows a row for each thing that a command waits for. On a terminal, the rows change in place.
// Other output gets each row when it is known, and a line that names the rest.
type Waiting struct {
	Out   io.Writer
	Limit time.Duration
	Quiet time.Duration // nothing is shown before
	// Brief means that the rows are no result of the command: a terminal does not keep them.
	Brief bool
	// Doing is what the command does with each thing, such as "Starting".
	Doing string
	// About follows the number of the servers; "" is usual.
	About string
	// Enter reports whether the person has pressed Enter, which ends the waiting; nil if no person can.
	Enter func() bool
	// CtrlC means that an interrupt ends the waiting, and not the command.
	CtrlC bool
	// Else is what happens to the rest when a person ends the waiting, such as "leaves the rest for later".
	Else string
}

// Rows are the rows of tasks that run concurrently.
type Rows struct {
	mu   sync.Mutex
	rows []Row
}

// Begin adds the row of a task.
func (r *Rows) Begin(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, Row{Name: name, Text: name + ": no answer yet"})
}

// End sets the row of a task that has ended.
func (r *Rows) End(name, row string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.rows {
		if r.rows[i].Name == name {
			r.rows[i] = Row{Name: name, Text: row, Known: true}
		}
	}
}

func (r *Rows) look() []Row {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.rows)
}

// While calls do, and shows the rows that do begins and ends. It returns when do has returned. If a person
// ends the waiting, it calls enough; the functions of Rows may still be called then.
func (w *Waiting) While(ctx context.Context, do func(*Rows), enough func()) {
	var rows Rows
	done := make(chan struct{})
	go func() { // ends before While
		defer close(done)
		do(&rows)
	}()
	w.watch(ctx, rows.look, done)
	enough()
	<-done
}

const (
	lookOften = 100 * time.Millisecond
	// restAfter is when other output than a terminal gets the names of the rest.
	restAfter = 3 * time.Second
)

// Watch shows the rows until all are known, for the limit at most. Enter and the end of ctx end it earlier.
// look returns the rows, always in the same order. It may return none.
func (w *Waiting) Watch(ctx context.Context, look func() []Row) {
	w.watch(ctx, look, nil)
}

func (w *Waiting) watch(ctx context.Context, look func() []Row, done <-chan struct{}) {
	s := shownRows{Waiting: w, live: NewLive(w.Out), began: time.Now(), done: done}
	s.watch(ctx, look)
}

// shownRows is one call of Watch.
type shownRows struct {
	*Waiting
	live    Live
	began   time.Time
	lines   bool            // each row is printed when it is known, because the table is not redrawn
	printed []string        // names of the rows that were printed
	named   bool            // the rest was named
	done    <-chan struct{} // closed when there will be no more rows; nil if look has all from the beginning
}

func (s *shownRows) watch(ctx context.Context, look func() []Row) {
	s.lines = s.live.Size == nil
	tick := time.NewTicker(lookOften)
	defer tick.Stop()
	for {
		rows, entered := look(), s.Enter != nil && s.Enter()
		if entered {
			s.live.entered()
		}
		rest, age := restOf(rows), time.Since(s.began)
		if s.over(rest) || age >= s.Limit || entered || ctx.Err() != nil {
			s.end(rows, rest, age)
			return
		}
		if age >= s.Quiet && len(rest) > 0 {
			s.show(rows, rest, age)
		}
		select {
		case <-tick.C:
		case <-s.done:
		case <-ctx.Done():
		}
	}
}

// over reports whether there is nothing more to wait for.
func (s *shownRows) over(rest []string) bool {
	if s.done == nil {
		return len(rest) == 0
	}
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// restOf returns the names of the rows that are not known.
func restOf(rows []Row) (names []string) {
	for _, r := range rows {
		if !r.Known {
			names = append(names, prose.Flat(r.Name))
		}
	}
	return names
}

// show shows the rows while some are not known.
func (s *shownRows) show(rows []Row, rest []string, age time.Duration) {
	if !s.lines {
		if s.live.Draw(s.table(rows) + s.footer(len(rest), age)) {
			return
		}
		s.lines = true
	}
	s.print(rows)
	if s.live.Size != nil && s.live.Draw(s.footer(len(rest), age)) {
		return // the terminal has no room for the rows
	}
	if !s.named && age >= restAfter {
		s.named = true
		s.live.Print(s.doing(strings.Join(rest, ", "), age) + "\n")
	}
}

// print prints the rows that have become known.
func (s *shownRows) print(rows []Row) {
	for _, r := range rows {
		if r.Known && !slices.Contains(s.printed, r.Name) {
			s.printed = append(s.printed, r.Name)
			s.printRow(r)
		}
	}
}

// printRow prints a row, on a terminal in its width.
func (s *shownRows) printRow(r Row) {
	if s.live.Size == nil {
		s.live.Print(prose.OneLine(r.Text) + "\n")
		return
	}
	s.live.Print(s.table([]Row{r}))
}

// table returns all rows, on a terminal.
func (s *shownRows) table(rows []Row) string {
	b := NewPage(s.live.Out)
	for _, r := range rows {
		b.Wrap("", "    ", prose.OneLine(r.Text))
	}
	return b.String()
}

// footer returns the last line of what is redrawn.
func (s *shownRows) footer(rest int, age time.Duration) string {
	width, _ := s.live.Size()
	return Fit(s.doing(prose.Count(rest, "server"), age)+"\n", width)
}

// doing says what the command does with the rest.
func (s *shownRows) doing(rest string, age time.Duration) string {
	about := ""
	if s.About != "" {
		about = " " + s.About
	}
	return s.Doing + " " + rest + about + " …" + s.hint(age)
}

// hint says how long the rest is waited for, and how a person ends the waiting.
func (s *shownRows) hint(age time.Duration) string {
	text := " " + (s.Limit - age).Round(time.Second).String() + " at most."
	switch {
	case s.Enter != nil && s.CtrlC:
		return text + " Enter or Ctrl-C " + s.Else + "."
	case s.Enter != nil:
		return text + " Enter " + s.Else + "."
	case s.CtrlC:
		return text + " Ctrl-C " + s.Else + "."
	}
	return text
}

// end leaves the rows, unless they are no result.
func (s *shownRows) end(rows []Row, rest []string, age time.Duration) {
	if s.live.Erase(); s.Brief {
		return
	}
	for i := range rows {
		if r := &rows[i]; !r.Known {
			r.Text += r.Later
		}
	}
	if !s.lines {
		s.live.Print(s.table(rows))
	} else {
		s.print(rows)
		for _, r := range rows {
			if !r.Known {
				s.printRow(r)
			}
		}
	}
	if len(rest) > 0 {
		s.live.Print(fmt.Sprintf("Did not wait longer for %s, after %s.\n", strings.Join(rest, ", "), prose.Age(age)))
	}
}

// EnterOf returns a function for Waiting.Enter: it reads a line that a person has typed at the terminal of
// the command, and does not wait for one. It is nil if there is no terminal that can be asked.
func EnterOf(cmd *cobra.Command) func() bool {
	if !CanAsk(cmd) {
		return nil
	}
	return enterAt(cmd.InOrStdin())
}
