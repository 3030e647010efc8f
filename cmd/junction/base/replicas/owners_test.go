package replicas

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"junction/proxy/budget"
	"junction/proxy/members"
)

// hourLater is the time until which the sessions of tests live.
func hourLater() time.Time { return time.Now().Add(time.Hour) }

// mustDie adds a member whose lease has expired.
func (w *world) mustDie(id string) {
	w.t.Helper()
	if _, err := w.store.Database().Exec(`INSERT INTO members VALUES ($1, $1, '', '', '', 0, `+now+` - 1)`, id); err != nil {
		w.t.Fatal(err)
	}
}

// TestOneOwner: of four members that ask for the owner of a session at once, twenty times each, all
// get the same member, which is the owner from then on.
func TestOneOwner(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	all := []*running{w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil)}
	for round := range 10 {
		dead := fmt.Sprint("dead", round)
		w.mustDie(dead)
		session := [16]byte{byte(round)}
		var mu sync.Mutex
		answers := map[string]int{}
		var tasks sync.WaitGroup
		for i := range 20 * len(all) {
			tasks.Go(func() {
				owner, err := all[i%len(all)].Owner(t.Context(), session, dead, "", hourLater())
				if err != nil {
					owner = err.Error()
				}
				mu.Lock()
				defer mu.Unlock()
				answers[owner]++
			})
		}
		tasks.Wait()
		if len(answers) != 1 {
			t.Fatalf("round %d: the owners are %v", round, answers)
		}
	}
	var claimed int64
	for _, m := range all {
		claimed += m.Figures().Claimed
	}
	if claimed != 10 {
		t.Errorf("%d sessions were claimed, want 10", claimed)
	}
}

// TestOwnerLives: a living member keeps its sessions, without a question to the database, and a
// session that was taken over passes on only after the end of the new owner.
func TestOwnerLives(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	a, b, c := w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil)
	w.until("they know each other", func() bool {
		return a.Alive(b.Self()) && a.Alive(c.Self()) && c.Alive(b.Self()) && b.Alive(a.Self())
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, first := range []string{a.Self(), b.Self()} {
		if owner, err := a.Owner(ended, [16]byte{1}, first, "", hourLater()); err != nil || owner != first {
			t.Errorf("Owner = %q, %v; want %q", owner, err, first)
		}
	}
	owner, err := b.Owner(t.Context(), [16]byte{1}, "ended", "", hourLater())
	if err != nil || owner != b.Self() {
		t.Fatalf("Owner = %q, %v; want the member that asks", owner, err)
	}
	if owner, err := c.Owner(t.Context(), [16]byte{1}, "ended", "", hourLater()); err != nil || owner != b.Self() {
		t.Errorf("Owner = %q, %v; want %q", owner, err, b.Self())
	}
	if owner, err := c.Owner(ended, [16]byte{1}, "ended", "", hourLater()); err != nil || owner != b.Self() {
		t.Errorf("asked again: %q, %v; want the known owner without a question", owner, err)
	}
	b.stop()
	w.until("they know that it has left", func() bool { return !a.Alive(owner) && !c.Alive(owner) })
	if owner, err := c.Owner(t.Context(), [16]byte{1}, "ended", "", hourLater()); err != nil || owner != c.Self() {
		t.Errorf("after its end: %q, %v; want %q", owner, err, c.Self())
	}
}

// TestManySessionsOfAnEndedMember: the clients of a member that has ended come all at once to the others. While
// the statements of earlier claims run, their claims gather. They go in one statement for each maxClaims sessions.
func TestManySessionsOfAnEndedMember(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	all := []*running{w.mustJoin(nil), w.mustJoin(nil)}
	w.mustDie("dead")
	// The first statement deletes the row of the member. Statements that run meanwhile claim nothing, and are repeated.
	if _, err := all[0].Owner(t.Context(), [16]byte{15: 1}, "dead", "", hourLater()); err != nil {
		t.Fatal(err)
	}
	var before [2]int64
	for i, m := range all {
		before[i] = m.claims.statements.Load()
		for range claimsAtOnce {
			m.claims.turn <- struct{}{}
		}
	}
	var clients sync.WaitGroup
	come := func(from, to int) {
		t.Helper()
		for at, m := range all {
			for i := from; i < to; i++ {
				clients.Go(func() {
					session := [16]byte{byte(i), byte(i >> 8), byte(at)}
					if owner, err := m.Owner(t.Context(), session, "dead", "", hourLater()); err != nil || owner != m.Self() {
						t.Errorf("session %d has the owner %q: %v", i, owner, err)
					}
				})
			}
		}
		for _, m := range all {
			w.until("all clients wait", func() bool {
				m.claims.mu.Lock()
				defer m.claims.mu.Unlock()
				b := m.claims.next[claimOf{"dead", ""}]
				return b != nil && len(b.until) == to-from
			})
		}
	}
	come(0, maxClaims)
	come(maxClaims, maxClaims+50) // do not fit into the first statement
	for _, m := range all {
		for range claimsAtOnce {
			<-m.claims.turn
		}
	}
	clients.Wait()
	for i, m := range all {
		if n := m.claims.statements.Load() - before[i]; n != 2 {
			t.Errorf("member %d has claimed %d sessions in %d statements, want 2", i, maxClaims+50, n)
		}
	}
}

// TestRenewedNotClaimed: a lease that has expired is renewed while another member claims a session.
// The claim sees the renewal, although it began before.
func TestRenewedNotClaimed(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	a := w.mustJoin(nil)
	w.mustDie("late")
	tx, err := w.store.Database().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`UPDATE members SET expires_at = ` + now + ` + 60000000 WHERE id = 'late'`); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		owner string
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		owner, err := a.Owner(t.Context(), [16]byte{9}, "late", "", hourLater())
		answers <- answer{owner, err}
	}()
	w.until("the claim waits for the renewal", func() bool {
		waiting := 0
		err := w.store.Database().QueryRow(`SELECT count(*) FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '%session_owners%' AND pid <> pg_backend_pid()`).Scan(&waiting)
		return err == nil && waiting > 0
	})
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if got := <-answers; got.err != nil || got.owner != "late" {
		t.Errorf("Owner = %q, %v; want the member that has renewed its lease", got.owner, got.err)
	}
}

