package transport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/http1"
	"junction/upstream/jsonrpc"
	"junction/upstream/prose"
)

// streamable is the Streamable HTTP transport, for both eras. Its requests use the connections of a
// pool that the transports of an upstream share. It ends when the session of a legacy server ends,
// not when a request fails.
type streamable struct {
	origin
	in Receiver

	bare    http.Header                 // headers of a POST without a session; never modified
	session atomic.Pointer[httpSession] // state for later requests; never nil
	setting sync.Mutex                  // held while session is replaced
	closing sync.Once
}

// httpSession is the state of the session: its id, its protocol version, and the headers made of both.
// It is replaced, never modified.
type httpSession struct {
	id, version string
	post, get   http.Header // never modified
	called      http.Header // post without the headers of HTTPOptions.Forward; never modified
}

const (
	headerSession   = "Mcp-Session-Id"
	HeaderVersion   = "Mcp-Protocol-Version"
	headerLastEvent = "Last-Event-Id"
	maxSession      = 1 << 10
	deleteTime      = time.Second
)

// OpenHTTP returns a transport to the server. It opens no connection; the first request does.
func OpenHTTP(o HTTPOptions, in Receiver) Transport {
	w := &streamable{in: in}
	w.init(o)
	w.bare = with(w.header, http1.Field{Name: "Content-Type", Value: "application/json"},
		http1.Field{Name: "Accept", Value: "application/json, text/event-stream"})
	w.session.Store(w.newSession("", ""))
	return w
}

func (w *streamable) PerRequest() bool { return true }
func (w *streamable) HasSession() bool { return w.session.Load().id != "" }

func (w *streamable) SetVersion(v string) {
	w.setting.Lock()
	defer w.setting.Unlock()
	w.session.Store(w.newSession(w.session.Load().id, v))
}

// begun returns the session of the response to initialize. It counts once the id of the response fits.
func (w *streamable) begun(t *trip) (*httpSession, error) {
	id := t.get(headerSession)
	// a space is not allowed (2025-11-25, basic/transports#session-management), but does no harm
	if len(id) > maxSession || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, fmt.Errorf("%w to initialize: the session id is not printable ASCII of at most %d characters",
			ErrInvalid, maxSession)
	}
	return w.newSession(id, w.session.Load().version), nil
}

// newSession makes the headers of later requests.
func (w *streamable) newSession(id, version string) *httpSession {
	p := &httpSession{id: id, version: version}
	var more []http1.Field
	if id != "" {
		more = append(more, http1.Field{Name: headerSession, Value: id})
	}
	if version != "" {
		more = append(more, http1.Field{Name: HeaderVersion, Value: version})
	}
	p.post = with(w.bare, more...)
	if p.called = p.post; len(w.forward) > 0 {
		p.called = maps.Clone(p.post)
		maps.DeleteFunc(p.called, func(name string, _ []string) bool { return slices.Contains(w.forward, name) })
	}
	p.get = with(with(w.header, http1.Field{Name: "Accept", Value: "text/event-stream"}), more...)
	return p
}

// Call implements Transport. The response is JSON or an event stream. A broken stream of a legacy
// server is resumed if the server supports that.
func (w *streamable) Call(ctx context.Context, req *Request, on func(*jsonrpc.Message)) (*jsonrpc.Message, error) {
	if err := w.begin(); err != nil {
		return nil, err
	}
	defer w.work.Done()
	t, err := w.post(ctx, req)
	if err != nil {
		return nil, err
	}
	t.clock, t.memory = req.Observer, req.Memory
	var begun *httpSession
	if req.Method == string(mcp.MethodInitialize) {
		if begun, err = w.begun(t); err != nil {
			t.close()
			return nil, err
		}
	}
	var m *jsonrpc.Message
	if kind := t.media(); isEvents(kind) {
		m, err = w.answer(ctx, t, begun, req, on)
	} else {
		m, err = w.document(ctx, t, kind, req, on)
	}
	if err != nil {
		return nil, err
	}
	if begun != nil && m.ID == req.ID {
		w.setting.Lock()
		w.session.Store(begun)
		w.setting.Unlock()
		w.conceals(begun.id)
	}
	return w.concealed(m, req.Forwarded), nil
}

