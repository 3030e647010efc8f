package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestShutdown: idle connections are closed at once, requests in flight are answered, and new
// connections are refused.
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

// TestShutdownAnswersWhatWasSent: a reverse proxy that does not know of the shutdown yet may send a
// request on an idle connection, or on a new one. It gets the answer, and the connection ends.
func TestShutdownAnswersWhatWasSent(t *testing.T) {
	run(t, answers, func(t *testing.T, l *pipes, s server) {
		if _, ours := s.(*Server); !ours {
			return
		}
		used, fresh, idle := l.dial(t), l.dial(t), l.dial(t)
		for _, c := range []*client{used, idle} {
			c.send(post("/echo", "x"))
			if a := c.read(); a.Close || a.Body != "x" {
				t.Fatalf("%+v", a)
			}
		}
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(context.Background()) }()
		time.Sleep(idleLinger / 2)
		for _, c := range []*client{used, fresh} {
			c.send(post("/echo", "y"))
			if a := c.read(); !a.Close || a.Body != "y" {
				t.Errorf("%+v", a)
			}
			if !c.ended() {
				t.Error("a connection is open after its last answer")
			}
		}
		if err := <-done; err != nil || !idle.ended() {
			t.Errorf("Shutdown = %v, or an idle connection is open", err)
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

// TestShutdownWaitsForNoPartialRequest: a connection without a request, or with a part of one, is
// idle.
func TestShutdownWaitsForNoPartialRequest(t *testing.T) {
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
			t.Error("the server accepts connections")
		}
	})
}

// failing is a listener that fails as told, and accepts one more connection when it is closed.
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
			t.Error("a connection that is not served stays open")
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

// TestShutdownComesFirst: a request that arrives while its connection is closed as idle is not
// executed, because its client could not read the result.
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
