package telemetry

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/proxy"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// measured are the observations of one call, as proxy and upstream make them.
func measured(t *Telemetry) func() {
	requests, calls := t.Requests(), t.Calls()
	params, _ := raw.Parse([]byte(`{"name":"a__echo"}`))
	call := &client.Call{Method: "tools/call", Name: "echo", Params: params}
	info := &proxy.CallInfo{Method: "tools/call", Name: "a__echo", Own: "echo", Upstream: "a", Version: "2025-11-25"}
	sent := client.Sent{Server: client.Command, Upstream: "a", Method: call.Method, Name: call.Name, Version: "2025-11-25"}
	return func() {
		*info = proxy.CallInfo{Method: "tools/call", Name: "a__echo", Own: "echo", Upstream: "a", Version: "2025-11-25"}
		trace := requests.Begin(info, raw.Object{}, nil)
		sent.Of = trace
		span, _ := calls.Begin(sent)
		calls.End(sent, span, client.Received{Took: time.Millisecond})
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

// TestCost: the metrics of a call allocate nothing.
func TestCost(t *testing.T) {
	if n := testing.AllocsPerRun(1000, measured(mustNew(t))); n > 0 {
		t.Errorf("the metrics of a call make %v allocations, want none", n)
	}
	if n := testing.AllocsPerRun(1000, measured(mustTrace(t, "0"))); n > 1 {
		t.Errorf("the trace of a call that is not sampled makes %v allocations, want at most 1", n)
	}
}

// mustTrace returns a Telemetry with traces, of which a share is sampled.
func mustTrace(t testing.TB, sampled string) *Telemetry {
	t.Helper()
	sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(sink.Close)
	variables := map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": sink.URL,
		"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": sampled}
	made, err := New(Options{Getenv: func(name string) (string, bool) {
		v, ok := variables[name]
		return v, ok
	}, Log: authtest.Log(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.Close(t.Context()) })
	return made
}

// BenchmarkCall is what a call costs more: with metrics at most 2 µs, and with traces of which 1 % are
// sampled at most 3 % of a call, which is 2 µs too. BenchmarkTraced of integration/bench compares whole
// calls.
func BenchmarkCall(b *testing.B) {
	run := func(name string, x *Telemetry) {
		b.Run(name, func(b *testing.B) {
			call := measured(x)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
	run("metrics", mustNew(b))
	run("traces-1%", mustTrace(b, "0.01"))
	run("traces-100%", mustTrace(b, "1"))
}
