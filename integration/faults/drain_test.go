//go:build linux

package faults

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// TestFaultReplicaDrains stops a process that has an open question, a long call and a parked call.
// The other processes pass the answer, the cancellation and the client's return on to it, so that
// each of the calls ends well. The sessions without a call go on elsewhere meanwhile.
func TestFaultReplicaDrains(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	all := mustReplicas(t, authtest.Schema(t))
	in := func(p *harness.Program, c *harness.Talker) *harness.Talker { // with its requests sent to p
		there := *c
		there.URL = p.URL
		return &there
	}
	legacy := func() *harness.Talker { return in(all[1], harness.Talk(t, all[0].URL, client.EraLegacy)) }
	asked, hanging, idle, busy := legacy(), legacy(), legacy(), legacy()
	question := asked.Begin(t, harness.Asking(harness.AskForm))
	m, ok := question.Next(t)
	if !ok || m.Method != "elicitation/create" {
		t.Fatalf("got %s, want a question", m.Append(nil))
	}
	hung := hanging.Begin(t, harness.Called("up__hang", `{}`))
	waiting := busy.Begin(t, harness.Called("up__hang", `{}`))
	modern := in(all[0], harness.Talk(t, all[0].URL, client.EraModern))
	parking := harness.Asking(harness.AskForm)
	p := modern.Begin(t, parking).Answer(t)
	parking.Params = harness.Retried(parking.Params, p,
		string(raw.Quote(harness.Requested(t, p)[0].Key))+`:`+strings.TrimPrefix(harness.Accepted, `"result":`))

	if text := mustStatus(t, all[0]); !regexp.MustCompile(`up +ready .* [234] in progress;`).MatchString(text) {
		t.Errorf("the status shows no calls in progress:\n%s", text)
	}
	mustSignal(t, all[0], syscall.SIGTERM)
	mustNote(t, all[0], "shutting down")
	for range 3 {
		idle.Succeed(t, "up__echo", `{}`)
		in(all[2], idle).Succeed(t, "up__echo", `{}`)
	}
	select {
	case <-all[0].Done:
		t.Error("a session without a call waited for the end of its owner")
	default: // which stays for its calls
	}
	busy.Succeed(t, "up__echo", `{}`) // beside the call in flight, at the owner
	hanging.Notify(t, "notifications/cancelled", `"requestId":`+hung.ID)
	harness.WantOwnError(t, hung.Answer(t), "up", client.KindCancelled)
	in(all[2], asked).Respond(t, m.ID, harness.Accepted)
	if got := harness.AnswersOf(t, question.Answer(t)); got != `[{`+harness.Accepted+`}]` {
		t.Errorf("the upstream was answered %s", got)
	}
	harness.AnswersOf(t, in(all[2], modern).Begin(t, parking).Answer(t))
	again := in(all[1], modern).Begin(t, parking).Answer(t) // the same answer once more
	if again.Error == nil || strings.Contains(again.Error.Message, "make the request without it") ||
		!strings.Contains(again.Error.Message, "may have been executed") {
		t.Errorf("the second return to a parked call is answered %s", again.Append(nil))
	}
	busy.Notify(t, "notifications/cancelled", `"requestId":`+waiting.ID)
	harness.WantOwnError(t, waiting.Answer(t), "up", client.KindCancelled)
	<-all[0].Done // without a call, before the grace ends
	if !all[0].Cmd.ProcessState.Success() {
		t.Errorf("the process ended with %v", all[0].Cmd.ProcessState)
	}
	all[0].Cmd = nil
	for _, c := range []*harness.Talker{asked, hanging, idle, busy} {
		c.Succeed(t, "up__echo", `{}`)
	}
	if text := all[0].Stderr.String(); strings.Contains(text, "calls are cut off") {
		t.Errorf("the process did not end with its calls:\n%s", all[0].Stderr.Tail(1000))
	}
}

// mustNote waits until the log of a process has a text.
func mustNote(t *testing.T, p *harness.Program, text string) {
	t.Helper()
	for limit := time.Now().Add(harness.Patience); !strings.Contains(p.Stderr.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("the log has no %q:\n%s", text, p.Stderr.Tail(2000))
		}
	}
}
