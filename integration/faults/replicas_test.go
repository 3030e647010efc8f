//go:build linux

package faults

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/integration/load"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// These tests wait for leases of fifteen seconds. They run at the same time.

// mustReplicas starts three processes over one database, with further entries of upstreams, and then further
// sections of the file.
func mustReplicas(t *testing.T, dsn string, sections ...string) []*harness.Program {
	t.Helper()
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{Era: "legacy"})
	return mustReplicasOf(t, config.URL, dsn, sections...)
}

// mustReplicasOf is mustReplicas for the server at a URL.
func mustReplicasOf(t *testing.T, url, dsn string, sections ...string) []*harness.Program {
	t.Helper()
	var all []*harness.Program
	for i := range 3 {
		p := harness.NewProgram(t)
		if i == 0 {
			p.MustConfigure(t, fmt.Sprintf("replicas: { listen: 127.0.0.1:0, advertise: 127.0.0.1:0 }\n"+
				"storage: { driver: postgres, dsn: %q, key_file: %q }\n"+
				"upstreams:\n  up: { url: %q }\n", dsn, filepath.Join(p.Dir, "master.key"), url)+
				strings.Join(sections, "\n"))
		} else {
			p.Dir = all[0].Dir
		}
		p.MustServe(t)
		all = append(all, p)
	}
	for _, p := range all {
		mustKnow(t, p, len(all))
		log := p.Stderr.String()
		joined, serving := strings.Index(log, "joined the replicas"), strings.Index(log, "msg=serving")
		refuses := strings.Contains(log, "this process refuses all calls until it can") // a database that is slow to answer
		if joined < 0 || joined > serving && !refuses {
			t.Errorf("the process serves clients before it has joined:\n%s", p.Stderr.Tail(1000))
		}
	}
	return all
}

