package transport

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
)

func TestHTTPAnswers(t *testing.T) {
	const note = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`
	const question = `{"jsonrpc":"2.0","id":7,"method":"roots/list"}`
	other := strings.Replace(answer7, `"id":7`, `"id":"x7"`, 1)
	odd := strings.Replace(answer7, `"id":7`, `"id":"7"`, 1)
	real := strings.Replace(answer7, `"id":7`, `"id":7.0`, 1)
	eight := strings.Replace(answer7, `"id":7`, `"id":"8"`, 1)
	for _, tt := range []struct {
		name, media, body string
		want              string // the answer
		on                string // messages before it
		err               string
	}{
		{"json", "application/json", answer7, answer7, "", ""},
		{"json with charset", "Application/JSON; charset=utf-8", answer7, answer7, "", ""},
		{"json of a kind", "application/vnd.x+json", answer7, answer7, "", ""},
		{"json without type", "", answer7, answer7, "", ""},
		{"json called text", "text/plain", answer7, answer7, "", ""},
		{"events", "text/event-stream", event("", answer7), answer7, "", ""},
		{"events with charset", "Text/Event-Stream;charset=utf-8", event("", answer7), answer7, "", ""},
		{"events before", "text/event-stream", ": hi\n\n" + event("1", note) + "event: ping\ndata: x\n\n" + event("2", question) + event("3", answer7),
			answer7, note + question, ""},
		{"an event that is no message", "text/event-stream", "data: hello\n\n" + event("", answer7), answer7, "", ""},
		{"a foreign response before", "text/event-stream", event("", other) + event("", answer7), answer7, "", ""},
		{"error", "application/json", `{"jsonrpc":"2.0","id":7,"error":{"code":-5,"message":"m"}}`, `{"jsonrpc":"2.0","id":7,"error":{"code":-5,"message":"m"}}`, "", ""},
		{"error without id", "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-5,"message":"m"}}`,
			`{"jsonrpc":"2.0","error":{"code":-5,"message":"m"}}`, "", ""},

		{"the id as text", "application/json", odd, answer7, "", ""},
		{"the id as a float", "text/event-stream", event("", real), answer7, "", ""},
		{"a mark", "application/json", "\ufeff" + answer7, answer7, "", ""},
		{"a mark before events", "text/event-stream", "\ufeff" + event("", answer7), answer7, "", ""},
		{"a mark in an event", "text/event-stream", event("", "\ufeff"+answer7), answer7, "", ""},
		{"a batch of one", "application/json", "[" + answer7 + "]", answer7, "", ""},
		{"an event with a batch of one", "text/event-stream", event("", "["+answer7+"]"), answer7, "", ""},
		{"a batch", "application/json", "\ufeff [" + note + "," + answer7 + "," + question + "]", answer7, note + question, ""},
		{"null beside the result", "application/json", strings.Replace(answer7, `"id":7`, `"id":7,"error":null`, 1), answer7, "", ""},

		{"other id", "application/json", other, "", "", `invalid answer: the id "x7" to the request 7`},
		{"other number", "application/json", eight, "", "", `invalid answer: the id "8" to the request 7`},
		{"a batch with two answers", "application/json", "[" + answer7 + "," + odd + "]", "", "", "invalid answer: a batch with two responses to the request 7"},
		{"a batch with an answer to another request", "application/json", "[" + answer7 + "," + eight + "]", "", "", `invalid answer: a batch with the id "8" to the request 7`},
		{"a batch without the answer", "application/json", "[" + note + "]", "", "", "invalid answer: a message called \"notifications/progress\" to the request 7"},
		{"a batch of notifications", "application/json", "[" + note + "," + note + "]", "", "", "invalid answer: a batch without the response to the request 7"},
		{"a batch of many", "application/json", "[" + answer7 + strings.Repeat(","+note, 64) + "]", "", "", "invalid answer: a batch that is no array of at most 64 messages"},
		{"half a batch", "application/json", "[" + answer7, "", "", "invalid answer: a batch that is no array"},
		{"a request", "application/json", question, "", "", `invalid answer: a message called "roots/list" to the request 7`},
		{"half a json", "application/json", answer7[:20], "", "", "invalid answer: "},
		{"nothing", "application/json", "", "", "", "the server answered 200 OK with application/json and no message"},
		{"html", "text/html", "<html><head><title>Sign\n in &amp; go</title>", "", "", "the server answered 200 OK with text/html and no message: Sign in & go"},
		{"html called text", "text/plain", "<!doctype html><title>Hi</title>", "", "", "the server answered 200 OK with text/plain and no message: Hi"},
		{"events without answer", "text/event-stream", event("", note), "", note, "the stream ended before the answer: EOF"},
		{"events that break off", "text/event-stream", event("", answer7)[:40], "", "", "the stream ended before the answer: unexpected EOF"},
		{"events with another id", "text/event-stream", event("", other), "", "", `invalid answer: the stream ended before the answer, and had the id "x7" in place of 7`},
		{"an answer that is none", "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":7}\n\n", "", "", "invalid answer: not a JSON-RPC message"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Content-Type"] = nil
				if tt.media != "" {
					w.Header().Set("Content-Type", tt.media)
				}
				io.WriteString(w, tt.body)
			})
			w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
			var before []*jsonrpc.Message
			m, err := w.Call(short(t), call("7", "tools/call"), func(m *jsonrpc.Message) { before = append(before, m) })
			var on []byte
			for _, m := range before {
				on = m.Append(on)
			}
			if string(on) != tt.on {
				t.Errorf("messages before the answer: got %s, want %s", on, tt.on)
			}
			if tt.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.err) {
					t.Fatalf("got error %v, want %s", err, tt.err)
				}
				if errors.Is(err, ErrNotSent) {
					t.Errorf("error %v is errNotSent, and the request was sent", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := string(m.Append(nil)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestHTTPRequest(t *testing.T) {
	type seen struct {
		host, body string
		header     http.Header
	}
	got := make(chan seen, 1)
	srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got <- seen{r.Host, string(text), r.Header}
		sayJSON(w, 200, answer7)
	})
	u := strings.Replace(srv.URL, "127.0.0.1", "LocalHost", 1) // sent as written
	w := mustHTTP(t, HTTPOptions{URL: u, Headers: map[string]string{"x-api-key": "canary-k", "Authorization": "Bearer canary-t"}}, nil)
	long := func(size int) string { return `{"long":"` + strings.Repeat("x", size) + `"}` }
	for _, params := range []string{`{ "a" : 1.0}`, long(48 << 10), long(64 << 10), long(3 << 20)} {
		req := &Request{Message: jsonrpc.Message{ID: "7", Method: "tools/call", Params: []byte(params)},
			Header: []http1.Field{{Name: "mcp-method", Value: "tools/call"}, {Name: "Mcp-Name", Value: "n"}, {Name: HeaderVersion, Value: mcp.ProtocolVersion20260728}}}
		if _, err := w.Call(short(t), req, nil); err != nil {
			t.Fatal(err)
		}
		s := <-got
		if want := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + params + `}`; s.body != want {
			t.Errorf("got body of %d bytes %.80s, want %d bytes %.80s", len(s.body), s.body, len(want), want)
		}
		if "http://"+s.host != u {
			t.Errorf("got Host %s, want that of %s", s.host, u)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "X-Api-Key": "canary-k", "Authorization": "Bearer canary-t",
			"Mcp-Method": "tools/call", "Mcp-Name": "n", "Mcp-Protocol-Version": mcp.ProtocolVersion20260728, "Mcp-Session-Id": "", "Accept-Encoding": "identity",
		} {
			if v := s.header.Get(name); v != want {
				t.Errorf("got %s: %q, want %q", name, v, want)
			}
		}
	}
}

func TestHTTPStatuses(t *testing.T) {
	for _, tt := range []struct {
		status      int
		media, body string
		want        string
		message     bool
	}{
		{502, "text/html", "<html><title>Bad Gateway</title></html>", "the server answered 502 Bad Gateway: Bad Gateway", false},
		{502, "text/html; charset=utf-8", "<html>no title", "the server answered 502 Bad Gateway", false},
		{500, "text/plain", "boom\nstack trace", "the server answered 500 Internal Server Error: boom", false},
		{500, "", "", "the server answered 500 Internal Server Error", false},
		{418, "application/octet-stream", "\x00\x01", "the server answered 418 I'm a teapot", false},
		{599, "text/plain", strings.Repeat("é", 3000), "the server answered 599: " + strings.Repeat("é", 200) + "…", false},
		{400, "application/json", `{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"no"}}`, "the server answered 400 Bad Request: no (code -32022)", true},
		{400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no"}}`, "the server answered 400 Bad Request: no (code -32000)", true},
		{404, "application/json", `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no","data":"` + strings.Repeat("x", 9000) + `"}}`,
			"the server answered 404 Not Found: no (code -32601)", true},
		{400, "application/json", `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32000,"message":"no"}}`,
			`the server answered 400 Bad Request: {"jsonrpc":"2.0","id":"server-error","error":{"code":-32000,"message":"no"}}`, false},
		{401, "application/json", `{"error":"invalid_token"}`, `the server answered 401 Unauthorized: {"error":"invalid_token"}`, false},
		{404, "application/json", `{"jsonrpc":"2.0","id":7,"result":{}}`, "the server answered 404 Not Found, with a result in it", false},
		{202, "", "", "the server answered 202 Accepted and no message", false},
		{204, "", "", "the server answered 204 No Content and no message", false},
	} {
		t.Run(fmt.Sprint(tt.status, tt.body), func(t *testing.T) {
			srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Content-Type"] = nil
				if tt.media != "" {
					w.Header().Set("Content-Type", tt.media)
				}
				w.Header().Set("Retry-After", "3")
				w.Header().Set("WWW-Authenticate", "Bearer x")
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body)
			})
			w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
			for range 3 {
				_, err := w.Call(short(t), call("7", "tools/call"), nil)
				status, ok := err.(*StatusError)
				if !ok {
					t.Fatalf("got error %v of type %[1]T, want a *statusError", err)
				}
				if got := status.Error(); got != tt.want {
					t.Errorf("got %s, want %s", got, tt.want)
				}
				if status.Status != tt.status || (status.Message != nil) != tt.message || len(status.Body) > 4096 || status.RetryAfter != 3*time.Second ||
					fmt.Sprint(status.Challenge) != "[Bearer x]" {
					t.Errorf("got %d, message %v, body of %d, retry after %v, challenge %v", status.Status, status.Message, len(status.Body), status.RetryAfter, status.Challenge)
				}
			}
			if n := srv.conns.Load(); n > 1 && len(tt.body) < 4096 {
				t.Errorf("got %d connections, want one", n)
			}
		})
	}
}

