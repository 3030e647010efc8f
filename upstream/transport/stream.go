package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

const (
	// before a broken stream is taken up again, if the server asked for nothing else
	streamPause = time.Second
	maxStream   = 30 * time.Second // that pause, when it has doubled often enough
	maxRetry    = 5 * time.Minute  // that pause, if the server asked for it
	// attempts in a row to take up the stream of a request that brought nothing
	maxFruitless  = 4
	steadyStream  = 5 * time.Second             // a listening stream that lasted so long was no failure
	withoutResume = mcp.ProtocolVersion20260728 // from here on there is no resumption (2026-07-28, changelog)
)

// position is how far we have read the stream of a server that lets us come back to it.
type position struct {
	id    string        // of the last event; "" when the server gives none
	retry time.Duration // the pause that the server asked for; 0 when it asked for none
	moved bool          // something new was read since the caller reset it
	tries int           // attempts in a row that brought nothing
	least time.Duration // the next pause is at least as long
}

// pause returns how long to wait before the next attempt: what the server asked for or a second,
// doubled with every attempt that brought nothing, and up to a half more at random so that many do
// not come at once.
func (p *position) pause() time.Duration {
	d := min(p.retry, maxRetry)
	if d == 0 {
		d = streamPause
	}
	if most := max(d, maxStream); p.tries > 0 {
		d = min(d<<min(p.tries, 16), most)
	}
	return max(d+rand.N(d/2+1), min(p.least, maxRetry))
}

// wait pauses before the next attempt. It returns false when ctx ends, or the origin does.
func (o *origin) wait(ctx context.Context, p *position) bool {
	pause := time.NewTimer(p.pause())
	defer pause.Stop()
	p.least = 0
	select {
	case <-ctx.Done():
		return false
	case <-o.ctx.Done():
		return false
	case <-pause.C:
		return o.ctx.Err() == nil
	}
}

// read hands the messages of an event stream to take, until that returns false (and then the error
// is nil) or the stream ends. A message that take keeps must be kept before it returns true. What
// is no message is logged and passed over, unless it can be told that it should have been the
// response called id. The stream is read into buffer, unless that is nil, as by body: the message
// at which take returned false is in it.
func (o *origin) read(t *trip, p *position, id jsonrpc.ID, buffer *[]byte, take func(*jsonrpc.Message) bool) error {
	events := jsonrpc.NewEventReader(t, o.limit)
	events.Use(buffer)
	if t.memory != nil {
		events.Charge(t.reserve)
	}
	for {
		e, err := events.Next()
		if err != nil {
			return err
		}
		if e.Retry > 0 {
			p.retry = e.Retry
		}
		if e.ID != "" && e.ID != p.id {
			p.id, p.moved = e.ID, true
		}
		if len(e.Data) == 0 || e.Name != "message" {
			continue
		}
		p.moved = true
		m, err := jsonrpc.Parse(e.Data, o.depth)
		switch {
		case err == nil:
			if !take(&m) {
				return nil
			}
		case id != "" && m.ID == id && m.Method == "":
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		default:
			o.odd.Warn(o.log, "server sent an event that is not a JSON-RPC message (ignored)", "size", len(e.Data), "error", err)
		}
	}
}

// keep returns a message that does not alias the event that it came in. It is no response.
func keep(m *jsonrpc.Message) *jsonrpc.Message {
	kept := &jsonrpc.Message{ID: m.ID, Method: m.Method, Params: bytes.Clone(m.Params)}
	kept.Body, _ = raw.Parse(kept.Params) // an error is that there are none, or that they are an array
	return kept
}

// answer reads a request's own stream until its response, and hands everything else on it to on. It
// closes the trip.
func (w *streamable) answer(
	ctx context.Context, t *trip, req *Request, on func(*jsonrpc.Message),
) (*jsonrpc.Message, error) {
	var found *jsonrpc.Message
	var p position
	other := "" // a response that is not ours, which explains an end without one that is
	take := func(m *jsonrpc.Message) bool {
		switch {
		case answers(m, req.ID):
			// The buffer of events is not read into again: it belongs to the response now, and so
			// to the caller.
			found = m
			return false
		case m.IsResponse():
			other = what(m)
		case on != nil:
			on(keep(m))
		}
		return true
	}
	for {
		err := w.read(t, &p, req.ID, req.Buffer, take)
		if err == nil {
			w.drain(t)
			return found, nil
		}
		err = w.failed(ctx, t, err)
		t.close()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == ErrClosed:
			return nil, err
		case errors.Is(err, jsonrpc.ErrEventTooLarge):
			return nil, w.tooLarge()
		case errors.As(err, new(*MemoryError)):
			return nil, err
		case errors.Is(err, ErrInvalid):
			return nil, err
		case p.id == "" || !resumable(req):
			if other != "" {
				return nil, fmt.Errorf("%w: %w, and had %s in place of %s", ErrInvalid, errStreamEnded, other, req.ID)
			}
			return nil, fmt.Errorf("%w: %w", errStreamEnded, err)
		}
		if t, err = w.resume(ctx, &p); err != nil {
			return nil, err
		}
		t.clock, t.memory = req.Observer, req.Memory
	}
}

