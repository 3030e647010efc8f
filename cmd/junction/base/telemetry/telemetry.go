package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"time"

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

	server, client        []trace.SpanStartOption
	began                 time.Time
	requestTime, callTime series
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
		began: time.Now(),
		requestTime: series{name: "mcp.server.operation.duration",
			description: "Duration of the requests of clients.", make: requestAttributes},
		callTime: series{name: "mcp.client.operation.duration", make: callAttributes,
			description: "Duration of the calls to upstreams, without waiting for a connection."}}
	about := describe(o)
	if e.traces != nil {
		t.trace(e.traces, about, o.Getenv)
	}
	options := []sdk.Option{sdk.WithResource(about), sdk.WithExemplarFilter(exemplar.AlwaysOffFilter),
		sdk.WithCardinalityLimit(2 * maxSeries)}
	if o.Metrics {
		t.reader = sdk.NewManualReader(sdk.WithProducer(t))
		options = append(options, sdk.WithReader(t.reader))
	}
	if e.metrics != nil {
		options = append(options, sdk.WithReader(t.periodic(e.metrics)))
	}
	if o.Metrics || e.metrics != nil {
		t.meters = sdk.NewMeterProvider(options...)
		m := t.meters.Meter(scope)
		return t, errors.Join(t.events(m), process(m))
	}
	return t, nil
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
