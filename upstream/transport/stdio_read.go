package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// read takes what the server writes, until its output ends or is closed.
func (w *stdio) read() {
	defer close(w.drained)
	lines := lineReader{r: w.process.stdout, limit: w.o.MessageLimit, spare: &w.spare}
	odd := NewLogLimit()
	for {
		line, long, err := lines.next()
		if err != nil {
			return // whatever it is: why knows more
		}
		var m jsonrpc.Message
		if long == nil {
			m, err = jsonrpc.Parse(line, w.o.Depth)
		} else {
			err = tooLarge(w.o.MessageLimit)
		}
		switch {
		case err == nil && m.IsResponse():
			if !w.settle(m.ID, answer{m: &m, buffer: lines.gone}) {
				w.o.Log.Debug("dropped a response without a waiting request", "id", m.ID)
			}
		case err == nil:
			select {
			case <-w.over:
			default:
				w.in(&m)
			}
		default:
			if long == nil {
				long = new(outline)
				long.add(line)
			}
			if !errors.Is(err, ErrInvalid) {
				err = fmt.Errorf("%w: %w", ErrInvalid, err)
			}
			if w.settle(long.answers(), answer{err: err}) {
				continue // the caller has the error
			}
			if show, before := odd.allow(time.Now()); show {
				w.o.Log.Warn("server printed a non-JSON line on stdout (ignored)", "error", err, "size", long.size, "line",
					clean(long.start), "not_shown", before)
			}
		}
	}
}

const (
	lineBuffer = 32 << 10 // of a transport at rest
	lineShown  = 200      // bytes of a strange line in the log
	lineOwn    = 2 << 10  // from here on a line gets a buffer that is used again
	lineKept   = 4 << 20  // the largest of them that is kept for another line
)

// lineBuffers are unused buffers for lines: allocating a large one costs more than reading into it.
// The zero value has none.
type lineBuffers struct{ pool sync.Pool }

// take returns a buffer of size bytes.
func (p *lineBuffers) take(size int) []byte {
	if b, ok := p.pool.Get().(*[]byte); ok && cap(*b) >= size {
		return (*b)[:size]
	}
	return make([]byte, size, (size+lineOwn-1)/lineOwn*lineOwn)
}

// give takes back an unused buffer.
func (p *lineBuffers) give(b []byte) {
	if cap(b) >= lineOwn && cap(b) <= lineKept {
		p.pool.Put(&b)
	}
}

// lineReader splits a stream into lines of at most limit bytes. A small line is copied out of the
// buffer. One that is larger than the buffer gets one of its own, which leaves with it, so that it
// is copied no more than in part.
type lineReader struct {
	r     io.Reader
	limit int
	spare *lineBuffers

	buf      []byte
	from, to int    // buf[from:to] was read and not returned
	rest     []byte // the small buffer, while buf is a large one
	large    int    // the size of the last large line: a good guess for the next
	gone     []byte // the buffer that left with the last line; nil when that has none to be used again
	err      error
}

// next returns the next line that is not empty, without its end; it belongs to the caller. Of a
// Line above the limit it returns the outline instead. A last line without an end is one, too.
func (l *lineReader) next() ([]byte, *outline, error) {
	l.gone = nil
	seen := 0 // bytes of the line that were searched for its end
	for {
		if i := bytes.IndexByte(l.buf[l.from+seen:l.to], '\n'); i >= 0 {
			if line, long := l.take(seen+i, 1); line != nil || long != nil {
				return line, long, nil
			}
			seen = 0
			continue
		}
		seen = l.to - l.from
		if l.err != nil {
			if line, long := l.take(seen, 0); line != nil || long != nil {
				return line, long, nil
			}
			return nil, nil, l.err
		}
		if seen > l.limit {
			return nil, l.skip(), nil
		}
		l.fill()
	}
}

// take takes n bytes and an end of the given length out of the buffer.
func (l *lineReader) take(n, end int) ([]byte, *outline) {
	line := l.buf[l.from : l.from+n : l.from+n]
	l.from += n + end
	defer l.shrink()
	switch {
	case n > l.limit:
		o := new(outline)
		o.add(line)
		return nil, o
	case len(bytes.TrimRight(line, " \t\r")) == 0:
		return nil, nil
	case l.rest == nil && n < lineOwn:
		return slices.Clone(line), nil
	case l.rest == nil:
		l.gone = l.spare.take(n)
		return l.gone[:copy(l.gone, line)], nil
	}
	l.large = n
	if n < len(l.buf)/2 {
		return slices.Clone(line), nil
	}
	l.gone = l.buf
	return line, nil // and shrink leaves the buffer to it
}

