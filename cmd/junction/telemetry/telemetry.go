package telemetry

import (
	"context"
	"errors"
	"log/slog"

	"github.com/mark3labs/mcp-go/mcp"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/exemplar"

	"junction/proxy"
	"junction/upstream"
)

// Options say what a Telemetry measures and where it sends the measurements.
type Options struct {
	Metrics bool // measure for Handler
	Version string
	Log     *slog.Logger
}

// Telemetry holds the instruments of a running proxy. A nil Telemetry measures nothing.
type Telemetry struct {
	log    *slog.Logger
	meters *sdk.MeterProvider // nil if nothing is measured
	reader *sdk.ManualReader  // of Handler; nil without Options.Metrics

	requestTime, callTime     metric.Float64Histogram // nil if nothing is measured
	requestSeries, callSeries series
}

const methodListen = string(mcp.MethodSubscriptionsListen)

// scope names Junction's instruments and spans.
const scope = "junction"

// New returns a Telemetry. It is nil if nothing is to be measured. Close ends it.
func New(o Options) (*Telemetry, error) {
	if !o.Metrics {
		return nil, nil
	}
	t := &Telemetry{log: o.Log, requestSeries: series{make: requestAttributes}, callSeries: series{make: callAttributes}}
	t.reader = sdk.NewManualReader()
	t.meters = sdk.NewMeterProvider(sdk.WithReader(t.reader), sdk.WithExemplarFilter(exemplar.AlwaysOffFilter),
		sdk.WithCardinalityLimit(2*maxSeries))
	return t, t.instruments(t.meters.Meter(scope))
}

// instruments makes the instruments that are written during calls.
func (t *Telemetry) instruments(m metric.Meter) error {
	var errs [2]error
	seconds := []metric.Float64HistogramOption{metric.WithUnit("s"), metric.WithExplicitBucketBoundaries(bounds...)}
	t.requestTime, errs[0] = m.Float64Histogram("mcp.server.operation.duration",
		append(seconds, metric.WithDescription("Duration of the requests of clients."))...)
	t.callTime, errs[1] = m.Float64Histogram("mcp.client.operation.duration",
		append(seconds, metric.WithDescription("Duration of the calls to upstreams, without waiting for a connection."))...)
	return errors.Join(errs[:]...)
}

// Requests returns the observer of clients' requests; nil if nothing is measured.
func (t *Telemetry) Requests() proxy.Observer {
	if t == nil {
		return nil
	}
	return requests{t}
}

// Calls returns the observer of calls to upstreams; nil if nothing is measured.
func (t *Telemetry) Calls() upstream.Observer {
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
	return t.meters.Shutdown(ctx)
}
