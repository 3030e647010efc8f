package transport

import (
	"fmt"
	"io"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// Lines reads the messages of the peer of a stdio transport, one in each line. It must not be used
// concurrently.
type Lines struct {
	lines lineReader
	spare lineBuffers
}

// NewLines returns a reader of lines from r. limit is the maximum size of a line in bytes.
func NewLines(r io.Reader, limit int) *Lines {
	l := &Lines{lines: lineReader{r: r, limit: limit}}
	l.lines.spare = &l.spare
	return l
}

// Next returns the next line that is not empty, without its end. The line belongs to the caller. A
// line above the limit is a *LongLineError, after which Next continues with the following line. Other
// errors are those of the reader.
func (l *Lines) Next() ([]byte, error) {
	line, long, err := l.lines.next()
	if long != nil {
		return nil, &LongLineError{Size: long.size, Limit: l.lines.limit, Request: long.asks()}
	}
	return line, err
}

// LongLineError means that a line was dropped because it exceeds the limit.
type LongLineError struct {
	Size, Limit int
	Request     jsonrpc.ID // the id, if the line was a request; otherwise ""
}

func (e *LongLineError) Error() string {
	return fmt.Sprintf("the message has %d bytes; the limit is %s", e.Size, FormatSize(int64(e.Limit)))
}

// asks returns the id of the request that the text is, or "".
func (o *outline) asks() jsonrpc.ID {
	object, ok := o.envelope()
	if !ok {
		return ""
	}
	if _, err := object.Get("method"); err != nil {
		return ""
	}
	id, err := object.Get("id")
	if err != nil {
		return ""
	}
	return jsonrpc.ID(id)
}

// envelope returns the members of the object, if it is one of usual size.
func (o *outline) envelope() (raw.Object, bool) {
	if len(o.text) > outlineKept {
		return raw.Object{}, false
	}
	object, err := raw.Parse(o.text)
	return object, err == nil
}
