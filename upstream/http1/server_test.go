package http1

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// server is what the tests start: a Server, or the http.Server that it is measured by.
type server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close() error
}

// run runs f in a bubble with each server. counted is how many connections ours gave away, and 0
// for an http.Server.
func run(t *testing.T, handler http.HandlerFunc, f func(t *testing.T, l *pipes, s server)) {
	for _, kind := range []string{"net/http", "plain"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &http.Server{Handler: handler, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
				var s server = h
				if kind == "plain" {
					s = &Server{HTTP: h}
				} else {
					h.Handler = lastIfChunked(handler) // the one difference that Server makes
				}
				l := newPipes()
				done := make(chan error, 1)
				go func() { done <- s.Serve(l) }()
				defer func() {
					s.Close()
					if err := <-done; err != http.ErrServerClosed {
						t.Errorf("Serve = %v", err)
					}
				}()
				f(t, l, s)
			})
		})
	}
}

// pipes is a listener without a network, whose connections belong to the bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

// client is the other end of a connection. What it sends it sends in the background, since a pipe
// holds nothing.
type client struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func (l *pipes) dial(t *testing.T) *client {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
	case <-l.closed:
		theirs.Close()
	}
	t.Cleanup(func() { ours.Close() })
	return &client{Conn: ours, t: t, r: bufio.NewReader(ours)}
}

func (c *client) send(parts ...string) {
	go func() {
		for _, p := range parts {
			if _, err := io.WriteString(c.Conn, p); err != nil {
				return
			}
		}
	}()
}

// answer is a response as the client reads it. It is compared whole.
type answer struct {
	Status int
	Header http.Header
	Body   string
	Close  bool
	Err    string
}

// read reads one answer.
func (c *client) read() answer {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return answer{Err: "no answer"}
	}
	b, err := io.ReadAll(resp.Body)
	if d := resp.Header.Get("Date"); d == time.Now().UTC().Format(http.TimeFormat) {
		resp.Header.Set("Date", "now")
	}
	if err == nil && len(b) > 0 { // and by what it was framed is no matter
		resp.Header.Del("Content-Length")
	}
	a := answer{Status: resp.StatusCode, Header: resp.Header, Body: string(b), Close: resp.Close}
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

// ended reports whether the server has closed the connection, or does so by itself soon.
func (c *client) ended() bool {
	c.SetReadDeadline(time.Now().Add(3 * time.Second))
	n, err := c.r.Read(make([]byte, 1))
	return n == 0 && err == io.EOF
}

func post(path, body string, header ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\n\r\n%s", path, strings.Join(append(header, ""), "\r\n"), len(body), body)
}

