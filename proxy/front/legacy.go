package front

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/scope"
	"junction/proxy/streams"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// legacyFront serves 2025-11-25 and older: a handshake, a session, and a GET stream.
type legacyFront struct{ *Server }

func (f legacyFront) post(x *request) {
	x.Era = client.EraLegacy
	if v := x.request.Header["Mcp-Protocol-Version"]; len(v) > 0 && !client.IsLegacyVersion(strings.TrimSpace(v[0])) {
		text := fmt.Sprintf("Bad Request: unsupported MCP-Protocol-Version %.100q", v[0])
		if x.Endpoint.Eras == scope.ErasLegacy {
			text += "; send initialize: this endpoint answers in the legacy era alone (eras: legacy)"
		}
		f.refuse(x, refuse(http.StatusBadRequest, mcp.INVALID_REQUEST, "%s", text))
		return
	}
	if x.Msg.Method == string(mcp.MethodInitialize) && x.Msg.IsRequest() {
		f.initialize(x)
		return
	}
	enter := f.enter
	if header(x.request.Header, "Mcp-Session-Id") == "" {
		enter = f.enterWithout
	}
	if err := enter(x); err != nil {
		f.refuse(x, err)
		return
	}
	if !x.Msg.IsRequest() {
		f.accept(x)
		x.reply.w.WriteHeader(http.StatusAccepted)
		return
	}
	f.run(x)
}

// refuse answers with an error. For notifications and responses, the error has no id.
func (f legacyFront) refuse(x *request, err error) {
	id := x.Msg.ID
	if !x.Msg.IsRequest() {
		id = ""
	}
	f.reject(x, id, err)
}

// enter finds the session of a request.
func (f legacyFront) enter(x *request) error {
	id := header(x.request.Header, "Mcp-Session-Id")
	if id == "" {
		return refuse(http.StatusBadRequest, mcp.INVALID_REQUEST, "Bad Request: no Mcp-Session-Id; initialize first")
	}
	s, err := f.session(x.request.Context(), id, "", x.Grant.Account)
	if err != nil {
		return sessionError(err)
	}
	x.session, x.Exchange.Session, x.Client = s, &s.core, s.Client
	if x.Stricter != nil {
		s.narrowed.Store(true)
	}
	x.Who = scope.Identity{Profile: s.Profile, Session: s.Key}
	x.Caller = x.Snapshot.ForClient(x.Caller)
	return nil
}

// enterWithout accepts a message without a session: its client has no capabilities, and Junction keeps
// nothing of it. What needs a session is refused later (proxy.method). Only a response is refused
// here, because Junction sends no requests to such a client.
func (f legacyFront) enterWithout(x *request) error {
	if x.Msg.IsResponse() {
		return refuse(http.StatusBadRequest, mcp.INVALID_REQUEST,
			"Bad Request: a response needs the header Mcp-Session-Id")
	}
	version := header(x.request.Header, "Mcp-Protocol-Version")
	if version == "" {
		version = mcp.ProtocolVersion20250326 // 2025-11-25, basic/transports#protocol-version-header
	}
	x.session = &session{core: proxy.Session{Version: version}}
	x.session.Version = version
	x.Exchange.Session = &x.session.core
	x.Caller = x.Snapshot.ForClient(x.Caller)
	return nil
}

// run serves a request of a session. A closed connection does not cancel the request (2025-11-25,
// basic/transports); only a notification does.
func (f legacyFront) run(x *request) {
	ctx, end := context.WithCancelCause(f.Killing())
	defer end(nil)
	x.End = end
	if err := x.session.register(x.Msg.ID, end); err == errInUse {
		f.refuse(x, refuse(http.StatusBadRequest, mcp.INVALID_REQUEST,
			"Invalid Request: another request of this session has the id %.100s", x.Msg.ID))
		return
	} else if err != nil {
		f.refuse(x, sessionError(err))
		return
	}
	defer x.session.unregister(x.Msg.ID)
	x.LogLevel = x.session.core.Level()
	if x.session.Key != "" { // else no request can resume the stream
		x.reply.caller = x.session
	}
	f.answer(ctx, x)
}

