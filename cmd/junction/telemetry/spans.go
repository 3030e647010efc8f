package telemetry

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"junction/proxy"
	"junction/proxy/question"
	"junction/upstream"
	"junction/upstream/raw"
)

// requestTrace is the trace of a client's request that is sampled.
type requestTrace struct {
	bearing
	span trace.Span
}

// dropped is the trace of a request that is not sampled. It is small, because most are.
type dropped struct {
	bearing
	text  [parentSize]byte // traceparent
	state string           // tracestate
}

// carried returns what a server learns.
func (d *dropped) carried() upstream.TraceContext {
	return upstream.TraceContext{Parent: d.text[:], State: d.state, Header: d.header, Inherited: d.inherited}
}

// startRequest starts the span of a request, if it is sampled. Its final name is known at the end.
func (t *Telemetry) startRequest(info *proxy.CallInfo, meta raw.Object, header http.Header) upstream.Trace {
	from := originOf(meta, header)
	id, root := from.parent.TraceID(), !from.parent.IsValid()
	if root {
		id = newTraceID()
	}
	if !t.sampling.samples(from.parent, id) {
		d := &dropped{bearing: from.bearing, state: from.parent.TraceState().String()}
		appendParent(d.text[:0], id, newSpanID(), from.parent.TraceFlags()&^trace.FlagsSampled)
		return d
	}
	ctx, options := context.Background(), t.server
	if root {
		ctx = context.WithValue(ctx, decidedKey{}, id)
	} else {
		ctx = trace.ContextWithRemoteSpanContext(ctx, from.parent)
	}
	if from.ambient.IsValid() {
		options = linked(options, from.ambient)
	}
	_, span := t.tracer.Start(ctx, methodOf(info.Method), options...)
	return &requestTrace{from.bearing, span}
}

// end ends the span of a request. The texts of the client in info are those of the audit.
func (r *requestTrace) end(info *proxy.CallInfo, k key) {
	defer r.span.End()
	r.span.SetName(strings.TrimSuffix(k.method+" "+k.name, " "))
	list := append(requestAttributes(k), attrProtocol.String("http"), attrRequestID.String(info.Request))
	for name, text := range map[attribute.Key]string{attrSession: info.Session, attrEndpoint: info.Endpoint} {
		if text != "" {
			list = append(list, name.String(text))
		}
	}
	if strings.HasPrefix(k.method, "resources/") && info.Name != "" {
		list = append(list, attrURI.String(info.Name))
	}
	finish(r.span, list, k)
}

// finish sets the attributes of a span, and its status.
func finish(span trace.Span, list []attribute.KeyValue, k key) {
	if k.code != 0 {
		list = append(list, attrCode.Int64(k.code))
	}
	span.SetAttributes(list...)
	if k.failed() {
		span.SetStatus(codes.Error, "")
	}
}

// startCall starts the span of a request to an upstream, below that of the request that caused it.
// Below a request that is not sampled it starts none: the server learns the request's own span, which
// is not recorded.
func (t *Telemetry) startCall(s upstream.Sent) (upstream.Trace, upstream.TraceContext) {
	if d, ok := s.Of.(*dropped); ok {
		return nil, d.carried()
	}
	_, span := t.tracer.Start(below(s.Of), methodOf(s.Method), t.client...)
	if r, ok := s.Of.(*requestTrace); ok {
		return span, r.carried(span.SpanContext())
	}
	return span, bearing{}.carried(span.SpanContext())
}

// below returns the context for spans below that of a Trace, which may be nil.
func below(t upstream.Trace) context.Context {
	switch of := t.(type) {
	case *dropped:
		c := contextOf(string(of.text[1:parentSize-1]), of.state)
		return trace.ContextWithSpanContext(context.Background(), c)
	case *requestTrace:
		return trace.ContextWithSpan(context.Background(), of.span)
	case trace.Span:
		return trace.ContextWithSpan(context.Background(), of)
	}
	return context.Background()
}

// startAsked starts the span of a request of an upstream: below the span that the request names, or
// else below that of its call. With both, the call becomes a link if it is of another trace.
func (t *Telemetry) startAsked(a upstream.Asked) trace.Span {
	ctx, options := below(a.Of), t.server
	var meta raw.Object
	if params, err := raw.Parse(a.Params); a.Params != nil && err == nil {
		meta, _ = params.Object("_meta")
	}
	if from := originOf(meta, nil); from.parent.IsValid() {
		if of := trace.SpanContextFromContext(ctx); of.IsValid() && of.TraceID() != from.parent.TraceID() {
			options = linked(options, of)
		}
		ctx = trace.ContextWithRemoteSpanContext(context.Background(), from.parent)
	}
	_, span := t.tracer.Start(ctx, methodOf(a.Method), options...)
	return span
}

// linked returns the options with a link.
func linked(options []trace.SpanStartOption, to trace.SpanContext) []trace.SpanStartOption {
	return append(options[:len(options):len(options)], trace.WithLinks(trace.Link{SpanContext: to}))
}

// endAsked ends the span of a request of an upstream.
func endAsked(span trace.Span, a upstream.Asked, k key) {
	defer span.End()
	if span.IsRecording() {
		finish(span, append(requestAttributes(k), attrRequestID.String(a.ID)), k)
	}
}

// startQuestion starts the span of a question to a client.
func (t *Telemetry) startQuestion(q question.Question) (upstream.Trace, upstream.TraceContext) {
	ctx, options := below(q.Of), t.client
	if !q.Since.IsZero() { // the answer came with another request
		options = append(linked(options, trace.SpanContextFromContext(ctx)), trace.WithTimestamp(q.Since))
		ctx = trace.ContextWithRemoteSpanContext(context.Background(), contextOf(q.Saved, ""))
	}
	_, span := t.tracer.Start(ctx, methodOf(q.Method), options...)
	return span, bearing{}.carried(span.SpanContext())
}

// endQuestion ends the span of a question to a client.
func endQuestion(span trace.Span, q question.Question, k key) {
	defer span.End()
	if span.IsRecording() {
		finish(span, append(callAttributes(k), attrProtocol.String("http")), k)
	}
}

// endCall ends the span of a call.
func endCall(span trace.Span, s upstream.Sent, k key) {
	defer span.End()
	if !span.IsRecording() {
		return
	}
	span.SetName(strings.TrimSuffix(k.method+" "+k.name, " "))
	list := callAttributes(k)
	if u, err := url.Parse(s.URL); err == nil && u.Host != "" {
		list = append(list, attrProtocol.String("http"), attrServer.String(u.Hostname()))
		if port := portOf(u); port != 0 {
			list = append(list, attrPort.Int(port))
		}
	}
	if strings.HasPrefix(k.method, "resources/") && s.Name != "" {
		list = append(list, attrURI.String(s.Name))
	}
	finish(span, list, k)
}