// TestRenewedOrClaimed: the same at any moment. Either the renewal or the claim succeeds.
func TestRenewedOrClaimed(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	a := w.mustJoin(nil)
	renewed := 0
	for round := range 100 {
		dead := fmt.Sprint("dead", round)
		w.mustDie(dead)
		var kept int64
		var renewing sync.WaitGroup
		renewing.Go(func() {
			result, err := w.store.Database().ExecContext(t.Context(), `UPDATE members SET expires_at = `+now+` + 60000000 WHERE id = $1`, dead)
			if err != nil {
				t.Error(err)
				return
			}
			kept, _ = result.RowsAffected()
		})
		owner, err := a.Owner(t.Context(), [16]byte{byte(round)}, dead, "", hourLater())
		renewing.Wait()
		if err != nil || (owner == dead) != (kept == 1) {
			t.Fatalf("round %d: the owner is %q, %v; the lease was renewed: %d", round, owner, err, kept)
		}
		renewed += int(kept)
	}
	t.Logf("%d of 100 were renewed", renewed)
}

// TestPatienceAfterOutage: after an outage of the database, a member that renews its lease first
// gives the others time to do the same. Meanwhile a member with an expired lease keeps its sessions,
// its calls in flight, and the requests that were forwarded to it.
func TestPatienceAfterOutage(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	a, b := w.mustJoin(nil), w.mustJoin(nil)
	late := b.Self()
	if _, _, err := b.Enter(t.Context(), "user:ann", limits{Concurrent: 1}, false); err != nil {
		t.Fatal(err)
	}
	w.until("they know each other", func() bool { return a.Alive(late) })
	if _, err := w.store.Database().Exec(`UPDATE members SET expires_at = 1 WHERE id = $1`, late); err != nil {
		t.Fatal(err)
	}
	look := func() (conns *connections) {
		a.setOthers([]row{{id: late, address: b.address, left: -time.Second}}, a.Self(), time.Now())
		if other := (*a.others.Load())[late]; other != nil {
			conns = other.conns
		}
		return conns
	}
	a.owners.renewedLate(time.Now(), time.Hour)
	kept := (*a.others.Load())[late].conns
	if look() != kept {
		t.Error("the requests that were forwarded to the member have ended")
	}
	if owner, err := a.Owner(t.Context(), [16]byte{1}, late, "", hourLater()); !errors.Is(err, members.ErrAlone) {
		t.Errorf("Owner = %q, %v; want %v", owner, err, members.ErrAlone)
	}
	if _, _, err := a.Enter(t.Context(), "user:ann", limits{Concurrent: 1}, false); !errors.Is(err, budget.ErrTooMany) {
		t.Errorf("the call of the member does not count any more: %v", err)
	}

	a.owners.renewedLate(time.Now(), 0) // the time is over
	if look() != nil {
		t.Error("requests are forwarded to a member that has ended")
	}
	if owner, err := a.Owner(t.Context(), [16]byte{1}, late, "", hourLater()); err != nil || owner != a.Self() {
		t.Errorf("Owner = %q, %v; want %q", owner, err, a.Self())
	}
}

