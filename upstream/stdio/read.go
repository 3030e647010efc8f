package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"junction/upstream/jsonrpc"
	"junction/upstream/transport"
)

// read handles the server's messages until its output ends or is closed.
func (w *stdio) read() {
	defer close(w.drained)
	lines := lineReader{r: w.process.stdout, limit: w.o.MessageLimit, spare: &w.spare, account: w.o.Account}
	defer lines.release()
	var odd transport.LogLimit
	for {
		line, long, err := lines.next()
		if err != nil {
			return // why finds a more exact reason
		}
		var m jsonrpc.Message
		switch {
		case long == nil:
			m, err = jsonrpc.ParseSingle(line, w.o.Depth)
		case lines.refused != nil:
			err = &transport.MemoryError{Err: fmt.Errorf("the answer is dropped: %w", lines.refused)}
		default:
			err = transport.TooLarge(w.o.MessageLimit)
		}
		switch {
		case err == nil && m.IsResponse():
			w.output.spoke.Store(true)
			if !w.settle(m.ID, answer{m: &m, buffer: lines.lent}) {
				w.o.Log.Debug("dropped a response without a waiting request", "id", m.ID)
				w.in(&m)
			}
		case err == nil:
			w.output.spoke.Store(true)
			select {
			case <-w.Gone():
			default:
				w.in(&m)
			}
		default:
			if long == nil {
				long = new(outline)
				long.add(line)
			}
			if !errors.Is(err, transport.ErrInvalid) && lines.refused == nil {
				err = fmt.Errorf("%w: %w", transport.ErrInvalid, err)
			}
			if w.settle(long.answers(), answer{err: err}) {
				continue // the caller has the error
			}
			w.output.odd(long.start)
			if lines.refused != nil {
				odd.Warn(w.o.Log, "a message of the server was dropped", "error", err, "size", long.size)
			} else {
				odd.Warn(w.o.Log, "server printed a non-JSON line on stdout (ignored)", "error", err, "size", long.size,
					"line", w.o.logged(long.start))
			}
		}
	}
}

const (
	lineBuffer = 32 << 10 // of an idle transport
	lineShown  = 200      // bytes of an invalid line in the log
	lineOwn    = 2 << 10  // lines from this size on get a buffer that is reused
	lineKept   = 4 << 20  // the largest reused buffer
)

// lineBuffers holds unused buffers for lines: allocating a large one costs more than reading into
// it. The zero value is empty and ready to use.
type lineBuffers struct{ pool sync.Pool }

// take returns a buffer of size bytes.
func (p *lineBuffers) take(size int) []byte {
	if b, ok := p.pool.Get().(*[]byte); ok && cap(*b) >= size {
		return (*b)[:size]
	}
	return make([]byte, size, (size+lineOwn-1)/lineOwn*lineOwn)
}

// give returns a buffer that is no longer used.
func (p *lineBuffers) give(b []byte) {
	if cap(b) >= lineOwn && cap(b) <= lineKept {
		p.pool.Put(&b)
	}
}

// lineReader splits a stream into lines of at most limit bytes. A small line is copied out of the
// buffer. A line that exceeds the buffer is read into a buffer of its own, which the caller
// receives, so that it is copied only in part.
type lineReader struct {
	r     io.Reader
	limit int
	spare *lineBuffers

	buf      []byte
	from, to int    // buf[from:to] was read and not returned
	rest     []byte // the small buffer, while buf is a large one
	large    int    // the size of the last large line, a good guess for the next
	lent     []byte // the reusable buffer of the returned line; nil if it has none
	err      error

	account transport.Account // of large buffers; may be nil
	held    int64             // bytes of account
	refused error             // of account: why the line whose outline next returned was dropped
}

// next returns the next line that is not empty, without its end; the line belongs to the caller.
// For a line above the limit it returns the outline instead. The last line needs no end.
func (l *lineReader) next() ([]byte, *outline, error) {
	l.lent, l.refused = nil, nil
	if l.rest == nil {
		l.release() // of the line before, which belongs to the caller
	}
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
		if l.fill(); l.refused != nil {
			return nil, l.skip(), nil
		}
	}
}

// release returns the memory of the account.
func (l *lineReader) release() {
	if l.held > 0 {
		l.account.Release(l.held)
		l.held = 0
	}
}

// reserve accounts for a large buffer of at least least bytes, and returns its size. It sets refused
// if there is no memory for it.
func (l *lineReader) reserve(least int) int {
	for _, size := range []int{l.size(least), least} { // the guess may be too large
		more := int64(size) - l.held
		if l.refused = nil; l.account == nil || size <= transport.Uncharged || more <= 0 {
			return size
		}
		if l.refused = l.account.Reserve(more); l.refused == nil {
			l.held += more
			return size
		}
	}
	return least
}

// take removes n bytes and a line end of the given length from the buffer.
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
		l.lent = l.spare.take(n)
		return l.lent[:copy(l.lent, line)], nil
	}
	l.large = n
	if n < len(l.buf)/2 {
		return slices.Clone(line), nil
	}
	l.lent = l.buf
	return line, nil // shrink leaves this buffer to the line
}

// shrink returns to the small buffer after a large line. If the rest of the data does not fit into
// the small buffer, it uses another large one.
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
	if l.lent == nil {
		l.spare.give(large)
	}
}

// size returns the size for a large buffer: at least least bytes, but no more than the limit needs.
// One byte above the limit detects a line that is too long, another one is for the line end.
func (l *lineReader) size(least int) int { return min(max(least, l.large+l.large/8), l.limit+2) }

// fill reads more. The buffer is full only if it contains one line. If there is no memory for a larger
// buffer, it sets refused and reads nothing.
func (l *lineReader) fill() {
	if l.from > 0 {
		l.from, l.to = 0, copy(l.buf, l.buf[l.from:l.to])
	}
	switch {
	case l.buf == nil:
		l.buf = make([]byte, lineBuffer)
	case l.to == len(l.buf):
		if l.rest == nil {
			size := l.reserve(min(4*len(l.buf), l.limit+2))
			if l.refused != nil {
				return
			}
			l.rest = l.buf
			l.buf = l.spare.take(size)
			copy(l.buf, l.rest)
		} else {
			size := l.reserve(min(2*len(l.buf), l.limit+2))
			if l.refused != nil {
				return
			}
			large := l.spare.take(size)
			copy(large, l.buf)
			l.spare.give(l.buf)
			l.buf = large
		}
	}
	n, err := l.r.Read(l.buf[l.to:])
	l.to += n
	l.err = err
}

// skip drops a line that begins in the buffer, and returns its outline.
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

// outline is a JSON object without the contents of its inner arrays and objects. It is small enough
// to find the id of a response in a text of any size. It accepts most invalid JSON, so that it also
// works for a damaged line.
type outline struct {
	size  int
	start []byte // the first lineShown bytes

	text            []byte
	depth           int
	quoted, escaped bool
}

// outlineKept is the maximum size of an outline; a response has fewer members.
const outlineKept = 4 << 10

// add processes more of the text; b is not kept.
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
