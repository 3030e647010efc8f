package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
)

func TestHTTPRedirect(t *testing.T) {
	foreign := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the other server got %s with %v", r.Method, r.Header)
	})
	for _, tt := range []struct {
		status int
		to     string
		want   string // "" is the answer
	}{
		{307, "/other?x=1", ""},
		{308, "other", ""},
		{307, "/loop", "the server redirects SELF/loop to itself"},
		{307, "/mcp", "the server redirects SELF/mcp to itself"},
		{302, "/mcp", "the server redirects SELF/mcp to itself"},
		{307, "/back", "the server redirects SELF/mcp to itself"},
		{301, "/other?secret=canary-1", "the server redirects to SELF/other with a query, which is not shown"},
		{302, "/mcp?secret=canary-1", "the server redirects to SELF/mcp with a query, which is not shown"},
		{302, "/other", "the server redirects to SELF/other; put that into url"},
		{303, "/other", "the server redirects to SELF/other; put that into url"},
		{307, foreign.URL + "/mcp", "the server redirects to " + foreign.URL + "/mcp; put that into url"},
		{302, foreign.URL + "/sign-in?token=canary-x", "the server redirects to " + foreign.URL + "/sign-in, which looks like a page for signing in with a browser"},
		{302, "/login", "the server redirects to SELF/login, which looks like a page for signing in with a browser"},
		{303, "/oauth2/authorize?x=1", "the server redirects to SELF/oauth2/authorize, which looks like a page for signing in with a browser"},
		{302, "/users/sign_in", "the server redirects to SELF/users/sign_in, which looks like a page for signing in with a browser"},
		{302, "/blogin/mcp", "the server redirects to SELF/blogin/mcp; put that into url"},
		{308, "http://user:canary-password@" + foreign.Listener.Addr().String() + "/", "the server redirects to " + foreign.URL + "/; put that into url"},
		{307, "", "the server answered 307 Temporary Redirect"},
		{307, "http://[::1", "the server answered 307 Temporary Redirect"},
		{307, "file:///etc/passwd", "the server answered 307 Temporary Redirect"},
	} {
		t.Run(fmt.Sprint(tt.status, tt.to), func(t *testing.T) {
			var bodies []string
			srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
				text, _ := io.ReadAll(r.Body)
				if r.Header.Get("X-Api-Key") != "canary-k" {
					t.Errorf("got %v, want the headers of the configuration", r.Header)
				}
				switch bodies = append(bodies, string(text)); r.URL.Path {
				case "/back":
					http.Redirect(w, r, "/mcp", tt.status)
				case "/mcp", "/loop":
					w.Header()["Location"] = []string{tt.to}
					w.WriteHeader(tt.status)
				default:
					sayJSON(w, 200, answer7)
				}
			})
			w := mustHTTP(t, HTTPOptions{URL: srv.URL + "/mcp", Headers: map[string]string{"X-Api-Key": "canary-k", "Authorization": "Bearer canary-t"}}, nil)
			_, err := w.Call(short(t), call("7", "tools/call"), nil)
			if got, want := fmt.Sprint(err), strings.Replace(tt.want, "SELF", srv.URL, 1); err != nil && got != want || (err == nil) != (tt.want == "") {
				t.Errorf("got %s, want %q", got, want)
			}
			for _, b := range bodies {
				if b != bodies[0] || b == "" {
					t.Errorf("got bodies %q, want the same each time", bodies)
				}
			}
			if tt.to == "/loop" && len(bodies) != 1+maxRedirects {
				t.Errorf("got %d requests, want %d", len(bodies), 1+maxRedirects)
			}
		})
	}
}

func TestHTTPRedirectToPlain(t *testing.T) {
	plain := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("the credentials went out in clear: %v", r.Header)
	})
	srv := startRemote(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain.URL, http.StatusTemporaryRedirect)
	}, (*httptest.Server).StartTLS)
	w := mustHTTP(t, HTTPOptions{URL: srv.URL, Headers: map[string]string{"Authorization": "Bearer canary-t"}, Pool: &Pool{Dial: dial, http: srv.Client().Transport.(*http.Transport)}}, nil)
	if _, err := w.Call(short(t), call("7", "tools/call"), nil); err == nil || !strings.Contains(err.Error(), plain.URL) {
		t.Errorf("got error %v, want one that names %s", err, plain.URL)
	}
}

