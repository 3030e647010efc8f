package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"junction/auth/seal"
	"junction/auth/store"
	"junction/cmd/build"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/health"
	"junction/cmd/junction/base/listeners"
	"junction/cmd/junction/base/replicas"
	"junction/cmd/junction/base/telemetry"
	"junction/proxy/members"
)

// This file connects the other processes over the same database (package replicas) with the proxy.

// openMembers prepares this process to be one of several, if the file says so. Otherwise no other
// process may use the same database as one of several: it would not know of this one.
func (p *program) openMembers(c *config.Config, key *seal.Key) error {
	if !c.Replicas.On() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return p.checkAlone(ctx)
	}
	l, err := listeners.Listen(c.Replicas.Listen, "replicas.listen")
	if err != nil {
		return err
	}
	limits := c.Limits.WithDefaults()
	p.members, err = replicas.New(replicas.Options{
		DSN: c.Storage.DSN, DB: p.storage().Database(), Key: key, Listener: l, Advertise: c.Replicas.Advertise,
		Shared: c.Shared, Version: build.Read().Version, Changed: func() { p.server.MemberChanged() },
		FindRevoked: p.findRevoked, Log: p.log,
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

// finishCalls waits until the calls of sessions and the parked calls have ended whose clients are
// at other processes, and reports whether all have ended before the limit. It ends the parked calls
// whose clients have not returned then. A process without others does not wait: no client can
// return to it.
func (p *program) finishCalls(limit time.Time) bool {
	if p.members == nil {
		return true
	}
	waiting, cancel := context.WithDeadline(context.Background(), limit)
	defer cancel()
	parked, end := context.WithCancel(waiting)
	defer end()
	if len(p.members.Members()) <= 1 {
		end()
	}
	p.server.AwaitParked(parked)
	return p.members.AwaitIdle(waiting)
}

// join waits until this process is one of several, so that it answers the first request of a client. It
// does not wait longer than for one attempt, after which /readyz and the answers have the reason.
func (p *program) join(ctx context.Context) {
	if p.members == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_ = p.members.Ready(ctx) // has been logged
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
		return p.members.Serve(serving, listeners.Guarded(p.log, p.publicHandler()), p.server.BaseContext)
	})
	group.Go(func() error {
		defer close(released)
		p.members.Run(holding)
		return nil
	})
	return func(left time.Duration) {
		draining, end := context.WithTimeout(holding, max(left, lastAnswers))
		p.members.Drain(draining)
		end()
		release()
		<-released
		stop()
		<-served
	}
}

// membersPart is the check of the lease, for /readyz. Without the lease this process is unready, so
// that the load balancer sends requests to the others. If none of these has a lease, all stay ready:
// a load balancer without any process could only answer with an error of its own.
func (p *program) membersPart() health.Part {
	var common atomic.Bool // the failure is not one of this process alone
	return health.Part{Name: "replicas", InUse: func() bool { return p.members != nil || p.shared() != nil },
		Every: time.Second, Degrades: common.Load,
		Check: func(ctx context.Context) error {
			if p.members == nil {
				common.Store(true)
				if time.Since(p.begun) < time.Minute { // the start has checked it
					return nil
				}
				return p.checkAlone(ctx)
			}
			err := p.members.Ready(ctx)
			if err == nil {
				common.Store(true)
				return p.members.Warning()
			}
			common.Store(p.members.CommonOutage(ctx))
			return err
		}}
}

// shared returns the store if several processes can share its database; nil if not.
func (p *program) shared() *store.Store {
	if s := p.storage(); s != nil && s.Database() != nil {
		return s
	}
	return nil
}

// checkAlone returns an error if processes with the section replicas use the database, and this
// process has no such section.
func (p *program) checkAlone(ctx context.Context) error {
	shared := p.shared()
	if shared == nil {
		return nil
	}
	living, err := shared.Members(ctx)
	if err != nil || len(living) == 0 {
		return err
	}
	return fmt.Errorf("other processes use this database as replicas, at %s, and this process has no "+
		"section replicas; add the section, or give this process another database (storage.dsn). If they have "+
		"just been killed, wait for 15s", strings.Join(living, ", "))
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
