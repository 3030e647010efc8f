package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"golang.org/x/sync/errgroup"

	"junction/auth"
	"junction/auth/credentials"
	"junction/cmd/build"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/health"
	"junction/cmd/junction/base/listeners"
	"junction/cmd/junction/base/record"
	"junction/cmd/junction/base/replicas"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/base/stored"
	"junction/cmd/junction/base/telemetry"
	"junction/cmd/junction/base/telemetry/otlp"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/desk/screen"
	"junction/cmd/junction/ops/diagnose"
	"junction/cmd/junction/ops/pages"
	"junction/policy"
	"junction/proxy"
	"junction/proxy/front"
	"junction/proxy/pins"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/http1"
	"junction/upstream/prose"
	"junction/upstream/shell"
)

// options are the inputs of a program: the command line and the standard streams of the process.
type options struct {
	file, listen   string
	stdout, stderr io.Writer
	getenv         func(string) (string, bool)
	lastGood       bool // a mistake in the file does not prevent the start, see own.go
	inner          bool // it serves this process alone, see own.go
	// why the content of the file is not served; nil if it was not tried. The last good content is served.
	unserved error
	served   func() // if it is not nil, called when the process serves, and is recorded
}

// program holds the parts of a running proxy. open creates them; close releases them.
type program struct {
	options
	log        *slog.Logger
	config     *config.Config // owned by open, then by reloadLoop; all others call inForce
	hash       [32]byte
	begun      time.Time
	unreadable bool     // the file is missing, which was reported; owned by reloadLoop
	unfinished [32]byte // the hash of the file when reload looked last; owned by reloadLoop
	// the hash of the file whose reload has ended last
	loadedHash atomic.Pointer[[32]byte]
	pins       *pins.Pins // the content of the pins file; nil without one. Owned by reloadLoop, like config

	public, admin net.Listener          // admin may be nil
	vault         atomic.Pointer[vault] // nil if no token is stored; a reload may open it
	signIn        *signIn               // nil without auth.oauth
	providers     *auth.Providers
	connect       *pages.Connect
	calls         pages.Calls
	server        *front.Server
	ended         *stored.Sessions // nil if deleted sessions are not stored
	set           upstream.Set
	catalogs      *stored.Dir             // nil if there is no folder for catalogs
	keys          *stored.Keys            // of the file; nil if they are not followed. Owned by reloadLoop, like config
	back          map[auth.Hash]time.Time // when the keys of the file that are back were revoked; owned like keys
	sandboxes     string                  // the parent of the sandbox folders of commands; "" if there is none
	outages       record.Outages
	installed     *installed
	screen        *screen.Screen
	owner         diagnose.Owner                 // of the admin address
	note          atomic.Pointer[runfile.Record] // where this process serves; nil before that
	sources       *credentials.Sources           // of the credentials for upstreams
	guard         atomic.Pointer[auth.Guard]     // of the configuration in force
	audit         record.Trail
	telemetry     *telemetry.Telemetry // nil if nothing is measured
	auditExport   *otlp.Lines          // the second receiver of the audit; nil if the environment names none
	health        *health.Monitor
	supervisor    *health.Supervisor              // nil if systemd does not ask for the state
	members       *replicas.Member                // nil if there is one process
	reloadError   atomic.Pointer[string]          // why the last reload failed; nil after a successful reload
	partial       atomic.Pointer[config.Partial]  // what of the file is not in force; nil unless refused in part
	waiting       atomic.Pointer[string]          // which changes of the file wait for a restart; nil or "" if none
	warnings      atomic.Pointer[config.Problems] // of the file in force; nil before open
	reach         atomic.Pointer[reach]           // of the configuration in force

	// of an inner program: the file that another process writes, and its own; see nextAudit
	auditOf, auditInstead string

	tried   atomic.Bool   // see diagnose.Proxy
	refresh chan struct{} // 1-buffered: a shared catalog has changed
	recheck chan struct{} // 1-buffered: the catalog of a user's own upstream has changed
	events  chan struct{} // 1-buffered: this process has stored an event
}

// Run serves a configuration file, or the demo if file is "", until ctx ends or a listener fails. listen
// overrides the address of the file unless it is "".
func Run(ctx context.Context, file, listen string, stdout, stderr io.Writer) error {
	return runProxy(ctx, options{file: file, listen: listen, stdout: stdout, stderr: stderr, getenv: os.LookupEnv})
}

// runProxy opens a program and serves until ctx ends or a listener fails.
func runProxy(ctx context.Context, o options) error {
	// The rest is for the kernel's buffers and for commands, which are in the same container.
	// GOMEMLIMIT takes precedence.
	_, limitErr := memlimit.Set(memlimit.WithRatio(0.8))
	p, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { p.note.Load().Forget() }() // last: the storage is free
	defer p.close()
	p.logMemory(limitErr)
	p.logMissing()
	p.logGood()
	defer runtime.KeepAlive(ballast())
	return p.serve(ctx)
}

