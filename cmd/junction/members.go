package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"junction/auth/seal"
	"junction/cmd/junction/config"
	"junction/cmd/junction/health"
	"junction/cmd/junction/replicas"
	"junction/cmd/junction/telemetry"
	"junction/proxy/members"
)

// This file connects the other processes over the same database (package replicas) with the proxy.

// openMembers prepares this process to be one of several, if the file says so.
func (p *program) openMembers(c *config.Config, key *seal.Key) error {
	if !c.Replicas.On() {
		return nil
	}
	l, err := listen(c.Replicas.Listen, "replicas.listen")
	if err != nil {
		return err
	}
	limits := c.Limits.WithDefaults()
	p.members, err = replicas.New(replicas.Options{
		DSN: c.Storage.DSN, DB: p.vault.store.Database(), Key: key, Listener: l, Advertise: c.Replicas.Advertise,
		Shared: c.Shared, Version: version(), Changed: func() { p.server.MemberChanged() }, Log: p.log,
		ReadTimeout: limits.ReadTimeout, WriteTimeout: limits.WriteTimeout, IdleTimeout: idleTimeout,
		MaxHeader: int(limits.Header),
	})
	if err != nil {
		l.Close()
	}
	return err
}

// proxyMembers returns the other processes for the proxy; nil if there is one process.
func (p *program) proxyMembers() members.Members {
	if p.members == nil {
		return nil
	}
	return p.members
}

// serveMembers answers the requests that the other processes forward, and holds the lease. The
// caller must call end when this process accepts no more requests of clients. Then the requests of
// the others have the grace to end, and the lease is given back.
func (p *program) serveMembers(ctx context.Context, group *errgroup.Group) (end func(grace time.Duration)) {
	if p.members == nil {
		return func(time.Duration) {}
	}
	// Both go on after ctx, until end.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	served, released := make(chan struct{}), make(chan struct{})
	group.Go(func() error {
		defer close(served)
		return p.members.Serve(serving, p.guarded(p.publicHandler()), p.server.BaseContext)
	})
	group.Go(func() error {
		defer close(released)
		p.members.Run(holding)
		return nil
	})
	return func(left time.Duration) {
		p.members.Drain(max(left, lastAnswers))
		release()
		<-released
		stop()
		<-served
	}
}

// membersPart is the check of the lease, for /readyz.
func (p *program) membersPart() health.Part {
	return health.Part{Name: "replicas", InUse: func() bool { return p.members != nil }, Every: time.Second,
		Check: func(ctx context.Context) error { return p.members.Ready(ctx) }}
}

// memberList returns the processes over one database, for /readyz.
func (p *program) memberList() []replicas.Status {
	if p.members == nil {
		return nil
	}
	return p.members.Members()
}

// memberFigures returns the source of metrics, nil if there is one process.
func (p *program) memberFigures() func() telemetry.Replicas {
	if p.members == nil {
		return nil
	}
	return func() telemetry.Replicas { return telemetry.Replicas(p.members.Figures()) }
}

// alone answers a request if this process must not answer it because it is not among the others. It
// does not know then whether a session, a limit or a deletion is still as it was.
func (p *program) alone(w http.ResponseWriter) bool {
	if p.members == nil || p.members.Self() != "" {
		return false
	}
	w.Header().Set("Retry-After", "2")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusServiceUnavailable)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": "temporarily_unavailable",
		"error_description": "this process has no connection to its database or to the other processes; try again",
		"request_id":        w.Header().Get("X-Request-Id")})
	return true
}
