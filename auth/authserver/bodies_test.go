package authserver

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"junction/auth/authtest"
)

// unfinished is a request whose body begins, and then waits.
type unfinished struct {
	body *io.PipeWriter
	code chan int
}

// end ends the body, and waits for the answer.
func (u *unfinished) end() int {
	u.body.Close()
	return <-u.code
}

// mustBegin sends a request to the token endpoint from an address. It returns when the server reads the
// body, or with the status if it answers before.
func (s *stand) mustBegin(t *testing.T, from string, length int64) (u *unfinished, status int) {
	t.Helper()
	body, write := io.Pipe()
	u = &unfinished{write, make(chan int, 1)}
	began := make(chan struct{})
	go func() {
		if _, err := io.WriteString(write, "x"); err == nil {
			close(began)
		}
	}()
	go func() {
		w := s.send(t, "/oauth/token", from, length, body)
		u.code <- w.Code
		body.Close()
	}()
	t.Cleanup(func() { write.Close() })
	select {
	case <-began:
		return u, 0
	case code := <-u.code:
		return u, code
	}
}

// send sends a form whose body has a length; -1 is unknown.
func (s *stand) send(t *testing.T, path, from string, length int64, body io.Reader) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, body)
	r.ContentLength, r.RemoteAddr = length, "127.0.0.1:1"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Forwarded-For", from)
	s.Server.ServeHTTP(w, r)
	return w
}

// untouched is a body that must not be read.
type untouched struct{ t *testing.T }

func (b untouched) Read([]byte) (int, error) {
	b.t.Error("the body is read")
	return 0, io.EOF
}

// TestUnfinishedBodiesAreLimitedByAddress: one address has so many bytes of unfinished bodies, with a
// Content-Length or without. Beyond, no endpoint reads a large body of that address, and each reads
// small ones, and those of other addresses.
func TestUnfinishedBodiesAreLimitedByAddress(t *testing.T) {
	var log authtest.Text
	s := mustStand(t, func(o *Options) {
		behindProxy(t)(o)
		o.Log = authtest.Log(t, &log)
	})
	s.clock.stop()
	const stranger, other = "198.51.100.7", "203.0.113.1"
	var open []*unfinished
	for i := range nearBodies / maxBody {
		u, code := s.mustBegin(t, stranger, []int64{maxBody, -1}[i%2])
		if code != 0 {
			t.Fatalf("body %d is refused with %d", i, code)
		}
		open = append(open, u)
	}
	var paths []string
	err := chi.Walk(s.routes.(chi.Routes), func(method, path string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method == http.MethodPost && !strings.HasPrefix(path, "/.well-known/") && path != "/oauth/client-metadata.json" {
			paths = append(paths, strings.NewReplacer("{idp}", "sso", "{upstream}", "up", "{id}", "x").Replace(path))
		}
		return nil
	})
	if err != nil || len(paths) < 11 || !slices.Contains(paths, "/oauth/backchannel-logout/sso") {
		t.Fatalf("the paths of forms are %q, %v", paths, err)
	}
	for _, path := range paths {
		for _, length := range []int64{maxBody, smallBody + 1, -1} {
			w := s.send(t, path, stranger, length, untouched{t})
			if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" ||
				w.Header().Get("Connection") != "close" {
				t.Errorf("POST %s with a body of %d bytes: %d %v", path, length, w.Code, w.Header())
			}
		}
		if w := s.send(t, path, stranger, 3, strings.NewReader("a=b")); w.Code == http.StatusTooManyRequests {
			t.Errorf("POST %s with a small body: %d", path, w.Code)
		}
		if w := s.send(t, path, other, maxBody, strings.NewReader("a=b")); w.Code == http.StatusTooManyRequests {
			t.Errorf("POST %s from another address: %d", path, w.Code)
		}
	}
	if code := open[0].end(); code == http.StatusTooManyRequests {
		t.Errorf("a body that was read is answered %d", code)
	}
	u, code := s.mustBegin(t, stranger, maxBody)
	if code != 0 {
		t.Errorf("after one body has ended, the next one is refused with %d", code)
	}
	for _, u := range append(open[1:], u) {
		u.end()
	}
	if text := log.String(); !strings.Contains(text, "too many unfinished ones from one address") ||
		strings.Contains(text, "limits") {
		t.Errorf("the log gives other advice than to trust a proxy:\n%s", text)
	}
	if s.bodies.all != 0 || len(s.bodies.by) != 0 {
		t.Errorf("%d bytes of %d networks count after all requests have ended", s.bodies.all, len(s.bodies.by))
	}
}

// TestUnfinishedBodiesAreLimitedInTotal: a /48 of IPv6 has two shares of a /64, and all addresses
// together have four.
func TestUnfinishedBodiesAreLimitedInTotal(t *testing.T) {
	var b bodies
	enter := func(want limitResult, format string, of int) {
		t.Helper()
		from := netip.MustParseAddr(fmt.Sprintf(format, of))
		if got := b.enter(from, nearBodies); got != want {
			t.Errorf("%s: %d, want %d", from, got, want)
		}
	}
	enter(withinLimit, "2001:db8:7:%d::1", 1)
	enter(overSourceLimit, "2001:db8:7:%d::2", 1)
	enter(withinLimit, "2001:db8:7:%d::1", 2)
	enter(overSourceLimit, "2001:db8:7:%d::1", 3)
	enter(withinLimit, "192.0.2.%d", 1)
	enter(withinLimit, "192.0.2.%d", 2)
	enter(overTotalLimit, "192.0.2.%d", 3)
	b.leave(netip.MustParseAddr("2001:db8:7:2::1"), nearBodies)
	enter(withinLimit, "192.0.2.%d", 3)
}
