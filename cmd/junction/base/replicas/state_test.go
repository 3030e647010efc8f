package replicas

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"junction/proxy/members"
)

// TestStateHasOneOwner: of four members that ask for a state at once, twenty times each, all get the same
// owner. After the end of the owner, exactly one of them is told that the state is lost.
func TestStateHasOneOwner(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	all := []*running{w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil)}
	knowEachOther(w, all) // a member asks the database about an owner that it does not know yet
	for round := range 10 {
		key := [16]byte{byte(round)}
		ask := func() (owner string, lost int) {
			var mu sync.Mutex
			answers := map[string]int{}
			var tasks sync.WaitGroup
			for i := range 20 * len(all) {
				tasks.Go(func() {
					got, once, err := all[i%len(all)].State(t.Context(), key, "")
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						t.Error(err)
					}
					if answers[got]++; once {
						lost++
					}
					owner = got
				})
			}
			tasks.Wait()
			if len(answers) != 1 {
				t.Fatalf("round %d: the owners are %v", round, answers)
			}
			return owner, lost
		}
		if _, lost := ask(); lost != 0 {
			t.Errorf("round %d: a new state is lost", round)
		}
		dead := fmt.Sprint("dead", round)
		w.mustDie(dead)
		if _, err := w.store.Database().Exec(`UPDATE session_owners SET owner = $1 WHERE session_hash = $2`, dead,
			hashOf(key)); err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			m.owners.forget(key)
		}
		owner, lost := ask()
		if lost != 1 {
			t.Errorf("round %d: %d were told that the state is lost, want 1", round, lost)
		}
		// From then on, no member asks the database.
		before := [4]int64{}
		for i, m := range all {
			before[i] = m.claims.statements.Load()
		}
		if again, lost := ask(); again != owner || lost != 0 {
			t.Errorf("round %d: the owner is %s and then %s", round, owner, again)
		}
		for i, m := range all {
			if n := m.claims.statements.Load() - before[i]; n != 0 {
				t.Errorf("round %d: member %d makes %d statements for a known owner", round, i, n)
			}
		}
	}
}

// TestOneOfABatchIsTold: of several calls whose claims go in one statement, one is told that the state is
// lost.
func TestOneOfABatchIsTold(t *testing.T) {
	t.Parallel()
	b := &claimBatch{got: map[[16]byte]claim{{1}: {Took: true}, {2}: {Took: true}, {3}: {}}}
	told := map[byte]int{}
	for _, key := range []byte{1, 2, 1, 3, 1, 2} {
		if c, err := b.result([16]byte{key}); err != nil {
			t.Error(err)
		} else if c.Took {
			told[key]++
		}
	}
	if told[1] != 1 || told[2] != 1 || told[3] != 0 {
		t.Errorf("told %v, want each lost state once", told)
	}
}

// TestStateIsGivenUp: a state that its owner has freed is not lost, and begins anywhere. One that its owner
// gives up is lost once, and the owner does not get it back.
func TestStateIsGivenUp(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	a, b, c := w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil)
	want := func(m *running, key byte, released string, owner *running, lost bool) {
		t.Helper()
		if got, once, err := m.State(t.Context(), [16]byte{key}, released); got != owner.Self() || once != lost || err != nil {
			t.Errorf("State = %s, %v, %v; want %s, %v", got, once, err, owner.Self(), lost)
		}
	}
	want(a, 1, "", a, false)
	if err := b.FreeState(t.Context(), [16]byte{1}); err != nil { // of another member: nothing
		t.Fatal(err)
	}
	want(c, 1, "", a, false)
	if err := a.FreeState(t.Context(), [16]byte{1}); err != nil {
		t.Fatal(err)
	}
	want(b, 1, "", b, false)
	want(a, 1, "", b, false)
	want(c, 1, a.Self(), b, false) // a has told c that it does not have the state

	want(a, 2, "", a, false)
	want(b, 2, "", a, false)
	want(b, 2, a.Self(), b, true)
	want(c, 2, a.Self(), b, false)
	want(c, 2, "", b, false)
}

// TestOldStateIsKept: the row of a state is kept as long as its owner has the state.
func TestOldStateIsKept(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	a, b := w.mustJoin(nil), w.mustJoin(nil)
	key := [16]byte{1}
	if _, _, err := a.State(t.Context(), key, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Database().Exec(`UPDATE session_owners SET expires_at = 1`); err != nil {
		t.Fatal(err)
	}
	a.states.mu.Lock()
	a.states.renewed[key] = time.Now().Add(-25 * time.Hour)
	a.states.mu.Unlock()
	for _, m := range []*running{a, b} {
		if err := m.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if owner, lost, err := b.State(t.Context(), key, ""); owner != a.Self() || lost || err != nil {
		t.Errorf("State = %s, %v, %v; want %s", owner, lost, err, a.Self())
	}
}

// TestClientSendsNoMessageOfMembers: a client's own value in the header of such messages is not passed on.
func TestClientSendsNoMessageOfMembers(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 1)
	p := mustPair(t, func(w http.ResponseWriter, r *http.Request) {
		heard <- r.Header.Get(members.HeaderCall)
	})
	p.mustAsk("POST /mcp HTTP/1.1\r\nHost: h\r\n" + members.HeaderCall + ": call\r\nContent-Length: 0\r\n\r\n")
	if got := <-heard; got != "" {
		t.Errorf("the owner got %q", got)
	}
}
