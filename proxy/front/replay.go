package front

import (
	"crypto/rand"
	"strconv"
	"sync"
	"time"

	"junction/proxy/budget"
	"junction/upstream/jsonrpc"
)

// This file keeps the events of the streams of a session, so that a client whose connection broke can
// resume one.

// record keeps the events of one call's stream for a replay.
type record struct {
	Name string // the part of the event IDs before the hyphen

	mu      sync.Mutex
	events  [][]byte // as written; events[n] has the number n; nil if gone
	count   int      // number of events so far
	size    int
	ended   bool          // the last event was the answer
	dropped bool          // the events were dropped, or were too large
	grown   chan struct{} // closed and replaced at each event, and at the end
	held    budget.Grant  // reserves the bytes of the events
}

const (
	maxRecordSize = 1 << 20     // bytes of one stream
	recordKept    = time.Minute // after the answer
)

// newRecord begins the record of a stream. With first, the stream begins with an event without data, which
// gives the client an ID before the first message. held is an empty grant, which pays for the events.
func newRecord(held budget.Grant, first bool) *record {
	r := &record{Name: rand.Text()[:13], grown: make(chan struct{}), held: held}
	if first {
		r.count = 1
		r.events = append(r.events, []byte("id: "+r.id(0)+"\nretry: 1000\ndata: \n\n"))
	}
	return r
}

// Drop deletes the events.
func (r *record) Drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget()
}

// forget is Drop with r.mu held.
func (r *record) forget() {
	r.dropped, r.events = true, nil
	r.held.Release()
}

func (r *record) id(n int) string { return r.Name + "-" + strconv.Itoa(n) }

// Add keeps a message and returns its event.
func (r *record) Add(message []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	event := jsonrpc.AppendEvent(make([]byte, 0, len(message)+64), r.id(r.count), message)
	r.count++
	switch r.size += len(event); {
	case r.dropped:
	case r.size > maxRecordSize, r.held.Reserve(budget.Bytes, int64(len(event))) != nil:
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

// End marks the stream as complete. The events are dropped after recordKept, and then forgotten is called.
func (r *record) End(forgotten func()) {
	r.mu.Lock()
	r.ended = true
	r.tell()
	r.mu.Unlock()
	time.AfterFunc(recordKept, func() {
		r.Drop()
		forgotten()
	})
}

// After returns the events after the number n, whether the stream is complete, and a channel that
// is closed at the next event.
func (r *record) After(n int) (events [][]byte, ended bool, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.events) < r.count {
		return nil, true, nil
	}
	return r.events[min(n, len(r.events)-1)+1:], r.ended, r.grown
}
