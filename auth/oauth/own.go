package oauth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"

	"junction/auth/store"
)

// This file gets the token of an upstream with Own: the client credentials grant (RFC 6749, section 4.4)
// with a client of the configuration. All members share one token, which is a connection of the operator
// under a principal of its own.

// Own is the principal with which Token returns the token of an upstream with Own.
const Own = "junction"

const (
	refusedPause = 30 * time.Second // a rejected token is replaced only if it is older
	firstPause   = time.Second      // after a failed request; doubled with each further failure
	longestPause = time.Minute
)

// failure is the last failed request for an Own token, and until when no further one is sent.
type failure struct {
	err   error
	count int
	until time.Time
}

// ownPrincipal returns the principal of the token of a configuration. Another URL, client, scope or
// audience has another principal, so its token is never used for this one.
func (u Upstream) ownPrincipal() string {
	text, _ := json.Marshal([]any{u.URL, u.Issuer, u.ClientID, u.Scopes, u.Resource, u.Audience}) // cannot fail
	sum := sha256.Sum256(text)
	return Own + ":" + hex.EncodeToString(sum[:16])
}

// ownToken is Token for an upstream with Own. ErrBroken means that the upstream has rejected a new token,
// too; the token stays stored.
func (c *Client) ownToken(ctx context.Context, name string, u Upstream, refused []string) (string, error) {
	k, err := c.Store.Connection(ctx, name, u.ownPrincipal())
	if errors.Is(err, store.ErrNotFound) {
		k, err = c.startOwn(ctx, name, u)
	}
	if err != nil {
		return "", err
	}
	c.noteExpiry(name, u, k.Expires)
	rejected := slices.Contains(refused, k.Access)
	switch {
	case rejected && len(refused) > 1:
		return "", ErrBroken
	case rejected && c.Now().Before(k.Given.Add(refusedPause)):
		return k.Access, nil // another token would not help
	case !rejected && k.Access != "" && c.ownFresh(k):
		return k.Access, nil
	}
	if err := c.paused(name); err != nil {
		if !rejected && k.Access != "" && c.current(k) {
			return k.Access, nil
		}
		return "", err
	}
	if !rejected && k.Access != "" && c.current(k) { // callers do not wait for the renewal
		c.renewOwn(ctx, u, k)
		return k.Access, nil
	}
	return c.renew(ctx, u, k)
}

// renewOwn renews a token that has not expired, in the background. The claim of renewOnce and the flight
// keep it to one request.
func (c *Client) renewOwn(ctx context.Context, u Upstream, k store.Connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead[k.Upstream] {
		return
	}
	c.ahead[k.Upstream] = true
	c.renewing.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewTimeout)
		defer cancel()
		if _, err := c.renew(ctx, u, k); err != nil {
			c.Log.Warn("cannot renew the token of an upstream before its expiry", "upstream", k.Upstream, "error", err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.ahead, k.Upstream)
	})
}

// ownFresh is fresh, with a renewal that is up to a quarter earlier: the tokens of several upstreams do
// not expire at the same moment.
func (c *Client) ownFresh(k store.Connection) bool {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(k.Upstream + " " + k.Principal))
	early := min(renewEarly, k.Expires.Sub(k.Given)/2)
	early += early * time.Duration(sum.Sum32()%1000) / 4000
	return k.Expires.IsZero() || c.Now().Add(early).Before(k.Expires)
}

// paused returns why no request for an Own token may be sent yet: the last one has failed. It is nil if one may.
func (c *Client) paused(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, failed := c.attempts[name]
	if !failed || !c.Now().Before(f.until) {
		return nil
	}
	return fmt.Errorf("%w; the next request is at %s", f.err, f.until.UTC().Format("15:04:05 UTC"))
}

// attempted notes the result of a request for a token.
func (c *Client) attempted(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.attempts, name)
		return
	}
	f := c.attempts[name]
	pause := min(firstPause<<min(f.count, 10), longestPause)
	pause += time.Duration(rand.Int64N(int64(pause) / 4))
	c.attempts[name] = failure{err, f.count + 1, c.Now().Add(pause)}
}

