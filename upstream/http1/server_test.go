package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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
			return // net/http waits for the body that nobody wants before it answers
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

// TestClientLeaves: a request that takes long ends when its client leaves, and nobody else's.
func TestClientLeaves(t *testing.T) {
	var ended atomic.Int32
	wait := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		ended.Add(1)
	}
	run(t, wait, func(t *testing.T, l *pipes, s server) {
		ended.Store(0)
		a, b := l.dial(t), l.dial(t)
		a.send(post("/", "x"))
		b.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := ended.Load(); n != 0 {
			t.Fatalf("%d requests ended by themselves", n)
		}
		a.Close()
		synctest.Wait()
		if n := ended.Load(); n != 1 {
			t.Errorf("%d requests ended when one client had left", n)
		}
		b.Close()
		c := l.dial(t)
		c.send(post("/", "x"))
		synctest.Wait()
		c.Close() // at once
		time.Sleep(watchAfter)
		synctest.Wait()
		if n := ended.Load(); n != 3 {
			t.Errorf("%d requests ended when all clients had left", n)
		}
	})
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

// TestTimeouts: who does not send what it has begun, or has nothing to say for long, is let go.
func TestTimeouts(t *testing.T) {
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		_, ours := s.(*Server)
		for _, test := range []struct {
			name, sent string
			after      time.Duration
			late       time.Duration // for ours
			status     int
		}{
			{"nothing", "", 30 * time.Second, 0, 0},
			{"half a head", "POST /echo HT", 30 * time.Second, 0, 0},
			{"half a body", "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345", 30 * time.Second, 0, http.StatusBadRequest},
			{"half a body that nobody wants", "POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345", 30 * time.Second, 0, http.StatusOK},
			{"one request", post("/echo", "x"), 2 * time.Minute, late, http.StatusOK},
			{"one request and half a head", post("/echo", "x") + "GET /", 30 * time.Second, 0, http.StatusOK},
			{"half a foreign request", post("/echo", "x") + "PUT /", 30 * time.Second, 0, http.StatusOK},
		} {
			c := l.dial(t)
			began := time.Now()
			c.send(test.sent)
			if test.status != 0 {
				if a := c.read(); a.Status != test.status {
					t.Errorf("%s: %+v", test.name, a)
				}
			}
			if _, err := io.Copy(io.Discard, c.r); err != nil { // net/http may say why
				t.Errorf("%s: %v; want the end", test.name, err)
			}
			took, most := time.Since(began), test.after+time.Second
			if ours {
				most += test.late
			}
			if took < test.after || took > most {
				t.Errorf("%s: the connection ended after %v, want %v", test.name, took, test.after)
			}
		}
	})
}

// TestSlowReader: a handler's deadline for writing holds for its answer, and for no other one on
// the connection.
func TestSlowReader(t *testing.T) {
	var failed chan error
	limited := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/limited" {
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(30 * time.Second))
		}
		_, err := w.Write(bytes.Repeat([]byte("x"), 10_000))
		failed <- err
	}
	run(t, limited, func(t *testing.T, l *pipes, s server) {
		failed = make(chan error, 1)
		c := l.dial(t)
		for range 3 {
			c.send(post("/limited", "x"))
			if a := c.read(); len(a.Body) != 10_000 || <-failed != nil {
				t.Fatalf("%+v", a)
			}
			time.Sleep(45 * time.Second)
		}
		c.send(post("/", "x"))
		if a := c.read(); len(a.Body) != 10_000 || <-failed != nil {
			t.Fatalf("after the deadline of another answer: %+v", a)
		}
		c.send(post("/limited", "x"))
		if a := c.read(); len(a.Body) != 10_000 || <-failed != nil {
			t.Fatalf("%+v", a)
		}
		time.Sleep(45 * time.Second)
		c.send("PUT / HTTP/1.1\r\nHost: a\r\n\r\n")
		if a := c.read(); len(a.Body) != 10_000 || <-failed != nil {
			t.Fatalf("after the deadline of another answer, and not plain: %+v", a)
		}
		c.Close()
		c = l.dial(t)
		c.send(post("/limited", "x"))
		began := time.Now()
		if err := <-failed; err == nil {
			t.Error("an answer that nobody takes was written")
		}
		if took := time.Since(began); took < 30*time.Second || took > 32*time.Second {
			t.Errorf("the write was given up after %v", took)
		}
		c.send(post("/", "x"))
		// or another answer would follow a piece of this one
		if io.Copy(io.Discard, c.r); time.Since(began) > 32*time.Second {
			t.Error("the connection is open")
		}
	})
}

