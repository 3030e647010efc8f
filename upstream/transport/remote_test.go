package transport

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth/authtest"
	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
)

// remote is an HTTP server that counts its connections.
type remote struct {
	*httptest.Server
	conns atomic.Int32
}

// newRemote starts a server; requests that still hang at the end of the test are broken off.
func newRemote(t testing.TB, h http.HandlerFunc) *remote {
	t.Helper()
	return startRemote(t, h, (*httptest.Server).Start)
}

func startRemote(t testing.TB, h http.HandlerFunc, start func(*httptest.Server)) *remote {
	t.Helper()
	r := &remote{Server: httptest.NewUnstartedServer(h)}
	r.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			r.conns.Add(1)
		}
	}
	r.Config.ErrorLog = log.New(io.Discard, "", 0)
	start(r.Server)
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	return r
}

// mustHTTP opens a transport that is closed at the end of the test, and must have left no goroutine
// then.
func mustHTTP(t testing.TB, o HTTPOptions, in Receiver) *streamable {
	t.Helper()
	if in == nil {
		in = func(m *jsonrpc.Message) { t.Errorf("unexpected message %s", m.Append(nil)) }
	}
	o.Log = authtest.Log(t)
	w := OpenHTTP(o, in).(*streamable)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		mustBeGone(t)
	})
	return w
}

// mustBeGone fails when goroutines of HTTP transports are left. One that was ended may need a
// moment to be gone.
func mustBeGone(t testing.TB) {
	t.Helper()
	var left []string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); runtime.Gosched() {
		b := make([]byte, 1<<20)
		left = slices.DeleteFunc(strings.Split(string(b[:runtime.Stack(b, true)]), "\n\n"), func(stack string) bool {
			return !strings.Contains(stack, "transport.(*streamable)") && !strings.Contains(stack, "transport.(*origin)") && !strings.Contains(stack, "transport.(*sse)")
		})
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
}

func call(id, method string) *Request {
	return &Request{Message: jsonrpc.Message{ID: jsonrpc.ID(id), Method: method, Params: []byte(`{"a":1}`)}}
}

func modernCall(id, method string) *Request {
	r := call(id, method)
	r.Header = []http1.Field{{Name: HeaderVersion, Value: mcp.ProtocolVersion20260728}}
	return r
}

// sayJSON answers with a JSON text, and sayEvents with an event stream that ends.
func sayJSON(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.WriteString(w, text)
}

func sayEvents(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

// event is one event with an id, unless that is "".
func event(id, data string) string { return string(jsonrpc.AppendEvent(nil, id, []byte(data))) }

// mustParse reads the request's body.
func mustParse(t testing.TB, r *http.Request) jsonrpc.Message {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Errorf("read the request: %v", err)
	}
	if len(text) == 0 {
		return jsonrpc.Message{}
	}
	m, err := jsonrpc.Parse(text, 100)
	if err != nil {
		t.Errorf("parse %q: %v", text, err)
	}
	return m
}

func short(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

const answer7 = `{"jsonrpc":"2.0","id":7,"result":{"big":12345678901234567890, "x":1.0}}`

type seenRequest struct {
	method, rpc string
	header      http.Header
}

// legacyRemote answers initialize with a session, and leaves to rest what is not about the session.
// What comes is sent to the channel.
func legacyRemote(t *testing.T, session string, rest http.HandlerFunc) (*remote, chan seenRequest) {
	seen := make(chan seenRequest, 100)
	srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		m := mustParse(t, r)
		seen <- seenRequest{r.Method, m.Method, r.Header}
		switch {
		case m.Method == "initialize":
			w.Header().Set("Mcp-Session-Id", session)
			sayJSON(w, 200, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{}}`)
		case m.Method == "notifications/initialized":
			w.WriteHeader(202)
		case r.Method == http.MethodDelete:
			w.WriteHeader(200)
		default:
			rest(w, r)
		}
	})
	return srv, seen
}

// pour writes until the client has gone.
func pour(w http.ResponseWriter, b []byte) {
	for {
		if _, err := w.Write(b); err != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}

// trustingPool returns a pool over net/http that accepts any certificate, also for http URLs.
func trustingPool(t *testing.T) *Pool {
	p := NewPool("https://server")
	p.http.TLSClientConfig.InsecureSkipVerify = true
	t.Cleanup(p.CloseIdleConnections)
	return p
}
