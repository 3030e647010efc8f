package bench

// The benchmarks of the whole program: what a call costs through it, beside what it costs without
// and through other proxies. Everything that is measured is a process of its own, and so is
// everything that measures: this binary in the roles of roles_test.go, Debian's nginx, and
// the program under test. Figures are reported and never asserted. How fast a machine is changes
// from minute to minute; what counts are the ratios of BenchmarkCompare, which takes turns, and CPU
// time per call.
//
//	go test ./integration/bench -run '^$' -bench Compare -benchtime 1x -timeout 0            everything: about ten minutes
//	BENCH_CELLS='legacy/8/*,*/1/100B' BENCH_PATHS=nginx,junction-http BENCH_ROUNDS=9 BENCH_SECONDS=2 go test …
//	go test ./integration/bench -run '^$' -bench 'Call/(direct|junction-http)/legacy/8/100B' -benchtime 100x       does it run at all?
//	go test ./integration/bench -run '^$' -bench 'List|Memory' -benchtime 1x
//
// BENCH_JUNCTION names a program to measure in place of the one built from this tree,
// BENCH_JUNCTION_ARGS further arguments for it.

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
)

// benchPaths are the ways that a call can take to the echo server, in the order of the tables.
var benchPaths = []string{"direct", "nginx", "nginx-as-it-comes", "hop", "junction-http", "junction-events",
	"junction-jwt", "hop-stdio", "junction-stdio", "junction-stdio-jwt", "junction-owner", "junction-forwarded",
	"nginx-tls", "junction-tls"}

var benchEras = []string{harness.LegacyEra, harness.ModernEra}

// benchCell is one combination that every path is measured with.
type benchCell struct {
	era      string
	sessions int
	size     int
}

func (c benchCell) String() string {
	return fmt.Sprintf("%s/%d/%s", c.era, c.sessions, sizeName(c.size))
}

func sizeName(n int) string {
	switch {
	case n >= 1<<20:
		return strconv.Itoa(n>>20) + "MB"
	case n >= 1<<10:
		return strconv.Itoa(n>>10) + "KB"
	}
	return strconv.Itoa(n) + "B"
}

func benchCells(era string) []benchCell {
	var cs []benchCell
	for _, sessions := range []int{1, 8, 32} {
		for _, size := range []int{100, 10 << 10, 1 << 20} {
			cs = append(cs, benchCell{era, sessions, size})
		}
	}
	return cs
}

// road starts what stands on a path, in front of the echo server at upstream where it does not
// bring its own, or says why it cannot.
func road(b *testing.B, name, era string, upstream benchEndpoint, program func(*testing.B) string) (ep benchEndpoint,
	absent string) {
	b.Helper()
	switch name {
	case "direct":
		return upstream, ""
	case "hop":
		return startHop(b, upstream), ""
	case "junction-tls": // as junction-http, over https and with a key
		return startSecure(b, program(b), era, overHTTP(upstream, era)), ""
	case "nginx", "nginx-as-it-comes", "nginx-tls":
		nginx, absent := findNginx()
		if absent != "" {
			return benchEndpoint{}, absent
		}
		if name == "nginx-tls" {
			ep := startNginxWith(b, nginx, upstream, nginxTLS(b, nginxConfig), nginxBuffers, secureAddress)
			return ep, ""
		}
		if name == "nginx" {
			return startNginx(b, nginx, upstream, nginxBuffers), ""
		}
		return startNginx(b, nginx, upstream, ""), ""
	case "junction-http":
		return startJunction(b, program(b), era, 1, overHTTP(upstream, era)), ""
	// as junction-http, with a server that answers calls with event streams, as those made with the
	// official SDKs do
	case "junction-events":
		return startJunction(b, program(b), era, 1, overHTTP(startEcho(b, 1, "-events"), era)), ""
	case "junction-jwt": // as junction-http, for people who sign in
		return startSignedIn(b, program(b), era, overHTTP(upstream, era)), ""
	case "junction-owner", "junction-forwarded": // two processes, of which one has the sessions
		return startReplicas(b, program(b), era, name == "junction-forwarded", overHTTP(upstream, era)), ""
	case "hop-stdio":
		return startHopStdio(b), ""
	case "junction-stdio":
		return startJunction(b, program(b), era, 1, overStdio(b, "echo", era, "")), ""
	case "junction-stdio-jwt": // as junction-stdio, for people who sign in
		return startSignedIn(b, program(b), era, overStdio(b, "echo", era, "")), ""
	}
	return benchEndpoint{}, "there is no such path"
}

// BenchmarkCall is one path, era, number of sessions and size of the result at a time.
func BenchmarkCall(b *testing.B) {
	program := builder(b)
	for _, p := range benchPaths {
		b.Run(p, func(b *testing.B) {
			for _, era := range benchEras {
				b.Run(era, func(b *testing.B) {
					ep, absent := road(b, p, era, startEcho(b, 1), program)
					if absent != "" {
						b.Skip(absent)
					}
					for _, c := range benchCells(era) {
						b.Run(fmt.Sprintf("%d/%s", c.sessions, sizeName(c.size)), func(b *testing.B) {
							measure(b, startLoad(b, ep, era, c.sessions, "-size", strconv.Itoa(c.size)), "call")
						})
					}
				})
			}
		})
	}
}

