package listeners

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"junction/auth"
)

// This file answers a request whose handler has a fault, on every address of Junction.

// Guarded returns a handler that logs a panic of h at the level error, and answers the request with a
// sentence. If the answer has begun, it breaks the connection, so that the client sees that the
// answer is not complete. http.ErrAbortHandler passes: a handler breaks the connection by it.
func Guarded(log *slog.Logger, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &beginning{ResponseWriter: w}
		defer func() {
			problem := recover()
			if problem == nil {
				return
			}
			if problem == http.ErrAbortHandler { //nolint // the value itself, as net/http has it
				panic(http.ErrAbortHandler)
			}
			// neither the query nor a header, because these have secrets
			log.Error("a request was not answered: junction has a fault", "method", r.Method, "path", r.URL.Path,
				auth.LogIDs(w, r), "panic", fmt.Sprint(problem), "stack", string(debug.Stack()))
			if out.begun {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("Connection", "close") // the body may be read in part only
			http.Error(w, "Junction has a fault and cannot answer this request. The log has the details, at the level "+
				"error.", http.StatusInternalServerError)
		}()
		h.ServeHTTP(out, r)
	})
}

// beginning is a ResponseWriter that knows whether the answer has begun.
type beginning struct {
	http.ResponseWriter
	begun bool
}

// Unwrap is for http.ResponseController.
func (b *beginning) Unwrap() http.ResponseWriter { return b.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (b *beginning) WriteHeader(status int) {
	b.begun = true
	b.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (b *beginning) Write(text []byte) (int, error) {
	b.begun = true
	return b.ResponseWriter.Write(text)
}

// FlushError is for http.ResponseController.
func (b *beginning) FlushError() error {
	b.begun = true
	return http.NewResponseController(b.ResponseWriter).Flush()
}
