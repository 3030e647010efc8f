package authserver

import (
	"context"
	"crypto/sha256"
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
)

const (
	believed  = 5 * time.Second // for how long a token that was good is good without a look into the store
	pollEvery = 5 * time.Second
	margin    = time.Minute // for clocks of replicas that differ
	maxKnown  = 20_000
)

// known is what this process remembers of tokens and of grants.
type known struct {
	mu     sync.RWMutex
	tokens map[auth.Hash]*verdict
	ended  map[string]time.Time // grants, and when we heard
}

// verdict is whose a token is, and until when we believe it.
type verdict struct {
	principal auth.Principal
	until     time.Time
}

// Verify is auth.Verifier's: it knows the access tokens that were given here.
func (f *Server) Verify(ctx context.Context, token string, from netip.Addr) (*auth.Principal, error) {
	hash, now := auth.Hash(sha256.Sum256([]byte(token))), f.now()
	f.known.mu.RLock()
	v := f.known.tokens[hash]
	f.known.mu.RUnlock()
	if v == nil || !now.Before(v.until) {
		a, err := f.core.Introspect(ctx, token)
		if errors.Is(err, errBadToken) {
			return nil, invalid(err)
		}
		if err != nil {
			return nil, err
		}
		if now.After(a.Grant.Used.Add(time.Minute)) {
			if err := f.store.TouchGrant(ctx, a.Grant.ID); err != nil {
				f.log.Debug("when a grant was used could not be noted", "error", err)
			}
		}
		p := f.principal(a.User, a.User.Claims, a.Grant)
		p.Scopes, p.Expires = a.Scopes, a.Token.Expires
		v = &verdict{*p, now.Add(believed)}
		f.remember(hash, v)
	}
	if !now.Before(v.principal.Expires) {
		return nil, invalid(fmt.Errorf("%w: it is expired", errBadToken))
	}
	p := v.principal
	p.Address = from
	return &p, nil
}

func invalid(err error) error {
	text := err.Error()
	if text = text[min(len(text), len(errBadToken.Error())):]; text == "" {
		text = ": nobody knows it here"
	}
	return fmt.Errorf("%w%s", auth.ErrInvalidToken, text)
}

func (f *Server) remember(hash auth.Hash, v *verdict) {
	f.known.mu.Lock()
	defer f.known.mu.Unlock()
	if _, over := f.known.ended[v.principal.Grant]; over {
		return // it ended while we looked
	}
	for s, old := range f.known.tokens { // a few at random are enough
		if len(f.known.tokens) < maxKnown && f.now().Before(old.until) {
			break
		}
		delete(f.known.tokens, s)
	}
	f.known.tokens[hash] = v
}

// Still reports whether a principal that Verify returned would be let in again, as far as is known
// without asking: its token is not over, and nobody has taken its grant back.
func (f *Server) Still(p *auth.Principal) bool {
	if p.Kind != auth.KindUser || p.Grant == "" || !f.now().Before(p.Expires) {
		return false
	}
	f.known.mu.RLock()
	defer f.known.mu.RUnlock()
	_, over := f.known.ended[p.Grant]
	return !over
}

// refreshed has the store asked again for what somebody's tokens are worth.
func (f *Server) refreshed(user string) {
	f.known.mu.Lock()
	defer f.known.mu.Unlock()
	maps.DeleteFunc(f.known.tokens, func(_ auth.Hash, v *verdict) bool { return v.principal.ID == user })
}

// forget ends what rests on the grants.
func (f *Server) forget(grants ...string) {
	f.known.mu.Lock()
	maps.DeleteFunc(f.known.tokens, func(_ auth.Hash, v *verdict) bool { return slices.Contains(grants, v.principal.Grant) })
	news := false
	for _, id := range grants {
		if _, heard := f.known.ended[id]; !heard {
			if f.known.ended == nil {
				f.known.ended = map[string]time.Time{}
			}
			f.known.ended[id], news = f.now(), true
		}
	}
	f.known.mu.Unlock()
	if news && f.ended != nil {
		f.ended()
	}
}

// poll hears of grants that have ended on other replicas, or by the command line.
func (f *Server) poll(ctx context.Context) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	since := f.now().Add(-margin)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := f.now()
		ids, err := f.store.RevokedSince(ctx, since)
		if err != nil {
			f.log.Debug("which sign-ins have ended could not be found out", "error", err)
			continue
		}
		since = now.Add(-margin)
		var fresh []string
		f.known.mu.Lock()
		for _, id := range ids {
			if _, heard := f.known.ended[id]; !heard {
				fresh = append(fresh, id)
			}
		}
		for id, at := range f.known.ended {
			if now.After(at.Add(25 * time.Hour)) { // no access token lives that long
				delete(f.known.ended, id)
			}
		}
		f.known.mu.Unlock()
		if len(fresh) > 0 {
			f.forget(fresh...)
		}
	}
}

// audit writes down what happened. Of what strangers do it writes down what comes at a pace that
// leaves room on the disk for the rest; the remainder is for debugging. ctx is that of a request,
// or comes from one: it says where that came from.
func (f *Server) audit(ctx context.Context, what, user, client, detail string) {
	level := slog.LevelInfo
	by := callerOf(ctx)
	tooMany := slices.Contains(store.Unproven(), what) && f.gates.events.pass(by.from, f.now()) != passes
	if tooMany {
		level = slog.LevelDebug
	}
	f.log.Log(ctx, level, "sign-in", "event", what, "user", user, "client", visible(client, 64), "detail", detail, "address", by.address, "request_id", by.request)
	if tooMany {
		return
	}
	e := store.Event{Event: what, Principal: user, ClientID: client, Address: by.address, RequestID: by.request}
	if detail != "" {
		e.Detail = fmt.Appendf(nil, "{%q:%q}", "detail", detail)
	}
	if err := f.store.Audit(ctx, e); err != nil {
		f.log.Error("an event could not be written down", "event", what, "error", err)
	}
}
