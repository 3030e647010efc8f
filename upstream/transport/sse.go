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

// sse is HTTP+SSE of 2024-11-05: the server speaks on one event stream and hears at an address
// that it names there. The stream is the session, so the transport ends with it.
type sse struct {
	origin
	Duplex
	in       Receiver
	stream   *trip
	endpoint *url.URL
	posts    http.Header // headers of a POST; never modified

	pendingMu sync.Mutex
	pending   map[jsonrpc.ID]chan response // each 1-buffered, so that the reading goroutine does not wait
	closing   sync.Once
}

// response is a response, or what the server sent in place of one.
type response struct {
	m   *jsonrpc.Message
	err error
}

// OpenSSE opens the stream and returns when the server has named its address; ctx is for that long.
func OpenSSE(ctx context.Context, o HTTPOptions, in Receiver) (Transport, error) {
	w := &sse{in: in, pending: map[jsonrpc.ID]chan response{}}
	w.init(o)
	if err := w.open(ctx); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// open ends by starting the reading goroutine, unless it fails.
func (w *sse) open(ctx context.Context) error {
	if err := w.begin(); err != nil {
		return err
	}
	t, err := w.do(ctx, http.MethodGet, w.url, with(w.header, http1.Field{Name: "Accept", Value: "text/event-stream"}),
		nil)
	if err != nil {
		w.work.Done()
		return err
	}
	events := jsonrpc.NewEventReader(t, w.limit)
	switch {
	case t.StatusCode/100 != 2 || !isEvents(t.media()):
		err = w.status(t, "")
	default:
		w.endpoint, err = w.named(t, events)
	}
	if ctx.Err() != nil || err == nil && !t.detach() {
		err = context.Cause(ctx)
	}
	if err != nil {
		t.close()
		w.work.Done()
		return err
	}
	w.posts = with(w.header, http1.Field{Name: "Content-Type", Value: "application/json"},
		http1.Field{Name: "Accept", Value: "application/json, text/event-stream"})
	w.stream = t
	go func() {
		defer w.work.Done()
		w.reading(events)
	}()
	return nil
}

// named reads until the server has named the address for our messages. One of another origin would
// carry the configuration's credentials there.
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
			return nil, fmt.Errorf("%w: the server names an endpoint of another origin, %s://%s", ErrInvalid, u.Scheme, u.Host)
		}
		u.User, u.Fragment, u.RawFragment = nil, "", ""
		return u, nil
	}
}

// reading takes the server's messages until the stream ends, and the transport with it.
func (w *sse) reading(events *jsonrpc.EventReader) {
	defer w.stream.close()
	for {
		e, err := events.Next()
		if err != nil {
			w.over(fmt.Errorf("the event stream ended: %w", w.failed(context.Background(), w.stream, err)))
			return
		}
		if len(e.Data) == 0 || e.Name != "message" {
			continue
		}
		m, err := jsonrpc.Parse(bytes.Clone(e.Data), w.depth)
		switch {
		case err != nil && m.ID != "" && m.Method == "" && w.deliver(m.ID,
			response{err: fmt.Errorf("%w: %w", ErrInvalid, err)}):
		case err != nil:
			w.odd.Warn(w.log, "server sent an event that is not a JSON-RPC message (ignored)", "size", len(e.Data), "error", err)
		case !m.IsResponse():
			w.in(&m) // also when a request of ours has the same id: each side numbers its own
		case !w.deliver(m.ID, response{m: &m}):
			w.log.Debug("dropped a response without a waiting request", "id", string(m.ID))
		}
	}
}

// deliver passes a response to the Call that waits for it. It returns false if there is none.
func (w *sse) deliver(id jsonrpc.ID, r response) bool {
	w.pendingMu.Lock()
	defer w.pendingMu.Unlock()
	c, ok := w.pending[id]
	if ok {
		delete(w.pending, id)
		c <- r
	}
	return ok
}

// Call is that of transport. Nothing on the stream says which request it belongs to, so on is not
// called.
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

	// The answer may come before the response to the POST, and some servers hold that back until
	// then or longer.
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
			return r.m, r.err
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
				return r.m, r.err
			default:
			}
			if sent != nil {
				if err := <-sent; errors.Is(err, ErrNotSent) {
					return nil, err // it may be this request whose refusal ended the transport
				}
			}
			if w.reason == nil {
				return nil, ErrClosed
			}
			return nil, fmt.Errorf("%w: %v", errStreamEnded, w.reason) // %v: the request was sent, even if another one was not
		}
	}
}

// Send is that of transport.
func (w *sse) Send(ctx context.Context, m *Request) error {
	if err := w.begin(); err != nil {
		return err
	}
	defer w.work.Done()
	return w.post(ctx, m)
}

// post sends a message to the server's address. A 404 there means that the server has forgotten the
// stream, which is then of no use any more. It is called by a piece of work.
func (w *sse) post(ctx context.Context, m *Request) error {
	t, err := w.do(ctx, http.MethodPost, w.endpoint, w.posts, &m.Message)
	if err != nil {
		return err
	}
	if t.StatusCode/100 == 2 {
		w.drain(t)
		return nil
	}
	e := w.status(t, m.ID)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e.Status != http.StatusNotFound {
		return e
	}
	gone := fmt.Errorf("%w: %w", ErrSessionGone, e)
	// without its words, which are for the one whose request it was
	w.over(fmt.Errorf("%w: %w", ErrSessionGone, &StatusError{Status: e.Status}))
	w.stream.breakOff()
	return notSent(gone)
}

// Close is that of transport. Closing the stream is what ends the session.
func (w *sse) Close() error {
	w.closing.Do(func() {
		w.close()
		w.release()
	})
	return nil
}
