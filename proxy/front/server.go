// Package front is the HTTP side of the proxy. A Server reads requests, authenticates their callers,
// chooses the era of each message, and writes the answers of package proxy, whose documentation has
// the way of a request through both packages.
//
//	server.go     the Server and its options; config.go: the section sessions of the file
//	request.go    routes, origins, callers, bodies; a request is the Front of its exchange
//	eras.go       the choice of the era; front.go: what both eras read of a request
//	legacy.go     2025-11-25 and older: handshake, session, batch, GET stream
//	modern.go     2026-07-28: header and body must agree
//	session.go    the sessions of legacy clients; pending.go: the requests to them
//	owner.go      the process that answers a request, if several serve the endpoints
//	relay.go      writes the response of that process
//	stateful.go   calls of servers that declare state, at the process that has the state
//	reply.go      one answer: a JSON document or an event stream
//	replay.go     the events of a stream, for a client that resumes it; waiting.go bounds those that wait
//	streams.go    the streams of notifications
//	headers.go    headers that repeat the body; profile.go: the client's capabilities
//	errors.go     the HTTP status of each error
//	report.go     data for operators and metrics
package front

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"junction/auth/seal"
	"junction/proxy"
	"junction/proxy/members"
)

// Options are the settings of a Server that do not change.
type Options struct {
	Limits   proxy.Limits
	Sessions Sessions
	Key      *seal.Key    // seals session IDs and what the core gives to clients; required
	Version  string       // Junction's version, as clients see it
	Log      *slog.Logger // nil discards
	Hooks    proxy.Hooks
	Observer Observer // nil observes nothing
	// Members are the processes over one database. With nil the process is alone.
	Members members.Members

	// SessionDeleted is called when a legacy client has deleted its session; it may be nil. The
	// parameters are the hashes of its principal and of its ID, and the time until which the deletion must
	// be remembered: sessions.max_age from now. Pass them to a later Server with the same key as
	// DeletedSessions. It must not block.
	SessionDeleted func(principal, session [16]byte, until time.Time)
	// DeletedSessions has the sessions of earlier calls of SessionDeleted. The Server takes ownership. nil
	// has none.
	DeletedSessions *DeletedSessions
}

// Observer observes the requests of clients, for metrics and traces. Its methods are called by
// many goroutines at once and must not block.
type Observer interface {
	proxy.Observer
	// Refused is called for each request that is refused before Begin. reason is a fixed word, or ""
	// if the HTTP status and the code of the JSON-RPC error say it.
	Refused(reason string, status int, code int64)
	// Dropped is called at the end of a call of which notifications were dropped, because its client
	// does not read them: progress, and others.
	Dropped(progress, messages int)
	// Ignored is called for a notification of an upstream that was dropped after another member had it.
	Ignored(upstream string)
}

// Server is an http.Handler that answers MCP clients by a Core. Shutdown ends it. Its
// http.Server should have limits.read_timeout as ReadTimeout, which the handler clears after
// reading a request. Its WriteTimeout applies only until the handler sets a deadline for a write.
type Server struct {
	*proxy.Core
	limits   proxy.Limits
	observer Observer        // may be nil
	members  members.Members // nil if the process is alone
	sessions *sessions
	states   states
	bodies   proxy.Buffers // of request bodies

	routes http.Handler
	merged http.Handler                // the handler of routes for /mcp
	host   atomic.Pointer[allowedHost] // the latest allowed host: usually the next one is the same
}

// New returns a Server without upstreams; call Apply next.
func New(o Options) *Server {
	core := proxy.Options{Limits: o.Limits, Key: o.Key, Version: o.Version, Log: o.Log, Hooks: o.Hooks}
	if o.Observer != nil {
		core.Observer = o.Observer
	}
	if o.Members != nil {
		core.Members = o.Members
	}
	s := &Server{Core: proxy.New(core), observer: o.Observer, members: o.Members}
	s.limits = s.Limits()
	s.sessions = newSessions(o.Key.Box("session"), s.limits.Sessions, o.Sessions.withDefaults())
	if o.DeletedSessions != nil {
		s.sessions.deleted = o.DeletedSessions
	}
	s.sessions.tell = o.SessionDeleted
	if s.members != nil {
		s.sessions.self = s.members.Self
	}
	s.sessions.forget = func(ended *session) { s.Forget(&ended.core) }
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
// waits: after the client's answers permitAgain, and after a wait for a server lookAgain, takes the
// newest one.
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
