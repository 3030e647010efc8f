package proxy

import (
	"errors"
	"time"

	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// This file observes the questions to clients: requests of upstreams, approvals, and sign-ins to
// upstreams. A legacy client answers a question on its session. A modern client answers it in
// another request; the sealed state keeps the question until then.

// QuestionObserver observes questions, for metrics and traces. Its methods are called by many
// goroutines at once and must not block.
type QuestionObserver interface {
	// Asked is called when a question is sent to a client. The Trace is passed to Answered, and the
	// TraceContext is sent to a legacy client.
	Asked(q Question) (client.Trace, client.TraceContext)
	// Answered is called once for each Asked.
	Answered(q Question, t client.Trace, r client.Received)
	// Saved returns the trace of a request as text, for Question.Saved; "" for none.
	Saved(t client.Trace) string
}

// Question is a question to a client.
type Question struct {
	Upstream string // that asks; "" for Junction
	Method   string
	Version  string       // of the protocol, as spoken with the client
	Trace    client.Trace // of the upstream's request if it is of the legacy era, else of the client's
	// Saved is the trace of the client's request that was answered with the question, at Since. The
	// client answers in another request, whose trace is Trace.
	Saved string
	Since time.Time // zero for a question that is sent now
}

// sentQuestion is a question that was sent and is observed. A nil sentQuestion is observed by
// nothing.
type sentQuestion struct {
	Question
	observer QuestionObserver
	trace    client.Trace
	carried  client.TraceContext
	began    time.Time
}

// observeQuestion tells the QuestionObserver about a question. It returns nil if o is nil. End must
// follow.
func observeQuestion(o QuestionObserver, q Question) *sentQuestion {
	if o == nil {
		return nil
	}
	p := &sentQuestion{Question: q, observer: o, began: q.Since}
	if p.began.IsZero() {
		p.began = time.Now()
	}
	p.trace, p.carried = o.Asked(q)
	return p
}

// Join returns the params of the question with its trace.
func (p *sentQuestion) Join(params []byte) []byte {
	if p == nil {
		return params
	}
	return p.carried.Join(params)
}

// End tells the QuestionObserver about the answer, or the reason why there is none: a
// *jsonrpc.Error if the client has answered with it.
func (p *sentQuestion) End(err error) {
	if p == nil {
		return
	}
	r := client.Received{Took: time.Since(p.began)}
	if peer, ok := errors.AsType[*jsonrpc.Error](err); ok {
		r.Code = peer.Code
	} else if err != nil {
		r.Kind = client.KindUnanswered
	}
	p.observer.Answered(p.Question, p.trace, r)
}

// parseInputRequest parses one request of an input_required result. params is nil if there are
// none.
func parseInputRequest(v []byte) (method string, params []byte, err error) {
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
