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
	})
}

// TestPrincipalsWithoutEntriesAreRemoved has thousands of principals. A new one removes two others, and
// none that has an entry, however many there are.
func TestPrincipalsWithoutEntriesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a Memory
		n := 0
		add := func() {
			n++
			a.Spend(fmt.Sprint("principal ", n), "1", time.Now().Add(time.Minute))
		}
		for range 3 * most {
			add()
		}
		a.Give("principal 1", "request") // it lives longer than the others
		if len(a.byPrincipal) != 3*most {
			t.Fatalf("%d of %d principals are kept that have an entry", len(a.byPrincipal), 3*most)
		}
		time.Sleep(time.Minute)
		for new := range 2 * most {
			before := len(a.byPrincipal)
			if add(); before-len(a.byPrincipal) > looks-1 {
				t.Fatalf("new principal %d removes %d others, want at most %d", new, before+1-len(a.byPrincipal), looks)
			}
		}
		if len(a.byPrincipal) != 2*most+1 || len(a.order) != 2*most+1 || !a.Has("principal 1", "request") {
			t.Errorf("%d principals are kept, want %d; that of an approval: %t", len(a.byPrincipal), 2*most+1,
				a.Has("principal 1", "request"))
		}
	})
}
