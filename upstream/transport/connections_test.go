package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/upstream/raw"
)

// answersTwice is a server that writes each answer to a call a second time, just before the next answer
// on the connection. An answer has the name of its caller, which is the path.
type answersTwice struct {
	url string

	mu    sync.Mutex
	conns int
}

// mustAnswerTwice starts a server, with TLS or without.
func mustAnswerTwice(t *testing.T, secured bool) *answersTwice {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &answersTwice{url: "http://" + l.Addr().String()}
	if secured {
		certified := httptest.NewUnstartedServer(nil)
		certified.StartTLS()
		config := certified.TLS.Clone()
		certified.Close()
		config.NextProtos = []string{"http/1.1"}
		l, s.url = tls.NewListener(l, config), "https://"+l.Addr().String()
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns++
			s.mu.Unlock()
			serving.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return s
}

func (s *answersTwice) serve(c net.Conn) {
	defer c.Close()
	before := ""
	for in := bufio.NewReader(c); ; {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(r.Body)
		id, _ := raw.Get(body, "id")
		text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"for":"%s"}}`, id, r.URL.Path)
		answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		if _, err := io.WriteString(c, before+answer); err != nil {
			return
		}
		before = answer
	}
}

// TestSurplusAnswersHarmTheirOwnCaller: a server writes an answer twice. A later request of another
// transport of the upstream does not get it, also if both requests have one id, and the transport that
// caused the answer has one error at most before it uses another connection.
func TestSurplusAnswersHarmTheirOwnCaller(t *testing.T) {
	for _, wire := range []string{"http", "https"} {
		t.Run(wire, func(t *testing.T) {
			srv := mustAnswerTwice(t, wire == "https")
			pool := NewPool(srv.url)
			if wire == "https" {
				pool = trustingPool(t)
			}
			ask := func(w *streamable, id, who string) error {
				m, err := w.Call(short(t), call(id, "tools/call"), nil)
				if err == nil && (!strings.Contains(string(m.Result), `"/`+who+`"`) || string(m.ID) != id) {
					t.Errorf("the request %s of %s is answered %s", id, who, m.Append(nil))
				}
				return err
			}
			ann := mustHTTP(t, HTTPOptions{URL: srv.url + "/ann", Pool: pool}, nil)
			bob := mustHTTP(t, HTTPOptions{URL: srv.url + "/bob", Pool: pool}, nil)
			for _, id := range []string{"7", "8"} {
				if err := ask(ann, "7", "ann"); err != nil {
					t.Errorf("the call of ann: %v", err)
				}
				if err := ask(bob, id, "bob"); (err != nil) != (id == "8") {
					t.Errorf("the call %s of bob: %v; want an error of the second one", id, err)
				}
				ann.conns.closeIdle()
			}
			if err := ask(bob, "9", "bob"); err != nil {
				t.Errorf("a call after the surplus answer: %v", err)
			}
			srv.mu.Lock()
			defer srv.mu.Unlock()
			if srv.conns != 4 {
				t.Errorf("%d connections were made, want 4", srv.conns)
			}
		})
	}
}

// TestConnectionsOfHTTP2AreShared: HTTP/2 ties answers to requests, so that transports share its
// connections. If the server speaks only HTTP/1.1 later, each transport has its own ones.
func TestConnectionsOfHTTP2AreShared(t *testing.T) {
	srv := startRemote(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		sayJSON(w, 200, answer7)
	}, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() })
	pool := trustingPool(t)
	var all []*streamable
	ask := func(w *streamable) {
		t.Helper()
		if _, err := w.Call(short(t), call("7", "tools/call"), nil); err != nil {
			t.Error(err)
		}
	}
	for range 4 {
		w := mustHTTP(t, HTTPOptions{URL: srv.URL, Pool: pool}, nil)
		ask(w)
		all = append(all, w)
	}
	if n := srv.conns.Load(); n != 1 {
		t.Errorf("4 transports made %d connections, want 1", n)
	}
	srv.TLS.NextProtos = []string{"http/1.1"}
	srv.CloseClientConnections()
	for _, w := range all {
		w.Call(short(t), call("7", "tools/call"), nil) // may be lost with its connection
		ask(w)
	}
	if pool.shared.Load() != nil {
		t.Error("connections of HTTP/1.1 are shared")
	}
}

// TestAnswerOfAnotherRequestCountsForNothing: neither its session, nor its challenge, nor the end of a
// session is taken from an answer whose id is that of another request, and its connection is closed.
func TestAnswerOfAnotherRequestCountsForNothing(t *testing.T) {
	const other = `{"jsonrpc":"2.0","id":999,"error":{"code":-32600,"message":"canary-other"}}`
	for _, wire := range []string{"http", "https"} {
		for _, row := range []struct {
			name, method string
			status       int
			body         string
		}{
			{"a session", "initialize", 200, strings.Replace(answer7, ":7", ":999", 1)},
			{"a session in a stream", "initialize", 200, event("", strings.Replace(answer7, ":7", ":999", 1))},
			{"a challenge", "tools/call", 401, other},
			{"a long challenge", "tools/call", 401, strings.Replace(other, "canary", strings.Repeat("x", statusBody), 1)},
			{"no access", "tools/call", 403, other},
			{"the end of a session", "tools/call", 404, other},
			{"a bad request", "tools/call", 400, other},
			{"a failure", "tools/call", 500, other},
		} {
			t.Run(wire+" "+row.name, func(t *testing.T) {
				strange := false
				var deleted []string
				srv := startRemote(t, func(w http.ResponseWriter, r *http.Request) {
					m := mustParse(t, r)
					switch {
					case r.Method == http.MethodDelete:
						deleted = append(deleted, r.Header.Get("Mcp-Session-Id"))
					case !strange:
						w.Header().Set("Mcp-Session-Id", "own")
						sayJSON(w, 200, strings.Replace(answer7, ":7", ":"+string(m.ID), 1))
					case strings.Contains(row.body, "data: "):
						w.Header().Set("Mcp-Session-Id", "other")
						sayEvents(w, row.body)
					default:
						w.Header().Set("Mcp-Session-Id", "other")
						w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://evil"`)
						sayJSON(w, row.status, row.body)
					}
				}, map[string]func(*httptest.Server){"http": (*httptest.Server).Start, "https": (*httptest.Server).StartTLS}[wire])
				var refused []string
				o := HTTPOptions{URL: srv.URL, Pool: NewPool(srv.URL), Token: func(_ context.Context, list ...string) (string, error) {
					refused = append(refused, list...)
					return "canary-token", nil
				}}
				if wire == "https" {
					o.Pool = trustingPool(t)
				}
				w := mustHTTP(t, o, nil)
				if _, err := w.Call(short(t), call("6", "initialize"), nil); err != nil {
					t.Fatal(err)
				}
				strange = true
				_, err := w.Call(short(t), call("7", row.method), nil)
				if !errors.Is(err, ErrInvalid) || errors.As(err, new(*StatusError)) || errors.Is(err, ErrNotSent) || strings.Contains(err.Error(), "canary") {
					t.Errorf("the call fails with %v, want an invalid answer that is neither a status nor the other's words", err)
				}
				if row.name != "a long challenge" && len(refused) > 0 {
					t.Error("a token was refused by an answer of another request")
				}
				if w.Ended() || w.session.Load().id != "own" {
					t.Errorf("ended: %v, the session is %q; want the own one as before", w.Ended(), w.session.Load().id)
				}
				strange = false
				before := srv.conns.Load()
				if _, err := w.Call(short(t), call("8", "tools/call"), nil); err != nil || srv.conns.Load() != before+1 {
					t.Errorf("the next call: %v, over %d new connections, want 1", err, srv.conns.Load()-before)
				}
				if w.Close(); len(deleted) != 1 || deleted[0] != "own" {
					t.Errorf("the sessions %q were ended, want the own one", deleted)
				}
			})
		}
	}
}

// TestKeepAliveOfSecureConnections: with TLS, too, a connection is idle only as long as the server keeps
// it open by its own word.
func TestKeepAliveOfSecureConnections(t *testing.T) {
	srv := startRemote(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Keep-Alive", "timeout=5")
		sayJSON(w, 200, answer7)
	}, (*httptest.Server).StartTLS)
	w := mustHTTP(t, HTTPOptions{URL: srv.URL, Pool: trustingPool(t)}, nil)
	for range 4 {
		if _, err := w.Call(short(t), call("7", "tools/call"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.conns.alone.Load().IdleConnTimeout; got != 4*time.Second {
		t.Errorf("connections may be idle for %v, and the server closes them after 5 s", got)
	}
	if n := srv.conns.Load(); n != 2 {
		t.Errorf("%d connections, want the first and one for all later requests", n)
	}
}