// document reads a response that is no event stream, and closes the trip.
func (w *streamable) document(
	ctx context.Context, t *trip, kind string, req *Request, on func(*jsonrpc.Message),
) (*jsonrpc.Message, error) {
	if t.StatusCode == http.StatusAccepted || t.StatusCode == http.StatusNoContent || t.ContentLength == 0 ||
		kind == "text/html" {
		_, err := w.status(t, req.ID)
		return nil, causeOr(ctx, err)
	}
	defer t.close()
	text, err := w.body(t, req.Buffer)
	if err == errTooLarge {
		return nil, w.tooLarge()
	} else if err != nil {
		return nil, causeOr(ctx, fmt.Errorf("read the answer: %w", w.failed(ctx, t, err)))
	}
	m, err := jsonrpc.ParseSingle(text, w.depth)
	if err != nil && jsonrpc.IsBatch(text) {
		return w.batch(t, text, req.ID, on)
	}
	if err != nil {
		if !isJSON(kind) {
			e := &StatusError{Status: t.StatusCode, Body: text[:min(len(text), statusBody)], media: kind}
			w.concealIn(e, t.forwarded)
			return nil, e
		}
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if !answers(&m, req.ID) {
		w.distrust(t)
		return nil, fmt.Errorf("%w: %s to the request %s", ErrInvalid, w.what(&m, t.forwarded), req.ID)
	}
	return &m, nil
}

// Send implements Transport.
func (w *streamable) Send(ctx context.Context, m *Request) error {
	if err := w.begin(); err != nil {
		return err
	}
	defer w.work.Done()
	t, err := w.post(ctx, m)
	if err != nil {
		return err
	}
	w.drain(t)
	return nil
}

// Close implements Transport. It ends the session at the server, if there is one; the server has a
// second to answer.
func (w *streamable) Close() error {
	w.closing.Do(func() {
		lost := w.Ended()
		w.close()
		if s := w.session.Load(); s.id != "" && !lost {
			w.leave(s)
		}
		w.release()
	})
	return nil
}

// leave sends DELETE to end the session at the server. Its failure is only logged: servers may
// reject it.
func (w *streamable) leave(s *httpSession) {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTime)
	defer cancel()
	header := s.get
	// the token that the session was used with, even if it was revoked
	if token := w.last.Load(); token != nil {
		header = with(header, w.carrier.field(*token))
	}
	r := http.Request{Method: http.MethodDelete, URL: w.url, Host: w.url.Host, Header: header, Proto: "HTTP/1.1",
		ProtoMajor: 1, ProtoMinor: 1}
	resp, err := w.conns.roundTrip(r.WithContext(ctx))
	if err != nil {
		w.log.Debug("cannot end the session at the server", "error", err)
		return
	}
	resp.Body.Close()
}

// post sends a message and returns the response if its status is a success.
func (w *streamable) post(ctx context.Context, m *Request) (*trip, error) {
	s, header := w.session.Load(), w.bare
	if m.Method == string(mcp.MethodInitialize) {
		s = nil // it opens a new session
	} else if header = s.post; m.Called {
		header = s.called
	}
	fields := m.Header
	if len(m.Forwarded) > 0 {
		fields = append(fields[:len(fields):len(fields)], m.Forwarded...)
	}
	t, err := w.do(ctx, http.MethodPost, w.url, header, &m.Message, m.Own, fields...)
	if err != nil {
		return nil, err
	}
	t.forwarded = m.Forwarded
	if t.StatusCode/100 != 2 {
		return nil, causeOr(ctx, w.refused(t, s, m))
	}
	return t, nil
}

// causeOr returns the cause of ctx if ctx has ended, and err otherwise.
func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// refused returns the error for a response without success. A 404 means that the session has ended
// (2025-11-25, basic/transports#session-management), unless it contains the JSON-RPC error "method
// not found" for this request. It is the only answer that ends a session without a question.
func (w *streamable) refused(t *trip, s *httpSession, m *Request) error {
	e, err := w.status(t, m.ID)
	if s == nil || s.id == "" || e == nil {
		return err
	}
	ours := e.Message != nil && m.ID != "" && e.Message.ID == m.ID
	if e.Status == http.StatusNotFound && !(ours && e.Message.Error.Code == mcp.METHOD_NOT_FOUND) {
		return w.sessionGone(e)
	}
	return e
}

// what describes a message that is not the expected response. forwarded is as for secrets.
func (o *origin) what(m *jsonrpc.Message, forwarded []http1.Field) string {
	secrets := o.secrets(forwarded)
	if m.Method != "" {
		return "a message called " + prose.Whole(strconv.Quote(conceal(m.Method, secrets)), 100)
	}
	return "the id " + prose.Whole(conceal(string(m.ID), secrets), 100)
}

// errStreamEnded means that a response stream broke off. The server may have carried out the
// request.
var errStreamEnded = errors.New("the stream ended before the answer")

// Headers that mirror a modern request, beside HeaderVersion (2026-07-28,
// streamable-http#standard-headers).
const (
	HeaderMethod = "Mcp-Method"
	headerName   = "Mcp-Name"
)

// AppendMirror appends the headers that every modern request has. version and method must be
// VisibleASCII.
func AppendMirror(h []http1.Field, version, method string) []http1.Field {
	return append(h, http1.Field{Name: HeaderVersion, Value: version}, http1.Field{Name: HeaderMethod, Value: method})
}

// AppendMirrorName appends the header for the name, the URI or the task that a request is about.
func AppendMirrorName(h []http1.Field, name string) []http1.Field {
	value, _ := mcp.EncodeHeaderValue(name)
	return append(h, http1.Field{Name: headerName, Value: value})
}
