package proxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
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
	"junction/proxy/members"
	"junction/proxy/schema"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/raw"
)

// Options are the settings of a Server that do not change.
type Options struct {
	Limits   Limits
	Sessions Sessions
	Key      *seal.Key    // seals session IDs and cursors; required
	Version  string       // Junction's version, as clients see it
	Log      *slog.Logger // nil discards
	Hooks    Hooks
	Observer Observer // nil observes nothing
	// Members are the processes over one database. With nil the process is alone.
	Members members.Members

	// DeletedSessions are the hashes from earlier calls of Hooks.SessionDeleted. The Server does
	// not change the map.
	DeletedSessions map[[16]byte]time.Time
}

// Server is an http.Handler that answers MCP clients from the upstreams. Shutdown ends it. Its
// http.Server should have limits.read_timeout as ReadTimeout, which the handler clears after
// reading a request. Its WriteTimeout applies only until the handler sets a deadline for a write.
type Server struct {
	limits    Limits
	hooks     Hooks
	observer  Observer        // may be nil
	members   members.Members // nil if the process is alone
	maker     string          // identifies a process that is alone; else ""
	log       *slog.Logger
	sessions  *sessions
	cursors   *seal.Box
	states    *seal.Box // requestState
	tasks     *seal.Box // task IDs
	parked    *parkedCalls
	approvals approval.Memory
	meters    budget.Meters
	schemas   schema.Validator
	turns     budget.Turns // for long checks of arguments
	answers   *answers.Cache
	listeners listeners
	methods   map[mcp.MCPMethod]method
	moving    sync.WaitGroup // goroutines of follow
	bodies    buffers        // of request bodies
	budget    budget.Budget  // shared by all callers
	results   buffers        // for upstreams' answers

	serverInfo []byte // JSON
	modernMeta []byte // _meta of Junction's own results
	supported  []byte // versions, a JSON array

	routes http.Handler
	merged http.Handler                // the handler of routes for /mcp
	host   atomic.Pointer[allowedHost] // the latest allowed host: usually the next one is the same

	snapshot atomic.Pointer[scope.Snapshot]
	stocked  atomic.Uint64 // number of stocks made
	changing sync.Mutex    // held while the next snapshot is built

	ending  context.Context // ends when Shutdown is called
	end     context.CancelFunc
	killing context.Context // ends when Kill is called, with a cutOff as cause
	kill    context.CancelCauseFunc
}

// New returns a Server without upstreams; call Apply next.
func New(o Options) *Server {
	s := &Server{limits: o.Limits.WithDefaults(), hooks: o.Hooks, observer: o.Observer, members: o.Members, log: o.Log}
	s.answers, s.methods = answers.New(), methods()
	if s.members == nil {
		s.maker = rand.Text()
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.budget.Init([budget.Quotas]int64{budget.Requests: int64(s.limits.Requests),
		budget.Streams: int64(s.limits.Streams), budget.Bytes: int64(s.limits.Bodies)}, s.log)
	s.sessions = newSessions(o.Key.Box("session"), s.limits.Sessions, o.Sessions.withDefaults())
	maps.Copy(s.sessions.deleted, o.DeletedSessions)
	s.sessions.tell = o.Hooks.SessionDeleted
	if s.members != nil {
		s.sessions.self = s.members.Self
	}
	s.cursors, s.tasks, s.states = o.Key.Box("cursor"), o.Key.Box("task"), o.Key.Box("state")
	s.parked = &parkedCalls{max: s.limits.Parked, patience: s.limits.Patience, calls: map[string]*parked{},
		of: map[string]int{}}
	s.listeners.open, s.listeners.subscribers, s.listeners.queue = map[*listener]struct{}{},
		map[*subscriber]struct{}{}, s.limits.Queue
	s.sessions.forget = s.listeners.forget
	s.serverInfo = fmt.Appendf(nil, `{"name":"junction","title":"Junction","version":%s}`,
		raw.Quote(cmp.Or(o.Version, "devel")))
	s.modernMeta = fmt.Appendf(nil, `{"io.modelcontextprotocol/serverInfo":%s}`, s.serverInfo)
	s.supported = fmt.Appendf(nil, `["%s"]`, strings.Join(versions(), `","`))
	s.ending, s.end = context.WithCancel(context.Background())
	s.killing, s.kill = context.WithCancelCause(context.Background())
	s.snapshot.Store(scope.New(scope.Config{}, nil, nil, &s.stocked))
	s.route()
	return s
}

// BaseContext is the BaseContext of the http.Server: its requests end when Kill is called. Without
// it, each call watches for Kill itself, which costs more.
func (s *Server) BaseContext(net.Listener) context.Context {
	return context.WithValue(s.killing, baseKey{}, s)
}

// baseKey is the context key of the Server whose BaseContext a context descends from.
type baseKey struct{}

// ServeHTTP answers a request from the current snapshot. The request keeps that snapshot, unless it
// waits for the client's answers: permitAgain then checks the call with the newest one.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// the usual case; a router would copy the request to store the matched path
	if r.URL.Path == "/mcp" && r.URL.RawPath == "" {
		s.merged.ServeHTTP(w, r)
		return
	}
	s.routes.ServeHTTP(w, r)
}

