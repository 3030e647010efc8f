package proxy

import (
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"junction/upstream/jsonrpc"
)

// reply is how one request is answered: as one JSON document, or as an event stream from the first
// event on. Until then a status other than 200 can still be sent.
type reply struct {
	w      http.ResponseWriter
	limits *Limits
	stream bool     // the client accepts an event stream
	broken func()   // called once when the client does not take what we write; nil does nothing
	caller *session // whose events have ids, so that it can come back for them; nil for none
	held   *grant   // of the request, whose account the events count for

	mu      sync.Mutex
	queue   [][]byte      // events that wait for the writer
	more    chan struct{} // 1-buffered: queue has grown, or done was set; nil until the stream has begun
	done    bool          // the answer is ready: nothing is queued any more
	written chan struct{} // closed when the writer has returned
	record  *record       // of the stream; nil when it has none
	timer   *time.Timer   // begins the stream of a call that takes long
}

// quiet is how long a stream says nothing before a comment shows that it is alive.
const quiet = 15 * time.Second

func newReply(w http.ResponseWriter, r *http.Request, limits *Limits) *reply {
	p := new(reply)
	p.init(w, r, limits)
	return p
}

// init makes a zero reply that of a request.
func (p *reply) init(w http.ResponseWriter, r *http.Request, limits *Limits) {
	p.w, p.limits, p.stream = w, limits, accepts(r, "text/event-stream")
}

// begin allows the reply to become a stream when the answer takes long. finish must follow.
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

// notify queues a notification that belongs to the request. It does not block: what a slow client
// does not take in time, it misses.
func (p *reply) notify(method string, params []byte) {
	p.send(jsonrpc.AppendRequest(nil, "", method, params))
}

// send queues a message that belongs to the request; false means that nobody will get it.
func (p *reply) send(message []byte) bool {
	if !p.stream {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := p.gone() // then it is only for the record
	if p.done || gone && p.record == nil || !gone && len(p.queue) >= p.limits.Queue {
		return false
	}
	p.start()
	if event := p.event(message); !gone {
		p.queue = append(p.queue, event)
	}
	select {
	case p.more <- struct{}{}:
	default:
	}
	return true
}

// gone reports whether the client takes nothing any more; p.mu is held.
func (p *reply) gone() bool {
	if p.more == nil {
		return false
	}
	select {
	case <-p.written:
		return true
	default:
		return false
	}
}

// start begins the stream and its writer; p.mu is held.
func (p *reply) start() {
	if p.more != nil {
		return
	}
	p.more, p.written = make(chan struct{}, 1), make(chan struct{})
	if p.caller != nil {
		if p.record = p.caller.record(p.held.empty()); p.record != nil {
			first, _, _ := p.record.after(-1)
			p.queue = slices.Clone(first)
		}
	}
	go p.write(p.more)
}

// event makes an event of a message, with an id if the client can come back for it.
func (p *reply) event(message []byte) []byte {
	if p.record != nil {
		return p.record.add(message)
	}
	return jsonrpc.AppendEvent(make([]byte, 0, len(message)+32), "", message)
}

// write is the goroutine of a stream. It ends when the answer is ready, or when the client takes
// nothing any more; finish waits for it.
func (p *reply) write(more <-chan struct{}) {
	defer close(p.written)
	streamHeader(p.w.Header())
	p.w.WriteHeader(http.StatusOK)
	alive := time.NewTicker(quiet)
	defer alive.Stop()
	for {
		p.mu.Lock()
		events, done := p.queue, p.done
		p.queue = nil
		p.mu.Unlock()
		if !p.flush(events...) { // the header, when there are none
			if p.broken != nil {
				p.broken()
			}
			return
		}
		if done { // and nothing is queued any more
			return
		}
		select {
		case <-more:
		case <-alive.C:
			if !p.flush([]byte(":\n\n")) {
				if p.broken != nil {
					p.broken()
				}
				return
			}
		}
	}
}

// flush writes and flushes within the write timeout; false means that the client is gone, or too
// slow.
func (p *reply) flush(parts ...[]byte) bool {
	p.deadline()
	for _, b := range parts {
		if _, err := p.w.Write(b); err != nil {
			return false
		}
	}
	return http.NewResponseController(p.w).Flush() == nil
}

// finish ends what begin and notify have begun, and reports whether the reply has become a stream.
func (p *reply) finish() bool {
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Lock()
	p.done = true
	streaming := p.more != nil
	if streaming {
		select {
		case p.more <- struct{}{}:
		default:
		}
	}
	p.mu.Unlock()
	if streaming {
		<-p.written
	}
	return streaming
}

// succeed writes the result, and so ends the reply.
func (p *reply) succeed(id jsonrpc.ID, r result) {
	streaming := p.finish()
	size := 40 + len(id) + r.size()
	if !streaming && size > oneWrite {
		p.large(id, r)
		return
	}
	buffer := texts.take()
	defer texts.put(buffer)
	text := append(jsonrpc.ResponseHead(slices.Grow((*buffer)[:0], size), id), r.head...)
	text = r.items.AppendTo(append(text, r.body...))
	text = append(append(text, r.tail...), '}')
	*buffer = text
	if streaming {
		p.last(text)
		return
	}
	p.deadline()
	writeJSON(p.w, http.StatusOK, text)
}

// texts are of answers that are copied together.
var texts buffers

// last writes the answer as the last event of the stream.
func (p *reply) last(text []byte) {
	event := p.event(text)
	if p.record != nil {
		p.record.end(p.caller)
	}
	p.flush(event)
}

// oneWrite is up to which size an answer is copied together: beyond it copying costs more than a
// few more system calls.
const oneWrite = 64 << 10

// large writes a result from where it is, and the items of a list a buffer at a time.
func (p *reply) large(id jsonrpc.ID, r result) {
	head := append(jsonrpc.ResponseHead(nil, id), r.head...)
	tail := append(r.tail[:len(r.tail):len(r.tail)], '}')
	h := p.w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(head) + len(r.body) + r.items.Size + len(tail))}
	p.deadline()
	p.w.Write(head) // what cannot be written to a client has no one to be reported to
	p.w.Write(r.body)
	if len(r.items.List) > 0 {
		buffer := texts.take()
		defer texts.put(buffer)
		r.items.WriteTo(p.w, buffer)
	}
	p.w.Write(tail)
}

// deadline gives the client the write timeout to take what is written next.
func (p *reply) deadline() {
	// where that is not possible, the write says what is wrong
	http.NewResponseController(p.w).SetWriteDeadline(time.Now().Add(p.limits.WriteTimeout))
}

// fail writes an error, and so ends the reply. An id of "" is left out.
func (p *reply) fail(id jsonrpc.ID, e *jsonrpc.Error, status int) {
	text := jsonrpc.AppendError(nil, id, e)
	if p.finish() {
		p.last(text)
		return
	}
	p.deadline()
	writeJSON(p.w, status, text)
}

// counted is how long an answer may be so that any server finds out its length by itself.
const counted = 2 << 10

var jsonType = []string{"application/json"}

func writeJSON(w http.ResponseWriter, status int, text []byte) {
	h := w.Header()
	h["Content-Type"] = jsonType
	if len(text) >= counted { // a server counts what is less, and needs no memory for that
		h["Content-Length"] = []string{strconv.Itoa(len(text))}
	}
	w.WriteHeader(status)
	w.Write(text)
}

// streamHeader sets what makes a response an event stream that nobody on the way buffers.
func streamHeader(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
}
