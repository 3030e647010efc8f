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

// monitor returns the checks of what the proxy depends on. Without the storage, no token can be
// checked; among other processes, the part replicas decides what that means. Without the identity
// providers, only new sign-ins fail: API keys and users who are signed in work.
func (p *program) monitor() *health.Monitor {
	return health.NewMonitor(p.log,
		health.Part{Name: "storage", InUse: func() bool { return p.storage() != nil },
			Check: func(ctx context.Context) error { return p.storage().Ping(ctx) }, Every: checkStorage,
			Degrades: func() bool { return p.members != nil }},
		health.Part{Name: health.IdentityProviders, InUse: func() bool { return p.signIn != nil },
			Check: func(ctx context.Context) error { return p.signIn.CheckProviders(ctx) }, Every: checkProvider,
			Degrades: func() bool { return true }},
		health.Part{Name: "audit", InUse: func() bool { return p.inForce().Audit.File != "" },
			Check: func(context.Context) error { return p.recording.audit.State().Err }, Every: checkStorage,
			Degrades: func() bool { return true }},
		health.Part{Name: "disk", InUse: func() bool { return len(p.written()) > 0 },
			Check: func(context.Context) error { return health.CheckDisk(p.written()) }, Every: checkProvider,
			Degrades: func() bool { return true }},
		p.membersPart())
}

// written returns the files that this process writes, for a look at their disks.
func (p *program) written() (files []health.File) {
	c := p.inForce()
	if c.Audit.File != "" && c.Audit.File != config.AuditStderr {
		files = append(files, health.File{Key: "audit.file", Path: c.Audit.File})
	}
	file := p.storage() != nil && c.Storage.Driver != store.Postgres
	if dsn, err := c.Storage.Place(p.getenv); err == nil && file {
		files = append(files, health.File{Key: "storage.dsn", Path: dsn})
	}
	return files
}

// trouble returns the parts that fail, for the first screen. flags are those of commands about this
// proxy. checked is false while a first check runs.
func (p *program) trouble(flags string) (list []screen.Trouble, checked bool) {
	checked = true
	for _, s := range p.health.States() {
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

// parts reports which parts that Junction depends on work, for the metrics.
func (p *program) parts() map[string]bool {
	works := map[string]bool{}
	for _, s := range p.health.States() {
		works[s.Name] = s.OK
	}
	return works
}

// tellSupervisor tells systemd that this process serves, and later that it stops. The signs of life
// depend on what /readyz reports, so that a process in which nothing moves any more is started again.
// The caller must call end.
func (p *program) tellSupervisor(stopping, ctx context.Context, group *errgroup.Group) (end func()) {
	if !p.inner {
		p.supervisor = health.NewSupervisor(p.getenv, p.log)
	}
	p.tellReady()
	seen := p.asSeen()
	group.Go(func() error {
		p.supervisor.Watch(ctx, func() { seen.Report(ctx) })
		return nil
	})
	most := p.longestEnd()
	reported := make(chan struct{})
	unheard := context.AfterFunc(stopping, func() {
		defer close(reported)
		p.supervisor.Stopping(most)
	})
	return sync.OnceFunc(func() {
		if !unheard() { // a process that has nothing to wait for may end sooner than this is sent
			<-reported
		}
	})
}

func (p *program) tellReady() { p.supervisor.Ready("serving " + p.url()) }
