package auth

import (
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

// keySet is the keys of one issuer. They are fetched when they are first needed, again when no key
// fits a token, and now and then; what was fetched once stays good while the issuer cannot be
// reached. go-oidc's own keys would have the issuer asked for each token with a wrong signature;
// here it is asked once a minute.
type keySet struct {
	issuer string
	fixed  string // jwks_url of the file; "" is found out
	client *http.Client
	// strangers gets keys from another host than that of the issuer.
	strangers *http.Client
	ctx       context.Context // ends with the program
	fetching  *fetches        // of the program
	now       func() time.Time

	current atomic.Pointer[keys] // nil before the first fetch
	fresh   atomic.Int64         // until when they are, in Unix nanoseconds

	mu      sync.Mutex
	url     string        // where the keys are; "" until it is known
	loading chan struct{} // closed when the fetch in progress has ended; nil when there is none
	err     error         // of the last fetch
	failed  int           // fetches in a row
	retry   time.Time     // before which no fetch begins, because the last one failed
	cooled  time.Time     // before which no fetch begins for a token that no key fits
}

// keys are what one fetch has found. They are immutable.
type keys struct {
	list   []jose.JSONWebKey
	prints map[string]bool
}

const (
	// after that they are fetched again, so that a key which was taken back is not good for ever
	keysFresh    = 10 * time.Minute
	keysCooldown = time.Minute // between two fetches for tokens that no key fits: anybody can make one up
	maxBackoff   = time.Minute
	fetchTimeout = 5 * time.Second
	maxDocument  = 64 << 10
)

var errSignature = fmt.Errorf("%w: its signature is not of a key of its issuer", ErrInvalidToken)

// unavailableError means that an issuer could not be asked.
type unavailableError struct {
	issuer string
	err    error
}

func (e *unavailableError) Error() string { return e.issuer + ": " + e.err.Error() }
func (e *unavailableError) Unwrap() error { return e.err }

// verify returns the payload of a token that one of the keys has signed, and the print of that key;
// its algorithm has been checked. An error that does not wrap ErrInvalidToken means that the keys
// could not be fetched.
func (k *keySet) verify(ctx context.Context, token string) (payload []byte, print string, err error) {
	jws, err := jose.ParseSignedCompact(token, asymmetric)
	if err != nil || len(jws.Signatures) != 1 {
		return nil, "", errMalformedJWT
	}
	now := k.current.Load()
	if now == nil {
		if err := k.load(ctx, false); err != nil {
			return nil, "", err
		}
		now = k.current.Load()
	}
	k.renew()
	payload, print, known := now.verify(jws)
	if payload == nil {
		// The issuer may have replaced a key under the same name, so a wrong signature is a reason
		// to ask, too. If the issuer cannot be asked, its known keys decide.
		if err := k.load(ctx, true); err != nil && (!known || ctx.Err() != nil) {
			return nil, "", err
		}
		if next := k.current.Load(); next != now {
			payload, print, _ = next.verify(jws)
		}
	}
	if payload == nil {
		return nil, "", errSignature
	}
	return payload, print, nil
}

// has reports whether the issuer has a key of that print still, as far as is known.
func (k *keySet) has(print string) bool {
	now := k.current.Load()
	return now != nil && now.prints[print]
}

// verify returns the payload if one of the keys has signed it, with the print of that, and whether
// there is a key by the name that the token gives.
func (k *keys) verify(jws *jose.JSONWebSignature) (payload []byte, print string, known bool) {
	h := jws.Signatures[0].Header
	for i := range k.list {
		key := &k.list[i]
		if h.KeyID != "" && key.KeyID != h.KeyID || key.Algorithm != "" && key.Algorithm != h.Algorithm {
			continue
		}
		known = known || h.KeyID != ""
		if payload, err := jws.Verify(key.Key); err == nil && payload != nil {
			return payload, printOfKey(key), true
		}
	}
	return nil, "", known
}

// printOfKey tells a key from others: by its name, what it is for, and itself.
func printOfKey(key *jose.JSONWebKey) string {
	sum, err := key.Thumbprint(crypto.SHA256)
	if err != nil {
		return "" // which no set has
	}
	return key.KeyID + "\x00" + key.Algorithm + "\x00" + string(sum)
}

// renew fetches keys that are not fresh any more, without waiting for them.
func (k *keySet) renew() {
	if k.now().UnixNano() < k.fresh.Load() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.loading == nil && !k.now().Before(k.retry) {
		k.begin()
	}
}

// load waits until the keys have been fetched. Where it is too early to ask again, it returns what
// came of the last time. With unfit it is about a token that the present keys do not fit.
func (k *keySet) load(ctx context.Context, unfit bool) error {
	k.mu.Lock()
	now := k.now()
	switch {
	case k.loading != nil:
	case now.Before(k.retry), unfit && now.Before(k.cooled):
		defer k.mu.Unlock()
		return k.err
	default:
		k.begin()
		if unfit {
			k.cooled = now.Add(keysCooldown)
		}
	}
	done := k.loading
	k.mu.Unlock()
	if done == nil {
		return &unavailableError{k.issuer, context.Canceled} // we are shutting down
	}
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
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
	started := k.fetching.start(func() {
		found, at, err := k.fetch(at)
		k.mu.Lock()
		defer k.mu.Unlock()
		defer close(done)
		k.loading = nil
		if err != nil {
			k.err = &unavailableError{k.issuer, err}
			k.retry = k.now().Add(min(maxBackoff, time.Second<<min(k.failed, 10)))
			k.cooled = k.retry
			k.failed++
			return
		}
		k.err, k.failed, k.retry, k.url = nil, 0, time.Time{}, at
		k.current.Store(found)
		k.fresh.Store(k.now().Add(keysFresh).UnixNano())
	})
	if started {
		k.loading = done
	}
}

// fetch finds out where the keys are, if the file does not say so, and gets them. at is where they
// were; it counts where the issuer does not say any more.
func (k *keySet) fetch(at string) (*keys, string, error) {
	ctx, cancel := context.WithTimeout(k.ctx, fetchTimeout)
	defer cancel()
	if k.fixed != "" {
		at = k.fixed
	} else if found, err := discover(ctx, k.client, k.issuer); err == nil {
		at = found
	} else if at == "" {
		return nil, "", err
	}
	client := k.client
	if k.fixed == "" && hostOf(at) != hostOf(k.issuer) {
		client = k.strangers
	}
	text, err := get(ctx, client, at)
	if err != nil {
		return nil, "", fmt.Errorf("its keys cannot be fetched: %w", err)
	}
	found, err := parseKeys(text)
	return found, at, err
}

// hostOf returns the host and the port of a URL.
func hostOf(s string) string {
	u, err := url.Parse(canonical(s))
	if err != nil {
		return ""
	}
	return u.Host
}

// parseKeys reads a JSON Web Key Set. Keys that are of no use here are left out: a key that two
// share is no signature.
func parseKeys(text []byte) (*keys, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil || set.Keys == nil {
		return nil, errors.New("its keys are no JSON Web Key Set")
	}
	k := &keys{prints: map[string]bool{}}
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) != nil || key.Use != "" && key.Use != "sig" || !key.Valid() {
			continue // RFC 7517, section 5
		}
		key = key.Public() // the zero value of a shared one
		if rsa, ok := key.Key.(*rsa.PublicKey); key.Key == nil || ok && rsa.Size() < 256 {
			continue // RFC 7518, section 3.3
		}
		k.list = append(k.list, key)
		if print := printOfKey(&key); print != "" {
			k.prints[print] = true
		}
	}
	return k, nil
}

// discover finds out where the keys of an issuer are: by OpenID Connect, or by RFC 8414. A document
// of another issuer is worth nothing.
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
		return "", fmt.Errorf("its metadata cannot be fetched: %w", err)
	}
	var document struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return "", errors.New("its metadata is not what it should be")
	}
	if document.Issuer != issuer {
		return "", fmt.Errorf("its metadata is that of %.200q", document.Issuer)
	}
	if problem := remoteProblem(document.Keys); problem != "" {
		return "", fmt.Errorf("its metadata has the jwks_uri %.200q: %s", document.Keys, problem)
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

// exchange sends a request to an authorization server and returns the document that it answers
// with.
func exchange(client *http.Client, req *http.Request) ([]byte, error) {
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "identity") // what is small on the way could be large here
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
