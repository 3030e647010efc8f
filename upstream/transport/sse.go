package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
)

// sse is the HTTP+SSE transport of 2024-11-05: the server sends on one event stream, and receives
// POST requests at the endpoint that it names there. The transport ends with the stream.
type sse struct {
	origin
	Duplex
	in       Receiver
	stream   *trip
	endpoint *url.URL

	pendingMu sync.Mutex
	// each 1-buffered, so that the reading goroutine does not block
	pending map[jsonrpc.ID]chan response
	closing sync.Once
}

// response is a response, or the error that replaces it.
type response struct {
	m   *jsonrpc.Message
	err error
}

// OpenSSE opens the stream and returns when the server has sent its endpoint. ctx limits only this.
func OpenSSE(ctx context.Context, o HTTPOptions, in Receiver) (Transport, error) {
	w := &sse{in: in, pending: map[jsonrpc.ID]chan response{}}
	w.init(o)
	if err := w.open(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// open starts the reading goroutine, or returns an error.
func (w *sse) open(ctx context.Context) error {
	if err := w.begin(); err != nil {
		return err
	}
	t, err := w.do(ctx, http.MethodGet, w.url, with(w.header, http1.Field{Name: "Accept", Value: "text/event-stream"}),
		nil, true)
	if err != nil {
		w.work.Done()
		return err
	}
	events := jsonrpc.NewEventReader(t, w.limit)
	w.charge(events)
	switch {
	case t.StatusCode/100 != 2 || !isEvents(t.media()):
		_, err = w.status(t, "")
	default:
		w.endpoint, err = w.named(t, events)
	}
	if ctx.Err() != nil || err == nil && !t.detach() {
		err = context.Cause(ctx)
	}
	if err != nil {
		events.Close()
		t.close()
		w.work.Done()
		return err
	}
	w.posts = with(w.header, http1.Field{Name: "Content-Type", Value: "application/json"},
		http1.Field{Name: "Accept", Value: "application/json, text/event-stream"})
	w.stream = t
	w.conceals(endpointSecrets(w.endpoint)...)
	go func() {
		defer w.work.Done()
		w.reading(events)
	}()
	return nil
}

// named reads the stream until the server has sent the endpoint for POST requests. An endpoint of
// another origin is rejected, because it would receive the configured credentials.
func (w *sse) named(t *trip, events *jsonrpc.EventReader) (*url.URL, error) {
	for {
		e, err := events.Next()
		if err != nil {
			return nil, fmt.Errorf("%w: the stream ended before the event that names the endpoint: %w", ErrInvalid, err)
		}
		if e.Name != "endpoint" {
			continue
		}
		u, err := t.url.Parse(string(bytes.TrimSpace(e.Data)))
		switch {
		case err != nil || u.Host == "":
			return nil, fmt.Errorf("%w: the endpoint that the server names is no URL", ErrInvalid)
		case !sameOrigin(u, w.url):
			return nil, fmt.Errorf("%w: the server names an endpoint of another origin, %s://%s", ErrInvalid, u.Scheme,
				u.Host)
		}
		u.User, u.Fragment, u.RawFragment = nil, "", ""
		return u, nil
	}
}

// reading receives the server's messages until the stream ends; then the transport ends.
func (w *sse) reading(events *jsonrpc.EventReader) {
	defer w.stream.close()
	defer events.Close()
	for {
		e, err := events.Next()
		if err != nil {
			w.Over(fmt.Errorf("the event stream ended: %w", w.failed(context.Background(), w.stream, err)))
			return
		}
		if len(e.Data) == 0 || e.Name != "message" {
			continue
		}
		m, err := jsonrpc.ParseSingle(bytes.Clone(e.Data), w.depth)
		switch {
		case err != nil && m.ID != "" && m.Method == "" && w.deliver(m.ID,
			response{err: fmt.Errorf("%w: %w", ErrInvalid, err)}):
		case err != nil:
			w.odd.Warn(w.log, "server sent an event that is not a JSON-RPC message (ignored)", "size", len(e.Data),
				"error", err)
		case !m.IsResponse():
			w.in(&m) // also if a request of Junction has the same id: each side has its own ids
		case !w.deliver(m.ID, response{m: &m}):
			w.log.Debug("dropped a response without a waiting request", "id", string(m.ID))
			w.in(&m)
		}
	}
}

// deliver passes a response to the Call that waits for it. It returns false if there is none.
func (w *sse) deliver(id jsonrpc.ID, r response) bool {
	w.pendingMu.Lock()
	defer w.pendingMu.Unlock()
	c, ok := w.pending[id]
	if !ok {
		id = id.Value()
		c, ok = w.pending[id]
	}
	if ok {
		delete(w.pending, id)
		c <- r
	}
	return ok
}

// Call implements Transport. It never calls on, because messages on the stream do not identify
// their request.
func (w *sse) Call(ctx context.Context, req *Request, on func(*jsonrpc.Message)) (*jsonrpc.Message, error) {
	if err := w.begin(); err != nil {
		return nil, err
	}
	defer w.work.Done()
	answer := make(chan response, 1)
	w.pendingMu.Lock()
	w.pending[req.ID] = answer
	w.pendingMu.Unlock()
	defer func() {
		w.pendingMu.Lock()
		delete(w.pending, req.ID)
		w.pendingMu.Unlock()
	}()

	// The response may arrive before the response to the POST, which some servers delay.
	posting, cancel := context.WithCancel(context.Background())
	posted := make(chan error, 1)
	w.work.Go(func() {
		posted <- w.post(posting, req)
		cancel()
	})
	for sent := posted; ; {
		select {
		case r := <-answer:
			if len(posted) == 0 && sent != nil {
				time.AfterFunc(drainTime, cancel)
			}
			return w.concealed(r.m, req.Forwarded), r.err
		case err := <-sent:
			if err != nil {
				return nil, err
			}
			sent = nil
		case <-ctx.Done():
			cancel()
			return nil, context.Cause(ctx)
		case <-w.gone:
			cancel()
			select {
			case r := <-answer:
				return w.concealed(r.m, req.Forwarded), r.err
			default:
			}
			if sent != nil {
				if err := <-sent; errors.Is(err, ErrNotSent) {
					return nil, err // the rejection of this request may have ended the transport
				}
			}
			if w.reason == ErrClosed {
				return nil, ErrClosed
			}
			// Text: the request was sent, even if another one was not
			return nil, fmt.Errorf("%w: %w", errStreamEnded, Text(w.reason))
		}
	}
}

// Send implements Transport.
func (w *sse) Send(ctx context.Context, m *Request) error {
	if err := w.begin(); err != nil {
		return err
	}
	defer w.work.Done()
	return w.post(ctx, m)
}

// post sends a message to the server's endpoint. A 404 means that the server has ended the session;
// the transport ends. The caller has called begin.
func (w *sse) post(ctx context.Context, m *Request) error {
	t, err := w.do(ctx, http.MethodPost, w.endpoint, w.posts, &m.Message, m.Own, m.Forwarded...)
	if err != nil {
		return err
	}
	if t.forwarded = m.Forwarded; t.StatusCode/100 == 2 {
		w.drain(t)
		return nil
	}
	e, err := w.status(t, m.ID)
	if ctx.Err() != nil || e == nil || e.Status != http.StatusNotFound {
		return causeOr(ctx, err)
	}
	err = w.sessionGone(e)
	w.stream.breakOff()
	return err
}

// Close implements Transport. The session ends with the stream.
func (w *sse) Close() error {
	w.closing.Do(func() {
		w.close()
		w.release()
	})
	return nil
}
