package upstream

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
	"junction/upstream/pace"
	"junction/upstream/upstreamtest"
)

// TestFirstCallComesAfterTheRoots: a server that asks for roots after the handshake has the answer before the call for
// which its process was started. A server that does not ask gets the call, too.
func TestFirstCallComesAfterTheRoots(t *testing.T) {
	for _, asks := range []bool{true, false} {
		p := newPlaces(t, "shop")
		child := upstreamtest.Command(t, upstreamtest.Script{Era: string(client.EraLegacy), AsksRoots: asks})
		u := Start("up", Config{Command: child.Command, Env: child.Env, Era: client.EraLegacy, Isolation: IsolationFolder},
			Options{Log: authtest.Log(t)})
		defer u.Close()
		pid := whoIs(t, u, p.in(t, "", "shop")).Pid
		answered := false
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a process reports a moment later
		defer cancel()
		if _, err := child.Await(ctx, func(r upstreamtest.Record) bool {
			if r.PID == pid && bytes.Contains(r.Body, []byte(`"roots":[`)) {
				answered = true
			}
			return r.PID == pid && r.Message.Method == "tools/call"
		}); err != nil || answered != asks {
			t.Errorf("asks %v: before the call, the process has the roots: %v (%v)", asks, answered, err)
		}
	}
}

// TestBusyServerHasLongerForItsRoots: a server that answers pings slowly has more time to work on its roots, and one
// that does not ask has none.
func TestBusyServerHasLongerForItsRoots(t *testing.T) {
	for _, tt := range []struct {
		ping, want time.Duration
		asks       bool
	}{
		{0, settlesWithin, true}, {50 * time.Millisecond, 11*50*time.Millisecond + settlesWithin, true},
		{time.Hour, listenPatience, true}, {0, asksWithin, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := make(chan struct{})
			if tt.asks {
				close(asked)
			}
			began := time.Now()
			awaitRoots(t.Context(), busy{ping: tt.ping}, asked)
			if took := time.Since(began); took != tt.want {
				t.Errorf("with a ping of %v it has %v, want %v", tt.ping, took, tt.want)
			}
		})
	}
}

// busy is the connection of a legacy server that answers a ping after a time.
type busy struct {
	client.Conn
	ping time.Duration
}

func (busy) Info() *client.Info { return &client.Info{Era: client.EraLegacy} }

func (b busy) Ping(ctx context.Context) error {
	pace.Sleep(ctx, b.ping, nil)
	return nil
}
