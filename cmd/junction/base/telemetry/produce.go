package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// durations is a histogram with one set of attributes. Recording takes no lock.
type durations struct {
	set    attribute.Set
	counts [len(bounds) + 1]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

func (d *durations) add(took time.Duration) {
	i, seconds := 0, took.Seconds()
	for i < len(bounds) && seconds > bounds[i] {
		i++
	}
	d.counts[i].Add(1)
	d.sum.Add(int64(took))
}

// point reads a histogram. Its count is the sum of its buckets also while calls go on.
func (d *durations) point(began, now time.Time) metricdata.HistogramDataPoint[float64] {
	p := metricdata.HistogramDataPoint[float64]{Attributes: d.set, StartTime: began, Time: now, Bounds: bounds[:],
		BucketCounts: make([]uint64, len(d.counts)), Sum: time.Duration(d.sum.Load()).Seconds()}
	for i := range d.counts {
		p.BucketCounts[i] = d.counts[i].Load()
		p.Count += p.BucketCounts[i]
	}
	return p
}

// Produce implements sdk.Producer: it reads what calls have recorded, for each scrape and export.
func (t *Telemetry) Produce(context.Context) ([]metricdata.ScopeMetrics, error) {
	now := time.Now()
	out := metricdata.ScopeMetrics{Scope: instrumentation.Scope{Name: scope}}
	for _, s := range []*series{&t.requestTime, &t.callTime} {
		if data := s.read(t.began, now); len(data.DataPoints) > 0 {
			out.Metrics = append(out.Metrics,
				metricdata.Metrics{Name: s.name, Description: s.description, Unit: "s", Data: data})
		}
	}
	for _, c := range t.all() {
		if data := c.read(t.began, now); len(data.DataPoints) > 0 {
			out.Metrics = append(out.Metrics,
				metricdata.Metrics{Name: c.name, Description: c.description, Data: data})
		}
	}
	return []metricdata.ScopeMetrics{out}, nil
}

func (s *series) read(began, now time.Time) metricdata.Histogram[float64] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	h := metricdata.Histogram[float64]{Temporality: metricdata.CumulativeTemporality}
	for _, d := range s.sets {
		h.DataPoints = append(h.DataPoints, d.point(began, now))
	}
	return h
}

func (c *counter) read(began, now time.Time) metricdata.Sum[int64] {
	c.mu.RLock()
	defer c.mu.RUnlock()
	sum := metricdata.Sum[int64]{Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
	for value, n := range c.known {
		sum.DataPoints = append(sum.DataPoints, metricdata.DataPoint[int64]{StartTime: began, Time: now,
			Attributes: attribute.NewSet(c.by.String(value)), Value: n.Load()})
	}
	return sum
}
