package transport

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"junction/upstream/http1"
)

// trip is an HTTP request in progress, and then its response, whose body it reads. The owner must
// call close, or pass the trip to drain.
type trip struct {
	*http.Response
	url     *url.URL    // the URL of the response
	stop    func() bool // separates the trip from the caller's context
	over    bool        // the body was read to its end, or failed
	circle  bool        // the response redirects to the first or the last requested URL
	renewed bool        // see StatusError
	// headers of the client of the call; set after the response has begun
	forwarded []http1.Field
	clock     Observer // Heard is called for each part of the body; may be nil
	memory    Memory   // accounts for the body; may be nil

	// either ctx, or the exchange of an http1.Client, aborts the trip
	ctx      context.Context
	cancel   context.CancelFunc
	exchange http1.Exchange // the latest one

	out   payload
	first reader
}

// Read reads the response's body.
func (t *trip) Read(p []byte) (int, error) {
	n, err := t.Body.Read(p)
	if err != nil {
		t.over = true
	}
	if n > 0 && t.clock != nil {
		t.clock.Heard()
	}
	return n, err
}

// reserve accounts for n bytes of memory.
func (t *trip) reserve(n int64) error {
	if t.memory == nil {
		return nil
	}
	if err := t.memory.Reserve(n); err != nil {
		return &MemoryError{err}
	}
	return nil
}

// get returns a field of the response's header; name must be canonical. header returns all fields;
// for a response of http1.Client, the first call builds them.
func (t *trip) get(name string) string {
	if t.Response.Header != nil {
		return t.Response.Header.Get(name)
	}
	return t.exchange.Get(name)
}

func (t *trip) header() http.Header {
	if t.Response.Header == nil {
		t.Response.Header = t.exchange.Header()
	}
	return t.Response.Header
}

// breakOff aborts the trip: all reads and writes fail. It may be called by any goroutine.
func (t *trip) breakOff() {
	if t.cancel != nil {
		t.cancel()
		return
	}
	t.exchange.Abort()
}

// detach separates the trip from the caller's context. It returns false if the context has aborted
// the trip.
func (t *trip) detach() bool {
	if t.stop != nil {
		t.stop()
	}
	if t.cancel != nil {
		return t.ctx.Err() == nil
	}
	return !t.exchange.Aborted()
}

// close ends the trip. The connection is reused if the body was read to its end, and closed
// otherwise.
func (t *trip) close() {
	if t.Response != nil {
		t.Body.Close()
	}
	if t.stop != nil {
		t.stop()
	}
	if t.cancel != nil {
		t.cancel()
	}
}

// media is the response's Content-Type without its parameters.
func (t *trip) media() string {
	text, _, _ := strings.Cut(t.get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(text))
}

func isEvents(media string) bool { return media == "text/event-stream" }
func isJSON(media string) bool {
	return media == "application/json" || media == "text/json" || strings.HasSuffix(media, "+json")
}