// accept handles a notification or a response of the client. Other notifications, such as
// initialized, are ignored.
func (f legacyFront) accept(x *request) {
	if x.Msg.IsResponse() {
		x.session.respond(&x.Msg)
		return
	}
	switch mcp.MCPMethod(x.Msg.Method) {
	case mcp.MethodNotificationCancelled:
		if id, err := x.Params.Get("requestId"); err == nil {
			x.session.cancel(jsonrpc.ID(id))
		}
	case mcp.MethodNotificationProgress:
		x.session.progress(x.Params)
	case mcp.MethodNotificationRootsListChanged:
		x.session.core.RootsChanged()
		for _, b := range x.Snapshot.Backends {
			b.RootsChanged(x.Who.Profile, x.session.Key, x.User())
		}
	}
}

// initialize answers the handshake.
func (f legacyFront) initialize(x *request) {
	f.Handshake(&x.Exchange, func() (proxy.Result, error) { return f.handshake(x) })
}

// handshake begins a session in the client's version, or else in the newest legacy version
// (2025-11-25, basic/lifecycle).
func (f legacyFront) handshake(x *request) (proxy.Result, error) {
	asked, err := x.Params.String("protocolVersion")
	if err != nil {
		return proxy.Result{}, proxy.InvalidParams("Invalid params: no protocolVersion")
	}
	const alone = "this process has no connection to the others"
	if f.members != nil && f.members.Self() == "" {
		return proxy.Result{}, proxy.UnavailableError(alone)
	}
	if _, err := f.Meter(x.request.Context(), &x.Exchange); err != nil {
		return proxy.Result{}, err
	}
	version := asked
	if !client.IsLegacyVersion(asked) {
		version = mcp.ProtocolVersion20251125
	}
	x.Client = clientName(x.Params, "clientInfo")
	declared, _ := x.Params.Object("capabilities") // without them, the client has none
	id, s := f.sessions.create(version, x.Client, x.Grant.Account, profileOf(declared, version))
	if s == nil {
		return proxy.Result{}, proxy.UnavailableError(alone)
	}
	s.core.Extensions = proxy.Extensions(declared) // before the client knows the ID
	x.reply.w.Header()["Mcp-Session-Id"] = []string{id}
	b := fmt.Appendf(nil, `{"protocolVersion":"%s","capabilities":`, version)
	b = x.Subject.Sight().Offers.AppendCapabilities(b, x.Era)
	b = x.Subject.AppendInstructions(fmt.Appendf(b, `,"serverInfo":%s`, f.ServerInfo()), x.Subject.Redact)
	x.Info.Version, x.Info.Client, x.Info.Session = version, x.Client, s.Key
	return proxy.Result{Body: append(b, '}')}, nil
}

