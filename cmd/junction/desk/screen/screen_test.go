package screen

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/ops/diagnose"
)

// terminal is what a person sees: it knows the two sequences that a Screen writes.
type terminal struct {
	mu    sync.Mutex
	lines []string
	bytes int
}

func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes += len(p)
	text := string(p)
	var up int
	if n, _ := fmt.Sscanf(text, "\x1b[%dA\r\x1b[J", &up); n == 1 {
		t.lines = t.lines[:len(t.lines)-up]
		return len(p), nil
	}
	for line := range strings.Lines(text) {
		t.lines = append(t.lines, line)
	}
	return len(p), nil
}

func (t *terminal) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "")
}

// proxy is a proxy with two upstreams, of which slow is tried after 10 seconds.
func proxy() func() []diagnose.UpstreamStatus {
	began := time.Now()
	return func() []diagnose.UpstreamStatus {
		slow := diagnose.UpstreamStatus{Name: "slow", State: "starting"}
		switch age := time.Since(began); {
		case age >= 10*time.Second:
			slow = diagnose.UpstreamStatus{Name: "slow", State: "ready", Era: "legacy", Tools: 7}
		case age >= 2*time.Second:
			slow.Note = "npx may be downloading the package"
		}
		return []diagnose.UpstreamStatus{{Name: "fast", State: "ready", Era: "modern", Tools: 3}, slow}
	}
}

// TestTerminal: the table is redrawn until each upstream was tried, log lines stay above it, and the
// last line says what to do.
func TestTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen terminal
		s := &Screen{live: cli.Live{Out: &seen, Size: func() (int, int) { return 100, 50 }}, log: &seen}
		early := 0
		done := make(chan struct{})
		go func() {
			s.Run(t.Context(), &Text{URL: "URL"}, proxy(), func() { early++ })
			close(done)
		}()
		time.Sleep(time.Millisecond)
		log := logLines{s}
		fmt.Fprintln(log, "one log line")
		synctest.Wait()
		if got := seen.String(); !strings.HasPrefix(got, "one log line\nJunction serves URL\n") || !strings.Contains(got, "  slow      starting") ||
			!strings.HasSuffix(got, "\nStarting 1 upstream …\n") || !strings.Contains(got, "claude mcp add") {
			t.Errorf("at the start a person sees\n%s", got)
		}
		time.Sleep(4 * time.Second)
		fmt.Fprintln(log, "another")
		synctest.Wait()
		if got := seen.String(); !strings.HasPrefix(got, "one log line\nanother\nJunction serves URL\n") ||
			!strings.Contains(got, "  slow      starting      -  npx may be downloading the package\n") || early != 1 {
			t.Errorf("after 4 seconds a person sees, with %d calls of early,\n%s", early, got)
		}
		<-done
		if seen.bytes > 4000 {
			t.Errorf("%d bytes were written: what is the same is not redrawn", seen.bytes)
		}
		fmt.Fprintln(log, "a third")
		got := seen.String()
		if strings.Count(got, "Junction serves") != 1 || !strings.Contains(got, "  slow      ready      7\n") ||
			!strings.HasSuffix(got, "\nNext: connect a client with a line above, or with junction connect CLIENT\na third\n") || strings.Contains(got, "…") {
			t.Errorf("at the end a person sees\n%s", got)
		}
	})
}

