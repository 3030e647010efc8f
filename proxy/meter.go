package proxy

import (
	"errors"
	"maps"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/time/rate"

	"junction/policy"
)

// meters count the calls of principals whose policies limit them, and apart from these their other
// requests: lists, pings, streams that they open, handshakes. So a client that lists and pings can
// still call. The zero value counts none. They outlive a change of the world, so that a reload that
// leaves the limits of somebody as they are gives no fresh allowance.
type meters struct {
	mu sync.Mutex
	of map[string]*meter
}

// meter is that of one principal; guarded by meters.mu.
type meter struct {
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
	errTooFast = errors.New("too many requests")
	errTooMany = errors.New("too many calls at once")
)

// enter counts a call that begins; leave must follow. The error is errTooFast, with how long to
// wait, or errTooMany.
func (ms *meters) enter(principal string, l policy.Limits) (*meter, time.Duration, error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.meter(principal)
	if l.Concurrent > 0 && m.inFlight >= l.Concurrent {
		return nil, 0, errTooMany
	}
	if l.Rate > 0 {
		if wait := m.wait(allowance{l.Rate, max(l.Burst, 1), false}); wait > 0 {
			return nil, wait, errTooFast
		}
	}
	m.inFlight++
	return m, 0, nil
}

// other counts a request that is no call. The error is errTooFast, with how long to wait.
func (ms *meters) other(principal string, l policy.Limits) (time.Duration, error) {
	if l.Rate <= 0 {
		return 0, nil
	}
	ms.mu.Lock()
	defer ms.mu.Unlock()
	ms.tidy()
	if wait := ms.meter(principal).wait(allowance{l.Rate, max(l.Burst, othersBurst), true}); wait > 0 {
		return wait, errTooFast
	}
	return 0, nil
}

// meter returns that of a principal; mu is held.
func (ms *meters) meter(principal string) *meter {
	m := ms.of[principal]
	if m == nil {
		if ms.of == nil {
			ms.of = map[string]*meter{}
		}
		m = &meter{}
		ms.of[principal] = m
	}
	return m
}

// wait uses one of an allowance, or else returns how long it takes until that is possible.
func (m *meter) wait(a allowance) time.Duration {
	now := time.Now()
	r := m.limiter(a, now)
	if r.AllowN(now, 1) {
		return 0
	}
	return max(1, time.Duration((1-r.TokensAt(now))/float64(a.rate)*float64(time.Second)))
}

// limiter returns the one of a limit. Others that nothing is used of are forgotten when there are
// many.
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

// maxRates is from how many limits of one principal on those that nothing is used of are forgotten.
const maxRates = 8

func unused(r *rate.Limiter, now time.Time) bool { return r.TokensAt(now) >= float64(r.Burst()) }

// leave counts a call that has ended.
func (ms *meters) leave(principal string, m *meter) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m.inFlight--
	ms.tidy()
}

// tidy forgets principals that have used nothing up, if there are many; mu is held.
func (ms *meters) tidy() {
	if len(ms.of) > maxMeters {
		now := time.Now()
		maps.DeleteFunc(ms.of, func(_ string, m *meter) bool {
			maps.DeleteFunc(m.rates, func(_ allowance, r *rate.Limiter) bool { return unused(r, now) })
			return m.inFlight == 0 && len(m.rates) == 0
		})
	}
}

// maxMeters is from how many principals on those that are idle are forgotten.
const maxMeters = 1000

// meter counts a request that begins, where policy limits the caller. done must be called when it
// has ended; it is nil where there is nothing to do. The error is what the client reads.
func (s *Server) meter(x *exchange, info *CallInfo) (done func(), err error) {
	limits := x.subject.limits
	if limits.Rate <= 0 && limits.Concurrent <= 0 {
		return nil, nil
	}
	var wait time.Duration
	switch {
	case isCall(x.msg.Method):
		var m *meter
		if m, wait, err = s.meters.enter(x.principal.ID, limits); err == nil {
			return func() { s.meters.leave(x.principal.ID, m) }, nil
		}
	case mcp.MCPMethod(x.msg.Method) == mcp.MethodResourcesUnsubscribe: // it gives something back
		return nil, nil
	default:
		if wait, err = s.meters.other(x.principal.ID, limits); err == nil {
			return nil, nil
		}
	}
	if member := namedBy(x.msg.Method); member != "" {
		info.Name, _ = x.params.String(member)
	}
	info.Verdict, info.Rule = policy.Deny.String(), "limits.concurrent"
	if err == errTooFast {
		info.Rule = "limits.rate"
	}
	return nil, x.limited(err, wait)
}

// isCall reports whether requests of the method are calls: those that upstreams answer.
func isCall(method string) bool {
	switch mcp.MCPMethod(method) {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead, mcp.MethodCompletionComplete, mcp.MethodResourcesSubscribe,
		methodTasksGet, methodTasksUpdate, methodTasksCancel:
		return true
	}
	return false
}

// limited is what a client reads that has called too often, in a form that it can wait by. The
// status stays 200: there are clients that take any other for the end of the connection.
func (x *exchange) limited(err error, wait time.Duration) *refusal {
	data := []byte(`{"junction":{"kind":"limited"`)
	text := "too many of your calls are in progress (limits.concurrent of your policy); wait for one of them"
	again := ""
	if err == errTooFast {
		seconds := int(math.Ceil(wait.Seconds()))
		text = "too many requests (limits.rate of your policy); the next is possible in " + strconv.Itoa(seconds) + " s"
		data = strconv.AppendInt(append(data, `,"retryAfterMs":`...), wait.Milliseconds()+1, 10)
		again = strconv.Itoa(seconds)
	}
	return &refusal{status: http.StatusOK, code: mcp.INTERNAL_ERROR, text: text, data: append(data, "}}"...), retry: again}
}
