package telemetry

import (
	"context"
	"crypto/rand"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	spans "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"junction/cmd/junction/base/telemetry/otlp"
)

// exports are the signals that are sent as OTLP; nil is not sent.
type exports struct{ traces, metrics *otlp.Client }

// exportsOf reads the environment. A signal whose variables are wrong is not sent: a proxy without
// traces is better than none.
func exportsOf(o Options) (e exports) {
	for signal, client := range map[string]**otlp.Client{"traces": &e.traces, "metrics": &e.metrics} {
		s, err := otlp.FromEnvironment(signal, o.Getenv)
		if err != nil {
			o.Log.Warn(signal+" are not exported: a variable is wrong", "error", err)
		} else if s != nil {
			o.Log.Info(signal+" are exported", "endpoint", s.Endpoint.Redacted())
			*client = otlp.New(*s, o.Log)
		}
	}
	return e
}

// NewLines returns the sender of lines of JSON as log records. It returns nil if the environment
// names no receiver for logs. An error names the variable that is wrong.
func NewLines(o Options, event string) (*otlp.Lines, error) {
	s, err := otlp.FromEnvironment("logs", o.Getenv)
	if err != nil || s == nil {
		return nil, err
	}
	return otlp.NewLines(otlp.New(*s, o.Log), describe(o), event, o.Log), nil
}

// describe returns the resource that all signals are about. OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES go before our own attributes.
func describe(o Options) *resource.Resource {
	r, err := resource.New(context.Background(), resource.WithAttributes(
		attribute.String("service.name", "junction"), attribute.String("service.version", o.Version),
		attribute.String("service.instance.id", rand.Text())),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		o.Log.Warn("a variable of OpenTelemetry is wrong (OTEL_RESOURCE_ATTRIBUTES)", "error", err)
	}
	return r
}

// trace makes the tracer. Its sampler and its limits come from the environment.
func (t *Telemetry) trace(c *otlp.Client, r *resource.Resource, getenv func(string) (string, bool)) {
	var err error
	if t.sampling, err = samplingOf(getenv); err != nil {
		t.log.Warn("traces are sampled by default: a variable is wrong", "error", err)
	}
	t.spans = spans.NewTracerProvider(spans.WithBatcher(otlp.Spans{Client: c}), spans.WithResource(r),
		spans.WithSampler(t.sampling), spans.WithIDGenerator(t.sampling))
	t.tracer = t.spans.Tracer(scope)
	t.server = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	t.client = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
}

// periodic sends metrics every minute (OTEL_METRIC_EXPORT_INTERVAL).
func (t *Telemetry) periodic(c *otlp.Client) sdk.Reader {
	return sdk.NewPeriodicReader(otlp.Metrics{Client: c}, sdk.WithProducer(t))
}
