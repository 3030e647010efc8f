package replicas

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/proxy/members"
)

// TestBodyOfTheGone: a request whose body was sent as it arrived cannot be sent again. It is not
// reported as one that can.
func TestBodyOfTheGone(t *testing.T) {
	t.Parallel()
	p := mustPair(t, func(http.ResponseWriter, *http.Request) { t.Error("the request was handled") })
	id := p.owner.Self()
	p.owner.lease.Store(&lease{id: "another", until: time.Now().Add(time.Hour)})
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(strings.Repeat("x", 100<<10)))
	if err := p.other.Forward(httptest.NewRecorder(), r, nil, id); errors.Is(err, members.ErrGone) || !errors.Is(err, members.ErrUnreachable) {
		t.Errorf("Forward = %v, want %v", err, members.ErrUnreachable)
	}
}

// TestBodyOfUnknownLength: Forward reads none, because no budget knows its size.
func TestBodyOfUnknownLength(t *testing.T) {
	t.Parallel()
	p := mustPair(t, func(http.ResponseWriter, *http.Request) { t.Error("the request was handled") })
	body := strings.NewReader("body")
	r := httptest.NewRequest(http.MethodPost, "/mcp", io.LimitReader(body, 4))
	r.ContentLength = -1
	if err := p.other.Forward(httptest.NewRecorder(), r, nil, p.owner.Self()); !errors.Is(err, errLength) || body.Len() != 4 {
		t.Errorf("Forward = %v, and %d of 4 bytes are not read; want %v, and all", err, body.Len(), errLength)
	}
}

// TestTimeLimits: the listener for other members has the limits of the listener for clients, for
// strangers who connect and send nothing, and for members that do not read. Its header has room for
// one more field.
func TestTimeLimits(t *testing.T) {
	t.Parallel()
	o := Options{ReadTimeout: time.Second, WriteTimeout: 2 * time.Second, IdleTimeout: 3 * time.Second, MaxHeader: 10 << 10,
		Log: authtest.Log(t)}
	s := (&Member{o: o}).server(http.NotFoundHandler(), func(net.Listener) context.Context { return t.Context() }).HTTP
	got := []time.Duration{s.ReadTimeout, s.WriteTimeout, s.IdleTimeout}
	if want := []time.Duration{o.ReadTimeout, o.WriteTimeout, o.IdleTimeout}; !slices.Equal(got, want) || s.MaxHeaderBytes <= o.MaxHeader {
		t.Errorf("the limits are %v, and %d bytes of a header; want %v, and more than %d", got, s.MaxHeaderBytes, want, o.MaxHeader)
	}
	if !members.Forwarded(s.BaseContext(nil)) {
		t.Error("a request of another member does not count as forwarded")
	}
}

// TestReceive: a member handles a request only under its own ID, with the address of a client, and
// until Drain.
func TestReceive(t *testing.T) {
	t.Parallel()
	p := mustPair(t, nil)
	handled := ""
	receive := func(hop string) int {
		r, w := httptest.NewRequest(http.MethodGet, "/mcp", nil), httptest.NewRecorder()
		r.Header.Set(headerHop, hop)
		p.owner.receive(w, r, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { handled += r.RemoteAddr + " " }))
		return w.Code
	}
	id := p.owner.Self()
	want := func(hop string, code int) {
		t.Helper()
		if got := receive(hop); got != code {
			t.Errorf("a request with %q is answered %d, want %d", hop, got, code)
		}
	}
	want(id+" 203.0.113.9:1", http.StatusOK)
	want(id+" somewhere", http.StatusBadRequest)
	want(id, http.StatusMisdirectedRequest)
	want("another 203.0.113.9:1", http.StatusMisdirectedRequest)
	over, end := context.WithCancel(t.Context())
	end()
	p.owner.Drain(over)
	want(id+" 203.0.113.9:1", http.StatusMisdirectedRequest)
	p.other.lease.Store(nil)
	p.owner = p.other
	want(" 203.0.113.9:1", http.StatusMisdirectedRequest)
	if handled != "203.0.113.9:1 " {
		t.Errorf("handled are the requests of %q", handled)
	}
}

// TestHopByHop: the fixed fields of one connection are not for the next one. Those that a client lists in
// Connection are, because a single process looks at them, too.
func TestHopByHop(t *testing.T) {
	t.Parallel()
	several, one := endToEnd(http.Header{"Te": {"a"}, "Upgrade": {"a"}, "Proxy-Authorization": {"a"}, "Transfer-Encoding": {"a", "b"},
		"Connection": {"close", "x-one, X-Two"}, "X-One": {"a"}, "X-Two": {"a", "b"}, headerHop: {"a b"}, "X-Three": {"a"}})
	if len(several) != 1 || len(several["X-Two"]) != 2 || len(one) != 2 || one[0].Name != "X-One" ||
		one[1].Name != "X-Three" {
		t.Errorf("the next connection gets %v and %v", several, one)
	}
	if _, one = endToEnd(http.Header{headerHop: {"a"}}); len(one) != 0 {
		t.Errorf("a client's own %s is passed", headerHop)
	}
}

// TestPeerWithoutLease: a member whose lease has ended gets no requests, also before the table says
// so.
func TestPeerWithoutLease(t *testing.T) {
	t.Parallel()
	m := &Member{}
	m.others.Store(&map[string]*otherMember{"ended": {until: time.Now().Add(-time.Second), conns: &connections{}},
		"lives": {until: time.Now().Add(time.Hour), conns: &connections{}}})
	if m.living("ended") != nil || m.Alive("ended") || m.living("lives") == nil || !m.Alive("lives") {
		t.Errorf("alive are %t and %t", m.Alive("ended"), m.Alive("lives"))
	}
}

// TestRevokedIsToldToEachMember: a member tells the others that grants were revoked, and names those that do
// not find out. A client cannot send such a message.
func TestRevokedIsToldToEachMember(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	asked := make(chan string, 10)
	join := func(name string, err error) *running {
		o := w.options()
		o.FindRevoked = func(context.Context) error { asked <- name; return err }
		m := w.mustStart(o, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- "the handler of " + name }))
		w.until("the member has joined", func() bool { return m.Self() != "" })
		return m
	}
	a, b := join("a", nil), join("b", nil)
	c := join("c", errors.New("the database does not answer"))
	for _, m := range []*running{a, b, c} {
		w.until("all know each other", func() bool { return len(m.Members()) == 3 })
	}
	told := func() (names []string) {
		for len(asked) > 0 {
			names = append(names, <-asked)
		}
		slices.Sort(names)
		return names
	}
	if missed := a.TellRevoked(t.Context()); !slices.Equal(missed, []string{c.address}) {
		t.Errorf("missed are %q, want %s", missed, c.address)
	}
	if names := told(); !slices.Equal(names, []string{"b", "c"}) {
		t.Errorf("told are %q", names)
	}
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("{}"))
	r.Header.Set(headerRevoked, "1")
	if err := a.Forward(httptest.NewRecorder(), r, []byte("{}"), b.Self()); err != nil {
		t.Fatal(err)
	}
	if names := told(); !slices.Equal(names, []string{"the handler of b"}) {
		t.Errorf("a request of a client with %s reaches %q", headerRevoked, names)
	}
}
