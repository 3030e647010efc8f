package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"junction/proxy/origin"
)

// Limits of the HTTP server.
const (
	maxBody   = 4 << 20
	readTime  = 30 * time.Second
	stopGrace = 5 * time.Second
)

// Path is the path of the MCP endpoint.
const Path = "/mcp"

// Listen listens on a loopback address. It refuses other addresses, because this server has no
// authentication. Junction can serve the pack to other machines.
func Listen(address string) (net.Listener, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("%q is no address; write 127.0.0.1:8430", address)
	}
	if !origin.HostIn(address, nil) {
		return nil, fmt.Errorf("cannot listen on %s, because a pack has no authentication; "+
			"listen on 127.0.0.1, and make the pack an upstream of Junction for others", address)
	}
	return net.Listen("tcp", address)
}

// ServeHTTP serves Streamable HTTP of both eras on a listener, which it closes, until ctx is done.
func (s *Server) ServeHTTP(ctx context.Context, l net.Listener) error {
	streamable := server.NewStreamableHTTPServer(s.mcp, server.WithEndpointPath(Path),
		server.WithStateful(true), server.WithStreamableHTTPLogger(s.log))
	mux := http.NewServeMux()
	mux.Handle(Path, s.guard(streamable))
	h := &http.Server{Handler: mux, ReadTimeout: readTime, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan error, 1)
	go func() { ended <- h.Serve(l) }() // ends with Shutdown or Close
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	if err := h.Shutdown(last); err != nil {
		h.Close() // open streams do not end by themselves
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// guard rejects requests that mcp-go would accept: those of web pages, large bodies, and the
// cancellation of a request that may belong to another client.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from := r.Header.Get("Origin"); from != "" && !(from == "http://"+r.Host && origin.HostIn(r.Host, nil)) {
			http.Error(w, "Requests of web pages are not accepted (header Origin).", http.StatusForbidden)
			return
		}
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, fmt.Sprintf("The body could not be read, or is larger than %d bytes.", maxBody),
				http.StatusRequestEntityTooLarge)
			return
		}
		if r.Header.Get(server.HeaderKeySessionID) == "" && cancels(body) {
			// Without a session, mcp-go would look for the id among the requests of all clients. A
			// client of the modern era closes the stream of the request instead.
			w.WriteHeader(http.StatusAccepted)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if s.ofSkills(body) {
			s.exchange(w, r, body, next)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// cancels reports whether a message is a cancellation.
func cancels(body []byte) bool {
	var m struct {
		Method string `json:"method"`
	}
	return json.Unmarshal(body, &m) == nil && m.Method == string(mcp.MethodNotificationCancelled)
}
