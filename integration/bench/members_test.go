package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"junction/integration/harness"
)

// BenchmarkMembers is what a call costs when several processes answer for each other, as the CPU
// time of all of them:
//
//   - alone: one process without Postgres
//   - owner, other: two processes; every request goes to the one that has the session, or to the
//     other one, which forwards it
//   - 1, 2, 4: so many processes behind nginx, which sends each request to the next one
//
// Legacy requests have a session, and are forwarded unless they come to its owner. Modern requests
// are never forwarded. The members share the CPUs with the clients, so the number of calls per
// second cannot grow with them.
func BenchmarkMembers(b *testing.B) {
	echo := httptest.NewServer(newEcho(1))
	b.Cleanup(echo.Close)
	for _, era := range benchEras {
		config := fmt.Sprintf("upstreams: { echo: { url: %q, era: %s } }\n", echo.URL+"/mcp", era)
		b.Run(era+"/alone", func(b *testing.B) {
			p := harness.MustProgram(b, config)
			p.MustReady(b, harness.Patience)
			callMembers(b, p, era, p.URL, p.URL)
		})
		b.Run(era+"/owner", func(b *testing.B) {
			p := harness.MustProcesses(b, 2, config)
			p.MustReady(b, harness.Patience)
			callMembers(b, p, era, p.Others[0].URL, p.Others[0].URL)
		})
		b.Run(era+"/other", func(b *testing.B) {
			p := harness.MustProcesses(b, 3, config)
			p.MustReady(b, harness.Patience)
			callMembers(b, p, era, p.Others[0].URL, p.Others[1].URL)
		})
		for _, n := range []int{1, 2, 4} {
			b.Run(fmt.Sprintf("%s/%d", era, n), func(b *testing.B) {
				p := harness.MustProcesses(b, n, config)
				p.MustReady(b, harness.Patience)
				callMembers(b, p, era, p.URL, p.URL)
			})
		}
	}
}

// seconds is the time for which callMembers measures.
const seconds = 3 * time.Second

// callMembers makes calls in 32 sessions, which begin at one URL and go on at another, and reports
// the CPU time of the processes.
func callMembers(b *testing.B, p *harness.Program, era, first, then string) {
	pids := []int{p.Cmd.Process.Pid}
	for _, o := range p.Others {
		pids = append(pids, o.Cmd.Process.Pid)
	}
	var callers []*harness.Caller
	for range 32 {
		begun := harness.MustCaller(b, first, era)
		c := harness.MustCaller(b, then, era)
		c.Session = begun.Session
		c.HTTP.Transport.(*http.Transport).MaxIdleConnsPerHost = 32
		callers = append(callers, c)
	}
	run := func(d time.Duration) (calls int64) {
		ctx, cancel := context.WithTimeout(b.Context(), d)
		defer cancel()
		var made atomic.Int64
		var all sync.WaitGroup
		for _, c := range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					x, err := c.Call(ctx, "echo__echo", `{"size":100}`)
					if ctx.Err() == nil && (err != nil || !strings.Contains(x.Answer, `"result":`)) {
						b.Errorf("%v %.300s", err, x.Answer)
						return
					}
					made.Add(1)
				}
			})
		}
		all.Wait()
		return made.Load()
	}
	run(seconds / 2)
	before, err := harness.CPUTime(pids)
	if err != nil {
		b.Skip(err)
	}
	var calls int64
	took := time.Now()
	for b.Loop() {
		calls += run(seconds)
	}
	elapsed := time.Since(took)
	after, _ := harness.CPUTime(pids)
	b.ReportMetric(float64((after-before).Microseconds())/float64(calls), "CPU-µs/call")
	b.ReportMetric(float64(calls)/elapsed.Seconds(), "calls/s")
	b.ReportMetric(0, "ns/op")
}
