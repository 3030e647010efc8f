package streams

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"junction/proxy/scope"
)

// Options are what the listeners need of the process.
type Options struct {
	Snapshot func() *scope.Snapshot // the current snapshot; does not block
	Queue    int                    // maximum of waiting notifications per client
	Ending   context.Context        // ends when the streams end: no subscription moves any more
	Log      *slog.Logger
}

// Listeners are the open streams and the subscribers to resources.
type Listeners struct {
	options     Options
	mu          sync.Mutex
	open        map[*Listener]struct{}
	subscribers map[*Subscriber]struct{}
	moving      sync.WaitGroup // goroutines of release and follow
}

// New returns Listeners without streams. Close must follow.
func New(o Options) *Listeners {
	return &Listeners{options: o, open: map[*Listener]struct{}{}, subscribers: map[*Subscriber]struct{}{}}
}

// Close waits for the goroutines. Options.Ending must have ended.
func (ls *Listeners) Close() { ls.moving.Wait() }

// Session identifies a legacy session for its streams and subscriptions, by its address.
type Session struct{ ended atomic.Bool }

// End records that the session has ended. Later subscriptions of its requests end at once.
func (s *Session) End() { s.ended.Store(true) }
