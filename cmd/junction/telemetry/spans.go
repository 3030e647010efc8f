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
	"junction/upstream"
	"junction/upstream/raw"
)

// requestTrace is the span of a client's request.
type requestTrace struct {
	origin
	ctx  context.Context // with the span
	span trace.Span
}

// startRequest starts the span of a request. Its final name is known at the end.
func (t *Telemetry) startRequest(info *proxy.CallInfo, meta raw.Object, header http.Header) *requestTrace {
	r := &requestTrace{origin: originOf(meta, header)}
	ctx := context.Background()
	if r.parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, r.parent)
	}
	options := t.server
	if r.ambient.IsValid() {
		options = append(options[:len(options):len(options)], trace.WithLinks(trace.Link{SpanContext: r.ambient}))
	}
	r.ctx, r.span = t.tracer.Start(ctx, methodOf(info.Method), options...)
	return r
}

// end ends the span of a request. The texts of the client in info are those of the audit.
func (r *requestTrace) end(info *proxy.CallInfo, k key) {
	defer r.span.End()
	if !r.span.IsRecording() {
		return
	}
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

// startCall starts the span of a call, below that of its request. Below a request that is not
// sampled it starts none: the server learns the request's own span, which is not recorded.
func (t *Telemetry) startCall(s upstream.Sent, of *requestTrace) (upstream.Trace, upstream.TraceContext) {
	if !of.span.SpanContext().IsSampled() {
		return nil, of.carried(of.span)
	}
	_, span := t.tracer.Start(of.ctx, methodOf(s.Call.Method), t.client...)
	return span, of.carried(span)
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
	if strings.HasPrefix(k.method, "resources/") {
		list = append(list, attrURI.String(s.Call.Name))
	}
	finish(span, list, k)
}
