package budget

import (
	"context"
	"runtime"
	"sync"
)

// Turns shares the processors for work that needs them for a long time, such as a large check of
// arguments. An account has at most one turn at a time, and all accounts together have half of the
// processors. So an account waits behind one turn of each other account, and requests without such
// work wait for nothing. The zero value is ready for use.
type Turns struct {
	mu    sync.Mutex
	queue map[Account]*queue
	free  chan struct{} // one element for each turn in progress
}

// queue lets one request of an account after the other wait for a processor.
type queue struct {
	first chan struct{} // holds an element while a request of the account has or awaits its turn
	users int
}

// Turn waits until it is the account's turn. The caller must call end when its work is done. The
// error comes from ctx.
func (t *Turns) Turn(ctx context.Context, a Account) (end func(), err error) {
	q := t.enter(a)
	if err := take(ctx, q.first); err != nil {
		t.leave(a, q)
		return nil, err
	}
	next := func() {
		<-q.first
		t.leave(a, q)
	}
	if err := take(ctx, t.free); err != nil {
		next()
		return nil, err
	}
	return func() {
		<-t.free
		next()
	}, nil
}

// take puts an element into c as soon as there is room.
func take(ctx context.Context, c chan struct{}) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *Turns) enter(a Account) *queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free == nil {
		t.free, t.queue = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), map[Account]*queue{}
	}
	q := t.queue[a]
	if q == nil {
		q = &queue{first: make(chan struct{}, 1)}
		t.queue[a] = q
	}
	q.users++
	return q
}

func (t *Turns) leave(a Account, q *queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if q.users--; q.users == 0 {
		delete(t.queue, a)
	}
}
