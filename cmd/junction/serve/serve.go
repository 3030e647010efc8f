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
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/go-chi/chi/v5"
	"golang.org/x/sync/errgroup"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/listeners"
	"junction/cmd/junction/desk/screen"
	"junction/cmd/junction/ops/console"
	"junction/cmd/junction/ops/diagnose"
	"junction/proxy"
	"junction/upstream/http1"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// serve answers requests until ctx ends and then shuts down: it accepts no new connections, ends
// streams, and lets in-flight calls finish within the grace.
func (p *program) serve(stopping context.Context) error {
	ctx, served := p.drain(stopping)
	defer served()
	c := p.inForce.now()
	limits := c.Limits.WithDefaults()
	public := &http1.Server{HTTP: &http.Server{
		Handler: listeners.Guarded(p.log, p.serving.publicHandler()), BaseContext: p.serving.server.BaseContext,
		ReadTimeout: limits.ReadTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: int(limits.Header),
		WriteTimeout: limits.WriteTimeout, // calls and streams extend the deadline before they write
		ErrorLog:     slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}}
	seen := p.pages.asSeen()
	page, err := p.pages.statusPages(stopping, ctx)
	if err != nil {
		return err
	}
	own, err := p.pages.consoleOf(page)
	if err != nil {
		return err
	}
	seen.Page = func(r chi.Router) {
		page.Register(r)
		own.Register(r)
	}
	seen.Console, seen.ConsolePrefix = own, console.Prefix
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
	endpoint, keys := p.listening.url(), len(c.Auth.APIKeys) > 0 && !c.Auth.SignsIn()
	where := []any{"url", endpoint}
	if c.PublicURL != "" {
		endpoint = c.PublicURL + "/mcp"
	}
	if p.listening.admin != nil {
		serveOn(admin, p.listening.admin)
		where = append(where, "admin", "http://"+adminHere(p.listening.admin.Addr()))
	}
	if p.listening.secure != nil {
		where = append(where, "tls", p.listening.secure)
	}
	if p.file != "" {
		where = append(where, "config", p.fullFile())
	}
	hup := make(chan os.Signal, 1)
	if p.file != "" { // before anybody can know the process: without a reader, the signal ends it
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
	}
	endMembers := p.membership.serve(ctx, group)
	stopped := make(chan struct{})
	defer close(stopped)
	hurried, hurry := context.WithCancel(context.WithoutCancel(stopping))
	defer hurry()
	defer context.AfterFunc(stopping, func() { p.membership.leave(stopped, func() { hurry(); served() }) })()
	p.membership.join(ctx)
	serveOn(public, p.listening.public)
	p.place.announce()
	defer p.place.recordEnd(stopping)()
	level := slog.LevelInfo
	if p.screen.Holds() { // which shows the addresses
		level = slog.LevelDebug
	}
	p.log.Log(ctx, level, "serving", where...)
	defer p.checks.tellSupervisor(stopping, ctx, group, func() { seen.Report(ctx) })()
	p.recording.event("started", fingerprint(p.file, p.contents.hash), proxy.OK)
	p.parts.Run(ctx, group)
	group.Go(func() error { return p.reloadLoop(ctx, hup) })
	group.Go(func() error { return p.welcome(ctx, endpoint, keys) })
	group.Go(func() error {
		<-ctx.Done()
		p.log.Info("shutting down", "grace", grace)
		p.stop(hurried, public, grace, endMembers)
		admin.Close() // last, so that /readyz reports the shutdown until the end
		return nil
	})
	defer p.recording.event("stopped", "", proxy.OK)
	return group.Wait()
}

// stop ends the listener for clients. Calls in flight may continue for the grace, or until ctx ends. The requests of
// other members are answered until then: they have the answers and the cancellations of these
// calls. Sessions without a call are given up at once, each with its next request (package front).
func (p *program) stop(
	ctx context.Context, public *http1.Server, grace time.Duration, endMembers func(time.Duration),
) {
	limit := time.Now().Add(grace)
	p.serving.server.Shutdown()
	if shutdown(ctx, public, grace) && p.membership.finishCalls(ctx, limit) {
		endMembers(time.Until(limit))
		return
	}
	if ctx.Err() == nil {
		p.log.Warn("calls are cut off: the grace is over (shutdown_grace)")
	} else {
		p.log.Warn("calls are cut off: a second signal has ended the grace")
	}
	p.serving.server.Kill()
	// No call needs an upstream any more: the upstreams end while the last answers are written.
	var closing sync.WaitGroup
	closing.Go(p.upstreams.set.Close)
	shutdown(context.Background(), public, lastAnswers)
	public.Close()
	if ctx.Err() != nil {
		closing.Wait() // the others take over when no process of a server is left
	}
	endMembers(lastAnswers)
	closing.Wait()
}

// lastAnswers limits how long the answers of calls that were cut off may take to reach their
// clients.
const lastAnswers = time.Second

// shutdown waits for in-flight requests, and reports whether all of them ended in time and before ctx.
func shutdown(ctx context.Context, s *http1.Server, wait time.Duration) bool {
	limit, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return s.Shutdown(limit) == nil
}

// idleTimeout limits how long a connection stays open without a request. It is longer than clients
// pause between two calls of one task, so that they need not reconnect.
const idleTimeout = 2 * time.Minute

// fullFile returns the path of the configuration file from the root.
func (p *program) fullFile() string {
	if full, err := filepath.Abs(p.file); err == nil {
		return full
	}
	return p.file
}

// welcome prints the first screen, until all upstreams have been tried.
func (p *program) welcome(ctx context.Context, endpoint string, keys bool) error {
	t := screen.Text{URL: endpoint, Keys: keys, Open: p.inForce.now().Auth.Open(), Demo: p.file == ""}
	if p.listening.admin != nil {
		t.Status = "http://" + p.listening.admin.Addr().String() + "/"
	}
	if p.file != "" {
		t.Config = prose.Tilde(p.fullFile())
	}
	if p.file != "" && p.file != config.UserFile() {
		t.Flags = " " + shell.Join("--config", p.file)
	}
	for _, w := range *p.contents.warnings.Load() {
		if config.Grave(w) {
			t.Warnings = append(t.Warnings, prose.Tilde(w.String()))
		}
	}
	t.Trouble = func() ([]screen.Trouble, bool) { return p.checks.trouble(t.Flags) }
	seen := p.pages.asSeen()
	t.Disabled = seen.Report(ctx).Disabled
	p.screen.Run(ctx, &t, func() []diagnose.UpstreamStatus { return seen.Report(ctx).Upstreams }, func() {
		p.serving.server.Settle() // a client that reads "ready" must find the tools
		// returns the memory that only the start needed; the collector runs rarely from now on
		debug.FreeOSMemory()
	})
	return nil
}

// drain returns a context that ends drain_delay after stopping. The caller must call end.
func (p *program) drain(stopping context.Context) (serving context.Context, end context.CancelFunc) {
	delay := p.inForce.now().DrainDelay // no reload changes it
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
