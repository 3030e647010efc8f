//go:build linux

package faults

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/load"
	"junction/upstream/upstreamtest"
)

// These tests wait for leases of fifteen seconds. They run at the same time.

// mustReplicas starts three processes over one database.
func mustReplicas(t *testing.T, dsn string) []*harness.Program {
	t.Helper()
	t.Parallel()
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	var all []*harness.Program
	for i := range 3 {
		p := harness.NewProgram(t)
		if i == 0 {
			p.MustConfigure(t, fmt.Sprintf("upstreams: { up: { url: %q } }\n"+
				"replicas: { listen: 127.0.0.1:0, advertise: 127.0.0.1:0 }\n"+
				"storage: { driver: postgres, dsn: %q, key_file: %q }\n", config.URL, dsn, filepath.Join(p.Dir, "master.key")))
		} else {
			p.Dir = all[0].Dir
		}
		p.MustServe(t)
		all = append(all, p)
	}
	for _, p := range all {
		mustKnow(t, p, len(all))
	}
	return all
}

// mustKnow waits until a process knows n members.
func mustKnow(t *testing.T, p *harness.Program, n int) {
	t.Helper()
	limit := time.Now().Add(harness.Patience)
	for len(p.MustReady(t, harness.Patience).Replicas) != n {
		if time.Now().After(limit) {
			t.Fatalf("it does not know %d members:\n%s", n, p.Stderr.Tail(2000))
		}
	}
}

// redirected sends requests to another process than the one where their session began.
type redirected struct {
	http.RoundTripper
	to *harness.Program
}

func (r redirected) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.URL.Host = strings.TrimPrefix(r.to.Origin(), "http://")
	q.Host = q.URL.Host
	return r.RoundTripper.RoundTrip(q)
}

// through returns callers whose sessions owner has, and whose requests another process gets.
func through(t *testing.T, owner, other *harness.Program, n int) []*harness.Caller {
	t.Helper()
	var list []*harness.Caller
	for range n {
		c := harness.MustCaller(t, owner.URL, harness.LegacyEra)
		c.HTTP.Transport = redirected{c.HTTP.Transport, other}
		list = append(list, c)
	}
	return list
}

// calling makes calls of several callers until the test ends.
func calling(t *testing.T, list []*harness.Caller) *load.Load {
	t.Helper()
	return load.Start(t, len(list), func(ctx context.Context, i, n int) error {
		return load.Call(ctx, list[i], "up__echo", `{"a":1}`)
	})
}

// mustCallAgain waits until each caller has made a call that succeeds.
func mustCallAgain(t *testing.T, list []*harness.Caller) {
	t.Helper()
	for i, c := range list {
		limit := time.Now().Add(harness.Patience)
		for err := load.Call(t.Context(), c, "up__echo", `{"a":1}`); err != nil; {
			if time.Now().After(limit) {
				t.Fatalf("caller %d: %v", i, err)
			}
			err = load.Call(t.Context(), c, "up__echo", `{"a":1}`)
		}
	}
}

// claimed returns how many sessions a process has taken over.
func claimed(t *testing.T, p *harness.Program) (n int) {
	t.Helper()
	resp, err := http.Get(p.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if rest, found := strings.CutPrefix(line, "junction_replicas_claimed_total"); found {
			_, _ = fmt.Sscan(rest[strings.LastIndexByte(rest, ' ')+1:], &n)
		}
	}
	return n
}

// TestFaultReplicaStops: calls in flight of a process that is stopped end well, and its sessions go
// on in the others at once.
func TestFaultReplicaStops(t *testing.T) {
	harness.WithoutShort(t)
	all := mustReplicas(t, authtest.Schema(t))
	list := through(t, all[0], all[1], 3)
	moving := calling(t, list)
	other := calling(t, through(t, all[2], all[1], 3))
	moving.AwaitCalls(50)
	all[0].MustStop(t)
	over := time.Now()
	mustCallAgain(t, list)
	mustLoseNothing(t, other)
	mustLoseNothing(t, moving)
	if n := claimed(t, all[1]); n != 3 {
		t.Errorf("%d sessions were taken over, want 3", n)
	}
	report(t, "a replica is stopped", moving.Figures(over))
}

