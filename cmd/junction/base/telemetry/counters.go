package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"junction/upstream"
)

// counter counts by the value of one attribute. Its values must be bounded.
type counter struct {
	name, description string
	by                attribute.Key

	mu    sync.RWMutex
	known map[string]*atomic.Int64
}

func (c *counter) count(value string, n int64) {
	c.mu.RLock()
	known := c.known[value]
	c.mu.RUnlock()
	if known == nil {
		known = c.add(value)
	}
	known.Add(n)
}

func (c *counter) add(value string) *atomic.Int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[value] == nil {
		c.known[value] = new(atomic.Int64)
	}
	return c.known[value]
}

// counters are the instruments of events beside calls.
type counters struct {
	refused, dropped, ignored, tokens, connects, failures, cached, limited, storeFails counter

	store metric.Float64Histogram
}

// all returns every counter.
func (c *counters) all() []*counter {
	return []*counter{&c.refused, &c.dropped, &c.ignored, &c.tokens, &c.connects, &c.failures, &c.cached, &c.limited,
		&c.storeFails}
}

// storeBounds are the boundaries for operations of a database, in seconds.
var storeBounds = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5}

// reasons are the reasons of refused requests.
var reasons = []string{"origin", "proxy", "host", "policy", "endpoint", "too_large", "content_type", "slow_body",
	"limit", "unavailable",
	"session", "header_mismatch", "version", "parse", "invalid"}

// notifications are the kinds of notifications that may be dropped.
var notifications = []string{"progress", "message"}

// tokenResults are the results of token checks.
var tokenResults = []string{"accepted", "invalid_token", "insufficient_scope", "temporarily_unavailable", "unknown_key"}

// limitable are the requests of sign-ins that a limit may reject. operations are the storage's.
var (
	limitable  = []string{"sign_in", "page", "register", "token", "refresh", "revoke", "logout"}
	operations = []string{"read", "write", "commit"}
)

// events makes the counters. A counter that begins at 0 shows its first event as an increase.
func (t *Telemetry) events(m metric.Meter) (err error) {
	count := func(c *counter, name, description string, by attribute.Key, values []string) {
		c.name, c.description, c.by, c.known = name, description, by, map[string]*atomic.Int64{}
		for _, value := range values {
			c.count(value, 0)
		}
	}
	count(&t.refused, "junction.requests.refused", "Requests that were refused before they were dispatched.",
		attrReason, reasons)
	count(&t.dropped, "junction.notifications.dropped",
		"Notifications of calls that were dropped, because the client does not read them.", attrNotification,
		notifications)
	count(&t.ignored, "junction.upstream.notifications.ignored",
		"Notifications of an upstream that mean nothing to Junction and to the clients.", attrUpstream, nil)
	count(&t.tokens, "junction.tokens.checked", "Tokens and keys that were checked.", attrResult, tokenResults)
	count(&t.connects, "junction.upstream.connects",
		"Connections that became ready, of the link that reads the catalog.",
		attrUpstream, nil)
	count(&t.failures, "junction.upstream.failures",
		"Failed attempts to connect, and lost connections, of the same link.",
		attrUpstream, nil)
	count(&t.cached, "junction.calls.cached", "Calls that were answered from the cache, without the upstream.",
		attrUpstream, nil)
	count(&t.limited, "junction.signin.limited", "Requests of sign-ins that were rejected because of a limit.",
		attrPage, limitable)
	count(&t.storeFails, "junction.store.failures", "Operations on the storage of sign-ins that failed.", attrStore,
		operations)
	t.store, err = m.Float64Histogram("junction.store.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of operations on the storage of sign-ins."),
		metric.WithExplicitBucketBoundaries(storeBounds...))
	for _, operation := range operations {
		t.operations[operation] = []metric.RecordOption{
			metric.WithAttributeSet(attribute.NewSet(attrStore.String(operation)))}
	}
	return err
}

// measures reports whether there are instruments.
func (t *Telemetry) measures() bool { return t != nil && t.meters != nil }

// Refused implements front.Observer.
func (r requests) Refused(reason string, status int, code int64) {
	if r.measures() {
		r.refused.count(reasonOf(reason, status, code), 1)
	}
}

// Dropped implements front.Observer.
func (r requests) Dropped(progress, messages int) {
	if r.measures() {
		r.dropped.count("progress", int64(progress))
		r.dropped.count("message", int64(messages))
	}
}

// Ignored implements front.Observer.
func (r requests) Ignored(upstream string) {
	if r.measures() {
		r.ignored.count(upstream, 1)
	}
}

// reasonOf returns one of reasons.
func reasonOf(reason string, status int, code int64) string {
	if reason != "" {
		return reason
	}
	if word := map[int]string{413: "too_large", 415: "content_type", 408: "slow_body",
		429: "limit"}[status]; word != "" {
		return word
	}
	if word := map[int64]string{-32001: "session", -32020: "header_mismatch", -32022: "version",
		-32700: "parse"}[code]; word != "" {
		return word
	}
	return "invalid"
}

// Checked counts a token that was checked: see auth.Guard.
func (t *Telemetry) Checked(code string) {
	if t.measures() {
		if code == "" {
			code = tokenResults[0]
		}
		t.tokens.count(code, 1)
	}
}

// StateChanged counts connects and failures: see upstream.Hooks.
func (t *Telemetry) StateChanged(c upstream.Change) {
	switch {
	case !t.measures():
	case c.State == upstream.StateReady && !c.Again:
		t.connects.count(c.Name, 1)
	case c.State.Failed():
		t.failures.count(c.Name, 1)
	}
}

// Store measures an operation of the storage: see store.Config.
func (t *Telemetry) Store(operation string, took time.Duration, failed bool) {
	if !t.measures() {
		return
	}
	t.store.Record(context.Background(), took.Seconds(), t.operations[operation]...)
	if failed {
		t.storeFails.count(operation, 1)
	}
}

// Limited counts a request of a sign-in that was rejected: see authserver.Options.
func (t *Telemetry) Limited(what string) {
	if t.measures() {
		t.limited.count(what, 1)
	}
}
