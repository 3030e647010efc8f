//go:build unix

package client

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
	"junction/upstream/stdio"
	"junction/upstream/transport"
)

// TestLateAnswersOverStdioCount: an abandoned call counts until the command answers it all the
// same, or ends.
func TestLateAnswersOverStdioCount(t *testing.T) {
	// The command tells of each request that it has read, and answers the second one late.
	const script = `for i in 1 2 3; do read -r x; echo '{"jsonrpc":"2.0","method":"begun"}'; done
		read -r x; echo '{"jsonrpc":"2.0","id":6,"result":{}}'; echo '{"jsonrpc":"2.0","id":200,"result":{}}'; cat >/dev/null`
	begun := make(chan struct{}, 3)
	w, err := stdio.Open(stdio.Options{Command: []string{"sh", "-c", script}, Log: authtest.Log(t)},
		func(*jsonrpc.Message) { begun <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s := pace.New(16)
	giveUp := errors.New("the client hung up")
	var abandoned []*Clock
	for i := range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, c := NewClock(ctx, cancel, time.Hour, time.Hour)
		defer c.Stop()
		if _, err := s.Take(ctx, "hog", true, &c.Slot, nil); err != nil {
			t.Fatal(err)
		}
		req := &transport.Request{Message: jsonrpc.Message{ID: jsonrpc.ID(fmt.Sprint(i + 5)), Method: "wait"}, Observer: c}
		done := make(chan error, 1)
		go func() {
			_, err := w.Call(ctx, req, nil)
			done <- err
		}()
		<-begun
		cancel(giveUp)
		if err := <-done; err != giveUp {
			t.Fatalf("Call = %v, want %v", err, giveUp)
		}
		c.Slot.Abandon(time.Hour)
		c.Slot.Free()
		abandoned = append(abandoned, c)
	}
	left := func() (n int) {
		for _, c := range abandoned {
			if !c.Settled() {
				n++
			}
		}
		return n
	}
	used, _ := s.Load()
	if n := left(); n != 3 || used != 0 {
		t.Errorf("%d abandoned calls count, and %d slots are used, want 3 and none", n, used)
	}
	if _, err := w.Call(t.Context(), &transport.Request{Message: jsonrpc.Message{ID: "200", Method: "answer"}}, nil); err != nil {
		t.Fatal(err)
	}
	if n := left(); n != 2 {
		t.Errorf("%d abandoned calls count after one was answered, want 2", n)
	}
	w.Close()
	if n := left(); n != 0 {
		t.Errorf("%d abandoned calls count after the command has ended", n)
	}
}
