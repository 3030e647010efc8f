package telemetry

import (
	"context"
	"encoding/hex"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"junction/upstream"
	"junction/upstream/raw"
)

// carrier holds the two fields of W3C Trace Context. It implements propagation.TextMapCarrier.
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

func (c *carrier) Set(name, value string) {
	switch name {
	case "traceparent":
		c.parent = value
	case "tracestate":
		c.state = value
	}
}

func (c *carrier) Keys() []string { return []string{"traceparent", "tracestate"} }

// context returns the span that the fields name. It is invalid if they name none.
func (c *carrier) context() trace.SpanContext {
	if c.parent == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), c))
}

// origin is where the trace of a request comes from.
type origin struct {
	parent  trace.SpanContext // of the client's span; invalid for none
	ambient trace.SpanContext // of the HTTP request, if parent is another one
	// how _meta may be changed: see upstream.TraceContext
	header, inherited bool
}

// originOf reads the trace of a request. _meta takes precedence over the HTTP headers (SEP-414),
// which are often those of a proxy. An invalid traceparent in _meta is ignored, and passed on
// unchanged.
func originOf(meta raw.Object, header http.Header) (o origin) {
	var in, around carrier
	text, err := meta.String("traceparent")
	_, absent := meta.Get("traceparent")
	o.header = absent != raw.ErrAbsent
	if err == nil {
		in.parent = text
		in.state, _ = meta.String("tracestate")
		o.parent = in.context()
		o.header = !o.parent.IsValid()
	}
	_, absent = meta.Get("tracestate")
	o.inherited = absent != raw.ErrAbsent
	if list := header["Traceparent"]; len(list) == 1 {
		around.parent = list[0]
		if list := header["Tracestate"]; len(list) == 1 {
			around.state = list[0]
		}
		o.ambient = around.context()
	}
	if !o.parent.IsValid() {
		o.parent, o.ambient = o.ambient, trace.SpanContext{}
	}
	return o
}

// carried returns the trace context that the upstream gets for a span.
func (o *origin) carried(c trace.SpanContext) upstream.TraceContext {
	id, own, flags := c.TraceID(), c.SpanID(), byte(c.TraceFlags())
	b := make([]byte, 0, len("00-")+2*len(id)+len("-")+2*len(own)+len("-00"))
	b = append(hex.AppendEncode(append(b, "00-"...), id[:]), '-')
	b = append(hex.AppendEncode(b, own[:]), '-')
	b = hex.AppendEncode(b, []byte{flags})
	return upstream.TraceContext{Parent: string(b), State: c.TraceState().String(), Header: o.header,
		Inherited: o.inherited}
}
