package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/listeners"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/desk/screen"
	"junction/cmd/junction/ops/diagnose"
	"junction/proxy"
	"junction/upstream/http1"
	"junction/upstream/shell"
)

// serve answers requests until ctx ends and then shuts down: it accepts no new connections, ends
// streams, and lets in-flight calls finish within the grace.
func (p *program) serve(stopping context.Context) error {
	ctx, served := p.drain(stopping)
	defer served()
	c := p.inForce()
	limits := c.Limits.WithDefaults()
	public := &http1.Server{HTTP: &http.Server{
		Handler: listeners.Guarded(p.log, p.publicHandler()), BaseContext: p.server.BaseContext,
		ReadTimeout: limits.ReadTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: int(limits.Header),
		WriteTimeout: limits.WriteTimeout, // calls and streams extend the deadline before they write
		ErrorLog:     slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}}
	seen := p.asSeen()
	page, err := p.statusPage(stopping, ctx)
	if err != nil {
		return err
	}
	seen.Page = page.Register
	admin := &http.Server{
		Handler:     listeners.Guarded(p.log, seen.Handler(stopping)),
		ReadTimeout: limits.ReadTimeout, WriteTimeout: limits.WriteTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: int(limits.Header), ErrorLog: public.HTTP.ErrorLog,
	}
	grace := c.ShutdownGrace // no reload changes it
	group, ctx := errgroup.WithContext(ctx)
	serveOn := func(s interface{ Serve(net.Listener) error }, l net.Listener) {
		group.Go(func() error {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", l.Addr(), err)
			}
			return nil
		})
	}
	endpoint, keys := p.url(), len(c.Auth.APIKeys) > 0 && !c.Auth.SignsIn()
	where := []any{"url", endpoint}
	if c.PublicURL != "" {
		endpoint = c.PublicURL + "/mcp"
	}
	if p.admin != nil {
		serveOn(admin, p.admin)
		where = append(where, "admin", "http://"+adminHere(p.admin.Addr()))
	}
	hup := make(chan os.Signal, 1)
	if p.file != "" { // before anybody can know the process: without a reader, the signal ends it
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
	}
	endMembers := p.serveMembers(ctx, group)
	p.join(ctx)
	serveOn(public, p.public)
	p.announce()
	defer p.recordEnd(stopping)()
	level := slog.LevelInfo
	if p.screen.Holds() { // which shows the addresses
		level = slog.LevelDebug
	}
	p.log.Log(ctx, level, "serving", where...)
	defer p.tellSupervisor(stopping, ctx, group)()
	p.recording.event("started", fingerprint(p.file, p.hash), proxy.OK)
	group.Go(func() error { return p.refreshLoop(ctx) })
	group.Go(func() error { return p.recheckLoop(ctx) })
	group.Go(func() error { return p.eventLoop(ctx) })
	group.Go(func() error { p.health.Run(ctx); return nil })
	group.Go(func() error { return p.reloadLoop(ctx, hup) })
	group.Go(func() error { p.expiryLoop(ctx); return nil })
	group.Go(func() error { return p.welcome(ctx, endpoint, keys) })
	group.Go(func() error {
		<-ctx.Done()
		p.log.Info("shutting down", "grace", grace)
		p.stop(public, grace, endMembers)
		admin.Close() // last, so that /readyz reports the shutdown until the end
		return nil
	})
	defer p.recording.event("stopped", "", proxy.OK)
	return group.Wait()
}

// stop ends the listener for clients. Calls in flight may continue for the grace. The requests of
// other members are answered until then: they have the answers and the cancellations of these calls.
// Sessions without a call are given up at once, each with its next request (package front).
func (p *program) stop(public *http1.Server, grace time.Duration, endMembers func(time.Duration)) {
	limit := time.Now().Add(grace)
	p.server.Shutdown()
	if shutdown(public, grace) && p.finishCalls(limit) {
		endMembers(time.Until(limit))
		return
	}
	p.log.Warn("calls are cut off: the grace is over (shutdown_grace)")
	p.server.Kill()
	// No call needs an upstream any more: the upstreams end while the last answers are written.
	var closing sync.WaitGroup
	closing.Go(p.set.Close)
	shutdown(public, lastAnswers)
	public.Close()
	endMembers(lastAnswers)
	closing.Wait()
}

