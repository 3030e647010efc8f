package http1

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestClientLeaves: a long request ends when its client leaves; requests of other clients go on.
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

// TestClientWithoutAddress: a client that has left before it was accepted has no address on some
// systems; other clients do not notice.
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
