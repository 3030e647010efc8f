package main

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"

	"junction/cmd/junction/config"
	"junction/cmd/junction/telemetry"
)

// openTelemetry prepares the metrics of the configuration, and the exports of the environment. The
// error handler is of the whole process: OpenTelemetry has no other.
func (p *program) openTelemetry(c *config.Config) (err error) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { p.log.Warn("OpenTelemetry", "error", err) }))
	p.telemetry, err = telemetry.New(telemetry.Options{Metrics: c.Metrics && p.admin != nil, Getenv: p.getenv,
		Version: version(), Log: p.log})
	return err
}

// watch measures the state of the proxy, which exists by now.
func (p *program) watch() error {
	return p.telemetry.Watch(telemetry.Source{Server: p.server, Upstreams: p.set.All,
		Stale: func() bool { return p.unread.Load() != nil }})
}

// lastExport limits how long sending the last measurements may delay the end of the program.
const lastExport = time.Second

func (p *program) closeTelemetry() {
	ctx, cancel := context.WithTimeout(context.Background(), lastExport)
	defer cancel()
	if err := p.telemetry.Close(ctx); err != nil {
		p.log.Warn("the last measurements were not sent", "error", err)
	}
}
