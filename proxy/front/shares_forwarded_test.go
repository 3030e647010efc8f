package front

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/members"
	"junction/upstream/client"
)

// slowMembers has every session at another member, which reads a request, and answers when the gate
// opens.
type slowMembers struct {
	elsewhereMembers
	gate chan struct{}
	got  chan int // the bytes of each body
}

// Forward implements members.Members.
func (m slowMembers) Forward(w http.ResponseWriter, r *http.Request, body []byte, _ string) error {
	if body == nil && r.Body != nil {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return err
		}
		m.got <- int(n)
	} else {
		m.got <- len(body)
	}
	<-m.gate
	_, err := w.Write([]byte(`{"result":{}}`))
	return err
}

// forwarding is a town whose sessions another member has.
func newForwarding(t *testing.T, limits proxy.Limits) (*town, slowMembers) {
	m := slowMembers{gate: make(chan struct{}), got: make(chan int, 1000)}
	return newTownWith(t, Options{Log: authtest.Log(t), Limits: limits, Members: m}, 10, nil, nil), m
}

// moved connects a client of the legacy era, and has another member get its session.
func (w *town) moved(who string) *visitor {
	v := w.visitor(client.EraLegacy, who)
	w.sessions.mu.Lock()
	defer w.sessions.mu.Unlock()
	w.sessions.drop(w.sessions.byID[v.header.Get("Mcp-Session-Id")])
	return v
}

// sendBody sends a body in a session, and says how long it is if length is not negative.
func (v *visitor) sendBody(body io.Reader, length int64) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(v.t.Context(), http.MethodPost, "http://127.0.0.1/mcp", body)
	r.ContentLength, r.Header, r.RemoteAddr = length, v.header.Clone(), "127.0.0.1:1000"
	a := httptest.NewRecorder()
	v.ServeHTTP(a, r)
	return a
}

// TestForwardedBodiesAreShared: a principal sends bodies in sessions of another member. What this
// member keeps of them counts for the principal, before it is read, and another principal gets its
// own share.
func TestForwardedBodiesAreShared(t *testing.T) {
	const mib = 1 << 20
	for name, test := range map[string]struct {
		length   int64 // that the request names
		arrives  int   // of the body; the rest never does
		requests int
		most     int // in progress
		held     int64
	}{
		"of unknown length":            {-1, mib - 1000, 50, 8, 8 * mib},
		"of unknown length, the start": {-1, mib / 2, 50, 16, 8 * mib},
		"small":                        {10_000, 9000, 900, 838, 838 * 10_001},
		"large":                        {mib, mib / 2, 300, 8, 8 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, m := newForwarding(t, proxy.Limits{Body: 2 * mib, Bodies: 16 * mib})
				hog, other := w.moved("user0"), w.moved("user1")
				gone := make(chan struct{})
				now, later := several(test.requests, func() *httptest.ResponseRecorder {
					return hog.sendBody(&stalled{test.arrives, gone}, test.length)
				})
				for _, a := range now {
					refused(t, a, http.StatusTooManyRequests, "limits.bodies")
				}
				used := w.Used()
				if inProgress := test.requests - len(now); inProgress > test.most || inProgress == 0 ||
					used[budget.Bytes] > 8*mib || used[budget.Requests] != int64(inProgress) ||
					used[budget.Bytes] > test.held || used[budget.Bytes] < test.held*7/8 {
					t.Errorf("%d of %d bodies are in progress, and %d bytes are in use, for %d requests; want at most %d, and about %d bytes",
						inProgress, test.requests, used[budget.Bytes], used[budget.Requests], test.most, test.held)
				}
				close(m.gate)
				body := `{"jsonrpc":"2.0","id":1,"method":"ping"}` + strings.Repeat(" ", mib)
				succeeded(t, "the body of another", other.sendBody(strings.NewReader(body), -1))
				if n := <-m.got; n != len(body) {
					t.Errorf("the other member got %d bytes of %d", n, len(body))
				}
				close(gone)
				later()
				w.unused()
			})
		})
	}
}

// TestForwardedBodyBeyondTheLimit: this member reads no more of a body than limits.body, also for
// another one, and answers as the other one would.
func TestForwardedBodyBeyondTheLimit(t *testing.T) {
	for _, length := range []int64{-1, 2<<20 + 1} {
		w, m := newForwarding(t, proxy.Limits{Body: 2 << 20})
		read := &counted32{}
		a := w.moved("user0").sendBody(read, length)
		if a.Code != http.StatusRequestEntityTooLarge || !strings.Contains(a.Body.String(), "limits.body") || read.n > 2<<20+1 || len(m.got) != 0 {
			t.Errorf("a body of %d bytes is answered %d %s after %d bytes were read", length, a.Code, a.Body, read.n)
		}
	}
}

