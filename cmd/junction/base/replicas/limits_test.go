package replicas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"junction/policy"
	"junction/proxy/budget"
)

type limits = policy.Limits

// TestConcurrent: 200 calls of a principal on four members; never are more in flight than the
// limit.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	all := []*running{w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil)}
	var calls, most, entered atomic.Int64
	var tasks sync.WaitGroup
	for i := range 200 {
		tasks.Go(func() {
			leave, _, err := all[i%len(all)].Enter(t.Context(), "user:ann", limits{Concurrent: 5}, false)
			if errors.Is(err, budget.ErrTooMany) {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			entered.Add(1)
			for n := calls.Add(1); ; {
				old := most.Load()
				if n <= old || most.CompareAndSwap(old, n) {
					break
				}
			}
			// another principal is not affected
			if other, _, err := all[i%len(all)].Enter(t.Context(), "user:bob", limits{Concurrent: 500}, false); err != nil {
				t.Error(err)
			} else {
				other()
			}
			calls.Add(-1)
			leave()
		})
	}
	tasks.Wait()
	if most.Load() > 5 || entered.Load() < 5 {
		t.Errorf("%d calls were in flight at once, and %d in all", most.Load(), entered.Load())
	}
	// All have left: the whole limit is free, on any member.
	var leaves []func()
	for range 5 {
		leave, _, err := all[1].Enter(t.Context(), "user:ann", limits{Concurrent: 5}, false)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	if _, _, err := all[0].Enter(t.Context(), "user:ann", limits{Concurrent: 5}, false); !errors.Is(err, budget.ErrTooMany) {
		t.Errorf("a sixth call: %v", err)
	}
	for _, leave := range leaves {
		leave()
	}
}

// TestConcurrentOfTheDead: the calls of a member that has ended do not count any more.
func TestConcurrentOfTheDead(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	a, b := w.mustJoin(nil), w.mustJoin(nil)
	if _, _, err := a.Enter(t.Context(), "user:ann", limits{Concurrent: 1}, false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Enter(t.Context(), "user:ann", limits{Concurrent: 1}, false); !errors.Is(err, budget.ErrTooMany) {
		t.Fatalf("a second call: %v", err)
	}
	if _, err := w.store.Database().Exec(`UPDATE members SET expires_at = 1 WHERE id = $1`, a.Self()); err != nil {
		t.Fatal(err)
	}
	leave, _, err := b.Enter(t.Context(), "user:ann", limits{Concurrent: 1}, false)
	if err != nil {
		t.Fatalf("after the end of the member: %v", err)
	}
	leave()
}

// TestConcurrentAfterOutage: a call that ended while the database was away is counted out as soon
// as the database answers, and a call that goes on counts under the new ID.
func TestConcurrentAfterOutage(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	a, b := w.mustJoin(nil), w.mustJoin(nil)
	one := limits{Concurrent: 2}
	first, _, err := a.Enter(t.Context(), "user:ann", one, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Enter(t.Context(), "user:ann", one, false); err != nil {
		t.Fatal(err)
	}
	held := a.lease.Swap(nil) // no call can be counted out now
	first()
	a.lease.Store(held)
	a.tend(t.Context())
	var leave func()
	w.until("one of two calls has ended, and another member has its share", func() bool {
		leave, _, err = b.Enter(t.Context(), "user:ann", one, false)
		return err == nil // a member that is slow to give back is refused, as if it had nothing
	})
	if _, _, err := b.Enter(t.Context(), "user:ann", one, false); !errors.Is(err, budget.ErrTooMany) {
		t.Errorf("one of two calls goes on, and another one has begun: %v", err)
	}
	leave()
}

// TestRate: forty calls at once, over four members, of a limit that allows seven. Not more than seven are let
// through, and the rest is still allowed.
func TestRate(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	all := []*running{w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil), w.mustJoin(nil)}
	hourly := limits{Rate: 1.0 / 3600, Burst: 7}
	var ok, refused atomic.Int64
	var tasks sync.WaitGroup
	for i := range 40 {
		tasks.Go(func() {
			leave, wait, err := all[i%len(all)].Enter(t.Context(), "user:ann", hourly, false)
			switch {
			case err == nil:
				leave()
				ok.Add(1)
			case errors.Is(err, budget.ErrTooFast) && wait > 0 && wait <= time.Hour: // it may have a part of a request
				refused.Add(1)
			default:
				t.Errorf("wait %s: %v", wait, err)
			}
		})
	}
	tasks.Wait()
	if n := ok.Load(); n == 0 || n > 7 || n+refused.Load() != 40 {
		t.Errorf("%d calls were let through, and %d refused", n, refused.Load())
	}
	// Members that ask each other for shares may leave a part of a request to each of them. No request is lost.
	w.untilAllows("user:ann", hourly, 7-float64(ok.Load()), all)
	// Lists have an allowance of their own, and another user, too.
	for principal, other := range map[string]bool{"user:ann": true, "user:bob": false} {
		if _, _, err := all[0].Enter(context.Background(), principal, hourly, other); err != nil {
			t.Errorf("%s: %v", principal, err)
		}
	}
	// A rate of thousands a second refills while the test runs.
	fast := limits{Rate: 5000, Burst: 1}
	w.until("a call is let through again", func() bool {
		_, _, err := all[2].Enter(context.Background(), "user:carl", fast, false)
		_, _, err2 := all[3].Enter(context.Background(), "user:carl", fast, false)
		return err == nil && err2 == nil
	})
}

// TestRateOfAnImpatientMember: a member that is asked for shares gives them back, although the asker waits no
// longer. No request of these shares is lost.
func TestRateOfAnImpatientMember(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	m := w.mustJoin(nil)
	hourly := limits{Rate: 1.0 / 3600, Burst: 7}
	if _, _, err := m.Enter(t.Context(), "user:ann", hourly, false); err != nil {
		t.Fatal(err)
	}
	h, done := m.holdings.use(limitOf{"user:ann", hourly.Rate, 7, false})
	defer done()
	before := h.shares
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m.giveBack(ctx, h.digest)
	if h.shares >= before {
		t.Errorf("the member has %d shares, and had %d", h.shares, before)
	}
	w.untilAllows("user:ann", hourly, 6, []*running{m})
}

// TestTendLeavesFirstSharesAlone: what a member does regularly changes nothing of a rate whose first shares are just
// being taken. With the limit of a holding that has none yet, the row would allow no request.
func TestTendLeavesFirstSharesAlone(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	m := w.mustJoin(nil)
	hourly := limits{Rate: 1.0 / 3600, Burst: 7}
	_, done := m.holdings.use(limitOf{"user:ann", hourly.Rate, 7, false})
	defer done()
	m.tend(t.Context())
	for i := range 7 {
		if _, _, err := m.Enter(t.Context(), "user:ann", hourly, false); err != nil {
			t.Fatalf("request %d of 7: %v", i+1, err)
		}
	}
}

// TestRateOutlivesAFailedStatement: a statement that gives shares back fails, and was written or not. The member
// finds out with the next one. No request is lost, and none is allowed twice.
func TestRateOutlivesAFailedStatement(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]bool{"not written": false, "written": true} {
		w := mustWorld(t)
		w.ttl = time.Minute
		m := w.mustJoin(nil)
		hourly := limits{Rate: 1.0 / 3600, Burst: 7}
		if _, _, err := m.Enter(t.Context(), "user:ann", hourly, false); err != nil {
			t.Fatal(err)
		}
		h, done := m.holdings.use(limitOf{"user:ann", hourly.Rate, 7, false})
		defer done()
		for _, to := range []change{fewer, more} {
			row, text, _, err := m.readShares(t.Context(), h.digest, h.limit)
			if err != nil {
				t.Fatal(err)
			}
			before := h.shares
			p := m.plan(h, h.limit, row, to)
			if p.shares == before {
				t.Fatalf("%s: the member keeps %d shares", name, before)
			}
			next, err := json.Marshal(row)
			if err != nil {
				t.Fatal(err)
			}
			if write {
				if written, err := m.writeShares(t.Context(), h.digest, text, string(next), math.MaxInt64); !written || err != nil {
					t.Fatal(written, err)
				}
			}
			h.mu.Lock()
			h.unsure = &p // as settle does after an error
			h.mu.Unlock()
			if _, err := m.settle(t.Context(), h, h.limit, same); err != nil {
				t.Fatal(err)
			}
			if want := map[bool]int{true: p.shares, false: h.shares}[write]; h.shares != want || h.unsure != nil || h.given != 0 {
				t.Errorf("%s: the member has %d shares, want %d; %v, %v", name, h.shares, want, h.unsure, h.given)
			}
			w.untilAllows("user:ann", hourly, 6, []*running{m})
		}
	}
}

// TestSharesThatAreGivenBackAreKnown: while a member gives shares of a limit back, it does not forget them. With a
// second holding of the limit, it would give back shares that calls use.
func TestSharesThatAreGivenBackAreKnown(t *testing.T) {
	t.Parallel()
	w := mustWorld(t)
	w.ttl = time.Minute
	m, of, one := w.mustJoin(nil), limitOf{principal: "user:ann"}, limits{Concurrent: 1}
	leave, _, err := m.Enter(t.Context(), of.principal, one, false)
	if err != nil {
		t.Fatal(err)
	}
	leave()
	h, done := m.holdings.use(of)
	done()
	h.table <- struct{}{} // as in a statement about the limit
	var giving sync.WaitGroup
	giving.Go(func() { m.giveBack(t.Context(), h.digest) })
	defer giving.Wait()
	defer unlock(h.table)
	w.until("it gives the shares back", func() bool {
		m.holdings.mu.Lock()
		defer m.holdings.mu.Unlock()
		return h.users == 1
	})
	h.mu.Lock()
	h.shares = 0 // as after that statement
	h.mu.Unlock()
	m.holdings.drop(of, h)
	if again, done := m.holdings.use(of); again != h {
		t.Error("the member has forgotten the shares, which another goroutine changes")
	} else {
		done()
	}
}

// untilAllows waits until a rate allows n requests more: those of the shares of members, and of the shares in
// the table.
func (w *world) untilAllows(principal string, l limits, n float64, all []*running) {
	w.t.Helper()
	of, got := limitOf{principal, l.Rate, budget.Burst(l, false), false}, 0.0
	for _, m := range all { // after a statement that failed, the next one gives the requests back
		h, done := m.holdings.use(of)
		h.mu.Lock()
		known := h.limit
		h.mu.Unlock()
		if known.shares > 0 {
			if _, err := m.settle(context.Background(), h, known, same); err != nil {
				w.t.Error(err)
			}
		}
		done()
	}
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the rate allows %v requests", got)
		}
	}()
	w.until(fmt.Sprintf("the rate allows %v requests more", n), func() bool {
		h, done := all[0].holdings.use(of)
		defer done()
		row, _, _, err := all[0].readShares(context.Background(), h.digest, rateLimit(l.Rate, of.burst))
		if err != nil {
			w.t.Fatal(err)
		}
		got = row.Free
		for _, m := range all {
			h, done := m.holdings.use(of)
			h.mu.Lock()
			got += h.requests
			h.mu.Unlock()
			done()
		}
		return math.Abs(got-n) < 0.1 // the rate adds a hundredth in half a minute
	})
}