// newProgram returns a program without any part that needs to be closed.
func newProgram(o options) *program {
	first := screen.New(o.stdout, o.stderr)
	o.stderr = first.Log()
	p := &program{options: o, installed: newInstalled(), screen: first,
		refresh: make(chan struct{}, 1), recheck: make(chan struct{}, 1),
		events: make(chan struct{}, 1), owner: diagnose.Owner(rand.Text())}
	p.sources = p.newSources()
	return p
}

// open opens the listeners and files and starts the upstreams. After an error nothing stays open.
func open(o options) (_ *program, err error) {
	p := newProgram(o)
	o = p.options // whose stderr keeps the log apart from the first screen
	c, warnings, err := p.load()
	if err != nil {
		return nil, err
	}
	if o.file == "" {
		c.Upstreams = map[string]upstream.Config{"demo": {Command: []string{config.Self, "demo"}}}
	}
	c.Listen = cmp.Or(o.listen, c.Listen)
	p.screen.Hold()
	p.config, p.log = c, record.NewLog(o.stderr, c.Log)
	p.audit.Log = p.log
	p.warn(warnings)
	p.warnings.Store(&warnings)
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if problem := c.ListenProblem(c.Listen, false, false); problem != "" {
		return nil, cli.Usagef("--listen %s: %s", c.Listen, problem)
	}
	if err := p.openListeners(c); err != nil {
		return nil, err
	}
	if err := p.boundListeners(); err != nil {
		return nil, err
	}
	if p.pins, err = loadPins(c, p.file); err != nil {
		return nil, err
	}
	if err := p.openAuditExport(c.Audit.OTLP); err != nil {
		return nil, err
	}
	audit, err := p.nextAudit(c.Audit)
	if err != nil {
		return nil, err
	}
	p.audit.Use(audit)
	secret, dir, err := p.key(c.Sessions.KeyFile)
	if err != nil {
		return nil, err
	}
	p.openKeys(dir)
	if back := p.followKeys(c); len(back) > 0 {
		p.warn(back)
		warnings = slices.Concat(back, warnings)
		p.warnings.Store(&warnings)
	}
	p.openCatalogs(secret, dir)
	p.sandboxes = config.Sandboxes(dir, p.file)
	if err := p.openTelemetry(c); err != nil {
		return nil, err
	}
	if err := p.openSignIn(c); err != nil {
		return nil, err
	}
	if err := p.openMembers(c, secret); err != nil {
		return nil, err
	}
	p.health = p.monitor()
	if p.connect, err = pages.NewConnect(p.access, p.clients, clients.KeyVariable, p.log); err != nil {
		return nil, err
	}
	options := front.Options{
		Limits: c.Limits, Sessions: c.Sessions, Key: secret, Log: p.log,
		Version: build.Read().Version, Hooks: p.proxyHooks(),
		Observer: p.telemetry.Requests(), Members: p.proxyMembers(),
	}
	p.ended, options.DeletedSessions = stored.OpenSessions(dir, c.Limits.WithDefaults().Sessions, p.log)
	if p.ended != nil {
		options.SessionDeleted = p.ended.Add
	}
	p.server = front.New(options)
	p.apply(c)
	return p, p.watch()
}

// load reads the configuration file.
func (p *program) load() (*config.Config, config.Problems, error) {
	// computed before Load, so that reloadLoop notices a change between the two
	hash, hashErr := config.Checksum(p.file)
	if p.unserved != nil && !p.isGood(hash) {
		if c, ok := p.loadGood(unservedBecause(p.unserved), hash); ok && hashErr == nil {
			return c, nil, nil
		}
		return nil, nil, errNoGood
	}
	c, warnings, err := config.LoadServing(p.file, p.getenv, false)
	if problems, ok := errors.AsType[config.Problems](err); ok {
		config.PrintProblems(p.stderr, problems, warnings)
		if c, ok := p.loadGood(mistakesOf(problems), hash); ok && hashErr == nil {
			return c, nil, nil
		}
		return nil, nil, fmt.Errorf("%s has %s; %w", p.file, prose.Count(len(problems), "mistake"), errNoGood)
	} else if err = cmp.Or(err, hashErr); err != nil {
		return nil, nil, err
	}
	p.readFile(hash)
	return c, warnings, nil
}

