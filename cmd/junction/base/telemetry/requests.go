package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"junction/proxy"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// requests implements front.Observer.
type requests struct{ *Telemetry }

// Begin starts the span of a request, if it is sampled. Its final name is known at the end.
func (r requests) Begin(info *proxy.CallInfo, meta raw.Object, header map[string][]string) client.Trace {
	if r.tracer == nil {
		info.TraceID = originOf(meta, header).parent.TraceID()
		return nil
	}
	from := originOf(meta, header)
	id, root := from.parent.TraceID(), !from.parent.IsValid()
	if root {
		id = newTraceID()
	}
	info.TraceID = id
	if !r.sampling.samples(from.parent, id) {
		d := &dropped{bearing: from.bearing, state: from.parent.TraceState().String()}
		appendParent(d.text[:0], id, newSpanID(), from.parent.TraceFlags()&^trace.FlagsSampled)
		return d
	}
	ctx, options := context.Background(), r.server
	if root {
		ctx = context.WithValue(ctx, decidedKey{}, id)
	} else {
		ctx = trace.ContextWithRemoteSpanContext(ctx, from.parent)
	}
	if from.ambient.IsValid() {
		options = linked(options, from.ambient)
	}
	_, span := r.tracer.Start(ctx, methodOf(info.Method), options...)
	return &requestTrace{from.bearing, span}
}

// End records the duration of a request, and ends its span. It records no duration for a stream of
// notifications, because the client chooses how long it lasts. The texts of the client in info are
// those of the audit.
func (r requests) End(info *proxy.CallInfo, t client.Trace) {
	request, sampled := t.(*requestTrace)
	if !sampled && !r.measures() {
		return
	}
	k := key{method: methodOf(info.Method), upstream: info.Upstream, version: info.Version,
		outcome: string(info.Outcome), code: info.Code}
	if info.Own != "" && named(info.Method) != "" { // the name is of the catalog
		k.name = info.Name
	}
	if r.measures() && (info.Method != methodListen || info.Err != nil) {
		r.requestTime.record(k, info.Took)
	}
	if info.Cached && r.measures() {
		r.cached.count(info.Upstream, 1)
	}
	if !sampled {
		return
	}
	list := append(requestAttributes(k), attrProtocol.String("http"), attrRequestID.String(info.Request))
	for name, text := range map[attribute.Key]string{attrSession: info.Session, attrEndpoint: info.Endpoint,
		attrHTTPRequest: info.RequestID} {
		if text != "" {
			list = append(list, name.String(text))
		}
	}
	finish(request.span, append(list, uriOf(k, info.Name)...), k)
}

// Asked starts the span of a question to a client.
func (r requests) Asked(q proxy.Question) (client.Trace, client.TraceContext) {
	if r.tracer == nil {
		return nil, client.TraceContext{}
	}
	ctx, options := below(q.Trace), r.client
	if !q.Since.IsZero() { // the answer came with another request
		options = append(linked(options, trace.SpanContextFromContext(ctx)), trace.WithTimestamp(q.Since))
		ctx = trace.ContextWithRemoteSpanContext(context.Background(), contextOf(q.Saved, ""))
	}
	_, span := r.tracer.Start(ctx, methodOf(q.Method), options...)
	return span, bearing{}.carried(span.SpanContext())
}

// Answered records how long the client took to answer, and ends the span.
func (r requests) Answered(q proxy.Question, t client.Trace, got client.Received) {
	k := key{method: methodOf(q.Method), upstream: q.Upstream, version: q.Version, outcome: outcomeOf(got),
		code: got.Code}
	if r.measures() {
		r.callTime.record(k, got.Took)
	}
	if span, ok := t.(trace.Span); ok {
		finish(span, append(callAttributes(k), attrProtocol.String("http")), k)
	}
}

// Saved returns the traceparent of a request.
func (r requests) Saved(t client.Trace) string {
	var text []byte
	switch request := t.(type) {
	case *dropped:
		text = request.text[:]
	case *requestTrace:
		text = request.carried(request.span.SpanContext()).Parent
	default:
		return ""
	}
	return string(text[1 : len(text)-1])
}

// requestAttributes are the attributes of mcp.server.operation.duration. Only requests of clients
// have an outcome in the words of the audit.
func requestAttributes(k key) []attribute.KeyValue {
	list := append(operation(k), attrNetwork.String(k.network()))
	if !k.asked {
		list = append(list, attrOutcome.String(k.outcome))
	}
	if k.upstream != "" {
		list = append(list, attrUpstream.String(k.upstream))
	}
	return list
}

// operation are the attributes that requests and calls share.
func operation(k key) []attribute.KeyValue {
	list := []attribute.KeyValue{attrMethod.String(k.method)}
	if k.version != "" {
		list = append(list, attrVersion.String(k.version))
	}
	if name := named(k.method); name != "" && k.name != "" {
		list = append(list, name.String(k.name))
	}
	if named(k.method) == attrTool {
		list = append(list, attrOperation.String(executeTool))
	}
	switch {
	case k.code != 0:
		list = append(list, attrError.String(codeText(k.code)))
	case k.failed():
		list = append(list, attrError.String(k.outcome))
	}
	return list
}

// failed reports whether the attributes describe a failure.
func (k *key) failed() bool { return k.code != 0 || k.outcome != outcomeOK }

// outcomeOK is the outcome of a request that was answered with a result.
const outcomeOK = "ok"