func TestHTTPSession(t *testing.T) {
	srv, seen := legacyRemote(t, "s-1", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Mcp-Session-Id", "another") // means nothing here
		sayJSON(w, 200, answer7)
	})
	w := mustHTTP(t, HTTPOptions{URL: srv.URL, Headers: map[string]string{"X-Api-Key": "canary-k"}}, nil)
	initialized := &Request{Message: jsonrpc.Message{Method: "notifications/initialized"}}
	for _, step := range []struct {
		do               func() error
		rpc              string
		session, version string
	}{
		{func() error { _, err := w.Call(short(t), call("1", "initialize"), nil); return err }, "initialize", "", ""},
		{func() error { w.SetVersion("2025-11-25"); return w.Send(short(t), initialized) }, "notifications/initialized", "s-1", "2025-11-25"},
		{func() error { _, err := w.Call(short(t), call("7", "tools/call"), nil); return err }, "tools/call", "s-1", "2025-11-25"},
		{func() error { _, err := w.Call(short(t), call("7", "tools/call"), nil); return err }, "tools/call", "s-1", "2025-11-25"},
		{func() error { _, err := w.Call(short(t), call("2", "initialize"), nil); return err }, "initialize", "", ""},
		{w.Close, "", "s-1", "2025-11-25"},
		{w.Close, "none", "", ""},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		select {
		case s := <-seen:
			if s.rpc != step.rpc || s.header.Get("Mcp-Session-Id") != step.session || s.header.Get("Mcp-Protocol-Version") != step.version ||
				s.header.Get("X-Api-Key") != "canary-k" || (s.method == "DELETE") != (step.rpc == "") {
				t.Errorf("got %s %s with session %q, version %q and key %q; want %+v", s.method, s.rpc, s.header.Get("Mcp-Session-Id"),
					s.header.Get("Mcp-Protocol-Version"), s.header.Get("X-Api-Key"), step)
			}
		default:
			if step.rpc != "none" {
				t.Errorf("got no request, want %s", step.rpc)
			}
		}
	}
	if err := w.Wait(); err != nil {
		t.Errorf("Wait after Close: got %v, want nil", err)
	}
	if _, err := w.Call(short(t), call("7", "tools/call"), nil); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrNotSent) {
		t.Errorf("Call after Close: got %v, want errClosed and errNotSent", err)
	}
}

