package folder

import (
	"context"
	"errors"
	"sync"
)

// most is how many folders a principal opens at the same time. A folder of a file system that does not
// answer keeps its turn, so one principal never holds more threads of the system.
const most = 8

// opening counts the folders that are being opened.
type opening struct {
	mu    sync.Mutex
	turns map[string]*turns // by principal
}

// turns are those of one principal.
type turns struct {
	taken chan struct{}
	users int // who have a turn, or wait for one
}

// begin waits for a turn of the principal. The caller must call end.
func (o *opening) begin(ctx context.Context, principal string) (end func(), err error) {
	o.mu.Lock()
	t := o.turns[principal]
	if t == nil {
		t = &turns{taken: make(chan struct{}, most)}
		o.turns[principal] = t
	}
	t.users++
	o.mu.Unlock()
	select {
	case t.taken <- struct{}{}:
		return func() { <-t.taken; o.leave(principal, t) }, nil
	case <-ctx.Done():
		o.leave(principal, t)
		return nil, errors.Join(errors.New("the folder was not opened in time"), context.Cause(ctx))
	}
}

func (o *opening) leave(principal string, t *turns) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(o.turns, principal)
	}
}