// TestFaultReplicaKilled: the sessions of a process that is killed wait for the end of its lease.
// Only calls in flight are lost.
func TestFaultReplicaKilled(t *testing.T) {
	harness.WithoutShort(t)
	all := mustReplicas(t, authtest.Schema(t))
	list := through(t, all[0], all[1], 3)
	moving := calling(t, list)
	other := calling(t, through(t, all[2], all[1], 3))
	moving.AwaitCalls(50)
	mustSignal(t, all[0], syscall.SIGKILL)
	all[0].Cmd = nil // its end is expected
	over := time.Now()
	mustCallAgain(t, list)
	mustLoseNothing(t, other)
	f := moving.Figures(over)
	if f.Lost > 3 {
		t.Errorf("more was lost than the calls in flight: %v", f)
	}
	report(t, fmt.Sprintf("a replica is killed (its sessions go on after %v)", time.Since(over).Round(time.Second)), f)
}

// TestFaultReplicaPaused stops a process for longer than its lease. Another one takes its sessions,
// and when it continues it does not answer for them, but joins again and forwards.
func TestFaultReplicaPaused(t *testing.T) {
	harness.WithoutShort(t)
	all := mustReplicas(t, authtest.Schema(t))
	list := through(t, all[0], all[1], 3)
	moving := calling(t, list)
	moving.AwaitCalls(50)
	mustSignal(t, all[0], syscall.SIGSTOP)
	mustBe(t, all[0], "T (stopped)")
	began := time.Now()
	mustCallAgain(t, list)
	t.Logf("taken over after %v", time.Since(began).Round(time.Second))
	mustSignal(t, all[0], syscall.SIGCONT)
	over := time.Now()
	mustKnow(t, all[0], 3)
	for _, c := range list { // by the owner of before
		c.HTTP.Transport = redirected{c.HTTP.Transport.(redirected).RoundTripper, all[0]}
	}
	late := calling(t, list)
	late.AwaitCalls(50)
	mustLoseNothing(t, late)
	if n := claimed(t, all[0]); n != 0 {
		t.Errorf("the process that was paused has taken %d sessions back", n)
	}
	if n := claimed(t, all[1]); n != 3 {
		t.Errorf("%d sessions were taken over, want 3", n)
	}
	if !strings.Contains(all[0].Stderr.String(), "has lost its lease") {
		t.Error("the log of the process does not have its loss")
	}
	report(t, "a replica is paused for longer than its lease", moving.Figures(over))
}

// TestFaultReplicasPostgres takes the database away for longer than a lease. No process answers
// then. Afterwards each session is where it was.
func TestFaultReplicasPostgres(t *testing.T) {
	harness.WithoutShort(t)
	g := authtest.MustGate(t, authtest.Schema(t))
	all := mustReplicas(t, g.DSN)
	moving := calling(t, through(t, all[0], all[1], 3))
	moving.AwaitCalls(50)
	g.Close()
	began := time.Now()
	moving.AwaitFailures(3)
	t.Logf("calls failed after %v", time.Since(began).Round(time.Second))
	for _, p := range all {
		for r := p.MustReady(t, harness.Patience); r.Status != "unavailable"; {
			r = p.MustReady(t, harness.Patience)
		}
	}
	g.MustOpen(t)
	over := time.Now()
	moving.AwaitCalls(50)
	moving.Stop()
	for i, p := range all {
		if n := claimed(t, p); n != 0 {
			t.Errorf("process %d has taken over %d sessions", i, n)
		}
	}
	f := moving.Figures(over)
	if text := strings.Join(f.Texts, "\n"); !strings.Contains(text, "again") {
		t.Errorf("people read %q", text)
	}
	report(t, "Postgres is away for longer than a lease", f)
}

// mustBe waits until a process has a state of Linux.
func mustBe(t *testing.T, p *harness.Program, state string) {
	t.Helper()
	for limit := time.Now().Add(harness.Patience); ; {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Cmd.Process.Pid))
		if err != nil || time.Now().After(limit) {
			t.Fatalf("the process is not in the state %s (%v):\n%s", state, err, text)
		}
		if strings.Contains(string(text), state) {
			return
		}
	}
}

func mustSignal(t *testing.T, p *harness.Program, s os.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
