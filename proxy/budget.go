package proxy

import (
	"cmp"
	"errors"
	"hash/maphash"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth"
)

// This file holds how the callers share what there is only so much of. A caller gets at most half
// of what the others leave: alone half of all, beside one that has all of its share a quarter. So
// there is always something left for a caller that comes next, and callers that always ask for more
// end at equal shares, with one such share free (the rule is that of dynamic thresholds in packet
// switches). Nothing waits here: a request beyond its share is refused at once.

// quota is something that callers share.
type quota int

const (
	ofRequests quota = iota // in progress
	ofStreams               // open
	ofBytes                 // of request bodies, and of what else is held in memory for a caller
	quotas
)

// limit returns the key of the configuration that says how much there is.
func (q quota) limit() string {
	return [quotas]string{"limits.requests", "limits.streams", "limits.bodies"}[q]
}

// least returns how much an account may have in any case, as long as that is free.
func (q quota) least() int64 {
	return [quotas]int64{1, 1, leastBytes}[q]
}

// leastBytes is enough for a small call.
const leastBytes = 64 << 10

// account is the one that a use counts for: a principal. Where there is no authentication, everyone
// is the same principal. Then it is a program on this machine by its User-Agent, or, behind a proxy
// that authenticates, the client's network.
type account struct {
	principal string
	program   uint64     // hash of the User-Agent; 0 for none
	from      netip.Addr // the first address of the network; the zero Addr for none
}

// account returns the one of a request.
func (c caller) account(r *http.Request) account {
	a := account{principal: c.principal.ID}
	switch {
	case c.principal.Kind != auth.KindLocal:
	case c.snapshot.direct:
		if agent := header(r.Header, "User-Agent"); agent != "" {
			a.program = maphash.String(programs, agent)
		}
	default:
		a.from = network(c.principal.Address)
	}
	return a
}

var programs = maphash.MakeSeed()

// network returns the first address of the network that a client can take its addresses from: a
// whole /64 in IPv6.
func network(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return a
	}
	n, err := a.Prefix(64)
	if err != nil {
		return netip.Addr{}
	}
	return n.Addr()
}

// budget is what all callers share. Its zero value has nothing to give. total and workers may not
// be changed once a grant was taken.
type budget struct {
	total   [quotas]int64
	workers workers
	log     *slog.Logger // nil discards

	mu   sync.Mutex
	used [quotas]int64
	of   map[account]*balance
	many int       // from this number of balances on, those without a use are dropped
	told time.Time // of the last line in the log

	refused int // since then, of all accounts

	latest *balance  // whose request was begun last
	mixed  time.Time // when that was another account than the time before
}

// balance is what one account uses. It is guarded by budget.mu.
type balance struct {
	name    string // for operators
	used    [quotas]int64
	working int               // requests that are worked on; see turns.go
	waiting []chan struct{}   // those that wait for that, in their order; each is closed when its turn comes
	resting bool              // there is a break
	line    time.Time         // since when some have waited without a break
	refused [quotas]int       // since the last line in the log
	last    [quotas]time.Time // refused
	gone    bool              // it was dropped
}

// grant is what one request has of a budget. It is not for use by several goroutines at once.
type grant struct {
	budget  *budget
	account account
	agent   string // the User-Agent of a program without a principal of its own
	balance *balance
	held    [quotas]int64
}

// grant returns one for a request, which has nothing yet.
func (s *Server) grant(c caller, r *http.Request) grant {
	g := grant{budget: &s.budget, account: c.account(r)}
	if g.account.program != 0 {
		g.agent = header(r.Header, "User-Agent")
	}
	return g
}

// overuse is the error of an account that gets no more.
type overuse struct {
	quota       quota
	own, others int64 // what is used now
	total       int64
}

func (e *overuse) Error() string { return "no share of " + e.quota.limit() + " is left" }

// reserve adds n of a quota to what the request has. The error is an *overuse.
func (g *grant) reserve(q quota, n int64) error {
	var all [quotas]int64
	all[q] = n
	return g.reserveAll(all)
}

// reserveAll adds to what the request has, or else changes nothing. The error is an *overuse.
func (g *grant) reserveAll(n [quotas]int64) error {
	b := g.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.balance == nil || g.balance.gone {
		g.balance = b.balance(g)
	}
	its := g.balance
	for q := range quotas {
		if n[q] == 0 {
			continue
		}
		others, now := b.used[q]-its.used[q], its.used[q]+n[q]
		if now+others > b.total[q] || now > max(q.least(), (b.total[q]-others)/2) {
			b.refuse(its, q)
			return &overuse{q, its.used[q], others, b.total[q]}
		}
	}
	for q := range quotas {
		its.used[q] += n[q]
		b.used[q] += n[q]
		g.held[q] += n[q]
	}
	return nil
}

// give returns n of a quota.
func (g *grant) give(q quota, n int64) {
	var all [quotas]int64
	all[q] = n
	g.giveAll(all)
}

