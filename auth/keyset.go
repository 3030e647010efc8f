package auth

import (
	"cmp"
	"context"
	"crypto"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// keySet holds the keys of one issuer. They are fetched when first needed, when no key fits a
// token, and periodically. Fetched keys stay valid while the issuer cannot be reached. Unlike the
// key set of go-oidc, it does not query the issuer for each invalid signature, but at most once a
// minute.
type keySet struct {
	issuer string
	fixed  string // jwks_url of the configuration; "" to discover it
	p      *Providers

	current atomic.Pointer[keys] // nil before the first fetch
	fresh   atomic.Int64         // end of freshness, in Unix nanoseconds

	mu      sync.Mutex
	url     string        // of the keys; "" until known
	loading chan struct{} // closed when the running fetch ends; nil if none runs
	err     error         // of the last fetch
	failed  int           // consecutive failures
	retry   time.Time     // no fetch before this time, after a failure
	cooled  time.Time     // no fetch before this time for a token that fits no key
}

// keys are the result of one fetch. They are immutable.
type keys struct {
	list   []jose.JSONWebKey
	prints map[string]bool
	asked  time.Time       // when the fetch began
	before map[string]bool // the key ids of the keys before
}

const (
	// fetch again after this time, so that a revoked key does not stay valid
	keysFresh    = 10 * time.Minute
	keysCooldown = time.Minute // between fetches for tokens that fit no key, which anyone can make up
	maxBackoff   = time.Minute
	fetchTimeout = 5 * time.Second
	maxDocument  = 64 << 10
)

var errSignature = fmt.Errorf("%w: it is not signed by a key of its issuer", ErrInvalidToken)

// errNewKey is for a token with an unknown key that may be newer than the last fetch, while the time for
// the next fetch has not come. It does not wrap ErrInvalidToken, so that the client keeps the token.
var errNewKey = errors.New("its key is not known yet")

// unavailableError means that an issuer could not be reached.
type unavailableError struct {
	issuer string
	err    error
}

func (e *unavailableError) Error() string { return e.issuer + ": " + e.err.Error() }
func (e *unavailableError) Unwrap() error { return e.err }

// verify returns the payload of a token with one signature, and the fingerprint of the key. The
// caller has checked the algorithm. skew is the tolerated clock difference. An error that does not wrap
// ErrInvalidToken means that keys could not be fetched, or is errNewKey.
func (k *keySet) verify(ctx context.Context, jws *jose.JSONWebSignature, skew time.Duration) (
	payload []byte, print string, err error) {
	now := k.current.Load()
	if now == nil {
		if _, err := k.load(ctx, false); err != nil {
			return nil, "", err
		}
		now = k.current.Load()
	}
	k.renew()
	payload, print, known := now.verify(jws)
	if payload == nil {
		// The issuer may have replaced a key under the same id, so an invalid signature also causes
		// a fetch. If that fails, the known keys decide.
		asked, err := k.load(ctx, true)
		if err != nil && (!known || ctx.Err() != nil) {
			return nil, "", err
		}
		if next := k.current.Load(); next != now {
			now = next
			payload, print, known = now.verify(jws)
		}
		if payload == nil && !known && !asked && now.mayLack(jws, skew) {
			return nil, "", errNewKey
		}
	}
	if payload == nil {
		return nil, "", errSignature
	}
	return payload, print, nil
}

// mayLack reports whether the unknown key of a token may be newer than the keys: the issuer has not removed
// a key with this id, and the token may have been issued after the fetch. mayLack reads iat without a
// check of the signature: a forged claim changes only the error.
func (k *keys) mayLack(jws *jose.JSONWebSignature, skew time.Duration) bool {
	var c claims
	if k.before[jws.Signatures[0].Header.KeyID] || json.Unmarshal(jws.UnsafePayloadWithoutVerification(), &c) != nil {
		return false
	}
	issued, there, err := c.time("iat")
	return err == nil && (!there || issued.After(k.asked.Add(-skew)))
}

// ids returns the ids of the keys that have one.
func (k *keys) ids() map[string]bool {
	ids := map[string]bool{}
	if k != nil {
		for i := range k.list {
			ids[k.list[i].KeyID] = true
		}
		delete(ids, "")
	}
	return ids
}

// has reports whether the issuer still has the key with a fingerprint, as far as is known.
func (k *keySet) has(print string) bool {
	now := k.current.Load()
	return now != nil && now.prints[print]
}

// verify returns the payload and the fingerprint of the key if one of the keys signed the token,
// and whether the key id of the token is known.
func (k *keys) verify(jws *jose.JSONWebSignature) (payload []byte, print string, known bool) {
	h := jws.Signatures[0].Header
	for i := range k.list {
		key := &k.list[i]
		if h.KeyID != "" && key.KeyID != h.KeyID || key.Algorithm != "" && key.Algorithm != h.Algorithm {
			continue
		}
		known = known || h.KeyID != ""
		if payload, err := jws.Verify(key.Key); err == nil && payload != nil {
			return payload, keyFingerprint(key), true
		}
	}
	return nil, "", known
}

// keyFingerprint returns a fingerprint of a key: its id, algorithm and thumbprint.
func keyFingerprint(key *jose.JSONWebKey) string {
	sum, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		return "" // in no set
	}
	return key.KeyID + "\x00" + key.Algorithm + "\x00" + string(sum)
}

// renew starts a fetch if the keys are not fresh. It does not wait.
func (k *keySet) renew() {
	if k.p.now().UnixNano() < k.fresh.Load() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.loading == nil && !k.p.now().Before(k.retry) {
		k.begin()
	}
}