// TestShutdown: who is idle is let go at once, who waits for an answer gets it, and nobody new
// comes in.
func TestShutdown(t *testing.T) {
	slow := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if d, err := time.ParseDuration(strings.TrimPrefix(r.URL.Path, "/")); err == nil {
			time.Sleep(d)
		}
		io.WriteString(w, "done")
	}
	run(t, slow, func(t *testing.T, l *pipes, s server) {
		idle, busy, busier, foreign := l.dial(t), l.dial(t), l.dial(t), l.dial(t)
		idle.send(post("/", "x"))
		if a := idle.read(); a.Close || a.Body != "done" {
			t.Fatalf("%+v", a)
		}
		busy.send(post("/10s", "x"))
		busier.send(post("/30s", "x"))
		foreign.send("PUT /20s HTTP/1.1\r\nHost: a\r\n\r\n")
		time.Sleep(time.Second)
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Shutdown(hasty); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown with two requests in progress = %v", err)
		}
		if !idle.ended() {
			t.Error("an idle connection is open")
		}
		if c := l.dial(t); !c.ended() {
			t.Error("a new connection is served")
		}
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(context.Background()) }()
		for _, c := range []*client{busy, foreign, busier} {
			if a := c.read(); !a.Close || a.Body != "done" {
				t.Errorf("%+v", a)
			}
			if !c.ended() {
				t.Error("a connection is open after the answer")
			}
			if time.Sleep(time.Second); c != busier && len(done) > 0 {
				t.Error("Shutdown did not wait for all")
			}
		}
		if err := <-done; err != nil {
			t.Errorf("Shutdown = %v", err)
		}
	})
}

// TestClose: Close ends what hangs, and the handler hears of it.
func TestClose(t *testing.T) {
	hang := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	run(t, hang, func(t *testing.T, l *pipes, s server) {
		a, b := l.dial(t), l.dial(t)
		a.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		b.send("PUT / HTTP/1.1\r\nHost: a\r\n\r\n")
		time.Sleep(time.Second)
		s.Close()
		if !a.ended() || !b.ended() {
			t.Error("a connection is open")
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

// TestClientWithoutAddress: a client that has left before it was accepted has no address on some
// systems; it harms nobody else.
func TestClientWithoutAddress(t *testing.T) {
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		_, theirs := net.Pipe()
		theirs.Close()
		l.conns <- nameless{theirs}
		c := l.dial(t)
		c.send(post("/echo", "x"))
		if a := c.read(); a.Body != "x" {
			t.Errorf("%+v", a)
		}
	})
}

// nameless is a connection that the system has forgotten.
type nameless struct{ net.Conn }

func (nameless) RemoteAddr() net.Addr { return nil }

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

// TestNoTimeouts: without them a connection lives for as long as its client wants.
func TestNoTimeouts(t *testing.T) {
	slow := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		time.Sleep(time.Minute)
		answers(w, r)
	}
	run(t, slow, func(t *testing.T, l *pipes, s server) {
		for _, idle := range []time.Duration{0, -1} {
			ofHTTP(s).ReadTimeout, ofHTTP(s).IdleTimeout = 0, idle
			c := l.dial(t)
			for range 3 {
				c.send(post("/nothing", "x"))
				if a := c.read(); a.Status != http.StatusOK {
					t.Fatalf("IdleTimeout %d: %+v", idle, a)
				}
				time.Sleep(time.Hour)
			}
			c.Close()
		}
	})
}

// TestShutdownWaitsForNoQuestion: whoever has asked nothing yet, or has begun to and not finished,
// is idle.
func TestShutdownWaitsForNoQuestion(t *testing.T) {
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		var clients []*client
		for _, sent := range []string{post("/echo", "x") + "\r\n", post("/echo", "x") + "P", post("/echo", "x") + "POST /", post("/echo", "x") + "\r\n\r\nPOST / HTTP/1.1\r\n"} {
			c := l.dial(t)
			c.send(sent)
			if a := c.read(); a.Body != "x" {
				t.Fatalf("%+v", a)
			}
			clients = append(clients, c)
		}
		synctest.Wait()
		began := time.Now()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown = %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Shutdown took %v", took)
		}
		for i, c := range clients {
			if !c.ended() {
				t.Errorf("connection %d is open", i)
			}
		}
	})
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

