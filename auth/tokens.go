package auth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"junction/upstream/bounded"
)

// tokens is a Verifier that chooses by the form of a token. It is immutable except for its cache. A
// reload replaces it.
type tokens struct {
	keys          *keyring  // jct_key_
	own           Verifier  // jct_at_; nil for none
	users         Directory // nil for none
	issuers       map[string]*issuer
	order         []*issuer      // in the order of the file
	introspection *introspection // nil for none

	mu    sync.RWMutex
	cache map[Hash]*cachedToken
}

// cachedToken is a verified token. It stays valid as long as its issuer has the key that signed it.
type cachedToken struct {
	principal *Principal
	issuer    *issuer
}

func (s *cachedToken) good() bool { return s.issuer.good(s.principal) }

// good reports whether a verified principal is still valid.
func (i *issuer) good(p *Principal) bool { return i.now().Before(p.Expires) && i.keys.has(p.signedBy) }

// maxCached is the size of the cache. Other tokens are verified again.
const maxCached = 10_000

var (
	errUnknownToken = fmt.Errorf("%w: this server does not know it", ErrInvalidToken)
	errDisabled     = fmt.Errorf("%w: the operator has disabled its user", ErrInvalidToken)
	errIssuer       = fmt.Errorf("%w: its issuer is not configured on this server", ErrInvalidToken)
)

const ownPrefix = tokenPrefix + "at_"

// Verify implements Verifier.
func (t *tokens) Verify(ctx context.Context, token string, from netip.Addr) (*Principal, error) {
	switch {
	case strings.HasPrefix(token, keyPrefix):
		return t.keys.Verify(ctx, token, from)
	case strings.HasPrefix(token, ownPrefix) && t.own != nil:
		return t.own.Verify(ctx, token, from)
	case strings.HasPrefix(token, tokenPrefix):
		return nil, errUnknownToken
	}
	p, err := t.verify(ctx, token, from)
	if err == nil {
		err = t.refuseDisabled(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	if p.Address == from {
		return p, nil
	}
	copied := *p
	copied.Address = from
	return &copied, nil
}

// verify returns the principal of a token of another issuer, possibly with another address.
func (t *tokens) verify(ctx context.Context, token string, from netip.Addr) (*Principal, error) {
	var short [2 << 10]byte // most tokens fit, without an allocation
	hash := Hash(sha256.Sum256(append(short[:0], token...)))
	if p := t.remembered(hash); p != nil {
		return p, nil
	}
	iss, signed := issuerOf(token)
	switch i := t.issuers[iss]; {
	case signed && i != nil:
		p, err := i.verify(ctx, token, hash)
		if err == nil {
			p.Address = from // most requests come from there again
			t.remember(hash, &cachedToken{p, i})
		}
		return p, err
	case t.introspection != nil:
		return t.introspection.verify(ctx, token, hash, from)
	case signed:
		return nil, errIssuer
	}
	return nil, errUnknownToken
}

// refuseDisabled returns an error unless the operator lets the user of a token of another issuer in.
func (t *tokens) refuseDisabled(ctx context.Context, p *Principal) error {
	if t.users == nil || p.Kind != KindUser {
		return nil
	}
	disabled, err := t.users.Disabled(ctx, p.ID)
	if err == nil && disabled {
		return errDisabled
	}
	return err
}

func (t *tokens) remembered(hash Hash) *Principal {
	t.mu.RLock()
	s := t.cache[hash]
	t.mu.RUnlock()
	if s == nil || !s.good() {
		return nil
	}
	s.issuer.keys.renew()
	return s.principal
}

func (t *tokens) remember(hash Hash, s *cachedToken) {
	t.mu.Lock()
	defer t.mu.Unlock()
	bounded.Put(&t.cache, maxCached, hash, s, func(old *cachedToken) bool { return !old.good() })
}

// Still reports whether a principal is still valid: its configuration entry is unchanged, it has
// not expired, its signing key was not revoked, and its user is not disabled. For introspected tokens it
// also starts a new query in time.
func (t *tokens) Still(p *Principal) bool {
	if p.Kind == KindKey {
		return still(t.keys, p)
	}
	if p.source == "" {
		return still(t.own, p)
	}
	if t.users != nil && p.Kind == KindUser && t.users.KnownDisabled(p.ID) {
		return false
	}
	if i := t.issuers[p.Issuer]; i != nil && i.print == p.source {
		i.keys.renew()
		return i.good(p)
	}
	return t.introspection != nil && t.introspection.print == p.source && t.introspection.still(p)
}

// servers returns the issuers, our own first.
func (t *tokens) servers(ours string) []string {
	var all []string
	if t.own != nil {
		all = append(all, ours)
	}
	for _, i := range t.order {
		all = append(all, i.Issuer)
	}
	if i := t.introspection; i != nil && !slices.Contains(all, i.Issuer) {
		all = append(all, i.Issuer)
	}
	return all
}

// entries returns the entries of the configuration of issuers.
func (t *tokens) entries() map[string]string {
	all := map[string]string{}
	if t.introspection != nil {
		all[t.introspection.Issuer] = "auth.introspection"
	}
	for _, i := range t.order {
		all[i.Issuer] = "auth.jwt." + i.Issuer
	}
	return all
}

// scopes returns the scopes that every issuer requires. Scopes that only some issuers require are
// named when a token lacks them.
func (t *tokens) scopes() []string {
	var needed [][]string
	if t.own != nil {
		needed = append(needed, []string{ownScope})
	}
	for _, i := range t.order {
		needed = append(needed, i.RequiredScopes)
	}
	if t.introspection != nil {
		needed = append(needed, t.introspection.RequiredScopes)
	}
	all := slices.Clone(needed[0])
	for _, other := range needed[1:] {
		all = slices.DeleteFunc(all, func(s string) bool { return !slices.Contains(other, s) })
	}
	return all
}

// ownScope is the scope of tokens of our own authorization server.
const ownScope = "mcp"
