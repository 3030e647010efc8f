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
	// headerGone is in the response of a process that is not that member (any more), and did not
	// handle the request. Its value is Member.process, by which reachesSelf recognises this
	// process.
	headerGone = "Junction-Gone"
	// headerGiveBack is in a request of its own, for a member that holds shares of a limit. Its value
	// is the digest of the limit.
	headerGiveBack = "Junction-Give-Back"
	// headerRevoked is in a request of its own, after grants were revoked in the database.
	headerRevoked = "Junction-Revoked"
	// headerLatest has the latest time to begin the request (frozen.go). A member that gets it says that it
	// begins.
	headerLatest = "Junction-Latest"
	// headerAnswer is in an answer of a client that this process passes on by Deliver.
	headerAnswer = "Junction-Answer"
)

const (
	dialTime   = 3 * time.Second // to connect to a member, TLS handshake included
	copyBuffer = 32 << 10
	askTime    = time.Second // for a member to give back shares of a limit
	// tellTime is for a member to read from the database which grants were revoked.
	tellTime = 5 * time.Second
	// lastAnswers is how long requests to a member that is gone may take. A lost packet of an answer
	// is sent again within it, and refuseTime ends before it.
	lastAnswers = 2 * time.Second
)

// forwarder has what all forwarded requests share.
type forwarder struct {
	client  *http1.Client
	tls     *tls.Config
	buffers sync.Pool // of *[]byte
}

// connections are the connections to one member.
type connections struct {
	group   http1.Group
	stop    context.CancelFunc
	failed  atomic.Pointer[failure] // why the last connection failed; nil after a success
	dialled atomic.Int64            // Unix nanoseconds of the last attempt since failed was set
	tells   atomic.Bool             // it has said of a request that it begins it
	rules   atomic.Pointer[string]  // the digest of the policies that this process has sent it; nil for none
	probing probing
}

// failure is why a member cannot be reached.
type failure struct {
	error
	since time.Time // the first attempt that failed
}

func (m *Member) newConnections(r row) *connections {
	closing, stop := context.WithCancel(context.Background())
	return &connections{stop: stop,
		group: http1.Group{Client: m.forwarder.client, Address: r.address, Closing: closing}}
}

// end ends all requests to the member, which has left or has lost its lease. Nothing is sent to it any
// more. Requests that were sent have lastAnswers to be answered: a member that leaves answers all of
// them, those that it did not handle too.
func (c *connections) end() {
	c.stop()
	time.AfterFunc(lastAnswers, c.group.Abort)
}

// unsent is the error of a connection that could not be made, so that nothing was sent.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// tlsConn is a TLS connection that shows its socket, so that http1 can notice that the other side
// has closed it.
type tlsConn struct {
	*tls.Conn
	raw syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (c tlsConn) SyscallConn() (syscall.RawConn, error) { return c.raw.SyscallConn() }

// dial connects to a member, and checks that it has the key.
func (m *Member) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var d net.Dialer
	plain, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, unsent{err}
	}
	c := tls.Client(plain, m.forwarder.tls)
	if err := c.HandshakeContext(ctx); err != nil {
		plain.Close()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = unanswered{err}
		}
		return nil, unsent{err}
	}
	if raw, ok := plain.(syscall.Conn); ok {
		return tlsConn{c, raw}, nil
	}
	return c, nil
}

// errLost means that the member, or the connection to it, ended before the response began.
var errLost = errors.New("the process that had the request ended before it answered")

// errLength means that the body of a request was not read, although its length is unknown.
var errLength = errors.New("a body of unknown length was not read before it is forwarded")

// Forward implements members.Members.
func (m *Member) Forward(w http.ResponseWriter, r *http.Request, body []byte, to string) error {
	p, err := m.reachable(to)
	if err != nil {
		return err
	}
	outcome, err := judging{m, p}.forward(w, r, body)
	m.counters.forwarded[outcome].Add(1)
	return err
}

// reachable returns another member that a request can be sent to.
func (m *Member) reachable(to string) (*otherMember, error) {
	p := m.living(to)
	switch {
	case m.Self() == "":
		return nil, members.ErrAlone
	case p == nil:
		m.counters.forwarded[gone].Add(1)
		return nil, members.ErrGone
	case p.unreachable() && !p.conns.tryAgain():
		m.counters.forwarded[gone].Add(1)
		return nil, members.ErrUnreachable
	case m.knownFrozen(p):
		m.counters.forwarded[gone].Add(1)
		return nil, members.ErrUnreachable
	}
	return p, nil
}

