package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// rowsAt returns rows of which each becomes known after its time.
func rowsAt(times map[string]time.Duration, names ...string) func() []Row {
	began := time.Now()
	return func() (rows []Row) {
		for _, name := range names {
			known, text := time.Since(began) >= times[name], name+": starting"
			if known {
				text = name + ": ready"
			}
			rows = append(rows, Row{name, text, known, "; see status"})
		}
		return rows
	}
}

// seen is a terminal of 100 columns: it knows the sequence that removes lines.
type seen struct {
	mu     sync.Mutex
	lines  []string // guarded by mu
	height int
}

func (t *seen) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var up int
	if n, _ := fmt.Sscanf(string(p), "\x1b[%dA\r\x1b[J", &up); n == 1 {
		t.lines = t.lines[:len(t.lines)-up]
		return len(p), nil
	}
	for line := range strings.Lines(string(p)) {
		t.lines = append(t.lines, strings.TrimSuffix(line, "\n"))
	}
	return len(p), nil
}

func (t *seen) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// at watches the rows on the terminal, and returns what it shows after a time and at the end.
func (t *seen) at(test *testing.T, w *Waiting, after time.Duration, look func() []Row) (then string, took time.Duration) {
	s := shownRows{Waiting: w, live: Live{Out: t, Size: func() (int, int) { return 100, t.height }}, began: time.Now()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.watch(test.Context(), look)
	}()
	time.Sleep(after)
	synctest.Wait()
	then = t.String()
	<-done
	return then, time.Since(s.began)
}

// TestRowsChangeInPlace: a terminal shows each server with its state while the command waits, and one
// that is ready or has failed at once, beside those that are slow.
func TestRowsChangeInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		screen := &seen{height: 24}
		w := &Waiting{Limit: time.Minute, Doing: "Starting", Enter: func() bool { return false }, CtrlC: true, Else: "leaves the rest for later"}
		then, _ := screen.at(t, w, 5*time.Second+time.Millisecond, rowsAt(map[string]time.Duration{"slow": 20 * time.Second}, "slow", "fast"))
		if want := "slow: starting\nfast: ready\nStarting 1 server … 55s at most. Enter or Ctrl-C leaves the rest for later."; then != want {
			t.Errorf("after 5 s a person sees\n%s\nwant\n%s", then, want)
		}
		if got, want := screen.String(), "slow: ready\nfast: ready"; got != want {
			t.Errorf("at the end a person sees\n%s\nwant\n%s", got, want)
		}
	})
}

// TestEnterEndsTheWaiting: Enter leaves the rest, and the line that the terminal has shown for it.
func TestEnterEndsTheWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		screen, began := &seen{height: 24}, time.Now()
		w := &Waiting{Limit: time.Minute, Doing: "Starting", Else: "goes on", Enter: func() bool {
			if time.Since(began) < 2*time.Second {
				return false
			}
			screen.mu.Lock()
			screen.lines = append(screen.lines, "") // the terminal shows the key
			screen.mu.Unlock()
			return true
		}}
		_, took := screen.at(t, w, time.Second, rowsAt(map[string]time.Duration{"slow": time.Hour}, "slow", "fast"))
		want := "slow: starting; see status\nfast: ready\nDid not wait longer for slow, after 2s."
		if got := screen.String(); got != want || took != 2*time.Second {
			t.Errorf("after %v a person sees\n%s\nwant\n%s", took, got, want)
		}
	})
}

// TestRowsWithoutRoom: a terminal without room for all rows shows each one when it is known, and the last
// line in place.
func TestRowsWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		screen := &seen{height: 4}
		w := &Waiting{Limit: time.Minute, Doing: "Starting"}
		look := rowsAt(map[string]time.Duration{"a": 9 * time.Second, "b": 8 * time.Second}, "a", "b", "c", "d")
		then, _ := screen.at(t, w, time.Second+time.Millisecond, look)
		if want := "c: ready\nd: ready\nStarting 2 servers … 59s at most."; then != want {
			t.Errorf("a person sees\n%s\nwant\n%s", then, want)
		}
		if got, want := screen.String(), "c: ready\nd: ready\nb: ready\na: ready"; got != want {
			t.Errorf("at the end a person sees\n%s\nwant\n%s", got, want)
		}
	})
}

// TestRowsAsLines: other output gets each row when it is known, the names of the rest once, and what
// was not waited for.
func TestRowsAsLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		w := &Waiting{Out: &out, Limit: time.Minute, Doing: "Starting", CtrlC: true, Else: "leaves the rest for later"}
		w.Watch(t.Context(), rowsAt(map[string]time.Duration{"slow": 20 * time.Second, "stuck": time.Hour}, "stuck", "slow", "fast"))
		want := "fast: ready\nStarting stuck, slow … 57s at most. Ctrl-C leaves the rest for later.\nslow: ready\n" +
			"stuck: starting; see status\nDid not wait longer for stuck, after 1m.\n"
		if got := out.String(); got != want {
			t.Errorf("the lines are\n%s\nwant\n%s", got, want)
		}
	})
}

// TestTasksAreShown: tasks that end soon are not shown; those of a slow command are, with the result of each
// one. Enter ends the others.
func TestTasksAreShown(t *testing.T) {
	for _, test := range []struct {
		name  string
		slow  time.Duration
		enter time.Duration
		want  string
	}{
		{"soon", 500 * time.Millisecond, time.Hour, ""},
		{"slow", 4 * time.Second, time.Hour, "fast: ok\nAsking slow … 27s at most. Enter goes on.\n"},
		{"ended", time.Hour, 2 * time.Second, "fast: ok\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				began := time.Now()
				w := &Waiting{Out: &out, Limit: 30 * time.Second, Quiet: time.Second, Brief: true, Doing: "Asking", Else: "goes on",
					Enter: func() bool { return time.Since(began) >= test.enter }}
				ctx, cancel := context.WithTimeout(t.Context(), test.slow)
				w.While(t.Context(), func(r *Rows) {
					r.Begin("fast")
					r.Begin("slow")
					r.End("fast", "fast: ok")
					<-ctx.Done()
					r.End("slow", "slow: ok")
				}, cancel)
				if took := time.Since(began); out.String() != test.want || took != min(test.slow, test.enter) {
					t.Errorf("after %v the lines are\n%s\nwant\n%s", took, out.String(), test.want)
				}
			})
		})
	}
}
