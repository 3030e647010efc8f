package transport

import (
	"io"
	"net"
	"sync/atomic"

	"junction/upstream/jsonrpc"
)

// payload is the body of a request: a message, its params from where they are.
type payload struct {
	parts [3][]byte // never modified after set
	head  [96]byte  // the memory of most first parts
	size  int64
	begun atomic.Bool // a part of it was read, and may have been sent
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

// reader starts over: nothing of what was read before has been, or will be, processed.
func (p *payload) reader() reader {
	p.begun.Store(false)
	return reader{payload: p, rest: p.parts}
}

// again is a request's GetBody. The transport calls it when it sends the request again because
// nothing of it went out, or the server refused to look at it.
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

// WriteTo is Read for a writer that takes what there is at once, without a copy of it.
func (r *reader) WriteTo(w io.Writer) (int64, error) {
	r.payload.begun.Store(true)
	parts := net.Buffers(r.rest[:])
	return parts.WriteTo(w)
}

// Close does nothing: the message is the caller's.
func (r *reader) Close() error { return nil }
