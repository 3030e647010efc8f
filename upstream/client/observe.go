package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
)

// This file tells the Observer about the requests to and from a server.

// Observer observes the requests to and from servers, for metrics and traces. Its methods are
// called by many goroutines at once and must not block.
type Observer interface {
	// Begin is called before a request is sent to a server. Waiting for a connection is over then.
	// The Trace is passed to End; the TraceContext is sent to the server.
	Begin(s Sent) (Trace, TraceContext)
	// End is called once for each Begin.
	End(s Sent, t Trace, r Received)
	// Asked is called when a server has sent a request. The Trace is passed to Answered, and to the
	// Peer in the ServerRequest.
	Asked(a Asked) Trace
	// Answered is called once for each Asked.
	Answered(a Asked, t Trace, r Received)
	// Ignored is called when a notification of a server means nothing to Junction and to the clients, and
	// is dropped.
	Ignored(upstream string)
}

// Trace is a value of an Observer about one request, such as a span. Only the Observer knows its
// type.
type Trace any

// Sent is a request that is sent to a server: a client's call, or one of Junction's own requests,
// such as initialize and tools/list. A call that is sent again is another Sent.
type Sent struct {
	Upstream string
	Method   string
	Name     string // see Call; "" for Junction's own requests
	Version  string // of the protocol, as negotiated with the server, or as offered to it
	URL      string // of the server; "" for a command
	Of       Trace  // of the request that caused this one; nil if Junction sends it by itself
	Server   *ServerKind
}

// Asked is a request that a server has sent.
type Asked struct {
	Upstream string
	Method   string
	ID       string
	Params   []byte // valid only during Asked; nil for none
	Version  string // of the protocol; "" if the request belongs to no call
	URL      string // of the server; "" for a command
	Of       Trace  // of the call that the request belongs to; nil for none
	Server   *ServerKind
}

// Received is the outcome of a Sent or of an Asked.
type Received struct {
	Took      time.Duration
	ToolError bool  // the result has isError
	Code      int64 // of the error response; 0 for none
	Kind      Kind  // of the failure, if there was no response; else ""
}

// observed is the Observer of a connection, and what it learns about the server.
type observed struct {
	Observer      // nil observes nothing
	upstream, url string
	kind          *ServerKind
}

// TraceContext is what a server learns about the trace of a call (W3C Trace Context). The zero
// value changes nothing.
type TraceContext struct {
	Parent []byte // traceparent, as a JSON string; nil sends none
	State  string // tracestate
	// Header means that only HTTP headers carry it: _meta stays as the client has written it.
	Header bool
	// Inherited means that _meta has the tracestate already.
	Inherited bool
}

// edits adds the members of _meta (SEP-414).
func (t *TraceContext) edits(own []raw.Edit) []raw.Edit {
	if t.Parent == nil || t.Header {
		return own
	}
	own = append(own, raw.Edit{Name: "traceparent", Value: t.Parent})
	if t.State != "" && !t.Inherited {
		own = append(own, raw.Edit{Name: "tracestate", Value: raw.Quote(t.State)})
	}
	return own
}

// Join returns the params of a request with the members of _meta. It returns params if there is
// nothing to add, or if they have a _meta that is no object.
func (t TraceContext) Join(params []byte) []byte {
	t.Header, t.Inherited = false, false // those are about the _meta of a client's call
	edits := t.edits(nil)
	if len(edits) == 0 {
		return params
	}
	o := emptyMeta()
	var err error
	if params != nil {
		if o, err = raw.Parse(params); err != nil {
			return params
		}
	}
	meta, err := o.Object("_meta")
	if err == raw.ErrAbsent {
		meta, err = emptyMeta(), nil
	}
	if err != nil {
		return params
	}
	if text, err := meta.Splice(edits...); err == nil {
		if joined, err := o.Splice(raw.Edit{Name: "_meta", Value: text}); err == nil {
			return joined
		}
	}
	return params
}

// header adds the headers.
func (t *TraceContext) header(h []HeaderField) []HeaderField {
	if t.Parent == nil {
		return h
	}
	h = append(h, HeaderField{Name: "Traceparent", Value: string(t.Parent[1 : len(t.Parent)-1])})
	if t.State != "" {
		h = append(h, HeaderField{Name: "Tracestate", Value: t.State})
	}
	return h
}

// observeCall makes a call with send, and tells the Observer.
func (b *base) observeCall(
	ctx context.Context, c *Call, clock *Clock, send func(context.Context, *Call, *Clock) (Result, error),
) (Result, error) {
	o := b.observed
	if o.Observer == nil {
		return send(ctx, c, clock)
	}
	s := Sent{o.upstream, c.Method, c.Name, b.info.Version, o.url, c.Trace, o.kind}
	var t Trace
	t, c.carried = o.Begin(s)
	if c.trace = t; t == nil {
		c.trace = c.Trace
	}
	began := time.Now()
	result, err := send(ctx, c, clock)
	r := received(ctx, began, err)
	r.ToolError = err == nil && c.Method == string(mcp.MethodToolsCall) && result.Failed()
	o.End(s, t, r)
	return result, err
}

