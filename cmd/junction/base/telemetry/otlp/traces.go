package otlp

import (
	"cmp"
	"context"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	traces "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Spans is the exporter of a sdk TracerProvider. All spans must have the same resource.
type Spans struct{ Client *Client }

// ExportSpans sends spans. It returns nil also for spans that were not accepted: the Client has
// logged that.
func (s Spans) ExportSpans(ctx context.Context, list []sdk.ReadOnlySpan) error {
	if len(list) == 0 {
		return nil
	}
	scopes := map[instrumentation.Scope]*traces.ScopeSpans{}
	all := &traces.ResourceSpans{Resource: resourceOf(list[0].Resource())}
	for _, span := range list {
		scope := span.InstrumentationScope()
		if scopes[scope] == nil {
			scopes[scope] = &traces.ScopeSpans{Scope: scopeOf(scope)}
			all.ScopeSpans = append(all.ScopeSpans, scopes[scope])
		}
		scopes[scope].Spans = append(scopes[scope].Spans, spanOf(span))
	}
	var answer collector.ExportTraceServiceResponse
	err := s.Client.send(ctx, &collector.ExportTraceServiceRequest{ResourceSpans: []*traces.ResourceSpans{all}},
		&answer)
	p := answer.GetPartialSuccess()
	s.Client.note(cmp.Or(err, rejected(p.GetRejectedSpans(), "spans", p.GetErrorMessage())))
	return nil
}

// Shutdown closes the Client.
func (s Spans) Shutdown(context.Context) error {
	s.Client.Close()
	return nil
}

func spanOf(s sdk.ReadOnlySpan) *traces.Span {
	id, trail := s.SpanContext().SpanID(), s.SpanContext().TraceID()
	span := &traces.Span{TraceId: trail[:], SpanId: id[:], TraceState: s.SpanContext().TraceState().String(),
		Flags: flags(s.SpanContext(), s.Parent()), Name: s.Name(), Kind: kinds[s.SpanKind()],
		StartTimeUnixNano: nanos(s.StartTime()), EndTimeUnixNano: nanos(s.EndTime()),
		Attributes: attributes(s.Attributes()), DroppedAttributesCount: uint32(max(s.DroppedAttributes(), 0)),
		Status: &traces.Status{Code: statuses[s.Status().Code], Message: s.Status().Description}}
	if parent := s.Parent(); parent.HasSpanID() {
		id := parent.SpanID()
		span.ParentSpanId = id[:]
	}
	for _, l := range s.Links() {
		id, trail := l.SpanContext.SpanID(), l.SpanContext.TraceID()
		span.Links = append(span.Links, &traces.Span_Link{TraceId: trail[:], SpanId: id[:],
			TraceState: l.SpanContext.TraceState().String(), Attributes: attributes(l.Attributes),
			Flags: flags(l.SpanContext, l.SpanContext)})
	}
	return span
}

// flags returns the trace flags, with whether the parent is of another process.
func flags(own, parent trace.SpanContext) uint32 {
	f := uint32(own.TraceFlags()) | uint32(traces.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
	if parent.IsRemote() {
		f |= uint32(traces.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
	}
	return f
}

var kinds = map[trace.SpanKind]traces.Span_SpanKind{
	trace.SpanKindInternal: traces.Span_SPAN_KIND_INTERNAL, trace.SpanKindServer: traces.Span_SPAN_KIND_SERVER,
	trace.SpanKindClient: traces.Span_SPAN_KIND_CLIENT,
}

var statuses = map[codes.Code]traces.Status_StatusCode{
	codes.Ok: traces.Status_STATUS_CODE_OK, codes.Error: traces.Status_STATUS_CODE_ERROR,
}
