package proxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file holds how a legacy client is asked: by a request on the stream of its own call, which
// its person answers by a POST of its own.

// asked is a question that a legacy client is thinking about.
type asked struct {
	answer   chan *jsonrpc.Message // 1-buffered: the first answer counts
	token    []byte                // the upstream's progress token; nil when it wants no progress
	progress func(params []byte)   // may be nil
}

var (
	errNoAnswer = errors.New("nobody answered")
	errShutdown = errors.New("the proxy is shutting down")
)

// Ask implements upstream.Peer for a legacy client.
func (x *exchange) Ask(ctx context.Context, q *upstream.Question) ([]byte, error) {
	params, err := x.question(x.target.Backend.Name(), q.Method, q.Params, true)
	if err != nil {
		return nil, err
	}
	return x.put(ctx, q.Method, params, q.Progress)
}

// put puts a question to a legacy client, and waits for the answer.
func (x *exchange) put(ctx context.Context, method string, params []byte, progress func([]byte)) ([]byte, error) {
	if x.session == nil || !x.reply.stream {
		return nil, &jsonrpc.Error{Code: mcp.INVALID_PARAMS, Message: "the client cannot be asked: it takes no event stream"}
	}
	ctx, cancel := context.WithTimeout(ctx, x.reply.limits.Patience)
	defer cancel()
	id := jsonrpc.ID(`"junction-` + strconv.FormatUint(x.session.numbers.Add(1), 10) + `"`)
	a := &asked{answer: make(chan *jsonrpc.Message, 1), progress: progress}
	params, err := a.takeToken(params, id)
	if err != nil {
		return nil, &jsonrpc.Error{Code: mcp.INVALID_PARAMS, Message: "Invalid params: _meta"}
	}
	if !x.session.ask(id, a) {
		return nil, errNoAnswer
	}
	defer x.session.forget(id)
	if !x.reply.send(jsonrpc.AppendRequest(nil, id, method, params)) {
		return nil, errNoAnswer
	}
	select {
	case m := <-a.answer:
		if m.Error != nil {
			return nil, m.Error
		}
		return m.Result, nil
	case <-ctx.Done():
		x.reply.notify(string(mcp.MethodNotificationCancelled), append(append([]byte(`{"requestId":`), id...), '}'))
		return nil, errNoAnswer
	}
}

// takeToken replaces the upstream's progress token by the question's id: those of two upstreams may
// be equal.
func (a *asked) takeToken(params []byte, id jsonrpc.ID) ([]byte, error) {
	token, err := raw.Get(params, "_meta", "progressToken")
	if err == raw.ErrAbsent {
		return params, nil
	} else if err != nil {
		return nil, err
	}
	a.token = bytes.Clone(token)
	return raw.Set(params, []byte(id), "_meta", "progressToken")
}

// ask remembers a question; false means that the session has ended, or has too many.
func (s *session) ask(id jsonrpc.ID, a *asked) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || len(s.asked) >= maxAsked {
		return false
	}
	if s.asked == nil {
		s.asked = map[jsonrpc.ID]*asked{}
	}
	s.asked[id] = a
	return true
}

// maxAsked bounds the questions that one client is asked at once.
const maxAsked = 64

func (s *session) forget(id jsonrpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.asked, id)
}

// answered takes the client's answer to a question; one that nobody asked is dropped. The message
// is not kept.
func (s *session) answered(m *jsonrpc.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asked[m.ID]
	if a == nil {
		return
	}
	own := &jsonrpc.Message{ID: m.ID, Result: bytes.Clone(m.Result), Error: m.Error.Clone()}
	select {
	case a.answer <- own:
	default:
	}
}

// progressed passes on how far the client is with an answer.
func (s *session) progressed(params raw.Object) {
	token, err := params.Get("progressToken")
	if err != nil {
		return
	}
	s.mu.Lock()
	a := s.asked[jsonrpc.ID(token)]
	s.mu.Unlock()
	if a == nil || a.token == nil || a.progress == nil {
		return
	}
	if text, err := params.Splice(raw.Edit{Name: "progressToken", Value: a.token}); err == nil {
		a.progress(text)
	}
}

// methodElicitationComplete says that what a person was sent to a page for is done (2025-11-25,
// client/elicitation).
const methodElicitationComplete = "notifications/elicitation/complete"

// newElicitationID is for an elicitation of the modern era, which has no id, on its way to a legacy
// client, which needs one.
func (x *exchange) newElicitationID() string {
	x.opening.Lock()
	defer x.opening.Unlock()
	x.opened = append(x.opened, "junction-"+rand.Text())
	return x.opened[len(x.opened)-1]
}

// closeElicitations tells the client that what it has opened is done, now that the upstream does
// not ask for it any more.
func (x *exchange) closeElicitations() {
	x.opening.Lock()
	defer x.opening.Unlock()
	for _, id := range x.opened {
		x.reply.notify(methodElicitationComplete, append(raw.AppendQuote([]byte(`{"elicitationId":`), id), '}'))
	}
}

// askAll puts the questions of a modern upstream's result to a legacy client, one after the other,
// and returns the answers as the next request carries them. A client that refuses a form is one
// that has cancelled it; for everything else there is no word that the upstream would understand,
// and nothing is made up (2026-07-28, basic/patterns/mrtr has no slot for an error).
func (x *exchange) askAll(ctx context.Context, requests raw.Object) ([]byte, error) {
	if requests.Len() > maxAsked {
		return nil, x.invalid("it asks too many questions at once")
	}
	answers := []byte{'{'}
	for i, m := range requests.Members() {
		method, params, err := inputRequest(m.Value)
		if err != nil {
			return nil, &upstream.Error{Upstream: x.target.Backend.Name(), Kind: upstream.KindInvalid, Err: err}
		}
		unanswered := func(err error) error {
			return &upstream.Error{Upstream: x.target.Backend.Name(), Kind: upstream.KindUnanswered, Err: fmt.Errorf("%s was not answered: %w", method, err)}
		}
		if params, err = x.question(x.target.Backend.Name(), method, params, true); err != nil {
			return nil, unanswered(err)
		}
		answer, err := x.put(ctx, method, params, nil)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil && mcp.MCPMethod(method) == mcp.MethodElicitationCreate:
			answer = []byte(`{"action":"cancel"}`)
		case err != nil:
			return nil, unanswered(err)
		}
		if i > 0 {
			answers = append(answers, ',')
		}
		answers = append(append(append(answers, m.Key...), ':'), answer...)
	}
	return append(answers, '}'), nil
}

// inputRequest reads one of the questions of an input_required result.
func inputRequest(v []byte) (method string, params []byte, err error) {
	o, err := raw.Parse(v)
	if err == nil {
		method, err = o.String("method")
	}
	if err == nil {
		params, err = o.Get("params")
	}
	if string(params) == "null" {
		params = nil
	}
	switch {
	case method == "" || err != nil && err != raw.ErrAbsent:
		return "", nil, errors.New("an input request without method or with several")
	case params != nil && params[0] != '{':
		return "", nil, errors.New("an input request whose params are no object")
	}
	return method, params, nil
}

// pauses between calls of an upstream that asks to be called again and asks nothing.
func pause(ctx context.Context, round int) error {
	t := time.NewTimer(min(100*time.Millisecond<<round, 2*time.Second))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
