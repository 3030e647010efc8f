package budget

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
)

// TestNewcomersGetAShare takes at random for many accounts that always want more: no account has more
// than half of what the others leave, and one that has nothing gets something as long as there is
// something.
func TestNewcomersGetAShare(t *testing.T) {
	const total, accounts = 1000, 12
	b := &Budget{total: [Quotas]int64{Requests: total}}
	all := make([]*Grant, accounts)
	for i := range all {
		all[i] = &Grant{budget: b, Account: Account{Principal: strconv.Itoa(i)}}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for step := range 200_000 {
		g := all[rng.IntN(accounts)]
		if rng.IntN(10) == 0 && g.held[Requests] > 0 { // each use ends some time
			g.Give(Requests, 1)
		} else {
			its, used := g.held[Requests], b.Used()[Requests]
			err := g.Reserve(Requests, 1)
			if allowed := used < total && (its == 0 || its+1 <= (total-(used-its))/2); (err == nil) != allowed {
				t.Fatalf("step %d: an account with %d, of %d in use, takes one: %v, want %t", step, its, used, err, allowed)
			}
		}
	}
	for i, g := range all { // at the end they have about the same, and as much is free
		if n := g.held[Requests]; n < total/(accounts+1)*8/10 || n > total/(accounts+1)*12/10 {
			t.Errorf("account %d has %d of %d at the end, want about %d", i, n, total, total/(accounts+1))
		}
	}
}

// TestBalancesAreForgotten: there is no end to accounts, and those that use nothing take no
// memory.
func TestBalancesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Budget{total: [Quotas]int64{Requests: 10}}
		kept := &Grant{budget: b, Account: Account{Principal: "kept"}}
		early := &Grant{budget: b, Account: Account{Principal: "early"}}
		if err := kept.Reserve(Requests, 2); err != nil || early.Reserve(Requests, 1) != nil {
			t.Fatal(err)
		}
		early.Release()
		for i := range 100_000 {
			g := Grant{budget: b, Account: Account{Principal: strconv.Itoa(i)}}
			if err := g.Reserve(Requests, 1); err != nil {
				t.Fatal(err)
			}
			g.Release()
		}
		if n := len(b.byAccount); n > 2*fewBalances {
			t.Errorf("%d accounts are remembered", n)
		}
		if err := early.Reserve(Requests, 1); err != nil || b.byAccount[early.Account] == nil || b.byAccount[early.Account].used[Requests] != 1 {
			t.Errorf("an account that was forgotten and comes back is not counted (%v)", err)
		}
		early.Release()
		kept.Release()
		if b.Used() != [Quotas]int64{} {
			t.Errorf("%v is used at the end", b.Used())
		}
	})
}

// TestBytesAreShared takes bytes for principals in turn.
func TestBytesAreShared(t *testing.T) {
	const unit = leastBytes
	b := &Budget{total: [Quotas]int64{Bytes: 1000 * unit}}
	one, again, two := &Grant{budget: b, Account: Account{Principal: "one"}}, &Grant{budget: b, Account: Account{Principal: "one"}}, &Grant{budget: b, Account: Account{Principal: "two"}}
	for i, step := range []struct {
		grant *Grant
		units int64
		want  bool
	}{{one, 501, false}, {one, 400, true}, {again, 101, false}, {again, 100, true}, {two, 251, false}, {two, 250, true}, {one, 1, false}} {
		if err := step.grant.Reserve(Bytes, step.units*unit); (err == nil) != step.want {
			t.Fatalf("step %d: %s takes %d units: %v, want %v", i, step.grant.Account.Principal, step.units, err, step.want)
		}
	}
	one.Release()
	one.Release()
	if err := again.Reserve(Bytes, 275*unit); err != nil || b.Used()[Bytes] != 625*unit {
		t.Errorf("after the release of 400 units %d are in use (%v), want 625", b.Used()[Bytes]/unit, err)
	}
}
