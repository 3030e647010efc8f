package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"junction/upstream/client"
	"junction/upstream/pace"
	"junction/upstream/stdio"
	"junction/upstream/transport"
)

// pool holds the links of an upstream by profile, and the catalog that one of them reads. A change
// of the configuration that concerns only calls keeps the pool.
type pool struct {
	name        string
	user        string // the user whom the pool belongs to; "" for the pool that all users share
	connConfig  Config // see Config.connConfig; with defaults
	options     Options
	log         *slog.Logger
	dialer      *client.Dialer
	lists       catalogs
	separate    atomic.Bool             // see Config
	stateful    atomic.Bool             // see Config
	given       atomic.Pointer[string]  // the last access token for the server; nil before the first
	dead        atomic.Pointer[error]   // why the link that reads the catalog is dead; nil if it is not
	exited      atomic.Pointer[string]  // see Status; nil if no process of the attempt has ended
	degraded    atomic.Int32            // links in StateDegraded
	crashes     atomic.Int64            // see Status
	evictions   atomic.Int64            // see Status
	askers      askers                  // see there
	rootless    atomic.Bool             // see Status.Rootless
	home        home                    // see there
	lent        atomic.Pointer[Folders] // see Bring; nil for none
	waits       atomic.Bool             // the link that reads the catalog is in StateWaiting
	emptyInBoth atomic.Bool             // the server has no items in both eras: see askLegacy
	legacyAlone atomic.Bool             // the server has items in the legacy era alone: see askLegacy
	started     time.Time
	met         chan struct{} // closed when the first attempt to connect has succeeded or failed

	mu      sync.Mutex
	links   map[linkKey]*link
	subs    map[linkKey]*subscriptions // of links that read a catalog
	flights int                        // calls in progress, including those that wait for a link
	// closed when a link became idle or ended, or the last call ended; nil while no call waits for
	// it
	freed    chan struct{}
	freeze   chan struct{} // closed when a link is degraded; nil while no call waits for a slot
	closed   bool
	legacy   legacySide   // of a modern server
	needs    secondNeeds  // of a command: who gets a second process
	refused  keptRefusals // of links that made room for others
	onlyConn noSecondConn // the first connection, if the server allowed no second one beside it
	last     State        // of the link that reads the catalog
	// of the link that reads the catalog; Era, Version, Tools, Left and Links are not kept
	status Status
}

// serves reports whether the pool fits the configuration.
func (p *pool) serves(c resolved, o Options) bool {
	return reflect.DeepEqual(p.connConfig, c.connConfig()) && p.options.MessageLimit == o.MessageLimit &&
		p.options.Depth == o.Depth &&
		p.options.Items == o.Items && p.options.Refresh == o.Refresh && p.options.Grace == o.Grace
}

func startPool(name, user string, config Config, o Options, before *Catalog) *pool {
	p := &pool{name: name, user: user, connConfig: config, options: o, log: o.Log.With("upstream", name),
		links: map[linkKey]*link{}, subs: map[linkKey]*subscriptions{},
		started: time.Now(), met: make(chan struct{})}
	stored := p.lists.begin(p, before)
	p.status = Status{Name: name, Since: time.Now()}
	p.dialer = client.NewDialer(p.dialOptions())
	if stored != before { // the stored catalog belongs to this entry
		p.expect(stored)
	}
	p.mu.Lock()
	p.links[p.reading()] = startLink(p, p.reading(), true, waiter{})
	p.mu.Unlock()
	return p
}

// Name returns the upstream's name in the configuration.
func (p *pool) Name() string { return p.name }

// Met returns a channel that is closed after the first attempt to connect.
func (p *pool) Met() <-chan struct{} { return p.met }

// Tried reports whether the first attempt to connect has ended.
func (p *pool) Tried() bool {
	return pace.IsClosed(p.met)
}

// meeting is how long the first request of a user waits for the user's own upstreams.
const meeting = 3 * time.Second

// Meet waits for the first attempt to connect, until 3 seconds after the start of the pool, or
// until ctx ends.
func (p *pool) Meet(ctx context.Context) {
	if !p.Tried() { // nearly never the case
		pace.Sleep(ctx, time.Until(p.started.Add(meeting)), p.met)
	}
}

// Catalog returns the last known catalog of the upstream. It is never nil and never modified.
func (p *pool) Catalog() *Catalog { return p.lists.last() }

// Relist reads the lists again, soon. It is for a caller who has seen that they have changed.
func (p *pool) Relist() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if l.readsCatalog {
			pace.Wake(l.relist)
		}
	}
}

// Announced returns a number that grows whenever the server announces a change of its lists, and
// whenever a user signs in or out.
func (p *pool) Announced() uint64 { return p.lists.announced.Load() }

