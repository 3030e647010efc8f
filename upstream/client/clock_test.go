package client

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
)

// quietPeer is a client that counts log messages.
type quietPeer struct{ log atomic.Int64 }

func (q *quietPeer) Notify(string, []byte) { q.log.Add(1) }

func (q *quietPeer) Ask(context.Context, *ServerRequest) ([]byte, error) {
	return nil, errors.New("no user answers")
}

// TestForeignLogMessagesAreSignsOfLife has a call's own log messages come, as progress would, on a
// stream that belongs to no call.
func TestForeignLogMessagesAreSignsOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(modernConn)
		m.init(authtest.Log(t), Hooks{}, EraModern)
		ctx, clock := NewClock(t.Context(), nil, time.Minute, time.Hour)
		defer clock.Stop()
		client := new(quietPeer)
		m.track(&flight{id: "1", peer: client, clock: clock, ctx: ctx})
		log, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`), 10)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			settle(50 * time.Second)
			m.receive(&log)
		}
		if err := context.Cause(ctx); err != nil {
			t.Errorf("the call has ended: %v", err)
		}
		settle(time.Minute)
		if late, ok := errors.AsType[*timeoutError](context.Cause(ctx)); !ok || !strings.Contains(late.Error(), "for 1m0s") || client.log.Load() != 5 {
			t.Errorf("the call ended with %v after %d log messages, want that it was silent for a minute after 5", context.Cause(ctx), client.log.Load())
		}
	})
}