// TestClientsThatLeave: where clients leave at any point, everybody reads answers to what they have
// sent themselves, and nothing is left of who has gone: of real connections none is open, and in a
// bubble, which waits for each goroutine and fails where one has no end, there is no goroutine
// either.
func TestClientsThatLeave(t *testing.T) {
	t.Run("real", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		counted := &countedListener{Listener: l}
		leave(t, counted, func() (net.Conn, func(), error) {
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return nil, nil, err
			}
			return c, func() { c.(*net.TCPConn).SetLinger(0) }, nil
		})
		closed := make(chan struct{})
		go func() {
			counted.open.Wait()
			close(closed)
		}()
		select {
		case <-closed:
		case <-time.After(time.Minute):
			b := make([]byte, 1<<16)
			t.Fatalf("a connection is open:\n%s", b[:runtime.Stack(b, true)])
		}
	})
	t.Run("bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := newPipes()
			leave(t, l, func() (net.Conn, func(), error) {
				a, b := net.Pipe()
				broken := new(atomic.Bool)
				l.conns <- breakable{half{b}, broken}
				return a, func() { broken.Store(true) }, nil
			})
		})
	})
}

// countedListener knows which of its connections are open.
type countedListener struct {
	net.Listener
	open sync.WaitGroup
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	return &countedConn{TCPConn: c.(*net.TCPConn), closed: sync.OnceFunc(l.open.Done)}, nil
}

type countedConn struct {
	*net.TCPConn
	closed func()
}

func (c *countedConn) Close() error {
	defer c.closed()
	return c.TCPConn.Close()
}

// breakable is the server's end of a pipe, which its client may close as a real connection is
// reset.
type breakable struct {
	half
	broken *atomic.Bool
}

func (c breakable) Read(p []byte) (int, error) {
	n, err := c.half.Read(p)
	return n, c.reason(err)
}

func (c breakable) Write(p []byte) (int, error) {
	n, err := c.half.Write(p)
	return n, c.reason(err)
}

func (c breakable) reason(err error) error {
	if c.broken.Load() && (err == io.EOF || err == io.ErrClosedPipe) {
		return syscall.ECONNRESET
	}
	return err
}

// leave serves l to clients that leave, who come by dial, until none comes any more. With a
// connection dial returns what makes its end a reset.
func leave(t *testing.T, l net.Listener, dial func() (net.Conn, func(), error)) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		user := r.Header.Get("X-User")
		if r.URL.Path == "/unread" {
			http.Error(w, user, http.StatusUnauthorized)
			return
		}
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if len(b) > 0 && (len(b)%len(user) != 0 || strings.Repeat(user, len(b)/len(user)) != string(b)) {
			t.Errorf("%s sends the body %.80q", user, b)
		}
		w.Header().Set("X-User", user)
		switch r.URL.Path {
		case "/slow":
			select {
			case <-r.Context().Done():
				return
			case <-time.After(watchAfter + 5*time.Millisecond):
			}
			w.Write(b)
		case "/stream":
			for range 100 {
				rc.SetWriteDeadline(time.Now().Add(20 * time.Second))
				io.WriteString(w, user)
				if rc.Flush() != nil {
					return
				}
				select {
				case <-r.Context().Done():
					return
				case <-time.After(time.Millisecond):
				}
			}
		default:
			w.Write(b)
		}
	}
	s := &Server{HTTP: &http.Server{Handler: http.HandlerFunc(handler), ReadTimeout: 20 * time.Second, IdleTimeout: 20 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	conversation := func(random *rand.Rand, user string) {
		nc, reset, err := dial()
		if err != nil {
			t.Error(err)
			return
		}
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(time.Minute))
		var wire string
		requests := 1 + random.IntN(4)
		for range requests {
			head := "X-User: " + user
			switch random.IntN(7) {
			case 0:
				wire += post("/unread", strings.Repeat(user, random.IntN(100)), head)
			case 1:
				wire += post("/slow", strings.Repeat(user, random.IntN(100)), head)
			case 2:
				wire += "GET /stream HTTP/1.1\r\nHost: a\r\n" + head + "\r\n\r\n"
			case 3:
				wire += post("/?foreign", strings.Repeat(user, random.IntN(100)), head)
			case 4:
				wire += post("/", strings.Repeat(user, random.IntN(3000)), head)
			default:
				wire += post("/", strings.Repeat(user, random.IntN(100)), head, "X: "+strings.Repeat("y", random.IntN(20)*200))
			}
		}
		read := random.IntN(requests + 1)
		if read == 0 {
			wire = wire[:random.IntN(len(wire))]
		}
		sent, step := make(chan struct{}), 1+random.IntN(2000)
		go func() {
			defer close(sent)
			for len(wire) > 0 {
				n := min(len(wire), step)
				if _, err := io.WriteString(nc, wire[:n]); err != nil {
					return
				}
				wire = wire[n:]
			}
		}()
		r := bufio.NewReader(nc)
		for range read {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				break
			}
			b, err := io.ReadAll(resp.Body)
			if got := strings.TrimSuffix(string(b), "\n"); err == nil && len(got) > 0 && strings.ReplaceAll(got, user, "") != "" {
				t.Errorf("%s reads %.80q", user, got)
			}
			if other := resp.Header.Get("X-User"); other != "" && other != user {
				t.Errorf("%s reads a header of %s", user, other)
			}
		}
		if random.IntN(2) == 0 {
			reset()
		}
		nc.Close()
		<-sent
	}
	var clients sync.WaitGroup
	for i := range 16 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for j := range 10 {
				conversation(random, fmt.Sprintf("user-%02d-%04d;", i, j))
			}
		})
	}
	clients.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown = %v", err)
	}
	if err := <-done; err != http.ErrServerClosed {
		t.Errorf("Serve = %v", err)
	}
}

