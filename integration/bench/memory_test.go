package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/process"
)

// BenchmarkMemory is what the program keeps in memory, as the system counts it, and how soon it
// lists the tools of ten child processes. Resident memory moves in steps, since the garbage of
// opening sessions is in it until it is collected; so there is a figure for the sessions from the
// thousandth on too, which such a step matters less for. GOGC and GOMEMLIMIT reach the program as
// they are set here.
func BenchmarkMemory(b *testing.B) {
	program := builder(b)
	benchOnce(b, "TenUpstreams", func(b *testing.B) map[string]float64 { return tenUpstreams(b, program(b)) })
	benchOnce(b, "Sessions", func(b *testing.B) map[string]float64 { return idleSessions(b, program(b)) })
	benchOnce(b, "Connections", func(b *testing.B) map[string]float64 {
		return idleConnections(b, func(b *testing.B) benchEndpoint {
			return startJunction(b, program(b), harness.LegacyEra, 1, overHTTP(startEcho(b, 1), harness.LegacyEra))
		})
	})
	benchOnce(b, "ConnectionsTLS", func(b *testing.B) map[string]float64 {
		return idleConnections(b, func(b *testing.B) benchEndpoint {
			return startSecure(b, program(b), harness.LegacyEra, overHTTP(startEcho(b, 1), harness.LegacyEra))
		})
	})
	benchOnce(b, "Streams", func(b *testing.B) map[string]float64 { return openStreams(b, program(b)) })
}

// benchOnce runs f as a benchmark of one iteration, however many are asked for, and reports the
// figures that it returns, by unit.
func benchOnce(b *testing.B, name string, f func(*testing.B) map[string]float64) {
	var figures map[string]float64
	b.Run(name, func(b *testing.B) {
		if figures == nil {
			figures = f(b)
		}
		for unit, v := range figures {
			b.ReportMetric(v, unit)
		}
		b.ReportMetric(0, "ns/op") // it means nothing here
	})
}

// tenUpstreams starts the program over ten child processes.
func tenUpstreams(b *testing.B, program string) map[string]float64 {
	const upstreams = 10
	dir := b.TempDir()
	var entries []upstreamEntry
	for i := range upstreams {
		name := fmt.Sprintf("echo%d", i)
		entries = append(entries, overStdio(b, name, harness.LegacyEra, name, "-ready", filepath.Join(dir, name)))
	}
	ep := launchJunction(b, program, entries...)
	listed := waitTools(b, ep, harness.LegacyEra, upstreams)
	var slowest time.Time
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.name))
		if err != nil {
			b.Fatalf("when %s was ready: %v", e.name, err)
		}
		ns, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			b.Fatalf("when %s was ready: %v", e.name, err)
		}
		if t := time.Unix(0, ns); t.After(slowest) {
			slowest = t
		}
	}
	all, own := atRest(b, ep)
	return map[string]float64{
		"ms-until-listed": float64(listed.Sub(slowest)) / float64(time.Millisecond),
		"MB-at-rest":      float64(all) / 1e6,
		"MB-of-its-own":   float64(own) / 1e6,
	}
}

// idleSessions opens legacy sessions, first a thousand and then more, and sends nothing in them.
func idleSessions(b *testing.B, program string) map[string]float64 {
	ep := startJunction(b, program, harness.LegacyEra, 1, overHTTP(startEcho(b, 1), harness.LegacyEra))
	client := newRawClient(ep.addr, harness.LegacyEra, "")
	b.Cleanup(client.Close)
	open := func(n int) int64 {
		for range n {
			client.session = ""
			if err := client.start(); err != nil {
				ep.proc.fatal(b, "open a session: %v", err)
			}
		}
		_, own := atRest(b, ep)
		return own
	}
	none := open(100) // these few make the pools and buffers
	thousand := open(1000)
	all := open(4000)
	return map[string]float64{
		"KB/session-of-1000":       kilobytes(thousand-none) / 1000,
		"KB/session-of-5000":       kilobytes(all-none) / 5000,
		"KB/session-1000-to-5000":  kilobytes(all-thousand) / 4000,
		"MB-before-the-first-1000": float64(none) / 1e6,
	}
}

// openStreams opens legacy sessions that each keep a listening stream open.
func openStreams(b *testing.B, program string) map[string]float64 {
	const streams = 200
	ep := startJunction(b, program, harness.LegacyEra, 1, overHTTP(startEcho(b, 1), harness.LegacyEra))
	open := func(n int) int64 {
		for range n {
			client := newRawClient(ep.addr, harness.LegacyEra, "")
			b.Cleanup(client.Close)
			if err := client.start(); err != nil {
				ep.proc.fatal(b, "open a session: %v", err)
			}
			if status, err := client.stream(); err != nil || status != 200 {
				ep.proc.fatal(b, "open a stream: status %d, %v", status, err)
			}
		}
		_, own := atRest(b, ep)
		return own
	}
	few := open(10)
	return map[string]float64{"KB/stream": kilobytes(open(streams)-few) / streams}
}

func kilobytes(bytes int64) float64 { return float64(bytes) / 1000 }

// atRest returns the resident memory of what serves the endpoint, the least of two seconds in which
// nothing happens; see resident.
func atRest(b *testing.B, ep benchEndpoint) (all, own int64) {
	b.Helper()
	often := time.NewTicker(200 * time.Millisecond)
	defer often.Stop()
	for i := range 10 {
		var sum, ours int64
		for _, pid := range ep.pids {
			n, o, err := process.Resident(pid)
			if err != nil {
				b.Skipf("resident memory: %v", err)
			}
			sum, ours = sum+n, ours+o
		}
		if i == 0 || sum < all {
			all, own = sum, ours
		}
		<-often.C
	}
	return all, own
}
