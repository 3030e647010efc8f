package http1

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxHeld is the size up to which a body is held back, to be sent together with the head or with
// later parts. A smaller response is one write and gets a Content-Length.
const maxHeld = 4 << 10

// response is the http.ResponseWriter of one request. It belongs to the handler until the handler
// returns. Afterwards it writes nothing, so that a handler that kept it cannot write into the
// response of another request.
type response struct {
	conn    *conn
	body    *body // of the request
	header  http.Header
	*memory       // nil after the request has ended
	status  int   // 0 until it is known
	length  int64 // of the body, from the handler; -1 if unknown
	written int64 // of the body
	sent    bool  // the head was sent
	typed   bool  // the handler has set Content-Type
	chunked bool
	close   bool // the connection closes after this response
	err     error
	limited bool // the handler has set a deadline for writing
}

// memory contains the reusable buffers for a response.
type memory struct {
	held  []byte // the part of the body that is not sent yet
	out   []byte
	names []string
	parts [3][]byte
	list  net.Buffers
}

func (w *response) begin(c *conn, b *body) {
	if c.header == nil {
		c.header = make(http.Header)
	}
	clear(c.header)
	*w = response{conn: c, body: b, header: c.header, memory: c.server.memories.Get().(*memory), length: -1}
}

// end returns the memory to the pool.
func (w *response) end() {
	if cap(w.held) <= 2*maxHeld && cap(w.out) <= 4*maxHeld {
		// an aborted response may have left data
		w.held, w.parts, w.list = w.held[:0], [3][]byte{}, nil
		w.conn.server.memories.Put(w.memory)
	}
	w.memory, w.header = nil, http.Header{}
}

func (w *response) over() bool { return w.memory == nil }

// Header implements http.ResponseWriter.
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. The header is sent in its current state; later
// changes have no effect. An interim response (1xx) is sent at once, without the header.
func (w *response) WriteHeader(status int) {
	switch {
	case w.over():
		w.conn.server.logf("http1: WriteHeader(%d) after the request", status)
		return
	case w.status != 0:
		w.conn.server.logf("http1: superfluous WriteHeader(%d) after %d", status, w.status)
		return
	case status < 100 || status > 999:
		panic(fmt.Sprintf("http1: invalid status %d", status)) // a refusal that was not filled in must not become 200
	case status < 200:
		w.interim(status)
		return
	}
	w.status = status
	h := w.header
	if declared := h["Content-Length"]; len(declared) > 0 {
		length, err := strconv.ParseUint(declared[0], 10, 62)
		if err == nil {
			w.length = int64(length)
		} else {
			w.conn.server.logf("http1: the Content-Length of an answer is %q", declared[0])
		}
	}
	for _, v := range h["Connection"] {
		w.close = w.close || strings.EqualFold(v, "close")
	}
	w.close = w.close || w.conn.server.ending.Load() || w.body.left > maxUnread
	w.out = w.appendHeader(w.out[:0])
}

// interim sends a response that precedes the final one. 101 would end HTTP on this connection.
func (w *response) interim(status int) {
	if status == http.StatusSwitchingProtocols || w.err != nil {
		return
	}
	w.limit()
	out := append(strconv.AppendInt(append(w.out[:0], "HTTP/1.1 "...), int64(status), 10), ' ')
	w.out = append(append(out, http.StatusText(status)...), "\r\n\r\n"...)
	_, w.err = w.conn.Conn.Write(w.out)
}

// empty reports whether the status allows no body (RFC 9110, section 6.4.1).
func (w *response) empty() bool {
	return w.status == http.StatusNoContent || w.status == http.StatusNotModified
}

