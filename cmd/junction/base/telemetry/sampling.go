package telemetry

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	spans "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// sampling decides which traces are recorded. It does what the samplers of OpenTelemetry do, and can
// be asked before there is a span: most requests are not sampled, and need none. It implements the
// interfaces Sampler and IDGenerator of OpenTelemetry.
type sampling struct {
	parentBased bool   // the flag of the parent counts, if there is a parent
	bound       uint64 // of the last 63 bits of the IDs of recorded traces
}

// every is the bound that records all traces.
const every = 1 << 63

// samplingOf reads OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG. The default, also for wrong
// values, is parentbased_always_on.
func samplingOf(getenv func(string) (string, bool)) (*sampling, error) {
	read := func(name string) string {
		text, _ := getenv(name)
		return strings.ToLower(strings.TrimSpace(text))
	}
	name, based := strings.CutPrefix(read("OTEL_TRACES_SAMPLER"), "parentbased_")
	s := &sampling{parentBased: based, bound: every}
	switch name {
	case "always_on":
	case "always_off":
		s.bound = 0
	case "traceidratio":
		text := read("OTEL_TRACES_SAMPLER_ARG")
		if text == "" {
			break
		}
		ratio, err := strconv.ParseFloat(text, 64)
		if err != nil || !(0 <= ratio && ratio <= 1) {
			return s, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG is %q, want a number from 0 to 1", text)
		}
		s.bound = uint64(ratio * every)
	case "":
		s.parentBased = true
	default:
		s.parentBased = true
		return s, fmt.Errorf("OTEL_TRACES_SAMPLER has an unknown value, %q", name)
	}
	return s, nil
}

// samples reports whether a span is recorded. parent may be invalid.
func (s *sampling) samples(parent trace.SpanContext, id trace.TraceID) bool {
	if s.parentBased && parent.IsValid() {
		return parent.IsSampled()
	}
	return binary.BigEndian.Uint64(id[8:])>>1 < s.bound
}

// ShouldSample implements spans.Sampler.
func (s *sampling) ShouldSample(p spans.SamplingParameters) spans.SamplingResult {
	parent := trace.SpanContextFromContext(p.ParentContext)
	r := spans.SamplingResult{Decision: spans.Drop, Tracestate: parent.TraceState()}
	if s.samples(parent, p.TraceID) {
		r.Decision = spans.RecordAndSample
	}
	return r
}

// Description implements spans.Sampler.
func (s *sampling) Description() string { return "junction" }

// decidedKey is the key of the ID of a trace that is sampled, in the context of its first span.
type decidedKey struct{}

// NewIDs implements spans.IDGenerator.
func (s *sampling) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, decided := ctx.Value(decidedKey{}).(trace.TraceID)
	if !decided {
		id = newTraceID()
	}
	return id, newSpanID()
}

// NewSpanID implements spans.IDGenerator.
func (s *sampling) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return newSpanID() }

// newTraceID returns a random ID.
func newTraceID() (id trace.TraceID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

// newSpanID returns a random ID.
func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}
