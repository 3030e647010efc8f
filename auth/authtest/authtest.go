// Package authtest is a fake authorization server for tests, which can also misbehave: it signs
// tokens, publishes its keys, and answers introspection. secrets.go finds secrets in logs, and
// storage.go has helpers for tests of stores.
package authtest

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Server is an authorization server on loopback or in memory. Its methods may be called by several
// goroutines.
type Server struct {
	URL string // its issuer

	mu      sync.Mutex
	keys    []*Key
	asked   map[string]int
	changed map[string]http.HandlerFunc
	opaque  map[string]map[string]any
	down    bool
}

// Key is a signing key.
type Key struct {
	ID        string
	Algorithm jose.SignatureAlgorithm
	Private   crypto.Signer
}

// The paths of a server.
const (
	Metadata   = "/.well-known/openid-configuration"
	OAuth      = "/.well-known/oauth-authorization-server"
	Keys       = "/keys"
	Introspect = "/introspect"
)

// ClientID and ClientSecret authenticate introspection requests.
const (
	ClientID     = "junction"
	ClientSecret = "the canary-secret: of + junction"
)

// Start starts a server on loopback with an RS256 key named rsa. It stops at the end of the test.
func Start(t testing.TB) *Server {
	t.Helper()
	s := New(t)
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	s.URL = h.URL
	return s
}

// New returns a server that is not listening. Only its Client reaches it.
func New(t testing.TB) *Server {
	t.Helper()
	s := &Server{URL: "https://login.example.com", asked: map[string]int{}, changed: map[string]http.HandlerFunc{},
		opaque: map[string]map[string]any{}}
	s.SetKeys(NewKey(t, "rsa", jose.RS256))
	return s
}

// Client returns a client whose requests the server answers in memory.
func (s *Server) Client() *http.Client { return &http.Client{Transport: inMemory{s}} }

type inMemory struct{ s *Server }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if m.s.isDown() {
		return nil, fmt.Errorf("%s is down", m.s.URL)
	}
	w := httptest.NewRecorder()
	m.s.ServeHTTP(w, r)
	return w.Result(), nil
}

func (s *Server) isDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// NewKey returns a key that no other test has until this one ends.
func NewKey(t testing.TB, id string, algorithm jose.SignatureAlgorithm) *Key {
	t.Helper()
	k := &Key{ID: id, Algorithm: algorithm}
	var err error
	switch algorithm {
	case jose.ES256:
		k.Private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.ES384:
		k.Private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	default:
		k.Private, err = rsaKey(t)
	}
	if err != nil {
		t.Fatalf("make a key: %v", err)
	}
	return k
}

// spare has the RSA keys of tests that have ended. Making such a key takes long.
var spare = new(spareKeys)

type spareKeys struct {
	mu   sync.Mutex
	keys []*rsa.PrivateKey
}

// take returns a key; nil if there is none.
func (s *spareKeys) take() (key *rsa.PrivateKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.keys) - 1; last >= 0 {
		key, s.keys = s.keys[last], s.keys[:last]
	}
	return key
}

func (s *spareKeys) give(key *rsa.PrivateKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, key)
}

func rsaKey(t testing.TB) (key *rsa.PrivateKey, err error) {
	if key = spare.take(); key == nil {
		if key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			return nil, err
		}
	}
	t.Cleanup(func() { spare.give(key) })
	return key, nil
}

// SetKeys replaces the keys. The first one signs.
func (s *Server) SetKeys(keys ...*Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = keys
}

// Keys returns the keys of SetKeys.
func (s *Server) Keys() []*Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.keys)
}

// SetDown makes all requests fail, or not.
func (s *Server) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// Answer replaces the handler of a path; nil restores the server's own.
func (s *Server) Answer(path string, f http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed[path] = f; f == nil {
		delete(s.changed, path)
	}
}

