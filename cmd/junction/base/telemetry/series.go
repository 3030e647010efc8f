package telemetry

import (
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
)

// key identifies the attributes of a request or a call.
type key struct {
	method, upstream, name, version, outcome string
	code                                     int64
	local                                    bool // over the pipes of a child process
	asked                                    bool // a request of an upstream
}

// network is the value of network.transport.
func (k *key) network() string {
	if k.local {
		return "pipe"
	}
	return "tcp"
}

// maxSeries bounds the sets of attributes of one instrument. A server may rename its tools for ever,
// but gets only half of them, so that the tools of other servers keep their names.
const maxSeries = 2000

// series are the durations of one instrument, looked up by key, so that a call makes no set of
// attributes. It has at most maxSeries keys with names; the other keys share sets without names.
// Beyond 2 * maxSeries keys, all share the series that OpenTelemetry names overflow.
type series struct {
	name, description string
	make              func(key) []attribute.KeyValue

	mu    sync.RWMutex
	known map[key]*durations
	sets  map[attribute.Distinct]*durations // keys may have equal attributes
	count map[string]int                    // of known, by upstream
}

// record adds a duration to the series of a key.
func (s *series) record(k key, took time.Duration) {
	if k.code != 0 && !reserved(k.code) {
		k.code = unreserved
	}
	s.mu.RLock()
	d := s.known[k]
	s.mu.RUnlock()
	if d == nil {
		d = s.add(k)
	}
	d.add(took)
}

func (s *series) add(k key) *durations {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxSeries || k.upstream != "" && s.count[k.upstream] >= maxSeries/2 {
		k.name, k.code = other, 0
	}
	if d := s.known[k]; d != nil {
		return d
	}
	if len(s.known) >= 2*maxSeries-1 {
		return s.of(attribute.NewSet(attrOverflow.Bool(true)))
	}
	d := s.of(attribute.NewSet(s.make(k)...))
	s.known[k] = d
	s.count[k.upstream]++
	return d
}

// of returns the durations with a set of attributes. The caller holds mu.
func (s *series) of(set attribute.Set) *durations {
	if s.known == nil {
		s.known, s.count = map[key]*durations{}, map[string]int{}
		s.sets = map[attribute.Distinct]*durations{}
	}
	d := s.sets[set.Equivalent()]
	if d == nil {
		d = &durations{set: set}
		s.sets[set.Equivalent()] = d
	}
	return d
}

// unreserved stands for all codes of JSON-RPC errors that servers choose.
const unreserved = 1

// reserved reports whether JSON-RPC or MCP reserves a code.
func reserved(code int64) bool {
	return code >= -32099 && code <= -32000 || code >= -32700 && code <= -32600
}

// codeText returns the error.type of a JSON-RPC error: its code. Codes that servers choose are other.
func codeText(code int64) string {
	if reserved(code) {
		return strconv.FormatInt(code, 10)
	}
	return other
}
