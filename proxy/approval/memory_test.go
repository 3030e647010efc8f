package approval

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestApprovalsAreOfTheirPrincipal has one principal use up all its room: others do not notice, and
// it has room again when what it used has ended.
func TestApprovalsAreOfTheirPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Memory
		until := time.Now().Add(time.Minute)
		a.Give("you", "request")
		for i := range 2 * most {
			if ok := a.Spend("me", fmt.Sprint(i), until); ok != (i < most) {
				t.Fatalf("asking %d was answered: %v", i, ok)
			}
			a.Give("me", fmt.Sprint(i))
		}
		if !a.Spend("you", "1", until) || a.Spend("you", "1", until) || !a.Has("you", "request") || a.Has("me", "request") || a.Has("him", "request") {
			t.Error("who has used nothing is out of room, or has what is another's")
		}
		if n := len(a.byPrincipal["me"].given); n != most {
			t.Errorf("%d approvals of one principal are remembered, want %d", n, most)
		}
		time.Sleep(time.Minute)
		if !a.Spend("me", "new", until.Add(time.Minute)) || len(a.byPrincipal["me"].spent) != 1 {
			t.Error("what has ended takes room")
		}
		time.Sleep(kept)
		if a.Has("you", "request") {
			t.Error("an approval does not end")
		}
		for i := range 2 * most {
			a.Spend(fmt.Sprint("principal ", i), "1", until)
		}
		if n := len(a.byPrincipal); n > most {
			t.Errorf("%d principals are remembered of whom there is nothing to remember", n)
		}
	})
}