// withoutSlash returns the request with the trailing slash of its path removed: /mcp/ is /mcp, for
// the routes and for the guard. It does not change r.
func withoutSlash(r *http.Request) *http.Request {
	path, slash := strings.CutSuffix(r.URL.Path, "/")
	rawPath, rawSlash := strings.CutSuffix(r.URL.RawPath, "/")
	if !slash || path == "" || r.URL.RawPath != "" && !rawSlash { // %2F is part of a name
		return r
	}
	changed, u := *r, *r.URL
	u.Path, u.RawPath = path, rawPath
	changed.URL = &u
	return &changed
}

// Apply replaces the snapshot: new requests use these upstreams, which must be sorted by name.
// In-flight requests keep the old snapshot.
func (s *Server) Apply(c scope.Config, upstreams []*upstream.Upstream) {
	backends := make([]view.Backend, len(upstreams))
	for i, u := range upstreams {
		backends[i] = u
	}
	s.apply(c, backends)
}

func (s *Server) apply(c scope.Config, backends []view.Backend) {
	c.Names, c.FirstWait = c.Names.WithDefaults(), cmp.Or(c.FirstWait, time.Second)
	s.changing.Lock()
	defer s.changing.Unlock()
	s.swap(scope.New(c, backends, s.snapshot.Load(), &s.stocked))
	s.answers.Clear()
}

// Refresh adopts changed catalogs and notifies the listeners of each endpoint whose list changed.
func (s *Server) Refresh() {
	s.changing.Lock()
	defer s.changing.Unlock()
	old := s.snapshot.Load()
	s.swap(scope.New(old.Config, old.Backends, old, &s.stocked))
}

// Recheck ends the streams of principals that the Guard rejects now, and notifies users whose own
// upstreams changed. The Guard finds out about revoked tokens itself; Recheck does not
// report them.
func (s *Server) Recheck() {
	s.changing.Lock()
	defer s.changing.Unlock()
	s.renew(s.snapshot.Load())
	s.follow()
}

// Settle adopts changed catalogs like Refresh, if there are any.
func (s *Server) Settle() {
	if s.snapshot.Load().Settled() {
		return
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	if old := s.snapshot.Load(); !old.Settled() { // many requests may wait for one server
		s.swap(scope.New(old.Config, old.Backends, old, &s.stocked))
	}
}

// swap stores the snapshot and notifies the listeners of changes; s.changing is held.
func (s *Server) swap(w *scope.Snapshot) {
	old := s.snapshot.Swap(w)
	s.renew(w)
	s.follow()
	old.Close()
	if problems := w.Problems(); s.hooks.Problems != nil && !slices.Equal(problems, old.Problems()) {
		s.hooks.Problems(problems)
	}
}

// Shutdown ends the streams: each modern subscription gets its result. In-flight calls go on, and
// the http.Server waits for them. Parked calls without a present client end.
func (s *Server) Shutdown() {
	s.end()
	s.parked.close()
}

// Kill ends the remaining in-flight calls. Call it after Shutdown and a grace period. It blocks
// until all calls without a request have ended.
func (s *Server) Kill() {
	s.kill(cutOff{})
	s.parked.running.Wait()
	s.moving.Wait()
}

// Names returns the current names section of the configuration.
func (s *Server) Names() view.Names { return s.snapshot.Load().Config.Names }

// upstreamMemory is the memory of one upstream in the budget. It implements upstream.Account.
type upstreamMemory struct {
	mu   sync.Mutex
	held budget.Grant
}

// UpstreamMemory returns the account of an upstream for what belongs to no caller: its handshakes and
// lists. It shares limits.bodies with the callers and the other upstreams.
func (s *Server) UpstreamMemory(name string) upstream.Account {
	return &upstreamMemory{held: s.budget.Grant(budget.Account{Upstream: name}, "")}
}

// Reserve implements upstream.Account.
func (m *upstreamMemory) Reserve(n int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.held.Reserve(budget.Bytes, n)
	if e, ok := errors.AsType[*budget.Exceeded](err); ok {
		return fmt.Errorf("the server needs %s more for its answers than it may have now: it uses %s, callers and "+
			"other servers use %s of %s (%s)", bytesText(n), bytesText(e.Own), bytesText(e.Others), bytesText(e.Total),
			e.Quota.Limit())
	}
	return err
}

// Release implements upstream.Account.
func (m *upstreamMemory) Release(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held.Give(budget.Bytes, n)
}
