// Package credentials has the sources of the credentials that Junction sends to upstreams: one file for
// each mode of auth.mode.
//
//   - credentials.go has the table of the sources, and what a source must do.
//   - The source of a mode is in the file with its word, such as oauth.go. signin.go has what the modes
//     with a sign-in need. lacking.go remembers which scopes a credential lacks. trial.go gets a credential
//     for a check of junction doctor, from a source with the method Try.
//
// The facts about a mode that need no source are in a table of package upstream (Modes). A test compares
// the two tables. Nothing here reads a credential that a client has sent to Junction.
package credentials

import (
	"context"
	"sync"

	"junction/auth"
	"junction/auth/oauth"
	"junction/auth/store"
	"junction/upstream"
)

// Source makes the credentials of the upstreams of one mode. It may be used by several goroutines.
type Source interface {
	// Use replaces the entries of the mode, by name. Disabled entries are not among them.
	Use(entries map[string]upstream.Config)
	// Apply is upstream.Credentials.Apply for an upstream of the mode. The error is upstream.ErrNoSource
	// if the program has no place for such credentials.
	Apply(ctx context.Context, c upstream.Caller, refused ...string) (upstream.Credential, error)
	// State returns the state of a credential without asking the server.
	State(ctx context.Context, c upstream.Caller) upstream.CredentialState
	// Close waits for what the source has started. Its methods must not be called afterwards.
	Close()
}

// A granter is a Source that knows the scopes of a credential. It may ask the database.
type granter interface {
	granted(ctx context.Context, c upstream.Caller) []string
}

// A prober is a Source that junction auth doctor asks. The row of its mode has the words (Mode.Doctor).
type prober interface {
	// Probe finds out whether the credential of an upstream can be had, without storing one. It returns
	// nothing only if the program has no place for such credentials.
	Probe(ctx context.Context, name string) []Finding
}

// A renewer is a Source that renews its credentials. The row of its mode says so (Mode.Renews).
type renewer interface {
	Renewals(name string) oauth.Figures
}

// Finding is what a probe has found.
type Finding struct {
	Level  Level
	Text   string
	Remedy string // "" if there is nothing to do
}

// Level tells whether a person has to act.
type Level int

const (
	Wrong   Level = iota // no credential can be had
	Warning              // users may notice it
	Note                 // to be set up elsewhere; the probe cannot check it
	Good
)

// Options are what sources need.
type Options struct {
	// OAuth returns the client with the stored sign-ins; nil if none is open. A reload may open one.
	OAuth func() *oauth.Client
	// Store returns the database with the keys of users; nil if none is open. A reload may open one. It may
	// be nil.
	Store func() *store.Store
	// Changed is called when a principal has given or deleted a key for an upstream. It must not block. It may
	// be nil.
	Changed func(upstream, principal string)
	// ConnectURL returns the page on which a user signs in to an upstream, with more scopes than before; ""
	// if users do not sign in to Junction. It may be nil.
	ConnectURL func(upstream, user string, scopes ...string) string
}

// makers are the sources of all modes with a credential.
var makers = map[upstream.AuthMode]func(Options) Source{
	upstream.AuthOAuth:     newOAuth,
	upstream.AuthOAuthUser: newOAuthUser,
	upstream.AuthClient:    newClientCredentials,
	upstream.AuthUserKey:   newUserKey,
}

// MayHave reports whether callers of a kind may have the credential of a mode.
func MayHave(mode upstream.AuthMode, kind auth.Kind) bool {
	row := mode.Row()
	return kind == auth.KindUser && row.Users || kind == auth.KindKey && row.Keys
}

// Sources are the sources of all modes. It implements upstream.Credentials.
type Sources struct {
	options Options
	byMode  map[upstream.AuthMode]Source
	lacking lacking

	mu    sync.Mutex
	modes map[string]upstream.AuthMode // of the upstreams; guarded by mu
}

// New returns sources without entries. Close them.
func New(o Options) *Sources {
	s := &Sources{options: o, byMode: map[upstream.AuthMode]Source{}}
	for mode, open := range makers {
		s.byMode[mode] = open(o)
	}
	return s
}

// Use replaces the entries of the configuration.
func (s *Sources) Use(configs map[string]upstream.Config) {
	modes := map[string]upstream.AuthMode{}
	entries := map[upstream.AuthMode]map[string]upstream.Config{}
	for name, c := range configs {
		if c.Off() {
			continue
		}
		mode := c.Auth.Mode
		if entries[mode] == nil {
			entries[mode] = map[string]upstream.Config{}
		}
		entries[mode][name], modes[name] = c, mode
	}
	s.mu.Lock()
	s.modes = modes
	s.mu.Unlock()
	for mode, source := range s.byMode {
		source.Use(entries[mode])
	}
}

// Apply implements upstream.Credentials.
func (s *Sources) Apply(ctx context.Context, c upstream.Caller, refused ...string) (upstream.Credential, error) {
	source := s.byMode[c.Mode]
	if source == nil {
		return upstream.Credential{}, upstream.ErrNoSource
	}
	return source.Apply(ctx, c, refused...)
}

// GrantURL implements upstream.Granter.
func (s *Sources) GrantURL(name, user string, scopes []string) string {
	if s.options.ConnectURL == nil {
		return ""
	}
	return s.options.ConnectURL(name, user, scopes...)
}

// source returns the mode and the source of an upstream; nil if its mode has none.
func (s *Sources) source(name string) (upstream.AuthMode, Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mode := s.modes[name]
	return mode, s.byMode[mode]
}

// State returns the state of an upstream's credential; with a user, the state of the user's credential.
// The zero value means that nothing is known.
func (s *Sources) State(ctx context.Context, name, user string) upstream.CredentialState {
	mode, source := s.source(name)
	if source == nil {
		return upstream.CredentialState{}
	}
	c := upstream.Caller{Upstream: name, Mode: mode, User: user}
	state := source.State(ctx, c)
	if state.Lacks = s.lacking.of(name); len(state.Lacks) > 0 {
		if g, ok := source.(granter); ok {
			state.Lacks = without(state.Lacks, g.granted(ctx, c))
		}
	}
	return state
}

// Lacked notes a call that failed because the credential lacks a scope. A nil error is ignored.
func (s *Sources) Lacked(e *upstream.LackError) {
	if e != nil && e.Lacks {
		s.lacking.add(e)
	}
}

// Probe finds out whether the credential of an upstream can be had; nil if its source has no prober.
func (s *Sources) Probe(ctx context.Context, name string) []Finding {
	if _, source := s.source(name); source != nil {
		if p, ok := source.(prober); ok {
			return p.Probe(ctx, name)
		}
	}
	return nil
}

// Renewals returns the figures of the upstreams whose credentials this process renews, by upstream.
func (s *Sources) Renewals() map[string]oauth.Figures {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[string]oauth.Figures{}
	for name, mode := range s.modes {
		if source, ok := s.byMode[mode].(renewer); ok && mode.Row().Renews {
			all[name] = source.Renewals(name)
		}
	}
	return all
}

// Close closes the sources.
func (s *Sources) Close() {
	for _, source := range s.byMode {
		source.Close()
	}
}

var _ upstream.Granter = (*Sources)(nil)
