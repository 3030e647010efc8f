package http1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// errNoName is how dialing fails without a name server.
var errNoName = errors.New("no such host")

// oneConnection returns a client whose first dialing succeeds, and no other one. The server answers
// a request once it is told to, with further fields.
func oneConnection(t *testing.T) (c *Client, answer chan string) {
	c, answer = &Client{}, make(chan string)
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close(); c.CloseIdleConnections() })
	go func() {
		r := bufio.NewReader(theirs)
		for {
			q, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			io.Copy(io.Discard, q.Body)
			if _, err := io.WriteString(theirs, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"+<-answer+"\r\nok"); err != nil {
				return
			}
		}
	}()
	first := true
	c.Dial = func(context.Context, string, string) (net.Conn, error) {
		if !first {
			return nil, errNoName
		}
		first = false
		return ours, nil
	}
	return c, answer
}

// ask makes one request in a goroutine of its own.
func ask(t *testing.T, c *Client) <-chan error {
	done := make(chan error, 1)
	go func() {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://server/", strings.NewReader("{}"))
		if err != nil {
			done <- err
			return
		}
		resp, err := c.RoundTrip(r)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		done <- err
	}()
	return done
}

// TestPoolWithoutNames has requests that get no connection of their own use that of another one.
func TestPoolWithoutNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, answer := oneConnection(t)
		all := []<-chan error{ask(t, c)}
		synctest.Wait()
		all = append(all, ask(t, c), ask(t, c))
		synctest.Wait()
		for range all {
			time.Sleep(time.Second)
			answer <- ""
		}
		for i, done := range all {
			if err := <-done; err != nil {
				t.Errorf("request %d: %v", i, err)
			}
		}
	})
}

// TestPoolReturnedMeanwhile finds the connection that came back while a request was dialing.
func TestPoolReturnedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, answer := oneConnection(t)
		dial := c.Dial
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			n, err := dial(ctx, network, address)
			if err != nil {
				time.Sleep(time.Second)
			}
			return n, err
		}
		first := ask(t, c)
		synctest.Wait()
		second := ask(t, c)
		synctest.Wait()
		answer <- ""
		if err := <-first; err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		answer <- ""
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}

// TestPoolWithoutNamesOrConnections fails at once where waiting cannot help, and says so where
// another exchange takes longer.
func TestPoolWithoutNamesOrConnections(t *testing.T) {
	for name, test := range map[string]struct {
		answer string // of the first request, after a second; "" for none
		want   time.Duration
		others bool
	}{
		"the other connection ends":     {"Connection: close\r\n", time.Second, false},
		"the other exchange takes long": {"", spareWait, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, answer := oneConnection(t)
				first := ask(t, c)
				synctest.Wait()
				began, second := time.Now(), ask(t, c)
				if test.answer != "" {
					time.Sleep(time.Second)
					answer <- test.answer
				}
				err := <-second
				if took := time.Since(began); !errors.Is(err, errNoName) || errors.Is(err, ErrOthers) != test.others || took != test.want {
					t.Errorf("after %v: %v (others: %v); want it after %v", took, err, errors.Is(err, ErrOthers), test.want)
				}
				if test.answer == "" {
					answer <- "Connection: close\r\n"
				}
				if err := <-first; err != nil {
					t.Error(err)
				}
				began = time.Now()
				if err := <-ask(t, c); !errors.Is(err, errNoName) || errors.Is(err, ErrOthers) || time.Since(began) > 0 {
					t.Errorf("without any connection: %v after %v", err, time.Since(began))
				}
			})
		})
	}
}

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

// TestPoolWaitsForItsServer: a request that waits gets no connection to another server.
func TestPoolWaitsForItsServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, answer := oneConnection(t)
		first := ask(t, c)
		synctest.Wait()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://other/", nil)
		if err != nil {
			t.Fatal(err)
		}
		second := make(chan error, 1)
		go func() {
			_, err := c.RoundTrip(r)
			second <- err
		}()
		synctest.Wait()
		answer <- ""
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := <-second; !errors.Is(err, errNoName) {
			t.Errorf("the request to another server: %v, want %v", err, errNoName)
		}
	})
}

// TestPoolClosing: a request that waits ends with its group, and leaves no place behind.
func TestPoolClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, answer := oneConnection(t)
		first := ask(t, c)
		synctest.Wait()
		closing, end := context.WithCancel(t.Context())
		began, done := time.Now(), make(chan error, 1)
		go func() {
			_, err := c.spare(t.Context(), closing, "server:80", errNoName)
			done <- err
		}()
		synctest.Wait()
		end()
		if err := <-done; !errors.Is(err, errNoName) || time.Since(began) > 0 || len(c.waiting) > 0 {
			t.Errorf("after %v: %v, and %d wait", time.Since(began), err, len(c.waiting))
		}
		answer <- ""
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}