// lastAnswers limits how long the answers of calls that were cut off may take to reach their
// clients.
const lastAnswers = time.Second

// shutdown waits for in-flight requests and reports whether all of them ended in time.
func shutdown(s *http1.Server, wait time.Duration) bool {
	limit, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	return s.Shutdown(limit) == nil
}

// idleTimeout limits how long a connection stays open without a request. It is longer than clients
// pause between two calls of one task, so that they need not reconnect.
const idleTimeout = 2 * time.Minute

// welcome prints the first screen, until all upstreams have been tried.
func (p *program) welcome(ctx context.Context, endpoint string, keys bool) error {
	t := screen.Text{URL: endpoint, Keys: keys, Open: p.inForce().Auth.Open(), Demo: p.file == ""}
	if p.admin != nil {
		t.Status = "http://" + p.admin.Addr().String() + "/"
	}
	if p.file != "" && p.file != config.UserFile() {
		t.Flags = " " + shell.Join("--config", p.file)
	}
	for _, w := range *p.warnings.Load() {
		if config.Grave(w) {
			t.Warnings = append(t.Warnings, w.String())
		}
	}
	t.Trouble = func() ([]screen.Trouble, bool) { return p.trouble(t.Flags) }
	seen := p.asSeen()
	t.Disabled = seen.Report(ctx).Disabled
	p.screen.Run(ctx, &t, func() []diagnose.UpstreamStatus { return seen.Report(ctx).Upstreams }, func() {
		p.server.Settle()    // a client that reads "ready" must find the tools
		debug.FreeOSMemory() // returns the memory that only the start needed; the collector runs rarely from now on
	})
	return nil
}

// drain returns a context that ends drain_delay after stopping. The caller must call end.
func (p *program) drain(stopping context.Context) (serving context.Context, end context.CancelFunc) {
	delay := p.inForce().DrainDelay // no reload changes it
	if delay <= 0 {
		return context.WithCancel(stopping)
	}
	serving, end = context.WithCancel(context.WithoutCancel(stopping))
	go func() { // runs until the end of serving
		select {
		case <-stopping.Done():
		case <-serving.Done():
			return
		}
		p.log.Info("draining: /readyz answers 503, and calls are served", "drain_delay", delay)
		select {
		case <-time.After(delay):
			end()
		case <-serving.Done():
		}
	}()
	return serving, end
}

// announce records where the proxy serves, for commands. The record stays until forget.
func (p *program) announce() {
	if p.storeGood(); p.inner {
		return
	}
	place := runfile.Place{URL: runfile.URL(p.public.Addr().String()), Grace: p.longestEnd()}
	if p.admin != nil {
		place.Admin = adminHere(p.admin.Addr())
	}
	if mistake := p.reloadError.Load(); mistake != nil {
		place.Mistake = *mistake
	}
	note, err := runfile.Note(p.getenv, p.file, place, string(p.owner))
	if err != nil {
		p.log.Warn("commands find this process only at the addresses of the file", "error", err)
	}
	p.note.Store(note)
	if p.served != nil {
		p.served()
	}
}

// recordEnd records that this process ends, from stopping on. The caller calls end when nothing is served.
func (p *program) recordEnd(stopping context.Context) (end func()) {
	stop := context.AfterFunc(stopping, func() { p.note.Load().End() })
	return func() {
		stop()
		p.note.Load().End()
	}
}

// longestEnd is how long this process takes at most from a shutdown request to its end.
func (p *program) longestEnd() time.Duration {
	c := p.inForce() // no reload changes them
	return c.DrainDelay + c.ShutdownGrace + 10*time.Second
}