// answers answers in the ways that handlers do, as the path says; the body comes back.
func answers(w http.ResponseWriter, r *http.Request) {
	rc, h := http.NewResponseController(w), w.Header()
	switch r.URL.Path {
	case "/unread":
		io.WriteString(w, "not wanted")
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch r.URL.Path {
	case "/panic":
		panic("on purpose")
	case "/abort":
		io.WriteString(w, "never sent")
		panic(http.ErrAbortHandler)
	case "/echo":
		w.Write(body)
	case "/json":
		h["Content-Type"] = []string{"application/json"}
		w.Write(body)
	case "/length":
		h.Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(http.StatusCreated)
		w.Write(body[:len(body)/2])
		w.Write(body[len(body)/2:])
	case "/short":
		h.Set("Content-Length", strconv.Itoa(len(body)+1))
		w.Write(body)
	case "/long":
		h.Set("Content-Length", "1")
		w.Write(body[:1])
		if _, err := w.Write(body[1:]); err != http.ErrContentLength {
			panic(err)
		}
	case "/stream":
		h.Set("Content-Type", "text/event-stream")
		rc.Flush()
		for i := range body {
			w.Write(body[i : i+1])
			rc.Flush()
		}
		rc.Flush()
	case "/parts":
		for len(body) > 0 {
			n := min(len(body), 3000)
			w.Write(body[:n])
			body = body[n:]
		}
	case "/nothing":
	case "/accepted":
		w.WriteHeader(http.StatusAccepted)
		w.WriteHeader(http.StatusOK) // too late
	case "/204":
		w.WriteHeader(http.StatusNoContent)
		if _, err := io.WriteString(w, "x"); err != http.ErrBodyNotAllowed {
			panic(err)
		}
	case "/coded":
		h.Set("Content-Type", "text/plain")
		h.Set("Transfer-Encoding", "chunked")
		w.Write(body)
	case "/gzip":
		h.Set("Content-Encoding", "gzip")
		w.Write(body)
	case "/flush204", "/flush304":
		status, _ := strconv.Atoi(r.URL.Path[len("/flush"):])
		w.WriteHeader(status)
		rc.Flush()
		w.Write(body)
		rc.Flush()
	case "/304":
		h.Set("Content-Type", "text/plain")
		h.Set("Content-Length", "10")
		h.Set("Etag", `"1"`)
		w.WriteHeader(http.StatusNotModified)
	case "/0":
		w.WriteHeader(0)
		w.Write(body)
	case "/late":
		w.WriteHeader(http.StatusAccepted)
		h.Set("Content-Type", "text/late")
		h.Set("Set-Cookie", "late=1")
		w.Write(body)
	case "/later":
		h.Set("Content-Type", "text/early")
		h.Set("Content-Length", strconv.Itoa(len(body)))
		w.WriteHeader(http.StatusAccepted)
		h.Set("Content-Type", "text/late")
		h.Set("Content-Length", "1")
		h.Set("Connection", "close")
		h.Set("Set-Cookie", "late=1")
		w.Write(body)
	case "/close":
		h.Set("Connection", "close")
		io.WriteString(w, "bye")
	case "/header":
		h["B"], h["A"], h["Bad name"] = []string{"2", " 3 "}, []string{"a\r\nSet-Cookie: b"}, []string{"x"}
		h.Set("Date", "mine")
		h.Set("Content-Length", "many")
		io.WriteString(w, "<html>")
	case "/request":
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		of, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
		fmt.Fprintln(w, r.Method, r.URL, r.RequestURI, r.Proto, r.ProtoMajor, r.ProtoMinor, r.Header, r.Host, r.ContentLength, r.TransferEncoding, r.Close, r.Form, r.Trailer, r.RemoteAddr, r.TLS, r.Pattern, local, of != nil, r.Context().Err())
	default:
		http.NotFound(w, r)
	}
}

// told sends the parts and returns all that comes back.
func (c *client) told(parts []string) string {
	defer c.Close()
	c.send(parts...)
	var all []answer
	for len(all) < 50 {
		c.SetReadDeadline(time.Now().Add(3 * time.Second))
		a := c.read()
		all = append(all, a)
		if a.Err != "" {
			break
		}
	}
	return fmt.Sprintf("%+v, ended: %v", all, c.ended())
}

// FuzzConversation: whatever arrives, in whatever parts, it has the answers that an http.Server
// gives.
func FuzzConversation(f *testing.F) {
	for _, text := range heads {
		wire, _ := head1(text)
		f.Add([]byte(wire), 10)
		f.Add([]byte(post("/echo", "one")+wire+post("/json", "two")), 100)
	}
	for _, path := range []string{"/length", "/short", "/long", "/stream", "/parts", "/nothing", "/204", "/0", "/later", "/close", "/header", "/request", "/abort"} {
		f.Add([]byte(post(path, "xxxxxxxxxx")+"GET /request HTTP/1.1\r\nHost: a\r\n\r\n"), 60)
	}
	f.Fuzz(func(t *testing.T, wire []byte, cut int) {
		if bytes.Contains(wire, []byte("/unread")) {
			return // net/http reads the rest of the body before it answers
		}
		cut = max(0, min(cut, len(wire)))
		want := ""
		run(t, answers, func(t *testing.T, l *pipes, s server) {
			got := l.dial(t).told([]string{string(wire[:cut]), string(wire[cut:])})
			if want == "" {
				want = got
			} else if got != want {
				t.Errorf("%q and %q:\ngot  %s\nwant %s", wire[:cut], wire[cut:], squeeze(got), squeeze(want))
			}
		})
	})
}

// TestAnswersAreThoseOfNetHTTP: whatever a client sends, and however a handler answers, the client
// cannot tell the two servers apart.
func TestAnswersAreThoseOfNetHTTP(t *testing.T) {
	stories := map[string][]string{} // what is sent, in parts that arrive one after the other
	for _, path := range []string{"/echo", "/json", "/length", "/short", "/long", "/stream", "/parts", "/nothing", "/accepted", "/204", "/304", "/coded", "/gzip", "/flush204", "/flush304", "/0", "/late", "/later", "/close", "/header", "/request", "/unread", "/absent"} {
		for _, n := range []int{1, 100, 4095, 4096, 4097, 10_000, 300_000} {
			if path == "/stream" && n > 5000 {
				continue
			}
			stories[fmt.Sprint(path, " ", n)] = []string{post(path, strings.Repeat("x", n)), post("/echo", "next")}
		}
		stories[path+" without a body"] = []string{"GET /request HTTP/1.1\r\nHost: a\r\n\r\n", post("/nothing", ""), "DELETE /request HTTP/1.1\r\nHost: a\r\n\r\n"}
	}
	three := post("/echo", "one") + post("/json", strings.Repeat("two", 3000)) + post("/echo", "three")
	stories["three at once"] = []string{three}
	stories["many at once"] = []string{strings.Repeat(post("/echo", "x", "X: "+strings.Repeat("y", 1500)), 40)}
	for _, first := range []string{post("/echo", "x"), "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"} {
		for _, between := range []string{"\r\n", "\n", "\r\n\r\n", "\r\n\r\n\r\n", " \r\n", "\r\r\r"} {
			name := fmt.Sprintf("%.4s and %q ", first, between)
			stories[name+"at once"] = []string{first + between + post("/echo", "next")}
			stories[name+"in parts"] = append(append([]string{first}, strings.Split(between, "")...), post("/echo", "next"))
		}
	}
	stories["a line that is none, and no end"] = []string{"POST /echo HTTP/1.1\r\nHost: a\r\nX\r\n"}
	stories["a request line that is none, and no end"] = []string{post("/echo", "x"), "POST /echo HTTP/1.1 \r\n"}
	stories["byte by byte"] = strings.Split(post("/echo", "one", "X: y")+post("/json", "two")+"GET /request HTTP/1.1\r\nHost: a\r\n\r\n", "")
	stories["a large header"] = []string{post("/request", "one", "X: "+strings.Repeat("y", 9000)), post("/echo", "two")}
	stories["a larger header"] = []string{post("/request", "one", "X: "+strings.Repeat("y", 20_000)), post("/echo", "two")}
	stories["too large a header"] = []string{post("/request", "one", "X: "+strings.Repeat("y", 2<<20)), post("/echo", "two")}
	stories["the same head, another body"] = []string{post("/echo", "one"), post("/echo", "two"), post("/echo", "three"), post("/echo", "three")}
	stories["a panic"] = []string{post("/panic", "x"), post("/echo", "two")}
	stories["an abort"] = []string{post("/abort", "x"), post("/echo", "two")}
	for i, text := range heads {
		wire, _ := head1(text)
		stories[fmt.Sprintf("head %02d", i)] = []string{wire}
		stories[fmt.Sprintf("head %02d after others", i)] = []string{post("/echo", "one") + wire, post("/echo", "next")}
		stories[fmt.Sprintf("head %02d in parts", i)] = append([]string{post("/echo", "one")}, strings.SplitAfter(wire, "\n")...)
	}
	var want map[string]string
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		got := map[string]string{}
		for name, parts := range stories {
			got[name] = l.dial(t).told(parts)
		}
		if want == nil {
			want = got
			return
		}
		for name := range stories {
			if got[name] != want[name] {
				t.Errorf("%s:\ngot  %s\nwant %s", name, squeeze(got[name]), squeeze(want[name]))
			}
		}
	})
}

