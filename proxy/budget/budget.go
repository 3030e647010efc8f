// Package budget shares what there is only so much of among the callers: requests in progress,
// streams, memory (budget.go), the processors (turns.go) and the rates that policies set
// (meter.go).
package budget

import (
	"cmp"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/auth"
)

// This file holds how the callers share what there is only so much of. A caller gets at most half
// of what the others leave: alone half of all, beside one that has all of its share a quarter. So
// there is always something left for a caller that comes next, and callers that always ask for more
// end at equal shares, with one such share free (the rule is that of dynamic thresholds in packet
// switches). Nothing waits here: a request beyond its share is refused at once.

// Quota is something that callers share.
type Quota int

const (
	Requests Quota = iota // in progress
	Streams               // open
	Bytes                 // of request bodies, and of what else is held in memory for a caller
	Quotas
)

// Limit returns the key of the configuration that says how much there is.
func (q Quota) Limit() string {
	return [Quotas]string{"limits.requests", "limits.streams", "limits.bodies"}[q]
}

// least returns how much an account may have in any case, as long as that is free.
func (q Quota) least() int64 {
	return [Quotas]int64{1, 1, leastBytes}[q]
}

// leastBytes is enough for a small call.
const leastBytes = 64 << 10

// Account is the one that a use counts for: a principal. Where there is no authentication, everyone
// is the same principal. Then it is a program on this machine by its User-Agent, or, behind a proxy
// that authenticates, the client's network.
type Account struct {
	Principal string
	Program   uint64     // hash of the User-Agent; 0 for none
	From      netip.Addr // the first address of the network; the zero Addr for none
}

// Budget is what all callers share. Its zero value has nothing to give. total and workers may not
// be changed once a grant was taken.
type Budget struct {
	total   [Quotas]int64
	Workers Workers
	log     *slog.Logger // nil discards

	mu   sync.Mutex
	used [Quotas]int64
	of   map[Account]*balance
	many int       // from this number of balances on, those without a use are dropped
	told time.Time // of the last line in the log

	refused int // since then, of all accounts

	latest *balance  // whose request was begun last
	mixed  time.Time // when that was another account than the time before
}

// balance is what one account uses. It is guarded by budget.mu.
type balance struct {
	name    string // for operators
	used    [Quotas]int64
	working int               // requests that are worked on; see turns.go
	waiting []chan struct{}   // those that wait for that, in their order; each is closed when its turn comes
	resting bool              // there is a break
	line    time.Time         // since when some have waited without a break
	refused [Quotas]int       // since the last line in the log
	last    [Quotas]time.Time // refused
	gone    bool              // it was dropped
}

// Grant is what one request has of a budget. It is not for use by several goroutines at once.
type Grant struct {
	budget  *Budget
	Account Account
	agent   string // the User-Agent of a program without a principal of its own
	balance *balance
	held    [Quotas]int64
}

// Init sets how much there is to share. It is called once, before anything else. log may be nil.
func (b *Budget) Init(total [Quotas]int64, log *slog.Logger) {
	b.total, b.log, b.Workers = total, log, defaultWorkers()
}

// Grant returns a grant of an account, which has nothing yet. agent is the User-Agent of a program.
func (b *Budget) Grant(a Account, agent string) Grant {
	return Grant{budget: b, Account: a, agent: agent}
}

// Exceeded is the error of an account that gets no more.
type Exceeded struct {
	Quota       Quota
	Own, Others int64 // what is used now
	Total       int64
}

func (e *Exceeded) Error() string { return "no share of " + e.Quota.Limit() + " is left" }

// Reserve adds n of a quota to what the request has. The error is an *overuse.
func (g *Grant) Reserve(q Quota, n int64) error {
	var all [Quotas]int64
	all[q] = n
	return g.ReserveAll(all)
}

// ReserveAll adds to what the request has, or else changes nothing. The error is an *overuse.
func (g *Grant) ReserveAll(n [Quotas]int64) error {
	b := g.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.balance == nil || g.balance.gone {
		g.balance = b.balance(g)
	}
	its := g.balance
	for q := range Quotas {
		if n[q] == 0 {
			continue
		}
		others, now := b.used[q]-its.used[q], its.used[q]+n[q]
		if now+others > b.total[q] || now > max(q.least(), (b.total[q]-others)/2) {
			b.refuse(its, q)
			return &Exceeded{q, its.used[q], others, b.total[q]}
		}
	}
	for q := range Quotas {
		its.used[q] += n[q]
		b.used[q] += n[q]
		g.held[q] += n[q]
	}
	return nil
}

// Give returns n of a quota.
func (g *Grant) Give(q Quota, n int64) {
	var all [Quotas]int64
	all[q] = n
	g.giveAll(all)
}