// TestLateStatementEndsNoMember: a statement that was held up on its way finds a member whose lease
// has expired. It claims nothing, counts nothing and deletes nothing, because the member may be about
// to renew its lease. The same holds for a process whose last renewal is overdue.
func TestLateStatementEndsNoMember(t *testing.T) {
	t.Parallel()
	for name, age := range map[string]func(*lease){
		"late":    func(l *lease) { l.there -= (queryTime + time.Second).Microseconds() },
		"overdue": func(l *lease) { l.renewed = l.renewed.Add(-time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			w := mustWorld(t)
			w.ttl = time.Minute
			a := w.mustJoin(nil)
			fresh := a.lease.Load()
			w.mustDie("late")
			if _, err := w.store.Database().Exec(`INSERT INTO limit_shares VALUES ($1, '{"held":{"late":1}}', 0)`,
				digestOf("user:ann")); err != nil {
				t.Fatal(err)
			}
			old := *fresh
			age(&old)
			a.lease.Store(&old)
			if owner, err := a.Owner(t.Context(), [16]byte{1}, "late", "", hourLater()); !errors.Is(err, members.ErrAlone) {
				t.Errorf("Owner = %q, %v; want %v", owner, err, members.ErrAlone)
			}
			if ended, err := a.Ended(t.Context(), "late"); ended || err != nil {
				t.Errorf("Ended = %t, %v", ended, err)
			}
			if _, _, err := a.Enter(t.Context(), "user:ann", limits{Concurrent: 1}, false); err == nil {
				t.Error("the call of the other member does not count")
			}
			a.lease.Store(fresh)
			if ended, err := a.Ended(t.Context(), "late"); !ended || err != nil {
				t.Errorf("in time, Ended = %t, %v", ended, err)
			}
			if owner, err := a.Owner(t.Context(), [16]byte{1}, "late", "", hourLater()); err != nil || owner != a.Self() {
				t.Errorf("in time, Owner = %q, %v; want %q", owner, err, a.Self())
			}
		})
	}
}

// TestReleasedSessionHasOneOwner: an owner that lives gives a session up. Of many requests at three
// members, all get the same new owner, also those at a member that does not know of it.
func TestReleasedSessionHasOneOwner(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	first, all := w.mustJoin(nil).Self(), []*running{w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil)}
	for round := range 10 {
		session := [16]byte{byte(round)}
		var mu sync.Mutex
		var tasks sync.WaitGroup
		answers := map[string]int{}
		for i := range 30 {
			tasks.Go(func() {
				owner, err := all[i%len(all)].Owner(t.Context(), session, first, first, hourLater())
				if err != nil {
					owner = err.Error()
				}
				mu.Lock()
				defer mu.Unlock()
				answers[owner]++
			})
		}
		tasks.Wait()
		if len(answers) != 1 || answers[first] > 0 {
			t.Fatalf("round %d: the owners are %v", round, answers)
		}
	}
}

// TestClaimOfTheExpired: a process whose lease has expired in the table, which it does not know
// yet, becomes no owner.
func TestClaimOfTheExpired(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	a := w.mustJoin(nil)
	w.mustDie("dead")
	if _, err := w.store.Database().Exec(`UPDATE members SET expires_at = 1 WHERE id = $1`, a.Self()); err != nil {
		t.Fatal(err)
	}
	if owner, err := a.Owner(t.Context(), [16]byte{1}, "dead", "", hourLater()); !errors.Is(err, members.ErrAlone) {
		t.Errorf("Owner = %q, %v; want %v", owner, err, members.ErrAlone)
	}
}

