package replicas

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"junction/proxy/members"
	"junction/upstream/http1"
	"junction/upstream/pace"
)

// received counts the requests of other members in progress.
type received struct {
	mu     sync.Mutex
	n      int
	fewer  chan struct{} // 1-buffered: n has become 0
	ending chan struct{} // closed when n is 0; nil unless Drain was called
}

// begin counts a request. It returns false after Drain. If it returns true, the caller must call
// end.
func (q *received) begin() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ending != nil {
		return false
	}
	q.n++
	return true
}

func (q *received) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n--; q.n > 0 {
		return
	}
	pace.Wake(q.fewer)
	if q.ending != nil {
		close(q.ending)
	}
}

// AwaitIdle waits for a moment without a request of another member in progress, for at most as long
// as ctx. It reports whether there was one. Requests are answered all the while: the answers of
// users must reach the calls that AwaitIdle waits for. It must not be called concurrently.
func (m *Member) AwaitIdle(ctx context.Context) bool {
	q := &m.received
	for {
		q.mu.Lock()
		n := q.n
		q.mu.Unlock()
		if n == 0 {
			return true
		}
		select {
		case <-q.fewer:
		case <-ctx.Done():
			return false
		}
	}
}

// Drain refuses new requests of other members, so that these look for another owner. It waits until
// the requests in progress have ended, at most until ctx ends. Call it when the calls of the sessions have
// ended (AwaitIdle), or must end now.
func (m *Member) Drain(ctx context.Context) {
	q := &m.received
	q.mu.Lock()
	if q.ending = make(chan struct{}); q.n == 0 {
		close(q.ending)
	}
	q.mu.Unlock()
	select {
	case <-q.ending:
	case <-ctx.Done():
	}
}

const (
	// refuseTime is how long this process answers "not handled" to requests after it has left. If
	// it closed its connections at once, another member could not know whether a request that it
	// has just sent was handled. On a loaded machine, others learn late that it has left.
	refuseTime = time.Second
	// shutdownTime limits the writing of responses after that.
	shutdownTime = time.Second
)

// Serve answers the requests that other members forward, by handler, until ctx ends. base is
// front.Server.BaseContext.
func (m *Member) Serve(ctx context.Context, handler http.Handler, base func(net.Listener) context.Context) error {
	s := m.server(handler, base)
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(tls.NewListener(m.o.Listener, m.identity.config())) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve %s: %w", m.o.Listener.Addr(), err)
	case <-ctx.Done():
	}
	refusing := time.NewTimer(refuseTime)
	defer refusing.Stop()
	select {
	case <-ended: // no connection is left to refuse
	case <-refusing.C:
		defer func() { <-ended }()
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if s.Shutdown(limit) != nil {
		s.Close()
	}
	return nil
}

// server returns the server for Serve. Its timeouts also end connections of strangers, who may connect
// without the key, and then send nothing.
func (m *Member) server(handler http.Handler, base func(net.Listener) context.Context) *http1.Server {
	return &http1.Server{HTTP: &http.Server{
		Handler:     http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.receive(w, r, handler) }),
		BaseContext: func(l net.Listener) context.Context { return members.WithForwarded(base(l)) },
		ReadTimeout: m.o.ReadTimeout, WriteTimeout: m.o.WriteTimeout, IdleTimeout: m.o.IdleTimeout,
		MaxHeaderBytes: m.o.MaxHeader + 1<<10,
		ErrorLog:       slog.NewLogLogger(m.o.Log.Handler(), slog.LevelDebug),
	}}
}

// receive answers a request of another member.
func (m *Member) receive(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	to, client, ok := strings.Cut(r.Header.Get(headerHop), " ")
	self, latest := m.Self(), r.Header.Get(headerLatest)
	if self == "" && r.Header.Get(headerAnswer) != "" {
		self = m.Last()
	}
	if !ok || to != self || to == "" || latest != "" && m.tooLate(latest) || !m.received.begin() {
		w.Header().Set(headerGone, m.process)
		if m.Self() != "" {
			w.Header().Set(headerLease, "1")
		}
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	defer m.received.end()
	if digest := r.Header.Get(headerGiveBack); digest != "" {
		m.giveBack(r.Context(), digest)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if r.Header.Get(headerRevoked) != "" {
		code := http.StatusNoContent
		if err := m.o.FindRevoked(r.Context()); err != nil {
			m.o.Log.Debug("cannot find out which grants have ended", "error", err)
			code = http.StatusServiceUnavailable
		}
		w.WriteHeader(code)
		return
	}
	if _, err := netip.ParseAddrPort(client); err != nil {
		http.Error(w, "the header "+headerHop+" has no address of a client", http.StatusBadRequest)
		return
	}
	if r.Header.Get(headerRulesText) != "" {
		if err := m.o.Rules.receive(w, r); err != nil {
			m.o.Log.Warn("this process cannot judge by the policies of another replica", "error", err)
		}
		return
	}
	if r = m.o.Rules.mark(w, r); r == nil {
		return
	}
	m.counters.received.Add(1)
	r.RemoteAddr = client
	if latest != "" {
		begin(w, r)
	}
	handler.ServeHTTP(w, r)
}

// errAddress means that the advertised address leads to another process.
var errAddress = errors.New("replicas.advertise is not the address of this process")

// reachesSelf connects to the advertised address. It returns an error unless this process answers
// there.
func (m *Member) reachesSelf(ctx context.Context) error {
	const remedy = "set replicas.advertise to the address by which the other processes reach this one's replicas.listen"
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+m.address+"/", nil)
	if err != nil {
		return err
	}
	client := &http1.Client{Dial: m.dial}
	defer client.CloseIdleConnections()
	resp, err := client.RoundTrip(r)
	if err != nil {
		return fmt.Errorf("%w: this process cannot connect to its own address (%s): %w; %s", errRefused, m.address,
			err, remedy)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if name := resp.Header.Get(headerGone); name != m.process {
		return fmt.Errorf("%w: %w: another process answers at %s; %s", errRefused, errAddress, m.address, remedy)
	}
	return nil
}
