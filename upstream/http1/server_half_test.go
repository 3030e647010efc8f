package http1

import (
	"bufio"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestHalfClosedConnectionIsAnswered sends several requests at once and then FIN, over a real socket.
// The first request takes until the server has noticed. Both servers answer all of the requests.
func TestHalfClosedConnectionIsAnswered(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
		}
		io.WriteString(w, r.URL.Path+string(body))
	}
	get := "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n"
	for name, wire := range map[string]string{
		"two":                     post("/slow", "1") + post("/echo", "2"),
		"a GET first":             get + post("/echo", "2"),
		"many":                    post("/slow", "1") + strings.Repeat(post("/slow", "x")+get, 10) + post("/echo", "last"),
		"one for the http.Server": post("/slow", "1") + "PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n2",
		"a part of another":       post("/slow", "1") + post("/echo", "2") + "POST /echo HT",
		"line breaks":             post("/slow", "1") + "\r\n" + post("/echo", "2") + "\r\n",
		"one alone":               post("/slow", "1"),
	} {
		var want []string
		for _, kind := range []string{"net/http", "plain"} {
			got := halfClosed(t, kind, handler, wire)
			if want == nil {
				want = got
			}
			if a, b := strings.Join(got, " "), strings.Join(want, " "); a != b {
				t.Errorf("%s: %s answers %q, want %q", name, kind, a, b)
			}
		}
		if requests := strings.Count(wire, "HTTP/1.1"); len(want) != requests {
			t.Errorf("%s: net/http answers %q, want %d answers", name, want, requests)
		}
	}
}

// halfClosed sends the wire and FIN to a server, and returns the bodies of its answers.
func halfClosed(t *testing.T, kind string, handler http.HandlerFunc, wire string) []string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	var s server = h
	if kind == "plain" {
		s = &Server{HTTP: h}
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	defer func() {
		s.Close()
		<-done
	}()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(nc, wire); err != nil {
		t.Fatal(err)
	}
	if err := nc.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for r := bufio.NewReader(nc); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return all
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if resp.StatusCode == http.StatusOK { // a part of a request may be answered by 400
			all = append(all, string(body))
		}
	}
}
