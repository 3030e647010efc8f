package bench

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver of backends

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
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

// BenchmarkLimits is what limits of a policy cost with three processes behind nginx, as the CPU time of the
// processes and of their database. One user makes calls in 32 sessions:
//
//   - none: without limits
//   - within: with limits that the calls do not reach
//   - beyond: with rate: 600/m and concurrent: 8, so that most calls are refused; the calls are the answered
//     requests, and ok/s are those that were let through
func BenchmarkLimits(b *testing.B) {
	echo := httptest.NewServer(newEcho(1))
	b.Cleanup(echo.Close)
	for _, era := range benchEras {
		for _, c := range []struct{ name, limits string }{{"none", ""},
			{"within", ", limits: { rate: 6000000/m, concurrent: 300 }"},
			{"beyond", ", limits: { rate: 600/m, concurrent: 8 }"}} {
			b.Run(era+"/"+c.name, func(b *testing.B) {
				p := harness.MustProcesses(b, 3, fmt.Sprintf("upstreams: { echo: { url: %q, era: %s } }\n"+
					"policies: [ { name: all, rules: [ { allow: { upstreams: echo } } ]%s } ]\n", echo.URL+"/mcp", era, c.limits))
				p.MustReady(b, harness.Patience)
				callMembers(b, p, era, p.URL, p.URL)
			})
		}
	}
}

// backends returns the CPU times of the processes of the database that have connections.
func backends(b *testing.B) map[int]time.Duration {
	db, err := sql.Open("pgx", authtest.Postgres(b))
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(b.Context(), `SELECT pid FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()`)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	used := map[int]time.Duration{}
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			b.Fatal(err)
		}
		if t, err := process.CPUTime([]int{pid}); err == nil { // else it has ended since
			used[pid] = t
		}
	}
	return used
}

// seconds is the time for which callMembers measures.
const seconds = 3 * time.Second

// callMembers makes calls in 32 sessions, which begin at one URL and go on at another, and reports
// the CPU time of the processes.
func callMembers(b *testing.B, p *harness.Program, era, begin, then string) {
	pids := []int{p.Cmd.Process.Pid}
	for _, o := range p.Others {
		pids = append(pids, o.Cmd.Process.Pid)
	}
	var callers []*harness.Caller
	for range 32 {
		begun := harness.MustCaller(b, begin, era)
		c := harness.MustCaller(b, then, era)
		c.Session = begun.Session
		c.HTTP.Transport.(*http.Transport).MaxIdleConnsPerHost = 32
		callers = append(callers, c)
	}
	limited := strings.HasSuffix(b.Name(), "/beyond")
	var ok atomic.Int64
	run := func(d time.Duration) (calls int64) {
		ctx, cancel := context.WithTimeout(b.Context(), d)
		defer cancel()
		var made atomic.Int64
		var all sync.WaitGroup
		for _, c := range callers {
			all.Go(func() {
				for ctx.Err() == nil {
					x, err := c.Call(ctx, "echo__echo", `{"size":100}`)
					switch {
					case ctx.Err() != nil:
					case err == nil && strings.Contains(x.Answer, `"result":`):
						ok.Add(1)
					case err != nil || !limited || !strings.Contains(x.Answer, `limits.`) && !strings.Contains(x.Answer, "too many"):
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
	ok.Store(0)
	database := strings.HasPrefix(b.Name(), "BenchmarkLimits")
	first := map[int]time.Duration{}
	if database {
		first = backends(b)
	}
	before, err := process.CPUTime(pids)
	if err != nil {
		b.Skip(err)
	}
	var calls int64
	took := time.Now()
	for b.Loop() {
		calls += run(seconds)
	}
	elapsed := time.Since(took)
	after, _ := process.CPUTime(pids)
	if database {
		for pid, used := range backends(b) {
			after += used - first[pid]
		}
	}
	b.ReportMetric(float64((after-before).Microseconds())/float64(calls), "CPU-µs/call")
	b.ReportMetric(float64(calls)/elapsed.Seconds(), "calls/s")
	if limited {
		b.ReportMetric(float64(ok.Load())/elapsed.Seconds(), "ok/s")
	}
	b.ReportMetric(0, "ns/op")
}