// Status returns the state of the upstream, for display.
func (p *pool) Status() Status {
	p.mu.Lock()
	s := p.status
	s.Links, s.Degraded, s.Stuck = len(p.links), int(p.degraded.Load()), p.stuck()
	s.Awaited = p.longestPing()
	p.needs.Each(func(_, _ string, need secondNeed) {
		if need.learned {
			s.Seconds++
		}
	})
	s.Asks = p.askers.names()
	s.Rootless = p.rootless.Load()
	s.Crashes, s.Evictions = p.crashes.Load(), p.evictions.Load()
	for _, l := range p.links {
		c := l.current()
		if c == nil || c.Child() == nil {
			continue
		}
		if s.Processes = append(s.Processes, l.process(c.Child())); l.readsShared {
			for _, r := range c.Child().Reported() {
				s.Reported = append(s.Reported, stdio.Reported{At: r.At, Text: p.cleaned(r.Text)})
			}
		}
	}
	p.mu.Unlock()
	slices.SortFunc(s.Processes, func(a, b Process) int {
		return cmp.Or(b.Started.Compare(a.Started), cmp.Compare(a.PID, b.PID))
	})
	if exited := p.exited.Load(); exited != nil && s.State == StateStarting {
		s.Exited = *exited
	}
	if p.connConfig.Sandbox != nil {
		s.Sandbox = p.connConfig.Sandbox.Enforcement(p.options.kernel())
	}
	c := p.Catalog()
	s.Era, s.Version, s.Tools, s.Left, s.Stored = c.Era, c.Version, len(c.Tools), c.Left, c.Stored
	return s
}

// link returns the link with that key and holds it for the caller. If there is none, it starts one
// as soon as there is room. of is for startLink; failed is what hold returned.
func (p *pool) link(ctx context.Context, key linkKey, of waiter) (l *link, failed int, err error) {
	for {
		p.mu.Lock()
		l = p.links[key]
		switch {
		case p.closed:
			p.mu.Unlock()
			return nil, 0, errors.New("it was taken out of the configuration, or we are shutting down")
		case l != nil:
			failed = l.hold()
			p.mu.Unlock()
			return l, failed, nil
		case len(p.links) < p.connConfig.MaxLinks && !p.full(key) || key == p.reading():
			l = startLink(p, key, key == p.reading(), of)
			l.hold() // no attempt of a new link counts as failed yet, however fast one fails
			p.links[key] = l
			p.mu.Unlock()
			return l, 0, nil
		}
		spare, freed := p.takeIdle(key), p.whenFreed()
		held := spare == nil && p.allHeld(key)
		p.mu.Unlock()
		switch {
		case held && p.releaseGone(ctx, key):
			continue
		case held: // none becomes free in the time of a call
			return nil, 0, &Error{p.name, client.KindBusy, p.noRoom(key)}
		case spare != nil:
			spare.stop(transport.ErrClosed) // its place becomes free when it has ended
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return nil, 0, &Error{p.name, client.KindBusy, p.noRoom(key)}
		}
	}
}

// noRoom returns the reason why no link with that key can be started.
func (p *pool) noRoom(key linkKey) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	full := p.full(key)
	switch {
	case p.ByFolder():
		which, n := "(max_links", p.connConfig.MaxLinks
		if full {
			which, n = "of one user (half of max_links", p.share()
			if key.ofProgram() {
				s := p.programs()
				own := s.of(key.user)
				which, n = "of one program beside others (of max_links", s.counts[own]
				if own == knownPrograms {
					which = "of all programs after the third together (of max_links"
				}
			}
		}
		return fmt.Errorf("the limit of processes %s: %d) is reached, each works in another folder, and each was used "+
			"in the last %d minutes; try again later, or set a larger max_links in upstreams.%s", which, n,
			keptFor/time.Minute, p.name)
	case full:
		return fmt.Errorf("the limit of connections of one user (half of max_links: %d) is reached", p.share())
	}
	return fmt.Errorf("the limit of connections (max_links: %d) is reached", p.connConfig.MaxLinks)
}

// full reports whether the principal of the key has its maximum number of links; p.mu is held.
func (p *pool) full(key linkKey) bool {
	switch {
	case key.user == "":
		return false
	case key.ofProgram():
		s := p.programs()
		return s.full(p, key.user, len(p.links))
	}
	n := 0
	for other := range p.links {
		if other.user == key.user {
			n++
		}
	}
	return n >= p.share()
}

// share returns the maximum number of links of one principal.
func (p *pool) share() int { return max(1, p.connConfig.MaxLinks/2) }

// hasIdle reports whether an idle link could make room for one with that key; p.mu is held.
func (p *pool) hasIdle(key linkKey) bool {
	yields := p.mayYield(key)
	for other, l := range p.links {
		if !yields(other) {
			continue
		}
		l.mu.Lock()
		idle := !l.readsShared && l.calls == 0 && !l.kept()
		l.mu.Unlock()
		if idle {
			return true
		}
	}
	return false
}

// keptFor is how long the process of a folder is kept for its window after a call. Until then it does not make
// room for another folder.
const keptFor = 5 * time.Minute

// kept reports whether the link is kept for the windows of its folder; l.mu is held.
func (l *link) kept() bool {
	return l.pool.ByFolder() && l.key.number == 0 && l.state != StateClosed && time.Since(l.used) < keptFor
}

