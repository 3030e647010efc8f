package transport

import (
	"bytes"
	"cmp"
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
	// pause before a broken stream is resumed, unless the server requests another one
	streamPause = time.Second
	maxStream   = 30 * time.Second // maximum of the doubled pause
	maxRetry    = 5 * time.Minute  // maximum of a pause that the server requests
	// maximum consecutive attempts to resume a request's stream without new data
	maxFruitless = 4
	// a listening stream that lasted this long did not fail
	steadyStream = 5 * time.Second
	// from this version on, streams cannot be resumed (2026-07-28, changelog)
	withoutResume = mcp.ProtocolVersion20260728
)

// position is the reading position in a stream that can be resumed.
type position struct {
	id    string        // of the last event; "" if the server sends none
	retry time.Duration // the pause that the server requested; 0 if none
	moved bool          // new data was read since the caller reset it
	tries int           // consecutive attempts without new data
	least time.Duration // minimum for the next pause
}

// pause returns the time to wait before the next attempt: the server's request or one second,
// doubled for each attempt without new data. A random part of up to a half is added, so that many
// clients do not reconnect at the same time.
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

// wait pauses before the next attempt. It returns false if ctx or the origin ends.
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

// read passes the messages of an event stream to take, until take returns false (the error is then
// nil) or the stream ends. A message is valid only until take returns true. An invalid message is
// logged and skipped, unless it is recognizable as the response called id. If buffer is not nil,
// the stream is read into it, as in body; it then contains the message for which take returned
// false.
func (o *origin) read(t *trip, p *position, id jsonrpc.ID, buffer *[]byte, take func(*jsonrpc.Message) bool) error {
	events := jsonrpc.NewEventReader(t, o.limit)
	events.Use(buffer)
	if t.memory != nil {
		events.Charge(t.reserve)
	} else {
		o.charge(events)
		defer events.Close()
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
		m, err := jsonrpc.ParseSingle(e.Data, o.depth)
		switch {
		case err == nil:
			if !take(&m) {
				return nil
			}
		case id != "" && m.Method == "" && (m.ID == id || m.ID.Value() == id):
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		default:
			o.odd.Warn(o.log, "server sent an event that is not a JSON-RPC message (ignored)", "size", len(e.Data),
				"error", err)
		}
	}
}

// charge accounts for the buffer of a stream that belongs to no caller. The caller must close the
// reader.
func (o *origin) charge(events *jsonrpc.EventReader) {
	if o.account == nil {
		return
	}
	events.Free(o.account.Release)
	events.Charge(func(n int64) error {
		if err := o.account.Reserve(n); err != nil {
			return &MemoryError{err}
		}
		return nil
	})
}

// keep returns a copy of a request or notification that does not alias its event.
func keep(m *jsonrpc.Message) *jsonrpc.Message {
	kept := &jsonrpc.Message{ID: m.ID, Method: m.Method, Params: bytes.Clone(m.Params)}
	kept.Body, _ = raw.Parse(kept.Params) // an error is that there are none, or that they are an array
	return kept
}