// squeeze shortens runs of a byte.
func squeeze(s string) string {
	for n := 8; n >= 1; n-- {
		s = strings.ReplaceAll(s, strings.Repeat("x", 1<<n), "x…")
	}
	for strings.Contains(s, "x…x") {
		s = strings.ReplaceAll(s, "x…x", "x")
	}
	return s
}

// TestNextRequestWhileOneIsAnswered: what arrives during a request that takes long is the beginning
// of the next one.
func TestNextRequestWhileOneIsAnswered(t *testing.T) {
	slow := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			io.Copy(io.Discard, r.Body)
			time.Sleep(time.Minute)
			if r.Context().Err() != nil {
				t.Error("the request has ended although its client is there")
			}
		}
		answers(w, r)
	}
	run(t, slow, func(t *testing.T, l *pipes, s server) {
		for _, next := range []string{post("/echo", "next"), "PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nnext", post("/echo", "next") + post("/echo", "last")} {
			for cut := range len(next) {
				c := l.dial(t)
				c.send(post("/slow", "x"))
				time.Sleep(time.Second) // it is watched
				c.send(next[:cut], next[cut:])
				if a := c.read(); a.Status != http.StatusNotFound {
					t.Fatalf("%+v", a)
				}
				if a := c.read(); a.Body != "next" {
					t.Fatalf("the request %q in two parts, the first of %d, has the answer %+v", next, cut, a)
				}
				c.Close()
			}
		}
	})
}