// load fetches the keys and waits. If a fetch runs, or the last fetch was too recent, it returns the
// result of that, and asked is false. unfit means that the current keys do not fit a token.
func (k *keySet) load(ctx context.Context, unfit bool) (asked bool, err error) {
	k.mu.Lock()
	now := k.p.now()
	switch {
	case k.loading != nil:
	case now.Before(k.retry), unfit && now.Before(k.cooled):
		defer k.mu.Unlock()
		return false, k.err
	default:
		asked = true
		k.begin()
		if unfit {
			k.cooled = now.Add(keysCooldown)
		}
	}
	done := k.loading
	k.mu.Unlock()
	if done == nil {
		return false, &unavailableError{k.issuer, context.Canceled} // we are shutting down
	}
	select {
	case <-done:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return asked, k.err
}

func (k *keySet) status() ProviderStatus {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := ProviderStatus{Issuer: k.issuer, Usable: k.current.Load() != nil}
	if k.err != nil {
		s.Err = k.err.(*unavailableError).err.Error()
	}
	return s
}

// begin starts a fetch; k.mu is held.
func (k *keySet) begin() {
	done, at := make(chan struct{}), k.url
	if !k.p.fetching.enter() {
		return
	}
	k.loading = done
	asked := k.p.now()
	go func() {
		defer k.p.fetching.leave()
		found, at, err := k.fetch(at)
		k.mu.Lock()
		defer k.mu.Unlock()
		defer close(done)
		k.loading = nil
		if err != nil {
			k.err = &unavailableError{k.issuer, err}
			k.retry = k.p.now().Add(min(maxBackoff, time.Second<<min(k.failed, 10)))
			k.cooled = k.retry
			k.failed++
			return
		}
		k.err, k.failed, k.retry, k.url = nil, 0, time.Time{}, at
		found.asked, found.before = asked, k.current.Load().ids()
		k.current.Store(found)
		k.fresh.Store(k.p.now().Add(keysFresh).UnixNano())
	}()
}

// fetch discovers the URL of the keys, unless it is configured, and fetches them. at is the last
// known URL, which is used if discovery fails.
func (k *keySet) fetch(at string) (*keys, string, error) {
	ctx, cancel := context.WithTimeout(k.p.ctx, fetchTimeout)
	defer cancel()
	if k.fixed != "" {
		at = k.fixed
	} else if found, err := discover(ctx, k.p.client, k.issuer); err == nil {
		at = found
	} else if at == "" {
		return nil, "", err
	}
	client := k.p.client
	if k.fixed == "" && hostOf(at) != hostOf(k.issuer) {
		client = cmp.Or(k.p.Untrusted, client)
	}
	text, err := get(ctx, client, at)
	if err != nil {
		return nil, "", fmt.Errorf("cannot fetch its keys: %w", err)
	}
	found, err := parseKeys(text)
	return found, at, err
}

// hostOf returns the host and port of a URL.
func hostOf(s string) string {
	u, err := url.Parse(canonical(s))
	if err != nil {
		return ""
	}
	return u.Host
}

// parseKeys parses a JSON Web Key Set. It skips keys that cannot verify signatures here.
func parseKeys(text []byte) (*keys, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil || set.Keys == nil {
		return nil, errors.New("its keys are not a JSON Web Key Set")
	}
	k := &keys{prints: map[string]bool{}}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || key.Use != "" && key.Use != "sig" || !key.Valid() {
			continue // RFC 7517, section 5
		}
		key = key.Public() // the zero value for a symmetric key
		if rsa, ok := key.Key.(*rsa.PublicKey); key.Key == nil || ok && rsa.Size() < 256 {
			continue // RFC 7518, section 3.3
		}
		k.list = append(k.list, key)
		if print := keyFingerprint(&key); print != "" {
			k.prints[print] = true
		}
	}
	return k, nil
}

// discover returns the URL of the keys of an issuer, by OpenID Connect discovery or RFC 8414. The
// document must name the issuer.
func discover(ctx context.Context, client *http.Client, issuer string) (string, error) {
	u, err := url.Parse(issuer)
	if err != nil {
		return "", err
	}
	base := u.Scheme + "://" + u.Host
	path := strings.TrimSuffix(u.EscapedPath(), "/")
	var first error
	for _, at := range []string{base + path + "/.well-known/openid-configuration",
		base + "/.well-known/oauth-authorization-server" + path} {
		keysURL, err := discoverAt(ctx, client, issuer, at)
		if err == nil {
			return keysURL, nil
		}
		if first == nil {
			first = err
		}
	}
	return "", first
}

func discoverAt(ctx context.Context, client *http.Client, issuer, at string) (string, error) {
	text, err := get(ctx, client, at)
	if err != nil {
		return "", fmt.Errorf("cannot fetch its metadata: %w", err)
	}
	var document struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return "", errors.New("its metadata is not valid")
	}
	if document.Issuer != issuer {
		return "", fmt.Errorf("its metadata names another issuer: %.200q", document.Issuer)
	}
	if problem := RemoteProblem(document.Keys); problem != "" {
		return "", fmt.Errorf("its metadata has an invalid jwks_uri %.200q: %s", document.Keys, problem)
	}
	return document.Keys, nil
}

// get fetches a small document.
func get(ctx context.Context, client *http.Client, at string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	return exchange(client, req)
}

// exchange sends a request to an authorization server, and returns the body of its answer.
func exchange(client *http.Client, req *http.Request) ([]byte, error) {
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "identity") // a small compressed body could expand
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %d", req.URL.Redacted(), resp.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", req.URL.Redacted(), err)
	}
	if len(text) > maxDocument {
		return nil, fmt.Errorf("%s answered with more than %d KiB", req.URL.Redacted(), maxDocument>>10)
	}
	return text, nil
}
