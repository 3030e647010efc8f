package replicas

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"junction/auth/seal"
	"junction/auth/store"
	"junction/proxy/members"
	"junction/upstream/http1"
	"junction/upstream/pace"
)

// Options configure a Member.
type Options struct {
	DSN       string       // of Postgres
	DB        *sql.DB      // connections to the same database, for everything but the lease
	Key       *seal.Key    // the keys of sessions: each member has the first one of each other
	Listener  net.Listener // for the other members; the Member closes it
	Advertise string       // the address by which they reach Listener; port 0 means its port
	// MasterKeys are Store.Prints of the database: each member has the first key of each other.
	MasterKeys []string
	// MayJoin is Store.MayJoin of the database.
	MayJoin func(ctx context.Context) error
	// Shared describes the configuration that must be equal in all members: see
	// config.Config.Shared. key is the key of its digests.
	Shared  func(key []byte) (string, error)
	Version string
	// Rules are the policies by which this process and the others judge forwarded requests.
	Rules *Rules
	// Agreed is called when another member no longer has policies that differ. It must not block.
	Agreed func()
	// Changed is called when Self returns another ID than before. It must not block.
	Changed func()
	// FindRevoked is called when another member has found that grants were revoked. When it returns nil, this
	// process accepts none of their tokens.
	FindRevoked func(ctx context.Context) error
	Log         *slog.Logger
	// Limits of forwarded requests, as those of the listener for clients.
	ReadTimeout, WriteTimeout, IdleTimeout time.Duration
	MaxHeader                              int
	// TTL is how long a lease lasts. Default 15s.
	TTL time.Duration
}

const defaultTTL = 15 * time.Second

// Member is this process among the members. It implements members.Members.
type Member struct {
	o        Options
	identity *identity
	address  string // by which the others reach it
	process  string // random; see headerGone

	shared   atomic.Pointer[described]
	numbers  numbers
	drift    drift
	told     atomic.Bool // the row must be written at once
	leaving  atomic.Bool // this process takes no new clients
	lease    atomic.Pointer[lease]
	others   atomic.Pointer[map[string]*otherMember] // by ID, without this process; never changed
	read     watched                                 // those who wait for the next reading of the table
	reason   atomic.Pointer[string]                  // why this process is no member
	probes   chan *otherMember                       // to ask whether they run
	tried    chan struct{}                           // closed after the first attempt to join
	once     sync.Once                               // closes tried
	wake     chan struct{}                           // 1-buffered: Run reads the table soon
	looked   time.Time                               // when Run began to read the table last; only Run uses it
	rejoined chan struct{}                           // 1-buffered: this process has a new ID

	refused   atomic.Bool // the last attempt to join was refused
	foreign   foreign
	forwarder forwarder
	received  received
	owners    owners
	claims    claims
	states    states
	holdings  holdings
	counters  counters
	tasks     sync.WaitGroup
}

// lease is the row of this process in the table members.
type lease struct {
	id    string
	begun time.Time
	until time.Time // by the monotonic clock
	// renewed is when the last renewal began, and there the time of the database during the renewal,
	// in microseconds.
	renewed time.Time
	there   int64
	took    time.Duration // the renewal
}

// clock returns the time of the database in microseconds, or a later one: later by took at most.
func (l *lease) clock() int64 { return l.there + time.Since(l.renewed).Microseconds() }

// otherMember is another member, as it was when the table was last read. It is never changed.
type otherMember struct {
	row
	until   time.Time // of its lease, by the monotonic clock
	renewed time.Time // not later than the last renewal, by the monotonic clock
	conns   *connections
}

// row is a row of the table members.
type row struct {
	id, address, fingerprint, digest, version string
	begun                                     time.Time
	left                                      time.Duration // of the lease
}

// New returns a Member that has not joined. Call Serve and Run.
func New(o Options) (*Member, error) {
	m := &Member{o: o, process: store.NewID(), wake: make(chan struct{}, 1), rejoined: make(chan struct{}, 1),
		tried: make(chan struct{}), probes: make(chan *otherMember, 8)}
	m.claims.turn, m.claims.next = make(chan struct{}, claimsAtOnce), map[claimOf]*claimBatch{}
	m.received.fewer, m.read.next = make(chan struct{}, 1), make(chan struct{})
	if m.o.TTL == 0 {
		m.o.TTL = defaultTTL
	}
	if m.o.Rules == nil {
		m.o.Rules = new(Rules)
	}
	var err error
	if m.identity, err = newIdentity(o.Key); err != nil {
		return nil, err
	}
	if err := m.Reload(o.Shared); err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(o.Advertise)
	if err != nil {
		return nil, err
	}
	if port == "0" {
		port = strconv.Itoa(o.Listener.Addr().(*net.TCPAddr).Port)
	}
	m.address = net.JoinHostPort(host, port)
	m.others.Store(&map[string]*otherMember{})
	m.reason.Store(new("it has not joined yet"))
	m.forwarder.client = &http1.Client{Dial: m.dial}
	m.forwarder.tls = m.identity.config()
	return m, nil
}

// Close closes the listener of a Member whose Serve was not called.
func (m *Member) Close() error { return m.o.Listener.Close() }

