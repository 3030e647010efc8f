// Package load makes calls during a fault, and tells what the fault has cost.
package load

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/integration/harness"
)

// Load is callers that make one call after the other, and how each call ended.
type Load struct {
	t      testing.TB
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu    sync.Mutex
	calls []loaded
	more  chan struct{} // closed and replaced after each call
}

type loaded struct {
	began, ended time.Time
	err          error
}

// Start starts callers, which go on until Stop or the end of the test. A caller waits a moment after
// each call, as agents do. So callers leave the processors to the program that recovers.
func Start(t testing.TB, callers int, call func(ctx context.Context, caller, n int) error) *Load {
	t.Helper()
	l := &Load{t: t, more: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	l.cancel = cancel
	for i := range callers {
		l.all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				one, done := context.WithTimeout(ctx, harness.Patience)
				began := time.Now()
				err := call(one, i, n)
				done()
				if ctx.Err() != nil {
					return
				}
				l.note(loaded{began, time.Now(), err})
				pause(ctx, 20*time.Millisecond)
			}
		})
	}
	t.Cleanup(l.Stop)
	return l
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (l *Load) note(c loaded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, c)
	close(l.more)
	l.more = make(chan struct{})
}

// Stop ends the callers. It may be called more than once.
func (l *Load) Stop() {
	l.cancel()
	l.all.Wait()
}

// await waits until the calls so far fulfil a condition.
func (l *Load) await(what string, holds func(calls []loaded) bool) {
	l.t.Helper()
	late := time.NewTimer(2 * harness.Patience)
	defer late.Stop()
	for {
		l.mu.Lock()
		ok, more := holds(l.calls), l.more
		l.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-more:
		case <-late.C:
			l.t.Fatalf("%s within %v: not so: %s", what, 2*harness.Patience, l.Figures(time.Time{}))
		}
	}
}

// AwaitCalls waits for n further calls that succeed.
func (l *Load) AwaitCalls(n int) { l.t.Helper(); l.awaitFurther(n, false) }

// AwaitFailures waits for n further calls that fail.
func (l *Load) AwaitFailures(n int) { l.t.Helper(); l.awaitFurther(n, true) }

func (l *Load) awaitFurther(n int, failed bool) {
	l.t.Helper()
	from := time.Now()
	l.await(fmt.Sprintf("%d further calls, failed: %v", n, failed), func(calls []loaded) bool {
		seen := 0
		for _, c := range calls {
			if c.began.After(from) && (c.err != nil) == failed {
				seen++
			}
		}
		return seen >= n
	})
}

// Figures are what a fault costs.
type Figures struct {
	Calls, Lost int
	Recovered   time.Duration // from the end of the fault to the end of the last call that failed; 0 without one
	Texts       []string      // what the failures say, without repetitions
}

func (f Figures) String() string {
	return fmt.Sprintf("%d calls, %d lost, recovered after %v; people read %q", f.Calls, f.Lost, f.Recovered, f.Texts)
}

// Figures returns the figures of all calls, for a fault that has ended at a time.
func (l *Load) Figures(over time.Time) (f Figures) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		f.Calls++
		if c.err == nil {
			continue
		}
		f.Lost++
		if !over.IsZero() {
			f.Recovered = max(f.Recovered, c.ended.Sub(over).Round(time.Millisecond))
		}
		if text := plainText(c.err); !slices.Contains(f.Texts, text) && len(f.Texts) < 8 {
			f.Texts = append(f.Texts, text)
		}
	}
	return f
}

var numbers = regexp.MustCompile(`[0-9]+`)

// plainText returns the text of an error, so that errors that differ in numbers are the same.
func plainText(err error) string { return numbers.ReplaceAllString(harness.OneLine(err.Error()), "0") }

// Call makes one call of a tool and returns why it did not succeed: the text that an agent shows.
func Call(ctx context.Context, c *harness.Caller, tool, arguments string) error {
	x, err := c.Call(ctx, tool, arguments)
	switch {
	case err != nil:
		return err
	case strings.Contains(x.Answer, `"result":`) && !strings.Contains(x.Answer, `"isError":true`):
		return nil
	}
	if m := messageText.FindStringSubmatch(x.Answer); m != nil {
		return errors.New(m[1])
	}
	return fmt.Errorf("%.300s", x.Answer)
}

var messageText = regexp.MustCompile(`"(?:message|text|error_description)":"((?:[^"\\]|\\.)*)"`)