// TestClaimedByOneThatJoined: while a claim waits, a member that has joined since becomes the
// owner. The claim, which cannot see that member, does not replace it.
func TestClaimedByOneThatJoined(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	a, session := w.mustJoin(nil), [16]byte{1}
	db := w.store.Database()
	if _, err := db.Exec(`INSERT INTO session_owners VALUES ($1, 'dead', 1::bigint << 60)`, hashOf(session)); err != nil {
		t.Fatal(err)
	}
	other, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Rollback()
	if _, err := other.Exec(`INSERT INTO members VALUES ('new', 'new', '', '', '', 0, ` + now + ` + 60000000)`); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(`UPDATE session_owners SET owner = 'new'`); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		owner, err := a.Owner(t.Context(), session, "dead", "", hourLater())
		got <- fmt.Sprint(owner, " ", err)
	}()
	w.until("the claim waits", func() (waits bool) {
		if err := db.QueryRow(`SELECT EXISTS (SELECT 1 FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '%session_owners%' AND query LIKE '%claimed%'
			AND $1 = ANY (SELECT unnest(pg_blocking_pids(pid))))`, backend(t, other)).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
	if err := other.Commit(); err != nil {
		t.Fatal(err)
	}
	if owner := <-got; owner != "new <nil>" {
		t.Errorf("the owner is %s, want the one that joined", owner)
	}
}

// backend returns the ID of the database's process of a transaction.
func backend(t *testing.T, tx *sql.Tx) (pid int) {
	t.Helper()
	if err := tx.QueryRow(`SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatal(err)
	}
	return pid
}

// TestDeleted: a session that its client has deleted has no owner, on any member.
func TestDeleted(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	a, b := w.mustJoin(nil), w.mustJoin(nil)
	if err := a.DeleteSession(t.Context(), [16]byte{2}, time.Now().Add(-5*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := a.sweep(t.Context()); err != nil { // the clock of a is wrong by hours
		t.Fatal(err)
	}
	if owner, err := b.Owner(t.Context(), [16]byte{2}, "ended", "", hourLater()); !errors.Is(err, members.ErrDeleted) {
		t.Errorf("Owner = %q, %v; want %v", owner, err, members.ErrDeleted)
	}
}

// TestOnce: of 40 uses of an ID at once, on two members, one is the first.
func TestOnce(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	all := []*running{w.mustJoin(nil), w.mustJoin(nil)}
	var mu sync.Mutex
	var tasks sync.WaitGroup
	first := 0
	for i := range 40 {
		tasks.Go(func() {
			one, err := all[i%2].Once(t.Context(), "an id", hourLater())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if one {
				first++
			}
		})
	}
	tasks.Wait()
	if first != 1 {
		t.Errorf("%d were the first", first)
	}
}

// TestAlone: without the database no session has an owner, no ID is used, and no call is let
// through.
func TestAlone(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute // the lease lasts
	a := w.mustJoin(nil)
	if err := w.store.Close(); err != nil {
		t.Fatal(err)
	}
	if owner, err := a.Owner(t.Context(), [16]byte{3}, "ended", "", hourLater()); !errors.Is(err, members.ErrAlone) {
		t.Errorf("Owner = %q, %v", owner, err)
	}
	if first, err := a.Once(t.Context(), "id", hourLater()); first || !errors.Is(err, members.ErrAlone) {
		t.Errorf("Once = %v, %v", first, err)
	}
	if err := a.DeleteSession(t.Context(), [16]byte{3}, hourLater()); !errors.Is(err, members.ErrAlone) {
		t.Errorf("DeleteSession = %v", err)
	}
	for _, l := range []limits{{Rate: 1}, {Concurrent: 1}} {
		if leave, _, err := a.Enter(t.Context(), "p", l, false); leave != nil || !errors.Is(err, members.ErrAlone) {
			t.Errorf("Enter(%+v) = %v", l, err)
		}
	}
}