func TestSameOrigin(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"http://a/x", "http://A:80/y?z", true},
		{"https://a:443", "https://a", true},
		{"https://a", "http://a", false},
		{"http://a:8080", "http://a", false},
		{"http://a", "http://a.evil", false},
		{"http://a", "http://b@a", true}, // who is asked as is not part of the origin, and not sent
	} {
		a, _ := url.Parse(tt.a)
		b, _ := url.Parse(tt.b)
		if got := sameOrigin(a, b); got != tt.want {
			t.Errorf("sameOrigin(%s, %s) = %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

// TestHTTPReuse guards that an answer leaves its connection fit for the next one, also when the
// stream ends a moment after the answer.
func TestHTTPReuse(t *testing.T) {
	json := func(w http.ResponseWriter, r *http.Request) { sayJSON(w, 200, answer7) }
	events := func(w http.ResponseWriter, r *http.Request) { sayEvents(w, event("", answer7)) }
	late := func(w http.ResponseWriter, r *http.Request) {
		sayEvents(w, event("", answer7))
		runtime.Gosched()
		io.WriteString(w, ": bye\n\n")
		w.(http.Flusher).Flush()
	}
	h2 := func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }
	for _, tt := range []struct {
		name  string
		h     http.HandlerFunc
		start func(*httptest.Server)
		most  int32 // more than 1 where the rest of a stream may come too late on a busy machine
	}{
		{"json", json, (*httptest.Server).Start, 1},
		{"events", events, (*httptest.Server).Start, 10},
		{"events and more", late, (*httptest.Server).Start, 10},
		{"events over TLS", events, (*httptest.Server).StartTLS, 10},
		{"events over HTTP/2", events, h2, 1},
		{"json over HTTP/2", json, h2, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proto := ""
			srv := startRemote(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				proto = r.Proto
				tt.h(w, r)
			}, tt.start)
			// The pool of an https URL would send requests to an http one through http.Transport, which closes a
			// connection if its goroutine that writes has not run for 50 ms after the response.
			pool := NewPool(srv.URL)
			if srv.TLS != nil {
				pool = trustingPool(t)
			}
			w := mustHTTP(t, HTTPOptions{URL: srv.URL, Pool: pool}, nil)
			for range 100 {
				ctx, cancel := context.WithCancel(short(t)) // as callers do, who are done when they have the answer
				_, err := w.Call(ctx, call("7", "tools/call"), nil)
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				// While the rest of a stream is read, another call needs another connection.
				for w.draining.Load() > 0 {
					runtime.Gosched()
				}
			}
			n := srv.conns.Load()
			t.Logf("%d connections for 100 calls, %s", n, proto)
			if n > tt.most {
				t.Errorf("got %d connections for 100 calls, want at most %d", n, tt.most)
			}
			if want := strings.Contains(tt.name, "HTTP/2"); want != (proto == "HTTP/2.0") {
				t.Errorf("got %s", proto)
			}
		})
	}
}

func TestHTTPConcurrent(t *testing.T) {
	srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		m := mustParse(t, r)
		a := `{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{}}`
		if m.ID[len(m.ID)-1]%2 == 0 {
			sayEvents(w, event("", a))
		} else {
			sayJSON(w, 200, a)
		}
	})
	w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 25 {
				id := fmt.Sprint(100*i + j)
				if m, err := w.Call(short(t), call(id, "tools/call"), nil); err != nil || string(m.ID) != id {
					t.Errorf("got %v, %v", m, err)
				}
			}
		})
	}
	wg.Wait()
	if n := srv.conns.Load(); n > 120 {
		t.Errorf("got %d connections for 400 calls of 16 at once", n)
	}
}