// TestIdleTimeoutIsItsOwn: it holds also where it is shorter than the time that a request has to
// arrive.
func TestIdleTimeoutIsItsOwn(t *testing.T) {
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		ofHTTP(s).IdleTimeout = 5 * time.Second
		c := l.dial(t)
		c.send(strings.Split(post("/echo", "x"), "")...)
		if a := c.read(); a.Body != "x" {
			t.Errorf("%+v", a)
		}
		began := time.Now()
		io.Copy(io.Discard, c.r)
		if took := time.Since(began); took < 5*time.Second || took > 5*time.Second+late {
			t.Errorf("the connection ended after %v", took)
		}
	})
}

// TestShutdownDuringAStream: an answer whose header was sent before the end says nothing of it, and
// is the last one all the same.
func TestShutdownDuringAStream(t *testing.T) {
	stream := func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).Flush()
		time.Sleep(time.Minute)
	}
	run(t, stream, func(t *testing.T, l *pipes, s server) {
		c := l.dial(t)
		get := "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
		c.send(get, get)
		done := make(chan answer, 1)
		go func() { done <- c.read() }()
		time.Sleep(time.Second)
		began := time.Now()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Errorf("Shutdown = %v", err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("Shutdown took %v", took)
		}
		if a := <-done; a.Status != http.StatusOK || a.Err != "" {
			t.Errorf("%+v", a)
		}
		if !c.ended() {
			t.Error("the connection is open")
		}
	})
}

// TestLastWords: a client that still sends a body that nobody wants can do so for a moment, so that
// the answer reaches the client, and no longer. Little of that body is read.
func TestLastWords(t *testing.T) {
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		if _, ours := s.(*Server); !ours {
			return // net/http waits, but does not read
		}
		dial := func() (*client, net.Conn) {
			a, b := net.Pipe()
			l.conns <- half{b}
			t.Cleanup(func() { a.Close() })
			return &client{Conn: a, t: t, r: bufio.NewReader(a)}, a
		}
		c, wire := dial()
		c.send(fmt.Sprintf("POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", maxUnread+100_000))
		if a := c.read(); !a.Close || a.Body != "not wanted" {
			t.Errorf("%+v", a)
		}
		if _, err := wire.Write(make([]byte, 10_000)); err != nil {
			t.Errorf("the connection was closed at once: %v", err)
		}
		if n, err := wire.Write(make([]byte, 4*maxUnread)); err == nil || n > maxUnread {
			t.Errorf("%d bytes more of the body are read, %v; want no more than %d", n, err, maxUnread)
		}
		synctest.Wait()
		synctest.Wait()
		if _, err := wire.Write([]byte("x")); err == nil {
			t.Error("the connection stays open")
		}
		c, _ = dial()
		c.send(post("/close", "x"))
		began := time.Now()
		io.Copy(io.Discard, c.r)
		if took := time.Since(began); took > 0 {
			t.Errorf("the end of a request that was read whole took %v", took)
		}
	})
}