// TestBodyIsOfItsRequest: who keeps the body of a request reads nothing of the next one, and the
// header of one that is alike is the same.
func TestBodyIsOfItsRequest(t *testing.T) {
	var kept io.ReadCloser
	var headers []http.Header
	keep := func(w http.ResponseWriter, r *http.Request) {
		if kept != nil {
			if b, err := io.ReadAll(kept); len(b) > 0 || err == nil {
				t.Errorf("the body of the request before gives %q, %v", b, err)
			}
		}
		kept = r.Body
		headers = append(headers, r.Header)
	}
	run(t, keep, func(t *testing.T, l *pipes, s server) {
		kept, headers = nil, nil
		c := l.dial(t)
		c.send(post("/", "one", "X: 1"), post("/", "two", "X: 1"), post("/", "3", "X: 2"))
		for range 3 {
			if a := c.read(); a.Status != http.StatusOK {
				t.Fatalf("%+v", a)
			}
		}
		if !reflect.DeepEqual(headers[0], headers[1]) || headers[2].Get("X") != "2" || headers[2].Get("Content-Length") != "1" {
			t.Errorf("the headers are %q", headers)
		}
	})
}

// TestAnswerIsOfItsRequest: who keeps the ResponseWriter of a request writes nothing into the
// answer to the next one.
func TestAnswerIsOfItsRequest(t *testing.T) {
	var kept http.ResponseWriter
	keep := func(w http.ResponseWriter, r *http.Request) {
		if kept != nil {
			kept.Header().Set("Mine", "yes")
			kept.WriteHeader(http.StatusTeapot)
			if n, err := io.WriteString(kept, "not yours"); n != 0 || err == nil {
				t.Errorf("the answer before takes %d bytes, %v", n, err)
			}
			if err := http.NewResponseController(kept).Flush(); err == nil {
				t.Error("the answer before can be flushed")
			}
		}
		io.WriteString(w, "yours")
		kept = w
	}
	synctest.Test(t, func(t *testing.T) { // net/http promises nothing of the kind
		s := &Server{HTTP: &http.Server{Handler: http.HandlerFunc(keep), ErrorLog: log.New(io.Discard, "", 0)}}
		l := newPipes()
		go s.Serve(l)
		defer s.Close()
		c := l.dial(t)
		for range 3 {
			c.send(post("/", "x"))
			if a := c.read(); a.Status != http.StatusOK || a.Body != "yours" || a.Header.Get("Mine") != "" {
				t.Errorf("%+v", a)
			}
		}
	})
}

// TestBodyOfAPanic: who keeps the body of a request whose handler has panicked reads nothing of it,
// nor of what its memory is used for next.
func TestBodyOfAPanic(t *testing.T) {
	var kept io.Reader
	keep := func(w http.ResponseWriter, r *http.Request) {
		kept = r.Body
		panic(http.ErrAbortHandler)
	}
	run(t, keep, func(t *testing.T, l *pipes, s server) {
		c := l.dial(t)
		c.send(post("/", "secret"))
		if !c.ended() {
			t.Error("the connection is open")
		}
		if b, err := io.ReadAll(kept); len(b) > 0 || err == nil {
			t.Errorf("the body gives %q, %v", b, err)
		}
	})
}

// TestHeaderLimit: no request has a longer header than the server may take.
func TestHeaderLimit(t *testing.T) {
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		ofHTTP(s).MaxHeaderBytes = 512 // and what net/http adds of its own
		for n, want := range map[int]int{300: http.StatusOK, 6000: http.StatusRequestHeaderFieldsTooLarge, 12_000: http.StatusRequestHeaderFieldsTooLarge} {
			c := l.dial(t)
			c.send(post("/echo", "x", "X: "+strings.Repeat("y", n)))
			if a := c.read(); a.Status != want {
				t.Errorf("a header of %d bytes: %+v", n, a)
			}
			c.Close()
		}
	})
}

