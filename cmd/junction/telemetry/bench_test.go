package telemetry

import (
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
	var sent = upstream.Sent{Upstream: "a", Call: call, Version: "2025-11-25"}
	return func() {
		*info = proxy.CallInfo{Method: "tools/call", Name: "a__echo", Own: "echo", Upstream: "a", Version: "2025-11-25"}
		trace := requests.Begin(info, raw.Object{}, nil)
		call.Trace = trace
		span, _ := calls.Begin(sent)
		calls.End(sent, span, upstream.Received{Took: time.Millisecond})
		info.Took, info.Outcome = time.Millisecond, outcomeOK
		requests.End(info, trace)
	}
}

// mustNew returns a Telemetry with metrics.
func mustNew(t testing.TB) *Telemetry {
	t.Helper()
	made, err := New(Options{Metrics: true, Log: authtest.Log(t)})
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

// BenchmarkCall is what a call costs more: with metrics at most 2 µs.
func BenchmarkCall(b *testing.B) {
	b.Run("metrics", func(b *testing.B) {
		call := measured(mustNew(b))
		b.ReportAllocs()
		for b.Loop() {
			call()
		}
	})
}
