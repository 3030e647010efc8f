package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/upstream/jsonrpc"
)

// Options is what all upstreams of a Set share.
type Options struct {
	Defaults     Defaults
	MessageLimit Size          // of one message; 0 is 64 MiB
	Depth        int           // of arrays and objects in one message; 0 is 256
	Items        int           // that one upstream may list; 0 is 10000
	Refresh      time.Duration // of catalogs that cannot tell of changes; 0 is 5m
	Grace        time.Duration // for which the items of a lost upstream stay; 0 is 30s
	Version      string        // ours, in handshakes
	Self         string        // our executable: what the program name "junction" in a command stands for; "" is no special name
	Log          *slog.Logger  // nil discards
	Hooks        Hooks
}

// Hooks report what happens. Each may be nil. They are called one at a time per upstream, must not block, and must not call back into it.
type Hooks struct {
	// StateChanged is called when the link that reads the catalog changes its state.
	StateChanged func(name string, s State, err error)
	// CatalogChanged is called when Catalog returns something else than before.
	CatalogChanged func(name string)
}

func (o Options) withDefaults() Options {
	o.MessageLimit = firstPositive(o.MessageLimit, 64<<20)
	o.Depth = firstPositive(o.Depth, 256)
	o.Items = firstPositive(o.Items, 10000)
	o.Refresh = firstPositive(o.Refresh, 5*time.Minute)
	o.Grace = firstPositive(o.Grace, 30*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Upstream is one configured server: its links by profile, and its catalog.
type Upstream struct {
	name    string
	given   Config // as configured
	config  Config // with defaults
	options Options
	log     *slog.Logger
	dialer  *dialer

	slots   chan struct{} // one for each call in flight
	catalog atomic.Pointer[Catalog]

	mu     sync.Mutex
	links  map[linkKey]*link
	freed  chan struct{} // closed and replaced when a link has become idle or is gone
	closed bool
	grace  *time.Timer // until the catalog of a lost upstream is given up; nil while the upstream is there
	status Status      // of the link that reads the catalog; Tools, Left and Links are not kept
}

// Start returns an upstream that connects in the background. Close ends it.
func Start(name string, c Config, o Options) *Upstream {
	o = o.withDefaults()
	u := &Upstream{name: name, given: c, config: c.withDefaults(o.Defaults), options: o, log: o.Log.With("upstream", name),
		links: map[linkKey]*link{}, freed: make(chan struct{})}
	u.slots = make(chan struct{}, u.config.Concurrency)
	u.catalog.Store(&Catalog{})
	u.status = Status{Name: name, Since: time.Now()}
	u.dialer = &dialer{config: u.config, options: o, log: u.log, known: new(knowledge)}
	if c.URL != "" {
		u.dialer.transport = transportFor(c.URL)
	}
	u.mu.Lock()
	u.links[linkKey{}] = startLink(u, linkKey{}, true)
	u.mu.Unlock()
	return u
}

// Name returns the name in the configuration.
func (u *Upstream) Name() string { return u.name }

// Config returns what the upstream was started with.
func (u *Upstream) Config() Config { return u.given }

// Catalog returns what the upstream offers, as far as we know. It is never nil and never modified.
func (u *Upstream) Catalog() *Catalog { return u.catalog.Load() }

// Status returns the state of the upstream for a person to read.
func (u *Upstream) Status() Status {
	u.mu.Lock()
	s := u.status
	s.Links = len(u.links)
	u.mu.Unlock()
	c := u.Catalog()
	s.Era, s.Version, s.Tools, s.Left = c.Era, c.Version, len(c.Tools), c.Left
	return s
}

// Call makes a client's call and returns the result as the server wrote it. The error is a *jsonrpc.Error if the server said so, and an *Error otherwise. The
// call is sent once; it is sent again only where it provably was not received.
func (u *Upstream) Call(ctx context.Context, c *Call) ([]byte, error) {
	timeout, max, tool := u.limits(c)
	ctx, clock, stop := newClock(ctx, timeout, max)
	defer stop()
	select {
	case u.slots <- struct{}{}:
		defer func() { <-u.slots }()
	default:
		select {
		case u.slots <- struct{}{}:
			defer func() { <-u.slots }()
		case <-ctx.Done():
			return nil, &Error{u.name, KindBusy, fmt.Errorf("all %d calls that it takes at once (concurrency) are in use", u.config.Concurrency)}
		}
	}
	own := *c
	for again := false; ; again = true {
		if tool != nil && len(tool.Params) > 0 {
			arguments, _ := c.Params.Object("arguments")
			own.Header = append(encodeParams(tool.Params, arguments), c.Header...)
		}
		l, cn, err := u.acquire(ctx, c)
		if err != nil {
			return nil, u.unavailable(ctx, err)
		}
		result, err := cn.call(ctx, &own, clock)
		var peer *jsonrpc.Error
		switch {
		case err == nil:
			l.release()
			return result, nil
		case errors.As(err, &peer) && peer.Code == codeHeaderMismatch && !again:
			// Our headers come from a definition that has changed meanwhile: read it again and call once more (2026-07-28, streamable-http#client-behavior).
			if u.readCatalog(ctx, cn) == nil {
				tool = u.Catalog().Tool(c.Name)
			}
			l.release()
		case errors.As(err, &peer) && peer.Code == codeUnsupportedVersion && !again:
			l.fail(cn, err)
			l.release()
		case errors.As(err, &peer):
			l.release()
			return nil, peer
		case errors.Is(err, errNotSent) && !again && ctx.Err() == nil:
			l.fail(cn, err)
			l.release()
		default:
			if errors.Is(err, errNotSent) {
				l.fail(cn, err)
			}
			l.release()
			return nil, &Error{u.name, kindOf(err), err}
		}
	}
}

// limits returns the time that a call may take, and the tool that it calls, if it calls one that we know.
func (u *Upstream) limits(c *Call) (timeout, max time.Duration, tool *Tool) {
	timeout, max = u.config.Timeout, u.config.MaxTimeout
	if c.Method != string(mcp.MethodToolsCall) {
		return timeout, max, nil
	}
	if rule, ok := u.config.Tools.Match(c.Name); ok {
		timeout, max = firstPositive(rule.Timeout, timeout), firstPositive(rule.MaxTimeout, max)
	}
	return timeout, max, u.Catalog().Tool(c.Name)
}

// unavailable is the error of a call that got no connection.
func (u *Upstream) unavailable(ctx context.Context, err error) error {
	var known *Error
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(context.Cause(ctx), context.Canceled):
		return &Error{u.name, KindCancelled, context.Canceled}
	}
	return &Error{u.name, KindUnavailable, err}
}

// acquire returns a ready conn of the link for the call. The link must be released.
func (u *Upstream) acquire(ctx context.Context, c *Call) (*link, conn, error) {
	key := linkKey{profile: c.Profile}
	if u.Catalog().Era == EraModern {
		key.profile = Profile{} // every request says it itself
	}
	switch u.config.Isolation {
	case IsolationSession:
		key.owner = "session " + c.Session
		if c.Session == "" {
			key.owner = "principal " + c.Principal
		}
	case IsolationPrincipal:
		key.owner = "principal " + c.Principal
	}
	for {
		l, err := u.link(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		cn, err := l.acquire(ctx)
		if err == nil {
			return l, cn, nil
		}
		if !errors.Is(err, errClosed) && !errors.Is(err, errIdle) {
			return nil, nil, err
		}
		<-l.done // it was closing just now; the next one is new
	}
}

// link returns the link of that key, which it starts when there is none and there is room.
func (u *Upstream) link(ctx context.Context, key linkKey) (*link, error) {
	for {
		u.mu.Lock()
		l := u.links[key]
		switch {
		case u.closed:
			u.mu.Unlock()
			return nil, errors.New("it was taken out of the configuration, or we are shutting down")
		case l != nil:
			u.mu.Unlock()
			return l, nil
		case len(u.links) < u.config.MaxLinks || key == linkKey{}:
			l = startLink(u, key, key == linkKey{})
			u.links[key] = l
			u.mu.Unlock()
			return l, nil
		}
		spare, freed := u.takeIdle(), u.freed
		u.mu.Unlock()
		if spare != nil {
			spare.close()
			continue
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, &Error{u.name, KindBusy, fmt.Errorf("all %d connections (max_links) are in use", u.config.MaxLinks)}
		}
	}
}

// takeIdle takes the link that was unused for longest out of use, but not the one that reads the catalog; nil if all are in use. u.mu is held.
func (u *Upstream) takeIdle() *link {
	var found *link
	var used time.Time
	for _, l := range u.links {
		l.mu.Lock()
		if !l.reads && l.calls == 0 && l.state != StateClosed && (found == nil || l.used.Before(used)) {
			found, used = l, l.used
		}
		l.mu.Unlock()
	}
	if found == nil || !found.retire() {
		return nil
	}
	return found
}

// forget is called by a link that has ended.
func (u *Upstream) forget(l *link) {
	u.mu.Lock()
	if u.links[l.key] == l {
		delete(u.links, l.key)
	}
	u.mu.Unlock()
	u.linkIdle()
}

// linkIdle tells the calls that wait for room.
func (u *Upstream) linkIdle() {
	u.mu.Lock()
	close(u.freed)
	u.freed = make(chan struct{})
	u.mu.Unlock()
}

// linkChanged is called by the link that reads the catalog.
func (u *Upstream) linkChanged(before, now State, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.status.State, u.status.Since = now, time.Now()
	switch now {
	case StateReady:
		u.status.Err = ""
		if u.grace != nil {
			u.grace.Stop()
			u.grace = nil
		}
	case StateWaiting, StateBlocked:
		u.status.Err = describe(err)
		if u.grace == nil && !u.closed {
			u.grace = time.AfterFunc(u.options.Grace, u.giveUp)
		}
	}
	if u.options.Hooks.StateChanged != nil && before != now && !u.closed {
		u.options.Hooks.StateChanged(u.name, now, err)
	}
}

// giveUp drops the catalog of an upstream that did not come back in time.
func (u *Upstream) giveUp() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if old := u.Catalog(); u.grace == nil || u.closed || old.Listed.IsZero() {
		return
	}
	u.publish(&Catalog{Era: u.Catalog().Era, Version: u.Catalog().Version})
}

// readCatalog reads the catalog over c and publishes it.
func (u *Upstream) readCatalog(ctx context.Context, c conn) error {
	cat, err := readCatalog(ctx, c, u.options.Items)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.publish(cat)
	return nil
}

// publish makes cat the catalog; u.mu is held.
func (u *Upstream) publish(cat *Catalog) {
	old := u.catalog.Swap(cat)
	if old.equal(cat) {
		return
	}
	for _, left := range cat.Left {
		u.log.Warn("tool left out", "tool", left.Name, "reason", left.Reason)
	}
	if u.options.Hooks.CatalogChanged != nil {
		u.options.Hooks.CatalogChanged(u.name)
	}
}

// drain returns when no call is in flight, or when ctx ends.
func (u *Upstream) drain(ctx context.Context) {
	for n := range cap(u.slots) {
		select {
		case u.slots <- struct{}{}:
		case <-ctx.Done():
			for range n {
				<-u.slots
			}
			return
		}
	}
	for range cap(u.slots) {
		<-u.slots
	}
}

// Close ends the upstream's connections and processes, and the calls on them; it returns when nothing of it is left.
func (u *Upstream) Close() {
	u.mu.Lock()
	u.closed = true
	if u.grace != nil {
		u.grace.Stop()
		u.grace = nil
	}
	links := make([]*link, 0, len(u.links))
	for _, l := range u.links {
		links = append(links, l)
	}
	u.mu.Unlock()
	var wg sync.WaitGroup
	for _, l := range links {
		wg.Go(l.close)
	}
	wg.Wait()
	if t, ok := u.dialer.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// same reports whether an upstream of this configuration would be the one that runs.
func (u *Upstream) same(c Config, o Options) bool {
	o = o.withDefaults()
	return reflect.DeepEqual(u.config, c.withDefaults(o.Defaults)) && u.options.MessageLimit == o.MessageLimit && u.options.Depth == o.Depth &&
		u.options.Items == o.Items && u.options.Refresh == o.Refresh && u.options.Grace == o.Grace
}
