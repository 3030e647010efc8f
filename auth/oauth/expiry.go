package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"junction/auth/store"
)

// This file decides what follows from the expiry of the client secret of a registration
// (client_secret_expires_at, RFC 7591, section 3.2.1). A sign-in shortly before it, or after it, registers
// anew. Tokens of the old client cannot go to the new one (RFC 6749, section 6), so the old registration
// stays beside the new one, and renews them as long as the authorization server permits that.

const (
	// renewSecret is how long before the expiry of its secret a client is registered anew, unless the
	// lifetime of the secret is shorter than four times that.
	renewSecret = 7 * 24 * time.Hour
	// shortestSecret is the shortest lifetime of a secret. Some servers write a lifetime, or the time of
	// the registration, instead of the time of the expiry.
	shortestSecret = time.Minute
)

// secretExpiry returns when a secret expires that a registration has returned now: a number, which some
// servers send as a string. It is zero if the secret does not expire, or if that is unknown.
func secretExpiry(text json.RawMessage, now time.Time) time.Time {
	seconds, err := strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	if err != nil || !(seconds > 0 && seconds <= math.MaxUint32) {
		return time.Time{}
	}
	if at := time.Unix(int64(seconds), 0).UTC(); at.Sub(now) >= shortestSecret {
		return at
	}
	return time.Time{}
}

// expired reports whether the secret of a registration has expired.
func (c *Client) expired(who store.UpstreamClient) bool {
	return !who.SecretExpires.IsZero() && !c.Now().Before(who.SecretExpires)
}

// expiring reports whether the secret of a registration has expired or expires soon.
func (c *Client) expiring(who store.UpstreamClient) bool {
	early := min(renewSecret, who.SecretExpires.Sub(who.Created)/4)
	return !who.SecretExpires.IsZero() && !c.Now().Add(early).Before(who.SecretExpires)
}

// earlier is the Issuer of a registration that another one has replaced. There is at most one: when the
// next one is due, the secret of the one before has expired.
func earlier(registrar string) string { return registrar + " earlier" }

// supersede stores a new registration, and keeps the old one for its tokens.
func (c *Client) supersede(ctx context.Context, old, who store.UpstreamClient) (store.UpstreamClient, error) {
	kept := old
	kept.Issuer = earlier(old.Issuer)
	return c.Store.SupersedeUpstreamClient(ctx, old, kept, who)
}

// registeredAs returns the stored registration of the tokens of a connection, which another one may have
// replaced. The error is store.ErrNotFound if there is none.
func (c *Client) registeredAs(ctx context.Context, u Upstream, k store.Connection) (
	known store.UpstreamClient, err error,
) {
	redirect := c.redirectOf(k.Upstream, u)
	known, err = c.registered(ctx, k.Upstream, k.Issuer, k.TokenEndpoint, redirect)
	if err != nil && !errors.Is(err, store.ErrNotFound) || err == nil && known.ClientID == k.ClientID {
		return known, err
	}
	for _, issuer := range spellings(k.Issuer) {
		issuer = earlier(registrar(issuer, k.TokenEndpoint))
		known, err = c.Store.UpstreamClient(ctx, k.Upstream, issuer, redirect)
		if err != nil && !errors.Is(err, store.ErrNotFound) || err == nil && known.ClientID == k.ClientID {
			return known, err
		}
	}
	return store.UpstreamClient{}, store.ErrNotFound
}

// secretOf returns the registration of the tokens of a connection, and whether it has a secret that
// expires.
func (c *Client) secretOf(ctx context.Context, u Upstream, k store.Connection) (who store.UpstreamClient, ok bool) {
	if u.ClientID != "" || k.ClientID == "" || k.ClientID == c.documentURL() {
		return who, false
	}
	who, err := c.registeredAs(ctx, u, k)
	return who, err == nil && !who.SecretExpires.IsZero()
}

// secretEnded reports whether the secret has expired with which the tokens of a connection are renewed.
func (c *Client) secretEnded(ctx context.Context, u Upstream, k store.Connection) bool {
	who, ok := c.secretOf(ctx, u, k)
	return ok && c.expired(who)
}

// Ending returns why the sign-in of a principal at an upstream has ended, or ends soon: the client secret of
// its registration expires. It is "" if that is not so, or not known.
func (c *Client) Ending(ctx context.Context, name, principal string) string {
	u, ok := c.Upstream(name)
	if !ok || c.Store == nil || u.ClientID != "" {
		return ""
	}
	k, err := c.Store.Connection(ctx, name, principal)
	if err != nil {
		return ""
	}
	switch who, ok := c.secretOf(ctx, u, k); {
	case !ok || !c.expiring(who):
		return ""
	case c.expired(who):
		return fmt.Sprintf("the client secret of this sign-in, from %s, expired on %s", host(k.Issuer),
			day(who.SecretExpires))
	case k.Broken:
		return "" // something else has ended it
	default:
		return fmt.Sprintf("the client secret of this sign-in, from %s, expires on %s, and then the sign-in may end",
			host(k.Issuer), day(who.SecretExpires))
	}
}

func day(at time.Time) string { return at.UTC().Format("2006-01-02") }
