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
	assertionAge  = 10 * time.Minute // that an assertion may still have before it; ids are kept as long
	assertionSkew = time.Minute
)

// clientKeys are the public keys that a client signs with.
type clientKeys struct {
	Set *jose.JSONWebKeySet
	URI string // where they are, if Set is nil
}

// authenticate returns the client that a request for programs comes from. One that can sign must;
// for all others the id is all there is, which is why their codes are bound to a verifier and their
// refresh tokens are good once. The error is an *oauthError, or one that kept us from finding out.
func (srv *Server) authenticate(ctx context.Context, r *http.Request, q url.Values) (*client, error) {
	id := q.Get("client_id")
	if user, password, basic := r.BasicAuth(); basic {
		name, err := url.QueryUnescape(user)
		if err != nil || password != "" || id != "" && id != name {
			return nil, bad("invalid_client", "this server has given no client a secret: send client_id in the body")
		}
		id = name
	}
	if q.Get("client_secret") != "" {
		return nil, bad("invalid_client", "this server has given no client a secret: leave client_secret out")
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
	if wrong, ok := errors.AsType[*pageError](err); ok && wrong.code == codeBlocked {
		// Whatever the client shows has ended. It is not told invalid_client: that would have it
		// register again by itself, and be another one that nobody has blocked.
		return nil, bad("invalid_grant", "%s", wrong.text)
	} else if ok {
		return nil, bad("invalid_client", "%s", wrong.text)
	}
	if err != nil {
		return nil, err
	}
	switch {
	case assertion != "" && c.Keys == nil:
		return nil, bad("invalid_client", "the client has no keys to sign with")
	case assertion != "":
		return c, srv.checkAssertion(ctx, c, assertion)
	case c.MustSign:
		return nil, bad("invalid_client",
			"the client signs (private_key_jwt), and did not: client_assertion is missing")
	}
	return c, nil
}

// subjectOf returns whom an assertion says it is of, before anybody has checked that.
func subjectOf(assertion string) string {
	t, err := jwt.ParseSigned(assertion, assertionAlgs)
	var c jwt.Claims
	if len(assertion) > maxAssertion || err != nil || t.UnsafeClaimsWithoutVerification(&c) != nil {
		return ""
	}
	return c.Subject
}

// checkAssertion wants a JWT that the client has signed for us, and that was not here before (RFC
// 7523, section 3).
func (srv *Server) checkAssertion(ctx context.Context, c *client, assertion string) error {
	no := func(why string) error { return bad("invalid_client", "client_assertion: %s", why) }
	if len(assertion) > maxAssertion {
		return no("it is too large")
	}
	t, err := jwt.ParseSigned(assertion, assertionAlgs)
	if err != nil || len(t.Headers) != 1 {
		return no("it is no JWT with one of the algorithms of this server")
	}
	if _, critical := t.Headers[0].ExtraHeaders["crit"]; critical {
		return no("it has a crit header")
	}
	// Nothing is fetched or written down for a client that no user has allowed: it has no code and
	// no token.
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
	for _, again := range []bool{false, true} { // a second time with keys that were fetched anew
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
		return no("no key of the client has signed it")
	case claims.Issuer != c.ID || claims.Subject != c.ID:
		return no("iss and sub must be the client_id")
	case !slices.Contains(claims.Audience, srv.url) && !slices.Contains(claims.Audience, srv.url+"/oauth/token"):
		return no("aud must be " + srv.url)
	case claims.Expiry == nil || !now.Before(claims.Expiry.Time().Add(assertionSkew)):
		return no("it is expired, or says not when")
	case claims.Expiry.Time().After(now.Add(assertionAge)):
		return no("it is good for longer than ten minutes")
	case claims.NotBefore != nil && now.Add(assertionSkew).Before(claims.NotBefore.Time()):
		return no("it is not good yet")
	case claims.ID == "" || len(claims.ID) > 512:
		return no("jti is missing")
	}
	err = srv.store.UseAssertion(ctx, c.ID, claims.ID, claims.Expiry.Time().Add(2*assertionSkew))
	if errors.Is(err, store.ErrUsed) {
		return no("it was used before")
	}
	return err
}

// A client may publish any key, and anybody may have us try it: what costs more than a real one is
// left out.
const (
	maxRSA   = 8192 // bits, as in crypto/tls
	maxTries = 10   // keys that fit a header; a real set has two or three
)

// matching returns the keys that may have signed: public ones for signing, of the kind of the
// algorithm, and of the id that the header names, if it names one.
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

// keysOf returns the keys of a client. again asks for those of the net anew, which happens at most
// once a minute for each place.
func (srv *Server) keysOf(ctx context.Context, c *client, again bool) (*jose.JSONWebKeySet, error) {
	if c.Keys.Set != nil {
		return c.Keys.Set, nil
	}
	if srv.documents == nil || srv.documents.fetcher == nil {
		return nil, bad("invalid_client", "this server reads no keys from the net")
	}
	return srv.documents.keys.get(ctx, c.Keys.URI, c.Host, again)
}
