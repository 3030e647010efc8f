package serve

import (
	"context"
	"path/filepath"
	"time"

	"junction/auth/seal"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/stored"
	"junction/upstream"
	"junction/upstream/pace"
)

// openCatalogs opens the folder of the stored catalogs, below dir. Each configuration file has its
// own folder.
func (p *program) openCatalogs(key *seal.Key, dir string) {
	if dir == "" {
		return
	}
	catalogs, err := stored.Open(filepath.Join(dir, "catalogs", config.FolderOf(p.file)), key, p.log)
	if err != nil {
		p.log.Warn("catalogs are not stored: after a restart, tools are missing until their server has started",
			"error", err)
		return
	}
	p.catalogs = catalogs
}

// cleanCatalogs removes the stored catalogs of upstreams that are no longer configured.
func (p *program) cleanCatalogs(c *config.Config) {
	if p.catalogs == nil {
		return
	}
	var entries []string
	for name, u := range c.Upstreams {
		entries = append(entries, u.Entry(name))
	}
	p.catalogs.Keep(entries)
}

// upstreamHooks returns hooks that log each change of state and request a refresh after a catalog
// change.
func (p *program) upstreamHooks() upstream.Hooks {
	return upstream.Hooks{
		StateChanged: func(c upstream.Change) {
			if c.State.Failed() {
				p.catalogChanged() // names may be settled now
			}
			p.outages.Changed(p.log, c, p.screen.Holds())
			p.measuring.telemetry.StateChanged(c)
		},
		CatalogChanged:  func(string) { p.catalogChanged() },
		OwnChanged:      func(string) { pace.Wake(p.recheck) },
		ResourceUpdated: func(u upstream.Update) { p.server.Updated(u) },
	}
}

// catalogChanged wakes refreshLoop.
func (p *program) catalogChanged() { pace.Wake(p.refresh) }

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
