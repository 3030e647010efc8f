package upstream

import (
	"bytes"
	"context"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
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