// shrink goes back to the small buffer after a large line, or to another large one if what was read
// beyond the line does not fit.
func (l *lineReader) shrink() {
	if l.rest == nil {
		return
	}
	left := l.buf[l.from:l.to]
	large := l.buf
	if len(left) <= len(l.rest) {
		l.buf, l.rest = l.rest, nil
	} else {
		l.buf = l.spare.take(l.size(2 * len(left)))
	}
	l.from, l.to = 0, copy(l.buf, left)
	if l.gone == nil {
		l.spare.give(large)
	}
}

// size is that of a large buffer for at least so many bytes, if there may be so many. One byte
// above the limit tells a line that is too long, another one ends a line that is not.
func (l *lineReader) size(least int) int { return min(max(least, l.large+l.large/8), l.limit+2) }

// fill reads on. The buffer is full only if one line fills it.
func (l *lineReader) fill() {
	if l.from > 0 {
		l.from, l.to = 0, copy(l.buf, l.buf[l.from:l.to])
	}
	switch {
	case l.buf == nil:
		l.buf = make([]byte, lineBuffer)
	case l.to == len(l.buf):
		if l.rest == nil {
			l.rest = l.buf
			l.buf = l.spare.take(l.size(4 * len(l.buf)))
			copy(l.buf, l.rest)
		} else {
			large := l.spare.take(l.size(2 * len(l.buf)))
			copy(large, l.buf)
			l.spare.give(l.buf)
			l.buf = large
		}
	}
	n, err := l.r.Read(l.buf[l.to:])
	l.to += n
	l.err = err
}

// skip drops a line of which the buffer holds the beginning, and returns its outline.
func (l *lineReader) skip() *outline {
	o := new(outline)
	for {
		b := l.buf[l.from:l.to]
		i := bytes.IndexByte(b, '\n')
		if i >= 0 || l.err != nil {
			if i < 0 {
				i = len(b) - 1
			}
			o.add(bytes.TrimSuffix(b[:i+1], []byte("\n")))
			l.from += i + 1
			l.shrink()
			return o
		}
		o.add(b)
		l.from, l.to = 0, 0
		l.shrink()
		l.fill()
	}
}

// outline is what remains of a JSON object when the insides of the arrays and objects in it are
// left out: however large the text, enough to see which call it is the answer to. It is forgiving
// about what it leaves out, so that it also serves for a text that is not quite JSON.
type outline struct {
	size  int
	start []byte // the first lineShown bytes

	text            []byte
	depth           int
	quoted, escaped bool
}

// outlineKept bounds the outline; a response has fewer members.
const outlineKept = 4 << 10

// add reads on; b is not kept.
func (o *outline) add(b []byte) {
	o.size += len(b)
	if n := lineShown - len(o.start); n > 0 {
		o.start = append(o.start, b[:min(n, len(b))]...)
	}
	for _, c := range b {
		keep := o.depth <= 1
		switch {
		case o.escaped:
			o.escaped = false
		case o.quoted:
			o.escaped, o.quoted = c == '\\', c != '"'
		case c == '"':
			o.quoted = true
		case c == '{' || c == '[':
			o.depth++
		case c == '}' || c == ']':
			o.depth--
			keep = keep || o.depth <= 1
		}
		if keep && len(o.text) <= outlineKept {
			o.text = append(o.text, c)
		}
	}
}

// answers returns the id of the request that the text is the response to, and "" if it is none or
// nobody can tell.
func (o *outline) answers() jsonrpc.ID {
	if len(o.text) > outlineKept {
		return ""
	}
	object, err := raw.Parse(o.text)
	if err != nil {
		return ""
	}
	if _, err := object.Get("method"); err != raw.ErrAbsent {
		return ""
	}
	id, err := object.Get("id")
	if err != nil {
		return ""
	}
	return jsonrpc.ID(id)
}
