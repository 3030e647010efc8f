package front

import (
	"bytes"
	"context"
	"strconv"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/proxy"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// pendingRequest is a server request to a legacy client without a response yet.
type pendingRequest struct {
	answer   chan *jsonrpc.Message // 1-buffered: the first response counts
	token    []byte                // the upstream's progress token; nil for none
	progress func(params []byte)   // may be nil
}

// Ask implements Front for a legacy client.
func (x *request) Ask(ctx context.Context, method string, params []byte, progress func([]byte)) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, x.reply.limits.Patience)
	defer cancel()
	id := jsonrpc.ID(`"junction-` + strconv.FormatUint(x.session.numbers.Add(1), 10) + `"`)
	a := &pendingRequest{answer: make(chan *jsonrpc.Message, 1), progress: progress}
	params, err := a.replaceToken(params, id)
	if err != nil {
		return nil, &jsonrpc.Error{Code: mcp.INVALID_PARAMS, Message: "Invalid params: _meta"}
	}
	if !x.session.await(id, a) {
		return nil, proxy.ErrNoAnswer
	}
	defer x.session.forget(id)
	if !x.reply.send(jsonrpc.AppendRequest(nil, id, method, params), lasting) {
		return nil, proxy.ErrNoAnswer
	}
	select {
	case m := <-a.answer:
		if m.Error != nil {
			return nil, m.Error
		}
		return m.Result, nil
	case <-ctx.Done():
		x.Notify(string(mcp.MethodNotificationCancelled), append(append([]byte(`{"requestId":`), id...), '}'))
		return nil, proxy.ErrNoAnswer
	}
}

// replaceToken replaces the upstream's progress token by the id of the request, because tokens of
// two upstreams may be equal.
func (a *pendingRequest) replaceToken(params []byte, id jsonrpc.ID) ([]byte, error) {
	token, err := raw.Get(params, "_meta", "progressToken")
	if err == raw.ErrAbsent {
		return params, nil
	} else if err != nil {
		return nil, err
	}
	a.token = bytes.Clone(token)
	return raw.Set(params, []byte(id), "_meta", "progressToken")
}

// await adds a pending request. False means that the session has ended or has too many.
func (s *session) await(id jsonrpc.ID, a *pendingRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || len(s.pending) >= proxy.MaxPending {
		return false
	}
	if s.pending == nil {
		s.pending = map[jsonrpc.ID]*pendingRequest{}
	}
	s.pending[id] = a
	return true
}

func (s *session) forget(id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, id)
}

// respond delivers the client's response to a pending request. A response without a request is
// ignored, and found is false. The message is copied.
func (s *session) respond(m *jsonrpc.Message) (found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.pending[m.ID]
	if a == nil {
		return false
	}
	own := &jsonrpc.Message{ID: m.ID, Result: bytes.Clone(m.Result), Error: m.Error.Clone()}
	select {
	case a.answer <- own:
	default:
	}
	return true
}

// progress passes the client's progress on a pending request on to the upstream.
func (s *session) progress(params raw.Object) {
	token, err := params.Get("progressToken")
	if err != nil {
		return
	}
	s.mu.Lock()
	a := s.pending[jsonrpc.ID(token)]
	s.mu.Unlock()
	if a == nil || a.token == nil || a.progress == nil {
		return
	}
	if text, err := params.Splice(raw.Edit{Name: "progressToken", Value: a.token}); err == nil {
		a.progress(text)
	}
}