func TestHTTPSessionInvalid(t *testing.T) {
	for _, id := range []string{"a\tb", "é", strings.Repeat("x", 1025)} {
		srv, _ := legacyRemote(t, id, nil)
		w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
		if _, err := w.Call(short(t), call("1", "initialize"), nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("session id %.20q: got error %v, want errInvalid", id, err)
		}
	}
}

// TestHTTPSessionWithSpaces: the specification does not allow a space in a session id, and some servers have one.
func TestHTTPSessionWithSpaces(t *testing.T) {
	const id = "a b/c=+;,~!"
	srv, seen := legacyRemote(t, id, func(w http.ResponseWriter, r *http.Request) { sayJSON(w, 200, answer7) })
	w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
	for _, r := range []*Request{call("1", "initialize"), call("7", "tools/call")} {
		if _, err := w.Call(short(t), r, nil); err != nil {
			t.Fatal(err)
		}
	}
	<-seen
	if got := (<-seen).header.Get("Mcp-Session-Id"); got != id {
		t.Errorf("the session id returns as %q", got)
	}
}

func TestHTTPSessionGone(t *testing.T) {
	type reply struct {
		status int
		body   string
	}
	ok := reply{200, answer7}
	for _, tt := range []struct {
		name    string
		replies []reply // to requests after initialize
		gone    bool    // at the last
	}{
		{"404", []reply{{404, "Session not found"}}, true},
		{"404 with an error without id", []reply{ok, {404, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}`}}, true},
		{"404 with an error of another id", []reply{{404, `{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}`}}, true},
		{"404 about the method", []reply{ok, {404, `{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no such method"}}`}}, false},
		{"400 before it worked", []reply{{400, "bad session"}}, false},
		{"400 about the request", []reply{ok, {400, `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"bad params"}}`}}, false},
		{"500", []reply{ok, {500, ""}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			next := 0
			srv, seen := legacyRemote(t, "s-1", func(w http.ResponseWriter, r *http.Request) {
				p := tt.replies[next]
				next++
				sayJSON(w, p.status, p.body)
			})
			w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
			if _, err := w.Call(short(t), call("1", "initialize"), nil); err != nil {
				t.Fatal(err)
			}
			var err error
			for range tt.replies {
				_, err = w.Call(short(t), call("7", "tools/call"), nil)
			}
			status := new(StatusError)
			if !errors.As(err, &status) {
				t.Errorf("got error %v, want a *statusError in it", err)
			}
			if got := errors.Is(err, ErrSessionGone) && errors.Is(err, ErrNotSent); got != tt.gone {
				t.Errorf("got error %v; is it errSessionGone: %v, want %v", err, got, tt.gone)
			}
			if w.Ended() != tt.gone {
				t.Errorf("ended: got %v, want %v", w.Ended(), tt.gone)
			}
			if !tt.gone {
				return
			}
			if err := w.Wait(); !errors.Is(err, ErrSessionGone) || !strings.HasSuffix(err.Error(), http.StatusText(tt.replies[len(tt.replies)-1].status)) {
				t.Errorf("Wait: got %v, want errSessionGone without the words, which are the caller's", err)
			}
			if _, err := w.Call(short(t), call("8", "tools/call"), nil); !errors.Is(err, ErrSessionGone) || !errors.Is(err, ErrNotSent) {
				t.Errorf("the next call: got %v, want errSessionGone and errNotSent", err)
			}
			w.Close()
			if n := len(seen); n != 1+len(tt.replies) {
				t.Errorf("the server got %d requests, want %d: none after the session was gone", n, 1+len(tt.replies))
			}
		})
	}
}

// TestHTTPInitializeAgain guards that the refusal of a handshake says nothing about the session
// that there was before.
func TestHTTPInitializeAgain(t *testing.T) {
	first := true
	srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		if !first {
			http.NotFound(w, r)
			return
		}
		first = false
		w.Header().Set("Mcp-Session-Id", "s-1")
		sayJSON(w, 200, answer7)
	})
	w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
	if _, err := w.Call(short(t), call("7", "initialize"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Call(short(t), call("7", "initialize"), nil); err == nil || errors.Is(err, ErrSessionGone) || w.Ended() {
		t.Errorf("got error %v and ended %v, want a failure that is not about the session", err, w.Ended())
	}
}

func TestHTTPSessionless404(t *testing.T) {
	srv := newRemote(t, http.NotFound)
	w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
	for _, method := range []string{"server/discover", "initialize"} {
		if _, err := w.Call(short(t), call("7", method), nil); errors.Is(err, ErrSessionGone) || errors.Is(err, ErrNotSent) {
			t.Errorf("%s: got %v, which is about a session", method, err)
		}
	}
}

// TestHTTPCloseHung guards that a server that does not answer to DELETE holds Close up for no
// longer than it may.
func TestHTTPCloseHung(t *testing.T) {
	deleted := make(chan bool, 1)
	srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			deleted <- true
			<-r.Context().Done()
			return
		}
		w.Header().Set("Mcp-Session-Id", "s-1")
		sayJSON(w, 200, answer7)
	})
	w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
	if _, err := w.Call(short(t), call("7", "initialize"), nil); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	w.Close()
	if took := time.Since(start); took > 20*deleteTime { // a machine that is slow, and not a server that never answers
		t.Errorf("Close took %v", took)
	}
	<-deleted
}