func TestHTTPBounded(t *testing.T) {
	zeros := make([]byte, 64<<10)
	note := []byte(event("", `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"`+strings.Repeat("x", 1<<10)+`"}}`))
	events := func(b []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			pour(w, b)
		}
	}
	status := func(n int, media string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", media)
			w.WriteHeader(n)
			pour(w, zeros)
		}
	}
	enough := errors.New("enough")
	for _, tt := range []struct {
		name string
		h    http.HandlerFunc
		want string // the beginning of the error
	}{
		{"1 GB", status(200, "application/json"), "invalid answer: the answer is larger than limits.message of 1 MiB; raise limits.message, or request less"},
		{"1 GB as it said", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(1<<30))
			w.Header().Set("Content-Type", "application/json")
			pour(w, zeros)
		}, "invalid answer: the answer is larger than limits.message of 1 MiB; raise limits.message, or request less"},
		{"an endless event", events([]byte("data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n")), "invalid answer: the answer is larger than limits.message of 1 MiB; raise limits.message, or request less"},
		{"an endless line", events(zeros), "invalid answer: the answer is larger than limits.message of 1 MiB; raise limits.message, or request less"},
		{"endless comments", events([]byte(strings.Repeat(": hello\n\n", 1000))), "enough"},
		{"endless notifications", events(note), "enough"},
		{"an endless failure", status(500, "text/plain"), "the server answered 500 Internal Server Error"},
		{"an endless failure in JSON", status(500, "application/json"), "the server answered 500 Internal Server Error"},
		{"a page", status(200, "text/html"), "the server answered 200 OK with text/html and no message"},
		{"an endless header", func(w http.ResponseWriter, r *http.Request) {
			c, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for err == nil {
				_, err = c.Write(bytes.Repeat([]byte("A: b\r\n"), 1000))
			}
		}, "the connection broke before the answer: the header of the answer is too large"},
		{"an answer that is followed by an endless stream", func(w http.ResponseWriter, r *http.Request) {
			sayEvents(w, event("", answer7))
			pour(w, zeros)
		}, ""},
		{"drops", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, "{")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, "enough"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := newRemote(t, tt.h)
			w := mustHTTP(t, HTTPOptions{URL: srv.URL, MessageLimit: 1 << 20}, nil)
			ctx, cancel := context.WithCancelCause(short(t))
			var heard atomic.Int32
			on := func(*jsonrpc.Message) {
				if heard.Add(1) == 10000 {
					cancel(enough)
				}
			}
			if tt.want == "enough" && !strings.Contains(tt.name, "notif") {
				timer := time.AfterFunc(100*time.Millisecond, func() { cancel(enough) })
				defer timer.Stop()
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := w.Call(ctx, call("7", "tools/call"), on)
			runtime.ReadMemStats(&after)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
				t.Errorf("got error %v, want %s", err, tt.want)
			}
			if tt.want == "enough" && err != enough {
				t.Errorf("got error %v, want the cause of the context itself", err)
			}
			if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 64<<20 {
				t.Errorf("the heap has grown by %d MB", grown>>20)
			}
		})
	}
}

func TestHTTPNotSent(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	tlsServer := startRemote(t, func(w http.ResponseWriter, r *http.Request) {}, (*httptest.Server).StartTLS)
	plain := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		t.Errorf("got %s", r.Method)
	})
	proxied, noName := trustingPool(t), trustingPool(t)
	proxied.http.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(plain.URL) }
	noName.Dial = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}
	}
	reset := func(read bool) *remote {
		return newRemote(t, func(w http.ResponseWriter, r *http.Request) {
			if read {
				io.Copy(io.Discard, r.Body)
			}
			c, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				c.Close()
			}
		})
	}
	for _, tt := range []struct {
		name, url string
		pool      *Pool
		req       *Request
		want      bool
	}{
		{"refused", "http://" + closed.Addr().String(), nil, nil, true},
		{"unknown name", "http://nowhere.invalid", noName, nil, true},
		{"unknown certificate", tlsServer.URL, nil, nil, true},
		{"no TLS", strings.Replace(plain.URL, "http:", "https:", 1), nil, nil, true},
		{"proxy", "https://nowhere.invalid", proxied, nil, true},
		{"no URL", "http://[", nil, nil, true},
		{"bad header", plain.URL, nil, &Request{Message: call("7", "x").Message, Header: []http1.Field{{Name: "X", Value: "a\nb"}}}, true},
		{"closed after the request", reset(true).URL, nil, nil, false},
		{"closed during the request", reset(false).URL, nil, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := mustHTTP(t, HTTPOptions{URL: tt.url, Pool: tt.pool}, nil)
			req := tt.req
			if req == nil {
				req = call("7", "tools/call")
			}
			_, err := w.Call(short(t), req, nil)
			if err == nil || errors.Is(err, ErrNotSent) != tt.want {
				t.Errorf("got error %v; errNotSent: %v, want %v", err, errors.Is(err, ErrNotSent), tt.want)
			}
			if _, isStatus := err.(*StatusError); isStatus {
				t.Errorf("got %v, want no *statusError", err)
			}
			if w.Ended() != (tt.name == "no URL") {
				t.Error("the wire is over after one failed request")
			}
		})
	}
}

