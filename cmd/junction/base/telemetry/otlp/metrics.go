package otlp

import (
	"cmp"
	"context"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	metrics "go.opentelemetry.io/proto/slim/otlp/metrics/v1"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Metrics is the exporter of a sdk PeriodicReader. Its values are cumulative.
type Metrics struct{ Client *Client }

// Temporality implements sdk.Exporter.
func (Metrics) Temporality(k sdk.InstrumentKind) metricdata.Temporality {
	return sdk.DefaultTemporalitySelector(k)
}

// Aggregation implements sdk.Exporter.
func (Metrics) Aggregation(k sdk.InstrumentKind) sdk.Aggregation {
	return sdk.DefaultAggregationSelector(k)
}

// Export sends metrics. It returns nil also for metrics that were not accepted: the Client has
// logged that.
func (m Metrics) Export(ctx context.Context, all *metricdata.ResourceMetrics) error {
	out := &metrics.ResourceMetrics{Resource: resourceOf(all.Resource)}
	for _, s := range all.ScopeMetrics {
		scope := &metrics.ScopeMetrics{Scope: scopeOf(s.Scope)}
		for i := range s.Metrics {
			scope.Metrics = append(scope.Metrics, metricOf(&s.Metrics[i]))
		}
		out.ScopeMetrics = append(out.ScopeMetrics, scope)
	}
	var answer collector.ExportMetricsServiceResponse
	err := m.Client.send(ctx,
		&collector.ExportMetricsServiceRequest{ResourceMetrics: []*metrics.ResourceMetrics{out}}, &answer)
	p := answer.GetPartialSuccess()
	m.Client.note(cmp.Or(err, rejected(p.GetRejectedDataPoints(), "data points", p.GetErrorMessage())))
	return nil
}

// ForceFlush does nothing, because nothing is buffered.
func (Metrics) ForceFlush(context.Context) error { return nil }

// Shutdown closes the Client.
func (m Metrics) Shutdown(context.Context) error {
	m.Client.Close()
	return nil
}

func metricOf(m *metricdata.Metrics) *metrics.Metric {
	out := &metrics.Metric{Name: m.Name, Description: m.Description, Unit: m.Unit}
	switch data := m.Data.(type) {
	case metricdata.Gauge[int64]:
		out.Data = &metrics.Metric_Gauge{Gauge: &metrics.Gauge{DataPoints: points(data.DataPoints)}}
	case metricdata.Sum[int64]:
		out.Data = sum(points(data.DataPoints), data.IsMonotonic)
	case metricdata.Sum[float64]:
		out.Data = sum(points(data.DataPoints), data.IsMonotonic)
	case metricdata.Histogram[float64]:
		h := &metrics.Histogram{AggregationTemporality: cumulative}
		for i := range data.DataPoints {
			p := &data.DataPoints[i]
			h.DataPoints = append(h.DataPoints,
				&metrics.HistogramDataPoint{Attributes: attributes(p.Attributes.ToSlice()),
					StartTimeUnixNano: nanos(p.StartTime), TimeUnixNano: nanos(p.Time), Count: p.Count, Sum: &p.Sum,
					BucketCounts: p.BucketCounts, ExplicitBounds: p.Bounds})
		}
		out.Data = &metrics.Metric_Histogram{Histogram: h}
	}
	return out
}

const cumulative = metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE

func sum(list []*metrics.NumberDataPoint, monotonic bool) *metrics.Metric_Sum {
	return &metrics.Metric_Sum{Sum: &metrics.Sum{DataPoints: list, IsMonotonic: monotonic,
		AggregationTemporality: cumulative}}
}

func points[N int64 | float64](list []metricdata.DataPoint[N]) []*metrics.NumberDataPoint {
	out := make([]*metrics.NumberDataPoint, len(list))
	for i := range list {
		p := &metrics.NumberDataPoint{Attributes: attributes(list[i].Attributes.ToSlice()),
			StartTimeUnixNano: nanos(list[i].StartTime), TimeUnixNano: nanos(list[i].Time)}
		switch v := any(list[i].Value).(type) {
		case int64:
			p.Value = &metrics.NumberDataPoint_AsInt{AsInt: v}
		case float64:
			p.Value = &metrics.NumberDataPoint_AsDouble{AsDouble: v}
		}
		out[i] = p
	}
	return out
}
