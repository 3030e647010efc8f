package replicas

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"junction/proxy/members"
	"junction/upstream/http1"
)

// The headers of a connection between members. Clients cannot reach the listener that reads them.
const (
	// headerHop has the ID of the member that the request is for, and the address of the client.
	headerHop = "Junction-Hop"
	// headerGone is in the answer of a process that is not that member, and did not look at the
	// request. In the answer to a request without headerHop it has the name of the process.
	headerGone = "Junction-Gone"
)

const (
	dialTime   = 3 * time.Second // to connect to a member, with the handshake
	copyBuffer = 32 << 10
)

// hop is the state of forwarding.
type hop struct {
	client  *http1.Client
	tls     *tls.Config
	buffers sync.Pool // of *[]byte
}

// link is the connections to one member.
type link struct {
	group   http1.Group
	stop    context.CancelFunc
	suspect atomic.Bool           // it could not be reached since the last look at the table
	failed  atomic.Pointer[error] // why the last connection failed; nil after a success
}

func (m *Member) newLink(r row) *link {
	closing, stop := context.WithCancel(context.Background())
	return &link{stop: stop, group: http1.Group{Client: m.hop.client, Address: r.address, Closing: closing}}
}

// end ends all requests to a member.
func (l *link) end() {
	l.stop()
	l.group.Abort()
}

// unsent is the error of a connection that could not be made, so that nothing was sent.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// checked is a connection whose liveness http1 can see, through TLS.
type checked struct {
	*tls.Conn
	raw syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (c checked) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }

// dial connects to a member, and checks that it has the key.
func (m *Member) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var d net.Dialer
	plain, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, unsent{err}
	}
	c := tls.Client(plain, m.hop.tls)
	if err := c.HandshakeContext(ctx); err != nil {
		plain.Close()
		return nil, unsent{err}
	}
	if raw, ok := plain.(syscall.Conn); ok {
		return checked{c, raw}, nil
	}
	return c, nil
}

// errLost means that the member, or the connection to it, ended before it answered.
var errLost = errors.New("the process that had the request ended before it answered")

// Forward implements members.Members.
func (m *Member) Forward(w http.ResponseWriter, r *http.Request, body []byte, to string) error {
	p := m.peer(to)
	switch {
	case m.Self() == "":
		return members.ErrAlone
	case p == nil:
		m.counters.forwarded[gone].Add(1)
		return members.ErrGone
	}
	outcome, err := m.forward(w, r, body, p)
	m.counters.forwarded[outcome].Add(1)
	if outcome == gone {
		p.link.suspect.Store(true)
		m.lookNow()
	}
	return err
}

// lookNow has Run read the table soon.
func (m *Member) lookNow() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *Member) forward(w http.ResponseWriter, r *http.Request, body []byte, p *peer) (outcome, error) {
	body, err := m.readable(r, body)
	if err != nil {
		return failed, err
	}
	q, fields := m.request(r, body, p.id)
	x := new(http1.Exchange)
	stop := context.AfterFunc(r.Context(), x.Abort)
	defer stop()
	resp, err := p.link.group.Do(r.Context(), x, q, fields)
	if never, ok := errors.AsType[unsent](err); ok && r.Context().Err() == nil {
		reason := never.error
		if p.link.failed.Swap(&reason) == nil {
			m.o.Log.Warn("cannot connect to another replica", "address", p.address, "error", reason)
		}
		return gone, members.ErrGone
	}
	if err != nil {
		if r.Context().Err() != nil {
			return cancelled, r.Context().Err()
		}
		return lost, fmt.Errorf("%w: %w", errLost, err)
	}
	p.link.failed.Store(nil)
	defer resp.Body.Close()
	switch {
	case x.Get(headerGone) != "" && body == nil && r.ContentLength > 0:
		return lost, errLost // the process has not looked at the request, but its body is gone
	case x.Get(headerGone) != "":
		return gone, members.ErrGone
	}
	return m.answer(w, r, resp, x)
}

// maxKept is the size up to which a body is read before it is sent, so that it can be sent again to
// another member.
const maxKept = 64 << 10

