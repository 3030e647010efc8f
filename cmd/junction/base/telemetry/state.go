package telemetry

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"junction/proxy/budget"
	"junction/proxy/front"
	"junction/upstream"
)

// Source is the running proxy, whose state is read at each scrape and export.
type Source struct {
	Server    *front.Server
	Upstreams func() []*upstream.Upstream
	Degraded  func() map[string]int // the degraded connections of the upstreams that each user signs in to
	// the renewals of credentials for upstreams, by upstream
	Credentials func() map[string]Credential
	Parts       func() map[string]bool // what the program depends on, and whether it works
	// of the audit: bytes of lines that wait, and lines that were dropped
	Audit    func() (waiting, dropped int64)
	Expiring func() int // API keys that expire soon
	// how long the certificate of TLS is valid; false without TLS
	Certificate func() (time.Duration, bool)
	Stale       func() bool // the configuration file, or a part of it, is not in force
	Connections func() Connections
	Replicas    func() Replicas // nil if there is one process
}

// Credential has the renewals of a credential by this process.
type Credential struct {
	Renewals, Failures int64
	Expires            bool // one token, which all callers share, expires
	Left               time.Duration
}

// Connections are the connections of clients. See listeners.Figures.
type Connections struct {
	Open, Limit int
	Waiting     bool             // new connections wait until another one ends
	Closed      map[string]int64 // connections that were closed because of a limit, by reason
}

// closings are the reasons of Connections.Closed.
var closings = []string{"too_many", "unfinished"}

// instrument is read at each scrape and export.
type instrument struct{ name, unit, description string }

// reading writes the values of instruments by name.
type reading func(name string, value int64, attributes ...attribute.KeyValue)

// observe makes counters and gauges. It calls read at each scrape and export.
func observe(m metric.Meter, counters, gauges []instrument, read func(set reading)) error {
	made, all := map[string]metric.Int64Observable{}, []metric.Observable(nil)
	for _, c := range counters {
		one, err := m.Int64ObservableCounter(c.name, metric.WithUnit(c.unit), metric.WithDescription(c.description))
		if err != nil {
			return err
		}
		made[c.name], all = one, append(all, one)
	}
	for _, g := range gauges {
		one, err := m.Int64ObservableGauge(g.name, metric.WithUnit(g.unit), metric.WithDescription(g.description))
		if err != nil {
			return err
		}
		made[g.name], all = one, append(all, one)
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		read(func(name string, value int64, attributes ...attribute.KeyValue) {
			o.ObserveInt64(made[name], value, metric.WithAttributes(attributes...))
		})
		return nil
	}, all...)
	return err
}

// gauges are the instruments of Watch.
var gauges = []instrument{
	{"junction.info", "", "1; the label is the version of the program."},
	{"junction.config.stale", "", "1 if the configuration file, or a part of it, is not in force."},
	{"junction.keys.expiring", "", "API keys that expire within 14 days."},
	{"junction.tls.certificate.expiry", "s", "Time until the certificate of TLS expires; negative after that."},
	{"junction.credentials.expiry", "s", "Time until the token that all callers of an upstream share expires."},
	{"junction.part.up", "", "1 if a part that the program depends on works, such as the storage."},
	{"junction.audit.waiting", "By", "Lines of the audit that are not written yet."},
	{"junction.audit.dropped", "", "Lines of the audit that were dropped since the audit is in force."},
	{"junction.upstream.state", "", "1 for the state that an upstream has."},
	{"junction.upstream.connections", "", "Connections to an upstream."},
	{"junction.upstream.degraded", "", "Connections over which an upstream does not answer, or rejects the session."},
	{"junction.upstream.processes", "", "Processes of an upstream that is a command."},
	{"junction.upstream.calls", "", "Calls in progress at an upstream."},
	{"junction.upstream.waiting", "", "Calls that wait because of the concurrency of an upstream."},
	{"junction.catalog.items", "", "Items that an upstream lists."},
	{"junction.catalog.hidden", "", "Items that no client is offered, because of a problem."},
	{"junction.tools", "", "Tools of the merged endpoint."},
	{"junction.requests.active", "", "Requests in progress."},
	{"junction.requests.memory", "By", "Memory that is held for requests and answers."},
	{"junction.streams", "", "Open streams of notifications."},
	{"junction.sessions", "", "Sessions of legacy clients in memory."},
	{"junction.calls.parked", "", "Calls that wait for answers of a client that is away."},
	{"junction.connections", "", "Open connections of clients."},
	{"junction.connections.limit", "", "Connections of clients that may be open."},
	{"junction.connections.waiting", "", "1 while new connections of clients wait, because no more may be open."},
}

