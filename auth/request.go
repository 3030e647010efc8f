package auth

import (
	"crypto/rand"
	"encoding/base32"
	"log/slog"
	"net/http"
	"strings"
	"sync"
)

// RequestIDs gives each request an id, which appears on error pages, in the log and in the audit.
// An id is not secret. It is random, so that it does not show how many requests others send. RequestIDs
// may be used by several goroutines. Make it with NewRequestIDs.
type RequestIDs struct {
	mu    sync.Mutex
	ready []string // the next ids, made in batches to save allocations
}

// NewRequestIDs returns the source of ids of a process.
func NewRequestIDs() *RequestIDs { return new(RequestIDs) }

const (
	requestHeader = "X-Request-Id"
	requestBytes  = 10 // of an id, which has 16 characters
)

// Stamp sets the header X-Request-Id of a response to a new id.
func (r *RequestIDs) Stamp(w http.ResponseWriter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ready) == 0 {
		r.ready = make([]string, 32)
		var random [32 * requestBytes]byte
		_, _ = rand.Read(random[:]) // never fails
		text := strings.ToLower(base32.StdEncoding.EncodeToString(random[:]))
		for i, size := 0, len(text)/len(r.ready); i < len(r.ready); i++ {
			r.ready[i] = text[i*size : (i+1)*size]
		}
	}
	w.Header()[requestHeader] = r.ready[:1:1]
	r.ready = r.ready[1:]
}

// RequestID returns the id of the request that w answers, "" if it has none.
func RequestID(w http.ResponseWriter) string {
	if id := w.Header()[requestHeader]; len(id) > 0 {
		return id[0]
	}
	return ""
}

// traceparentSize is the length of a traceparent of version 00: version, trace, span and flags.
const traceparentSize = len("00-") + 32 + len("-") + 16 + len("-00")

// TraceID returns the id of the trace that a request belongs to by its header traceparent (W3C Trace
// Context), in hexadecimal digits; "" if it belongs to none.
func TraceID(r *http.Request) string {
	list := r.Header["Traceparent"]
	if len(list) != 1 || len(list[0]) < traceparentSize || list[0][:2] == "ff" {
		return ""
	}
	text, more := list[0][:traceparentSize], list[0][traceparentSize:]
	if more != "" && (text[:2] == "00" || more[0] != '-') { // later versions may have more fields
		return ""
	}
	for i, c := range []byte(text) {
		if i == 2 || i == 35 || i == 52 {
			if c != '-' {
				return ""
			}
		} else if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	if id, span := text[3:35], text[36:52]; strings.Trim(id, "0") != "" && strings.Trim(span, "0") != "" {
		return id
	}
	return ""
}

// LogIDs returns the attributes request_id and, if the request belongs to a trace, trace_id.
func LogIDs(w http.ResponseWriter, r *http.Request) slog.Attr {
	return LoggedIDs(RequestID(w), TraceID(r))
}

// LoggedIDs is LogIDs for known ids.
func LoggedIDs(request, trace string) slog.Attr {
	ids := []slog.Attr{slog.String("request_id", request)}
	if trace != "" {
		ids = append(ids, slog.String("trace_id", trace))
	}
	return slog.GroupAttrs("", ids...) // no name: the attributes belong to the line
}
