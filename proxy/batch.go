package proxy

import (
	"net/http"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// batch answers an array of messages, which 2025-03-26 alone has (basic/index#batching): all at
// once, and in one document. Sessions of other versions, and requests of no session, have no
// batches. Each message counts as a request.
func (s *Server) batch(w http.ResponseWriter, r *http.Request, c caller, body []byte, held *grant) {
	f := legacyFront{s}
	all := &exchange{caller: c, era: upstream.EraLegacy, header: r.Header, request: r, reply: newReply(w, r, &s.limits), held: held.empty()}
	if err := f.enter(r, all); err != nil || all.session.version != mcp.ProtocolVersion20250326 {
		f.refuse(all, refuse(http.StatusBadRequest, mcp.INVALID_REQUEST, "Invalid Request: only a session of 2025-03-26 may send batches"))
		return
	}
	if _, err := raw.Scan(body, s.limits.Nesting); err != nil {
		f.refuse(all, malformed(err))
		return
	}
	items, err := raw.ElementsWithin(body, maxBatch) // the index of all items can be many times as large as the body
	if err != nil || len(items) == 0 {
		f.refuse(all, refuse(http.StatusBadRequest, mcp.INVALID_REQUEST, "Invalid Request: a batch has 1 to %d messages", maxBatch))
		return
	}
	if err := held.take(ofRequests, int64(len(items)-1)); err != nil {
		f.refuse(all, overused(err))
		return
	}
	held.rest()
	defer held.work() // as post expects it
	answers, grants := make([][]byte, len(items)), make([]grant, len(items))
	defer func() {
		for i := range grants {
			grants[i].release()
		}
	}()
	var members sync.WaitGroup
	for i, item := range items {
		members.Go(func() { answers[i], grants[i] = f.member(r, all, item) })
	}
	members.Wait()
	out := []byte{'['}
	for _, a := range answers {
		if a == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, a...)
	}
	if len(out) == 1 {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	all.reply.deadline()
	writeJSON(w, http.StatusOK, append(out, ']'))
}

// maxBatch bounds the calls that one request can begin.
const maxBatch = 64

// member answers one message of a batch, and returns what of the budget the answer has; nil for one
// that has no answer.
func (f legacyFront) member(r *http.Request, all *exchange, item []byte) (text []byte, held grant) {
	m, err := jsonrpc.Parse(item, f.limits.Nesting)
	if err != nil {
		problem, _ := answer(malformed(err), "")
		return jsonrpc.AppendError(nil, m.ID, problem), held
	}
	x, err := newExchange(all.caller, r, m)
	if err != nil {
		problem, _ := answer(err, "")
		return jsonrpc.AppendError(nil, m.ID, problem), held
	}
	x.era, x.session, x.client, x.request, x.size = all.era, all.session, all.client, r, len(item)
	x.profile, x.listeners, x.held = all.profile, all.listeners, all.held
	if !m.IsRequest() {
		f.accept(x)
		return nil, held
	}
	answer := &memory{}
	x.reply = &reply{w: answer, limits: &f.limits}
	x.work()
	defer x.rest()
	f.run(x)
	return answer.text, x.held
}

// memory is a ResponseWriter that keeps what is written: the answer to a member of a batch.
type memory struct {
	text   []byte
	header http.Header
}

func (m *memory) Header() http.Header {
	if m.header == nil {
		m.header = http.Header{}
	}
	return m.header
}
func (m *memory) WriteHeader(int)             {}
func (m *memory) Write(b []byte) (int, error) { m.text = append(m.text, b...); return len(b), nil }
