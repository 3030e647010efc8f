package replicas

import (
	"context"
	"sync"
	"time"

	"junction/upstream/pace"
)

// watched has those who wait for the next reading of the table members. One goroutine of a process
// reads the table for all of them (hold).
type watched struct {
	mu      sync.Mutex
	next    chan struct{} // closed and replaced after each reading
	waiting int
}

// begin returns a channel that is closed after the next reading. The caller must call end.
func (w *watched) begin() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting++
	return w.next
}

func (w *watched) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
}

func (w *watched) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.waiting > 0
}

func (w *watched) notify() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.next)
	w.next = make(chan struct{})
}

// Await implements members.Members. While requests wait, the table is read when another member
// reports a change, and once in TTL/15 for all of them.
func (m *Member) Await(ctx context.Context, id string) error {
	begun := m.living(id)
	failed := begun != nil && begun.conns.failed.Load() != nil
	for read := false; ; read = true {
		next := m.read.begin()
		p := m.living(id)
		if p == nil && (begun != nil || read) || // its lease has ended
			p != nil && (begun == nil || p.unreachable() || p.renewed.After(begun.renewed) ||
				failed && p.conns.failed.Load() == nil) {
			m.read.end()
			return nil
		}
		if !read {
			pace.Wake(m.wake)
		}
		var expiry <-chan time.Time
		if p != nil {
			expiry = time.After(time.Until(p.until))
		}
		select {
		case <-next:
		case <-expiry:
		case <-ctx.Done():
		}
		m.read.end()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