func TestHTTPSend(t *testing.T) {
	status := 202
	srv := newRemote(t, func(w http.ResponseWriter, r *http.Request) {
		m := mustParse(t, r)
		if m.IsRequest() {
			t.Errorf("got a request")
		}
		w.WriteHeader(status)
		if status == 200 {
			io.WriteString(w, "{}")
		}
	})
	w := mustHTTP(t, HTTPOptions{URL: srv.URL}, nil)
	for _, m := range []jsonrpc.Message{{Method: "notifications/cancelled", Params: []byte("{}")}, {ID: "1", Result: []byte("{}")}} {
		for _, status = range []int{200, 202, 204} {
			if err := w.Send(short(t), &Request{Message: m}); err != nil {
				t.Errorf("%d: %v", status, err)
			}
		}
		status = 400
		if _, ok := w.Send(short(t), &Request{Message: m}).(*StatusError); !ok {
			t.Errorf("400: want a *statusError")
		}
	}
	if n := srv.conns.Load(); n != 1 {
		t.Errorf("got %d connections, want one", n)
	}
}

func TestRetryAfter(t *testing.T) {
	for _, tt := range []struct {
		text      string
		low, high time.Duration
	}{
		{"", 0, 0}, {"5", 5 * time.Second, 5 * time.Second}, {"-1", 0, 0}, {"soon", 0, 0}, {"99999999999999", 0, 0},
		{time.Now().Add(time.Minute).UTC().Format(http.TimeFormat), 50 * time.Second, time.Minute},
		{time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat), 0, 0},
	} {
		if got := retryAfter(http.Header{"Retry-After": {tt.text}}); got < tt.low || got > tt.high {
			t.Errorf("retryAfter(%q) = %v, want %v to %v", tt.text, got, tt.low, tt.high)
		}
	}
}

