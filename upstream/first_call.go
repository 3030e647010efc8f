package upstream

import (
	"context"
	"sync"
	"time"

	"junction/upstream/client"
	"junction/upstream/pace"
)

// This file is about the first call of a process that works in the folder of a client (isolation: folder). Some
// servers ask for roots after the handshake, and permit the folder only when they have worked on the answer. A
// client of its own starts such a server long before the first call. Here the first call starts it, and would be
// refused.

const (
	// asksWithin is how long a server that has answered a ping has to ask for roots.
	asksWithin = 20 * time.Millisecond
	// settlesWithin is how long a server works on the answer at least. It answers as many pings meanwhile, one after
	// the other, so that it has more time on a busy machine.
	settlesWithin = 100 * time.Millisecond
	settlingPings = 10
)

// noticed returns a hook that answers like roots, and a channel that it closes.
func noticed(roots func() []byte) (hook func() []byte, asked <-chan struct{}) {
	var once sync.Once
	first := make(chan struct{})
	return func() []byte {
		once.Do(func() { close(first) })
		return roots()
	}, first
}

// awaitRoots waits until a legacy server that asks for roots after the handshake has got them. asked is closed when the
// server asks. A modern server asks during a call.
func awaitRoots(ctx context.Context, c client.Conn, asked <-chan struct{}) {
	if c.Info().Era != client.EraLegacy {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, listenPatience)
	defer cancel()
	_ = c.Ping(ctx) // a server that does not answer costs the time of ctx
	if pace.Sleep(ctx, asksWithin, asked); pace.IsClosed(asked) {
		for n := 0; n < settlingPings && pace.Sleep(ctx, settlesWithin/settlingPings, nil); n++ {
			_ = c.Ping(ctx)
		}
	}
}