// ofHTTP returns the http.Server, of which settings may be changed before the first client comes.
func ofHTTP(s server) *http.Server {
	synctest.Wait()
	if ours, ok := s.(*Server); ok {
		return ours.HTTP
	}
	return s.(*http.Server)
}

// TestIdleConnectionIsSmall: a client that says much once does not take much for as long as it is
// idle.
func TestIdleConnectionIsSmall(t *testing.T) {
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		ours, ok := s.(*Server)
		if !ok {
			return
		}
		const many = 200
		before := heap()
		clients := make([]*client, many)
		for i := range clients {
			c := l.dial(t)
			c.send(post("/echo", "x", "X: "+strings.Repeat("y", maxHead-1000)))
			if a := c.read(); a.Body != "x" {
				t.Fatalf("%+v", a)
			}
			clients[i] = c
		}
		synctest.Wait()
		if each := (int64(heap()) - int64(before)) / many; each > maxHead { // with its client, which is about half of it
			t.Errorf("it takes %d bytes", each)
		}
		for c := range ours.conns {
			if len(c.buffer) > firstBuffer || len(c.last.text) > firstBuffer || len(c.last.header) > 0 {
				t.Errorf("it has a buffer of %d bytes and a head of %d", len(c.buffer), len(c.last.text))
			}
		}
		for _, c := range clients {
			c.send(post("/echo", "y"))
			if a := c.read(); a.Body != "y" {
				t.Errorf("%+v", a)
			}
		}
	})
}

// TestHalfABody: a handler is never told that half a body is a whole one.
func TestHalfABody(t *testing.T) {
	var heard chan error
	read := func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		heard <- err
	}
	run(t, read, func(t *testing.T, l *pipes, s server) {
		heard = make(chan error, 1)
		for _, sent := range []string{"", "{", "{\"a\":1"} {
			c := l.dial(t)
			c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n" + sent)
			synctest.Wait()
			c.Close()
			if err := <-heard; err != io.ErrUnexpectedEOF {
				t.Errorf("after %q: %v", sent, err)
			}
		}
	})
}

// TestNoReadAhead: after an answer the server reads from the connection only for the next request,
// however late that request comes.
func TestNoReadAhead(t *testing.T) {
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		for _, path := range []string{"/unread", "/echo", "/204"} {
			for _, next := range []string{post("/echo", "next"), "PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nnext"} {
				c := l.dial(t)
				for range 2 {
					c.send(post(path, "xxxx"))
					if a := c.read(); a.Status == 0 {
						t.Errorf("%s: %+v", path, a)
					}
					time.Sleep(2 * watchAfter)
				}
				c.send(strings.Split(next, "")...)
				if a := c.read(); a.Body != "next" {
					t.Errorf("after %s: %+v", path, a)
				}
				c.Close()
			}
		}
	})
}

// heap returns how much of the heap is in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestChunkedRequestIsTheLast: a request with a chunked body gets its answer, and then the connection
// ends, so that no byte after it counts as a request that a proxy in front has not seen.
//
// net/http ignores a Transfer-Encoding of HTTP/1.0: the body is empty, or has the Content-Length.
func TestChunkedRequestIsTheLast(t *testing.T) {
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		for _, length := range []string{"", "Content-Length: 1\r\n"} {
			c := l.dial(t)
			c.send("POST /echo HTTP/1.1\r\nHost: a\r\n" + length + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n" + post("/echo", "smuggled"))
			if a := c.read(); a.Body != "x" || !a.Close {
				t.Errorf("%q: %+v, want x and the end", length, a)
			}
			if a := c.read(); a.Body == "smuggled" {
				t.Errorf("%q: the bytes after it are a request: %+v", length, a)
			}
			c.Close()
		}
		for header, body := range map[string]string{"": "", "Content-Length: 1\r\n": "1", "Content-Length: 0\r\n": ""} {
			for _, coding := range []string{"", "Transfer-Encoding: chunked\r\n"} {
				c := l.dial(t)
				c.send("POST /echo HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n" + header + coding + "\r\n" + body +
					post("/echo", "smuggled"))
				if a := c.read(); a.Body != body || !a.Close {
					t.Errorf("HTTP/1.0 %q: %+v, want %q and the end", header+coding, a, body)
				}
				if a := c.read(); a.Body == "smuggled" {
					t.Errorf("HTTP/1.0 %q: the bytes after it are a request: %+v", header+coding, a)
				}
				c.Close()
			}
		}
	})
}
