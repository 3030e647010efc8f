// Package budget shares limited resources among the callers: requests in progress, streams and
// memory (budget.go), their turns at the CPU (turns.go), and the limits of policies (meter.go).
//
// # A new limit that callers share
//
// It is a Quota, with its key and its least share here, its total in proxy.New, its words in
// overuseRefusal (proxy/errors.go), and its metric in cmd/junction/base/telemetry/state.go. The
// arrays do not compile without an element for it; only the metric is forced by nothing. A fixed
// number for each caller needs no Quota, but a map beside the resource, as perUser in
// proxy/parked.go.
//
// # A new limit of a policy
//
// It is a field of policy.Limits (policy/config.go), where None excludes it for requests that are
// not calls. Its mistakes are in limits (policy/validate.go), its default in withDefaults.
// (Limits).strictest (policy/policy.go) takes the lesser of two, for all policies that match, and does not
// compile without the new limit. An error beside ErrTooFast (meter.go) has its key: the answer and the
// audit take the key from the error.
//
// Two functions count it: Enter of Meters for one process, and Enter of
// cmd/junction/base/replicas/limits.go for all members. The second one takes shares of the limit
// from the database in advance (cmd/junction/base/replicas/shares.go); a new kind of limit needs a
// limitOf of its own. If a later check of Enter refuses, it must undo what an earlier one has
// counted.
//
// Enter runs before the call (Core.Meter in proxy/dispatch.go; handshakes and streams in
// proxy/front/legacy.go), and knows the principal, the limits and whether the request is a call.
// Nothing is charged after the answer yet. A limit that needs the answer, such as its size, can
// charge where dispatch calls done. Its shares must be able to go below zero, because a share
// refuses what exceeds it.
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

// A caller gets at most half of the capacity that the others leave: half of all if it is alone, a
// quarter beside a caller that has its full share. So a new caller always finds free capacity.
// Callers with unlimited demand end at equal shares, and one such share stays free (dynamic
// thresholds, as in packet switches). A request beyond its share is rejected
// immediately.

// Quota is a resource that callers share.
type Quota int

const (
	Requests Quota = iota // in progress
	Streams               // open
	Bytes                 // of request bodies and other memory held for an account
	Quotas
)

// Limit returns the configuration key that sets the total of the quota.
func (q Quota) Limit() string {
	// All: else it does not compile.
	var keys [Quotas]string = [...]string{"limits.requests", "limits.streams", "limits.bodies"}
	return keys[q]
}

// least returns the minimum share of an account, as long as so much is free.
func (q Quota) least() int64 {
	var shares [Quotas]int64 = [...]int64{1, 1, leastBytes} // all: else it does not compile
	return shares[q]
}

// leastBytes is enough for a small call.
const leastBytes = 64 << 10

// Account identifies the caller that a use counts for, by its principal, or the upstream. Without authentication all
// callers have the same principal. Then Program tells local programs apart, and From tells clients
// behind an authenticating proxy apart.
type Account struct {
	Principal string
	Upstream  string     // in place of Principal: the server that the use is for; "" for a caller
	Program   uint64     // hash of the User-Agent; 0 for none
	From      netip.Addr // the first address of the network; the zero Addr for none
}

// Network returns the first address of a client's network: a /64 in IPv6, since a client can choose
// its addresses within.
func Network(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return a
	}
	n, err := a.Prefix(64)
	if err != nil {
		return netip.Addr{}
	}
	return n.Addr()
}

// Budget holds the capacity that all callers share. Its zero value has no capacity; call Init
// first.
type Budget struct {
	total [Quotas]int64
	log   *slog.Logger // nil discards

	mu        sync.Mutex
	used      [Quotas]int64
	byAccount map[Account]*balance
	many      int       // number of balances from which on idle ones are dropped
	logged    time.Time // time of the last log line

	refused  int           // refusals since logged, of all accounts
	exceeded [Quotas]int64 // refusals since the start, of all accounts
}

// balance is the use of one account. It is guarded by Budget.mu.
type balance struct {
	name     string // shown to operators
	upstream bool   // or it is a caller
	used     [Quotas]int64
	refused  [Quotas]int       // since the last log line
	last     [Quotas]time.Time // time of the last refusal
	dropped  bool              // dropped from Budget.byAccount
}

// Grant is the share of a budget that one request holds. It is not safe for concurrent use.
type Grant struct {
	budget  *Budget
	Account Account
	agent   string // User-Agent, if Account.Program is set
	balance *balance
	held    [Quotas]int64
}

// Init sets the totals. It must be called once, before any other method. log may be nil.
func (b *Budget) Init(total [Quotas]int64, log *slog.Logger) {
	b.total, b.log = total, log
}

// Grant returns an empty grant of an account. agent is the User-Agent of the client.
func (b *Budget) Grant(a Account, agent string) Grant {
	return Grant{budget: b, Account: a, agent: agent}
}

// Exceeded is the error for an account that has used its share.
type Exceeded struct {
	Quota       Quota
	Own, Others int64 // current use
	Total       int64
}

func (e *Exceeded) Error() string { return "no share of " + e.Quota.Limit() + " is left" }

// Reserve adds n of a quota to the grant. The error is an *Exceeded.
func (g *Grant) Reserve(q Quota, n int64) error {
	var all [Quotas]int64
	all[q] = n
	return g.ReserveAll(all)
}

// ReserveAll adds n to the grant, or changes nothing. The error is an *Exceeded.
func (g *Grant) ReserveAll(n [Quotas]int64) error {
	b := g.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.balance == nil || g.balance.dropped {
		g.balance = b.balance(g)
	}
	account := g.balance
	for q := range Quotas {
		if n[q] == 0 {
			continue
		}
		others, now := b.used[q]-account.used[q], account.used[q]+n[q]
		if now+others > b.total[q] || now > max(q.least(), (b.total[q]-others)/2) {
			b.refuse(account, q)
			return &Exceeded{q, account.used[q], others, b.total[q]}
		}
	}
	for q := range Quotas {
		account.used[q] += n[q]
		b.used[q] += n[q]
		g.held[q] += n[q]
	}
	return nil
}

