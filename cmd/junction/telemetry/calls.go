package telemetry

import (
	"context"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"junction/upstream"
)

// calls implements upstream.Observer.
type calls struct{ *Telemetry }

// Begin starts the span of a request to an upstream.
func (c calls) Begin(s upstream.Sent) (upstream.Trace, upstream.TraceContext) {
	if c.tracer == nil {
		return nil, upstream.TraceContext{}
	}
	return c.startCall(s)
}

// End records the duration of a request to an upstream, and ends its span.
func (c calls) End(s upstream.Sent, t upstream.Trace, r upstream.Received) {
	if t == nil && c.callTime == nil {
		return
	}
	k := callKey(s, r)
	if c.callTime != nil {
		c.callTime.Record(context.Background(), r.Took.Seconds(), c.callSeries.of(k)...)
	}
	if span, ok := t.(trace.Span); ok {
		endCall(span, s, k)
	}
}

// Asked starts the span of a request of an upstream.
func (c calls) Asked(a upstream.Asked) upstream.Trace {
	if c.tracer == nil {
		return nil
	}
	return c.startAsked(a)
}

// Answered records how long the answer to a request of an upstream took, and ends its span.
func (c calls) Answered(a upstream.Asked, t upstream.Trace, r upstream.Received) {
	k := key{method: methodOf(a.Method), upstream: a.Upstream, version: a.Version, outcome: outcomeOf(r),
		code: r.Code, local: a.URL == "", asked: true}
	if c.requestTime != nil {
		c.requestTime.Record(context.Background(), r.Took.Seconds(), c.requestSeries.of(k)...)
	}
	if span, ok := t.(trace.Span); ok {
		endAsked(span, a, k)
	}
}

// callKey identifies the attributes of a call. Names of tools and prompts are those of the catalog,
// since others are not called.
func callKey(s upstream.Sent, r upstream.Received) key {
	k := key{method: methodOf(s.Method), upstream: s.Upstream, version: s.Version, outcome: outcomeOf(r),
		code: r.Code, local: s.URL == ""}
	if named(s.Method) != "" {
		k.name = s.Name
	}
	return k
}

// outcomeOf returns the outcome of a request between Junction and an upstream.
func outcomeOf(r upstream.Received) string {
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
