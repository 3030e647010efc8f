//go:build linux

package faults

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/integration/load"
	"junction/upstream/client"
)

// rollout is three processes behind nginx, with callers of both eras.
type rollout struct {
	all     []*harness.Program
	url     string
	session *harness.Talker // with one session all the while
	load    *load.Load
}

func mustRollout(t *testing.T) *rollout {
	t.Helper()
	front := process.FreePort(t)
	r := &rollout{url: "http://" + front + "/mcp"}
	r.all = mustReplicas(t, authtest.Schema(t), "allowed_origins: [\"http://"+front+"\"]")
	var servers []string
	for _, p := range r.all {
		servers = append(servers, strings.TrimPrefix(p.Origin(), "http://")+" max_fails=0")
	}
	harness.MustNginx(t, front, servers, harness.Again)
	var list []*harness.Caller
	for i := range 6 {
		list = append(list, harness.MustCaller(t, r.url, harness.BothEras()[i%2]))
	}
	r.session = harness.Talk(t, r.url, client.EraLegacy)
	r.load = calling(t, list)
	r.load.AwaitCalls(50)
	return r
}

// replace stops each process and starts a program in its place, as soon as the one before serves.
func (r *rollout) replace(t *testing.T, program string) {
	t.Helper()
	for _, p := range r.all {
		address := strings.TrimPrefix(p.Origin(), "http://")
		p.MustStop(t)
		p.MustStart(t, exec.Command(program, "--config", p.File(), "--listen", address))
		mustKnow(t, p, len(r.all))
		r.load.AwaitCalls(20)
		r.session.Succeed(t, "up__echo", `{}`)
	}
}

// mustLoseFlightsOnly requires that calls were lost only in flight, and that the client was told. A
// caller has one call in flight when a process stops.
func (r *rollout) mustLoseFlightsOnly(t *testing.T, what string, stops int) {
	t.Helper()
	r.load.Stop()
	f := r.load.Figures(time.Now())
	report(t, what, f)
	for _, text := range f.Texts {
		if !strings.Contains(text, "may have been executed") && !strings.Contains(text, "Bad Gateway") {
			t.Errorf("a call failed with %q", text)
		}
	}
	if f.Lost > stops {
		t.Errorf("%v, want at most %d calls lost", f, stops)
	}
}

// TestFaultRollingRestart restarts all processes one after the other, without a pause.
func TestFaultRollingRestart(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	r := mustRollout(t)
	r.replace(t, harness.JunctionBinary(t))
	r.mustLoseFlightsOnly(t, "a rolling restart", 3)
}

// TestFaultRollingUpgrade replaces all processes by those of an invented next version with another schema,
// and goes back. The new version does not start before the schema was prepared for it, and then both
// versions work together, restarts included.
func TestFaultRollingUpgrade(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	next, now := harness.NextBinary(t), harness.JunctionBinary(t)
	r := mustRollout(t)
	first := r.all[0]
	refused := exec.Command(next, "--config", first.File())
	refused.Env = append(refused.Environ(), "XDG_STATE_HOME="+t.TempDir())
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "junction storage migrate") {
		t.Fatalf("the next version without the migration: %v\n%s", err, out)
	}
	if out, err := exec.Command(next, "storage", "migrate", "--config", first.File()).CombinedOutput(); err != nil ||
		!strings.Contains(string(out), "The schema is now 4, and was 3.") {
		t.Fatalf("junction storage migrate: %v\n%s", err, out)
	}
	r.replace(t, now) // the older version starts again
	r.replace(t, next)
	r.replace(t, now)
	r.mustLoseFlightsOnly(t, "a rolling upgrade and its rollback", 9)
}