// TestLacks: what a server writes into a challenge ends up in a command line, so only plain scopes do.
func TestLacks(t *testing.T) {
	for _, tt := range []struct {
		status    int
		challenge string
		want      string
		lacks     bool
	}{
		{403, `Bearer error="insufficient_scope", scope="a:b c/d"`, "a:b c/d", true},
		{403, `Bearer scope="https://x.example/y", error=insufficient_scope`, "https://x.example/y", true},
		{403, `Bearer error="insufficient_scope", scope="$(id) ;ls --config=x 'q' ok"`, "ok", true},
		{403, `Bearer error="insufficient_scope"`, "", true},
		{403, `Bearer error="insufficient_scope_x", scope="a"`, "", false},
		{403, `Bearer error="invalid_token", scope="a"`, "", false},
		{403, ``, "", false},
		{401, `Bearer error="insufficient_scope", scope="a"`, "", false},
	} {
		e := &StatusError{Status: tt.status, Challenge: []string{tt.challenge}}
		scopes, lacks := e.Lacks()
		if got := strings.Join(scopes, " "); got != tt.want || lacks != tt.lacks {
			t.Errorf("Lacks of %d %s = %q, %v, want %q, %v", tt.status, tt.challenge, got, lacks, tt.want, tt.lacks)
		}
	}
}