// get opens the GET stream of a session. After an error nothing was written.
func (f legacyFront) get(x *request) error {
	w, r := x.reply.w, x.request
	if header(r.Header, "Mcp-Session-Id") == "" {
		w.Header().Set("Allow", "POST")
		http.Error(w, "This is an MCP endpoint. Add this URL to an MCP client. "+
			"(A GET needs the header Mcp-Session-Id of a session.)", http.StatusMethodNotAllowed)
		return nil
	}
	if err := f.enter(x); err != nil {
		return err
	}
	if !accepts(r, "text/event-stream") {
		http.Error(w, "The stream is text/event-stream, which this request does not accept.", http.StatusNotAcceptable)
		return nil
	}
	if _, err := f.Count(r.Context(), &x.Exchange, true); err != nil {
		if err.Outcome == proxy.Limited {
			return &httpError{err, http.StatusTooManyRequests}
		}
		return err
	}
	if err := x.Grant.Reserve(budget.Streams, 1); err != nil {
		return proxy.OveruseError(err)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	l := streams.NewListener(x.Caller, &x.session.core.Streams)
	if err := x.session.join(l, cancel); err != nil {
		return sessionError(err)
	}
	defer x.session.leave(l)
	if rec, n := x.session.recorded(header(r.Header, "Last-Event-Id")); rec != nil {
		f.replay(ctx, x, rec, n)
		return nil
	}
	if x.session.hasMissed() {
		f.Streams().Missed(l)
	}
	f.listen(ctx, x, l, []byte("retry: 2000\n\n"))
	return nil
}

// delete ends a session.
func (f legacyFront) delete(x *request) error {
	if err := f.enter(x); err != nil {
		return err
	}
	id := header(x.request.Header, "Mcp-Session-Id")
	until := f.sessions.forgetAt(time.Now(), &x.session.sealedSession)
	if f.members != nil { // first, because a session that others do not know to be deleted would come back
		if err := f.members.DeleteSession(x.request.Context(), hash(id), until); err != nil {
			return proxy.UnavailableError("the session was not deleted: the database cannot be reached")
		}
	}
	f.sessions.delete(id, x.Principal.ID, until)
	x.reply.w.WriteHeader(http.StatusNoContent)
	return nil
}

// batch answers an array of messages, which only 2025-03-26 has (basic/index#batching), in parallel
// and in one document. Other versions, and requests without a session, have no batches. Each
// message counts as a request.
func (f legacyFront) batch(all *request, body []byte) error {
	all.Era = client.EraLegacy
	if err := f.enter(all); err != nil || all.session.Version != mcp.ProtocolVersion20250326 {
		return refuse(http.StatusBadRequest, mcp.INVALID_REQUEST,
			"Invalid Request: only a session of 2025-03-26 may send batches")
	}
	end, err := f.Turn(all.request.Context(), &all.Exchange)
	if err != nil {
		return err
	}
	_, err = raw.Scan(body, f.limits.Nesting)
	end()
	if err != nil {
		return proxy.Malformed(err)
	}
	items, err := raw.ElementsWithin(body, maxBatch) // bounded: the index can be much larger than the body
	if err != nil || len(items) == 0 {
		return refuse(http.StatusBadRequest, mcp.INVALID_REQUEST, "Invalid Request: a batch has 1 to %d messages",
			maxBatch)
	}
	if err := all.Grant.Reserve(budget.Requests, int64(len(items)-1)); err != nil {
		return proxy.OveruseError(err)
	}
	answers, grants := make([][]byte, len(items)), make([]budget.Grant, len(items))
	defer func() {
		for i := range grants {
			grants[i].Release()
		}
	}()
	var working sync.WaitGroup
	for i, item := range items {
		working.Go(func() { answers[i], grants[i] = f.batchItem(all, item) })
	}
	working.Wait()
	answers = slices.DeleteFunc(answers, func(a []byte) bool { return a == nil })
	if len(answers) == 0 {
		all.reply.w.WriteHeader(http.StatusAccepted)
		return nil
	}
	all.reply.deadline()
	writeJSON(all.reply.w, http.StatusOK, fmt.Appendf(nil, "[%s]", bytes.Join(answers, []byte{','})))
	return nil
}

// maxBatch bounds the messages of one batch.
const maxBatch = 64

// batchItem answers one message of a batch, and returns the grant of the answer. text is nil if the
// message has no answer.
func (f legacyFront) batchItem(all *request, item []byte) (text []byte, held budget.Grant) {
	x := &request{server: all.server, request: all.request, session: all.session}
	f.Prepare(&x.Exchange, x, all.Caller, all.Grant.Empty())
	x.Era, x.Exchange.Session, x.Client, x.Size = all.Era, all.Exchange.Session, all.Client, len(item)
	x.Header = all.Header
	m, err := jsonrpc.Parse(item, f.limits.Nesting)
	if err != nil {
		err = proxy.Malformed(err)
	} else {
		err = f.Read(&x.Exchange, m)
	}
	if err != nil {
		problem, _ := proxy.RPCError(err, "")
		return jsonrpc.AppendError(nil, m.ID, problem), held
	}
	if !m.IsRequest() {
		f.accept(x)
		return nil, held
	}
	answer := &memory{header: http.Header{}}
	x.reply.w, x.reply.limits = answer, &f.limits
	f.run(x)
	return answer.text, x.Grant
}

// memory is a ResponseWriter that keeps the answer to one message of a batch.
type memory struct {
	text   []byte
	header http.Header
}

func (m *memory) Header() http.Header         { return m.header }
func (m *memory) WriteHeader(int)             {}
func (m *memory) Write(b []byte) (int, error) { m.text = append(m.text, b...); return len(b), nil }
