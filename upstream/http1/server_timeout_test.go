package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

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
			{"half a body that the handler does not read", "POST /unread HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345", 30 * time.Second, 0, http.StatusOK},
			{"one request", post("/echo", "x"), 2 * time.Minute, idleSlack, http.StatusOK},
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
			t.Error("an answer that the client does not read was written")
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
		if took := time.Since(began); took < 5*time.Second || took > 5*time.Second+idleSlack {
			t.Errorf("the connection ended after %v", took)
		}
	})
}

// TestUnreadBodyIsBounded: a client may go on for a moment with a body that the handler does not
// read, so that the answer reaches the client. Little of that body is read.
func TestUnreadBodyIsBounded(t *testing.T) {
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
