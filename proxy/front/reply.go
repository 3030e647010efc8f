package front

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy"
	"junction/proxy/budget"
	"junction/upstream/jsonrpc"
	"junction/upstream/pace"
)

// reply writes the answer of one request: one JSON document, or an event stream from the first
// event on. Before the first event, the reply can still have a status other than 200.
type reply struct {
	w      http.ResponseWriter
	limits *proxy.Limits
	stream bool          // the client accepts an event stream
	broken func()        // called once when a write to the client fails; may be nil
	caller *session      // session that keeps the events for a replay; nil for none
	held   *budget.Grant // of the request; its account pays for the kept and the waiting events

	mu      sync.Mutex
	waiting waiting       // events that wait for the writer
	more    chan struct{} // 1-buffered: waiting has grown, or done was set; nil before the stream begins
	done    bool          // the answer is ready: no more events come
	lost    bool          // writing to the client has failed
	written chan struct{} // closed when the writer has returned
	record  *record       // of the stream; nil if the events are not kept
	timer   *time.Timer   // begins the stream of a slow call
}

// init prepares a zero reply for a request.
func (p *reply) init(w http.ResponseWriter, r *http.Request, limits *proxy.Limits) {
	p.w, p.limits, p.stream = w, limits, accepts(r, "text/event-stream")
}

// begin lets the reply become a stream if the answer takes long. finish must follow.
func (p *reply) begin() {
	if p.stream && p.timer == nil {
		p.timer = time.AfterFunc(quiet, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if !p.done {
				p.start()
			}
		})
	}
}

// send queues a message of the request. It does not block. It returns false if it dropped the message,
// because too much waits, or because the client accepts no stream.
func (p *reply) send(message []byte, kind eventKind) bool {
	if !p.stream {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done || p.lost && p.record == nil {
		return false
	}
	if p.lost { // only the record needs the message
		p.event(message)
		return true
	}
	p.waiting.begin(p.held)
	size, ok := p.waiting.admit(kind, int64(len(message)+eventFrame), p.limits.Queue)
	if !ok {
		return false
	}
	p.start()
	p.waiting.add(waitingEvent{p.event(message), kind, size})
	pace.Wake(p.more)
	return true
}

// start begins the stream and its writer; p.mu is held.
func (p *reply) start() {
	if p.more != nil {
		return
	}
	p.more, p.written = make(chan struct{}, 1), make(chan struct{})
	if p.caller != nil {
		if p.record = p.caller.record(p.held.Empty()); p.record != nil {
			first, _, _ := p.record.After(-1)
			for _, event := range first {
				p.waiting.add(waitingEvent{text: event})
			}
		}
	}
	go p.write(p.more)
}

// event formats a message as an event, with an ID if the client can resume the stream.
func (p *reply) event(message []byte) []byte {
	if p.record != nil {
		return p.record.Add(message)
	}
	return jsonrpc.AppendEvent(make([]byte, 0, len(message)+32), "", message)
}

// write is the goroutine of a stream. It returns when the answer is ready or when writing to the
// client fails. finish waits for it.
func (p *reply) write(more <-chan struct{}) {
	defer close(p.written)
	beginStream(p.w)
	alive := time.NewTicker(quiet)
	defer alive.Stop()
	var comment []byte // shows that the stream is alive
	var parts [][]byte
	for {
		p.mu.Lock()
		events, done := p.waiting.take(), p.done
		p.mu.Unlock()
		parts = append(parts[:0], comment)
		for _, e := range events {
			parts = append(parts, e.text)
		}
		ok := p.flush(parts...) // without events it writes the header
		clear(parts)
		p.mu.Lock()
		p.waiting.written(events)
		if p.lost = !ok; p.lost {
			p.waiting.written(p.waiting.take())
		}
		p.mu.Unlock()
		if !ok {
			if p.broken != nil {
				p.broken()
			}
			return
		}
		if done { // and the queue is empty
			return
		}
		comment = nil
		select {
		case <-more:
		case <-alive.C:
			comment = []byte(":\n\n")
		}
	}
}

// flush writes and flushes the parts within the write timeout. It returns false if the client is
// gone or too slow.
func (p *reply) flush(parts ...[]byte) bool {
	p.deadline()
	for _, b := range parts {
		if _, err := p.w.Write(b); err != nil {
			return false
		}
	}
	return http.NewResponseController(p.w).Flush() == nil
}

// finish ends the stream, if any, and reports whether the reply has become a stream.
func (p *reply) finish() bool {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Lock()
	p.done = true
	streaming := p.more != nil
	pace.Wake(p.more)
	p.mu.Unlock()
	if streaming {
		<-p.written
	}
	return streaming
}

// succeed writes the result and ends the reply.
func (p *reply) succeed(id jsonrpc.ID, r proxy.Result) {
	streaming := p.finish()
	size := 40 + len(id) + r.Size()
	if !streaming && size > proxy.OneWrite {
		p.large(id, r)
		return
	}
	buffer := texts.Get()
	defer texts.Put(buffer)
	text := append(jsonrpc.ResponseHead(slices.Grow((*buffer)[:0], size), id), r.Head...)
	text = r.Items.AppendTo(append(text, r.Body...))
	text = append(append(text, r.Tail...), '}')
	*buffer = text
	if streaming {
		p.last(text)
		return
	}
	p.deadline()
	writeJSON(p.w, http.StatusOK, text)
}

// texts are buffers for small answers and for items of lists.
var texts proxy.Buffers

// last writes the answer as the last event of the stream.
func (p *reply) last(text []byte) {
	event := p.event(text)
	if p.record != nil {
		kept, caller := p.record, p.caller // the reply does not stay in memory
		kept.End(func() { caller.forgetRecord(kept) })
	}
	p.flush(event)
}

// large writes a result without copying it, and the items of a list a buffer at a time.
func (p *reply) large(id jsonrpc.ID, r proxy.Result) {
	head := append(jsonrpc.ResponseHead(nil, id), r.Head...)
	tail := append(r.Tail[:len(r.Tail):len(r.Tail)], '}')
	h := p.w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(head) + len(r.Body) + r.Items.Size + len(tail))}
	p.deadline()
	p.w.Write(head) // write errors cannot be reported to the client
	p.w.Write(r.Body)
	if len(r.Items.List) > 0 {
		buffer := texts.Get()
		defer texts.Put(buffer)
		r.Items.WriteTo(p.w, buffer)
	}
	p.w.Write(tail)
}