// allHeld reports whether all links that could make room for one with that key are of other folders, and in use or
// kept; p.mu is held.
func (p *pool) allHeld(key linkKey) bool {
	yields := p.mayYield(key)
	for other, l := range p.links {
		if l.readsShared || !yields(other) {
			continue
		}
		l.mu.Lock()
		kept := l.kept() || other.number == 0 && l.calls > 0
		l.mu.Unlock()
		if !kept {
			return false
		}
	}
	return p.ByFolder()
}

// releaseGone ends the time for which processes of folders are kept that no call can name any more, so that they
// make room for a link with that key. It reports whether there are any.
func (p *pool) releaseGone(ctx context.Context, key linkKey) (released bool) {
	p.mu.Lock()
	yields := p.mayYield(key)
	var links []*link
	for other, l := range p.links {
		if l.folders != nil && !l.readsShared && yields(other) {
			links = append(links, l)
		}
	}
	p.mu.Unlock()
	for _, l := range links {
		if !l.folders.gone(ctx) {
			continue
		}
		l.mu.Lock()
		if l.calls == 0 && l.kept() {
			l.used, released = time.Now().Add(-keptFor), true
		}
		l.mu.Unlock()
	}
	return released
}

// tell sends a notification over the ready links of callers: those with that key, any number and any headers.
func (p *pool) tell(key linkKey, method string) {
	var conns []client.Conn
	p.mu.Lock()
	for other, l := range p.links {
		if c := l.current(); c != nil && key.alike(other) {
			conns = append(conns, c)
		}
	}
	p.mu.Unlock()
	for _, c := range conns {
		c.Notify(method)
	}
}

// takeIdle retires the link that was unused for the longest time, to make room for one with that
// key. It never takes the link that reads the catalog, and returns nil if all are in use. If the
// principal of the key has its maximum, only links of that principal are taken. p.mu is held.
func (p *pool) takeIdle(key linkKey) *link {
	var found *link
	var used time.Time
	yields := p.mayYield(key)
	for other, l := range p.links {
		if !yields(other) {
			continue
		}
		l.mu.Lock()
		idle := !l.readsShared && l.calls == 0 && l.state != StateClosed && !l.kept()
		if idle && (found == nil || l.used.Before(used)) {
			found, used = l, l.used
		}
		l.mu.Unlock()
	}
	if found == nil {
		return nil
	}
	p.keepRefusal(found)
	if !found.retire() {
		return nil
	}
	if found.key.holder != "" {
		p.evictions.Add(1)
		p.log.Info("an unused connection of one user ends to make room for another one", "max_links",
			p.connConfig.MaxLinks)
	}
	return found
}

// forget removes a link that has ended.
func (p *pool) forget(l *link) {
	p.forgetOwn(l.key)
	p.mu.Lock()
	if p.links[l.key] == l {
		delete(p.links, l.key)
		p.unlink(l)
	}
	p.mu.Unlock()
	p.linkIdle()
}

// linkIdle wakes the calls that wait for room.
func (p *pool) linkIdle() {
	p.mu.Lock()
	p.tellFreed()
	p.mu.Unlock()
}

// readCatalog reads the catalog over c, the conn of the link with that key, and publishes it.
func (p *pool) readCatalog(ctx context.Context, key linkKey, c client.Conn) error {
	cat, err := p.lists.read(ctx, c, p.catalogOf(key))
	if err != nil {
		return err
	}
	p.adopt(key, c.Info(), cat)
	return nil
}

// adopt publishes a catalog that the link with that key has read. info describes its conn.
func (p *pool) adopt(key linkKey, info *client.Info, cat *Catalog) {
	cat.Interval = p.lists.interval(cat, info)
	if key == p.reading() {
		p.lists.publish(cat)
	} else {
		p.lists.publishOwn(key, cat)
	}
}

// begin and end count the calls in progress.
func (p *pool) begin() {
	p.mu.Lock()
	p.flights++
	p.mu.Unlock()
}

func (p *pool) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flights--; p.flights == 0 {
		p.tellFreed()
	}
}

// calling reports whether a call is in progress.
func (p *pool) calling() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flights > 0
}

// whenFreed returns a channel that is closed when a link or the last call has ended; p.mu is held.
func (p *pool) whenFreed() <-chan struct{} {
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	return p.freed
}

// tellFreed wakes the callers that wait for whenFreed; p.mu is held.
func (p *pool) tellFreed() {
	p.options.seats.wake()
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// drain waits until no call is in progress, or until ctx ends.
func (p *pool) drain(ctx context.Context) {
	for {
		p.mu.Lock()
		busy, freed := p.flights > 0, p.whenFreed()
		p.mu.Unlock()
		if !busy {
			return
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return
		}
	}
}

// Close ends the upstream's connections and processes, and the calls on them. It waits until all of
// them have ended.
func (p *pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.lists.close()
	links := slices.Collect(maps.Values(p.links))
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, l := range links {
		wg.Go(l.close)
	}
	wg.Wait()
	p.lists.free()
	p.dialer.CloseIdle()
	p.removeHome()
}