func (g *Grant) giveAll(n [Quotas]int64) {
	if n == [Quotas]int64{} {
		return
	}
	b := g.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	for q := range Quotas {
		g.balance.used[q] -= n[q]
		b.used[q] -= n[q]
		g.held[q] -= n[q]
	}
}

// Release returns all that the request has.
func (g *Grant) Release() { g.giveAll(g.held) }

// Empty returns a grant of the same account that has nothing. It may be called by another goroutine
// once g has something.
func (g *Grant) Empty() Grant {
	return Grant{budget: g.budget, Account: g.Account, agent: g.agent, balance: g.balance}
}

// Part moves what the request has of a quota into a grant of its own, for something that goes on
// when the request is over.
func (g *Grant) Part(q Quota) *Grant {
	own := g.Empty()
	own.held[q], g.held[q] = g.held[q], 0
	return &own
}

// balance returns that of the account of a grant; b.mu is held.
func (b *Budget) balance(g *Grant) *balance {
	if its := b.of[g.Account]; its != nil {
		return its
	}
	if b.of == nil {
		b.of, b.many = map[Account]*balance{}, fewBalances
	}
	if len(b.of) >= b.many {
		now := time.Now()
		for a, its := range b.of {
			if its.idle(now) {
				its.gone = true
				delete(b.of, a)
			}
		}
		b.many = max(fewBalances, 2*len(b.of))
	}
	its := &balance{name: g.newName()}
	b.of[g.Account] = its
	return its
}

// fewBalances may be there for nothing.
const fewBalances = 2048

// idle reports whether there is nothing to know of an account.
func (its *balance) idle(now time.Time) bool {
	return its.used == [Quotas]int64{} && its.working == 0 && !its.resting &&
		now.Sub(slices.MaxFunc(its.last[:], time.Time.Compare)) > calm
}

// Name returns what tells the account from others, for a grant that has something.
func (g *Grant) Name() string {
	if g.balance == nil {
		return g.Account.Principal
	}
	return g.balance.name
}

// maxAgent bounds the User-Agent in the name of an account.
const maxAgent = 64

// newName makes the name of an account, which operators read.
func (g *Grant) newName() string {
	name := g.Account.Principal
	switch {
	case g.Account.Program != 0:
		name += " (" + strings.ToValidUTF8(auth.Redact(g.agent[:min(len(g.agent), maxAgent)]), "") + ")"
	case g.Account.From.IsValid():
		name += " from " + g.Account.From.String()
	}
	return name
}

// calm is how long the log says nothing more about refusals, and how long /readyz tells of one.
const calm = time.Minute

// refuse counts a refusal. At most once a minute it has a line in the log: about the account with
// most of them, or, where they were of accounts without a use, about the account that uses most.
// b.mu is held.
func (b *Budget) refuse(its *balance, q Quota) {
	now := time.Now()
	b.refused++
	if its.used[q] > 0 {
		its.refused[q]++
		its.last[q] = now
	}
	if b.log == nil || now.Sub(b.told) < calm {
		return
	}
	most, at := its, q
	for _, other := range b.of {
		for k := range Quotas {
			if c := cmp.Compare(other.refused[k], most.refused[at]); c > 0 || c == 0 && k == at &&
				other.used[k] > most.used[at] {
				most, at = other, k
			}
		}
	}
	b.log.Warn("requests refused: a caller uses all that it may have now", "principal", most.name, "limit", at.Limit(),
		"used", most.used[at],
		"others", b.used[at]-most.used[at], "of", b.total[at], "refused", most.refused[at], "refused_others",
		b.refused-most.refused[at])
	b.told, b.refused = now, 0
	for _, other := range b.of {
		other.refused = [Quotas]int{}
	}
}

// Overuse says that a caller was refused something because it has its share of a limit already, or
// because others have all.
type Overuse struct {
	Principal string    // and its program or address where there is no authentication
	Limit     string    // the key of the configuration
	Used      int64     // by the caller, now
	Others    int64     // what the others use, now
	Of        int64     // what there is
	Last      time.Time // when it was refused last
}

// Overused returns the accounts that were refused something within the last minute, the latest
// first.
func (b *Budget) Overused() []Overuse {
	now := time.Now()
	var list []Overuse
	b.mu.Lock()
	for _, its := range b.of {
		for q, last := range its.last {
			if !last.IsZero() && now.Sub(last) <= calm {
				list = append(list, Overuse{its.name, Quota(q).Limit(), its.used[q], b.used[q] - its.used[q],
					b.total[q], last})
			}
		}
	}
	b.mu.Unlock()
	slices.SortFunc(list, func(x, y Overuse) int {
		return cmp.Or(y.Last.Compare(x.Last), cmp.Compare(x.Principal, y.Principal), cmp.Compare(x.Limit, y.Limit))
	})
	return list
}

// InUse returns what all accounts use together.
func (b *Budget) InUse() [Quotas]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}
