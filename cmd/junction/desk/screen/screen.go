// Package screen prints the first screen of a proxy: its addresses, the table of the upstreams until
// each was tried, the lines for clients, and what to do next.
//
// A terminal is redrawn. If the log goes to the same terminal, its lines are kept back, and follow the
// complete table. After ten seconds they appear above the table that is redrawn. Any other output gets lines:
// the table after three seconds at most, and then one row for each upstream that was tried.
package screen

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/pace"
	"junction/upstream/prose"
)

// Screen writes to standard output, and keeps the lines of the log apart from a table that is
// redrawn. It may be used by several goroutines.
type Screen struct {
	log      io.Writer
	together bool // the log goes to the terminal that is redrawn

	mu      sync.Mutex
	live    cli.Live // its text is guarded by mu
	holding bool     // the log is kept back; guarded by mu
	held    []byte   // lines of the log; guarded by mu
}

// maxHeld is the most bytes of the log that are kept back.
const maxHeld = 64 << 10

// Hold keeps the log back until Run has printed the table, or Release. It does nothing unless the log
// goes to the terminal that is redrawn.
func (s *Screen) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holding = s.together
}

// Holds reports whether the log is kept back: lines that the table shows, too, can be left out.
func (s *Screen) Holds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holding
}

// Release writes what Hold has kept back.
func (s *Screen) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release()
}

// release is Release for callers that hold s.mu.
func (s *Screen) release() {
	held := s.held
	s.holding, s.held = false, nil
	if len(held) > 0 {
		s.above(held) // an error of the log cannot be reported
	}
}

// above writes to the log, above what is redrawn; s.mu is held.
func (s *Screen) above(p []byte) (int, error) {
	live := s.live.Text()
	if live == "" {
		return s.log.Write(p)
	}
	s.live.Erase()
	n, err := s.log.Write(p)
	s.live.Draw(live)
	return n, err
}

// New returns a screen for the standard streams of a process. The log must be written to Log.
func New(stdout, stderr io.Writer) *Screen {
	s := &Screen{live: cli.NewLive(stdout), log: stderr}
	s.together = s.live.Size != nil && cli.IsTerminal(stderr)
	return s
}

// Log returns the writer for the log.
func (s *Screen) Log() io.Writer {
	if !s.together {
		return s.log
	}
	return logLines{s}
}

// logLines keeps the log back, or writes it above the part of the terminal that is redrawn.
type logLines struct{ *Screen }

// Write implements io.Writer.
func (l logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holding {
		if len(l.held)+len(p) <= maxHeld {
			l.held = append(l.held, p...)
			return len(p), nil
		}
		l.release()
	}
	return l.above(p)
}

// redraw draws text in place of what was drawn. It returns false if the terminal is too small.
func (s *Screen) redraw(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live.Draw(text)
}

// print writes text in place of what was redrawn.
func (s *Screen) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.live.Print(text) // the proxy serves all the same
}

// keep leaves what was drawn on the terminal.
func (s *Screen) keep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live.Keep()
}

const (
	soon  = 3 * time.Second  // after which lines are printed, although not all upstreams were tried
	late  = 10 * time.Second // after which the log is not kept back any more
	often = 100 * time.Millisecond
)

// Run prints the first screen, until each upstream was tried or ctx ends. report returns the state of
// the upstreams. early is called once, when all were tried or after three seconds.
func (s *Screen) Run(ctx context.Context, t *Text, report func() []diagnose.UpstreamStatus, early func()) {
	defer s.Release()
	r := run{s, t, report, early, time.Now(), false}
	if s.live.Size == nil || !r.redrawn(ctx) {
		r.lines(ctx)
	}
}

// run is one call of Run.
type run struct {
	*Screen
	text   *Text
	report func() []diagnose.UpstreamStatus
	early  func()
	began  time.Time
	shown  bool // early was called
}

// look returns the upstreams, and how many were not tried yet.
func (r *run) look() (list []diagnose.UpstreamStatus, pending int) {
	list = r.report()
	for i := range list {
		if !tried(&list[i]) {
			pending++
		}
	}
	if !r.shown && (pending == 0 || time.Since(r.began) >= soon) {
		r.shown = true
		r.early()
		list = r.report()
	}
	return list, pending
}

// trouble returns the lines about parts that fail. ready is false while a first check may still end.
func (r *run) trouble() (text string, ready bool) {
	if r.text.Trouble == nil {
		return "", true
	}
	list, checked := r.text.Trouble()
	return troubleOf(cli.NewPage(r.live.Out), list), checked || time.Since(r.began) >= soon
}

// pause waits until the next look, and returns false if ctx has ended.
func (r *run) pause(ctx context.Context) bool { return pace.Sleep(ctx, often, nil) }

// redrawn redraws the table until each upstream was tried. It returns false, with nothing on the
// terminal, if that is too small.
func (r *run) redrawn(ctx context.Context) bool {
	for {
		list, pending := r.look()
		trouble, ready := r.trouble()
		if pending == 0 && ready {
			rows, _ := r.text.table(cli.NewPage(r.live.Out), list, time.Now())
			r.print(r.text.header(cli.NewPage(r.live.Out)) + rows + trouble + r.text.clients() + r.text.next(list))
			return true
		}
		if !r.redraw(r.growing(list, trouble, pending)) {
			r.print("")
			return false
		}
		if time.Since(r.began) >= late {
			r.Release()
		}
		if !r.pause(ctx) {
			r.keep()
			return true
		}
	}
}

// growing returns what a terminal shows while upstreams are tried: as much as it has room for.
func (r *run) growing(list []diagnose.UpstreamStatus, trouble string, pending int) string {
	rows, _ := r.text.table(cli.NewPage(r.live.Out), list, time.Now())
	text, wait := r.text.header(cli.NewPage(r.live.Out))+rows+trouble, "\nChecking the identity providers …\n"
	if pending > 0 {
		wait = fmt.Sprintf("\nStarting %s …\n", prose.Count(pending, "upstream"))
	}
	if _, fits := r.live.Height(text + r.text.clients() + wait); fits {
		text += r.text.clients()
	}
	return text + wait
}

// lines prints the table, and a row for each upstream that was tried later.
func (r *run) lines(ctx context.Context) {
	list, pending := r.look()
	trouble, ready := r.trouble()
	for !r.shown || !ready {
		if !r.pause(ctx) {
			return
		}
		list, pending = r.look()
		trouble, ready = r.trouble()
	}
	rows, table := r.text.table(cli.NewPage(r.live.Out), list, time.Now())
	r.print(r.text.header(cli.NewPage(r.live.Out)) + rows + trouble + r.text.clients())
	if pending > 0 { // otherwise the last line comes now
		r.Release()
	}
	waits := map[string]bool{} // the upstreams that were not tried when their row was printed
	for i := range list {
		waits[list[i].Name] = !tried(&list[i])
	}
	if pending > 0 {
		r.print("\n")
	}
	for pending > 0 && r.pause(ctx) {
		list, pending = r.look()
		for i := range list {
			if u := &list[i]; waits[u.Name] && tried(u) {
				delete(waits, u.Name)
				table.widen(cells(u, time.Now()))
				row := cli.NewPage(r.live.Out)
				table.row(row, u, time.Now())
				r.print(row.String())
			}
		}
	}
	if pending == 0 {
		r.print(r.text.next(list))
	}
}