func (g *grant) giveAll(n [quotas]int64) {
	if n == [quotas]int64{} {
		return
	}
	b := g.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	for q := range quotas {
		g.balance.used[q] -= n[q]
		b.used[q] -= n[q]
		g.held[q] -= n[q]
	}
}

// release returns all that the request has.
func (g *grant) release() { g.giveAll(g.held) }

// empty returns a grant of the same account that has nothing. It may be called by another goroutine
// once g has something.
func (g *grant) empty() grant {
	return grant{budget: g.budget, account: g.account, agent: g.agent, balance: g.balance}
}

// part moves what the request has of a quota into a grant of its own, for something that goes on
// when the request is over.
func (g *grant) part(q quota) *grant {
	own := g.empty()
	own.held[q], g.held[q] = g.held[q], 0
	return &own
}

// balance returns that of the account of a grant; b.mu is held.
func (b *budget) balance(g *grant) *balance {
	if its := b.of[g.account]; its != nil {
		return its
	}
	if b.of == nil {
		b.of, b.many = map[account]*balance{}, fewBalances
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
	b.of[g.account] = its
	return its
}

// fewBalances may be there for nothing.
const fewBalances = 2048

// idle reports whether there is nothing to know of an account.
func (its *balance) idle(now time.Time) bool {
	return its.used == [quotas]int64{} && its.working == 0 && !its.resting && now.Sub(slices.MaxFunc(its.last[:], time.Time.Compare)) > calm
}

// name returns what tells the account from others, for a grant that has something.
func (g *grant) name() string {
	if g.balance == nil {
		return g.account.principal
	}
	return g.balance.name
}

// newName makes the name of an account, which operators read.
func (g *grant) newName() string {
	name := g.account.principal
	switch {
	case g.account.program != 0:
		name += " (" + strings.ToValidUTF8(auth.Redact(g.agent[:min(len(g.agent), maxClient)]), "") + ")"
	case g.account.from.IsValid():
		name += " from " + g.account.from.String()
	}
	return name
}

// calm is how long the log says nothing more about refusals, and how long /readyz tells of one.
const calm = time.Minute

// refuse counts a refusal. At most once a minute it has a line in the log: about the account with
// most of them, or, where they were of accounts without a use, about the account that uses most.
// b.mu is held.
func (b *budget) refuse(its *balance, q quota) {
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
		for k := range quotas {
			if c := cmp.Compare(other.refused[k], most.refused[at]); c > 0 || c == 0 && k == at && other.used[k] > most.used[at] {
				most, at = other, k
			}
		}
	}
	b.log.Warn("requests refused: a caller uses all that it may have now", "principal", most.name, "limit", at.limit(), "used", most.used[at],
		"others", b.used[at]-most.used[at], "of", b.total[at], "refused", most.refused[at], "refused_others", b.refused-most.refused[at])
	b.told, b.refused = now, 0
	for _, other := range b.of {
		other.refused = [quotas]int{}
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

// Overused returns the callers that were refused something within the last minute, the latest
// first.
func (s *Server) Overused() []Overuse {
	b := &s.budget
	now := time.Now()
	var list []Overuse
	b.mu.Lock()
	for _, its := range b.of {
		for q, last := range its.last {
			if !last.IsZero() && now.Sub(last) <= calm {
				list = append(list, Overuse{its.name, quota(q).limit(), its.used[q], b.used[q] - its.used[q], b.total[q], last})
			}
		}
	}
	b.mu.Unlock()
	slices.SortFunc(list, func(x, y Overuse) int {
		return cmp.Or(y.Last.Compare(x.Last), cmp.Compare(x.Principal, y.Principal), cmp.Compare(x.Limit, y.Limit))
	})
	return list
}

// refusal is that of a request whose account gets no more. It is 429 where the account has its
// share: with 503 a proxy in front might take us for broken, and send no requests of others either.
func (e *overuse) refusal() *refusal {
	things := [quotas]string{"requests are in progress", "streams are open", "bytes are held"}[e.quota]
	wait, remedy := "1", "wait until a request of yours is over"
	if e.quota == ofStreams {
		wait, remedy = "30", "close a stream"
	}
	var r *refusal
	if e.own > 0 && e.own+e.others < e.total {
		r = refuse(http.StatusTooManyRequests, mcp.INTERNAL_ERROR, "too many %s for you: %d, and your share of %s is no more now; %s", things, e.own, e.quota.limit(), remedy)
	} else {
		r = refuse(http.StatusServiceUnavailable, mcp.INTERNAL_ERROR, "too many %s: %d for you and %d for others (%s); try again later", things, e.own, e.others, e.quota.limit())
	}
	r.retry = wait
	return r
}

// overuseError is the refusal for an error of take.
func overuseError(err error) error {
	if e, ok := errors.AsType[*overuse](err); ok {
		return e.refusal()
	}
	return err
}

// retry tells a client that is refused when to try again, if that is known.
func retry(w http.ResponseWriter, err error) {
	if own, ok := errors.AsType[*refusal](err); ok && own.retry != "" {
		w.Header().Set("Retry-After", own.retry)
	}
}
