package stdio

import (
	"fmt"
	"io"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
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
// errors come from the reader.
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
	return fmt.Sprintf("the message has %d bytes; the limit is %s", e.Size, transport.FormatSize(int64(e.Limit)))
}

// asks returns the id of the request that the text is, or "".
func (o *outline) asks() jsonrpc.ID {
	if id, method := o.envelope(); method == nil {
		return id
	}
	return ""
}

// answers returns the id of the request that the text responds to. It returns "" if the text is no
// response or has no clear id.
func (o *outline) answers() jsonrpc.ID {
	if id, method := o.envelope(); method == raw.ErrAbsent {
		return id
	}
	return ""
}

// envelope returns the id of a message of usual size, or "", and the error of reading its method.
func (o *outline) envelope() (id jsonrpc.ID, method error) {
	if len(o.text) > outlineKept {
		return "", raw.ErrMany
	}
	object, err := raw.Parse(o.text)
	if err != nil {
		return "", err
	}
	_, method = object.Get("method")
	text, _ := object.Get("id") // an unclear id is none
	return jsonrpc.ID(text), method
}
