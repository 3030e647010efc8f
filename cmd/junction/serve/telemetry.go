package serve

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"

	"junction/cmd/build"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/telemetry"
	"junction/cmd/junction/ops/pages"
)

// measuring is the metrics, the traces, and the last states of the upstreams.
type measuring struct {
	*common
	steady
	telemetry *telemetry.Telemetry // nil if nothing is measured
	listening *listening
	history   pages.History
}

// Open prepares the metrics of the configuration, and the exports of the environment. The error
// handler is of the whole process: OpenTelemetry has no other.
func (m *measuring) Open(c *config.Config) (err error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { m.log.Warn("OpenTelemetry", "error", err) }))
	m.telemetry, err = telemetry.New(m.telemetryOptions(c.Metrics && m.listening.admin != nil))
	return err
}

// Close sends the last measurements.
func (m *measuring) Close() { m.sendLast(m.telemetry.Close, "the last measurements were not sent") }

func (c *common) telemetryOptions(metrics bool) telemetry.Options {
	return telemetry.Options{Metrics: metrics, Getenv: c.getenv, Version: build.Read().Version, Log: c.log}
}

// sendLast sends what is left, and logs a failure with the text problem.
func (c *common) sendLast(end func(context.Context) error, problem string) {
	ctx, cancel := context.WithTimeout(context.Background(), lastExport)
	defer cancel()
	if err := end(ctx); err != nil {
		c.log.Warn(problem, "error", err)
	}
}

// lastExport limits how long sending the last measurements may delay the end of the program.
const lastExport = time.Second

// watch measures the state of the proxy, which exists by now.
func (p *adminPages) watch() error {
	return p.measuring.telemetry.Watch(telemetry.Source{Server: p.serving.server, Upstreams: p.upstreams.set.All,
		Degraded: p.upstreams.set.Degraded, Parts: p.checks.working, Credentials: p.signIns.renewals,
		Audit: func() (waiting, dropped int64) {
			s := p.recording.audit.State()
			return s.Waiting, s.Dropped
		},
		Certificate: func() (time.Duration, bool) {
			return p.checks.certified.kept.Left(time.Now()), p.checks.certified.on
		},
		Expiring:    func() int { return len(p.inForce.expiring(time.Now())) },
		Stale:       func() bool { return deref(&p.contents.failure)+deref(&p.contents.waiting) != "" },
		Connections: func() telemetry.Connections { return telemetry.Connections(p.listening.bounded.Figures()) },
		Replicas:    p.membership.figures()})
}
