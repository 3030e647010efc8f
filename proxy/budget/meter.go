package budget

import (
	"errors"
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
	mu sync.Mutex
	of map[string]*Meter
}

// Meter counts the requests of one principal; guarded by Meters.mu.
type Meter struct {
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

var (
	ErrTooFast = errors.New("too many requests")
	ErrTooMany = errors.New("too many calls at once")
)

// Burst returns how many requests a rate limit allows at once: calls, or others.
func Burst(l policy.Limits, others bool) int {
	if others {
		return max(l.Burst, othersBurst)
	}
	return max(l.Burst, 1)
}

// Enter counts a call that begins. Leave must follow unless there is an error. The error is
// ErrTooFast, with the time to wait, or ErrTooMany.
func (ms *Meters) Enter(principal string, l policy.Limits) (*Meter, time.Duration, error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.meter(principal)
	if l.Concurrent > 0 && m.inFlight >= l.Concurrent {
		return nil, 0, ErrTooMany
	}
	if l.Rate > 0 {
		if wait := m.wait(allowance{l.Rate, Burst(l, false), false}); wait > 0 {
			return nil, wait, ErrTooFast
		}
	}
	m.inFlight++
	return m, 0, nil
}

// Other counts a request other than a call. The error is ErrTooFast, with the time to wait.
func (ms *Meters) Other(principal string, l policy.Limits) (time.Duration, error) {
	if l.Rate <= 0 {
		return 0, nil
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.tidy()
	if wait := ms.meter(principal).wait(allowance{l.Rate, Burst(l, true), true}); wait > 0 {
		return wait, ErrTooFast
	}
	return 0, nil
}

// meter returns the meter of a principal; ms.mu is held.
func (ms *Meters) meter(principal string) *Meter {
	m := ms.of[principal]
	if m == nil {
		if ms.of == nil {
			ms.of = map[string]*Meter{}
		}
		m = &Meter{}
		ms.of[principal] = m
	}
	return m
}

// wait uses one request of an allowance, or returns the time until one is available.
func (m *Meter) wait(a allowance) time.Duration {
	now := time.Now()
	r := m.limiter(a, now)
	if r.AllowN(now, 1) {
		return 0
	}
	return max(1, time.Duration((1-r.TokensAt(now))/float64(a.rate)*float64(time.Second)))
}

// limiter returns the limiter of an allowance. If there are many, it first removes unused limiters.
func (m *Meter) limiter(a allowance, now time.Time) *rate.Limiter {
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

// Leave counts a call that has ended.
func (ms *Meters) Leave(principal string, m *Meter) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m.inFlight--
	ms.tidy()
}

// tidy removes idle principals if there are many; ms.mu is held.
func (ms *Meters) tidy() {
	if len(ms.of) > maxMeters {
		now := time.Now()
		maps.DeleteFunc(ms.of, func(_ string, m *Meter) bool {
			maps.DeleteFunc(m.rates, func(_ allowance, r *rate.Limiter) bool { return unused(r, now) })
			return m.inFlight == 0 && len(m.rates) == 0
		})
	}
}

// maxMeters is the number of principals beyond which idle ones are removed.
const maxMeters = 1000