// requestOwn sends one of Junction's own requests and returns the result. lease is for the memory of
// the result; with nil, the result does not count after requestOwn has returned.
func (b *base) requestOwn(
	ctx context.Context, method string, params []byte, header []HeaderField, lease *transport.Lease,
) (raw.Object, error) {
	if lease == nil {
		lease = transport.NewLease(b.account)
		defer lease.Release()
	}
	m, err := b.transport.Call(ctx, &transport.Request{Message: jsonrpc.Message{ID: b.nextID(), Method: method,
		Params: params}, Header: header, Memory: lease, Own: b.decides(method)},
		func(m *jsonrpc.Message) { b.deliver(ownRequest, m) })
	switch {
	case err != nil:
		return raw.Object{}, err
	case m.Error != nil:
		return raw.Object{}, m.Error
	case !m.Body.Present():
		return raw.Object{}, fmt.Errorf("%w to %s: the result is no object", transport.ErrInvalid, method)
	}
	if err := lease.Keep(int64(len(m.Result))); err != nil {
		return raw.Object{}, err
	}
	// without the rest of the message, which would stay in memory with the result
	return raw.Parse(bytes.Clone(m.Result))
}

// requestObserved is requestOwn with calls of the Observer.
func (b *base) requestObserved(
	ctx context.Context, method string, params []byte, header []HeaderField, lease *transport.Lease,
) (raw.Object, error) {
	o := b.observed
	if o.Observer == nil {
		return b.requestOwn(ctx, method, params, header, lease)
	}
	version := b.info.Version
	if version == "" { // this is the handshake
		version = map[Era]string{EraLegacy: newestLegacy, EraModern: modernVersion}[b.era]
	}
	s := Sent{o.upstream, method, "", version, o.url, ctx.Value(causeKey{}), o.kind}
	t, carried := o.Begin(s)
	began := time.Now()
	result, err := b.requestOwn(ctx, method, carried.Join(params), carried.header(header), lease)
	o.End(s, t, received(ctx, began, asRPCError(err)))
	return result, err
}

// question is a request of the server that an Observer observes. A nil question is observed by
// none.
type question struct {
	observer Observer
	asked    Asked
	trace    Trace
	began    time.Time
}

// observe tells the Observer about a request of the server that belongs to the call f; nil for
// none.
func (b *base) observe(f *flight, m *jsonrpc.Message) *question {
	o := b.observed
	if o.Observer == nil {
		return nil
	}
	q := &question{observer: o.Observer, began: time.Now(), asked: Asked{Upstream: o.upstream, Method: m.Method,
		ID: strings.Clone(string(m.ID)), Params: m.Params, URL: o.url, Server: o.kind}}
	if f != nil && f != ownRequest {
		q.asked.Version, q.asked.Of = b.info.Version, f.trace
	}
	q.trace = o.Asked(q.asked)
	q.asked.Params = nil
	return q
}

// traceOrNil returns the Trace of the question; nil if no Observer observes it.
func (q *question) traceOrNil() Trace {
	if q == nil {
		return nil
	}
	return q.trace
}

// end tells the Observer about the answer: err is a *jsonrpc.Error if it is an error, and failed is
// the kind of another failure.
func (q *question) end(err error, failed Kind) {
	if q == nil {
		return
	}
	r := Received{Took: time.Since(q.began), Kind: failed}
	if rpcErr, ok := errors.AsType[*jsonrpc.Error](err); ok {
		r.Code, r.Kind = rpcErr.Code, ""
	}
	q.observer.Answered(q.asked, q.trace, r)
}

// causeKey is the key of the Trace of the request that caused the work of a context.
type causeKey struct{}

// CausedBy returns a context whose own requests belong to the trace; ctx if t is nil.
func CausedBy(ctx context.Context, t Trace) context.Context {
	if t == nil {
		return ctx
	}
	return context.WithValue(ctx, causeKey{}, t)
}

// received is the outcome of a request that began then and was sent with ctx.
func received(ctx context.Context, began time.Time, err error) Received {
	r := Received{Took: time.Since(began)}
	if err == nil {
		return r
	}
	if answer, ok := errors.AsType[*jsonrpc.Error](err); ok {
		r.Code = answer.Code
	} else if ctx.Err() != nil {
		r.Kind = KindOf(context.Cause(ctx))
	} else {
		r.Kind = KindOf(err)
	}
	return r
}
