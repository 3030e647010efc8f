package oddities

import (
	"fmt"
	"io"
	"net/http"
)

// This file serves a script over HTTP+SSE of 2024-11-05: the answers come on the stream of GET /sse,
// and the requests are posted to the address that the first event of the stream names.

// serveSSE reports whether a request was one of HTTP+SSE.
func (s *server) serveSSE(w http.ResponseWriter, q *http.Request) bool {
	switch q.Method + " " + q.URL.Path {
	case "GET /sse":
		s.stream(w, q)
	case "POST /message":
		s.post(w, q)
	default:
		return false
	}
	return true
}

// stream writes the events of a client until the client leaves.
func (s *server) stream(w http.ResponseWriter, q *http.Request) {
	a := &ask{on: []string{"GET /sse"}, values: map[string]string{"wire": wireSSE}}
	s.mu.Lock()
	events := make(chan string, 100)
	s.streams = append(s.streams, events)
	number := len(s.streams)
	s.mu.Unlock()
	p := s.answer(a)
	if p.then == "cut" {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for name, values := range p.headers {
		w.Header()[name] = values
	}
	w.WriteHeader(p.status)
	first := fmt.Sprintf("event: endpoint\ndata: /message?session=%d\n\n", number)
	if p.body != nil {
		first = *p.body
	}
	for text := first; ; {
		if _, err := io.WriteString(w, text); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush() // the client may be gone
		var open bool
		select {
		case text, open = <-events:
			if !open {
				return
			}
		case <-q.Context().Done():
			return
		}
	}
}

// post answers a message on the stream of its session.
func (s *server) post(w http.ResponseWriter, q *http.Request) {
	text, err := io.ReadAll(q.Body)
	if err != nil {
		return
	}
	a, err := read(text)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.values["wire"] = wireSSE
	p := s.answer(a)
	var number int
	_, _ = fmt.Sscan(q.URL.Query().Get("session"), &number) // a number of stream, or 0
	if p.then == "cut" {
		panic(http.ErrAbortHandler)
	}
	events := ""
	for _, text := range p.before {
		events += "event: message\ndata: " + text + "\n\n"
	}
	switch {
	case p.then == "hang":
	case p.body != nil:
		events += *p.body
	case p.message != "":
		events += "event: message\ndata: " + p.message + "\n\n"
	}
	for name, values := range p.headers {
		w.Header()[name] = values
	}
	status := http.StatusAccepted
	if p.status >= http.StatusBadRequest || p.posted != "" {
		status = max(p.status, http.StatusOK)
	}
	w.WriteHeader(status)
	if _, err := io.WriteString(w, p.posted); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if number < 1 || number > len(s.streams) || s.streams[number-1] == nil {
		return
	}
	s.streams[number-1] <- events
	if p.then == "close" {
		close(s.streams[number-1])
		s.streams[number-1] = nil
	}
}