// apply puts a validated configuration in force.
func (p *program) apply(c *config.Config) {
	limits := c.Limits.WithDefaults()
	executable, err := os.Executable()
	if err != nil {
		executable = "" // then "junction" is not replaced in commands, and the upstream reports a missing program
	}
	var own auth.Verifier
	if p.signIn != nil {
		own = p.signIn.verifier(c)
	}
	guard := c.Auth.Guard(p.providers, cmp.Or(c.PublicURL, strings.TrimSuffix(p.url(), "/mcp")), own)
	guard.Log, guard.Refused, guard.Accepted = p.log, p.audit.Refused, p.audit.Authenticated
	guard.Checked = p.telemetry.Checked
	p.guard.Store(guard)
	next := scope.Config{Guard: guard, Policy: p.policy(c), Pins: p.pins,
		FirstWait: c.Catalog.FirstWait, Endpoints: c.Endpoints, Names: c.Names, BehindProxy: c.Auth.None,
		AllowedOrigins: append(listeners.Origins(p.public.Addr()), c.AllowedOrigins...), AllowedHosts: c.AllowedHosts}
	if u, err := url.Parse(c.PublicURL); c.PublicURL != "" && err == nil {
		next.AllowedOrigins = append(next.AllowedOrigins, c.PublicURL)
		// The name with any port: a reverse proxy may pass Host without the port of public_url.
		next.AllowedHosts = append(slices.Clip(next.AllowedHosts), u.Hostname())
	}
	if p.signIn != nil && len(c.Personal()) > 0 {
		next.People = p.signIn
	}
	p.sources.Use(c.Upstreams)
	o := upstream.Options{
		Defaults: c.Defaults, MessageLimit: limits.Message, Depth: limits.Nesting, Items: limits.Items,
		Refresh: c.Catalog.Refresh, Grace: c.Catalog.Grace,
		Version: build.Read().Version, Self: executable, Sandboxes: p.sandboxes, Writable: c.Writable,
		Log: p.log, Hooks: p.upstreamHooks(),
		Observer: p.telemetry.Calls(), Credentials: p.sources, Memory: p.server.UpstreamMemory,
	}
	if p.catalogs != nil {
		o.Store = p.catalogs
	}
	p.set.Apply(c.Upstreams, o, func(running []*upstream.Upstream) { p.server.Apply(next, running) })
	p.cleanCatalogs(c)
	p.reach.Store(&reach{next.Policy, c})
	p.config = c
}

// policy compiles the policies of the file. Without the key policies, every principal may use
// everything.
func (p *program) policy(c *config.Config) *policy.Policy {
	compiled, err := c.Compile()
	if err != nil {
		// unreachable: Load rejects such a file
		p.log.Error("all requests are denied: the policies cannot be understood", "error", err)
		return nil
	}
	return compiled
}

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
	p.record("started", fingerprint(p.file, p.hash), proxy.OK)
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
	defer p.record("stopped", "", proxy.OK)
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

// publicHandler returns the handler of clients: the pages and metadata that need no authentication,
// and MCP.
func (p *program) publicHandler() http.Handler {
	ids := auth.NewRequestIDs()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ids.Stamp(w)
		if p.connect.Serves(r) {
			if p.server.CheckWay(w, r) {
				p.connect.ServeHTTP(w, r)
			}
			return
		}
		if p.signIn != nil && p.signIn.serves(r) {
			// Documents below /.well-known/ are public and the same for every caller: their Host header
			// is not checked.
			if strings.HasPrefix(r.URL.Path, "/.well-known/") || p.server.CheckWay(w, r) {
				p.signIn.ServeHTTP(w, r)
			}
			return
		}
		if strings.HasPrefix(r.URL.Path, "/.well-known/") {
			p.guard.Load().Resources.ServeHTTP(w, r)
			return
		}
		if p.connect.ServesMissing(r) {
			if p.server.CheckWay(w, r) {
				p.connect.Missing(w, r)
			}
			return
		}
		if !p.alone(w) {
			p.server.ServeHTTP(w, r)
		}
	})
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

// url returns the URL for clients on this machine.
func (p *program) url() string { return "http://" + p.public.Addr().String() + "/mcp" }

// close releases everything that open has opened so far. It works on a partly opened program.
func (p *program) close() {
	p.set.Close()
	p.sources.Close()
	if p.catalogs != nil {
		p.catalogs.Close()
	}
	if p.providers != nil {
		p.providers.Close()
	}
	if p.members != nil {
		p.members.Close()
	}
	if p.admin != nil {
		p.admin.Close()
	}
	if p.public != nil {
		p.public.Close()
	}
	p.signIn.close()
	p.fileEvents(context.Background(), lastEvents)
	p.vault.Load().close()
	p.ended.Close()
	p.closeTelemetry()
	p.audit.Use(nil)
	p.closeAuditExport()
	record.FlushLog(p.log)
	p.screen.Release()
}

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

// idleTimeout limits how long a connection stays open without a request. It is longer than clients
// pause between two calls of one task, so that they need not reconnect.
const idleTimeout = 2 * time.Minute
