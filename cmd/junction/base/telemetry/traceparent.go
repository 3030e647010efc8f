package telemetry

import (
	"context"
	"encoding/hex"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"junction/upstream/client"
	"junction/upstream/raw"
)

// carrier holds the two fields of W3C Trace Context, to be read. It implements
// propagation.TextMapCarrier.
type carrier struct{ parent, state string }

func (c *carrier) Get(name string) string {
	switch name {
	case "traceparent":
		return c.parent
	case "tracestate":
		return c.state
	}
	return ""
}

func (c *carrier) Set(string, string) {}

func (c *carrier) Keys() []string { return nil }

// contextOf returns the span that the fields name. It is invalid if they name none.
func contextOf(parent, state string) trace.SpanContext {
	if parent == "" {
		return trace.SpanContext{}
	}
	c := &carrier{parent, state}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), c))
}

// origin is where the trace of a request comes from.
type origin struct {
	bearing
	parent  trace.SpanContext // of the client's span; invalid for none
	ambient trace.SpanContext // of the HTTP request, if parent is another one
}

// bearing is how _meta may be changed: see client.TraceContext.
type bearing struct{ header, inherited bool }

// originOf reads the trace of a request. _meta takes precedence over the HTTP headers (SEP-414),
// which are often those of a proxy. An invalid traceparent in _meta is ignored, and passed on
// unchanged.
func originOf(meta raw.Object, header http.Header) (o origin) {
	if _, err := meta.Get("traceparent"); err != raw.ErrAbsent {
		if text, err := meta.String("traceparent"); err == nil {
			state, _ := meta.String("tracestate")
			o.parent = contextOf(text, state)
		}
		o.header = !o.parent.IsValid()
	}
	_, err := meta.Get("tracestate")
	o.inherited = err != raw.ErrAbsent
	if list := header["Traceparent"]; len(list) == 1 {
		state := ""
		if list := header["Tracestate"]; len(list) == 1 {
			state = list[0]
		}
		o.ambient = contextOf(list[0], state)
	}
	if !o.parent.IsValid() {
		o.parent, o.ambient = o.ambient, trace.SpanContext{}
	}
	return o
}

// parentSize is the length of a traceparent as a JSON string.
const parentSize = len(`"00-`) + 2*len(trace.TraceID{}) + len("-") + 2*len(trace.SpanID{}) + len(`-00"`)

// carried returns the trace context that the upstream gets for a span.
func (o bearing) carried(c trace.SpanContext) client.TraceContext {
	parent := appendParent(make([]byte, 0, parentSize), c.TraceID(), c.SpanID(), c.TraceFlags())
	return client.TraceContext{Parent: parent, State: c.TraceState().String(), Header: o.header,
		Inherited: o.inherited}
}

// appendParent appends a traceparent as a JSON string.
func appendParent(b []byte, id trace.TraceID, own trace.SpanID, flags trace.TraceFlags) []byte {
	b = append(hex.AppendEncode(append(b, `"00-`...), id[:]), '-')
	b = append(hex.AppendEncode(b, own[:]), '-')
	return append(hex.AppendEncode(b, []byte{byte(flags)}), '"')
}
