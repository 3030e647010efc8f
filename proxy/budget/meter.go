package budget

import (
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"junction/policy"
)

// Meters count the calls of principals whose policies limit them, and apart from these their other
// requests: lists, pings, streams and handshakes. So a client that lists and pings can still call.
// Meters outlive a reload, so that an unchanged limit gives no fresh allowance. The zero value is
// ready.
type Meters struct {
	mu sync.Mutex
	of map[string]*Meter
}

// Meter is that of one principal; guarded by meters.mu.
type Meter struct {
	// The limits of one principal may differ, as from one surface to another: calls under one limit
	// neither use up another nor fill it again.
	rates    map[allowance]*rate.Limiter
	inFlight int
}

// allowance is a limit of the rate.
type allowance struct {
	rate   policy.Rate
	burst  int
	others bool // of requests that are no calls
}

// othersBurst is the least burst of requests that are no calls: a client that connects lists
// everything at once.
const othersBurst = 20

var (
	ErrTooFast = errors.New("too many requests")
	errTooMany = errors.New("too many calls at once")
)

// Enter counts a call that begins; leave must follow. The error is errTooFast, with how long to
// wait, or errTooMany.
func (ms *Meters) Enter(principal string, l policy.Limits) (*Meter, time.Duration, error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.meter(principal)
	if l.Concurrent > 0 && m.inFlight >= l.Concurrent {
		return nil, 0, errTooMany
	}
	if l.Rate > 0 {
		if wait := m.wait(allowance{l.Rate, max(l.Burst, 1), false}); wait > 0 {
			return nil, wait, ErrTooFast
		}
	}
	m.inFlight++
	return m, 0, nil
}

// Other counts a request that is no call. The error is errTooFast, with how long to wait.
func (ms *Meters) Other(principal string, l policy.Limits) (time.Duration, error) {
	if l.Rate <= 0 {
		return 0, nil
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.tidy()
	if wait := ms.meter(principal).wait(allowance{l.Rate, max(l.Burst, othersBurst), true}); wait > 0 {
		return wait, ErrTooFast
	}
	return 0, nil
}

// meter returns that of a principal; mu is held.
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

// wait uses one of an allowance, or else returns how long it takes until that is possible.
func (m *Meter) wait(a allowance) time.Duration {
	now := time.Now()
	r := m.limiter(a, now)
	if r.AllowN(now, 1) {
		return 0
	}
	return max(1, time.Duration((1-r.TokensAt(now))/float64(a.rate)*float64(time.Second)))
}

// limiter returns the one of a limit. Others that nothing is used of are forgotten when there are
// many.
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

// maxRates is from how many limits of one principal on those that nothing is used of are forgotten.
const maxRates = 8

func unused(r *rate.Limiter, now time.Time) bool { return r.TokensAt(now) >= float64(r.Burst()) }

// Leave counts a call that has ended.
func (ms *Meters) Leave(principal string, m *Meter) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m.inFlight--
	ms.tidy()
}

// tidy forgets principals that have used nothing up, if there are many; mu is held.
func (ms *Meters) tidy() {
	if len(ms.of) > maxMeters {
		now := time.Now()
		maps.DeleteFunc(ms.of, func(_ string, m *Meter) bool {
			maps.DeleteFunc(m.rates, func(_ allowance, r *rate.Limiter) bool { return unused(r, now) })
			return m.inFlight == 0 && len(m.rates) == 0
		})
	}
}

// maxMeters is from how many principals on those that are idle are forgotten.
const maxMeters = 1000