// TestLogFollowsTheTable: the lines of a log on the same terminal follow the complete table, or appear
// above it after ten seconds. None is lost, also without a table.
func TestLogFollowsTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen terminal
		s := &Screen{live: cli.Live{Out: &seen, Size: func() (int, int) { return 100, 50 }}, log: &seen, together: true}
		s.Hold()
		fmt.Fprintln(s.Log(), "before")
		fast := func() []diagnose.UpstreamStatus { return []diagnose.UpstreamStatus{{Name: "fast", State: "ready"}} }
		checked := time.Now().Add(time.Second)
		trouble := func() ([]Trouble, bool) {
			if time.Now().Before(checked) {
				return nil, false
			}
			return []Trouble{{"sign-in", "no route", "try later"}}, true
		}
		s.Run(t.Context(), &Text{URL: "URL", Trouble: trouble}, fast, func() {})
		fmt.Fprintln(s.Log(), "after")
		got := seen.String()
		if !strings.HasPrefix(got, "Junction serves URL\n") || !strings.HasSuffix(got, "connect CLIENT\nbefore\nafter\n") ||
			!strings.Contains(got, "  fast      ready      -\n  sign-in: no route\n    → try later\n\nClaude Code") || s.Holds() {
			t.Errorf("a person sees\n%s", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var seen terminal
		s := &Screen{live: cli.Live{Out: &seen, Size: func() (int, int) { return 100, 50 }}, log: &seen, together: true}
		s.Hold()
		slow := func() []diagnose.UpstreamStatus { return []diagnose.UpstreamStatus{{Name: "slow", State: "starting"}} }
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		time.AfterFunc(9*time.Second, func() { fmt.Fprintln(s.Log(), "kept back") })
		s.Run(ctx, &Text{URL: "URL"}, slow, func() {})
		if got := seen.String(); !strings.HasPrefix(got, "kept back\nJunction serves URL\n") {
			t.Errorf("after ten seconds a person sees\n%s", got)
		}
	})
	var seen terminal
	s := &Screen{live: cli.Live{Out: &seen, Size: func() (int, int) { return 100, 50 }}, log: &seen, together: true}
	s.Hold()
	fmt.Fprint(s.Log(), strings.Repeat("a line\n", maxHeld/7))
	if seen.String() != "" {
		t.Error("the lines are not kept back")
	}
	fmt.Fprint(s.Log(), "one too many\n")
	s.Hold()
	fmt.Fprint(s.Log(), "the last one\n")
	s.Release()
	if got := seen.String(); strings.Count(got, "a line\n") != maxHeld/7 || !strings.HasSuffix(got, "\none too many\nthe last one\n") {
		t.Errorf("there are %d bytes", len(got))
	}
}

// TestTerminalIsTooSmall: what cannot be redrawn is printed as lines.
func TestTerminalIsTooSmall(t *testing.T) {
	for name, size := range map[string][2]int{"low": {100, 6}, "narrow": {60, 50}, "unknown": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen terminal
				s := &Screen{live: cli.Live{Out: &seen, Size: func() (int, int) { return size[0], size[1] }}, log: &seen}
				s.Run(t.Context(), &Text{URL: "URL"}, proxy(), func() {})
				mustBeLines(t, seen.String())
			})
		})
	}
}

// TestLines: a pipe gets the table after three seconds, then a row for each upstream, and nothing is
// redrawn.
func TestLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		New(&out, &out).Run(t.Context(), &Text{URL: "URL"}, proxy(), func() {})
		mustBeLines(t, out.String())
	})
}

func mustBeLines(t *testing.T, got string) {
	t.Helper()
	table, rest, _ := strings.Cut(got, "\nClaude Code\n")
	want := "Junction serves URL\n\n  UPSTREAM  STATE     TOOLS\n  fast      ready         3\n" +
		"  slow      starting      -  npx may be downloading the package\n"
	if table != want || !strings.HasSuffix(rest, "\n\n  slow      ready         7\n"+
		"\nNext: connect a client with a line above, or with junction connect CLIENT\n") || strings.Contains(got, "\x1b") {
		t.Errorf("the lines are\n%s", got)
	}
}

// TestEnd: the end of the program ends the screen, and leaves the table.
func TestEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen terminal
		s := &Screen{live: cli.Live{Out: &seen, Size: func() (int, int) { return 100, 50 }}, log: &seen}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.Run(ctx, &Text{URL: "URL"}, proxy(), func() {})
		fmt.Fprintln(logLines{s}, "the end")
		if got := seen.String(); strings.Count(got, "Junction serves") != 1 || !strings.HasSuffix(got, "\nStarting 1 upstream …\nthe end\n") {
			t.Errorf("a person sees\n%s", got)
		}
	})
}
