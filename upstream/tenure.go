package upstream

import (
	"context"
	"errors"
	"sync"

	"junction/upstream/client"
	"junction/upstream/transport"
)

// tenure is the use of one conn by a link, with the goroutines that belong to it.
type tenure struct {
	conn   client.Conn
	broken chan error // 1-buffered; receives when a call finds the conn broken
	ended  chan error // 1-buffered; receives the reason of the end of the conn
	other  bool       // its session has taken the place of another one, whose lists are served
	tasks  sync.WaitGroup
}

// newTenure begins the use of a conn; end or leave ends it.
func newTenure(c client.Conn) *tenure {
	t := &tenure{conn: c, broken: make(chan error, 1), ended: make(chan error, 1)}
	t.tasks.Go(func() { t.ended <- c.Wait() })
	return t
}

// end closes the conn.
func (t *tenure) end() {
	t.conn.Close()
	t.tasks.Wait()
}

// leave ends the use of a conn. If its session is lost (err, or replaced), calls that are in flight may
// get an answer of their own, such as the 404 after which they are sent again. So the conn is closed in
// the background, after they have ended. At most one conn of a link waits so.
func (l *link) leave(ctx context.Context, t *tenure, err error, replaced bool) {
	if l.hurry != nil {
		l.hurry()
		l.hurry = nil
	}
	if !replaced && !errors.Is(err, transport.ErrSessionGone) {
		t.end()
		return
	}
	ctx, l.hurry = context.WithCancel(ctx)
	hurry := l.hurry
	l.leaving.Go(func() {
		defer hurry()
		t.conn.Drain(ctx)
		t.end()
	})
}