// half is a connection of which half can be closed.
type half struct{ net.Conn }

func (half) CloseWrite() error { return nil }

// TestWriteTimeout: a client that takes nothing is let go also by a handler that sets no deadline,
// however many requests it sends.
func TestWriteTimeout(t *testing.T) {
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		ofHTTP(s).WriteTimeout = 30 * time.Second
		for _, sent := range []string{"GET /absent HTTP/1.1\r\nHost: a\r\n\r\n", post("/parts", strings.Repeat("x", 10_000))} {
			c := l.dial(t)
			c.send(sent, sent, sent)
			began := time.Now()
			time.Sleep(25 * time.Second)
			if a := c.read(); a.Status == 0 { // it counts for each answer
				t.Errorf("%+v", a)
			}
			synctest.Wait()
			next := time.Now()
			if next.Sub(began) > 26*time.Second {
				t.Fatal("the first answer was late")
			}
			time.Sleep(29 * time.Second)
			if a := c.read(); a.Status == 0 {
				t.Errorf("%+v", a)
			}
			time.Sleep(35 * time.Second)
			if a := c.read(); a.Status != 0 && a.Err == "" {
				t.Errorf("after the time: %+v", a)
			}
			if !c.ended() {
				t.Error("the connection is open")
			}
			c.Close()
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

// TestNobodyReadsAhead: once a request is answered, nobody reads from the connection but for the
// next one, however late that comes.
func TestNobodyReadsAhead(t *testing.T) {
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

// TestDeadlinesOfTheHandler: they hold as they were set last.
func TestDeadlinesOfTheHandler(t *testing.T) {
	var failed chan error
	limited := func(w http.ResponseWriter, r *http.Request) {
		d, _ := time.ParseDuration(r.URL.Path[1:])
		rc := http.NewResponseController(w)
		rc.SetReadDeadline(time.Now().Add(d))
		_, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			rc.SetWriteDeadline(time.Now().Add(time.Hour))
			rc.SetWriteDeadline(time.Now().Add(d))
			_, err = w.Write(make([]byte, 10_000))
		}
		failed <- err
	}
	run(t, limited, func(t *testing.T, l *pipes, s server) {
		for _, sent := range []string{"POST /5s HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nx", post("/5s", "x")} {
			failed = make(chan error, 1)
			c := l.dial(t)
			c.send(post("/50s", "x"))
			if a := c.read(); len(a.Body) != 10_000 || <-failed != nil {
				t.Fatalf("%+v", a)
			}
			c.send(sent)
			began := time.Now()
			if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the handler of %q hears %v", sent, err)
			}
			if took := time.Since(began); took < 5*time.Second || took > 7*time.Second {
				t.Errorf("the handler of %q is stopped after %v", sent, took)
			}
			c.Close()
		}
	})
}

// TestServeAfterShutdown: a server that was shut down serves nothing more.
func TestServeAfterShutdown(t *testing.T) {
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		other := newPipes()
		if err := s.Serve(other); err != http.ErrServerClosed {
			t.Errorf("Serve = %v", err)
		}
		if c := other.dial(t); !c.ended() {
			t.Error("somebody listens")
		}
	})
}

// failing is a listener that fails as told, and has somebody come in when it is closed.
type failing struct {
	*pipes
	errs chan error
	late chan net.Conn
}

func (l *failing) Accept() (net.Conn, error) {
	select {
	case err := <-l.errs:
		return nil, err
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		select {
		case c := <-l.late:
			return c, nil
		default:
			return nil, net.ErrClosed
		}
	}
}

