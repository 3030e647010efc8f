package front

import (
	"io"
	"maps"
	"net/http"
	"time"
)

// This file writes the response of another process to a client, as it arrives.

// relayWriter is the ResponseWriter for a request that another process answers. Each write has a
// timeout. The header fields of the other process replace those that this process has set.
type relayWriter struct {
	http.ResponseWriter
	timeout time.Duration
	header  http.Header
	begun   bool
}

// newRelay returns the relayWriter for a request. It replaces r.Body: after the body has been read, the read
// timeout of the http.Server no longer applies, because the response may take longer.
func newRelay(w http.ResponseWriter, r *http.Request, timeout time.Duration) *relayWriter {
	// Without full duplex, net/http closes the body when the response begins, even if its end was
	// not read yet. That would break the connection to the other process.
	http.NewResponseController(w).EnableFullDuplex() // a ResponseWriter without it never closes the body
	if r.ContentLength == 0 || r.Body == nil {
		clearReadDeadline(w)
	} else if _, before := r.Body.(*timedBody); !before {
		r.Body = &timedBody{r.Body, w}
	}
	return &relayWriter{ResponseWriter: w, timeout: timeout, header: http.Header{}}
}

// Unwrap is for http.ResponseController.
func (w *relayWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Header implements http.ResponseWriter.
func (w *relayWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *relayWriter) WriteHeader(status int) {
	maps.Copy(w.ResponseWriter.Header(), w.header)
	w.begun = w.begun || status >= http.StatusOK
	w.deadline()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *relayWriter) Write(b []byte) (int, error) {
	w.begin()
	w.deadline()
	return w.ResponseWriter.Write(b)
}

// FlushError is for http.ResponseController.
func (w *relayWriter) FlushError() error {
	w.begin()
	w.deadline()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

func (w *relayWriter) begin() {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
}

func (w *relayWriter) deadline() {
	// if this fails, the write returns the error
	http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(w.timeout))
}

// timedBody removes the read deadline of a connection when the body has been read.
type timedBody struct {
	io.ReadCloser
	w http.ResponseWriter
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		clearReadDeadline(b.w)
	}
	return n, err
}

// clearReadDeadline removes the read deadline of the http.Server after a request was read, so that
// the answer may take longer.
func clearReadDeadline(w http.ResponseWriter) {
	http.NewResponseController(w).SetReadDeadline(time.Time{}) // without support for deadlines there is none to clear
}