// answer reads a request's own stream until its response, and passes all other messages to on. It
// closes the trip. begun is the session that initialize begins; nil for other requests.
func (w *streamable) answer(
	ctx context.Context, t *trip, begun *httpSession, req *Request, on func(*jsonrpc.Message),
) (*jsonrpc.Message, error) {
	var found *jsonrpc.Message
	var p position
	other := ""       // another response, which explains the end of a stream without ours
	var strange *trip // has a response to another request
	take := func(m *jsonrpc.Message) bool {
		switch {
		case answers(m, req.ID):
			// The buffer of events is not reused: it now belongs to the response, and so to the
			// caller.
			found = m
			return false
		case m.IsResponse():
			other = w.what(m, t.forwarded)
			if isOther(m, req.ID) {
				strange = t
			}
		case on != nil:
			on(keep(m))
		}
		return true
	}
	for {
		err := w.read(t, &p, req.ID, req.Buffer, take)
		if err == nil && t != strange {
			w.drain(t)
			return found, nil
		}
		if t == strange {
			w.distrust(t)
		}
		if err == nil {
			t.close()
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
		if t, err = w.resume(ctx, begun, &p); err != nil {
			return nil, err
		}
		t.clock, t.memory = req.Observer, req.Memory
	}
}

// resumable reports whether the request belongs to the era in which streams can be resumed.
func resumable(req *Request) bool {
	for _, f := range req.Header {
		if strings.EqualFold(f.Name, HeaderVersion) {
			return f.Value < withoutResume
		}
	}
	return true
}

// resume opens the rest of a broken stream (2025-11-25,
// basic/transports#resumability-and-redelivery), in the session that initialize has begun, or else in
// the transport's session. Its errors are never ErrNotSent.
func (w *streamable) resume(ctx context.Context, begun *httpSession, p *position) (*trip, error) {
	for {
		if p.tries++; p.moved {
			p.tries = 0
		}
		if p.moved = false; p.tries >= maxFruitless {
			return nil, fmt.Errorf("%w, and brought nothing in %d attempts to take it up again", errStreamEnded,
				maxFruitless)
		}
		if !w.wait(ctx, p) {
			return nil, causeOr(ctx, ErrClosed)
		}
		s := cmp.Or(begun, w.session.Load())
		t, err := w.do(ctx, http.MethodGet, w.url, with(s.get, http1.Field{Name: headerLastEvent, Value: p.id}), nil,
			false)
		switch {
		case ctx.Err() != nil || err == ErrClosed:
			if t != nil {
				t.close()
			}
			return nil, causeOr(ctx, ErrClosed)
		case err != nil:
			continue
		case t.StatusCode == http.StatusOK && isEvents(t.media()):
			return t, nil
		}
		e, err := w.status(t, "")
		if e == nil {
			w.log.Debug("cannot take up a stream; will retry", "error", err)
			continue
		}
		if e.Status == http.StatusNotFound && s.id != "" {
			w.doubt(e)
		}
		if !passing(e.Status) {
			// The request was received, so this error must not be ErrNotSent, even if the session
			// has ended.
			return nil, fmt.Errorf("%w, and cannot be taken up again: %w", errStreamEnded, Text(e))
		}
	}
}

// doubt reports an answer to GET that may mean that the session has ended.
func (w *streamable) doubt(e *StatusError) {
	if w.doubted == nil {
		w.Over(fmt.Errorf("%w: %w", ErrSessionGone, e))
		return
	}
	w.doubted(e)
}

// passing reports whether a status may be temporary.
func passing(status int) bool {
	return status >= 500 && status != http.StatusNotImplemented || status == http.StatusTooManyRequests ||
		status == http.StatusRequestTimeout
}

// Listen implements Transport with a GET stream. Messages go to the transport's receiver.
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
	heard := false // a stream was open before
	for again := false; ; again = true {
		if again && !w.wait(context.Background(), &p) || w.Ended() {
			return
		}
		s := w.session.Load()
		header := s.get
		if p.id != "" {
			header = with(header, http1.Field{Name: headerLastEvent, Value: p.id})
		}
		opened := time.Now()
		t, err := w.do(context.Background(), http.MethodGet, w.url, header, nil, false)
		switch {
		case err == ErrClosed:
			return
		case err != nil:
			w.log.Debug("cannot open the listening stream; will retry", "error", err)
			if w.doubted != nil && errors.Is(err, ErrNotSent) && !w.Ended() {
				w.doubted(err)
			}
			p.tries++
			continue
		case t.StatusCode/100 != 2 || !isEvents(t.media()):
			e, err := w.status(t, "")
			if e == nil {
				w.log.Debug("cannot open the listening stream; will retry", "error", err)
			} else if w.deaf(s, e, heard) {
				return
			} else {
				p.least = e.RetryAfter
			}
			p.tries++
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

// heard handles a message of the listening stream. Responses are not allowed on it.
func (w *streamable) heard(m *jsonrpc.Message) bool {
	if m.IsResponse() {
		w.log.Debug("dropped a response on the listening stream", "id", string(m.ID))
	} else {
		w.in(keep(m))
	}
	return true
}

// deaf reports whether listening must end after a response to GET, because the server offers no
// stream. After a stream that was open (heard), rejections count as temporary: a server behind a load
// balancer may answer 405 while it is replaced. A rejection may also mean that the session is lost,
// which the answer to a POST tells.
func (w *streamable) deaf(s *httpSession, e *StatusError, heard bool) bool {
	if s.id != "" && (e.Status == http.StatusNotFound || e.Status == http.StatusBadRequest && heard) {
		w.doubt(e)
	}
	switch e.Status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed:
		if heard && !w.Ended() {
			return false
		}
	default:
		if passing(e.Status) {
			return false
		}
	}
	w.log.Debug("the server offers no listening stream", "error", e)
	return true
}
