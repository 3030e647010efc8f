package jsonrpc

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"

	"junction/upstream/raw"
)

// Event is one server-sent event (WHATWG HTML, section 9.2).
type Event struct {
	Name string // "message" if the sender set no name
	Data []byte // valid until the next call of Next
	ID   string // the last id that the sender set, with this event or an earlier one
	// the reconnection time that the sender requested with this event; 0 if none
	Retry time.Duration
}

// ErrEventTooLarge means that an event is larger than the reader's limit.
var ErrEventTooLarge = errors.New("event too large")

// EventReader reads server-sent events. It reads from the stream only when its buffer contains no
// complete event. The data of a one-line event is a slice of the buffer. The buffer is at most a
// few times as large as the largest event so far. It must not be used concurrently.
type EventReader struct {
	r     io.Reader
	limit int
	buf   []byte // buf[from:] was read and is not yet consumed
	from  int
	lf    bool // the last line ended in CR, so a following LF belongs to it
	first bool // nothing was consumed yet, so a byte order mark may follow
	id    string

	memory *[]byte             // see Use
	charge func(n int64) error // see Charge; may be nil
	free   func(n int64)       // see Free; may be nil
	held   int64               // bytes that charge has accepted, and free did not get back
}

const leastBuffer = 4 << 10

// NewEventReader returns a reader of events from r. The limit in bytes applies to the lines of an
// event from its first data, id or retry field on. Each of them counts with one byte for its end;
// the empty line does not count. The limit also applies to each single earlier line, without its
// end.
func NewEventReader(r io.Reader, limit int) *EventReader {
	return &EventReader{r: r, limit: limit, first: true}
}

// Use makes d read into *memory, which belongs to the reader and its events from then on. If d
// needs more memory, it stores the larger slice there. Use must be called before the first Next.
func (d *EventReader) Use(memory *[]byte) { d.memory = memory }

// Charge makes d call f before it allocates n more bytes of memory, except for a small first part.
// An error of f ends the stream. Charge must be called before the first Next.
func (d *EventReader) Charge(f func(n int64) error) { d.charge = f }

// Free makes d call f for memory of Charge that it does not use any more: when the buffer of a large
// event is dropped, and at Close. Free must be called before the first Next.
func (d *EventReader) Free(f func(n int64)) { d.free = f }

// Close drops the buffer. It must be called if Free was called.
func (d *EventReader) Close() {
	d.buf, d.from = nil, 0
	if d.free != nil && d.held > 0 {
		d.free(d.held)
		d.held = 0
	}
}

const (
	// uncharged is the memory that a reader allocates without calling f of Charge.
	uncharged = 64 << 10
	// mostKept is the largest buffer that is kept for the next event, if Free was called.
	mostKept = 1 << 20
)

// Next returns the next event that has data, a retry time or an id. Data is empty if the event has
// none. At the end of the stream Next returns io.EOF; within an event it returns
// io.ErrUnexpectedEOF and drops the incomplete event. Other errors are ErrEventTooLarge and those
// of the underlying reader. After an error the reader must not be used.
func (d *EventReader) Next() (Event, error) {
	e := Event{Name: "message", ID: d.id}
	var several []byte // the data of an event with several data lines
	lines, begun, seen, size := 0, false, false, 0
	d.release()
	for {
		line, err := d.line(d.limit - size)
		if err != nil {
			if err == io.EOF && (begun || len(d.buf) > d.from) {
				err = io.ErrUnexpectedEOF
			}
			return Event{}, err
		}
		if len(line) == 0 {
			if seen {
				d.id = e.ID
				return e, nil
			}
			e.Name, begun = "message", false
			d.release()
			continue
		}
		begun = begun || line[0] != ':'
		field, value, _ := bytes.Cut(line, []byte(":"))
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
		switch string(field) {
		case "data":
			switch lines++; lines {
			case 1:
				e.Data = value
			case 2:
				several = append(append(append(several, e.Data...), '\n'), value...)
				e.Data = several
			default:
				several = append(append(several, '\n'), value...)
				e.Data = several
			}
			seen = true
		case "event":
			if len(value) == 0 {
				e.Name = "message"
			} else if string(value) != e.Name {
				e.Name = string(value)
			}
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				e.ID, seen = string(value), true
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				e.Retry, seen = time.Duration(ms)*time.Millisecond, true
			}
		}
		if seen {
			size += len(line) + 1 // everything after the first field of an event stays in buf
		} else {
			d.release()
		}
	}
}

