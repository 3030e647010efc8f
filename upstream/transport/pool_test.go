package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// errNoName is how dialing fails without a name server.
var errNoName = &dialError{"server:80", errors.New("no such host")}

// oneConnection is a server to which a pool can open one connection, and no other one. It answers a
// call when it is told to, with further header fields.
type oneConnection struct {
	*streamable
	pool   *Pool
	answer chan string
	next   chan net.Conn // the next connection; empty where dialing fails
	lookup time.Duration // of a name, before dialing fails
}

// withOneConnection runs f in a bubble for both HTTP clients.
func withOneConnection(t *testing.T, f func(t *testing.T, one *oneConnection)) {
	for name, url := range map[string]string{"http1": "http://server", "net/http": "https://server"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("http_proxy", "")
			synctest.Test(t, func(t *testing.T) {
				one := &oneConnection{pool: NewPool(url), answer: make(chan string), next: make(chan net.Conn, 1)}
				ours, theirs := net.Pipe()
				one.next <- ours
				go func() {
					r := bufio.NewReader(theirs)
					for {
						q, err := http.ReadRequest(r)
						if err != nil {
							return
						}
						io.Copy(io.Discard, q.Body)
						fmt.Fprintf(theirs, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s",
							len(answer7), <-one.answer, answer7)
					}
				}()
				one.pool.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
					select {
					case c := <-one.next:
						return c, nil
					default:
						pause, end := context.WithTimeout(ctx, one.lookup)
						defer end()
						<-pause.Done()
						return nil, errNoName
					}
				}
				one.streamable = OpenHTTP(HTTPOptions{URL: "http://server/mcp", Pool: one.pool}, nil).(*streamable)
				defer func() {
					one.Close()
					one.pool.CloseIdleConnections()
					ours.Close()
					theirs.Close()
				}()
				f(t, one)
			})
		})
	}
}

// ask makes one call in a goroutine of its own, which has begun to wait when ask returns.
func (one *oneConnection) ask(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := one.Call(ctx, call("7", "tools/call"), nil)
		done <- err
	}()
	synctest.Wait()
	return done
}

// TestPoolWithoutNames: calls that get no connection of their own use that of another one, also
// while a name server does not answer.
func TestPoolWithoutNames(t *testing.T) {
	for _, lookup := range []time.Duration{0, 10 * time.Second} {
		t.Run(lookup.String(), func(t *testing.T) {
			withOneConnection(t, func(t *testing.T, one *oneConnection) {
				one.lookup = lookup
				var calls []<-chan error
				for range 10 {
					calls = append(calls, one.ask(t.Context()))
				}
				for range calls {
					time.Sleep(spareTime / 11)
					one.answer <- ""
				}
				for i, done := range calls {
					if err := <-done; err != nil {
						t.Errorf("call %d: %v", i, err)
					}
				}
				synctest.Wait()
				if n := one.pool.open.Load(); n != 1 {
					t.Errorf("%d connections are open, want 1", n)
				}
			})
		})
	}
}

// TestPoolNamesReturn: a call that waits also uses a new connection, once dialing succeeds again.
func TestPoolNamesReturn(t *testing.T) {
	withOneConnection(t, func(t *testing.T, one *oneConnection) {
		first := one.ask(t.Context())
		second := one.ask(t.Context())
		time.Sleep(time.Second)
		ours, theirs := net.Pipe()
		defer theirs.Close()
		one.next <- ours
		go func() {
			q, err := http.ReadRequest(bufio.NewReader(theirs))
			if err != nil {
				return
			}
			io.Copy(io.Discard, q.Body)
			fmt.Fprintf(theirs, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(answer7), answer7)
		}()
		if err := <-second; err != nil {
			t.Errorf("the call over the new connection: %v", err)
		}
		one.answer <- ""
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// TestPoolWithoutNamesOrConnections: a call fails at once, or soon, if no connection is left. If
// another call takes longer than spareTime, the error says that its connection works.
func TestPoolWithoutNamesOrConnections(t *testing.T) {
	for name, test := range map[string]struct {
		answer        string // of the first call, after a second; "" for none
		least, atMost time.Duration
		others        bool
	}{
		"the other connection ends": {"Connection: close\r\n", time.Second, time.Second + longestPause, false},
		"the other call takes long": {"", spareTime, spareTime, true},
	} {
		t.Run(name, func(t *testing.T) {
			withOneConnection(t, func(t *testing.T, one *oneConnection) {
				first := one.ask(t.Context())
				began, second := time.Now(), one.ask(t.Context())
				if test.answer != "" {
					time.Sleep(time.Second)
					one.answer <- test.answer
				}
				err := <-second
				if !errors.Is(err, errNoName) || !errors.Is(err, ErrNotSent) || errors.Is(err, ErrOthers) != test.others {
					t.Errorf("%v (others: %v), want others: %v", err, errors.Is(err, ErrOthers), test.others)
				}
				if took := time.Since(began); took < test.least || took > test.atMost {
					t.Errorf("failed after %v, want %v to %v", took, test.least, test.atMost)
				}
				if test.answer == "" {
					one.answer <- "Connection: close\r\n"
				}
				if err := <-first; err != nil {
					t.Error(err)
				}
				synctest.Wait()
				began = time.Now()
				if err := <-one.ask(t.Context()); !errors.Is(err, errNoName) || errors.Is(err, ErrOthers) || time.Since(began) > 0 {
					t.Errorf("without any connection: %v after %v", err, time.Since(began))
				}
			})
		})
	}
}

// TestPoolWaitEnds: a call that waits for a connection ends at once with its context and with its
// transport.
func TestPoolWaitEnds(t *testing.T) {
	gaveUp := errors.New("gave up")
	for name, test := range map[string]struct {
		end  func(one *oneConnection, cancel context.CancelCauseFunc)
		want error
	}{
		"context":   {func(_ *oneConnection, cancel context.CancelCauseFunc) { cancel(gaveUp) }, gaveUp},
		"transport": {func(one *oneConnection, _ context.CancelCauseFunc) { one.Close() }, ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			withOneConnection(t, func(t *testing.T, one *oneConnection) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				first, second := one.ask(t.Context()), one.ask(ctx)
				began := time.Now()
				go test.end(one, cancel)
				if err := <-second; !errors.Is(err, test.want) || time.Since(began) > 0 {
					t.Errorf("%v after %v, want %v at once", err, time.Since(began), test.want)
				}
				if test.want != ErrClosed {
					one.answer <- ""
				} else {
					go func() { one.answer <- "" }()
				}
				if err := <-first; err != nil && test.want != ErrClosed {
					t.Error(err)
				}
			})
		})
	}
}