// readable returns the body of a request if it is small or of unknown length; otherwise nil. If the
// request is not sent, the caller may read the body again.
func (m *Member) readable(r *http.Request, body []byte) (_ []byte, err error) {
	switch {
	case body != nil || r.Body == nil || r.ContentLength == 0 || r.ContentLength > maxKept:
		return body, nil
	case r.ContentLength > 0:
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
	default:
		body, err = io.ReadAll(http.MaxBytesReader(nil, r.Body, m.o.MaxBody))
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// request returns the request to send, and the header fields to replace.
func (m *Member) request(r *http.Request, body []byte, to string) (*http.Request, []http1.Field) {
	q := &http.Request{Method: r.Method, URL: &url.URL{Opaque: r.RequestURI}, Host: r.Host}
	if !strings.HasPrefix(r.RequestURI, "/") || strings.HasPrefix(r.RequestURI, "//") {
		q.URL = r.URL
	}
	switch {
	case len(body) > 0:
		q.Body, q.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	case r.ContentLength > 0:
		q.Body, q.ContentLength = r.Body, r.ContentLength
	case r.Method == http.MethodPost:
		q.Body = http.NoBody // with its Content-Length of 0
	}
	var fields []http1.Field
	q.Header, fields = endToEnd(r.Header)
	return q, append(fields, http1.Field{Name: headerHop, Value: to + " " + r.RemoteAddr})
}

// hopByHop are the header fields that concern one connection (RFC 9110, section 7.6.1).
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length"}

// endToEnd returns the fields of a header that do not concern its connection: those with one value
// sorted, so that a head that is the same as the one before is not parsed again. A client's own
// headerHop is not among them.
func endToEnd(h http.Header) (several http.Header, one []http1.Field) {
	one = make([]http1.Field, 0, len(h)+1)
	for name, values := range h {
		switch {
		case ofConnection(h, name) || name == headerHop:
		case len(values) == 1:
			one = append(one, http1.Field{Name: name, Value: values[0]})
		default:
			if several == nil {
				several = http.Header{}
			}
			several[name] = values
		}
	}
	slices.SortFunc(one, func(a, b http1.Field) int { return strings.Compare(a.Name, b.Name) })
	return several, one
}

// ofConnection reports whether a field of a header concerns its connection only.
func ofConnection(h http.Header, name string) bool {
	if slices.Contains(hopByHop, name) {
		return true
	}
	for _, list := range h["Connection"] {
		for other := range strings.SplitSeq(list, ",") {
			if strings.EqualFold(strings.TrimSpace(other), name) {
				return true
			}
		}
	}
	return false
}

// answer copies the answer to w as it arrives.
func (m *Member) answer(w http.ResponseWriter, r *http.Request, resp *http.Response, x *http1.Exchange) (
	outcome, error) {
	header := w.Header()
	clear(header) // the owner has set all of them
	theirs := x.Header()
	for name, values := range theirs {
		if !ofConnection(theirs, name) || name == "Content-Length" {
			header[name] = values
		}
	}
	out := http.NewResponseController(w)
	w.WriteHeader(resp.StatusCode)
	buffer, _ := m.hop.buffers.Get().(*[]byte)
	if buffer == nil {
		buffer = new(make([]byte, copyBuffer))
	}
	defer m.hop.buffers.Put(buffer)
	stream := resp.ContentLength < 0
	if stream {
		out.Flush() // the client waits for the head of a stream
	}
	for {
		n, err := resp.Body.Read(*buffer)
		if n > 0 {
			out.SetWriteDeadline(time.Now().Add(m.o.WriteTimeout))
			if _, failed := w.Write((*buffer)[:n]); failed != nil {
				return cancelled, nil // the client is gone; the deferred Close ends the request at the owner
			}
			if stream && err == nil {
				out.Flush()
			}
		}
		switch {
		case err == io.EOF:
			return done, nil
		case err != nil && r.Context().Err() != nil:
			return cancelled, nil
		case err != nil:
			m.counters.forwarded[lost].Add(1)
			panic(http.ErrAbortHandler) // the client must see that the answer is not complete
		}
	}
}
