//go:build linux

package faults

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/integration/harness"
	"junction/integration/load"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// rotation is three processes over one database. Each has files of keys of its own, with the same content at
// first.
type rotation struct {
	all  []*harness.Program
	ways []*turning // of the callers
}

const (
	sessionKeys = "key"
	masterKeys  = "master.key"
)

// mustRotation starts the processes, and callers whose requests no owner of a session gets directly.
func mustRotation(t *testing.T) (*rotation, *load.Load) {
	t.Helper()
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{Era: "legacy"})
	r, dsn := &rotation{}, authtest.Schema(t)
	session, master := newKey(), "a:"+newKey()
	for range 3 {
		p := harness.NewProgram(t)
		p.MustConfigure(t, fmt.Sprintf("upstreams: { up: { url: %q } }\n"+
			"replicas: { listen: 127.0.0.1:0, advertise: 127.0.0.1:0 }\n"+
			"storage: { driver: postgres, dsn: %q, key_file: %q }\n", config.URL, dsn, filepath.Join(p.Dir, masterKeys)))
		mustPut(t, p, sessionKeys, session)
		mustPut(t, p, masterKeys, master)
		p.MustServe(t)
		r.all = append(r.all, p)
	}
	for _, p := range r.all {
		mustKnow(t, p, len(r.all))
	}
	return r, r.calling(t)
}

// calling starts callers, one with a session at each process, and modern ones.
func (r *rotation) calling(t *testing.T) *load.Load {
	t.Helper()
	var list []*harness.Caller
	for i, p := range r.all {
		c := harness.MustCaller(t, p.URL, harness.LegacyEra)
		c.HTTP.Transport = r.way(c.HTTP.Transport, (i+1)%len(r.all))
		list = append(list, c)
		c = harness.MustCaller(t, p.URL, harness.ModernEra)
		c.HTTP.Transport = r.way(c.HTTP.Transport, i)
		list = append(list, c)
	}
	l := calling(t, list)
	l.AwaitCalls(50)
	return l
}

func (r *rotation) way(by http.RoundTripper, to int) *turning {
	way := &turning{by: by, to: r.all[to]}
	r.ways = append(r.ways, way)
	return way
}

// contents are the keys of files, by the file's name.
type contents map[string][]string

// mustRestart restarts a process with other keys. It takes the callers of the process to another one before,
// as a load balancer does that asks /readyz.
func (r *rotation) mustRestart(t *testing.T, i int, files contents) {
	t.Helper()
	for _, way := range r.ways {
		way.turn(r.all[i], r.all[(i+1)%len(r.all)])
	}
	for file, keys := range files {
		mustPut(t, r.all[i], file, keys...)
	}
	r.all[i].MustRestart(t)
}

// mustRoll restarts all processes with other keys, one after the other, while calls are made. After each
// restart, the callers turn to other processes than those that have their sessions: so processes with both
// orders of keys forward to each other.
func (r *rotation) mustRoll(t *testing.T, calls *load.Load, files contents) {
	t.Helper()
	for i, p := range r.all {
		r.mustRestart(t, i, files)
		mustKnow(t, p, len(r.all))
		for j, way := range r.ways {
			way.turn(way.to, r.all[(i+j)%len(r.all)])
		}
		calls.AwaitCalls(5 * len(r.ways))
	}
}

// mustRefuse restarts the first process with keys in a wrong order, and requires that it does not join and says why.
func (r *rotation) mustRefuse(t *testing.T, calls *load.Load, why string, files contents) {
	t.Helper()
	r.mustRestart(t, 0, files)
	mustNote(t, r.all[0], why)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for ready := r.all[0].MustReady(t, harness.Patience); ready.Status != "unavailable"; <-again.C {
		if ready = r.all[0].MustReady(t, harness.Patience); ready.Status == "ready" {
			t.Fatal("with keys in a wrong order, the process is ready")
		}
	}
	calls.AwaitCalls(20)
}

// wantRefused requires that the first process was refused so often, or more often, because it may try again, and
// that no other one was.
func (r *rotation) wantRefused(t *testing.T, n int) {
	t.Helper()
	for i, p := range r.all {
		found := strings.Count(p.Stderr.String(), "cannot join the replicas")
		if i == 0 && found < n || i > 0 && found > 0 {
			t.Errorf("process %d was refused %d times, want %d of the first one", i, found, n)
		}
	}
}