// resumable reports whether the request is of the era in which a stream can be taken up again.
func resumable(req *Request) bool {
	for _, f := range req.Header {
		if strings.EqualFold(f.Name, HeaderVersion) {
			return f.Value < withoutResume
		}
	}
	return true
}

// resume opens the rest of a broken stream (2025-11-25,
// basic/transports#resumability-and-redelivery). Its errors are never ErrNotSent.
func (w *streamable) resume(ctx context.Context, p *position) (*trip, error) {
	for {
		if p.tries++; p.moved {
			p.tries = 0
		}
		if p.moved = false; p.tries >= maxFruitless {
			return nil, fmt.Errorf("%w, and brought nothing in %d attempts to take it up again", errStreamEnded, maxFruitless)
		}
		if !w.wait(ctx, p) {
			return nil, w.or(ctx, ErrClosed)
		}
		s := w.session.Load()
		t, err := w.do(ctx, http.MethodGet, w.url, with(s.get, http1.Field{Name: headerLastEvent, Value: p.id}), nil)
		switch {
		case ctx.Err() != nil || err == ErrClosed:
			if t != nil {
				t.close()
			}
			return nil, w.or(ctx, ErrClosed)
		case err != nil:
			continue
		case t.StatusCode == http.StatusOK && isEvents(t.media()):
			return t, nil
		}
		e := w.status(t, "")
		if e.Status == http.StatusNotFound && s.id != "" {
			w.over(fmt.Errorf("%w: %w", ErrSessionGone, e))
		}
		if !passing(e.Status) {
			// The request was received, so this must not look like one that was not, even where the
			// session is gone.
			return nil, fmt.Errorf("%w, and cannot be taken up again: %v", errStreamEnded, e)
		}
	}
}

// passing reports whether a status may be another one a little later.
func passing(status int) bool {
	return status >= 500 && status != http.StatusNotImplemented || status == http.StatusTooManyRequests ||
		status == http.StatusRequestTimeout
}

// Listen is that of transport: a GET stream of its own. Messages go to the transport's receiver.
func (w *streamable) Listen(gap func()) <-chan struct{} {
	if w.begin() != nil {
		return closed
	}
	open := make(chan struct{})
	go func() {
		defer w.work.Done()
		tell := sync.OnceFunc(func() { close(open) })
		defer tell()
		w.listening(func() { tell(); gap() })
	}()
	return open
}

func (w *streamable) listening(gap func()) {
	var p position
	heard := false // there was a stream
	for again := false; ; again = true {
		if again && !w.wait(context.Background(), &p) {
			return
		}
		s := w.session.Load()
		header := s.get
		if p.id != "" {
			header = with(header, http1.Field{Name: headerLastEvent, Value: p.id})
		}
		opened := time.Now()
		t, err := w.do(context.Background(), http.MethodGet, w.url, header, nil)
		switch {
		case err == ErrClosed:
			return
		case err != nil:
			w.log.Debug("cannot open the listening stream; will retry", "error", err)
			p.tries++
			continue
		case t.StatusCode/100 != 2 || !isEvents(t.media()):
			e := w.status(t, "")
			if w.deaf(s, e, heard) {
				return
			}
			p.tries++
			p.least = e.RetryAfter
			continue
		}
		heard = true
		gap() // also the first time: changes since the list was read were not announced
		p.moved = false
		err = w.read(t, &p, "", nil, w.heard)
		t.close()
		if w.ctx.Err() != nil {
			return
		}
		w.log.Debug("the server's listening stream ended", "error", err)
		if p.tries++; p.moved || time.Since(opened) > steadyStream {
			p.tries = 0
		}
	}
}

// heard takes a message of the listening stream. A response has no place on it.
func (w *streamable) heard(m *jsonrpc.Message) bool {
	if m.IsResponse() {
		w.log.Debug("dropped a response on the listening stream", "id", string(m.ID))
	} else {
		w.in(keep(m))
	}
	return true
}

// deaf reports whether an answer to GET means that listening is over: the server offers no stream,
// or the session is gone. After a stream that was open (heard), other refusals count as temporary:
// a server behind a load balancer may answer 405 while it is replaced.
func (w *streamable) deaf(s *places, e *StatusError, heard bool) bool {
	switch {
	case s.id != "" && (e.Status == http.StatusNotFound || e.Status == http.StatusBadRequest && heard):
		w.over(fmt.Errorf("%w: %w", ErrSessionGone, e))
		return true
	case passing(e.Status), heard && (e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden ||
		e.Status == http.StatusMethodNotAllowed):
		return false
	}
	w.log.Debug("the server offers no listening stream", "error", e)
	return true
}
