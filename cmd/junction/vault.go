package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"junction/auth/oauth"
	"junction/auth/seal"
	"junction/auth/store"
	"junction/cmd/junction/config"
	"junction/upstream"
	"junction/upstream/pace"
)

// vault holds the tokens of the upstreams that Junction signs in to: the operator's (auth.mode
// oauth) and those of users (oauth_user).
type vault struct {
	store *store.Store
	keys  *seal.Ring
	oauth *oauth.Client
}

// openVault opens the vault if the configuration needs one and none is open. The vault stays open
// until the program ends.
func (p *program) openVault(c *config.Config) error {
	if p.vault.Load() != nil || c.Auth.OAuth == nil && len(c.OperatorSignIns()) == 0 && !c.Replicas.On() {
		return nil
	}
	fetcher, err := c.Outbound.Fetcher()
	if err != nil {
		return err
	}
	keys, err := p.ring(c.Storage)
	if err != nil {
		return err
	}
	dsn, err := c.Storage.Place(p.getenv)
	if err != nil {
		return err
	}
	if c.Storage.DSN == "" {
		if err := os.MkdirAll(filepath.Dir(dsn), 0o700); err != nil {
			return fmt.Errorf("there is no place for the sign-ins (storage.dsn): %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := store.Open(ctx, store.Config{Driver: c.Storage.Driver, DSN: dsn, Keys: keys, Log: p.log,
		Audited: func() { pace.Wake(p.events) }, Took: p.telemetry.Store})
	if err != nil {
		return fmt.Errorf("open the storage of sign-ins: %w", err)
	}
	name := ""
	if c.Auth.OAuth != nil {
		name = c.Auth.OAuth.Name
	}
	p.vault.Store(&vault{store: s, keys: keys, oauth: oauth.New(oauth.Options{
		Store: s, URL: c.PublicURL, Name: cmp.Or(name, "Junction"), Fetch: fetcher, HTTP: config.Trusting(fetcher),
		Log:     p.log,
		Changed: func(upstream, principal string) { p.set.Renew(principal, upstream) },
	})})
	return nil
}

// storage returns the storage of sign-ins; nil if no vault is open.
func (p *program) storage() *store.Store {
	if v := p.vault.Load(); v != nil {
		return v.store
	}
	return nil
}

// credentials gives the vault the upstreams of a configuration, and returns the source of upstream
// tokens, nil without a vault.
func (p *program) credentials(c *config.Config) upstream.Credentials {
	v := p.vault.Load()
	if v == nil {
		return nil
	}
	all := c.Personal()
	maps.Copy(all, c.OperatorSignIns())
	v.oauth.Apply(all)
	return p
}

// Apply implements upstream.Credentials.
func (p *program) Apply(ctx context.Context, c upstream.Caller, refused ...string) (got upstream.Credential, err error) {
	if c.User != "" {
		return p.signIn.apply(ctx, c, refused...)
	}
	got.Token, err = p.vault.Load().oauth.Token(ctx, c.Upstream, oauth.Operator, refused...)
	if broken := errors.Is(err, oauth.ErrBroken); broken || errors.Is(err, oauth.ErrNotConnected) {
		return got, &upstream.LackError{Upstream: c.Upstream, Mode: c.Mode, Again: broken}
	}
	return got, err
}

// missingScopes are the scopes that calls needed and the operator's sign-ins do not have, by upstream.
type missingScopes struct {
	mu     sync.Mutex
	scopes map[string][]string // guarded by mu
}

// mostMissing bounds the scopes of one upstream, which its server chooses.
const mostMissing = 20

// add adds the scopes of a failed call.
func (l *missingScopes) add(e *upstream.LackError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.scopes == nil {
		l.scopes = map[string][]string{}
	}
	all := append(l.scopes[e.Upstream], e.Scopes...)
	slices.Sort(all)
	all = slices.Compact(all)
	l.scopes[e.Upstream] = all[:min(len(all), mostMissing)]
}

// lacks returns the scopes that the operator's sign-in at an upstream lacks for some calls.
func (p *program) lacks(name string) []string {
	p.missingScopes.mu.Lock()
	scopes := slices.Clone(p.missingScopes.scopes[name])
	p.missingScopes.mu.Unlock()
	if len(scopes) == 0 || p.vault.Load() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	k, err := p.vault.Load().store.Connection(ctx, name, oauth.Operator)
	if err != nil {
		return scopes
	}
	granted := strings.Fields(k.Scope)
	return slices.DeleteFunc(scopes, func(s string) bool { return slices.Contains(granted, s) })
}

// close waits for in-flight token refreshes.
func (v *vault) close() {
	if v == nil {
		return
	}
	v.oauth.Close()
	_ = v.store.Close()
}

var _ upstream.Credentials = (*program)(nil)