// Reload replaces Options.Shared after a change of the configuration.
func (m *Member) Reload(shared func(key []byte) (string, error)) error {
	d, err := m.describe(shared)
	if err != nil {
		return err
	}
	m.shared.Store(d)
	if m.others.Load() != nil { // not in New
		m.compare()
		m.tell()
	}
	return nil
}

// Leave tells the other members that this process takes no new clients. Its lease and its sessions stay until
// Run ends, and it no longer keeps a process with other hard keys from joining.
func (m *Member) Leave() {
	m.leaving.Store(true)
	m.tell()
}

// tell has Run write the row of this process at once, and tell the other members.
func (m *Member) tell() {
	m.told.Store(true)
	pace.Wake(m.wake)
}

// Self implements members.Members.
func (m *Member) Self() string {
	l := m.lease.Load()
	if l == nil || !time.Now().Before(l.until) {
		return ""
	}
	return l.id
}

// Last implements members.Members.
func (m *Member) Last() string {
	if l := m.lease.Load(); l != nil {
		return l.id
	}
	return ""
}

// Alive reports whether a member has a valid lease, as far as this process knows.
func (m *Member) Alive(id string) bool {
	return m.living(id) != nil || id != "" && id == m.Self()
}

// living returns another member if its lease is valid, or nil.
func (m *Member) living(id string) *otherMember {
	p := (*m.others.Load())[id]
	if p == nil || !time.Now().Before(p.until) {
		return nil
	}
	return p
}

// Ready returns nil if this process is a member, and otherwise the reason. It waits for the first
// attempt to join.
func (m *Member) Ready(ctx context.Context) error {
	select {
	case <-m.tried:
	case <-ctx.Done():
	}
	if m.Self() != "" {
		return nil
	}
	reason := *m.reason.Load()
	if m.lease.Load() != nil {
		return errors.New("the lease of this process has expired; " + cmp.Or(reason, "this process was paused"))
	}
	return errors.New(reason)
}

// setReason stores why this process cannot join or cannot renew its lease, and logs a new reason.
func (m *Member) setReason(err error) {
	text := err.Error()
	defer m.once.Do(func() { close(m.tried) })
	switch old := m.reason.Swap(&text); {
	case old == nil || *old == text:
	case m.lease.Load() == nil:
		m.o.Log.Error("cannot join the replicas; this process refuses all calls until it can", "error", err)
	default:
		m.o.Log.Warn("cannot renew the lease of this process", "error", err)
	}
}

// Status describes a member, as this process sees it.
type Status struct {
	ID      string    `json:"id"`
	Address string    `json:"address"`
	Version string    `json:"version"`
	Begun   time.Time `json:"begun"`
	Self    bool      `json:"self,omitempty"`
	// Configuration is the number of its configuration; 0 if it has none.
	Configuration int64   `json:"configuration,omitempty"`
	Left          float64 `json:"lease_seconds"` // until its lease expires
	// Differs has the keys of the configuration that differ from those of this process, and other facts.
	Differs []Difference `json:"differs,omitempty"`
	// Draining means that it was told to stop, and takes no new clients.
	Draining bool   `json:"draining,omitempty"`
	Error    string `json:"error,omitempty"` // why the last connection to it failed
}

// Members returns all members, the oldest first.
func (m *Member) Members() []Status {
	list := []Status{}
	if l := m.lease.Load(); l != nil && m.Self() != "" {
		list = append(list, Status{ID: l.id, Address: m.address, Version: m.o.Version, Begun: l.begun,
			Self: true, Configuration: m.numbers.own.Load(), Draining: m.leaving.Load(),
			Left: time.Until(l.until).Seconds()})
	}
	for _, p := range *m.others.Load() {
		s := Status{ID: p.id, Address: p.address, Version: p.version, Begun: p.begun,
			Left: time.Until(p.until).Seconds(), Configuration: p.number(), Differs: m.differencesOf(p.id),
			Draining: p.draining()}
		if failed := p.conns.failed.Load(); failed != nil {
			s.Error = failed.Error()
		}
		if s.Left > 0 {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b Status) int { return a.Begun.Compare(b.Begun) })
	return list
}

// setOthers replaces the list of other members by the rows of the table, which was read at the time
// asked. It ends the requests to members that are no longer in the list.
func (m *Member) setOthers(rows []row, self string, asked time.Time) {
	old, next := *m.others.Load(), map[string]*otherMember{}
	for _, r := range rows {
		before := old[r.id]
		// After an outage of the database, an expired member may still renew its lease: keep its
		// requests.
		if r.id == self || r.left <= 0 && (before == nil || m.owners.expiredHaveEnded()) {
			continue
		}
		p := &otherMember{row: r, until: asked.Add(r.left), renewed: asked.Add(r.left - m.o.TTL)}
		if before != nil {
			p.conns = before.conns
		} else {
			p.conns = m.newConnections(r)
		}
		next[r.id] = p
	}
	m.others.Store(&next)
	defer m.read.notify()
	m.compare()
	for id, p := range old {
		if next[id] == nil {
			p.conns.end()
		}
	}
	if !slices.Equal(slices.Sorted(maps.Keys(old)), slices.Sorted(maps.Keys(next))) {
		m.o.Log.Info("the other replicas have changed", "now", len(next), "before", len(old))
	}
}

var _ members.Members = (*Member)(nil)
