package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

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

// membership is this process as one of several.
type membership struct {
	*common
	member  *replicas.Member // nil if there is one process
	rules   replicas.Rules   // of this process, and of the others
	sealing *sealing
	storage *storage
	signIns *signIns
	serving *serving
}

// Open prepares this process to be one of several, if the file says so. Otherwise no other process
// may use the same database as one of several: it would not know of this one.
func (m *membership) Open(c *config.Config) error {
	if !c.Replicas.On() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return m.checkAlone(ctx)
	}
	l, err := listeners.Listen(c.Replicas.Listen, "replicas.listen")
	if err != nil {
		return err
	}
	limits := c.Limits.WithDefaults()
	db := m.storage.store()
	m.member, err = replicas.New(replicas.Options{
		DSN: c.Storage.DSN, DB: db.Database(), Key: m.sealing.key, MasterKeys: db.Prints(), MayJoin: db.MayJoin,
		Listener: l, Advertise: c.Replicas.Advertise,
		Shared: c.Shared, Version: build.Read().Version, Changed: func() { m.serving.server.MemberChanged() },
		Rules: &m.rules, Agreed: func() { m.serving.server.MembersAgree() },
		FindRevoked: m.signIns.findRevoked, Log: m.log,
		ReadTimeout: limits.ReadTimeout, WriteTimeout: limits.WriteTimeout, IdleTimeout: idleTimeout,
		MaxHeader: int(limits.Header),
	})
	if err != nil {
		l.Close()
	}
	return err
}

// Prepare prepares the comparison of a configuration with those of the others.
func (m *membership) Prepare(next *config.Config) (prepared, error) {
	if m.member == nil {
		return prepared{}, nil
	}
	return prepared{use: func() {
		if err := m.member.Reload(next.Shared); err != nil {
			m.log.Error("cannot compare the configuration with that of the other replicas", "error", err)
		}
	}}, nil
}

// judge has forwarded requests judged by the policies of a configuration, too. Call it when they are in force.
func (m *membership) judge(c *config.Config) {
	if m.member == nil {
		return
	}
	text, err := c.Carried()
	if err != nil { // cannot happen: all of it is text and numbers
		m.log.Error("cannot send the policies to the other replicas", "error", err)
		return
	}
	m.rules.Set(text)
}

// Close closes the listener for the others.
func (m *membership) Close() {
	if m.member != nil {
		m.member.Close()
	}
}

// leave tells the other processes that this one is stopping: one with another configuration may replace it. A
// second signal then calls hurry, so that the lease is given back, where it would end a process alone at once. It
// returns when ended is closed.
func (m *membership) leave(ended <-chan struct{}, hurry func()) {
	if m.member == nil {
		return
	}
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again) // a third signal ends the process
	m.member.Leave()
	select {
	case <-again:
		hurry()
	case <-ended:
	}
}

// Differs implements auth.Others, also before Open.
func (m *membership) Differs(key string) bool { return m.member != nil && m.member.Differs(key) }

// Lacks implements auth.Others, also before Open.
func (m *membership) Lacks(entry string) bool { return m.member != nil && m.member.Lacks(entry) }

// forProxy returns the other processes for the proxy; nil if there is one process.
func (m *membership) forProxy() members.Members {
	if m.member == nil {
		return nil
	}
	return m.member
}

// finishCalls waits until the calls of sessions and the parked calls have ended whose clients are
// at other processes, and reports whether all have ended before the limit and before ctx. It ends the parked calls
// whose clients have not returned then. A process without others does not wait: no client can
// return to it.
func (m *membership) finishCalls(ctx context.Context, limit time.Time) bool {
	if m.member == nil {
		return true
	}
	waiting, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	parked, end := context.WithCancel(waiting)
	defer end()
	if len(m.member.Members()) <= 1 {
		end()
	}
	m.serving.server.AwaitParked(parked)
	return m.member.AwaitIdle(waiting)
}

// join waits until this process is one of several, so that it answers the first request of a
// client. It does not wait longer than for one attempt, after which /readyz and the answers have
// the reason.
func (m *membership) join(ctx context.Context) {
	if m.member == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_ = m.member.Ready(ctx) // has been logged
}

// serve answers the requests that the other processes forward, and holds the lease. The
// caller must call end when this process accepts no more requests of clients. Then the requests of
// the others have the grace to end, and the lease is given back.
func (m *membership) serve(ctx context.Context, group *errgroup.Group) (end func(grace time.Duration)) {
	if m.member == nil {
		return func(time.Duration) {}
	}
	// Both go on after ctx, until end.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	holding, release := context.WithCancel(context.WithoutCancel(ctx))
	served, released := make(chan struct{}), make(chan struct{})
	group.Go(func() error {
		defer close(served)
		public := listeners.Guarded(m.log, m.serving.publicHandler())
		return m.member.Serve(serving, public, m.serving.server.BaseContext)
	})
	group.Go(func() error {
		defer close(released)
		m.member.Run(holding)
		return nil
	})
	return func(left time.Duration) {
		draining, end := context.WithTimeout(holding, max(left, lastAnswers))
		m.member.Drain(draining)
		end()
		release()
		<-released
		stop()
		<-served
	}
}

// part is the check of the lease, for /readyz. begun is when the process was started. Without the
// lease this process is unready, so that the load balancer sends requests to the others. If none of
// these has a lease, all stay ready: a load balancer without any process could only answer with an
// error of its own.
func (m *membership) part(begun time.Time) health.Part {
	var common atomic.Bool // the failure is not one of this process alone
	return health.Part{Name: "replicas", InUse: func() bool { return m.member != nil || m.shared() != nil },
		Every: time.Second, Degrades: common.Load,
		Check: func(ctx context.Context) error {
			if m.member == nil {
				common.Store(true)
				if time.Since(begun) < time.Minute { // the start has checked it
					return nil
				}
				return m.checkAlone(ctx)
			}
			err := m.member.Ready(ctx)
			if err == nil {
				common.Store(true)
				return m.member.Warning()
			}
			common.Store(m.member.CommonOutage(ctx))
			return err
		}}
}

// shared returns the store if several processes can share its database; nil if not.
func (m *membership) shared() *store.Store {
	if s := m.storage.store(); s != nil && s.Database() != nil {
		return s
	}
	return nil
}

// checkAlone returns an error if processes with the section replicas use the database, and this
// process has no such section.
func (m *membership) checkAlone(ctx context.Context) error {
	shared := m.shared()
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

// list returns the processes over one database, for /readyz.
func (m *membership) list() []replicas.Status {
	if m.member == nil {
		return nil
	}
	return m.member.Members()
}

// figures returns the source of metrics, nil if there is one process.
func (m *membership) figures() func() telemetry.Replicas {
	if m.member == nil {
		return nil
	}
	return func() telemetry.Replicas { return telemetry.Replicas(m.member.Figures()) }
}

// alone answers a request if this process must not answer any because it has not joined the others. A process that
// has only lost its connection to the database answers what needs nothing that it shares with them; the front refuses
// the rest.
func (m *membership) alone(w http.ResponseWriter) bool {
	if m.member == nil || m.member.Last() != "" {
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

// endRevoked is findRevoked of the sign-ins for all processes over the database. missed are the
// addresses of those that do not answer.
func (m *membership) endRevoked(ctx context.Context) (missed []string, err error) {
	if err := m.signIns.findRevoked(ctx); err != nil || m.member == nil {
		return nil, err
	}
	return m.member.TellRevoked(ctx), nil
}