// Write implements http.ResponseWriter.
func (w *response) Write(p []byte) (int, error) {
	if w.over() {
		return 0, errOver
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case len(p) == 0:
		return 0, nil
	case w.empty():
		return 0, http.ErrBodyNotAllowed
	case w.err != nil:
		return 0, w.err
	}
	if w.written += int64(len(p)); w.length >= 0 && w.written > w.length {
		return 0, http.ErrContentLength
	}
	if len(w.held)+len(p) <= maxHeld {
		w.held = append(w.held, p...)
		return len(p), nil
	}
	if w.send(p, false); w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

// Flush implements http.Flusher.
func (w *response) Flush() { w.FlushError() }

// FlushError is used by http.ResponseController.
func (w *response) FlushError() error {
	if w.over() {
		return errOver
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.err == nil && (!w.sent || len(w.held) > 0) {
		w.send(nil, false)
	}
	return w.err
}

// finish sends the rest. It returns false if the connection cannot be used any more.
func (w *response) finish() bool {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.err == nil && (!w.sent || w.chunked || len(w.held) > 0) {
		w.send(nil, true)
	}
	other := w.length >= 0 && w.written != w.length && !w.empty() // than announced
	return w.err == nil && !other && !w.close
}

// send sends the head, if not sent yet, the held part and p, in one system call. last means that
// nothing follows.
func (w *response) send(p []byte, last bool) {
	w.limit()
	n := len(w.held) + len(p)
	out := w.out[:0]
	if !w.sent {
		out = w.out // started by WriteHeader
		w.sent = true
		switch {
		case w.empty():
		case w.length < 0 && last:
			w.length = w.written
		case w.length < 0:
			w.chunked = true
		}
		out = w.endHeader(out, p)
	}
	end := ""
	if w.chunked && n > 0 {
		out = append(strconv.AppendInt(out, int64(n), 16), "\r\n"...)
		end = "\r\n"
	}
	if w.chunked && last {
		end += "0\r\n\r\n"
	}
	out = append(out, w.held...)
	if len(p) <= maxHeld {
		out = append(append(out, p...), end...)
		_, w.err = w.conn.Conn.Write(out)
	} else {
		w.parts = [3][]byte{out, p, []byte(end)}
		w.list = w.parts[:]
		if end == "" {
			w.list = w.parts[:2]
		}
		_, w.err = w.list.WriteTo(w.conn.Conn)
	}
	w.out, w.held = out, w.held[:0]
}

// limit sets the deadline of the next write, unless the handler has set its own.
func (w *response) limit() {
	if w.limited {
		return
	}
	var limit time.Time
	if timeout := w.conn.server.HTTP.WriteTimeout; timeout > 0 {
		limit = time.Now().Add(timeout)
	}
	if limit != w.conn.writing {
		w.SetWriteDeadline(limit)
		w.limited = false
	}
}

// appendHeader appends the status line and the handler's fields, sorted by name.
func (w *response) appendHeader(b []byte) []byte {
	b = append(strconv.AppendInt(append(b, "HTTP/1.1 "...), int64(w.status), 10), ' ')
	b = append(append(b, http.StatusText(w.status)...), "\r\n"...)
	names := w.names[:0]
	for name := range w.header {
		names = append(names, name)
	}
	slices.Sort(names)
	w.names = names
	for _, name := range names {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Connection":
			continue // endHeader sets the framing of the body
		case "Content-Type":
			if w.status == http.StatusNotModified {
				continue // RFC 9110, section 15.4.5
			}
		}
		for _, value := range w.header[name] {
			b = appendField(b, name, value)
		}
	}
	if _, set := w.header["Date"]; !set {
		b = append(append(append(b, "Date: "...), w.conn.server.date()...), "\r\n"...)
	}
	_, w.typed = w.header["Content-Type"]
	w.typed = w.typed || w.header["Content-Encoding"] != nil
	return b
}

// endHeader completes the header that appendHeader has started. p is the beginning of the body if
// nothing is held.
func (w *response) endHeader(b []byte, p []byte) []byte {
	first := w.held
	if len(first) == 0 {
		first = p
	}
	if !w.typed && len(first) > 0 {
		b = appendField(b, "Content-Type", http.DetectContentType(first))
	}
	if w.length >= 0 && !w.empty() {
		b = append(strconv.AppendInt(append(b, "Content-Length: "...), w.length, 10), "\r\n"...)
	}
	if w.chunked {
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	}
	if w.close {
		b = append(b, "Connection: close\r\n"...)
	}
	return append(b, "\r\n"...)
}

// appendField appends a header line. It omits fields with invalid names and replaces line breaks in
// values by spaces.
func appendField(b []byte, name, value string) []byte {
	if !IsToken(name) {
		return b
	}
	b = append(append(b, name...), ": "...)
	at := len(b)
	b = append(b, strings.Trim(value, " \t\r\n")...)
	for i := at; i < len(b); i++ {
		if b[i] == '\r' || b[i] == '\n' {
			b[i] = ' '
		}
	}
	return append(b, "\r\n"...)
}

// SetReadDeadline is used by http.ResponseController. It applies to the body; after its end there
// is nothing more to read.
func (w *response) SetReadDeadline(t time.Time) error {
	if w.over() {
		return errOver
	}
	if w.body.left > 0 {
		w.conn.timed = true
		w.conn.setReadDeadline(t)
	}
	return nil
}

// SetWriteDeadline is used by http.ResponseController. The deadline may be up to a second late, so
// that not every response sets a timer.
func (w *response) SetWriteDeadline(t time.Time) error {
	if w.over() {
		return errOver
	}
	w.limited = true
	if early := w.conn.writing.Sub(t); !t.IsZero() && early >= 0 && early <= time.Second {
		return nil
	}
	if !t.IsZero() && time.Until(t) > time.Second {
		t = t.Add(time.Second)
	}
	w.conn.writing = t
	return w.conn.Conn.SetWriteDeadline(t)
}

var errOver = errors.New("the request is over")
