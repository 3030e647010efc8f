package proxy

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"junction/auth/seal"
	"junction/proxy/members"
)

// ServerOptions are the settings of a Server that do not change.
type ServerOptions struct {
	Limits   Limits
	Sessions Sessions
	Key      *seal.Key    // seals session IDs and what the core gives to clients; required
	Version  string       // Junction's version, as clients see it
	Log      *slog.Logger // nil discards
	Hooks    Hooks
	Observer ServerObserver // nil observes nothing
	// Members are the processes over one database. With nil the process is alone.
	Members members.Members

	// SessionDeleted is called when a legacy client has deleted its session; it may be nil. hash is of
	// the session ID; until is the time when the ID expires. Pass the hashes to a later Server with the
	// same key as DeletedSessions. It must not block.
	SessionDeleted func(hash [16]byte, until time.Time)
	// DeletedSessions are the hashes from earlier calls of SessionDeleted. The Server does not change
	// the map.
	DeletedSessions map[[16]byte]time.Time
}

// ServerObserver observes the requests of clients, for metrics and traces. Its methods are called by
// many goroutines at once and must not block.
type ServerObserver interface {
	Observer
	// Refused is called for each request that is refused before Begin. reason is a fixed word, or ""
	// if the HTTP status and the code of the JSON-RPC error say it.
	Refused(reason string, status int, code int64)
}

// Server is an http.Handler that answers MCP clients by a Core. Shutdown ends it. Its
// http.Server should have limits.read_timeout as ReadTimeout, which the handler clears after
// reading a request. Its WriteTimeout applies only until the handler sets a deadline for a write.
type Server struct {
	*Core
	limits   Limits
	observer ServerObserver  // may be nil
	members  members.Members // nil if the process is alone
	sessions *sessions
	bodies   buffers // of request bodies

	routes http.Handler
	merged http.Handler                // the handler of routes for /mcp
	host   atomic.Pointer[allowedHost] // the latest allowed host: usually the next one is the same
}

// New returns a Server without upstreams; call Apply next.
func New(o ServerOptions) *Server {
	core := Options{Limits: o.Limits, Key: o.Key, Version: o.Version, Log: o.Log, Hooks: o.Hooks}
	if o.Observer != nil {
		core.Observer = o.Observer
	}
	if o.Members != nil {
		core.Members = o.Members
	}
	s := &Server{Core: NewCore(core), observer: o.Observer, members: o.Members}
	s.limits = s.Limits()
	s.sessions = newSessions(o.Key.Box("session"), s.limits.Sessions, o.Sessions.withDefaults())
	maps.Copy(s.sessions.deleted, o.DeletedSessions)
	s.sessions.tell = o.SessionDeleted
	if s.members != nil {
		s.sessions.self = s.members.Self
	}
	s.sessions.forget = func(ended *session) { s.Forget(&ended.kept) }
	s.route()
	return s
}

// BaseContext is the BaseContext of the http.Server: its requests end when Kill is called. Without
// it, each call watches for Kill itself, which costs more.
func (s *Server) BaseContext(net.Listener) context.Context {
	return context.WithValue(s.Killing(), baseKey{}, s)
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
