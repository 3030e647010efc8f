package bench

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"time"
)

// tracedVariants are the shares of sampled traces that BenchmarkTraced compares; "" is no traces.
var tracedVariants = []struct{ name, sampled string }{{"without", ""}, {"again", ""}, {"1 %", "0.01"}, {"100 %", "1"}}

// tracedStarts is how often the processes are started: some are a tenth faster than others for all of
// their life.
const tracedStarts = 8

// BenchmarkTraced is the CPU time of a call with traces, relative to that of a call without them. The
// variants take turns within one run, in rounds of BENCH_SECONDS: a ratio is that of one round.
// "again" is a second process without traces, whose ratio shows the noise.
//
//	BENCH_CELLS='*/8/100B' go test ./integration/bench -run '^$' -bench Traced -benchtime 1x -timeout 0
func BenchmarkTraced(b *testing.B) {
	rounds, each := benchRounds(b, "5", "0.3")
	t := comparison{rounds: rounds, each: each, program: builder(b)}
	fmt.Printf("\nmedians of %d rounds of %v; CPU time of a call, relative to one without traces\n",
		tracedStarts*rounds, each)
	for _, era := range benchEras {
		for _, c := range benchCells(era) {
			if benchChosen("BENCH_CELLS", c.String()) {
				t.traced(b, c)
			}
		}
	}
	b.ReportMetric(0, "ns/op") // it means nothing here
}

// traced measures one cell.
func (t *comparison) traced(b *testing.B, c benchCell) {
	b.Helper()
	n := len(tracedVariants)
	own, ratios := make([][]float64, n), make([][]float64, n)
	for start := range tracedStarts {
		b.Run(fmt.Sprint(c, " ", start), func(b *testing.B) {
			sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
			}))
			b.Cleanup(sink.Close)
			upstream := startEcho(b, 1)
			roads := make([]benchEndpoint, n)
			for turn := range n {
				i := (start + turn) % n
				roads[i] = startTraced(b, t.program(b), c.era, tracedVariants[i].sampled, sink.URL, upstream)
			}
			for i, samples := range t.measure(b, c, roads) {
				for round, s := range samples {
					own[i] = append(own[i], s.cpuPerCall())
					ratios[i] = append(ratios[i], s.cpuPerCall()/own[0][start*t.rounds+round])
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	for i, v := range tracedVariants {
		fmt.Printf("%-16s %-10s %8.1f µs %8.3f ×\n", c, v.name, median(own[i]), median(ratios[i]))
	}
}

// startTraced starts the program under test with a share of sampled traces.
func startTraced(b *testing.B, program, era, sampled, sink string, upstream benchEndpoint) benchEndpoint {
	b.Helper()
	variables := map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": sink,
		"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": sampled}
	for name, value := range variables {
		b.Setenv(name, value)
		if sampled == "" {
			os.Unsetenv(name)
		}
	}
	return startJunction(b, program, era, 1, overHTTP(upstream, era))
}

// benchRounds reads BENCH_ROUNDS and BENCH_SECONDS.
func benchRounds(b *testing.B, rounds, seconds string) (n int, each time.Duration) {
	b.Helper()
	n, err1 := strconv.Atoi(cmp.Or(os.Getenv("BENCH_ROUNDS"), rounds))
	s, err2 := strconv.ParseFloat(cmp.Or(os.Getenv("BENCH_SECONDS"), seconds), 64)
	if err := cmp.Or(err1, err2); err != nil || n < 1 || s <= 0 {
		b.Fatalf("BENCH_ROUNDS and BENCH_SECONDS are numbers above 0: %v", err)
	}
	return n, time.Duration(s * float64(time.Second))
}