// TestAcceptFails: a listener that fails for a moment is tried again; one that fails for good ends
// Serve, and no connection hangs for it.
func TestAcceptFails(t *testing.T) {
	run(t, answers, func(t *testing.T, _ *pipes, _ server) {
		h := &http.Server{Handler: http.HandlerFunc(answers), ErrorLog: log.New(io.Discard, "", 0)}
		s, broken := &Server{HTTP: h}, errors.New("broken")
		l := &failing{newPipes(), make(chan error), make(chan net.Conn, 1)}
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		for range 20 {
			l.errs <- syscall.EMFILE
		}
		c := l.dial(t)
		c.send(post("/echo", "x"))
		if a := c.read(); a.Body != "x" {
			t.Errorf("%+v", a)
		}
		l.errs <- broken
		if err := <-done; err != broken {
			t.Errorf("Serve = %v", err)
		}
		synctest.Wait()
		c.send("PUT /echo HTTP/1.1\r\nHost: a\r\n\r\n")
		if !c.ended() {
			t.Error("a connection hangs that nobody serves")
		}
		s.Close()
	})
}

// TestWhoComesInAtTheEnd: who was accepted while the server shuts down is let go.
func TestWhoComesInAtTheEnd(t *testing.T) {
	run(t, answers, func(t *testing.T, _ *pipes, _ server) {
		s := &Server{HTTP: &http.Server{Handler: http.HandlerFunc(answers)}}
		l := &failing{newPipes(), make(chan error), make(chan net.Conn, 1)}
		ours, theirs := net.Pipe()
		l.late <- theirs
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		synctest.Wait()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != http.ErrServerClosed {
			t.Errorf("Serve = %v", err)
		}
		if c := (&client{ours, t, bufio.NewReader(ours)}); !c.ended() {
			t.Error("the connection is open")
		}
	})
}

// TestEachRequestHasItsTime: the time that one has taken to arrive is nothing to the next one.
func TestEachRequestHasItsTime(t *testing.T) {
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		c := l.dial(t)
		for range 3 {
			whole := post("/echo", "body")
			for _, part := range []string{whole[:10], whole[10 : len(whole)-2], whole[len(whole)-2:]} {
				c.send(part)
				time.Sleep(14 * time.Second)
			}
			if a := c.read(); a.Body != "body" {
				t.Fatalf("%+v", a)
			}
		}
		c.send("POST /")
		began := time.Now()
		io.Copy(io.Discard, c.r)
		if took := time.Since(began); took < 30*time.Second || took > 31*time.Second {
			t.Errorf("the connection ended after %v", took)
		}
	})
}

// hooked is a connection that does something when it has read.
type hooked struct {
	net.Conn
	hook func()
}

func (c hooked) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.hook()
	return n, err
}

// TestShutdownComesFirst: what nobody can be told the result of is not done: a request that arrives
// while its connection is closed as idle.
func TestShutdownComesFirst(t *testing.T) {
	asked := false
	run(t, func(http.ResponseWriter, *http.Request) { asked = true }, func(t *testing.T, l *pipes, s server) {
		if _, ours := s.(*Server); !ours {
			return
		}
		ours, theirs := net.Pipe()
		l.conns <- hooked{theirs, func() {
			over, cancel := context.WithCancel(t.Context())
			cancel()
			s.Shutdown(over)
		}}
		c := &client{ours, t, bufio.NewReader(ours)}
		c.send(post("/", "x"))
		if !c.ended() || asked {
			t.Error("the request was served")
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

// TestWriteTimeoutIsOfEachWrite: a stream whose handler sets no deadline lasts, and so does the
// watch over its client when a handler sets one for reading.
func TestWriteTimeoutIsOfEachWrite(t *testing.T) {
	left := make(chan struct{}, 1)
	stream := func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		for range 4 {
			io.WriteString(w, "x")
			if err := rc.Flush(); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Second)
			rc.SetReadDeadline(time.Now().Add(time.Second)) // there is nothing to read
		}
		<-r.Context().Done()
		left <- struct{}{}
	}
	run(t, stream, func(t *testing.T, l *pipes, s server) {
		if _, ours := s.(*Server); !ours {
			return // the time of net/http is one for the whole answer
		}
		ofHTTP(s).WriteTimeout = 30 * time.Second
		left = make(chan struct{}, 1)
		c := l.dial(t)
		c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, err := http.ReadResponse(c.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(io.LimitReader(resp.Body, 4)); string(b) != "xxxx" {
			t.Errorf("%q, %v", b, err)
		}
		time.Sleep(time.Hour)
		if len(left) > 0 {
			t.Error("the request ended while its client was there")
		}
		c.Close()
		<-left
	})
}