// unreachable reports whether a member has renewed its lease since connections to it fail: it lives,
// and there is no way to it.
func (p *otherMember) unreachable() bool {
	failed := p.conns.failed.Load()
	return failed != nil && p.renewed.After(failed.since)
}

// tryAgain reports whether it is time to connect again to a member that cannot be reached. One
// request a second tries; the others need not wait for the end of its attempt.
func (c *connections) tryAgain() bool {
	last, now := c.dialled.Load(), time.Now().UnixNano()
	return now-last > int64(time.Second) && c.dialled.CompareAndSwap(last, now)
}

func (m *Member) forward(w http.ResponseWriter, r *http.Request, body []byte, p *otherMember, more ...http1.Field) (
	outcome, error) {
	if body == nil && r.ContentLength < 0 {
		return failed, errLength
	}
	q, fields := m.request(r, body, p.id)
	x := new(http1.Exchange)
	stop := context.AfterFunc(r.Context(), x.Abort)
	defer stop()
	resp, outcome, err := m.exchange(r.Context(), p, x, q, append(fields, more...), body == nil && r.ContentLength > 0)
	if err != nil {
		return outcome, err
	}
	defer resp.Body.Close()
	return m.copyAnswer(w, r, resp, x)
}

// exchange sends a request to a member. once states that the body cannot be sent again. If there is no
// error, the caller must close the body of the response.
func (m *Member) exchange(ctx context.Context, p *otherMember, x *http1.Exchange, q *http.Request,
	fields []http1.Field, once bool) (*http.Response, outcome, error) {
	begun := time.Now()
	b := m.awaitBegin(p, x)
	resp, err := p.conns.group.Do(ctx, x, q, fields)
	if b.end() && ctx.Err() == nil {
		if err == nil {
			resp.Body.Close()
		}
		return nil, gone, members.ErrUnreachable
	}
	if never, ok := errors.AsType[unsent](err); ok && ctx.Err() == nil {
		if p.conns.failed.CompareAndSwap(nil, &failure{never.error, begun}) {
			m.o.Log.Warn("cannot connect to another replica", "address", p.address, "error", never.error)
		}
		_, frozen := errors.AsType[unanswered](err)
		m.noteFrozen(p, frozen, err)
		if frozen || p.unreachable() || once {
			return nil, gone, members.ErrUnreachable
		}
		return nil, gone, members.ErrGone
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, cancelled, ctx.Err()
		}
		return nil, lost, fmt.Errorf("%w: %w", errLost, err)
	}
	if p.conns.failed.Swap(nil) != nil {
		m.read.notify() // for Await
	}
	switch {
	case x.Get(members.HeaderReleased) != "":
		err = members.ErrReleased
	case x.Get(headerRules) == rulesUnknown:
		err = errRules
	case x.Get(headerGone) != "" && once:
		err = members.ErrUnreachable // the body cannot be sent again
	case x.Get(headerGone) != "":
		err = members.ErrGone
	}
	if err != nil {
		resp.Body.Close()
		return nil, gone, err
	}
	return resp, done, nil
}

// Send implements members.Members.
func (m *Member) Send(ctx context.Context, r *http.Request, message string, body []byte, to string) (
	io.ReadCloser, error) {
	p, err := m.reachable(to)
	if err != nil {
		return nil, err
	}
	q, fields := m.request(r, body, p.id)
	fields = append(fields, http1.Field{Name: members.HeaderCall, Value: message})
	x := new(http1.Exchange)
	stop := context.AfterFunc(ctx, x.Abort)
	resp, outcome, err := m.exchange(ctx, p, x, q, fields, false)
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		resp.Body.Close()
		outcome, err = failed, members.ErrRefused
	}
	m.counters.forwarded[outcome].Add(1)
	if err != nil {
		stop()
		return nil, err
	}
	return answerBody{resp.Body, stop}, nil
}

// answerBody is the body of the answer to a message of Send.
type answerBody struct {
	io.ReadCloser
	stop func() bool
}

// Close ends the answer.
func (b answerBody) Close() error {
	b.stop()
	return b.ReadCloser.Close()
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
	return q, append(fields, http1.Field{Name: headerHop, Value: to + " " + r.RemoteAddr},
		http1.Field{Name: headerLatest, Value: m.latest()})
}

