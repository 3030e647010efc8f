package pace

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff returns the pauses between attempts. They double from 250ms to a minute. Each is
// shortened by up to a quarter at random, so that many links do not try at the same moment. The
// zero value is ready to use, by one goroutine.
type Backoff struct {
	last time.Duration // the next pause is twice as long
}

const (
	firstPause = 250 * time.Millisecond
	// Longest is the longest pause.
	Longest = time.Minute
	// Woken is the shortest pause, also if a call wakes the waiter. Without it, a stream of calls
	// to a server that fails at once would start one process after the other.
	Woken = 200 * time.Millisecond
)

// Reset makes the next pause the shortest one again.
func (b *Backoff) Reset() { b.last = 0 }

// Begin makes the next pause about d, within the limits of all pauses.
func (b *Backoff) Begin(d time.Duration) { b.last = d / 2 }

// Next returns the next pause. Pass it to Wait.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, firstPause), Longest)
	return b.last - rand.N(b.last/4)
}

// Wait pauses. It returns early when ctx ends. If wake receives a value, it returns after Woken.
func Wait(ctx context.Context, pause time.Duration, wake <-chan struct{}) {
	if woken := min(pause, Woken); Sleep(ctx, woken, nil) {
		Sleep(ctx, pause-woken, wake)
	}
}

// Sleep waits for d, or until wake receives a value or is closed. It returns false if ctx has ended. A
// nil wake is never ready.
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

// Wake sends to c, which has a buffer of 1, unless a value waits in it already. It does nothing if c
// is nil.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// IsClosed reports whether a channel that nothing is sent on is closed.
func IsClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Burst tells whether something happens too often: more than Most times, less one for each Every that
// has passed. It may be used by one goroutine.
type Burst struct {
	Most  float64
	Every time.Duration

	recent float64 // since last
	last   time.Time
}

// Took notes that it happens.
func (b *Burst) Took(now time.Time) {
	b.recent = max(0, b.recent-float64(now.Sub(b.last))/float64(b.Every)) + 1
	b.last = now
}

// Pause returns how long to wait after the last time: usual, or Every if it happens too often.
func (b *Burst) Pause(usual time.Duration) time.Duration {
	if b.recent > b.Most {
		return b.Every
	}
	return usual
}