// TestHTTPStale guards that a request on a kept connection that the server has closed meanwhile is
// sent again when nothing of it went out, and that it is never sent twice when something did.
func TestHTTPStale(t *testing.T) {
	var posts atomic.Int32
	srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		posts.Add(1)
		sayJSON(w, 200, answer7)
	})
	w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
	calls, failed := int32(0), int32(0)
	for range 20 {
		calls++
		if _, err := w.Call(short(t), call("7", "tools/call"), nil); err != nil {
			failed++
			if errors.Is(err, ErrNotSent) {
				t.Errorf("got %v, want another attempt", err)
			}
		}
		srv.CloseClientConnections()
	}
	t.Logf("%d calls, %d failed on a connection that was closed meanwhile", calls, failed)
	if n := posts.Load(); n > calls {
		t.Errorf("the server got %d requests of %d calls", n, calls)
	}
}

func TestNewPool(t *testing.T) {
	rt := NewPool("https://server").http
	if rt.TLSClientConfig.MinVersion < tls.VersionTLS12 || !rt.DisableCompression || rt.MaxIdleConnsPerHost < 100 || rt.Proxy == nil {
		t.Errorf("got %+v", rt)
	}
}

// bareRemote answers every request with the same bytes and allocates nothing, so that a benchmark
// counts the client's side alone.
func bareRemote(b *testing.B, answer string) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var conns sync.WaitGroup
	response := []byte(answer)
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				buf := make([]byte, 64<<10)
				for n := 0; ; {
					k, err := c.Read(buf[n:])
					if err != nil {
						return
					}
					if n += k; buf[n-1] == '}' { // the requests are small, and end like this
						n = 0
						c.Write(response)
					}
				}
			})
		}
	})
	b.Cleanup(func() {
		l.Close()
		conns.Wait()
	})
	return "http://" + l.Addr().String()
}

// BenchmarkHTTPCall is one call of about 100 bytes each way; the server's side costs time and no
// allocations.
func BenchmarkHTTPCall(b *testing.B) {
	text := `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 20) + `"}]}}`
	json := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	ev := event("", text)
	events := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(ev), ev)
	for _, bb := range []struct {
		name, answer string
		req          *Request
	}{
		{"json", json, call("7", "tools/call")},
		{"json-modern", json, modernCall("7", "tools/call")},
		{"events", events, call("7", "tools/call")},
	} {
		b.Run(bb.name, func(b *testing.B) {
			w := OpenHTTP(HTTPOptions{URL: bareRemote(b, bb.answer)}, nil)
			b.Cleanup(func() { w.Close() })
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.Call(ctx, bb.req, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// thrifty has so much memory for an answer.
type thrifty struct{ left, asked int64 }

func (f *thrifty) Reserve(n int64) error {
	if f.asked += n; f.asked > f.left {
		return errFull
	}
	return nil
}

var errFull = errors.New("there is no memory for it")

// TestBodyNeedsMemory: memory for a body whose length is known is asked for before it is read.
func TestBodyNeedsMemory(t *testing.T) {
	const size = 4 << 20
	for left, want := range map[int64]error{size: nil, size - 1: errFull} {
		f := &thrifty{left: left}
		body := strings.NewReader(strings.Repeat(" ", size))
		o := &origin{limit: 2 * size}
		text, err := o.body(&trip{Response: &http.Response{ContentLength: size, Body: io.NopCloser(body)}, memory: f}, nil)
		if !errors.Is(err, want) || f.asked != size || want != nil && (len(text) > 0 || body.Len() < size) {
			t.Errorf("a body of 4 MiB where there is memory for %d = %d bytes, %v, and asks for %d bytes", left, len(text), err, f.asked)
		}
	}
}
