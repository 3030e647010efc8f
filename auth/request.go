package auth

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// RequestIDs gives each request an id, which appears on error pages, in the log and in the audit.
// An id is not secret; it contains the number of requests before it. It may be used by several
// goroutines. Make it with NewRequestIDs.
type RequestIDs struct {
	prefix string // distinguishes this process from others

	mu    sync.Mutex
	given uint64
	ready []string // the next ids, made in batches to save allocations
}

// NewRequestIDs returns the source of ids of a process.
func NewRequestIDs() *RequestIDs {
	return &RequestIDs{prefix: strings.ToLower(rand.Text()[:8]) + "-"}
}

const requestHeader = "X-Request-Id"

// Stamp sets the header X-Request-Id of a response to a new id.
func (r *RequestIDs) Stamp(w http.ResponseWriter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ready) == 0 {
		r.ready = make([]string, 32)
		var text strings.Builder
		text.Grow(len(r.ready) * (len(r.prefix) + 13))
		var digits [13]byte
		for i := range r.ready {
			begin := text.Len()
			r.given++
			text.WriteString(r.prefix)
			text.Write(strconv.AppendUint(digits[:0], r.given, 36))
			r.ready[i] = text.String()[begin:]
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