// Failing returns why the last request for an Own token failed, and since how many requests; nil if it
// did not fail.
func (c *Client) Failing(name string) (requests int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.attempts[name]
	return f.count, f.err
}

// startOwn stores a connection without a token, which the members claim to get the first one.
func (c *Client) startOwn(ctx context.Context, name string, u Upstream) (store.Connection, error) {
	operator, err := c.Store.Operator(ctx)
	if err != nil {
		return store.Connection{}, err
	}
	k := store.Connection{Upstream: name, User: operator.ID, Principal: u.ownPrincipal(), Issuer: u.Issuer,
		Resource: u.URL, ClientID: u.ClientID}
	if err := c.Store.StartConnection(ctx, k); err != nil {
		return k, err
	}
	return c.Store.Connection(ctx, name, k.Principal)
}

// grant gets a token for a connection that this process has claimed, and stores it.
func (c *Client) grant(ctx context.Context, u Upstream, k store.Connection) (string, error) {
	t, scope, err := c.request(ctx, k.Upstream, u)
	c.attempted(k.Upstream, err)
	if err != nil {
		if failed := c.Store.ReleaseConnection(ctx, k); failed != nil {
			c.Log.Debug("cannot release the claim on a connection", "error", failed)
		}
		return "", err
	}
	k.Scope = scope
	t.put(&k, c.Now())
	if err := c.Store.RenewConnection(ctx, k); err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	return k.Access, nil // also if another configuration has replaced the row: the token is of this one
}

// request requests a token, and returns it with the scopes that were asked for.
func (c *Client) request(ctx context.Context, name string, u Upstream) (*token, string, error) {
	scopes, resource := u.Scopes, u.URL
	// The configuration has the issuer. The upstream adds what it names its resource, and its scopes.
	if p, err := c.discoverResource(ctx, name, u); err == nil {
		resource = cmp.Or(p.Resource, resource)
		if len(scopes) == 0 {
			scopes = tokens(p.challenged...)
		}
	} else if isOutage(err) {
		return nil, "", fmt.Errorf("ask the server for its resource: %w", err)
	}
	form, scope := url.Values{"grant_type": {"client_credentials"}}, strings.Join(scopes, " ")
	if scope != "" {
		form.Set("scope", scope)
	}
	if u.Audience != "" {
		form.Set("audience", u.Audience)
	}
	s, err := c.discoverServer(ctx, u, u.Issuer)
	if err != nil {
		return nil, "", err
	}
	exchange := func(u Upstream) (*token, error) {
		who, err := c.configured(store.UpstreamClient{Upstream: name, Issuer: u.Issuer}, u, s)
		if err != nil {
			return nil, err
		}
		return c.exchangeAs(ctx, u, s, who, u.indicator(resource), maps.Clone(form))
	}
	t, err := exchange(u)
	if no, refused := errors.AsType[*errorAnswer](err); refused && no.rejectsClient() && u.ClientSecret != "" &&
		c.Other != nil {
		if other := c.Other(ctx, name, u.ClientSecret); other != "" && other != u.ClientSecret {
			u.ClientSecret = other
			t, err = exchange(u)
		}
	}
	if err != nil {
		return nil, "", fmt.Errorf("get a token at %s: %w", host(u.Issuer), err)
	}
	t.Refresh = "" // RFC 6749, section 4.4.3: the grant is repeated instead
	return t, scope, nil
}

// Trial is a token that is not stored.
type Trial struct {
	Token, Scope string
	Expires      time.Time // zero if it is unknown
}

// TryOwn gets a token for an upstream with Own. It neither reads nor writes the store.
func (c *Client) TryOwn(ctx context.Context, name string) (Trial, error) {
	u, ok := c.Upstream(name)
	if !ok || !u.Own {
		return Trial{}, ErrNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	t, scope, err := c.request(ctx, name, u)
	if err != nil {
		return Trial{}, err
	}
	k := store.Connection{Scope: scope}
	t.put(&k, c.Now())
	return Trial{k.Access, k.Scope, k.Expires}, nil
}
