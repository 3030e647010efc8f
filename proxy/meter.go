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

// meters count the calls of principals whose policies limit them. The zero value counts none. They outlive a change of the world, so that a reload that leaves the
// limits of somebody as they are gives no fresh allowance.
type meters struct {
	mu sync.Mutex
	of map[string]*meter
}

// meter is that of one principal; guarded by meters.mu.
type meter struct {
	// The limits of one principal may differ, as from one surface to another: calls under one limit neither use up another nor fill it again.
	rates    map[allowance]*rate.Limiter
	inFlight int
}

// allowance is a limit of the rate.
type allowance struct {
	rate  policy.Rate
	burst int
}

var (
	errTooFast = errors.New("too many calls")
	errTooMany = errors.New("too many calls at once")
)

// enter counts a call that begins; leave must follow. The error is errTooFast, with how long to wait, or errTooMany.
func (ms *meters) enter(principal string, l policy.Limits) (*meter, time.Duration, error) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.of[principal]
	if m == nil {
		if ms.of == nil {
			ms.of = map[string]*meter{}
		}
		m = &meter{}
		ms.of[principal] = m
	}
	now := time.Now()
	if l.Concurrent > 0 && m.inFlight >= l.Concurrent {
		return nil, 0, errTooMany
	}
	if l.Rate > 0 {
		if r := m.limiter(allowance{l.Rate, max(l.Burst, 1)}, now); !r.AllowN(now, 1) {
			wait := (1 - r.TokensAt(now)) / float64(l.Rate)
			return nil, time.Duration(wait * float64(time.Second)), errTooFast
		}
	}
	m.inFlight++
	return m, 0, nil
}

// limiter returns the one of a limit. Others that nothing is used of are forgotten when there are many.
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

// leave counts a call that has ended. A principal that has used nothing up is forgotten.
func (ms *meters) leave(principal string, m *meter) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m.inFlight--
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

// metered reports whether requests of the method count: those that upstreams answer.
func metered(method string) bool {
	switch mcp.MCPMethod(method) {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead, mcp.MethodCompletionComplete, mcp.MethodResourcesSubscribe,
		methodTasksGet, methodTasksUpdate, methodTasksCancel:
		return true
	}
	return false
}

// limited is what a client reads that has called too often, in a form that it can wait by. The status stays 200: there are clients that take any other for the
// end of the connection.
func (x *exchange) limited(err error, wait time.Duration) error {
	data := []byte(`{"junction":{"kind":"limited"`)
	text := "too many of your calls are in progress (limits.concurrent of your policy); wait for one of them"
	if err == errTooFast {
		seconds := int(math.Ceil(wait.Seconds()))
		text = "too many calls (limits.rate of your policy); the next is possible in " + strconv.Itoa(seconds) + " s"
		data = strconv.AppendInt(append(data, `,"retryAfterMs":`...), wait.Milliseconds()+1, 10)
		x.reply.w.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	return &refusal{status: http.StatusOK, code: mcp.INTERNAL_ERROR, text: text, data: append(data, "}}"...)}
}
