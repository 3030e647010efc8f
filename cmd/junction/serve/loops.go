package serve

import (
	"context"
	"time"
)

// This file has the loops that follow changes of sign-ins and catalogs.

// recheckLoop closes streams whose sign-in has ended and tells clients about catalog changes of
// users' own upstreams. It also closes users' idle upstream connections. It runs in one goroutine
// until ctx ends.
func (p *program) recheckLoop(ctx context.Context) error {
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.recheck:
			p.server.Recheck()
		case <-tick.C:
			if p.guard.Load().Resources != nil {
				p.server.Recheck()
			}
			p.set.Rest(restAfter)
		}
	}
}

// restAfter is how long a user's upstream connections stay open without requests.
const restAfter = 15 * time.Minute

// recheckEvery is half of the time for which a stream may outlive its sign-in.
const recheckEvery = 5 * time.Second

// refreshLoop puts changed catalogs in force. It runs in one goroutine until ctx ends.
func (p *program) refreshLoop(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.refresh:
			p.server.Refresh()
		}
	}
}
