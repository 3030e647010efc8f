package telemetry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// contentType is that of the text format of Prometheus.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// Handler answers a scrape of Prometheus. It works from New to Close, also before the upstreams are
// ready; after Close the status is 503.
func (t *Telemetry) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t == nil || t.reader == nil {
			http.Error(w, "There are no metrics (metrics: false).", http.StatusNotFound)
			return
		}
		var all metricdata.ResourceMetrics
		switch err := t.reader.Collect(r.Context(), &all); {
		case errors.Is(err, sdk.ErrReaderShutdown), errors.Is(err, sdk.ErrReaderNotRegistered):
			http.Error(w, "The proxy is stopping.", http.StatusServiceUnavailable)
			return
		case errors.Is(err, context.Canceled):
			return
		case err != nil: // what could be read is served
			t.log.Warn("some metrics cannot be read", "error", err)
		}
		w.Header().Set("Content-Type", contentType)
		w.Write(appendMetrics(nil, &all))
	})
}

// appendMetrics appends all metrics in the text format, sorted by name.
func appendMetrics(b []byte, all *metricdata.ResourceMetrics) []byte {
	var list []metricdata.Metrics
	for _, s := range all.ScopeMetrics {
		list = append(list, s.Metrics...)
	}
	slices.SortFunc(list, func(x, y metricdata.Metrics) int { return cmp.Compare(x.Name, y.Name) })
	for i := range list {
		b = appendMetric(b, &list[i])
	}
	return b
}

func appendMetric(b []byte, m *metricdata.Metrics) []byte {
	f := family{name: metricName(m)}
	switch data := m.Data.(type) {
	case metricdata.Gauge[int64]:
		b = f.head(b, m, "gauge")
		b = appendPoints(b, f, data.DataPoints)
	case metricdata.Gauge[float64]:
		b = f.head(b, m, "gauge")
		b = appendPoints(b, f, data.DataPoints)
	case metricdata.Sum[int64]:
		b = f.head(b, m, sumType(data.IsMonotonic))
		b = appendPoints(b, f, data.DataPoints)
	case metricdata.Sum[float64]:
		b = f.head(b, m, sumType(data.IsMonotonic))
		b = appendPoints(b, f, data.DataPoints)
	case metricdata.Histogram[float64]:
		b = f.head(b, m, "histogram")
		for i := range data.DataPoints {
			b = f.histogram(b, &data.DataPoints[i])
		}
	}
	return b
}

func sumType(monotonic bool) string {
	if monotonic {
		return "counter"
	}
	return "gauge"
}

// units are the words of units in names of Prometheus.
var units = map[string]string{"s": "seconds", "By": "bytes"}

// metricName returns the name of a metric for Prometheus (OpenTelemetry, Prometheus compatibility):
// underscores, the unit, and _total for a counter.
func metricName(m *metricdata.Metrics) string {
	name := labelName(m.Name)
	if unit := units[m.Unit]; unit != "" && !strings.HasSuffix(name, "_"+unit) {
		name += "_" + unit
	}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		if data.IsMonotonic {
			name += "_total"
		}
	case metricdata.Sum[float64]:
		if data.IsMonotonic {
			name += "_total"
		}
	}
	return name
}

func labelName(name string) string { return strings.NewReplacer(".", "_", "-", "_").Replace(name) }

// family is a metric of Prometheus.
type family struct{ name string }

func (f family) head(b []byte, m *metricdata.Metrics, kind string) []byte {
	help := strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(m.Description)
	b = append(b, "# HELP "+f.name+" "+help+"\n"...)
	return append(b, "# TYPE "+f.name+" "+kind+"\n"...)
}

func appendPoints[N int64 | float64](b []byte, f family, list []metricdata.DataPoint[N]) []byte {
	for i := range list {
		b = f.line(b, "", labels(list[i].Attributes), float64(list[i].Value))
	}
	return b
}

func (f family) histogram(b []byte, p *metricdata.HistogramDataPoint[float64]) []byte {
	own, n := labels(p.Attributes), uint64(0)
	with := own
	if own != "" {
		with += ","
	}
	for i, count := range p.BucketCounts {
		bound := math.Inf(1)
		if i < len(p.Bounds) {
			bound = p.Bounds[i]
		}
		n += count
		b = f.line(b, "_bucket", with+`le="`+number(bound)+`"`, float64(n))
	}
	b = f.line(b, "_sum", own, p.Sum)
	return f.line(b, "_count", own, float64(p.Count))
}

func (f family) line(b []byte, suffix, labels string, value float64) []byte {
	b = append(append(b, f.name...), suffix...)
	if labels != "" {
		b = append(append(append(b, '{'), labels...), '}')
	}
	return append(append(append(b, ' '), number(value)...), '\n')
}

func number(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// labels returns the attributes as labels, without braces.
func labels(set attribute.Set) string {
	b := new(bytes.Buffer)
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	for _, a := range set.ToSlice() {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(labelName(string(a.Key)) + `="`)
		b.WriteString(escape.Replace(strings.ToValidUTF8(a.Value.String(), "\ufffd")))
		b.WriteByte('"')
	}
	return b.String()
}
