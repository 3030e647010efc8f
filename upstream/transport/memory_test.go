package transport

import (
	"errors"
	"io"
	"strings"
	"testing"

	"junction/upstream/jsonrpc"
)

// purse is an account of a fixed size, for one goroutine.
type purse struct{ used, most, size int64 }

var errPurse = errors.New("the purse is empty")

func (p *purse) Reserve(n int64) error {
	if p.used+n > p.size {
		return errPurse
	}
	p.used += n
	p.most = max(p.most, p.used)
	return nil
}

func (p *purse) Release(n int64) { p.used -= n }

// TestEventsCountWhileTheyAreRead: the buffer of a stream that belongs to no caller counts, and is
// dropped after a large event.
func TestEventsCountWhileTheyAreRead(t *testing.T) {
	p := &purse{size: 4 << 20}
	event := func(n int) io.Reader { return strings.NewReader("data: " + strings.Repeat("x", n) + "\n\n") }
	r := jsonrpc.NewEventReader(io.MultiReader(event(100), event(1500<<10), event(100), event(5<<20)), 64<<20)
	(&origin{account: p}).charge(r)
	next := func(n int) {
		t.Helper()
		if e, err := r.Next(); err != nil || len(e.Data) != n {
			t.Fatalf("%d bytes, %v", len(e.Data), err)
		}
	}
	next(100)
	next(1500 << 10)
	large := p.used
	next(100)
	if large < 1500<<10 || p.used >= large {
		t.Errorf("a large event takes %d bytes, and the next one %d", large, p.used)
	}
	if _, err := r.Next(); !errors.As(err, new(*MemoryError)) || !errors.Is(err, errPurse) || p.most > p.size {
		t.Errorf("an event without room: %v", err)
	}
	if r.Close(); p.used != 0 {
		t.Errorf("%d bytes are in use at the end", p.used)
	}
}

// TestLease: the last owner returns the memory, once. What Reserve has accounted for does not count
// again.
func TestLease(t *testing.T) {
	p := &purse{size: 1 << 20}
	l := NewLease(p)
	for _, step := range []struct{ reserve, keep, want int64 }{{0, 60 << 10, 0}, {100 << 10, 100 << 10, 100 << 10}, {0, 10 << 10, 170 << 10}, {0, 20 << 10, 170 << 10}} {
		if err := errors.Join(l.Reserve(step.reserve), l.Keep(step.keep)); err != nil || p.used != step.want {
			t.Errorf("after %+v: %v, with %d bytes", step, err, p.used)
		}
	}
	if err := l.Keep(1 << 20); !errors.As(err, new(*MemoryError)) {
		t.Errorf("beyond the account: %v", err)
	}
	other := l.Share()
	l.Release()
	if p.used == 0 {
		t.Error("the other owner has lost the memory")
	}
	other.Release()
	other.Release()
	if p.used != 0 || l.Share() != nil || l.Reserve(1) == nil {
		t.Errorf("%d bytes are in use at the end", p.used)
	}
	if err := NewLease(nil).Limit(10, "more than %s").Keep(11); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "more than 10 bytes") {
		t.Errorf("beyond its own limit: %v", err)
	}
	var none *Lease
	if none.Release(); none.Keep(1) != nil || none.Reserve(1) != nil || none.Share() != nil {
		t.Error("no lease limits something")
	}
}
