package oddities

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// This file serves a script over HTTP.

// mustServeHTTP serves a row for one client. The server has three origins: url has MCP at /mcp, as
// has the authorization server if it is apart, and other is that of a third party.
func mustServeHTTP(t testing.TB, r *row, kind, wire string) *server {
	t.Helper()
	s := newServer(r, kind)
	s.wire = wire
	for _, word := range []string{"url", "as", "other"} {
		ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			s.serve(w, q, word)
		}))
		ts.Config.ErrorLog = log.New(io.Discard, "", 0)
		kind, name := r.TLS, ""
		if r.SignIn == "named" && word != "url" {
			kind, name = "named", nameOf[word]
		}
		if kind == "" {
			ts.Start()
		} else {
			startTLS(t, ts, kind)
		}
		s.origin[word] = ts.URL
		if name != "" {
			s.origin[word] = strings.Replace(ts.URL, "127.0.0.1", name, 1)
		}
		t.Cleanup(func() {
			ts.CloseClientConnections()
			ts.Close()
		})
	}
	return s
}

// nameOf has the public names of the authorization server and of the third party. All clients resolve
// them to this machine.
var nameOf = map[string]string{"as": "as.example", "other": "api.example"}

// mcpURL is the address of MCP.
func (s *server) mcpURL() string {
	if s.wire == wireSSE {
		return s.origin["url"] + "/sse"
	}
	return s.origin["url"] + "/mcp"
}

func (s *server) serve(w http.ResponseWriter, q *http.Request, word string) {
	if s.wire == wireSSE && word == "url" && s.serveSSE(w, q) {
		return
	}
	text, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	a := s.askOf(q, word, text)
	if s.take(a) {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	p := s.answer(a)
	header := w.Header()
	for name, values := range p.headers {
		header[name] = values
	}
	body := p.message
	if _, set := header["Content-Type"]; body != "" && !set {
		header.Set("Content-Type", "application/json")
	}
	if len(p.before) > 0 && p.body == nil {
		header.Set("Content-Type", "text/event-stream")
		events := ""
		for _, text := range append(p.before, body) {
			events += "data: " + text + "\n\n"
		}
		body = events
	} else if p.body != nil {
		body = *p.body
	} else if strings.HasPrefix(header.Get("Content-Type"), "text/event-stream") {
		body = "data: " + body + "\n\n"
	}
	if _, set := header["Content-Type"]; !set {
		header["Content-Type"] = nil // net/http would guess
	}
	if p.asks != "" || p.then == "hang" && len(p.before) > 0 {
		header.Set("Content-Type", "text/event-stream")
		s.stay(w, q, p)
		return
	}
	switch p.then {
	case "hang":
		<-q.Context().Done()
		return
	case "cut":
		panic(http.ErrAbortHandler)
	}
	body = coded(p.coding, body)
	w.WriteHeader(p.status)
	if _, err := io.WriteString(w, body); err != nil {
		return
	}
	switch p.then {
	case "close":
		_ = http.NewResponseController(w).Flush() // the client may be gone
		panic(http.ErrAbortHandler)
	case "linger":
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
	}
}

// stay writes a stream whose last event waits: for the response of the client, or for ever.
func (s *server) stay(w http.ResponseWriter, q *http.Request, p *reply) {
	events := ""
	for _, text := range append(p.before, p.asks) {
		if text != "" {
			events += "data: " + text + "\n\n"
		}
	}
	w.WriteHeader(http.StatusOK)
	if _, err := io.WriteString(w, events); err != nil {
		return
	}
	_ = http.NewResponseController(w).Flush() // the client may be gone
	if p.then == "hang" {
		<-q.Context().Done()
		return
	}
	if answer := s.replyTo(p.asks, p.message, q.Context().Done()); answer != "" {
		_, _ = io.WriteString(w, "data: "+answer+"\n\n") // as above
	}
}

// askOf makes an ask of a request. A POST request to the path of MCP has a message.
func (s *server) askOf(q *http.Request, word string, text []byte) *ask {
	var a *ask
	if isMCP := word == "url" && strings.TrimSuffix(q.URL.Path, "/") == "/mcp"; isMCP && q.Method == http.MethodPost {
		a, _ = read(text)
	} else if isMCP {
		a = &ask{on: []string{q.Method}}
	}
	if a == nil {
		path := q.URL.Path
		if word != "url" {
			path = "$" + word + path
		}
		a = &ask{on: []string{q.Method + " " + path}}
	}
	if a.values == nil {
		a.values = map[string]string{}
	}
	a.session = q.Header.Get("Mcp-Session-Id")
	a.values["wire"], a.values["origin"], a.values["path"], a.values["method"] = wireHTTP, word, q.URL.Path, q.Method
	a.values["query"] = q.URL.RawQuery
	a.values["token"] = strings.TrimPrefix(q.Header.Get("Authorization"), "Bearer ")
	a.values["signed-in"] = map[bool]string{true: "yes", false: "no"}[s.grants.good(a.values["token"])]
	for name := range q.Header {
		a.values["header."+strings.ToLower(name)] = q.Header.Get(name)
	}
	if a.method == "" {
		s.readForm(a, q, text)
	}
	return a
}

// coded compresses a body.
func coded(coding, body string) string {
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "zlib":
		w = zlib.NewWriter(&b)
	case "deflate":
		w, _ = flate.NewWriter(&b, flate.DefaultCompression) // the level is good
	default:
		return body
	}
	_, _ = io.WriteString(w, body) // a buffer takes everything
	_ = w.Close()
	return b.String()
}
