//go:build linux

package faults

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/upstreamtest"
)

// crowd is callers of both eras behind nginx. Each makes one call after the other, with arguments that no other call
// has, and waits 20 ms.
type crowd struct {
	*testing.T
	journal *upstreamtest.Journal
	callers []*harness.Caller
	all     sync.WaitGroup

	mu    sync.Mutex
	made  []made
	after []time.Time // the begin of the last call of each caller that succeeded
}

// made is a call of a caller that has ended.
type made struct {
	caller       int
	name         string // its argument
	began, ended time.Time
	how          string // ok, refused, lost or wrong
}

// mustCrowd starts callers of a URL, until the test ends.
func mustCrowd(t *testing.T, n int, url string, journal *upstreamtest.Journal) *crowd {
	t.Helper()
	c := &crowd{T: t, journal: journal, after: make([]time.Time, n)}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); c.all.Wait() })
	for i := range n {
		c.callers = append(c.callers, harness.MustCaller(t, url, harness.BothEras()[i%2]))
	}
	for i := range n {
		c.all.Go(func() {
			for k := 0; ctx.Err() == nil; k++ {
				m := made{caller: i, name: fmt.Sprintf("call-%d-%d.", i, k), began: time.Now()}
				x, err := c.callers[i].Call(ctx, "up__echo", `{"n":"`+m.name+`"}`)
				m.ended, m.how = time.Now(), ended(x, err, m.name)
				if ctx.Err() == nil {
					c.note(m)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	return c
}

// refusals are the texts of answers to requests that were not executed.
var refusals = regexp.MustCompile("send the request again|temporarily_unavailable|503 Service")

func ended(x harness.Exchanged, err error, name string) string {
	switch {
	case err == nil && strings.Contains(x.Answer, `"result":`) && strings.Contains(x.Answer, name):
		return "ok"
	case err == nil && strings.Contains(x.Answer, `"result":`):
		return "wrong"
	case err == nil && refusals.MatchString(x.Answer):
		return "refused"
	}
	return "lost"
}

func (c *crowd) note(m made) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, m)
	if m.how == "ok" {
		c.after[m.caller] = m.began
	}
}

// settle waits until each caller has made a call that succeeds, from now on.
func (c *crowd) settle() {
	c.Helper()
	c.settleFrom(0, 1)
}

// settleFrom is settle for each step-th caller, from the first one on.
func (c *crowd) settleFrom(first, step int) {
	c.Helper()
	from, again := time.Now(), time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	for ctx := harness.Patient(c.T); ; {
		waiting := 0
		c.mu.Lock()
		for i := first; i < len(c.after); i += step {
			if c.after[i].Before(from) {
				waiting++
			}
		}
		c.mu.Unlock()
		if waiting == 0 {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			c.Fatalf("%d callers have made no call since %v", waiting, time.Since(from))
		}
	}
}

// row is a line of the table.
type row struct {
	calls, lost, refused, wrong, twice int
	silence                            time.Duration // the longest time without a success of a caller
}

// fault causes a fault, waits for its end, and logs its line.
func (c *crowd) fault(what string, cause func()) (r row) {
	c.Helper()
	c.settle()
	from := time.Now()
	cause()
	c.settle()
	c.mu.Lock()
	list := append([]made{}, c.made...)
	c.mu.Unlock()
	last, executed := map[int]time.Time{}, map[string]int{}
	for _, record := range harness.CallsOf(c.T, c.journal, 0) {
		executed[regexp.MustCompile(`call-\d+-\d+\.`).FindString(string(record.Body))]++
	}
	for _, m := range list {
		if m.ended.Before(from) {
			continue
		}
		r.calls++
		switch m.how {
		case "ok":
			if before, found := last[m.caller]; found {
				r.silence = max(r.silence, m.ended.Sub(before))
			} else {
				r.silence = max(r.silence, m.ended.Sub(from))
			}
			last[m.caller] = m.ended
		case "lost":
			r.lost++
		case "refused":
			if r.refused++; executed[m.name] > 0 {
				c.Errorf("%s: a refused call was executed", what)
			}
		case "wrong":
			r.wrong++
		}
		if executed[m.name] > 1 {
			r.twice++
		}
	}
	c.Logf("FAULT TABLE | %s | %d | %d | %d | %d | %d | %.1f s |", what, r.calls, r.lost, r.refused, r.wrong, r.twice,
		r.silence.Seconds())
	if r.wrong > 0 || r.twice > 0 {
		c.Errorf("%s: %d wrong results, and %d calls were executed twice", what, r.wrong, r.twice)
	}
	return r
}

// TestFaultTable causes each fault in three processes behind nginx, while callers of both eras work. No result is
// wrong, nothing is executed twice, and what was refused was not executed. Processes that are stopped lose nothing;
// the others lose at most what was in flight. With JUNCTION_TEST_FAULTS=80 there are 80 callers, and a process is
// frozen, and the database away, until the leases have ended. Otherwise no fault takes a lease: a process is stopped,
// and the database is away until each modern caller was served without it.
func TestFaultTable(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	n, long := 4, false
	if text := os.Getenv("JUNCTION_TEST_FAULTS"); text != "" {
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatal(err)
		}
		long = true
	}
	config, journal := harness.MustScripted(t, "http", upstreamtest.Script{Era: "legacy"})
	g, front := authtest.MustGate(t, authtest.Schema(t)), process.FreePort(t)
	all := mustReplicasOf(t, config.URL, g.DSN, "allowed_origins: [\"http://"+front+"\"]")
	var servers []string
	for _, p := range all {
		servers = append(servers, strings.TrimPrefix(p.Origin(), "http://")+" max_fails=0")
	}
	harness.MustNginx(t, front, servers, harness.Again)
	c := mustCrowd(t, n, "http://"+front+"/mcp", journal)
	again := func(p *harness.Program) {
		p.MustServe(t, "--listen", strings.TrimPrefix(p.Origin(), "http://"))
		mustKnow(t, p, 3)
	}
	losesAtMost := func(most int, r row) {
		t.Helper()
		if r.lost > most {
			t.Errorf("%d calls were lost, want at most %d", r.lost, most)
		}
	}
	losesAtMost(1, c.fault("stop", func() { all[0].MustStop(t); again(all[0]) }))
	losesAtMost(0, c.fault("Postgres away", func() {
		g.Close()
		if long {
			mustExpire(t, g.Real(), 0)
		}
		c.settleFrom(1, 2) // modern calls are served without the database
		g.MustOpen(t)
		for _, p := range all {
			mustKnow(t, p, 3)
		}
	}))
	if !long {
		return
	}
	losesAtMost(3, c.fault("rolling", func() {
		for _, p := range all {
			p.MustStop(t)
			again(p)
		}
	}))
	losesAtMost(n, c.fault("frozen", func() {
		mustSignal(t, all[2], syscall.SIGSTOP)
		mustExpire(t, g.Real(), 2)
		mustSignal(t, all[2], syscall.SIGCONT)
	}))
	losesAtMost(n, c.fault("kill", func() {
		mustSignal(t, all[1], syscall.SIGKILL)
		<-all[1].Done
		again(all[1])
	}))
}
