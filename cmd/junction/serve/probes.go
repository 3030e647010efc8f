package serve

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"junction/auth/store"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/health"
	"junction/cmd/junction/desk/screen"
)

// This file is about what load balancers and supervisors see.

const (
	checkStorage  = 2 * time.Second
	checkProvider = 30 * time.Second
)

// checks are the checks of what the proxy depends on, and their receivers.
type checks struct {
	*common
	steady
	monitor    *health.Monitor
	supervisor *health.Supervisor // nil if systemd does not ask for the state
	contents   *contents
	certified  *certified
	listening  *listening
	inForce    *inForce
	recording  *recording
	storage    *storage
	signIns    *signIns
	membership *membership
}

// Open prepares the checks of what the proxy depends on. Without the storage, no token can be
// checked; among other processes, the part replicas decides what that means. Without the identity
// providers, only new sign-ins fail: API keys and users who are signed in work.
func (c *checks) Open(*config.Config) error {
	c.monitor = health.NewMonitor(c.log,
		health.Part{Name: "storage", InUse: func() bool { return c.storage.store() != nil },
			Check: func(ctx context.Context) error { return c.storage.store().Ping(ctx) }, Every: checkStorage,
			Degrades: func() bool { return c.membership.member != nil }},
		health.Part{Name: health.IdentityProviders, InUse: func() bool { return c.signIns.users != nil },
			Check: func(ctx context.Context) error { return c.signIns.users.CheckProviders(ctx) }, Every: checkProvider,
			Degrades: func() bool { return true }},
		health.Part{Name: "audit", InUse: func() bool { return c.inForce.now().Audit.File != "" },
			Check: func(context.Context) error { return c.recording.audit.State().Err }, Every: checkStorage,
			Degrades: func() bool { return true }},
		health.Part{Name: "disk", InUse: func() bool { return len(c.written()) > 0 },
			Check: func(context.Context) error { return health.CheckDisk(c.written()) }, Every: checkProvider,
			Degrades: func() bool { return true }},
		health.Part{Name: "certificate", InUse: func() bool { return c.certified.on }, Check: c.certified.kept.Check,
			Changed: c.certified.kept.Changed, Every: checkStorage, Degrades: func() bool { return true }},
		c.membership.part(c.contents.begun))
	return nil
}

// Run checks what the proxy depends on until ctx ends.
func (c *checks) Run(ctx context.Context) error {
	c.monitor.Run(ctx)
	return nil
}

// written returns the files that this process writes, for a look at their disks.
func (c *checks) written() (files []health.File) {
	now := c.inForce.now()
	if now.Audit.File != "" && now.Audit.File != config.AuditStderr {
		files = append(files, health.File{Key: "audit.file", Path: now.Audit.File})
	}
	file := c.storage.store() != nil && now.Storage.Driver != store.Postgres
	if dsn, err := now.Storage.Place(c.getenv); err == nil && file {
		files = append(files, health.File{Key: "storage.dsn", Path: dsn})
	}
	return files
}

// trouble returns the parts that fail, for the first screen. flags are those of commands about this
// proxy. checked is false while a first check runs.
func (c *checks) trouble(flags string) (list []screen.Trouble, checked bool) {
	checked = true
	for _, s := range c.monitor.States() {
		if s.Since.IsZero() {
			checked = false
			continue
		}
		if s.OK {
			continue
		}
		t := screen.Trouble{Part: s.Name, Error: s.Error, Advice: "see the log, and junction status" + flags}
		if s.Name == health.IdentityProviders {
			t.Part, t.Error = "sign-in", "cannot reach an identity provider: "+s.Error
			t.Advice = "nobody can sign in there until it answers; check it with junction auth doctor" + flags
		}
		list = append(list, t)
	}
	return list, checked
}

// states returns the state of what the proxy depends on, for /readyz, and that new connections wait. Clients
// that are connected are served meanwhile, so that a load balancer must not take the process away.
func (c *checks) states() []health.State {
	list := c.monitor.States()
	if why, since := c.listening.bounded.Waits(); why != "" {
		list = append(list, health.State{Name: "connections", Error: why, Since: since, Ready: true})
	}
	return list
}

// working reports which parts that Junction depends on work, for the metrics. A part that was not checked yet
// is no failing one.
func (c *checks) working() map[string]bool {
	works := map[string]bool{}
	for _, s := range c.monitor.States() {
		if !s.Since.IsZero() {
			works[s.Name] = s.OK
		}
	}
	return works
}

// tellSupervisor tells systemd that this process serves, and later that it stops. The signs of life
// depend on report, what /readyz reports, so that a process in which nothing moves any more is
// started again. The caller must call end.
func (c *checks) tellSupervisor(stopping, ctx context.Context, group *errgroup.Group, report func()) (end func()) {
	if !c.inner {
		c.supervisor = health.NewSupervisor(c.getenv, c.log)
	}
	c.tellReady()
	group.Go(func() error {
		c.supervisor.Watch(ctx, report)
		return nil
	})
	most := longestEnd(c.inForce.now())
	reported := make(chan struct{})
	unheard := context.AfterFunc(stopping, func() {
		defer close(reported)
		c.supervisor.Stopping(most)
	})
	return sync.OnceFunc(func() {
		if !unheard() { // a process that has nothing to wait for may end sooner than this is sent
			<-reported
		}
	})
}

// reloading tells the supervisor that a reload has begun. The caller calls tellReady when it has
// ended.
func (c *checks) reloading() { c.supervisor.Reloading() }

func (c *checks) tellReady() { c.supervisor.Ready("serving " + c.listening.url()) }