// mustKnow waits until a process knows n members.
func mustKnow(t *testing.T, p *harness.Program, n int) {
	t.Helper()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for ctx := harness.Patient(t); len(p.MustReady(t, harness.Patience).Replicas) != n; {
		select {
		case <-again.C:
		case <-ctx.Done():
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
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for i, c := range list {
		ctx := harness.Patient(t)
		for err := load.Call(ctx, c, "up__echo", `{"a":1}`); err != nil; err = load.Call(ctx, c, "up__echo", `{"a":1}`) {
			select {
			case <-again.C:
			case <-ctx.Done():
				t.Fatalf("caller %d: %v", i, err)
			}
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
	harness.Waits(t)
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
	harness.Waits(t)
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
	harness.Waits(t)
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
	harness.Waits(t)
	harness.WithoutShort(t)
	g := authtest.MustGate(t, authtest.Schema(t))
	all := mustReplicas(t, g.DSN)
	moving := calling(t, through(t, all[0], all[1], 3))
	moving.AwaitCalls(50)
	g.Close()
	began := time.Now()
	moving.AwaitFailures(3)
	t.Logf("calls failed after %v", time.Since(began).Round(time.Second))
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for degraded := 0; degraded < len(all); <-again.C { // and none of the states on the way takes all out of service
		unready := 0
		degraded = 0
		for _, p := range all {
			switch p.MustReady(t, harness.Patience).Status {
			case "degraded":
				degraded++
			case "unavailable":
				unready++
			}
		}
		if unready == len(all) {
			t.Fatal("all processes are unready")
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

// TestFaultReplicasLateStatements keeps all that is sent to the database for longer than a lease. It
// arrives afterwards, with statements that their senders have given up: none of them ends a member.
func TestFaultReplicasLateStatements(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	g := authtest.MustGate(t, authtest.Schema(t))
	all := mustReplicas(t, g.DSN,
		"policies: [ { name: all, rules: [ { allow: { upstreams: up } } ], limits: { concurrent: 100 } } ]")
	var list []*load.Load
	for i := range all {
		list = append(list, calling(t, through(t, all[i], all[(i+1)%3], 4)))
	}
	for _, l := range list {
		l.AwaitCalls(20)
	}
	g.Hold()
	for _, l := range list {
		l.AwaitFailures(10)
	}
	mustExpire(t, g.Real(), 0)
	g.Release()
	for _, l := range list {
		l.AwaitCalls(20)
		l.Stop()
	}
	for i, p := range all {
		if n := claimed(t, p); n != 0 || strings.Contains(p.Stderr.String(), "has lost its lease") {
			t.Errorf("process %d has taken over %d sessions, or has lost its lease:\n%s", i, n, p.Stderr.Tail(1000))
		}
	}
}

// mustExpire waits until all leases but those of some members have expired by the clock of the database.
func mustExpire(t *testing.T, dsn string, but int) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for ctx := harness.Patient(t); ; {
		all, living := 0, 0
		if err := db.QueryRowContext(ctx, `SELECT count(*), count(*) FILTER
			(WHERE expires_at > extract(epoch FROM clock_timestamp()) * 1000000) FROM members`).Scan(&all, &living); err != nil {
			t.Fatal(err)
		}
		if all == 0 {
			t.Fatal("there are no members")
		}
		if living <= but {
			return
		}
		<-again.C
	}
}

// TestFaultReplicaUnreachable cuts the way from the other processes to an owner that lives. Its clients
// are told to try again, soon, and nothing is thrown away: when the way is open again, an open question
// and the session are where they were.
func TestFaultReplicaUnreachable(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{Era: "legacy"})
	w := mustWay(t, process.FreePort(t))
	var all []*harness.Program
	for i := range 2 {
		p := harness.NewProgram(t)
		advertise := "127.0.0.1:0"
		if i == 0 {
			advertise = w.address
			p.MustConfigure(t, fmt.Sprintf("upstreams: { up: { url: %q } }\n"+
				"replicas: { listen: \"${LISTEN}\", advertise: \"${ADVERTISE}\" }\n"+
				"storage: { driver: postgres, dsn: %q, key_file: %q }\n", config.URL, authtest.Schema(t),
				filepath.Join(p.Dir, "master.key")))
		} else {
			p.Dir = all[0].Dir
		}
		mustLaunch(t, p, "exec \"$@\"", "LISTEN="+[]string{w.to, "127.0.0.1:0"}[i], "ADVERTISE="+advertise)
		all = append(all, p)
	}
	for _, p := range all {
		mustKnow(t, p, 2)
	}
	session := harness.Talk(t, all[0].URL, client.EraLegacy)
	session.URL = all[1].URL
	session.Succeed(t, "up__echo", `{}`)
	modern := harness.Talk(t, all[0].URL, client.EraModern)
	q := harness.Asking(harness.AskForm)
	asked := modern.Begin(t, q).Answer(t)
	q.Params = harness.Retried(q.Params, asked,
		string(raw.Quote(harness.Requested(t, asked)[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))
	modern.URL = all[1].URL

	w.close()
	refused := func(most time.Duration) {
		t.Helper()
		began := time.Now()
		for _, m := range []jsonrpc.Message{session.Call(t, "up__echo", `{}`), modern.Begin(t, q).Answer(t)} {
			if m.Error == nil || !strings.Contains(m.Error.Message, "send the request again") ||
				strings.Contains(m.Error.Message, "executed") {
				t.Errorf("got %s, want that the client may try again", m.Append(nil))
			}
		}
		if took := time.Since(began); took > most {
			t.Errorf("two requests took %v", took)
		}
	}
	refused(10 * time.Second) // the owner has to renew its lease, which it does every five seconds
	refused(time.Second)
	w.mustOpen(t)
	mustCallOn(t, session)
	harness.AnswersOf(t, modern.Begin(t, q).Answer(t))
	for i, p := range all {
		if n := claimed(t, p); n != 0 {
			t.Errorf("process %d has taken over %d sessions", i, n)
		}
	}
}

// mustCallOn waits until a call of the session succeeds.
func mustCallOn(t *testing.T, c *harness.Talker) {
	t.Helper()
	limit := time.Now().Add(harness.Patience)
	for m := c.Call(t, "up__echo", `{}`); m.Error != nil; m = c.Call(t, "up__echo", `{}`) {
		if time.Now().After(limit) {
			t.Fatalf("still %v", m.Error)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// way is an address that leads to another one, until it is closed.
type way struct {
	address, to string
	l           net.Listener
	mu          sync.Mutex
	conns       []net.Conn
}

func mustWay(t *testing.T, to string) *way {
	t.Helper()
	w := &way{address: process.FreePort(t), to: to}
	w.mustOpen(t)
	t.Cleanup(w.close)
	return w
}

func (w *way) mustOpen(t *testing.T) {
	t.Helper()
	l := process.ListenAt(t, w.address)
	w.l = l
	go func() { // until close
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", w.to)
			if err != nil {
				c.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, c, there)
			w.mu.Unlock()
			go func() { _, _ = io.Copy(c, there); c.Close() }()
			go func() { _, _ = io.Copy(there, c); there.Close() }()
		}
	}()
}

func (w *way) close() {
	w.l.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		c.Close()
	}
	w.conns = nil
}

// TestFaultReplicaFrozen stops the process that has the sessions for less than its lease. Requests that it has not
// begun are refused with a time to try again, also before the lease ends. When it runs again, it executes none of
// them, and the sessions are where they were. The call that it had begun goes on.
func TestFaultReplicaFrozen(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	all := mustReplicas(t, authtest.Schema(t))
	var sessions []*harness.Talker
	for range 2 {
		sessions = append(sessions, harness.Talk(t, all[0].URL, client.EraLegacy))
		sessions[len(sessions)-1].URL = all[1].URL
	}
	count := func() string { return string(sessions[1].Succeed(t, "up__count", `{}`)) }
	before := count()
	hung := sessions[0].Begin(t, harness.Asking(harness.AskForm))
	question, _ := hung.Next(t)
	mustSignal(t, all[0], syscall.SIGSTOP)
	mustBe(t, all[0], "T (stopped)")
	for i := range 3 { // the first one finds out, and the others are not sent
		began := time.Now()
		m := sessions[1].Call(t, "up__count", `{}`)
		if m.Error == nil || !strings.Contains(m.Error.Message, "send the request again") {
			t.Errorf("call %d is answered %s", i, m.Append(nil))
		}
		t.Logf("refused after %v", time.Since(began).Round(time.Millisecond))
	}
	mustSignal(t, all[0], syscall.SIGCONT)
	mustCallOn(t, sessions[1])
	if got, want := count(), strings.Replace(before, "1", "2", 1); got != want {
		t.Errorf("the counts are %s and then %s: a refused call was executed", before, got)
	}
	sessions[0].Respond(t, question.ID, harness.Accepted)
	if m := hung.Answer(t); m.Error != nil {
		t.Errorf("the call that had begun is answered %s", m.Append(nil))
	}
	for i, p := range all {
		if n := claimed(t, p); n != 0 {
			t.Errorf("process %d has taken over %d sessions", i, n)
		}
	}
}

// mustBe waits until a process has a state of Linux.
func mustBe(t *testing.T, p *harness.Program, state string) {
	t.Helper()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for limit := time.Now().Add(harness.Patience); ; <-again.C {
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
