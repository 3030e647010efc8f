package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"

	"junction/upstream"
)

// calls implements upstream.Observer.
type calls struct{ *Telemetry }

func (c calls) Begin(upstream.Sent) (upstream.Trace, upstream.TraceContext) {
	return nil, upstream.TraceContext{}
}

// End records the duration of a call.
func (c calls) End(s upstream.Sent, _ upstream.Trace, r upstream.Received) {
	if c.callTime != nil {
		c.callTime.Record(context.Background(), r.Took.Seconds(), c.callSeries.of(callKey(s, r))...)
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
