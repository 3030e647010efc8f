//go:build linux

package faults

import (
	"database/sql"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/load"
	"junction/upstream/client"
)

// mustAnother starts a process with the file of another one and further lines.
func mustAnother(t *testing.T, of *harness.Program, more string) *harness.Program {
	t.Helper()
	text, err := os.ReadFile(of.File()) // with the paths of the keys
	if err != nil {
		t.Fatal(err)
	}
	p := harness.NewProgram(t)
	p.MustWrite(t, string(text)+more)
	p.MustServe(t)
	return p
}

// TestFaultHardKeyIsReplaced replaces three processes by three with another value of a key that all must have
// equal. The new ones wait, and name the key. They join as soon as the last one is told to stop, before it has
// ended: so calls find a process all the while. A call in flight ends well at its own process. An old process that
// a second signal ends gives its lease back.
func TestFaultHardKeyIsReplaced(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	dsn := authtest.Schema(t)
	old := mustReplicas(t, dsn)
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var next []*harness.Program
	for range 3 {
		next = append(next, mustAnother(t, old[0], "names: { separator: \"-\" }\n"))
	}
	for _, p := range next {
		mustNote(t, p, "in names.separator, which all processes must have equal")
	}
	var flights []*harness.Answering
	var talkers []*harness.Talker
	for _, p := range old {
		c := harness.Talk(t, p.URL, client.EraLegacy)
		c.Succeed(t, "up__echo", `{}`)
		flights, talkers = append(flights, c.Begin(t, harness.Called("up__hang", `{}`))), append(talkers, c)
	}
	began := time.Now()
	for i, p := range old {
		for _, n := range next {
			if strings.Contains(n.Stderr.String(), "joined the replicas") {
				t.Errorf("a new one has joined beside %d old ones", len(old)-i)
			}
		}
		mustSignal(t, p, syscall.SIGTERM)
	}
	for _, p := range next {
		mustNote(t, p, "joined the replicas")
		c := harness.MustCaller(t, p.URL, harness.ModernEra)
		if err := load.Call(t.Context(), c, "up-echo", `{"a":1}`); err != nil {
			t.Errorf("a new one: %v", err)
		}
	}
	t.Logf("FAULT a hard key is replaced in 3 processes: the new ones serve %v after the first signal",
		time.Since(began).Round(time.Millisecond))
	for i, p := range old {
		select {
		case <-p.Done:
			t.Errorf("the old process %d has ended before its call", i)
		default:
		}
	}
	for i, p := range old[1:] { // a request of the session reaches its owner through a new process
		talkers[i+1].URL = next[i].URL
		talkers[i+1].Notify(t, "notifications/cancelled", `"requestId":`+flights[i+1].ID)
		harness.WantOwnError(t, flights[i+1].Answer(t), "up", client.KindCancelled)
		<-p.Done
		if !p.Cmd.ProcessState.Success() {
			t.Errorf("an old process ended with %v", p.Cmd.ProcessState)
		}
		p.Cmd = nil
	}
	mustSignal(t, old[0], syscall.SIGTERM) // the second signal ends its calls
	<-old[0].Done
	old[0].Cmd = nil
	rows := 0
	if err := db.QueryRow(`SELECT count(*) FROM members`).Scan(&rows); err != nil || rows != len(next) {
		t.Errorf("after a second signal there are %d members, %v; want %d", rows, err, len(next))
	}
	late := mustAnother(t, next[0], "")
	mustNote(t, late, "joined the replicas")
	if strings.Contains(late.Stderr.String(), "cannot join") {
		t.Errorf("a process that was killed keeps another one out:\n%s", late.Stderr.Tail(1000))
	}
}
