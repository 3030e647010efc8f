package proxy

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"golang.org/x/time/rate"

	"junction/policy"
)

// meters count the calls of principals whose policies limit them. The zero value counts none. They outlive a change of the world, so that no reload gives anybody a
// fresh allowance.
type meters struct {
	mu sync.Mutex
	of map[string]*meter
}

// meter is that of one principal; guarded by meters.mu.
type meter struct {
	rate     *rate.Limiter // nil where the rate is not limited
	inFlight int
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
	switch burst := max(l.Burst, 1); {
	case l.Rate <= 0:
		m.rate = nil
	case m.rate == nil:
		m.rate = rate.NewLimiter(rate.Limit(l.Rate), burst)
	case m.rate.Limit() != rate.Limit(l.Rate) || m.rate.Burst() != burst:
		m.rate.SetLimitAt(now, rate.Limit(l.Rate))
		m.rate.SetBurstAt(now, burst)
	}
	if m.rate != nil && !m.rate.AllowN(now, 1) {
		wait := (1 - m.rate.TokensAt(now)) / float64(l.Rate)
		return nil, time.Duration(wait * float64(time.Second)), errTooFast
	}
	m.inFlight++
	return m, 0, nil
}

// leave counts a call that has ended. A principal that has used nothing up is forgotten.
func (ms *meters) leave(principal string, m *meter) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m.inFlight--
	if len(ms.of) > maxMeters {
		for who, other := range ms.of {
			if other.inFlight == 0 && (other.rate == nil || other.rate.Tokens() >= float64(other.rate.Burst())) {
				delete(ms.of, who)
			}
		}
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
