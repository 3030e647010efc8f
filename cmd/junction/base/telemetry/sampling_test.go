package telemetry

import (
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"junction/proxy"
	"junction/upstream/raw"
)

// TestSampling compares the decisions with the specification of the samplers, for each parent.
func TestSampling(t *testing.T) {
	low, high := trace.TraceID{0: 1, 8: 0x02}, trace.TraceID{0: 1, 8: 0xfe} // 0.8 % and 99 % of the IDs are smaller
	parent := func(flags trace.TraceFlags) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: low, SpanID: trace.SpanID{1}, TraceFlags: flags})
	}
	none, off, on := trace.SpanContext{}, parent(0), parent(trace.FlagsSampled)
	for _, test := range []struct {
		sampler, argument string
		want              string // for the parents none (low ID, high ID), off and on
		wrong             string // in the error
	}{
		{"", "", "11.0.1", ""},
		{"always_on", "", "11.1.1", ""},
		{"always_off", "", "00.0.0", ""},
		{"parentbased_always_on", "", "11.0.1", ""},
		{"parentbased_always_off", "", "00.0.1", ""},
		{"traceidratio", "0.01", "10.1.1", ""},
		{"traceidratio", "0", "00.0.0", ""},
		{" ParentBased_TraceIdRatio ", " 0.01 ", "10.0.1", ""},
		{"parentbased_traceidratio", "1", "11.0.1", ""},
		{"parentbased_traceidratio", "", "11.0.1", ""},
		{"parentbased_traceidratio", "1 %", "11.0.1", "OTEL_TRACES_SAMPLER_ARG"},
		{"traceidratio", "-1", "11.1.1", "OTEL_TRACES_SAMPLER_ARG"},
		{"traceidratio", "2", "11.1.1", "OTEL_TRACES_SAMPLER_ARG"},
		{"traceidratio", "NaN", "11.1.1", "OTEL_TRACES_SAMPLER_ARG"},
		{"jaeger_remote", "", "11.0.1", "OTEL_TRACES_SAMPLER"},
	} {
		s, err := samplingOf(func(name string) (string, bool) {
			return map[string]string{"OTEL_TRACES_SAMPLER": test.sampler, "OTEL_TRACES_SAMPLER_ARG": test.argument}[name], true
		})
		if (err != nil) != (test.wrong != "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%q %q: error %v, want one about %q", test.sampler, test.argument, err, test.wrong)
		}
		digit := map[bool]string{true: "1", false: "0"}
		got := digit[s.samples(none, low)] + digit[s.samples(none, high)] + "." + digit[s.samples(off, low)] + "." +
			digit[s.samples(on, low)]
		if got != test.want {
			t.Errorf("%q %q samples %s, want %s", test.sampler, test.argument, got, test.want)
		}
	}
}

// TestSampledIDs has the ID by which a trace was sampled in its span, so that other programs with the
// same ratio sample it, too.
func TestSampledIDs(t *testing.T) {
	x := mustTrace(t, "0.25")
	sampled := 0
	for range 1000 {
		r := requests{x}.Begin(&proxy.CallInfo{Method: "tools/call"}, raw.Object{}, nil)
		own := trace.SpanContextFromContext(below(r))
		_, recorded := r.(*requestTrace)
		if !own.IsValid() || own.IsSampled() != recorded || recorded != x.sampling.samples(trace.SpanContext{}, own.TraceID()) {
			t.Fatalf("the trace %v is recorded: %v", own, recorded)
		}
		if recorded {
			sampled++
		}
	}
	if sampled < 150 || sampled > 350 {
		t.Errorf("%d of 1000 traces are sampled, want about 250", sampled)
	}
}
