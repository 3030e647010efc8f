package upstreamtest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

type framing int

const (
	lines  framing = iota // stdio
	events                // every kind of event stream
	body                  // one message, the whole body of an HTTP response
)

// stream is where messages to the client are written: standard output, the response to a POST, a
// listening stream. It outlives the connections that it is written to; what is sent while there is
// none is lost, unless the stream has ids.
type stream struct {
	die func() // cuts the connection off, as a crash does
	odd bool   // OddFraming

	mu       sync.Mutex
	w        io.Writer        // nil: no client listens, or the server went mute
	open     func(final bool) // called with mu held before the first byte, may change framing; nil when that is done
	framing  framing
	ids      string        // the prefix of event ids; "": events have none
	log      [][]byte      // events so far, when they have ids
	end      chan struct{} // closed when the handler of w shall return
	answered bool          // the response was sent
}

// send writes one message; final says that it is the response that a call's stream exists for. JSON
// whitespace that would break a line becomes a space. The error says that no client listens; with ids
// the message is kept all the same.
func (o *stream) send(message io.Reader, final bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.framing == body && o.answered {
		return nil
	}
	o.begin(final)
	o.answered = o.answered || final
	before, after := o.frame()
	if o.framing != body {
		message = oneLine{message}
	}
	message = io.MultiReader(strings.NewReader(before), message, strings.NewReader(after))
	if o.ids != "" {
		event, err := io.ReadAll(message)
		if err != nil {
			return err
		}
		o.log = append(o.log, event)
		message = bytes.NewReader(event)
		if final {
			defer o.stop()
		}
	}
	return o.write(message)
}

// begin writes the header of an HTTP response, once. mu is held, as in the functions that follow.
func (o *stream) begin(final bool) {
	if o.open != nil {
		o.open(final)
		o.open = nil
	}
}

// frame returns what stands before and after a message. mu is held.
func (o *stream) frame() (before, after string) {
	switch {
	case o.framing == lines:
		return "", "\n"
	case o.framing == body:
		return "", ""
	}
	id := ""
	if o.ids != "" {
		id = fmt.Sprintf("id: %s-%d\n", o.ids, len(o.log)+1)
	}
	if o.odd {
		return ": odd\r\n\r\n" + id + "unknown\r\ndata:", "\r\n\r\n"
	}
	return "event: message\n" + id + "data: ", "\n\n"
}

func (o *stream) write(r io.Reader) error {
	if o.w == nil {
		return io.ErrClosedPipe
	}
	_, err := io.Copy(writerOnly{o.w}, r)
	if err != nil {
		o.w = nil // what would follow half a frame is not what the server means
	} else if f, ok := o.w.(http.Flusher); ok && o.framing == events {
		f.Flush()
	}
	return err
}

func (o *stream) stop() {
	if o.end != nil {
		close(o.end)
		o.end = nil
	}
}

// bytes writes what is no message, as it is; garbage writes it in a frame.
func (o *stream) bytes(text string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begin(false)
	return o.write(strings.NewReader(text))
}

func (o *stream) garbage(text string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begin(false)
	before, after := o.frame()
	return o.write(strings.NewReader(before + text + after))
}

// half writes the first half of a response, and nothing ever after.
func (o *stream) half(message []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begin(true)
	before, _ := o.frame()
	o.write(strings.NewReader(before + string(message[:len(message)/2])))
	if f, ok := o.w.(http.Flusher); ok {
		f.Flush()
	}
	o.w = nil
}

// attach writes the header of an event stream to w, makes w the connection that the stream is
// written to, in place of another one, and replays the events after the given number; a negative
// number replays none. A client that has the header misses nothing. It returns a channel that is
// closed when w's response shall end.
func (o *stream) attach(w http.ResponseWriter, after int) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	eventStream(w)
	o.stop()
	end := make(chan struct{})
	o.w, o.end = w, end
	if after >= 0 && after <= len(o.log) {
		o.write(bytes.NewReader(bytes.Join(o.log[after:], nil)))
	}
	if o.answered {
		o.stop()
	}
	return end
}

// detach is called when w's response ends.
func (o *stream) detach(w io.Writer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.w == w {
		o.w, o.end = nil, nil
	}
}

// attached reports whether a client listens.
func (o *stream) attached() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w != nil
}

// hangUp ends the connection that the stream is written to.
func (o *stream) hangUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stop()
}

// done reports whether the response was sent.
func (o *stream) done() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.answered
}

// oneLine turns line breaks, which can only stand between the tokens of a JSON text, into spaces.
type oneLine struct{ r io.Reader }

func (l oneLine) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	for i, c := range p[:n] {
		if c == '\n' || c == '\r' {
			p[i] = ' '
		}
	}
	return n, err
}

// writerOnly hides ReadFrom, which on a response sends a header too early to set one.
type writerOnly struct{ io.Writer }
