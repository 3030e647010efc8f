package serve

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"

	"junction/cmd/build"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/telemetry"
)

// openTelemetry prepares the metrics of the configuration, and the exports of the environment. The
// error handler is of the whole process: OpenTelemetry has no other.
func (p *program) openTelemetry(c *config.Config) (err error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { p.log.Warn("OpenTelemetry", "error", err) }))
	p.telemetry, err = telemetry.New(p.telemetryOptions(c.Metrics && p.admin != nil))
	return err
}

func (p *program) telemetryOptions(metrics bool) telemetry.Options {
	return telemetry.Options{Metrics: metrics, Getenv: p.getenv, Version: build.Read().Version, Log: p.log}
}

func (p *program) closeTelemetry() {
	p.closeExport(p.telemetry.Close, "the last measurements were not sent")
}

// closeExport sends what is left, and logs a failure with the text problem.
func (p *program) closeExport(end func(context.Context) error, problem string) {
	ctx, cancel := context.WithTimeout(context.Background(), lastExport)
	defer cancel()
	if err := end(ctx); err != nil {
		p.log.Warn(problem, "error", err)
	}
}

// watch measures the state of the proxy, which exists by now.
func (p *program) watch() error {
	return p.telemetry.Watch(telemetry.Source{Server: p.server, Upstreams: p.set.All,
		Degraded: p.set.Degraded, Parts: p.parts,
		Audit: func() (waiting, dropped int64) {
			s := p.audit.State()
			return s.Waiting, s.Dropped
		},
		Expiring: func() int { return len(p.expiring(time.Now())) },
		Stale:    func() bool { return deref(&p.reloadError)+deref(&p.waiting) != "" }, Replicas: p.memberFigures()})
}

// lastExport limits how long sending the last measurements may delay the end of the program.
const lastExport = time.Second
