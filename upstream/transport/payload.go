package transport

import (
	"io"
	"net"
	"sync/atomic"

	"junction/upstream/jsonrpc"
)

// payload is the body of a request: a message, whose params are not copied.
type payload struct {
	parts [3][]byte // never modified after set
	head  [96]byte  // storage for most first parts
	size  int64
	begun atomic.Bool // a part was read, and may have been sent
}

func (p *payload) set(m *jsonrpc.Message) {
	if m.Method == "" || len(m.Params) == 0 {
		p.parts[0] = m.Append(p.head[:0])
	} else {
		head := jsonrpc.AppendRequest(p.head[:0], m.ID, m.Method, nil)
		p.parts = [3][]byte{append(head[:len(head)-1], `,"params":`...), m.Params, {'}'}}
	}
	for _, part := range p.parts {
		p.size += int64(len(part))
	}
}

// reader starts again from the beginning. Data that was read before must not have been processed by
// the server.
func (p *payload) reader() reader {
	p.begun.Store(false)
	return reader{payload: p, rest: p.parts}
}

// again implements GetBody of a request. The transport calls it to send the request again, if
// nothing was sent or the server has rejected the request unread.
func (p *payload) again() (io.ReadCloser, error) {
	r := p.reader()
	return &r, nil
}

// reader reads a payload once.
type reader struct {
	payload *payload
	rest    [3][]byte
}

func (r *reader) Read(b []byte) (n int, err error) {
	r.payload.begun.Store(true)
	for i := range r.rest {
		k := copy(b[n:], r.rest[i])
		r.rest[i], n = r.rest[i][k:], n+k
	}
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// WriteTo writes the payload without copying it.
func (r *reader) WriteTo(w io.Writer) (int64, error) {
	r.payload.begun.Store(true)
	parts := net.Buffers(r.rest[:])
	return parts.WriteTo(w)
}

// Close does nothing: the caller owns the message.
func (r *reader) Close() error { return nil }
