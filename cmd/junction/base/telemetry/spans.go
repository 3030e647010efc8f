package telemetry

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"junction/upstream/client"
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
func (d *dropped) carried() client.TraceContext {
	return client.TraceContext{Parent: d.text[:], State: d.state, Header: d.header, Inherited: d.inherited}
}

// finish ends a span with its name, attributes and status.
func finish(span trace.Span, list []attribute.KeyValue, k key) {
	defer span.End()
	span.SetName(strings.TrimSuffix(k.method+" "+k.name, " "))
	if k.code != 0 {
		list = append(list, attrCode.Int64(k.code))
	}
	span.SetAttributes(list...)
	if k.failed() {
		span.SetStatus(codes.Error, "")
	}
}

// below returns the context for spans below that of a Trace, which may be nil.
func below(t client.Trace) context.Context {
	switch parent := t.(type) {
	case *dropped:
		c := contextOf(string(parent.text[1:parentSize-1]), parent.state)
		return trace.ContextWithSpanContext(context.Background(), c)
	case *requestTrace:
		return trace.ContextWithSpan(context.Background(), parent.span)
	case trace.Span:
		return trace.ContextWithSpan(context.Background(), parent)
	}
	return context.Background()
}

// linked returns the options with a link.
func linked(options []trace.SpanStartOption, to trace.SpanContext) []trace.SpanStartOption {
	return append(options[:len(options):len(options)], trace.WithLinks(trace.Link{SpanContext: to}))
}

// uriOf returns the attribute for the name of a resource.
func uriOf(k key, name string) []attribute.KeyValue {
	if !strings.HasPrefix(k.method, "resources/") || name == "" {
		return nil
	}
	return []attribute.KeyValue{attrURI.String(name)}
}
