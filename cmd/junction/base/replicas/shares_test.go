package replicas

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"junction/proxy/budget"
	"junction/proxy/members"
)

// TestOrdinaryCallsNeedNoStatement: after the first call of a principal at each member, calls within the
// limits go on without the database. Beyond the shares, nothing is let through without it.
func TestOrdinaryCallsNeedNoStatement(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	all := []*running{w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil)}
	knowEachOther(w, all)
	l := limits{Rate: 1.0 / 3600, Burst: 120, Concurrent: 9}
	enter := func(m *running) (leave func(), err error) {
		leave, _, err = m.Enter(t.Context(), "user:ann", l, false)
		return leave, err
	}
	for _, m := range all {
		leave, err := enter(m)
		if err != nil {
			t.Fatal(err)
		}
		leave()
	}
	away, err := sql.Open("pgx", w.dsn)
	if err != nil {
		t.Fatal(err)
	}
	away.Close()
	for _, m := range all {
		m.o.DB = away
	}
	for i, m := range all {
		for call := range 12 {
			first, err := enter(m)
			if err != nil {
				t.Fatalf("member %d, call %d: %v", i, call, err)
			}
			second, err := enter(m)
			if err != nil {
				t.Fatalf("member %d, call %d beside another one: %v", i, call, err)
			}
			first()
			second()
		}
		refused := 0
		for range 20 {
			leave, err := enter(m)
			switch {
			case err == nil:
				leave()
			case errors.Is(err, members.ErrAlone):
				refused++
			default:
				t.Error(err)
			}
		}
		if refused < 5 { // a third of 120, less 25
			t.Errorf("member %d: %d of 45 calls were refused; its share is 40", i, refused)
		}
	}
}

// knowEachOther waits until each member knows all others.
func knowEachOther(w *world, all []*running) {
	w.t.Helper()
	w.until("the members know each other", func() bool {
		for _, m := range all {
			if len(m.Members()) != len(all) {
				return false
			}
		}
		return true
	})
}

// TestOneCallAtATimeMoves: a principal that may have one call in flight makes calls at each member in
// turn, and each of them begins. A second one beside it never does.
func TestOneCallAtATimeMoves(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	all := []*running{w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil)}
	knowEachOther(w, all)
	one := limits{Concurrent: 1}
	for i := range 30 {
		leave, _, err := all[i%3].Enter(t.Context(), "user:ann", one, false)
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		for j := range 2 {
			if _, _, err := all[(i+1+j)%3].Enter(t.Context(), "user:ann", one, false); !errors.Is(err, budget.ErrTooMany) {
				t.Fatalf("call %d, and another one at the same time: %v", i, err)
			}
		}
		leave()
	}
}

