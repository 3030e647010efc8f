//go:build unix

package upstream

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestSafety8LateAnswersOverStdio: an abandoned call counts until the command answers it all the
// same, or ends.
func TestSafety8LateAnswersOverStdio(t *testing.T) {
	w := mustOpen(t, "server")
	s := newSlots(16)
	giveUp := errors.New("the client hung up")
	begun := hex.EncodeToString([]byte(`{"jsonrpc":"2.0","method":"begun"}` + "\n"))
	for i := range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, c := newClock(ctx, cancel, time.Hour, time.Hour)
		defer c.stop()
		if _, err := s.take(ctx, "hog", true, &c.slot); err != nil {
			t.Fatal(err)
		}
		req := newRequest(fmt.Sprint(i+5), "say", `["`+begun+`"]`)
		req.clock = c
		done := make(chan error, 1)
		go func() {
			_, err := w.Call(ctx, req, nil)
			done <- err
		}()
		<-w.said
		cancel(giveUp)
		if err := <-done; err != giveUp {
			t.Fatalf("Call = %v, want %v", err, giveUp)
		}
		c.slot.abandon(time.Hour)
		c.slot.free()
	}
	left := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.of["hog"].left
	}
	if n := left(); n != 3 || s.used != 0 {
		t.Errorf("%d abandoned calls count, and %d slots are used, want 3 and none", n, s.used)
	}
	w.say(`{"jsonrpc":"2.0","id":6,"result":{}}` + "\n")
	w.mustCall("200", "echo", "{}")
	if n := left(); n != 2 {
		t.Errorf("%d abandoned calls count after one was answered, want 2", n)
	}
	w.Close()
	if n := left(); n != 0 {
		t.Errorf("%d abandoned calls count after the command has ended", n)
	}
}