// Deliver implements members.Members. A member that has no lease either takes only such requests.
func (m *Member) Deliver(w http.ResponseWriter, r *http.Request, body []byte) error {
	ctx, cancel := context.WithTimeout(r.Context(), tellTime)
	defer cancel()
	r = r.WithContext(ctx)
	for _, p := range *m.others.Load() {
		if m.knownFrozen(p) {
			continue
		}
		outcome, err := m.forward(w, r, body, p, http1.Field{Name: headerAnswer, Value: "1"})
		m.counters.forwarded[outcome].Add(1)
		if err == nil {
			return nil
		}
	}
	return members.ErrUnreachable
}

// askBack asks members to give back their unused shares of a limit, and waits for their answers. A
// member that does not answer keeps its shares.
func (m *Member) askBack(ctx context.Context, digest string, holders []string) {
	var asked []*otherMember
	for _, id := range holders {
		if p := m.living(id); p != nil && p.conns.failed.Load() == nil {
			asked = append(asked, p)
		}
	}
	m.ask(ctx, asked, http1.Field{Name: headerGiveBack, Value: digest}, askTime)
}

// TellRevoked tells the other members that grants were revoked, and waits until they accept none of the
// tokens. It returns the addresses of those that have not answered so: these find out by themselves.
func (m *Member) TellRevoked(ctx context.Context) (missed []string) {
	var others []*otherMember
	for id := range *m.others.Load() {
		if p := m.living(id); p != nil {
			others = append(others, p)
		}
	}
	missed = m.ask(ctx, others, http1.Field{Name: headerRevoked, Value: "1"}, tellTime)
	slices.Sort(missed)
	return missed
}

// ask sends members a request of its own (field), and waits for their answers. It returns the addresses of
// those that have not done as asked within the limit.
func (m *Member) ask(ctx context.Context, others []*otherMember, field http1.Field, limit time.Duration) []string {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var asking sync.WaitGroup
	failed := make([]bool, len(others))
	for i, p := range others {
		asking.Go(func() {
			x := new(http1.Exchange)
			defer context.AfterFunc(ctx, x.Abort)()
			q := &http.Request{Method: http.MethodPost, URL: &url.URL{Path: "/"}, Body: http.NoBody}
			resp, err := p.conns.group.Do(ctx, x, q,
				[]http1.Field{{Name: headerHop, Value: p.id + " 127.0.0.1:1"}, field})
			if failed[i] = err != nil || resp.StatusCode != http.StatusNoContent; err == nil {
				resp.Body.Close()
			}
		})
	}
	asking.Wait()
	var missed []string
	for i, p := range others {
		if failed[i] {
			missed = append(missed, p.address)
		}
	}
	return missed
}

// ofMembers are the header fields that only a member may send. Those of a client are dropped.
var ofMembers = []string{headerHop, headerGiveBack, headerRevoked, headerLatest, headerAnswer,
	headerRules, headerRulesText, members.HeaderCall}

// hopByHop are the header fields that concern one connection (RFC 9110, section 7.6.1). The names that
// a client lists in Connection are not among them: the members together are one server, and the
// owner must see what a single process would see. Otherwise a client could hide the headers of its
// reverse proxy from the owner.
var hopByHop = []string{"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Content-Length"}

// endToEnd returns the fields of a header that do not concern its connection, without headers of this
// connection that the client has made up. Fields with one value are sorted by name: equal requests then
// have equal bytes, and the receiving http1.Server does not parse an equal head again.
func endToEnd(h http.Header) (several http.Header, one []http1.Field) {
	one = make([]http1.Field, 0, len(h)+1)
	for name, values := range h {
		switch {
		case slices.Contains(hopByHop, name) || slices.Contains(ofMembers, name):
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

// copyAnswer copies the response of the owner to w as it arrives.
func (m *Member) copyAnswer(w http.ResponseWriter, r *http.Request, resp *http.Response, x *http1.Exchange) (
	outcome, error) {
	header := w.Header()
	clear(header) // the owner has set all of them
	for name, values := range x.Header() {
		if !slices.Contains(hopByHop, name) || name == "Content-Length" {
			header[name] = values
		}
	}
	out := http.NewResponseController(w)
	w.WriteHeader(resp.StatusCode)
	buffer, _ := m.forwarder.buffers.Get().(*[]byte)
	if buffer == nil {
		buffer = new(make([]byte, copyBuffer))
	}
	defer m.forwarder.buffers.Put(buffer)
	stream := resp.ContentLength < 0
	if stream {
		out.Flush() // the client waits for the head of a stream
	}
	for {
		n, err := resp.Body.Read(*buffer)
		if n > 0 {
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