// release frees the consumed part of buf. It must be called only between events, because the data
// of a one-line event is a slice of buf.
func (d *EventReader) release() {
	if left := d.buf[d.from:]; d.free != nil && cap(d.buf) > mostKept && len(left) <= uncharged {
		left = bytes.Clone(left)
		d.Close()
		d.buf = left
	} else if d.from == len(d.buf) {
		d.buf, d.from = d.buf[:0], 0
	} else if d.from > 0 && d.from > len(d.buf)/2 {
		d.buf, d.from = d.buf[:copy(d.buf, d.buf[d.from:])], 0
	}
}

// line returns the next line without its end; the line is a slice of buf. A line of more than limit
// bytes is ErrEventTooLarge.
func (d *EventReader) line(limit int) ([]byte, error) {
	scanned := d.from
	for {
		if d.lf && d.from < len(d.buf) {
			if d.buf[d.from] == '\n' {
				d.from++
			}
			d.lf, scanned = false, max(scanned, d.from)
		}
		if d.first && len(d.buf)-d.from >= 3 {
			if bytes.HasPrefix(d.buf[d.from:], []byte("\ufeff")) {
				d.from += 3
				scanned = d.from
			}
			d.first = false
		}
		if scanned = lineEnd(d.buf, scanned); scanned < len(d.buf) {
			line := d.buf[d.from:scanned]
			d.lf = d.buf[scanned] == '\r'
			d.from, d.first = scanned+1, false
			if len(line) > limit {
				return nil, ErrEventTooLarge
			}
			return line, nil
		}
		if len(d.buf)-d.from > limit {
			return nil, ErrEventTooLarge
		}
		if err := d.fill(); err != nil {
			return nil, err
		}
	}
}

// lineEnd returns the index of the first CR or LF from i on, or len(b). It searches in windows, so
// that the search for CR does not scan a large buffer again for each line that ends in LF.
func lineEnd(b []byte, i int) int {
	const window = 1024
	for ; i < len(b); i += window {
		w := b[i:min(i+window, len(b))]
		end := bytes.IndexByte(w, '\n')
		if end >= 0 {
			w = w[:end]
		}
		if cr := bytes.IndexByte(w, '\r'); cr >= 0 {
			end = cr
		}
		if end >= 0 {
			return i + end
		}
	}
	return len(b)
}

// fill reads more into buf. If buf must grow, it is replaced; earlier slices of the event keep the
// old buffer.
func (d *EventReader) fill() error {
	switch {
	case cap(d.buf) == 0 && d.memory != nil && cap(*d.memory) >= leastBuffer:
		d.buf = (*d.memory)[:0]
	case len(d.buf) == cap(d.buf):
		size := max(2*cap(d.buf), leastBuffer)
		if d.charge != nil && size > uncharged {
			n := int64(size - cap(d.buf))
			if err := d.charge(n); err != nil {
				return err
			}
			d.held += n
		}
		grown := make([]byte, len(d.buf), size)
		copy(grown, d.buf)
		if d.buf = grown; d.memory != nil {
			*d.memory = grown
		}
	}
	for range 100 {
		n, err := d.r.Read(d.buf[len(d.buf):cap(d.buf)])
		d.buf = d.buf[:len(d.buf)+n]
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// AppendEvent appends an event called "message" whose data is a JSON text. Line breaks between its
// tokens become spaces. An empty id is omitted.
func AppendEvent(b []byte, id string, data []byte) []byte {
	b = append(b, "event: message\n"...)
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	b = append(b, "data: "...)
	return append(raw.AppendLine(b, data), '\n', '\n')
}