// Asked returns the number of requests for a path.
func (s *Server) Asked(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// Opaque sets the introspection answer for a token; nil means not active.
func (s *Server) Opaque(token string, claims map[string]any) {
	Secret("an opaque token", token)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opaque[token] = claims
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked[r.URL.Path]++
	other, down := s.changed[r.URL.Path], s.down
	s.mu.Unlock()
	switch {
	case down:
		http.Error(w, "down", http.StatusBadGateway)
	case other != nil:
		other(w, r)
	case r.URL.Path == Metadata, r.URL.Path == OAuth:
		writeJSON(w, map[string]any{"issuer": s.URL, "jwks_uri": s.URL + Keys,
			"authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + "/token",
			"backchannel_logout_supported": true})
	case r.URL.Path == Keys:
		writeJSON(w, s.KeySet())
	case r.URL.Path == Introspect:
		s.introspect(w, r)
	default:
		http.NotFound(w, r)
	}
}

// KeySet returns the public keys as published.
func (s *Server) KeySet() jose.JSONWebKeySet {
	s.mu.Lock()
	defer s.mu.Unlock()
	var set jose.JSONWebKeySet
	for _, k := range s.keys {
		set.Keys = append(set.Keys,
			jose.JSONWebKey{Key: k.Private.Public(), KeyID: k.ID, Algorithm: string(k.Algorithm), Use: "sig"})
	}
	return set
}

func (s *Server) introspect(w http.ResponseWriter, r *http.Request) {
	id, secret, ok := r.BasicAuth()
	if !ok || id != ClientID || secret != strings.NewReplacer(" ", "+", ":", "%3A", "+", "%2B").Replace(ClientSecret) {
		http.Error(w, `{"error":"invalid_client"}`, http.StatusUnauthorized)
		return
	}
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" {
		http.Error(w, `{"error":"invalid_request"}`, http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	claims := maps.Clone(s.opaque[r.PostFormValue("token")])
	s.mu.Unlock()
	if claims == nil {
		claims = map[string]any{"active": false}
	} else if _, stated := claims["active"]; !stated {
		claims["active"] = true
	}
	writeJSON(w, claims)
}

func writeJSON(w http.ResponseWriter, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(text)
}

// Claims returns the claims of a valid token for an audience, which expires in an hour. other
// overrides claims; nil removes one.
func (s *Server) Claims(audience any, other map[string]any) map[string]any {
	now := time.Now().Unix()
	c := map[string]any{"iss": s.URL, "sub": "ann", "aud": audience, "exp": now + 3600, "iat": now, "client_id": "app"}
	for name, v := range other {
		if c[name] = v; v == nil {
			delete(c, name)
		}
	}
	return c
}

// Token signs claims with the first key. headers are added to alg and kid; typ is at+jwt by
// default, and nil removes a header.
func (s *Server) Token(t testing.TB, claims map[string]any, headers ...map[string]any) string {
	t.Helper()
	s.mu.Lock()
	key := s.keys[0]
	s.mu.Unlock()
	return key.Token(t, claims, headers...)
}

// Token is Server.Token with this key.
func (k *Key) Token(t testing.TB, claims map[string]any, headers ...map[string]any) string {
	t.Helper()
	options := new(jose.SignerOptions).WithHeader(jose.HeaderType, "at+jwt")
	if k.ID != "" {
		options = options.WithHeader("kid", k.ID)
	}
	for _, h := range headers {
		for name, v := range h {
			if options.ExtraHeaders[jose.HeaderKey(name)] = v; v == nil {
				delete(options.ExtraHeaders, jose.HeaderKey(name))
			}
		}
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: k.Algorithm, Key: k.Private}, options)
	if err != nil {
		t.Fatalf("sign a token: %v", err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatalf("sign a token: %v", err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		t.Fatalf("sign a token: %v", err)
	}
	token, err := jws.CompactSerialize()
	if err != nil {
		t.Fatalf("sign a token: %v", err)
	}
	Secret("a signed token", token)
	return token
}

// LogoutToken returns a logout token of ann for an audience (OpenID Connect Back-Channel Logout 1.0), which
// expires in two minutes. other overrides claims; nil removes one. headers are as for Token.
func (s *Server) LogoutToken(t testing.TB, audience any, other map[string]any, headers ...map[string]any) string {
	t.Helper()
	now := time.Now()
	claims := map[string]any{"client_id": nil, "scope": nil, "jti": fmt.Sprint("logout-", now.UnixNano()),
		"exp": now.Add(2 * time.Minute).Unix(), "iat": now.Unix(),
		"events": map[string]any{"http://schemas.openid.net/event/backchannel-logout": map[string]any{}}}
	maps.Copy(claims, other)
	return s.Token(t, s.Claims(audience, claims), append([]map[string]any{{"typ": "logout+jwt"}}, headers...)...)
}

// Large answers with a key set of n bytes of padding, as far as the client reads it.
func Large(n int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"keys":[`))
		spaces := bytes.Repeat([]byte(" "), 1<<16)
		for left := n; left > 0; left -= len(spaces) {
			if _, err := w.Write(spaces); err != nil {
				return
			}
		}
		w.Write([]byte(`]}`))
	}
}

// Dripping answers with a byte now and then, until the request ends.
func Dripping(pause time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write([]byte(" ")); err != nil {
				return
			}
			http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(pause):
			}
		}
	}
}
