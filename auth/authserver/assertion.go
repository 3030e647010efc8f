package authserver

import (
	"context"
	"crypto/rsa"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"junction/auth/store"
)

const (
	assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	maxAssertion  = 16 << 10
	assertionAge  = 10 * time.Minute // longest remaining lifetime of an assertion; its id is kept as long
	assertionSkew = time.Minute
)

// clientKeys are the public keys of a client.
type clientKeys struct {
	Set *jose.JSONWebKeySet
	URI string // where to fetch them if Set is nil
}

// authenticate returns the client that sent a token or revocation request. A client with keys must
// sign. Other clients are identified by client_id alone: their codes are bound to a PKCE verifier,
// and their refresh tokens rotate. The error is an *oauthError unless the client could not be
// looked up.
func (srv *Server) authenticate(ctx context.Context, r *http.Request, q url.Values) (*client, error) {
	id := q.Get("client_id")
	if user, password, basic := r.BasicAuth(); basic {
		name, err := url.QueryUnescape(user)
		if err != nil || password != "" || id != "" && id != name {
			return nil, bad("invalid_client", "this server issues no client secrets: send client_id in the body")
		}
		id = name
	}
	if q.Get("client_secret") != "" {
		return nil, bad("invalid_client", "this server issues no client secrets: leave client_secret out")
	}
	assertion := q.Get("client_assertion")
	switch {
	case assertion == "" && q.Get("client_assertion_type") != "":
		return nil, bad("invalid_client", "client_assertion is missing")
	case assertion != "" && q.Get("client_assertion_type") != assertionType:
		return nil, bad("invalid_client", "client_assertion_type must be "+assertionType)
	case assertion != "" && id == "":
		id = subjectOf(assertion)
	}
	if id == "" || len(id) > maxParam || !printable(id) {
		return nil, bad("invalid_client", "client_id is missing")
	}
	c, err := srv.clientOf(ctx, id)
	if pageErr, ok := errors.AsType[*pageError](err); ok && pageErr.code == codeBlocked {
		// A blocked client gets invalid_grant instead of invalid_client: on invalid_client, clients
		// register again automatically and receive a new id that is not blocked.
		return nil, bad("invalid_grant", "%s", pageErr.text)
	} else if ok {
		if err := srv.decided(keyClients); err != nil {
			return nil, err
		}
		return nil, bad("invalid_client", "%s", pageErr.text)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case assertion != "" && c.Keys == nil:
		return nil, bad("invalid_client", "the client has no keys; leave client_assertion out")
	case assertion != "":
		return c, srv.checkAssertion(ctx, c, assertion)
	case c.MustSign:
		return nil, bad("invalid_client", "client_assertion is missing; this client must sign (private_key_jwt)")
	}
	return c, nil
}

// subjectOf returns the subject of an assertion without verifying it.
func subjectOf(assertion string) string {
	t, err := jwt.ParseSigned(assertion, assertionAlgs)
	var c jwt.Claims
	if len(assertion) > maxAssertion || err != nil || t.UnsafeClaimsWithoutVerification(&c) != nil {
		return ""
	}
	return c.Subject
}

// checkAssertion verifies a client assertion: a JWT signed by the client for this server, and used
// once (RFC 7523, section 3).
func (srv *Server) checkAssertion(ctx context.Context, c *client, assertion string) error {
	no := func(why string) error { return bad("invalid_client", "client_assertion %s", why) }
	if len(assertion) > maxAssertion {
		return no("is too large")
	}
	t, err := jwt.ParseSigned(assertion, assertionAlgs)
	if err != nil || len(t.Headers) != 1 {
		return no("is not a JWT with an algorithm that this server supports")
	}
	if _, critical := t.Headers[0].ExtraHeaders["crit"]; critical {
		return no("has a crit header")
	}
	// Nothing is fetched or stored for a client that no user has allowed: such a client has no code
	// and no token to present.
	allowed, err := srv.store.ClientAllowed(ctx, c.ID)
	if err != nil {
		return err
	}
	if !allowed {
		return bad("invalid_grant", "no user of this server has allowed the client")
	}
	var claims jwt.Claims
	verified := false
	var tried *jose.JSONWebKeySet
	for _, again := range []bool{false, true} { // the second time with freshly fetched keys
		keys, err := srv.keysOf(ctx, c, again)
		if err != nil {
			return err
		}
		if keys == tried {
			break
		}
		tried = keys
		for _, k := range matchingKeys(keys, t.Headers[0]) {
			if t.Claims(k.Key, &claims) == nil {
				verified = true
				break
			}
		}
		if verified || c.Keys.Set != nil {
			break
		}
	}
	now := srv.now()
	switch {
	case !verified:
		return no("is not signed by a key of the client")
	case claims.Issuer != c.ID || claims.Subject != c.ID:
		return no("must have the client_id as iss and sub")
	case !slices.Contains(claims.Audience, srv.url) && !slices.Contains(claims.Audience, srv.url+"/oauth/token"):
		return no("must have the aud " + srv.url)
	case claims.Expiry == nil || !now.Before(claims.Expiry.Time().Add(assertionSkew)):
		return no("is expired, or has no exp")
	case claims.Expiry.Time().After(now.Add(assertionAge)):
		return no("expires later than in ten minutes")
	case claims.NotBefore != nil && now.Add(assertionSkew).Before(claims.NotBefore.Time()):
		return no("is not valid yet (nbf)")
	case claims.ID == "" || len(claims.ID) > 512:
		return no("has no jti, or a longer one than 512 bytes")
	}
	err = srv.store.UseAssertion(ctx, c.ID, claims.ID, claims.Expiry.Time().Add(2*assertionSkew))
	if errors.Is(err, store.ErrUsed) {
		return no("was already used (jti)")
	}
	return err
}

// These limits bound the work that a client can cause by publishing many or large keys.
const (
	maxRSA   = 8192 // bits, as in crypto/tls
	maxTries = 10   // matching keys; a real set has two or three
)

// matchingKeys returns the public signing keys that fit the algorithm of the header, and its key id
// if it has one.
func matchingKeys(set *jose.JSONWebKeySet, h jose.Header) []jose.JSONWebKey {
	var all []jose.JSONWebKey
	for _, k := range set.Keys {
		if !k.IsPublic() || !k.Valid() || k.Use != "" && k.Use != "sig" || k.Algorithm != "" &&
			k.Algorithm != h.Algorithm || h.KeyID != "" && k.KeyID != h.KeyID {
			continue
		}
		if public, ok := k.Key.(*rsa.PublicKey); ok && public.N.BitLen() > maxRSA {
			continue
		}
		if all = append(all, k); len(all) == maxTries {
			break
		}
	}
	return all
}

// keysOf returns the keys of a client. With again, keys at a URL are fetched again, at most once a
// minute for each URL.
func (srv *Server) keysOf(ctx context.Context, c *client, again bool) (*jose.JSONWebKeySet, error) {
	if c.Keys.Set != nil {
		return c.Keys.Set, nil
	}
	if srv.documents == nil || srv.documents.fetcher == nil {
		return nil, bad("invalid_client", "this server does not fetch client keys (auth.oauth.clients.cimd)")
	}
	return srv.documents.keys.get(ctx, c.Keys.URI, c.Host, again)
}
