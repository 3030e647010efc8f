package authserver

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"junction/auth"
	"junction/auth/store"
	"junction/upstream/bounded"
	"junction/upstream/prose"
)

const (
	cacheTTL    = 5 * time.Second // how long a valid token is trusted without a query
	pollEvery   = 5 * time.Second
	clockMargin = time.Minute // for clock differences between replicas
	maxCached   = 20_000
)

// tokenCache remembers tokens and ended grants in this process.
type tokenCache struct {
	mu     sync.RWMutex
	tokens map[auth.Hash]*knownToken
	ended  map[string]time.Time // by grant: when this process learned of it
}

// knownToken is the cached principal of a token.
type knownToken struct {
	principal auth.Principal
	until     time.Time
}

// Verify implements auth.Verifier for the access tokens of this server.
func (srv *Server) Verify(ctx context.Context, token string, from netip.Addr) (*auth.Principal, error) {
	hash, now := auth.Hash(sha256.Sum256([]byte(token))), srv.now()
	srv.cache.mu.RLock()
	v := srv.cache.tokens[hash]
	srv.cache.mu.RUnlock()
	if v == nil || !now.Before(v.until) {
		a, scopes, err := srv.introspect(ctx, token)
		if err != nil {
			return nil, err
		}
		if now.After(a.Grant.Used.Add(time.Minute)) {
			if err := srv.store.TouchGrant(ctx, a.Grant.ID); err != nil {
				srv.log.Debug("cannot store when a grant was used", "error", err)
			}
		}
		p := srv.principal(a.User, a.User.Claims, a.Grant)
		p.Scopes, p.Expires = scopes, a.Token.Expires
		v = &knownToken{*p, now.Add(cacheTTL)}
		srv.cacheToken(hash, v)
	}
	if !now.Before(v.principal.Expires) {
		return nil, fmt.Errorf("%w: it is expired", auth.ErrInvalidToken)
	}
	p := v.principal
	p.Address = from
	return &p, nil
}

// introspect returns what an access token gives access to. The error wraps
// auth.ErrInvalidToken if the token is not valid.
func (srv *Server) introspect(ctx context.Context, token string) (a store.Access, scopes []string, err error) {
	signature, ok := srv.minter.signature(token, accessPrefix)
	if !ok {
		return a, nil, fmt.Errorf("%w: this server does not know it", auth.ErrInvalidToken)
	}
	a, err = srv.store.Access(ctx, signature)
	switch {
	case errors.Is(err, store.ErrExpired):
		return a, nil, fmt.Errorf("%w: it is expired", auth.ErrInvalidToken)
	case errors.Is(err, store.ErrRevoked):
		return a, nil, fmt.Errorf("%w: it was revoked", auth.ErrInvalidToken)
	case isOver(err):
		return a, nil, fmt.Errorf("%w: this server does not know it", auth.ErrInvalidToken)
	case err != nil:
		return a, nil, err
	}
	var r record
	if err := json.Unmarshal(a.Token.Request, &r); err != nil {
		return a, nil, fmt.Errorf("read a token's row: %w", err)
	}
	return a, r.Scopes, nil
}

func (srv *Server) cacheToken(hash auth.Hash, v *knownToken) {
	srv.cache.mu.Lock()
	defer srv.cache.mu.Unlock()
	if _, over := srv.cache.ended[v.principal.Grant]; over {
		return // it ended during the query
	}
	bounded.Put(&srv.cache.tokens, maxCached, hash, v,
		func(old *knownToken) bool { return !srv.now().Before(old.until) })
}

// Still reports, from memory alone, whether a principal that Verify returned is still valid: its
// token has not expired, and its grant was not revoked.
func (srv *Server) Still(p *auth.Principal) bool {
	if p.Kind != auth.KindUser || p.Grant == "" || !srv.now().Before(p.Expires) {
		return false
	}
	srv.cache.mu.RLock()
	defer srv.cache.mu.RUnlock()
	_, over := srv.cache.ended[p.Grant]
	return !over
}

// dropUser removes a user's tokens from the cache, so that the store is asked again.
func (srv *Server) dropUser(user string) {
	srv.cache.mu.Lock()
	defer srv.cache.mu.Unlock()
	maps.DeleteFunc(srv.cache.tokens, func(_ auth.Hash, v *knownToken) bool { return v.principal.ID == user })
}

// grantsEnded drops ended grants from the cache and calls ended.
func (srv *Server) grantsEnded(grants ...string) {
	srv.cache.mu.Lock()
	news := false
	for _, id := range grants {
		if _, heard := srv.cache.ended[id]; !heard {
			srv.cache.ended[id], news = srv.now(), true
		}
	}
	if news { // cacheToken adds no token of an ended grant
		maps.DeleteFunc(srv.cache.tokens,
			func(_ auth.Hash, v *knownToken) bool { return slices.Contains(grants, v.principal.Grant) })
	}
	srv.cache.mu.Unlock()
	if news && srv.ended != nil {
		srv.ended()
	}
}

// endGrant revokes a grant with all its tokens.
func (srv *Server) endGrant(ctx context.Context, id, why string) error {
	_, err := srv.store.RevokeGrant(ctx, id, why)
	if err == nil {
		srv.grantsEnded(id)
	}
	return err
}

// poll finds grants that were ended, and users who were disabled, by other replicas or by the command line,
// which may also say so (FindRevoked).
func (srv *Server) poll(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := srv.FindRevoked(ctx); err != nil {
			srv.log.Debug("cannot find out which grants have ended, and which users are disabled", "error", err)
		}
	}
}

// FindRevoked asks the store which grants have ended since it was asked last, and which users are disabled.
// When it returns nil, Verify and Still accept no token of a grant that had ended before the call, and
// Disabled and KnownDisabled know each user who was disabled before it.
func (srv *Server) FindRevoked(ctx context.Context) error {
	srv.finding.Lock()
	defer srv.finding.Unlock()
	now := srv.now()
	ids, err := srv.store.RevokedSince(ctx, srv.found)
	if err != nil {
		return err
	}
	srv.found = now.Add(-clockMargin)
	srv.grantsEnded(ids...)
	srv.cache.mu.Lock()
	maps.DeleteFunc(srv.cache.ended, func(_ string, at time.Time) bool {
		return now.After(at.Add(25 * time.Hour)) // no access token lives that long
	})
	srv.cache.mu.Unlock()
	return srv.findDisabled(ctx)
}

// audit logs an event and stores it in the audit. Events that unauthenticated requests can cause
// are rate-limited there: the rest is logged at debug level only. ctx comes from the request, whose
// address and id are recorded. more are further attributes of the log line.
func (srv *Server) audit(ctx context.Context, what, user, client, detail string, more ...any) {
	level := slog.LevelInfo
	by := callerOf(ctx)
	tooMany := slices.Contains(store.Unproven(), what) && srv.limits.events.pass(by.from, srv.now()) != withinLimit
	if tooMany {
		level = slog.LevelDebug
	}
	srv.log.Log(ctx, level, "sign-in", append([]any{"event", what, "user", user, "client", prose.ASCII(client, 64),
		"detail", detail, "address", by.address, auth.LoggedIDs(by.request, by.trace)}, more...)...)
	if tooMany {
		return
	}
	e := store.Event{Event: what, Principal: user, ClientID: client, Address: by.address, RequestID: by.request,
		TraceID: by.trace}
	if detail != "" {
		e.Detail = store.DetailJSON(map[string]string{"detail": detail})
	}
	if err := srv.store.Audit(ctx, e); err != nil {
		srv.log.Error("cannot store an audit event", "event", what, "error", err)
	}
}