// counted are the counters of Watch. Those of upstreams are of connections that users have for themselves.
var counted = []instrument{
	{"junction.connections.closed", "", "Connections of clients that were closed because of a limit."},
	{"junction.credentials.renewals", "", "Tokens for an upstream that were renewed."},
	{"junction.credentials.failures", "", "Renewals of tokens for an upstream that failed."},
	{"junction.limits.exceeded", "", "Requests, streams and memory that a limit of all callers did not allow."},
	{"junction.upstream.crashes", "", "Connections of single users that failed, or ended by themselves."},
	{"junction.upstream.evictions", "", "Connections of single users that were ended to make room for others."},
}

// Watch makes the instruments of the state of a proxy. Call it once, before the first scrape.
func (t *Telemetry) Watch(s Source) error {
	if !t.measures() {
		return nil
	}
	m := t.meters.Meter(scope)
	return errors.Join(watchReplicas(m, s.Replicas),
		observe(m, counted, gauges, func(set reading) { t.read(s, set) }))
}

// read reads all gauges.
func (t *Telemetry) read(s Source, set reading) {
	set("junction.info", 1, attrBuild.String(t.version))
	set("junction.config.stale", one(s.Stale()))
	for part, up := range s.Parts() {
		set("junction.part.up", one(up), attrPart.String(part))
	}
	waiting, dropped := s.Audit()
	set("junction.audit.waiting", waiting)
	set("junction.audit.dropped", dropped)
	set("junction.keys.expiring", int64(s.Expiring()))
	if left, on := s.Certificate(); on {
		set("junction.tls.certificate.expiry", int64(left/time.Second))
	}
	for _, u := range s.Upstreams() {
		readUpstream(u, set)
	}
	for name, c := range s.Credentials() {
		set("junction.credentials.renewals", c.Renewals, attrUpstream.String(name))
		set("junction.credentials.failures", c.Failures, attrUpstream.String(name))
		if c.Expires {
			set("junction.credentials.expiry", int64(c.Left/time.Second), attrUpstream.String(name))
		}
	}
	for name, n := range s.Degraded() {
		set("junction.upstream.degraded", int64(n), attrUpstream.String(name))
	}
	used := s.Server.Used()
	_, sessions := s.Server.Sessions()
	set("junction.catalog.hidden", int64(len(s.Server.Snapshot().Problems())))
	set("junction.tools", int64(s.Server.Snapshot().Tools()))
	set("junction.requests.active", used[budget.Requests])
	set("junction.requests.memory", used[budget.Bytes])
	set("junction.streams", used[budget.Streams])
	set("junction.sessions", int64(sessions))
	set("junction.calls.parked", int64(s.Server.Parked()))
	for q, n := range s.Server.Exceeded() {
		set("junction.limits.exceeded", n, attrLimit.String(budget.Quota(q).Limit()))
	}
	readConnections(s.Connections(), set)
}

func readConnections(c Connections, set reading) {
	set("junction.connections", int64(c.Open))
	set("junction.connections.limit", int64(c.Limit))
	set("junction.connections.waiting", one(c.Waiting))
	for _, reason := range closings {
		set("junction.connections.closed", c.Closed[reason], attrReason.String(reason))
	}
}

func readUpstream(u *upstream.Upstream, set reading) {
	status, catalog := u.Status(), u.Catalog()
	name := attrUpstream.String(u.Name())
	for _, state := range upstream.States() {
		set("junction.upstream.state", one(status.State == state), name, attrState.String(state.String()))
	}
	calls, waiting := u.Load()
	set("junction.upstream.connections", int64(status.Links), name)
	set("junction.upstream.degraded", int64(status.Degraded), name)
	set("junction.upstream.crashes", status.Crashes, name)
	set("junction.upstream.evictions", status.Evictions, name)
	set("junction.upstream.processes", int64(len(status.Processes)), name)
	set("junction.upstream.calls", int64(calls), name)
	set("junction.upstream.waiting", int64(waiting), name)
	for kind, n := range map[string]int{"tool": len(catalog.Tools), "prompt": len(catalog.Prompts),
		"resource": len(catalog.Resources), "template": len(catalog.Templates)} {
		set("junction.catalog.items", int64(n), name, attrKind.String(kind))
	}
}

func one(holds bool) int64 {
	if holds {
		return 1
	}
	return 0
}
