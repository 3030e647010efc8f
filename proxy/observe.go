package proxy

import (
	"net/http"

	"junction/proxy/budget"
	"junction/upstream"
	"junction/upstream/raw"
)

// Observer observes the requests of clients, for metrics and traces. Its methods are called by many
// goroutines at once and must not block.
type Observer interface {
	// Begin is called before a request is dispatched. info has the facts about the caller and the
	// method. meta is params._meta. The Trace is passed to the calls of upstreams for the request,
	// and to End.
	Begin(info *CallInfo, meta raw.Object, header http.Header) upstream.Trace
	// End is called once for each Begin, after the answer was written, with the complete info
	// except Arguments. It must not keep the CallInfo.
	End(info *CallInfo, t upstream.Trace)
	// Refused is called for each request that is refused before Begin. reason is a fixed word, or ""
	// if the HTTP status and the code of the JSON-RPC error say it.
	Refused(reason string, status int, code int64)
}

func (s *Server) refused(reason string, status int, code int64) {
	if s.observer != nil {
		s.observer.Refused(reason, status, code)
	}
}

// deny answers 403.
func (s *Server) deny(rw http.ResponseWriter, reason, text string) {
	s.refused(reason, http.StatusForbidden, 0)
	http.Error(rw, text, http.StatusForbidden)
}

// Used returns what callers use at present of each resource that they share.
func (s *Server) Used() [budget.Quotas]int64 { return s.budget.Used() }

// Parked returns the number of calls that wait for a modern client to return with answers.
func (s *Server) Parked() int {
	s.parked.mu.Lock()
	defer s.parked.mu.Unlock()
	return len(s.parked.calls)
}