// TestRateIsNeverExceeded: many callers at four members, one of which stops and another joins, are let
// through no more often than the rate and the burst allow together, and not much less often.
func TestRateIsNeverExceeded(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	all := []*running{w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil)}
	knowEachOther(w, all)
	l := limits{Rate: 100, Burst: 30}
	begun := time.Now()
	var let atomic.Int64
	var tasks sync.WaitGroup
	calling, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	for i, m := range all {
		for range 1 + 2*i { // the demand differs
			tasks.Go(func() {
				for calling.Err() == nil {
					if leave, wait, err := m.Enter(calling, "user:ann", l, false); err == nil {
						leave()
						let.Add(1)
					} else if wait > 0 {
						time.Sleep(min(wait, 5*time.Millisecond))
					} else if m != all[0] && calling.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
	}
	w.until("half of the time is over", func() bool { return time.Since(begun) > time.Second })
	all[0].stop()
	late := w.mustJoin(nil)
	for calling.Err() == nil {
		if leave, _, err := late.Enter(calling, "user:ann", l, false); err == nil {
			leave()
			let.Add(1)
		} else {
			time.Sleep(5 * time.Millisecond)
		}
	}
	tasks.Wait()
	most := 30 + 100*time.Since(begun).Seconds()
	t.Logf("%d of %.0f were let through", let.Load(), most)
	if n := float64(let.Load()); n > most+1 || n < most/2 {
		t.Errorf("%.0f requests were let through, of %.0f", n, most)
	}
}

// TestStoppedMemberGivesBack: what a stopped member has not used of a rate, the others can use.
func TestStoppedMemberGivesBack(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	a, b := w.mustJoin(nil), w.mustJoin(nil)
	knowEachOther(w, []*running{a, b})
	hourly := limits{Rate: 1.0 / 3600, Burst: 9}
	enter := func(m *running, n int) {
		t.Helper()
		for i := range n {
			if _, _, err := m.Enter(t.Context(), "user:ann", hourly, false); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
	}
	enter(a, 2)
	enter(b, 1)
	id := a.Self()
	a.stop()
	w.until("it has left", func() bool { return !b.Alive(id) })
	enter(b, 6)
	if _, _, err := b.Enter(t.Context(), "user:ann", hourly, false); !errors.Is(err, budget.ErrTooFast) {
		t.Errorf("a tenth request of nine: %v", err)
	}
}

// TestStoppedMemberGivesBackTheOthers: a row that cannot be changed does not keep a stopped member from
// giving back the rates of other users.
func TestStoppedMemberGivesBackTheOthers(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	a, b := w.mustJoin(nil), w.mustJoin(nil)
	knowEachOther(w, []*running{a, b})
	hourly := limits{Rate: 1.0 / 3600, Burst: 30}
	good, broken := []string{"a", "b", "c", "d"}, []string{"e", "f", "g", "h"}
	for _, user := range append(slices.Clone(good), broken...) {
		if _, _, err := a.Enter(t.Context(), user, hourly, false); err != nil {
			t.Fatal(err)
		}
	}
	mustBreak(t, a, broken)
	id := a.Self()
	a.stop()
	w.until("it has left", func() bool { return !b.Alive(id) })
	for _, user := range good {
		for i := range 29 {
			if _, _, err := b.Enter(t.Context(), user, hourly, false); err != nil {
				t.Fatalf("request %d of %s: %v", i, user, err)
			}
		}
	}
}

// mustBreak makes the rows of some principals unreadable.
func mustBreak(t *testing.T, m *running, principals []string) {
	t.Helper()
	for of, h := range m.holdings.all() {
		if slices.Contains(principals, of.principal) {
			if _, err := m.o.DB.ExecContext(t.Context(), `UPDATE limit_shares SET shares = 'broken' WHERE limit_hash = $1`,
				h.digest); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestUnusedSharesGoBackBesideABrokenRow: rows that cannot be changed do not keep a member from giving
// back the unused shares of other users.
func TestUnusedSharesGoBackBesideABrokenRow(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	a, b := w.mustJoin(nil), w.mustJoin(nil)
	one := limits{Concurrent: 1}
	good, broken := []string{"a", "b", "c", "d"}, []string{"e", "f", "g", "h"}
	for _, user := range append(slices.Clone(good), broken...) {
		leave, _, err := a.Enter(t.Context(), user, one, false)
		if err != nil {
			t.Fatal(err)
		}
		leave()
	}
	mustBreak(t, a, broken)
	for _, h := range a.holdings.all() {
		h.mu.Lock()
		h.lastUsed = h.lastUsed.Add(-2 * shareIdle)
		h.mu.Unlock()
	}
	a.tend(t.Context())
	if left := a.holdings.all(); len(left) != len(broken) {
		t.Errorf("the member keeps the shares of %d users, want those of the %d with a broken row", len(left), len(broken))
	}
	for _, user := range good {
		if _, _, err := b.Enter(t.Context(), user, one, false); err != nil {
			t.Errorf("the share of %s at another member: %v", user, err)
		}
	}
}
