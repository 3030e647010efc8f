package telemetry

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/raw"
)

// measured are the observations of one call, as proxy and upstream make them.
func measured(t *Telemetry) func() {
	requests, calls := t.Requests(), t.Calls()
	params, _ := raw.Parse([]byte(`{"name":"a__echo"}`))
	call := &upstream.Call{Method: "tools/call", Name: "echo", Params: params}
	info := &proxy.CallInfo{Method: "tools/call", Name: "a__echo", Own: "echo", Upstream: "a", Version: "2025-11-25"}
	sent := upstream.Sent{Upstream: "a", Method: call.Method, Name: call.Name, Version: "2025-11-25"}
	return func() {
		*info = proxy.CallInfo{Method: "tools/call", Name: "a__echo", Own: "echo", Upstream: "a", Version: "2025-11-25"}
		trace := requests.Begin(info, raw.Object{}, nil)
		sent.Of = trace
		span, _ := calls.Begin(sent)
		calls.End(sent, span, upstream.Received{Took: time.Millisecond})
		info.Took, info.Outcome = time.Millisecond, outcomeOK
		requests.End(info, trace)
	}
}

// unset is an environment without variables.
func unset(string) (string, bool) { return "", false }

// mustNew returns a Telemetry with metrics.
func mustNew(t testing.TB) *Telemetry {
	t.Helper()
	made, err := New(Options{Metrics: true, Getenv: unset, Log: authtest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close(t.Context()) })
	return made
}

// TestCost limits what metrics cost a call: 2 allocations.
func TestCost(t *testing.T) {
	if n := testing.AllocsPerRun(1000, measured(mustNew(t))); n > 2 {
		t.Errorf("the metrics of a call make %v allocations, want at most 2", n)
	}
}

// BenchmarkCall is what a call costs more: with metrics at most 2 µs, and with traces of which 1 % are
// sampled at most 3 % of a call, which is 2 µs too. See integration/README.md for the cost of a call.
func BenchmarkCall(b *testing.B) {
	run := func(name string, traced bool, sampled string) {
		b.Run(name, func(b *testing.B) {
			b.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
			b.Setenv("OTEL_TRACES_SAMPLER_ARG", sampled)
			o := Options{Metrics: !traced, Getenv: unset, Log: authtest.Log(b)}
			if traced {
				sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				defer sink.Close()
				o.Getenv = func(name string) (string, bool) {
					return map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": sink.URL}[name], true
				}
			}
			t, err := New(o)
			if err != nil {
				b.Fatal(err)
			}
			defer t.Close(b.Context())
			call := measured(t)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
	run("metrics", false, "0")
	run("traces-1%", true, "0.01")
	run("traces-100%", true, "1")
}
