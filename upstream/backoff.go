package upstream

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff is the pause between attempts: it doubles from 250ms to a minute, each with up to a
// quarter taken off at random so that many do not come at once. The zero value is ready to use, by
// one goroutine.
type backoff struct{ last time.Duration }

const (
	firstPause = 250 * time.Millisecond
	maxPause   = time.Minute
	// even who is woken by a call pauses this long, so that no stream of calls becomes a storm of
	// processes
	wokenPause = 200 * time.Millisecond
)

func (b *backoff) reset() { b.last = 0 }

// next returns the next pause.
func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, firstPause), maxPause)
	return b.last - rand.N(b.last/4)
}

// wait pauses. It returns early when ctx ends, and soon when wake is sent to.
func (b *backoff) wait(ctx context.Context, wake <-chan struct{}) {
	pause := b.next()
	if woken := min(pause, wokenPause); wake != nil {
		if !sleep(ctx, woken, nil) || !sleep(ctx, pause-woken, wake) {
			return
		}
		return
	}
	sleep(ctx, pause, nil)
}

// sleep waits for d, or less when wake is sent to; false means that ctx has ended.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
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
