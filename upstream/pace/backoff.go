package pace

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is the pause between attempts: it doubles from 250ms to a minute, each with up to a
// quarter taken off at random so that many do not come at once. The zero value is ready to use, by
// one goroutine.
type Backoff struct {
	Last time.Duration // the next pause is twice as long
}

const (
	firstPause = 250 * time.Millisecond
	// Longest is the longest pause.
	Longest = time.Minute
	// Woken is how long even who is woken by a call pauses, so that no stream of calls becomes a
	// storm of processes.
	Woken = 200 * time.Millisecond
)

// Reset has the next pause be the first one.
func (b *Backoff) Reset() { b.Last = 0 }

// Next returns the next pause, for Wait.
func (b *Backoff) Next() time.Duration {
	b.Last = min(max(2*b.Last, firstPause), Longest)
	return b.Last - rand.N(b.Last/4)
}

// Wait pauses. It returns early when ctx ends, and soon when wake is sent to.
func Wait(ctx context.Context, pause time.Duration, wake <-chan struct{}) {
	if woken := min(pause, Woken); wake != nil {
		if !Sleep(ctx, woken, nil) || !Sleep(ctx, pause-woken, wake) {
			return
		}
		return
	}
	Sleep(ctx, pause, nil)
}

// Sleep waits for d, or less when wake is sent to; false means that ctx has ended.
func Sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	case <-t.C:
	}
	return true
}
