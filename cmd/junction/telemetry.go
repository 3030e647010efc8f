package main

import (
	"context"
	"time"

	"junction/cmd/junction/config"
	"junction/cmd/junction/telemetry"
)

// openTelemetry prepares the metrics of the configuration.
func (p *program) openTelemetry(c *config.Config) (err error) {
	p.telemetry, err = telemetry.New(telemetry.Options{Metrics: c.Metrics && p.admin != nil, Version: version(), Log: p.log})
	return err
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