// TestForwardedStreamsHaveNoBody: the body of a GET means nothing and counts for nobody, so it is not
// passed on.
func TestForwardedStreamsHaveNoBody(t *testing.T) {
	for _, length := range []int64{-1, 1 << 30} {
		w, m := newForwarding(t, proxy.Limits{})
		v, read := w.moved("user0"), &counted32{}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/mcp", io.LimitReader(read, 1<<30))
		r.ContentLength, r.Header, r.RemoteAddr = length, v.header.Clone(), "127.0.0.1:1000"
		r.Header.Set("Accept", "text/event-stream")
		close(m.gate)
		a := httptest.NewRecorder()
		if v.ServeHTTP(a, r); a.Code != http.StatusOK || read.n > 0 || <-m.got > 0 {
			t.Errorf("a GET with a body of %d bytes is answered %d after %d bytes were read", length, a.Code, read.n)
		}
	}
}

// counted32 is an endless body that counts what is read.
type counted32 struct{ n int }

func (c *counted32) Read(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

// TestForwardedRequestsAndStreams: what another member answers counts for its principal here, too:
// requests as requests, and streams as streams.
func TestForwardedRequestsAndStreams(t *testing.T) {
	for limit, request := range map[string]func(*visitor) *httptest.ResponseRecorder{
		"limits.requests": func(v *visitor) *httptest.ResponseRecorder { return v.call(v.t.Context(), 1) },
		"limits.streams":  func(v *visitor) *httptest.ResponseRecorder { return v.listen(v.t.Context()) },
	} {
		synctest.Test(t, func(t *testing.T) {
			w, m := newForwarding(t, proxy.Limits{Requests: 8, Streams: 8})
			hog, other := w.moved("user0"), w.moved("user1")
			hog.t, other.t = t, t
			now, later := several(10, func() *httptest.ResponseRecorder { return request(hog) })
			if len(now) != 6 {
				t.Errorf("%d of 10 are in progress with %s: 8, want half of it", 10-len(now), limit)
			}
			for _, a := range now {
				refused(t, a, http.StatusTooManyRequests, limit)
			}
			close(m.gate)
			if a := request(other); a.Code != http.StatusOK {
				t.Errorf("that of another principal is answered %d %s", a.Code, a.Body)
			}
			later()
			w.unused()
		})
	}
}

// TestForwardedReturnsAreShared: a modern client returns to calls of another member with large
// bodies. They count for its principal until the other member has answered.
func TestForwardedReturnsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, m := newForwarding(t, proxy.Limits{Body: 1 << 20, Bodies: 16 << 20})
		hog, other := w.visitor(client.EraModern, "user0"), w.visitor(client.EraModern, "user1")
		st := fmt.Appendf(nil, `{"k":"parked","m":"other","w":"key:user0","e":%d}`, time.Now().Add(time.Hour).Unix())
		params := fmt.Sprintf(`"name":"up__tool1","arguments":{},"requestState":%q,"pad":%q`, w.key.Box("state").Seal(st), strings.Repeat("x", 1<<19))
		now, later := several(50, func() *httptest.ResponseRecorder { return hog.ask(t.Context(), "tools/call", params) })
		for _, a := range now {
			refused(t, a, http.StatusTooManyRequests, "limits.bodies")
		}
		if used := w.Used()[budget.Bytes]; used > 8<<20 || used < 7<<20 || len(m.got) != 50-len(now) || len(m.got) > 15 {
			t.Errorf("%d bytes are in use for %d of 50 bodies", used, len(m.got))
		}
		succeeded(t, "a call of another", other.call(t.Context(), 1))
		close(m.gate)
		for _, a := range later() {
			succeeded(t, "a return", a)
		}
		w.unused()
	})
}

// TestReceivedBodiesAreShared: bodies that other members forward to this one count for their
// principal as those of its own clients, before they are read.
func TestReceivedBodiesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, proxy.Limits{Body: 1 << 20, Bodies: 16 << 20}, 10, nil, nil)
		hog, other := w.visitor(client.EraLegacy, "user0"), w.visitor(client.EraLegacy, "user1")
		gone := make(chan struct{})
		now, later := several(50, func() *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(members.WithForwarded(t.Context()), http.MethodPost, "http://127.0.0.1/mcp",
				&stalled{1 << 19, gone})
			r.ContentLength, r.Header = 1<<20, hog.header.Clone()
			a := httptest.NewRecorder()
			w.ServeHTTP(a, r)
			return a
		})
		for _, a := range now {
			refused(t, a, http.StatusTooManyRequests, "limits.bodies")
		}
		if used := w.Used()[budget.Bytes]; used > 8<<20 || used < 7<<20 || len(now) < 40 {
			t.Errorf("%d bytes are in use for %d of 50 bodies", used, 50-len(now))
		}
		succeeded(t, "a call of another", other.call(context.Background(), 1))
		close(gone)
		later()
		w.unused()
	})
}