// measure lets l make b.N calls and reports them, what being the word for one.
func measure(b *testing.B, l *loader, what string) {
	b.Helper()
	l.run(b, loadOrder{For: time.Minute, Calls: 200}) // fills pools and caches, and is not counted
	b.ResetTimer()
	s := l.run(b, loadOrder{For: time.Hour, Calls: int64(b.N)})
	b.StopTimer()
	b.ReportMetric(s.rate(), what+"s/s")
	b.ReportMetric(microseconds(s.P50), "p50-µs")
	b.ReportMetric(microseconds(s.P99), "p99-µs")
	if s.CPU > 0 {
		b.ReportMetric(s.cpuPerCall(), "cpu-µs/"+what)
	}
	l.c.stop()
}

// BenchmarkList is a tools/list of a thousand tools.
func BenchmarkList(b *testing.B) {
	program := builder(b)
	for _, p := range []string{"direct", "junction-http"} {
		for _, era := range benchEras {
			b.Run(p+"/"+era, func(b *testing.B) {
				const tools = 1000
				ep, _ := road(b, p, era, startEcho(b, tools), program)
				waitTools(b, ep, era, tools)
				measure(b, startLoad(b, ep, era, 1, "-tool", "", "-size", strconv.Itoa(tools*100)), "list")
			})
		}
	}
}

// BenchmarkCompare is a table: every path with every cell that BENCH_CELLS chooses. The paths take
// turns, in BENCH_ROUNDS rounds of BENCH_SECONDS each, so that what else the machine does befalls
// them alike; the figures are medians over the rounds, the ratio the median of each round's.
func BenchmarkCompare(b *testing.B) {
	rounds, each := benchRounds(b, "5", "1")
	t := comparison{rounds: rounds, each: each, program: builder(b)}
	t.paths = slices.DeleteFunc(slices.Clone(benchPaths), func(p string) bool { return !benchChosen("BENCH_PATHS", p) })
	fmt.Printf("\nmedians of %d rounds of %v each; ratio to nginx in the same round; spread of calls/s over the rounds\n",
		t.rounds, t.each)
	fmt.Printf("%-16s %-18s %10s %8s %8s %12s %8s %10s %10s\n", "cell", "path", "calls/s", "×nginx", "spread",
		"CPU µs/call", "×nginx", "p50 µs", "p99 µs")
	for _, era := range benchEras {
		cs := slices.DeleteFunc(benchCells(era), func(c benchCell) bool { return !benchChosen("BENCH_CELLS", c.String()) })
		if len(cs) > 0 {
			t.era(b, era, cs)
		}
	}
	b.ReportMetric(0, "ns/op") // it means nothing here
}

// benchChosen reports whether the comma-separated globs of an environment variable let name
// through. Without the variable everything is.
func benchChosen(variable, name string) bool {
	globs := os.Getenv(variable)
	return globs == "" || slices.ContainsFunc(strings.Split(globs, ","), func(g string) bool {
		ok, err := path.Match(strings.TrimSpace(g), name)
		return ok && err == nil
	})
}

// comparison is BenchmarkCompare at work.
type comparison struct {
	paths   []string
	rounds  int
	each    time.Duration
	program func(*testing.B) string
}

// era measures the cells of one era, all with the same processes.
func (t *comparison) era(b *testing.B, era string, cs []benchCell) {
	upstream := startEcho(b, 1)
	var names []string
	var roads []benchEndpoint
	for _, p := range t.paths {
		ep, absent := road(b, p, era, upstream, t.program)
		if absent != "" {
			fmt.Printf("%-16s %-18s %s\n", era, p, absent)
			continue
		}
		names, roads = append(names, p), append(roads, ep)
	}
	for _, c := range cs {
		t.print(c, names, t.measure(b, c, roads))
	}
}

// measure returns the samples of each road, one per round.
func (t *comparison) measure(b *testing.B, c benchCell, roads []benchEndpoint) [][]loadSample {
	loads := make([]*loader, len(roads))
	for i, ep := range roads {
		loads[i] = startLoad(b, ep, c.era, c.sessions, "-size", strconv.Itoa(c.size))
		loads[i].run(b, loadOrder{For: t.each / 4}) // fills pools and caches, and is not counted
	}
	samples := make([][]loadSample, len(roads))
	for round := range t.rounds {
		for turn := range loads {
			i := (round + turn) % len(loads)
			samples[i] = append(samples[i], loads[i].run(b, loadOrder{For: t.each}))
		}
	}
	for _, l := range loads {
		l.c.stop()
	}
	return samples
}

func (t *comparison) print(c benchCell, names []string, samples [][]loadSample) {
	nginx := slices.Index(names, "nginx")
	for i, name := range names {
		of := func(f func(loadSample) float64) []float64 {
			vs := make([]float64, 0, t.rounds)
			for _, s := range samples[i] {
				vs = append(vs, f(s))
			}
			return vs
		}
		against := func(f func(loadSample) float64) string { // nginx in the same round
			if nginx < 0 {
				return "-"
			}
			vs := of(f)
			for round := range vs {
				vs[round] /= f(samples[nginx][round])
			}
			return fmt.Sprintf("%.2f", median(vs))
		}
		rates := of(loadSample.rate)
		spread := (slices.Max(rates) - slices.Min(rates)) / median(rates) * 100
		fmt.Printf("%-16s %-18s %10.0f %8s %7.0f%% %12.1f %8s %10.0f %10.0f\n", c, name, median(rates),
			against(loadSample.rate), spread,
			median(of(loadSample.cpuPerCall)), against(loadSample.cpuPerCall),
			median(of(func(s loadSample) float64 { return microseconds(s.P50) })),
			median(of(func(s loadSample) float64 { return microseconds(s.P99) })))
	}
}

func median(vs []float64) float64 {
	vs = slices.Sorted(slices.Values(vs))
	return (vs[len(vs)/2] + vs[(len(vs)-1)/2]) / 2
}
