package diagnose

import (
	"strings"
	"testing"
	"time"

	"junction/cmd/junction/base/config"
	"junction/policy"
	"junction/upstream"
)

// TestConnectionsOfUsersThatDoNotWorkAreShown: status names the first connections that do not work and counts the
// others, doctor has a grave finding for each, and why shows the state to their callers alone.
func TestConnectionsOfUsersThatDoNotWorkAreShown(t *testing.T) {
	since := time.Date(2026, 3, 4, 19, 2, 43, 0, time.UTC)
	s := upstream.Status{Name: "odd", State: upstream.StateReady, Degraded: 7}
	for _, who := range []string{"ann", "ben", "cal", "dan", "eve", "fay", "gus"} {
		s.Stuck = append(s.Stuck, upstream.Stuck{PID: 23857, User: "key:" + who, Principal: "key:" + who, Since: since, Err: "no answer"})
	}
	s.Stuck[1] = upstream.Stuck{User: "key:ben", Principal: "key:ben", Err: "it rejects the session"}
	report := Report{Upstreams: []UpstreamStatus{{Name: "odd", State: s.State.String(), Degraded: s.Degraded, stuck: s.Stuck}}}
	(&Proxy{Config: func() *config.Config { return &config.Config{} }}).ListProcesses(&report, true)
	u := report.Upstreams[0]
	if len(u.Stuck) != 5 || u.MoreStuck != 2 {
		t.Errorf("status shows %d and counts %d more, want 5 and 2", len(u.Stuck), u.MoreStuck)
	}
	const hers = "process 23857 of key:ann has answered nothing since 19:02:43 UTC"
	if got := u.Stuck[0].String() + "; " + u.Stuck[1].String(); got != hers+"; a connection of key:ben does not work: it rejects the session" {
		t.Errorf("status shows %q", got)
	}
	if got, want := Summary(report.Upstreams), "1 server works, and 7 connections of users do not work"; got != want {
		t.Errorf("Summary = %q, want %q", got, want)
	}
	d := examined(t, upstream.Config{}, &s, upstream.Report{})
	if len(d.Findings) != 6 || d.Upstreams[0].Stuck != 7 {
		t.Fatalf("doctor has %d findings about %d connections, want 6 about 7", len(d.Findings), d.Upstreams[0].Stuck)
	}
	for _, f := range d.Findings {
		if !f.Grave || !strings.HasPrefix(f.Advice, "junction reconnect up ends ") {
			t.Errorf("doctor has %+v, want a grave finding with the command", f)
		}
	}
	if d.Findings[0].Text != hers || d.Findings[5].Text != "2 more connections of users do not work" {
		t.Errorf("doctor has %q and %q", d.Findings[0].Text, d.Findings[5].Text)
	}
	for who, want := range map[string]string{"key:ann": hers, "key:zoe": ""} {
		if got := (&Proxy{}).stateFor(s, &policy.Subject{ID: who}); got.Err != want || (got.State == upstream.StateDegraded) != (want != "") {
			t.Errorf("why shows %s: %v, %q, want %q", who, got.State, got.Err, want)
		}
	}
}

// TestAPingWithoutAnAnswerIsShown: a server that answers nothing is ready as long as a cancelled call could be in
// progress. The state has the ping, and what to do.
func TestAPingWithoutAnAnswerIsShown(t *testing.T) {
	since := time.Date(2026, 3, 4, 19, 2, 43, 0, time.UTC)
	s := upstream.Status{Name: "odd", State: upstream.StateReady, Awaited: upstream.Awaited{Since: since, Until: since.Add(10 * time.Minute)}}
	if got, want := awaited(&s.Awaited), "the server has not answered a ping since 19:02:43 UTC; it is degraded at 19:12:43 UTC, unless "+
		"it answers: until then it may work on a call that its client has cancelled"; got != want {
		t.Errorf("the state shows %q, want %q", got, want)
	}
	if got := awaited(&upstream.Awaited{}); got != "" {
		t.Errorf("without a ping, the state shows %q", got)
	}
}
