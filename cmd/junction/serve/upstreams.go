package serve

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"junction/auth"
	"junction/cmd/build"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/record"
	"junction/cmd/junction/base/stored"
	"junction/upstream"
	"junction/upstream/pace"
)

// upstreams are the servers behind the proxy.
type upstreams struct {
	*common
	set       upstream.Set
	catalogs  *stored.Dir // nil if there is no folder for catalogs
	outages   record.Outages
	tried     atomic.Bool   // see diagnose.Proxy
	refresh   chan struct{} // 1-buffered: a shared catalog has changed
	recheck   chan struct{} // 1-buffered: the catalog of a user's own upstream has changed
	sealing   *sealing
	inForce   *inForce
	measuring *measuring
	signIns   *signIns
	serving   *serving
}

// Open opens the stored catalogs.
func (u *upstreams) Open(*config.Config) error {
	u.openCatalogs()
	return nil
}

// Prepare prepares the upstreams of a configuration: they start when it is put in force.
func (u *upstreams) Prepare(next *config.Config) (prepared, error) {
	return prepared{use: func() {
		u.set.Apply(next.Upstreams, u.options(next), func(running []*upstream.Upstream) {
			u.serving.apply(next, running)
		})
		u.measuring.history.Keep(func(name string) bool { _, has := next.Upstreams[name]; return has })
		u.cleanCatalogs(next)
	}}, nil
}

// leave ends the processes that a change takes their last API key.
func (u *upstreams) leave(change *config.Change) {
	gone := map[string]bool{}
	for _, k := range change.RevokedKeys {
		gone[auth.KeyPrincipal(k.Name)] = true
	}
	for _, k := range change.Config.Auth.APIKeys { // a key of the same name may be new
		delete(gone, auth.KeyPrincipal(k.Name))
	}
	if len(gone) > 0 {
		u.set.Leave(func(principal string) bool { return gone[principal] })
	}
}

// Close ends the upstreams, and then writes what is left of their catalogs.
func (u *upstreams) Close() {
	u.set.Close()
	if u.catalogs != nil {
		u.catalogs.Close()
	}
}

// options returns what all upstreams of a configuration have in common.
func (u *upstreams) options(c *config.Config) upstream.Options {
	limits := c.Limits.WithDefaults()
	executable, err := os.Executable()
	if err != nil {
		executable = "" // then "junction" is not replaced in commands, and the upstream reports a missing program
	}
	o := upstream.Options{
		Defaults: c.Defaults, MessageLimit: limits.Message, Depth: limits.Nesting, Items: limits.Items,
		Refresh: c.Catalog.Refresh, Grace: c.Catalog.Grace,
		Version: build.Read().Version, Self: executable, Sandboxes: config.Sandboxes(u.sealing.dir, u.file),
		Writable: c.Writable, Log: u.log, Hooks: u.hooks(),
		Observer: u.measuring.telemetry.Calls(), Credentials: u.signIns.sources,
		Identity: u.signIns.identities.sign,
		Memory:   u.serving.server.UpstreamMemory,
	}
	if fetcher, err := c.Outbound.Fetcher(); err == nil { // the storage and the sign-ins report a mistake
		o.Roots = fetcher.RootCAs
	} else {
		u.log.Warn("upstreams trust only the authorities of the system", "error", err)
	}
	if u.catalogs != nil {
		o.Store = u.catalogs
	}
	if guard, err := c.FolderGuard(u.file, u.getenv); err == nil { // without a place for the list, none is permitted
		o.Folders = guard.Permitted
	}
	return o
}

// openCatalogs opens the folder of the stored catalogs. Each configuration file has its own folder.
func (u *upstreams) openCatalogs() {
	if u.sealing.dir == "" {
		return
	}
	dir := filepath.Join(u.sealing.dir, "catalogs", config.FolderOf(u.file))
	catalogs, err := stored.Open(dir, u.sealing.key, u.log)
	if err != nil {
		u.log.Warn("catalogs are not stored: after a restart, tools are missing until their server has started",
			"error", err)
		return
	}
	u.catalogs = catalogs
}

// cleanCatalogs removes the stored catalogs of upstreams that are no longer configured.
func (u *upstreams) cleanCatalogs(c *config.Config) {
	if u.catalogs == nil {
		return
	}
	var entries []string
	for name, entry := range c.Upstreams {
		entries = append(entries, entry.Entry(name))
	}
	u.catalogs.Keep(entries)
}

// hooks returns hooks that log each change of state and request a refresh after a catalog
// change.
func (u *upstreams) hooks() upstream.Hooks {
	return upstream.Hooks{
		StateChanged: func(c upstream.Change) {
			if c.State.Failed() || c.State == upstream.StateWaiting {
				u.catalogChanged() // names may be settled now
			}
			u.measuring.history.Note(c)
			u.outages.Changed(u.log, c, u.screen.Holds())
			u.measuring.telemetry.StateChanged(c)
		},
		CatalogChanged: func(string) { u.catalogChanged() },
		OwnChanged:     func(string) { pace.Wake(u.recheck) },
		Refused:        func(name string) { u.inForce.refused(name) },
		Others: func(ctx context.Context, name string, sent map[string]string) map[string]string {
			return u.inForce.otherHeaders(ctx, name, sent)
		},
		ResourceUpdated: func(update upstream.Update) { u.serving.server.Streams().Updated(update) },
	}
}

// catalogChanged wakes refreshLoop.
func (u *upstreams) catalogChanged() { pace.Wake(u.refresh) }

// Run follows changes of catalogs and sign-ins until ctx ends.
func (u *upstreams) Run(ctx context.Context) error {
	loops, ctx := errgroup.WithContext(ctx)
	loops.Go(func() error { return u.refreshLoop(ctx) })
	loops.Go(func() error { return u.recheckLoop(ctx) })
	return loops.Wait()
}

// recheckLoop closes streams whose sign-in has ended and tells clients about catalog changes of
// users' own upstreams. It also closes users' idle upstream connections. It runs in one goroutine
// until ctx ends.
func (u *upstreams) recheckLoop(ctx context.Context) error {
	tick := time.NewTicker(recheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.recheck:
			u.serving.server.Recheck()
		case <-tick.C:
			if u.inForce.guard.Load().Resources != nil {
				u.serving.server.Recheck()
			}
			u.set.Rest(restAfter)
		}
	}
}

// restAfter is how long a user's upstream connections stay open without requests.
const restAfter = 15 * time.Minute

// recheckEvery is half of the time for which a stream may outlive its sign-in.
const recheckEvery = 5 * time.Second

// refreshLoop puts changed catalogs in force. It runs in one goroutine until ctx ends.
func (u *upstreams) refreshLoop(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-u.refresh:
			u.serving.server.Refresh()
		}
	}
}
