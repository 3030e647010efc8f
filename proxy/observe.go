package proxy

import (
	"net/http"

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
}
