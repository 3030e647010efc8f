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

// contentType is the content type of the text format of Prometheus.
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
	switch data := m.Data.(type) {
	case metricdata.Gauge[int64]:
		return appendPoints(b, m, "gauge", data.DataPoints)
	case metricdata.Sum[int64]:
		return appendPoints(b, m, sumType(data.IsMonotonic), data.DataPoints)
	case metricdata.Sum[float64]:
		return appendPoints(b, m, sumType(data.IsMonotonic), data.DataPoints)
	case metricdata.Histogram[float64]:
		b, name := appendHead(b, m, "histogram")
		for i := range data.DataPoints {
			b = appendHistogram(b, name, &data.DataPoints[i])
		}
		return b
	}
	return b // Junction has no others
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
func metricName(m *metricdata.Metrics, kind string) string {
	name := labelName(m.Name)
	if unit := units[m.Unit]; unit != "" && !strings.HasSuffix(name, "_"+unit) {
		name += "_" + unit
	}
	if kind == "counter" {
		name += "_total"
	}
	return name
}

func labelName(name string) string { return strings.NewReplacer(".", "_", "-", "_").Replace(name) }

// appendHead appends the description of a metric. It returns the name, too.
func appendHead(b []byte, m *metricdata.Metrics, kind string) ([]byte, string) {
	name := metricName(m, kind)
	help := strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(m.Description)
	return append(b, "# HELP "+name+" "+help+"\n# TYPE "+name+" "+kind+"\n"...), name
}

func appendPoints[N int64 | float64](b []byte, m *metricdata.Metrics, kind string,
	list []metricdata.DataPoint[N]) []byte {
	b, name := appendHead(b, m, kind)
	for i := range list {
		b = appendLine(b, name, labels(list[i].Attributes), float64(list[i].Value))
	}
	return b
}

func appendHistogram(b []byte, name string, p *metricdata.HistogramDataPoint[float64]) []byte {
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
		b = appendLine(b, name+"_bucket", with+`le="`+number(bound)+`"`, float64(n))
	}
	b = appendLine(b, name+"_sum", own, p.Sum)
	return appendLine(b, name+"_count", own, float64(p.Count))
}

func appendLine(b []byte, name, labels string, value float64) []byte {
	if labels != "" {
		labels = "{" + labels + "}"
	}
	return append(b, name+labels+" "+number(value)+"\n"...)
}

// number returns a value as Prometheus reads it, also +Inf.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

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
