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
	Name  string        // "message" when the sender named none
	Data  []byte        // valid until the next call of Next
	ID    string        // the last id that was sent, by this event or an earlier one
	Retry time.Duration // what the sender asked for with this event; 0 when it asked for nothing
}

// ErrEventTooLarge means that an event is larger than the reader's limit.
var ErrEventTooLarge = errors.New("event too large")

// EventReader reads server-sent events. It asks for more only when what it has holds no whole
// event, and the data of one line is a slice of its buffer, which is at most a few times as large
// as the largest event so far. It is for one goroutine.
type EventReader struct {
	r     io.Reader
	limit int
	buf   []byte // what was read and not yet consumed is buf[from:]
	from  int
	lf    bool // the last line ended in CR, so a LF that follows belongs to it
	first bool // nothing was consumed yet, so a byte order mark may stand here
	id    string

	memory *[]byte             // see Use
	charge func(n int64) error // see Charge; nil does nothing
}

const leastBuffer = 4 << 10

// NewEventReader returns a reader of events from r. An event's lines from its first data, id or
// retry field on are at most limit bytes long, counting one byte for the end of each but not the
// empty line, and so is any single line before, without its end.
func NewEventReader(r io.Reader, limit int) *EventReader {
	return &EventReader{r: r, limit: limit, first: true}
}

// Use has d read into *memory, which is the reader's, and its events', from now on. If d needs
// more, it leaves the larger piece there. It is for before the first Next.
func (d *EventReader) Use(memory *[]byte) { d.memory = memory }

// Charge has f asked before d takes n bytes more of memory than it has, unless it has little. The
// error of f ends the stream. It is for before the first Next.
func (d *EventReader) Charge(f func(n int64) error) { d.charge = f }

// uncharged is how much memory a reader takes without asking.
const uncharged = 64 << 10

// Next returns the next event that has data, a retry time or an id; where there is no data, Data is
// empty. At the end of the stream the error is io.EOF, and io.ErrUnexpectedEOF within an event,
// whose part is dropped. Other errors are ErrEventTooLarge and those of the underlying reader.
// After an error the reader is of no more use.
func (d *EventReader) Next() (Event, error) {
	e := Event{Name: "message", ID: d.id}
	var several []byte // data of an event of several lines
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
			size += len(line) + 1 // everything since the first field of an event stays in buf
		} else {
			d.release()
		}
	}
}

// release gives up what was consumed. Only between events: the data of an event of one line is a
// slice of buf.
func (d *EventReader) release() {
	if d.from == len(d.buf) {
		d.buf, d.from = d.buf[:0], 0
	} else if d.from > 0 && d.from > len(d.buf)/2 {
		d.buf, d.from = d.buf[:copy(d.buf, d.buf[d.from:])], 0
	}
}

// line returns the next line without its end; it is a slice of buf. A line of more than limit bytes
// is ErrEventTooLarge.
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

// lineEnd returns the index of the first CR or LF from i on; len(b) if there is none. It looks at a
// window at a time, because the search for the one must not run on to the end of a large buffer for
// each line that ends in the other.
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

// fill reads more into buf, which moves when it must grow: slices of what an event has so far keep
// the old one.
func (d *EventReader) fill() error {
	switch {
	case cap(d.buf) == 0 && d.memory != nil && cap(*d.memory) >= leastBuffer:
		d.buf = (*d.memory)[:0]
	case len(d.buf) == cap(d.buf):
		size := max(2*cap(d.buf), leastBuffer)
		if d.charge != nil && size > uncharged {
			if err := d.charge(int64(size - cap(d.buf))); err != nil {
				return err
			}
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

// AppendEvent appends an event called "message" whose data is a JSON text; line breaks between its
// tokens become spaces. An empty id is left out.
func AppendEvent(b []byte, id string, data []byte) []byte {
	b = append(b, "event: message\n"...)
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	b = append(b, "data: "...)
	return append(raw.AppendLine(b, data), '\n', '\n')
}
