package budget

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"junction/policy"
)

// Meters count the calls of principals with rate limits and, separately, their other requests:
// lists, pings, streams and handshakes. So a client that lists and pings can still call. Meters
// survive a reload, so that a reload does not reset an unchanged limit. The zero value is ready for
// use.
type Meters struct {
	mu          sync.Mutex
	byPrincipal map[string]*meter
}

// meter counts the requests of one principal; guarded by Meters.mu.
type meter struct {
	// The limits of one principal may differ between surfaces. Calls under one limit do not affect
	// another limit.
	rates    map[allowance]*rate.Limiter
	inFlight int
}

// allowance is a rate limit.
type allowance struct {
	rate   policy.Rate
	burst  int
	others bool // for requests other than calls
}

// othersBurst is the minimum burst of requests other than calls, because a client lists everything
// when it connects.
const othersBurst = 20

// Counter counts the requests of principals against the limits of their policies: Meters in this
// process alone, members.Members in all processes together.
type Counter interface {
	// Enter counts a call against the limits of its principal. leave must be called when the call has
	// ended; it is nil after an error. The error is a *LimitError, with the time to wait if it is
	// known, or states that nothing can be counted now (members.ErrAlone). other is true for requests
	// that are not calls: they have a rate of their own, and no limit of concurrency. Their leave does
	// nothing.
	Enter(ctx context.Context, principal string, l policy.Limits, other bool) (leave func(), wait time.Duration,
		err error)
}

// LimitError means that a request exceeds a limit of the policy. Compare it with the variables.
type LimitError struct {
	Key    string // of the limit in the policy, such as limits.rate
	Text   string // for the client
	Remedy string // for the client, if the time to wait is not known
}

func (e *LimitError) Error() string { return e.Text }

// The errors of the limits.
var (
	ErrTooFast = &LimitError{"limits.rate", "too many requests", "try again later"}
	ErrTooMany = &LimitError{"limits.concurrent", "too many of your calls are in progress", "wait for one of them"}
)

// Burst returns how many requests a rate limit allows at once: calls, or others.
func Burst(l policy.Limits, others bool) int {
	if others {
		return max(l.Burst, othersBurst)
	}
	return max(l.Burst, 1)
}

// Enter implements Counter.
func (ms *Meters) Enter(_ context.Context, principal string, l policy.Limits, other bool) (
	leave func(), wait time.Duration, err error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.tidy()
	m := ms.byPrincipal[principal]
	if m == nil {
		if ms.byPrincipal == nil {
			ms.byPrincipal = map[string]*meter{}
		}
		m = &meter{}
		ms.byPrincipal[principal] = m
	}
	if !other && l.Concurrent > 0 && m.inFlight >= l.Concurrent {
		return nil, 0, ErrTooMany
	}
	if l.Rate > 0 {
		if wait := m.wait(allowance{l.Rate, Burst(l, other), other}); wait > 0 {
			return nil, wait, ErrTooFast
		}
	}
	if other {
		return func() {}, 0, nil
	}
	m.inFlight++
	return func() { ms.leave(m) }, 0, nil
}

// leave counts a call that has ended.
func (ms *Meters) leave(m *meter) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m.inFlight--
}

// wait uses one request of an allowance, or returns the time until one is available.
func (m *meter) wait(a allowance) time.Duration {
	now := time.Now()
	r := m.limiter(a, now)
	if r.AllowN(now, 1) {
		return 0
	}
	return max(1, time.Duration((1-r.TokensAt(now))/float64(a.rate)*float64(time.Second)))
}

// limiter returns the limiter of an allowance. If there are many, it first removes unused limiters.
func (m *meter) limiter(a allowance, now time.Time) *rate.Limiter {
	r := m.rates[a]
	if r != nil {
		return r
	}
	if m.rates == nil {
		m.rates = map[allowance]*rate.Limiter{}
	}
	if len(m.rates) >= maxRates {
		maps.DeleteFunc(m.rates, func(_ allowance, r *rate.Limiter) bool { return unused(r, now) })
	}
	r = rate.NewLimiter(rate.Limit(a.rate), a.burst)
	m.rates[a] = r
	return r
}

// maxRates is the number of limiters per principal beyond which unused ones are removed.
const maxRates = 8

func unused(r *rate.Limiter, now time.Time) bool { return r.TokensAt(now) >= float64(r.Burst()) }

// tidy removes idle principals if there are many; ms.mu is held.
func (ms *Meters) tidy() {
	if len(ms.byPrincipal) > maxMeters {
		now := time.Now()
		maps.DeleteFunc(ms.byPrincipal, func(_ string, m *meter) bool {
			maps.DeleteFunc(m.rates, func(_ allowance, r *rate.Limiter) bool { return unused(r, now) })
			return m.inFlight == 0 && len(m.rates) == 0
		})
	}
}

// maxMeters is the number of principals beyond which idle ones are removed.
const maxMeters = 1000