// deadline sets the write timeout for the next writes.
func (p *reply) deadline() {
	// if this fails, the write returns the error
	http.NewResponseController(p.w).SetWriteDeadline(time.Now().Add(p.limits.WriteTimeout))
}

// fail writes an error and ends the reply. An empty id is omitted.
func (p *reply) fail(id jsonrpc.ID, e *jsonrpc.Error, status int) {
	text := jsonrpc.AppendError(nil, id, e)
	if p.finish() {
		p.last(text)
		return
	}
	p.deadline()
	writeJSON(p.w, status, text)
}

// counted is the size in bytes from which on the answer needs an explicit Content-Length.
const counted = 2 << 10

var jsonType = []string{"application/json"}

func writeJSON(w http.ResponseWriter, status int, text []byte) {
	h := w.Header()
	h["Content-Type"] = jsonType
	if len(text) >= counted { // net/http counts shorter answers itself, without allocating
		h["Content-Length"] = []string{strconv.Itoa(len(text))}
	}
	w.WriteHeader(status)
	w.Write(text)
}

// maxRecords bounds the streams that the client of one session can resume.
const maxRecords = 8

// record begins the record of a stream; nil if the session's version has no event IDs. held is an
// empty grant.
func (s *session) record(held budget.Grant) *record {
	if s.Version < mcp.ProtocolVersion20250326 {
		return nil
	}
	// Older clients would parse the first event as a message.
	r := newRecord(held, s.Version >= mcp.ProtocolVersion20251125)
	var oldest *record
	s.mu.Lock()
	if len(s.records) >= maxRecords {
		oldest = s.records[0]
		s.records = append(s.records[:0], s.records[1:]...)
	}
	s.records = append(s.records, r)
	s.mu.Unlock()
	if oldest != nil {
		oldest.Drop()
	}
	return r
}

// forgetRecord removes a record whose events are dropped.
func (s *session) forgetRecord(r *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = slices.DeleteFunc(s.records, func(o *record) bool { return o == r })
	if len(s.records) == 0 {
		s.records = nil
	}
}

// recorded returns the record of an event ID, and the event's number; nil for an unknown ID.
func (s *session) recorded(id string) (*record, int) {
	name, number, ok := strings.Cut(id, "-")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 0 {
		return nil, 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.records {
		if r.Name == name {
			return r, n
		}
	}
	return nil, 0
}

// replay writes the remaining events of an interrupted stream, and its future events, as long as
// the caller has access.
func (f legacyFront) replay(ctx context.Context, x *request, rec *record, n int) {
	ctx, cancel := x.UntilExpiry(ctx)
	defer cancel()
	clearReadDeadline(x.reply.w)
	beginStream(x.reply.w)
	alive := time.NewTicker(quiet)
	defer alive.Stop()
	for {
		if now := f.Snapshot(); now != x.Snapshot {
			if x.Caller = now.Adopt(x.Caller); x.Subject == nil {
				return
			}
		}
		events, ended, more := rec.After(n)
		n += len(events)
		if !x.reply.flush(events...) || ended {
			return
		}
		select {
		case <-more:
		case <-alive.C:
			if !x.reply.flush([]byte(":\n\n")) {
				return
			}
		case <-ctx.Done():
			return
		case <-f.Ending().Done():
			return
		}
	}
}
