package telemetry

import (
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
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

// series keeps the option of an instrument for each key, so that a call makes no set of attributes.
// It has at most maxSeries of them; the other keys share sets without names.
type series struct {
	make func(key) []attribute.KeyValue

	mu    sync.RWMutex
	known map[key][]metric.RecordOption
	count map[string]int // of known, by upstream
}

// options returns the attributes of a key as options of a measurement.
func (s *series) options(k key) []metric.RecordOption {
	if k.code != 0 && !reserved(k.code) {
		k.code = unreserved
	}
	s.mu.RLock()
	o := s.known[k]
	s.mu.RUnlock()
	if o != nil {
		return o
	}
	return s.add(k)
}

func (s *series) add(k key) []metric.RecordOption {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxSeries || k.upstream != "" && s.count[k.upstream] >= maxSeries/2 {
		k.name, k.code = other, 0
	}
	if o := s.known[k]; o != nil {
		return o
	}
	if s.known == nil {
		s.known, s.count = map[key][]metric.RecordOption{}, map[string]int{}
	}
	s.count[k.upstream]++
	o := []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(s.make(k)...))}
	s.known[k] = o
	return o
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
