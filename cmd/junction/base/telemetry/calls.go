package telemetry

import (
	"context"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"junction/upstream/client"
	"junction/upstream/raw"
)

// calls implements client.Observer.
type calls struct{ *Telemetry }

// Begin starts the span of a request to an upstream, below the span of the request that caused it. If
// that request is not sampled, Begin starts none: the server learns the request's own span, which is not
// recorded.
func (c calls) Begin(s client.Sent) (client.Trace, client.TraceContext) {
	if c.tracer == nil {
		return nil, client.TraceContext{}
	}
	var from bearing
	switch request := s.Of.(type) {
	case *dropped:
		return nil, request.carried()
	case *requestTrace:
		from = request.bearing
	}
	_, span := c.tracer.Start(below(s.Of), methodOf(s.Method), c.client...)
	return span, from.carried(span.SpanContext())
}

// End records the duration of a request to an upstream, and ends its span.
func (c calls) End(s client.Sent, t client.Trace, r client.Received) {
	if t == nil && !c.measures() {
		return
	}
	k := callKey(s, r)
	if c.measures() {
		c.callTime.record(k, r.Took)
	}
	span, ok := t.(trace.Span)
	if !ok {
		return
	}
	list := callAttributes(k)
	if u, err := url.Parse(s.URL); err == nil && u.Host != "" {
		list = append(list, attrProtocol.String("http"), attrServer.String(u.Hostname()))
		if port := portOf(u); port != 0 {
			list = append(list, attrPort.Int(port))
		}
	}
	finish(span, append(list, uriOf(k, s.Name)...), k)
}

// Asked starts the span of a request of an upstream: below the span that the request names, or else
// below the span of its call. With both, the call becomes a link if it is of another trace.
func (c calls) Asked(a client.Asked) client.Trace {
	if c.tracer == nil {
		return nil
	}
	ctx, options := below(a.Of), c.server
	var meta raw.Object
	if params, err := raw.Parse(a.Params); a.Params != nil && err == nil {
		meta, _ = params.Object("_meta")
	}
	if from := originOf(meta, nil); from.parent.IsValid() {
		if call := trace.SpanContextFromContext(ctx); call.IsValid() && call.TraceID() != from.parent.TraceID() {
			options = linked(options, call)
		}
		ctx = trace.ContextWithRemoteSpanContext(context.Background(), from.parent)
	}
	_, span := c.tracer.Start(ctx, methodOf(a.Method), options...)
	return span
}

// Answered records how long the answer to a request of an upstream took, and ends its span.
func (c calls) Answered(a client.Asked, t client.Trace, r client.Received) {
	k := key{method: methodOf(a.Method), upstream: a.Upstream, version: a.Version, outcome: outcomeOf(r),
		code: r.Code, local: a.Server.Process, asked: true}
	if c.measures() {
		c.requestTime.record(k, r.Took)
	}
	if span, ok := t.(trace.Span); ok {
		finish(span, append(requestAttributes(k), attrRequestID.String(a.ID)), k)
	}
}

// Ignored counts a notification of an upstream that was dropped.
func (c calls) Ignored(upstream string) {
	if c.measures() {
		c.ignored.count(upstream, 1)
	}
}

// callKey identifies the attributes of a call. Names of tools and prompts are those of the catalog,
// since others are not called.
func callKey(s client.Sent, r client.Received) key {
	k := key{method: methodOf(s.Method), upstream: s.Upstream, version: s.Version, outcome: outcomeOf(r),
		code: r.Code, local: s.Server.Process}
	if named(s.Method) != "" {
		k.name = s.Name
	}
	return k
}

// outcomeOf returns the outcome of a request between Junction and an upstream.
func outcomeOf(r client.Received) string {
	switch {
	case r.ToolError:
		return toolError
	case r.Code != 0:
		return "error"
	case r.Kind != "":
		return string(r.Kind)
	}
	return outcomeOK
}

// callAttributes are the attributes of mcp.client.operation.duration.
func callAttributes(k key) []attribute.KeyValue {
	list := append(operation(k), attrNetwork.String(k.network()))
	if k.upstream != "" {
		list = append(list, attrUpstream.String(k.upstream))
	}
	return list
}

// portOf returns the port of a URL, 0 if it has none.
func portOf(u *url.URL) int {
	n, err := strconv.Atoi(u.Port())
	if err != nil {
		return map[string]int{"http": 80, "https": 443}[u.Scheme]
	}
	return n
}
