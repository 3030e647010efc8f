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

// Begin starts the span of a call whose request has one.
func (c calls) Begin(s upstream.Sent) (upstream.Trace, upstream.TraceContext) {
	if of, ok := s.Call.Trace.(*requestTrace); ok {
		return c.startCall(s, of)
	}
	return nil, upstream.TraceContext{}
}

// End records the duration of a call, and ends its span.
func (c calls) End(s upstream.Sent, t upstream.Trace, r upstream.Received) {
	k := callKey(s, r)
	if c.callTime != nil {
		c.callTime.Record(context.Background(), r.Took.Seconds(), c.callSeries.of(k)...)
	}
	if span, ok := t.(trace.Span); ok {
		endCall(span, s, k)
	}
}

// callKey identifies the attributes of a call. Names of tools and prompts are those of the catalog,
// since others are not called.
func callKey(s upstream.Sent, r upstream.Received) key {
	k := key{method: methodOf(s.Call.Method), upstream: s.Upstream, version: s.Version, outcome: outcomeOK,
		code: r.Code, local: s.URL == ""}
	if named(s.Call.Method) != "" {
		k.name = s.Call.Name
	}
	switch {
	case r.ToolError:
		k.outcome = toolError
	case r.Code != 0:
		k.outcome = "error"
	case r.Kind != "":
		k.outcome = string(r.Kind)
	}
	return k
}

// callAttributes are the attributes of mcp.client.operation.duration.
func callAttributes(k key) []attribute.KeyValue {
	list := append(operation(k), attrUpstream.String(k.upstream))
	if k.local {
		return append(list, attrNetwork.String("pipe"))
	}
	return append(list, attrNetwork.String("tcp"))
}

// portOf returns the port of a URL, 0 if it has none.
func portOf(u *url.URL) int {
	n, err := strconv.Atoi(u.Port())
	if err != nil {
		return map[string]int{"http": 80, "https": 443}[u.Scheme]
	}
	return n
}
