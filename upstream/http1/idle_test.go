package http1

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestConnectionClosedWhileIdle: the server closes a connection that it has kept for many requests, just
// after an answer and without a word. The next request takes another connection.
func TestConnectionClosedWhileIdle(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const kept = 2 * provenUses
	closed := make(chan struct{})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(c)
			for range kept {
				if _, err := http.ReadRequest(in); err != nil {
					break
				}
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
			}
			c.Close()
			closed <- struct{}{}
		}
	}()
	client := &Client{Dial: new(net.Dialer).DialContext}
	for range 3 {
		for range kept {
			get(t, client, l.Addr().String())
		}
		<-closed
		for _, c := range client.idle { // the next request of a client that waits for answers comes later
			c.since = c.since.Add(-freshIdle)
		}
	}
}

// TestKeepAlive: a connection is not used in the second before the server closes it by its own word, nor
// after the limit of the Client.
func TestKeepAlive(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"timeout=5": 4 * time.Second, "timeout=5, max=100": 4 * time.Second, "max=9, Timeout = \"3\"": 2 * time.Second,
		"timeout=1": time.Second / 2, "timeout=0": 1, "": 0, "max=100": 0, "timeout=x": 0, "timeout=-1": 0, "timeout=99999999999": 0,
	} {
		if got := KeepAlive(value); got != want {
			t.Errorf("Keep-Alive: %s gives %v, want %v", value, got, want)
		}
	}
	for _, row := range []struct {
		header  string
		client  time.Duration
		again   time.Duration // the connection is used again after this idle time
		another time.Duration // another connection is made after this one
	}{
		{"", 0, 59 * time.Second, 61 * time.Second},
		{"", 4 * time.Second, 3 * time.Second, 4 * time.Second},
		{"Keep-Alive: timeout=3\r\n", 0, 1900 * time.Millisecond, 2 * time.Second},
		{"Keep-Alive: timeout=120\r\n", 4 * time.Second, 3 * time.Second, 4 * time.Second},
	} {
		t.Run(row.header, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dialed atomic.Int32
				client := &Client{MaxIdle: row.client}
				defer client.CloseIdleConnections()
				client.Dial = func(context.Context, string, string) (net.Conn, error) {
					dialed.Add(1)
					ours, theirs := net.Pipe()
					go func() {
						defer theirs.Close()
						for in := bufio.NewReader(theirs); ; {
							if _, err := http.ReadRequest(in); err != nil {
								return
							}
							io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n"+row.header+"\r\nx")
						}
					}()
					return ours, nil
				}
				get(t, client, "a")
				time.Sleep(row.again)
				if get(t, client, "a"); dialed.Load() != 1 {
					t.Errorf("%d connections after %v", dialed.Load(), row.again)
				}
				time.Sleep(row.another)
				if get(t, client, "a"); dialed.Load() != 2 {
					t.Errorf("%d connections after %v more", dialed.Load(), row.another)
				}
			})
		})
	}
}

// TestLivenessByReading: where the system cannot look without reading, a short read finds the end of a
// connection that was idle for a while.
func TestLivenessByReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		alive := livenessByReading(ours)
		if !alive(time.Second) || !alive(0) {
			t.Error("an open connection is not alive")
		}
		go theirs.Write([]byte("HTTP/1.1 408 Request Timeout\r\n\r\n"))
		if synctest.Wait(); alive(time.Second) {
			t.Error("a connection with an answer to no request is alive")
		}
		if theirs.Close(); alive(time.Second) {
			t.Error("a closed connection is alive")
		}
		if !alive(0) {
			t.Error("a connection that was just used is looked at, which takes a millisecond")
		}
	})
}
