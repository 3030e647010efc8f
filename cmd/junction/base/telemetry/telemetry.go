package telemetry

import (
	"context"
	"errors"
	"log/slog"

	"github.com/mark3labs/mcp-go/mcp"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"
	spans "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"junction/proxy/front"
	"junction/upstream/client"
)

// Options configure what a Telemetry measures and where it sends the measurements.
type Options struct {
	Metrics bool                        // measure for Handler
	Getenv  func(string) (string, bool) // the variables OTEL_*, which say what is exported
	Version string                      // of the program
	Log     *slog.Logger
}

// Telemetry holds the instruments of a running proxy. A nil Telemetry measures nothing.
type Telemetry struct {
	log      *slog.Logger
	meters   *sdk.MeterProvider    // nil if nothing is measured
	reader   *sdk.ManualReader     // of Handler; nil without Options.Metrics
	spans    *spans.TracerProvider // nil without traces
	tracer   trace.Tracer          // nil without traces
	sampling *sampling             // nil without traces

	server, client            []trace.SpanStartOption
	requestTime, callTime     metric.Float64Histogram // nil if nothing is measured
	requestSeries, callSeries series
	counters
	operations map[string][]metric.RecordOption // of the storage
	version    string
}

const methodListen = string(mcp.MethodSubscriptionsListen)

// scope names Junction's instruments and spans.
const scope = "junction"

// New returns a Telemetry. It is nil if nothing is measured or exported. Close ends it.
func New(o Options) (*Telemetry, error) {
	e := exportsOf(o)
	if !o.Metrics && e.traces == nil && e.metrics == nil {
		return nil, nil
	}
	t := &Telemetry{log: o.Log, version: o.Version, operations: map[string][]metric.RecordOption{},
		requestSeries: series{make: requestAttributes}, callSeries: series{make: callAttributes}}
	about := describe(o)
	if e.traces != nil {
		t.trace(e.traces, about, o.Getenv)
	}
	options := []sdk.Option{sdk.WithResource(about), sdk.WithExemplarFilter(exemplar.AlwaysOffFilter),
		sdk.WithCardinalityLimit(2 * maxSeries)}
	if o.Metrics {
		t.reader = sdk.NewManualReader()
		options = append(options, sdk.WithReader(t.reader))
	}
	if e.metrics != nil {
		options = append(options, sdk.WithReader(periodic(e.metrics)))
	}
	if o.Metrics || e.metrics != nil {
		t.meters = sdk.NewMeterProvider(options...)
		m := t.meters.Meter(scope)
		return t, errors.Join(t.instruments(m), t.events(m), process(m))
	}
	return t, nil
}

// instruments makes the instruments that are written during calls.
func (t *Telemetry) instruments(m metric.Meter) error {
	var err1, err2 error
	seconds, buckets := metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(bounds...)
	t.requestTime, err1 = m.Float64Histogram("mcp.server.operation.duration", seconds, buckets,
		metric.WithDescription("Duration of the requests of clients."))
	t.callTime, err2 = m.Float64Histogram("mcp.client.operation.duration", seconds, buckets,
		metric.WithDescription("Duration of the calls to upstreams, without waiting for a connection."))
	return errors.Join(err1, err2)
}

// Requests returns the observer of clients' requests; nil if nothing is measured.
func (t *Telemetry) Requests() front.Observer {
	if t == nil {
		return nil
	}
	return requests{t}
}

// Calls returns the observer of calls to upstreams; nil if nothing is measured.
func (t *Telemetry) Calls() client.Observer {
	if t == nil {
		return nil
	}
	return calls{t}
}

// Close ends the measuring and sends what was not sent yet, until ctx ends.
func (t *Telemetry) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	var ended, sent error
	if t.spans != nil {
		ended = t.spans.Shutdown(ctx)
	}
	if t.meters != nil {
		sent = t.meters.Shutdown(ctx)
	}
	return errors.Join(ended, sent)
}