// Give returns n of a quota to the budget.
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

// Release returns everything that the grant holds.
func (g *Grant) Release() { g.giveAll(g.held) }

// Empty returns an empty grant of the same account. Another goroutine may call it once g holds
// something.
func (g *Grant) Empty() Grant {
	return Grant{budget: g.budget, Account: g.Account, agent: g.agent, balance: g.balance}
}

// Part moves the held amount of a quota into a new grant, which may outlive the request.
func (g *Grant) Part(q Quota) *Grant {
	own := g.Empty()
	own.held[q], g.held[q] = g.held[q], 0
	return &own
}

// balance returns the balance of the grant's account; b.mu is held.
func (b *Budget) balance(g *Grant) *balance {
	if account := b.byAccount[g.Account]; account != nil {
		return account
	}
	if b.byAccount == nil {
		b.byAccount, b.many = map[Account]*balance{}, fewBalances
	}
	if len(b.byAccount) >= b.many {
		now := time.Now()
		for a, account := range b.byAccount {
			if account.idle(now) {
				account.dropped = true
				delete(b.byAccount, a)
			}
		}
		b.many = max(fewBalances, 2*len(b.byAccount))
	}
	account := &balance{name: g.newName(), upstream: g.Account.Upstream != ""}
	b.byAccount[g.Account] = account
	return account
}

// fewBalances is the number of balances up to which idle ones are kept.
const fewBalances = 2048

// idle reports whether the balance can be dropped.
func (account *balance) idle(now time.Time) bool {
	return account.used == [Quotas]int64{} &&
		now.Sub(slices.MaxFunc(account.last[:], time.Time.Compare)) > calm
}

// Name returns the name of the account for operators.
func (g *Grant) Name() string {
	if g.balance == nil {
		return g.Account.Principal
	}
	return g.balance.name
}

// Agent returns the User-Agent of the account's program; "" if programs are not told apart. It is the same in
// each process, other than Account.Program.
func (g *Grant) Agent() string {
	if g.Account.Program == 0 {
		return ""
	}
	return g.agent
}

// maxAgent bounds the User-Agent in the name of an account.
const maxAgent = 64

// newName returns the name of a new account.
func (g *Grant) newName() string {
	name := g.Account.Principal
	switch {
	case g.Account.Upstream != "":
		return "upstream " + g.Account.Upstream
	case g.Account.Program != 0:
		name += " (" + strings.ToValidUTF8(auth.Redact(g.agent[:min(len(g.agent), maxAgent)]), "") + ")"
	case g.Account.From.IsValid():
		name += " from " + g.Account.From.String()
	}
	return name
}

// calm is the interval between log lines about refusals, and the time for which /readyz reports a
// refusal.
const calm = time.Minute

// refuse counts a refusal and logs at most once a minute. The log line names the account with the
// most refusals and, among equals, the account with the highest use. b.mu is held.
func (b *Budget) refuse(account *balance, q Quota) {
	now := time.Now()
	b.refused++
	b.exceeded[q]++
	if account.used[q] > 0 {
		account.refused[q]++
		account.last[q] = now
	}
	if b.log == nil || now.Sub(b.logged) < calm {
		return
	}
	most, at := account, q
	for _, other := range b.byAccount {
		for k := range Quotas {
			if c := cmp.Compare(other.refused[k], most.refused[at]); c > 0 || c == 0 && k == at &&
				other.used[k] > most.used[at] {
				most, at = other, k
			}
		}
	}
	text := "requests refused: a caller uses all that it may have now"
	if most.upstream {
		text = "answers of an upstream refused: it uses all memory that it may have now"
	}
	b.log.Warn(text, "principal", most.name, "limit", at.Limit(),
		"used", most.used[at],
		"others", b.used[at]-most.used[at], "of", b.total[at], "refused", most.refused[at], "refused_others",
		b.refused-most.refused[at])
	b.logged, b.refused = now, 0
	for _, other := range b.byAccount {
		other.refused = [Quotas]int{}
	}
}

// Overuse reports that a caller was refused capacity, because it has used its share or because the
// others use all.
type Overuse struct {
	Principal string    `json:"principal"` // with program or address if there is no authentication
	Limit     string    `json:"limit"`     // configuration key
	Used      int64     `json:"used"`      // current use of the caller
	Others    int64     `json:"others"`    // current use of the others
	Of        int64     `json:"of"`        // total
	Last      time.Time `json:"last"`      // time of the last refusal
}

// Used returns the use of all accounts.
func (b *Budget) Used() [Quotas]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Exceeded returns how often each quota was exceeded since the start.
func (b *Budget) Exceeded() [Quotas]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.exceeded
}

// Overused returns the accounts that were refused within the last minute, latest first.
func (b *Budget) Overused() []Overuse {
	now := time.Now()
	var list []Overuse
	b.mu.Lock()
	for _, account := range b.byAccount {
		for q, last := range account.last {
			if !last.IsZero() && now.Sub(last) <= calm {
				list = append(list, Overuse{account.name, Quota(q).Limit(), account.used[q],
					b.used[q] - account.used[q], b.total[q], last})
			}
		}
	}
	b.mu.Unlock()
	slices.SortFunc(list, func(x, y Overuse) int {
		return cmp.Or(y.Last.Compare(x.Last), cmp.Compare(x.Principal, y.Principal), cmp.Compare(x.Limit, y.Limit))
	})
	return list
}
