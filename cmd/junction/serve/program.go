package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"junction/auth"
	"junction/auth/credentials"
	"junction/cmd/build"
	"junction/cmd/junction/base/cli"
	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/health"
	"junction/cmd/junction/base/record"
	"junction/cmd/junction/base/replicas"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/base/stored"
	"junction/cmd/junction/desk/clients"
	"junction/cmd/junction/ops/diagnose"
	"junction/cmd/junction/ops/pages"
	"junction/proxy/front"
	"junction/proxy/pins"
	"junction/upstream"
)

// program holds the parts of a running proxy. open creates them; close releases them.
type program struct {
	*console
	terminal   terminal
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
	catalogs      *stored.Dir // nil if there is no folder for catalogs
	sandboxes     string      // the parent of the sandbox folders of commands; "" if there is none
	outages       record.Outages
	owner         diagnose.Owner                 // of the admin address
	note          atomic.Pointer[runfile.Record] // where this process serves; nil before that
	sources       *credentials.Sources           // of the credentials for upstreams
	guard         atomic.Pointer[auth.Guard]     // of the configuration in force
	recording     *recording
	measuring     *measuring
	health        *health.Monitor
	supervisor    *health.Supervisor              // nil if systemd does not ask for the state
	members       *replicas.Member                // nil if there is one process
	reloadError   atomic.Pointer[string]          // why the last reload failed; nil after a successful reload
	partial       atomic.Pointer[config.Partial]  // what of the file is not in force; nil unless refused in part
	waiting       atomic.Pointer[string]          // which changes of the file wait for a restart; nil or "" if none
	warnings      atomic.Pointer[config.Problems] // of the file in force; nil before open
	reach         atomic.Pointer[reach]           // of the configuration in force

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
	shared := newConsole(o)
	p := &program{console: shared, terminal: terminal{shared},
		recording: &recording{console: shared}, measuring: &measuring{console: shared},
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
	p.config = c
	if err := p.terminal.Open(c); err != nil {
		return nil, err
	}
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
	if err := p.recording.Open(c); err != nil {
		return nil, err
	}
	secret, dir, err := p.key(c.Sessions.KeyFile)
	if err != nil {
		return nil, err
	}
	p.openCatalogs(secret, dir)
	p.sandboxes = config.Sandboxes(dir, p.file)
	if err := p.measuring.openTelemetry(c.Metrics && p.admin != nil); err != nil {
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
		Observer: p.measuring.telemetry.Requests(), Members: p.proxyMembers(),
	}
	p.ended, options.DeletedSessions = stored.OpenSessions(dir, c.Limits.WithDefaults().Sessions, p.log)
	if p.ended != nil {
		options.SessionDeleted = p.ended.Add
	}
	p.server = front.New(options)
	p.apply(c)
	return p, p.watch()
}

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
	p.measuring.Close()
	p.recording.Close()
	p.terminal.Close()
}
