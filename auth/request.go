package auth

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// RequestIDs gives each request an id, by which a person who was shown an error, the log and the
// audit mean the same request. An id is no secret, and says how many requests there were before it.
// Several goroutines may use it at once; NewRequestIDs makes one.
type RequestIDs struct {
	prefix string // tells the ids of this process from those of others

	mu    sync.Mutex
	given uint64
	ready []string // a part of those that come next: one piece of memory for many requests
}

// NewRequestIDs returns the ids of a process.
func NewRequestIDs() *RequestIDs {
	return &RequestIDs{prefix: strings.ToLower(rand.Text()[:8]) + "-"}
}

const requestHeader = "X-Request-Id"

// Stamp gives the request that w answers its id, which is in the header X-Request-Id of the answer
// from then on.
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

// RequestID returns the id of the request that w answers, "" where nobody has given it one.
func RequestID(w http.ResponseWriter) string {
	if id := w.Header()[requestHeader]; len(id) > 0 {
		return id[0]
	}
	return ""
}
