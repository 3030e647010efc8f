package client

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"junction/upstream/stdio"
	"junction/upstream/upstreamtest"
)

// TestInitializeAloneAfterSilence: a command that was silent or broke after server/discover gets
// initialize alone in the next attempt. No attempt starts more processes than before, and one has
// ended before the next starts.
func TestInitializeAloneAfterSilence(t *testing.T) {
	t.Parallel()
	const fails = "an error"
	discover, initialize := []string{"server/discover"}, []string{"initialize", "notifications/initialized"}
	both := []string{"server/discover", "initialize"}
	for _, tt := range []struct {
		name   string
		script upstreamtest.Script
		want   []string     // of one attempt after the other
		asked  [][][]string // of each attempt, the messages of each process
	}{
		{"null, and it dies of initialize", upstreamtest.Script{Era: "legacy", Rules: []upstreamtest.Rule{
			{Method: "server/discover", Result: []byte("null")}, {Method: "initialize", After: "server/discover", Die: true}}},
			[]string{fails, isLegacy, isLegacy}, [][][]string{{both}, {initialize}, {initialize}}},
		{"silent", upstreamtest.Script{Era: "legacy", Rules: []upstreamtest.Rule{
			{Method: "server/discover", Hang: true}, {Method: "initialize", After: "server/discover", Hang: true}}},
			[]string{fails, isLegacy, isLegacy}, [][][]string{{both}, {initialize}, {initialize}}},
		{"it dies of each message", upstreamtest.Script{Rules: []upstreamtest.Rule{{Method: "*", Die: true}}},
			[]string{fails, fails, fails}, [][][]string{{discover, initialize[:1]}, {initialize[:1]}, {discover, initialize[:1]}}},
		{"silent, and then modern", upstreamtest.Script{Era: "modern", Rules: []upstreamtest.Rule{{Method: "server/discover", Hang: true}}},
			[]string{fails, fails, fails}, [][][]string{{both}, {initialize[:1]}, {both}}},
		{"answered by an error", upstreamtest.Script{Era: "legacy", Rules: []upstreamtest.Rule{{Method: "initialize", Die: true}}},
			[]string{fails, fails}, [][][]string{{both}, {both}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			child := upstreamtest.Command(t, tt.script)
			to := target{Command: child.Command, Env: stdio.Environment{Own: child.Env}, ConnectTimeout: time.Minute}
			silent := tt.script.Rules[0].Hang
			if silent {
				to.ConnectTimeout = 20 * time.Millisecond // half of it is for server/discover
			}
			d := testDialer(t, to, nil)
			begun, exited := 0, 0
			d.options.Opened = func() { begun++ }
			for i, want := range tt.want {
				ctx, cancel := context.WithCancel(t.Context())
				before := len(child.Received())
				var waiting sync.WaitGroup
				if silent && want == fails { // it ends when the server has the last question
					waiting.Go(func() {
						seen := 0
						child.Await(ctx, func(r upstreamtest.Record) bool {
							seen++
							return seen > before && r.Message.Method == "initialize"
						})
						cancel()
					})
				}
				began := begun
				got, err := dialed(ctx, d)
				cancel()
				waiting.Wait()
				for _, r := range child.Received() {
					if p, err := os.FindProcess(r.PID); err == nil && p.Signal(syscall.Signal(0)) == nil {
						t.Errorf("attempt %d has ended, and its process %d has not", i+1, r.PID)
					}
				}
				if want == fails && err == nil || want != fails && got != want {
					t.Fatalf("attempt %d: dial = %q, %v; want %s", i+1, got, err, want)
				}
				for range begun - began { // the test hears of the end a moment later
					exited++
					n := 0
					if _, err := child.Await(t.Context(), func(r upstreamtest.Record) bool {
						if r.Verb == "EXIT" {
							n++
						}
						return n == exited
					}); err != nil {
						t.Fatal(err)
					}
				}
				if asked := messagesOf(child.Received()[before:]); !slices.EqualFunc(asked, tt.asked[i], slices.Equal[[]string]) {
					t.Errorf("attempt %d: the processes were asked %q, want %q", i+1, asked, tt.asked[i])
				}
			}
		})
	}
}

// messagesOf returns the messages of each process, in the order of their starts.
func messagesOf(records []upstreamtest.Record) (asked [][]string) {
	place := map[int]int{}
	for _, r := range records {
		switch {
		case r.Verb == "START":
			place[r.PID] = len(asked)
			asked = append(asked, nil)
		case r.Message.Method != "" && r.Verb != "CLOSE" && !strings.HasPrefix(r.Message.Method, "notifications/cancelled"):
			at := place[r.PID]
			asked[at] = append(asked[at], r.Message.Method)
		}
	}
	return asked
}

// TestCommandsAreNotTaughtByFailedStarts: a program that cannot be started says nothing about the eras.
func TestCommandsAreNotTaughtByFailedStarts(t *testing.T) {
	d := testDialer(t, target{Command: []string{"/nowhere/at/all"}}, nil)
	if _, err := dialed(t.Context(), d); !errors.Is(err, stdio.ErrNoProgram) && err == nil {
		t.Fatal("a program that does not exist was started")
	}
	if d.known.takeAlone() {
		t.Error("the next attempt would send initialize alone")
	}
}
