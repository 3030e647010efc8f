package proxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"junction/auth/seal"
	"junction/proxy/answers"
	"junction/proxy/approval"
	"junction/proxy/budget"
	"junction/proxy/redact"
	"junction/proxy/schema"
	"junction/proxy/scope"
	"junction/proxy/sealed"
	"junction/proxy/streams"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// Options are the settings of a Core that do not change.
type Options struct {
	Limits   Limits
	Key      *seal.Key    // seals cursors, task IDs and the state of calls; required
	Version  string       // Junction's version, as clients see it
	Log      *slog.Logger // nil discards
	Hooks    Hooks
	Observer Observer // nil observes nothing
	// Members are the processes over one database. With nil the process is alone.
	Members Members
}

// Members are the processes over one database, as far as the core needs them (package members).
type Members interface {
	Last() string
	Once(ctx context.Context, id string, until time.Time) (first bool, err error)
	budget.Counter
}

// Core answers the requests of clients from the upstreams. Fronts read the requests and write the
// answers (package front). Shutdown ends it.
type Core struct {
	limits    Limits
	hooks     Hooks
	observer  Observer // may be nil
	members   Members  // nil if the process is alone
	log       *slog.Logger
	sealer    *sealed.Sealer
	parked    *parkedCalls
	approvals approval.Memory
	meters    budget.Meters
	schemas   schema.Validator
	turns     budget.Turns // for long checks of arguments
	answers   *answers.Cache
	removed   redact.Memory // text that comes back in arguments
	listeners *streams.Listeners
	methods   map[mcp.MCPMethod]method
	budget    budget.Budget // shared by all callers
	results   Buffers       // for upstreams' answers

	serverInfo []byte // JSON
	modernMeta []byte // _meta of Junction's own results
	supported  []byte // versions of both eras, a JSON array

	snapshot atomic.Pointer[scope.Snapshot]
	earlier  scope.Earlier // for clients that read a list page by page
	made     scope.Made
	changing sync.Mutex // held while the next snapshot is built

	ending  context.Context // ends when Shutdown is called
	end     context.CancelFunc
	killing context.Context // ends when Kill is called, with a CutOff as cause
	kill    context.CancelCauseFunc
}

// New returns a Core without upstreams; call Apply next.
func New(o Options) *Core {
	s := &Core{limits: o.Limits.WithDefaults(), hooks: o.Hooks, observer: o.Observer, members: o.Members, log: o.Log}
	s.answers, s.methods = answers.New(), methods()
	maker := ""
	if s.members == nil {
		maker = rand.Text()
	}
	s.sealer = sealed.New(o.Key, maker)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	// One of each quota: else it does not compile.
	var totals [budget.Quotas]int64 = [...]int64{budget.Requests: int64(s.limits.Requests),
		budget.Streams: int64(s.limits.Streams), budget.Bytes: int64(s.limits.Bodies)}
	s.budget.Init(totals, s.log)
	s.parked = &parkedCalls{max: s.limits.Parked, patience: s.limits.Patience, calls: map[string]*parked{},
		perUser: map[string]int{}, fewer: make(chan struct{}, 1)}
	s.serverInfo = fmt.Appendf(nil, `{"name":"junction","title":"Junction","version":%s}`,
		raw.Quote(cmp.Or(o.Version, "devel")))
	s.modernMeta = fmt.Appendf(nil, `{"io.modelcontextprotocol/serverInfo":%s}`, s.serverInfo)
	s.supported = fmt.Appendf(nil, `["%s"]`, strings.Join(versions(), `","`))
	s.ending, s.end = context.WithCancel(context.Background())
	s.killing, s.kill = context.WithCancelCause(context.Background())
	s.listeners = streams.New(streams.Options{Snapshot: s.snapshot.Load, Queue: s.limits.Queue, Ending: s.ending,
		Log: s.log})
	s.snapshot.Store(scope.New(scope.Config{}, nil, nil, &s.made))
	return s
}

// last returns the ID of this process among the members, also while it has no lease; "" if it is alone.
func (s *Core) last() string {
	if s.members == nil {
		return ""
	}
	return s.members.Last()
}

// Streams returns the streams of notifications, and the subscriptions.
func (s *Core) Streams() *streams.Listeners { return s.listeners }

// Snapshot returns the current snapshot.
func (s *Core) Snapshot() *scope.Snapshot { return s.snapshot.Load() }

// Limits returns the limits with their defaults.
func (s *Core) Limits() Limits { return s.limits }

// Ending ends when Shutdown is called.
func (s *Core) Ending() context.Context { return s.ending }

// Killing ends when Kill is called. The cause is the error for the client.
func (s *Core) Killing() context.Context { return s.killing }

// ServerInfo returns Junction's name and version, as JSON.
func (s *Core) ServerInfo() []byte { return s.serverInfo }

// Supported returns the versions of the protocol that an endpoint supports, as a JSON array. An
// endpoint of the legacy era does not tell them.
func (s *Core) Supported(e *scope.Endpoint) []byte {
	if e.Eras == scope.ErasModern {
		return []byte(`["` + ModernVersion + `"]`)
	}
	return s.supported
}

