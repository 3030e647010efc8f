// Package telemetry tests what a running proxy reports of itself: metrics for Prometheus, and traces
// and metrics as OTLP.
package telemetry

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	logs "go.opentelemetry.io/proto/slim/otlp/collector/logs/v1"
	collector "go.opentelemetry.io/proto/slim/otlp/collector/metrics/v1"
	traces "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	spans "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"junction/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }

// receiver takes OTLP over HTTP.
type receiver struct {
	url string

	mu      sync.Mutex
	spans   []span
	metrics map[string]bool // names
	lines   []string        // bodies of log records
	labels  []map[string]string
	header  http.Header   // of the last request
	service string        // service.name of the last request
	more    chan struct{} // closed and replaced when something came
}

// span is what tests look at.
type span struct {
	name, kind, trace, id, parent, state string
	failed                               bool
	attributes                           map[string]string
	links                                []string // trace and span
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{metrics: map[string]bool{}, more: make(chan struct{})}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body := io.Reader(q.Body)
	if q.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(q.Body)
	}
	text, err := io.ReadAll(body)
	r.mu.Lock()
	defer r.mu.Unlock()
	var in traces.ExportTraceServiceRequest
	var measured collector.ExportMetricsServiceRequest
	var logged logs.ExportLogsServiceRequest
	switch {
	case err != nil, q.Header.Get("Content-Type") != "application/x-protobuf":
		w.WriteHeader(http.StatusBadRequest)
		return
	case q.URL.Path == "/v1/traces" && proto.Unmarshal(text, &in) == nil:
		r.take(&in)
	case q.URL.Path == "/v1/metrics" && proto.Unmarshal(text, &measured) == nil:
		for _, of := range measured.ResourceMetrics {
			for _, scope := range of.ScopeMetrics {
				for _, m := range scope.Metrics {
					r.metrics[m.Name] = true
				}
			}
		}
	case q.URL.Path == "/v1/logs" && proto.Unmarshal(text, &logged) == nil:
		for _, of := range logged.ResourceLogs {
			for _, scope := range of.ScopeLogs {
				for _, l := range scope.LogRecords {
					r.lines = append(r.lines, l.Body.GetStringValue())
					r.labels = append(r.labels, texts(l.Attributes))
				}
			}
		}
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	r.header = q.Header
	close(r.more)
	r.more = make(chan struct{})
}

func (r *receiver) take(in *traces.ExportTraceServiceRequest) {
	for _, of := range in.ResourceSpans {
		r.service = texts(of.Resource.Attributes)["service.name"]
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				got := span{name: s.Name, kind: s.Kind.String(), trace: hex.EncodeToString(s.TraceId),
					id: hex.EncodeToString(s.SpanId), parent: hex.EncodeToString(s.ParentSpanId), state: s.TraceState,
					failed: s.Status.GetCode() == spans.Status_STATUS_CODE_ERROR, attributes: texts(s.Attributes)}
				for _, l := range s.Links {
					got.links = append(got.links, hex.EncodeToString(l.TraceId)+"-"+hex.EncodeToString(l.SpanId))
				}
				r.spans = append(r.spans, got)
			}
		}
	}
}

// texts returns attributes as text.
func texts(list []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range list {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			all[a.Key] = v.StringValue
		default:
			all[a.Key] = a.Value.String()
		}
	}
	return all
}

// await waits until the condition holds.
func (r *receiver) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx := harness.Patient(t)
	for {
		r.mu.Lock()
		done, more := holds(), r.more
		r.mu.Unlock()
		if done {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			t.Fatalf("the receiver has not got %s", what)
		}
	}
}

// only returns the span of that kind and name.
func (r *receiver) only(t *testing.T, kind, name string) (found span) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, s := range r.spans {
		if s.kind == kind && s.name == name {
			found = s
			n++
		}
	}
	if n != 1 {
		t.Fatalf("there are %d spans %s of kind %s, want 1; all are %+v", n, name, kind, r.spans)
	}
	return found
}

const (
	serverSpan = "SPAN_KIND_SERVER"
	clientSpan = "SPAN_KIND_CLIENT"
)
