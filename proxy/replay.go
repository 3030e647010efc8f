package proxy

import (
	"context"
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
)

// This file holds how a legacy client takes up the stream of a call that broke off: its events have
// ids, and a GET with Last-Event-ID brings those that followed (2025-11-25,
// basic/transports#resumability-and-redelivery). The modern era has no such thing.

// record is the events of one call's stream.
type record struct {
	name string

	mu     sync.Mutex
	events [][]byte // as written; the one with the number n is events[n]; nil when gone
	count  int      // events so far
	size   int
	ended  bool          // the answer was the last
	gone   bool          // the events are kept no more, or cannot be
	grown  chan struct{} // closed and replaced with every event, and at the end
	held   grant         // of the events
}

const (
	maxRecord  = 1 << 20     // bytes of one stream
	maxRecords = 8           // streams of one session
	recordKept = time.Minute // after the answer
)

// record begins the events of a stream; nil for a session whose version has no ids for events. held
// has nothing yet.
func (s *session) record(held grant) *record {
	if s.version < mcp.ProtocolVersion20250326 {
		return nil
	}
	r := &record{name: rand.Text()[:13], grown: make(chan struct{}), held: held}
	if s.version >= mcp.ProtocolVersion20251125 {
		// A first event without data, so that the client has an id before anything happened. Older
		// clients would take it for a message.
		r.count = 1
		r.events = append(r.events, []byte("id: "+r.id(0)+"\nretry: 1000\ndata: \n\n"))
	}
	var oldest *record
	s.mu.Lock()
	if len(s.records) >= maxRecords {
		oldest = s.records[0]
		s.records = append(s.records[:0], s.records[1:]...)
	}
	s.records = append(s.records, r)
	s.mu.Unlock()
	if oldest != nil {
		oldest.drop()
	}
	return r
}

// drop gives up the events.
func (r *record) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
}

// forget is drop while mu is held.
func (r *record) forget() {
	r.gone, r.events = true, nil
	r.held.release()
}

func (r *record) id(n int) string { return r.name + "-" + strconv.Itoa(n) }

// add returns the event for a message, which it keeps.
func (r *record) add(message []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	event := jsonrpc.AppendEvent(make([]byte, 0, len(message)+64), r.id(r.count), message)
	r.count++
	switch r.size += len(event); {
	case r.gone:
	case r.size > maxRecord, r.held.take(ofBytes, int64(len(event))) != nil:
		r.forget()
	default:
		r.events = append(r.events, event)
	}
	r.tell()
	return event
}

func (r *record) tell() {
	close(r.grown)
	r.grown = make(chan struct{})
}

// end says that there are no further events. They are kept for a while.
func (r *record) end(s *session) {
	r.mu.Lock()
	r.ended = true
	r.tell()
	r.mu.Unlock()
	time.AfterFunc(recordKept, func() {
		r.drop()
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, other := range s.records {
			if other == r {
				s.records = append(s.records[:i], s.records[i+1:]...)
				break
			}
		}
		if len(s.records) == 0 {
			s.records = nil
		}
	})
}

// after returns the events that follow the number n, whether the last is among them, and what is
// closed when there are more.
func (r *record) after(n int) (events [][]byte, ended bool, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) < r.count {
		return nil, true, nil
	}
	return r.events[min(n, len(r.events)-1)+1:], r.ended, r.grown
}

// recorded returns the record that an event id is of, and the event's number; nil for an id that we
// do not know.
func (s *session) recorded(id string) (*record, int) {
	name, number, ok := strings.Cut(id, "-")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 {
		return nil, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if r.name == name {
			return r, n
		}
	}
	return nil, 0
}

// replay writes the rest of a stream that broke off, and what is still to come on it, for as long
// as the caller is let in.
func (f legacyFront) replay(ctx context.Context, w http.ResponseWriter, r *http.Request, c caller, rec *record, n int) {
	if ends := c.principal.Expires; !ends.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, ends)
		defer cancel()
	}
	clearReadDeadline(w)
	p := newReply(w, r, &f.limits)
	streamHeader(w.Header())
	w.WriteHeader(http.StatusOK)
	alive := time.NewTicker(quiet)
	defer alive.Stop()
	for {
		if now := f.world.Load(); now != c.world {
			if c = now.adopt(c); c.share == nil {
				return
			}
		}
		events, ended, more := rec.after(n)
		n += len(events)
		if !p.flush(events...) || ended {
			return
		}
		select {
		case <-more:
		case <-alive.C:
			if !p.flush([]byte(":\n\n")) {
				return
			}
		case <-ctx.Done():
			return
		case <-f.ending.Done():
			return
		}
	}
}
