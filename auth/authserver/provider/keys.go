package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"junction/auth/fetch"
)

// signingAlgs returns the algorithms of ID tokens and logout tokens. Without any, go-oidc uses RS256.
func (d *discovered) signingAlgs() []string {
	return slices.DeleteFunc(slices.Clone(d.Algorithms),
		func(alg string) bool { return alg == "none" || strings.HasPrefix(alg, "HS") })
}

// noKeysError means that a token cannot be verified, because the provider does not give its keys.
type noKeysError struct {
	issuer, endpoint string
	err              error
}

// Error returns what the operator can do, too.
func (e *noKeysError) Error() string {
	return "cannot get the keys of the identity provider " + e.issuer + ": " + e.err.Error() + "; " +
		cmp.Or(fetch.Advice(e.err), "open "+e.endpoint+" (jwks_uri), which must return a JSON Web Key Set")
}

func (e *noKeysError) Unwrap() error { return e.err }

// errNotYet means that a token is not valid yet by the clock of this machine (nbf).
var errNotYet = errors.New("not valid yet")

// verify verifies a signed token of the provider. It accepts the asymmetric algorithms of the metadata.
// The error is a *noKeysError if the token may be valid.
func (p *Provider) verify(ctx context.Context, d *discovered, keys oidc.KeySet, token string) (*oidc.IDToken, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	used := &usedKeys{KeySet: keys}
	verified, err := oidc.NewVerifier(p.Issuer, used, &oidc.Config{ClientID: p.ClientID, Now: p.now,
		SupportedSigningAlgs: d.signingAlgs()}).Verify(ctx, token)
	_, unreachable := errors.AsType[*url.Error](used.err)
	switch {
	case unreachable && !errors.Is(used.err, errKeysPause) || ctx.Err() != nil:
		return nil, &noKeysError{p.Issuer, d.Keys, cmp.Or(used.err, ctx.Err())}
	case err != nil && used.early(p.now()):
		return nil, fmt.Errorf("%w: %w", errNotYet, err)
	}
	return verified, err
}

// usedKeys remembers what keys have found out about a token, since go-oidc drops causes.
type usedKeys struct {
	oidc.KeySet
	payload []byte // nil if the keys did not verify the token
	err     error
}

// VerifySignature implements oidc.KeySet.
func (k *usedKeys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	k.payload, k.err = k.KeySet.VerifySignature(ctx, token)
	return k.payload, k.err
}

// early reports whether a token that go-oidc has refused is not valid yet: it permits an nbf of 5 minutes
// later, and has no type for that error.
func (k *usedKeys) early(now time.Time) bool {
	var c struct {
		NotBefore float64 `json:"nbf"`
	}
	return json.Unmarshal(k.payload, &c) == nil && c.NotBefore > float64(now.Add(5*time.Minute).Unix())
}

const (
	keysPause = time.Minute     // between two fetches of keys for tokens that anyone can send
	keysRetry = 5 * time.Second // after a failed fetch
)

// newKeys returns the keys of a provider that are published at an address. The key set of go-oidc fetches
// them for each signature that no known key has made. With now, it fetches them with pauses.
func newKeys(client *http.Client, at string, now func() time.Time) oidc.KeySet {
	own := *client
	own.Transport = keysTransport{own.Transport}
	if now != nil {
		own.Transport = &pausingTransport{next: own.Transport, now: now}
	}
	own.Timeout = cmp.Or(own.Timeout, patience)
	return oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), &own), at)
}

// keysTransport returns an error for an answer that is no set of keys, such as a page of a gateway: go-oidc
// does not tell it from keys that have not made a signature.
type keysTransport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t keysTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New("the provider answers " + resp.Status)
	}
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if text, err = readableKeys(text); err != nil {
		return nil, err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	return resp, nil
}

// errNoKeySet means that the keys endpoint of a provider answers with something else than keys.
var errNoKeySet = errors.New("the provider answers with something else than a JSON Web Key Set")

// readableKeys returns a JSON Web Key Set without the keys that are malformed, or of an unknown type
// (RFC 7517, section 5). go-oidc refuses the whole set for one of them.
func readableKeys(text []byte) ([]byte, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(text, &set) != nil || set.Keys == nil {
		return nil, errNoKeySet
	}
	all := len(set.Keys)
	set.Keys = slices.DeleteFunc(set.Keys,
		func(key json.RawMessage) bool { return new(jose.JSONWebKey).UnmarshalJSON(key) != nil })
	if len(set.Keys) == 0 && all > 0 {
		return nil, errNoKeySet
	}
	return json.Marshal(set)
}

// errKeysPause means that the keys are not fetched again yet.
var errKeysPause = errors.New("its keys were fetched a moment ago")

// pausingTransport refuses requests that follow too soon.
type pausingTransport struct {
	next http.RoundTripper
	now  func() time.Time

	mu    sync.Mutex
	again time.Time // guarded by mu
	err   error     // of the last request; guarded by mu
}

// RoundTrip implements http.RoundTripper.
func (t *pausingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.mu.Lock()
	if t.now().Before(t.again) {
		defer t.mu.Unlock()
		return nil, cmp.Or(t.err, errKeysPause)
	}
	t.again, t.err = t.now().Add(keysPause), nil
	t.mu.Unlock()
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		t.mu.Lock()
		t.again, t.err = t.now().Add(keysRetry), err
		t.mu.Unlock()
	}
	return resp, err
}