// turning sends requests to one process, until it is told another one.
type turning struct {
	by http.RoundTripper
	mu sync.RWMutex     // held for reading by a request until its answer begins
	to *harness.Program // only the test writes it
}

func (w *turning) RoundTrip(q *http.Request) (*http.Response, error) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return redirected{w.by, w.to}.RoundTrip(q)
}

// turn waits for the requests that go to a process, and sends further ones to another one.
func (w *turning) turn(from, to *harness.Program) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.to == from {
		w.to = to
	}
}

// newKey returns the text of a key, which no log may show.
func newKey() string {
	key := base64.StdEncoding.EncodeToString(seal.NewSecret())
	authtest.Secret("a key of a file", key)
	return key
}

// mustPut replaces a file of keys of a process.
func mustPut(t *testing.T, p *harness.Program, file string, keys ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.Dir, file), []byte(strings.Join(keys, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// mustHave returns the keys of a file of a process.
func mustHave(t *testing.T, p *harness.Program, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.Dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// TestFaultKeysRotate replaces the key of sessions and the master key while calls are made: the new keys as the
// second ones in each process, then as the first ones, then alone. No call fails and no session ends, except
// those from before the second step, which end with the old key. A process with keys in a wrong order does not
// join, says what is missing where, and harms no other. The command that encrypts everything with the new master
// key changes nothing before each process encrypts with it, and names those that do not.
func TestFaultKeysRotate(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	r, calls := mustRotation(t)
	old, next := mustHave(t, r.all[0], sessionKeys), newKey()
	master, nextMaster := mustHave(t, r.all[0], masterKeys), "b:"+newKey()
	rotate := func(args ...string) (string, error) {
		args = append([]string{"storage", "rotate", "--config", r.all[0].File()}, args...)
		out, stderr, err := harness.RunJunction(t, nil, args...)
		return out + stderr, err
	}
	mustRefuse := func(why string, processes int) {
		t.Helper()
		for _, args := range [][]string{{}, {"--revoke-all", "--yes"}} { // nobody is signed out, either
			out, err := rotate(args...)
			if err == nil || !strings.Contains(out, "the first master key is b here") || strings.Contains(out, "Ended") ||
				!strings.Contains(out, "nothing was changed") || strings.Count(out, "; "+why+")") != processes {
				t.Errorf("storage rotate %s: %v, want a refusal because of %d processes (%s)\n%s", args, err, processes, why,
					out)
			}
		}
	}
	session := harness.Talk(t, r.all[0].URL, client.EraLegacy)
	mustPut(t, r.all[0], masterKeys, nextMaster, master)
	mustRefuse("it does not know the key", 3)
	r.mustRefuse(t, calls, "add the key there as the last one", contents{masterKeys: {nextMaster, master}})
	r.mustRefuse(t, calls, "add the key there as the last one", contents{masterKeys: {master}, sessionKeys: {next, old}})
	r.mustRoll(t, calls, contents{sessionKeys: {old, next}, masterKeys: {master, nextMaster}})

	mustPut(t, r.all[0], masterKeys, nextMaster, master)
	mustRefuse("it encrypts with a", 3)
	r.mustRefuse(t, calls, "add that key here as the last one", contents{sessionKeys: {next}})
	r.mustRoll(t, calls, contents{sessionKeys: {next, old}, masterKeys: {nextMaster, master}})
	session.Succeed(t, "up__echo", `{}`)
	if out, err := rotate(); err != nil || !strings.Contains(out, "Sealed anew with b: 1 value.") {
		t.Errorf("storage rotate: %v\n%s", err, out)
	}
	calls.Stop()
	mustLoseNothing(t, calls)

	later := r.calling(t) // clients from after the second step
	r.mustRoll(t, later, contents{sessionKeys: {next}, masterKeys: {nextMaster}})
	later.Stop()
	mustLoseNothing(t, later)
	if m := session.Call(t, "up__echo", `{}`); m.Error == nil {
		t.Errorf("a session of the old key is answered %s", m.Append(nil))
	}
	r.wantRefused(t, 3)
	f := calls.Figures(time.Time{})
	more := later.Figures(time.Time{})
	report(t, "the keys of sessions and the master keys are replaced (3 steps, 3 processes)",
		load.Figures{Calls: f.Calls + more.Calls, Lost: f.Lost + more.Lost})
}