// Grant returns an empty grant for a request of an account. agent is the User-Agent of a local
// program.
func (s *Core) Grant(a budget.Account, agent string) budget.Grant { return s.budget.Grant(a, agent) }

// Apply replaces the snapshot: new requests use these upstreams, which must be sorted by name.
// In-flight requests keep the old snapshot, except after a wait (permitAgain, lookAgain).
func (s *Core) Apply(c scope.Config, upstreams []*upstream.Upstream) {
	backends := make([]view.Backend, len(upstreams))
	for i, u := range upstreams {
		backends[i] = u
	}
	s.ApplyBackends(c, backends)
}

// ApplyBackends is Apply for anything that answers as an upstream does.
func (s *Core) ApplyBackends(c scope.Config, backends []view.Backend) {
	c.Names, c.FirstWait = c.Names.WithDefaults(), cmp.Or(c.FirstWait, time.Second)
	s.change(func(old *scope.Snapshot) *scope.Snapshot { return scope.New(c, backends, old, &s.made) },
		func(old, _ *scope.Snapshot) {
			old.Close()
			s.earlier.Clear()
		})
	s.answers.Clear()
	s.removed.Retain(func(source any) bool {
		b, ok := source.(view.Backend)
		return ok && slices.Contains(backends, b)
	})
}

// Refresh adopts changed catalogs and notifies the listeners of each endpoint whose list changed.
func (s *Core) Refresh() {
	s.change(func(old *scope.Snapshot) *scope.Snapshot { return scope.New(old.Config, old.Backends, old, &s.made) },
		s.earlier.Keep)
}

// Recheck ends the streams of principals that the Guard rejects now, and notifies users whose own
// upstreams changed. The Guard finds out about revoked tokens itself; Recheck does not
// report them.
func (s *Core) Recheck() {
	s.listeners.Renew(s.snapshot.Load()) // a newer snapshot checks the principals itself
}

// Settle adopts changed catalogs like Refresh, if there are any.
func (s *Core) Settle() {
	if s.snapshot.Load().Settled() {
		return
	}
	s.change(func(old *scope.Snapshot) *scope.Snapshot {
		if old.Settled() { // many requests may wait for one server
			return nil
		}
		return scope.New(old.Config, old.Backends, old, &s.made)
	}, s.earlier.Keep)
}

// change replaces the snapshot by the one that build returns, unless that is nil, and gives the old one
// to retire. Then it notifies the listeners of changes, without a lock, because that takes long.
func (s *Core) change(build func(old *scope.Snapshot) *scope.Snapshot, retire func(old, next *scope.Snapshot)) {
	s.changing.Lock()
	old := s.snapshot.Load()
	w := build(old)
	if w == nil {
		s.changing.Unlock()
		return
	}
	retire(old, w)
	s.snapshot.Store(w)
	if problems := w.Problems(); s.hooks.Problems != nil && !slices.Equal(problems, old.Problems()) {
		s.hooks.Problems(problems)
	}
	s.changing.Unlock()
	s.listeners.Renew(w)
}

// Forget ends the subscriptions of a session that has ended, or has left the memory, and drops the text
// that was removed in it.
func (s *Core) Forget(ended *Session) {
	s.removed.Forget(ended.Key)
	s.listeners.Forget(&ended.Streams)
}

// Shutdown ends the streams: each modern subscription gets its result. In-flight calls go on, and
// the http.Server waits for them. Parked calls without a present client end if the process is alone.
// Among members they go on, because others pass the clients' returns on: call AwaitParked next.
func (s *Core) Shutdown() {
	s.end()
	if s.members == nil {
		s.parked.close()
	}
}

// AwaitParked waits until no call is parked, or until ctx ends. Then it ends the parked calls without
// a present client, and no further call can be parked.
func (s *Core) AwaitParked(ctx context.Context) {
	s.parked.await(ctx)
	s.parked.close()
}

// Kill ends the remaining in-flight calls. Call it after Shutdown and a grace period. It blocks
// until all calls without a request have ended.
func (s *Core) Kill() {
	s.kill(CutOff{})
	s.earlier.Clear()
	s.parked.close()
	s.parked.running.Wait()
	s.listeners.Close()
}

// upstreamMemory is the memory of one upstream in the budget. It implements client.Account.
type upstreamMemory struct {
	mu   sync.Mutex
	held budget.Grant
}

// UpstreamMemory returns the account of an upstream for what belongs to no caller: its handshakes and
// lists. It shares limits.bodies with the callers and the other upstreams.
func (s *Core) UpstreamMemory(name string) client.Account {
	return &upstreamMemory{held: s.budget.Grant(budget.Account{Upstream: name}, "")}
}

// Reserve implements client.Account.
func (m *upstreamMemory) Reserve(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.held.Reserve(budget.Bytes, n)
	if e, ok := errors.AsType[*budget.Exceeded](err); ok {
		return fmt.Errorf("the server needs %s more for its answers than it may have now: it uses %s, callers and "+
			"other servers use %s of %s (%s)", BytesText(n), BytesText(e.Own), BytesText(e.Others), BytesText(e.Total),
			e.Quota.Limit())
	}
	return err
}

// Release implements client.Account.
func (m *upstreamMemory) Release(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held.Give(budget.Bytes, n)
}
