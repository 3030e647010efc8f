package proxy

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"junction/policy"
	"junction/proxy/view"
	"junction/upstream"
)

// TestUndecidedCallsAreDenied has the pipeline reach approval without a decision of policy: in no era
// is the call made.
func TestUndecidedCallsAreDenied(t *testing.T) {
	s := mustServer(t)
	for _, era := range []upstream.Era{upstream.EraLegacy, upstream.EraModern} {
		for verdict, want := range map[policy.Verdict]string{policy.Deny: "Unknown tool: x", policy.Allow: ""} {
			x := &exchange{era: era, target: &view.Target{Part: upstream.PartTools}, decision: policy.Decision{Verdict: verdict}}
			x.info.Name, x.approved = "x", true
			got := ""
			if r, err := s.approve(t.Context(), x, state{Approved: true}); r != nil {
				t.Errorf("%s: approve answered %s", era, r.body)
			} else if err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%s: approve of a call with the verdict %s = %q, want %q", era, verdict, got, want)
			}
		}
	}
}

// TestApprovalsAreOfTheirPrincipal has one principal use up all its room: others do not notice, and
// it has room again when what it used has ended.
func TestApprovalsAreOfTheirPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a approvals
		until := time.Now().Add(time.Minute)
		a.give("you", "request")
		for i := range 2 * maxApprovals {
			if ok := a.spend("me", fmt.Sprint(i), until); ok != (i < maxApprovals) {
				t.Fatalf("asking %d was answered: %v", i, ok)
			}
			a.give("me", fmt.Sprint(i))
		}
		if !a.spend("you", "1", until) || a.spend("you", "1", until) || !a.has("you", "request") || a.has("me", "request") || a.has("him", "request") {
			t.Error("who has used nothing is out of room, or has what is another's")
		}
		if n := len(a.of["me"].given); n != maxApprovals {
			t.Errorf("%d approvals of one principal are remembered, want %d", n, maxApprovals)
		}
		time.Sleep(time.Minute)
		if !a.spend("me", "new", until.Add(time.Minute)) || len(a.of["me"].spent) != 1 {
			t.Error("what has ended takes room")
		}
		time.Sleep(approvalKept)
		if a.has("you", "request") {
			t.Error("an approval does not end")
		}
		for i := range 2 * maxApprovals {
			a.spend(fmt.Sprint("principal ", i), "1", until)
		}
		if n := len(a.of); n > maxApprovals {
			t.Errorf("%d principals are remembered of whom there is nothing to remember", n)
		}
	})
}
