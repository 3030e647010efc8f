package http1

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// servers is a client of servers that answer with their address. The first byte of the address is
// that of each body.
func servers(t *testing.T) (c *Client, dialed *int) {
	c, dialed = &Client{}, new(int)
	t.Cleanup(c.CloseIdleConnections)
	c.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
		*dialed++
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			for r := bufio.NewReader(theirs); ; {
				if _, err := http.ReadRequest(r); err != nil {
					return
				}
				if _, err := io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"+address[:1]); err != nil {
					return
				}
			}
		}()
		return ours, nil
	}
	return c, dialed
}

// get returns the body of an answer of a server.
func get(t *testing.T, c *Client, host string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestPoolKeepsServersApart: a request uses no connection to another server. Idle connections are
// used again, and closed after maxIdle.
func TestPoolKeepsServersApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dialed := servers(t)
		for range 3 {
			for _, host := range []string{"a", "b"} {
				if got := get(t, c, host); got != host {
					t.Errorf("a request to %s was answered by %s", host, got)
				}
			}
		}
		if *dialed != 2 {
			t.Errorf("%d connections were made, want 2", *dialed)
		}
		time.Sleep(maxIdle + time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.idle) != 0 {
			t.Errorf("%d connections are idle after %v", len(c.idle), maxIdle)
		}
	})
}
