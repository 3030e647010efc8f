// Package identity signs statements about the callers of Junction for servers that trust it
// (upstreams.NAME.identity), and has the public keys for them.
//
// The keys need no storage: each is derived from a secret of Junction (sessions.key_file) and from the day. So
// replicas with one secret sign with one key, and each of them publishes the keys of all. The keys of the day
// before and of the next day are published, too: a server may keep them for a day, and clocks may differ.
package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"junction/auth/seal"
	"junction/upstream"
)

const (
	lasts  = time.Minute    // of a statement
	period = 24 * time.Hour // of a key
)

// Signer signs statements. It may be used by several goroutines.
type Signer struct {
	key *seal.Key
	now func() time.Time

	mu   sync.Mutex
	day  int64             // of keys
	keys []jose.JSONWebKey // the one that signs, and then all other ones; nil before the first use
}

// New returns the Signer with the secrets of a key, of which the first one signs.
func New(key *seal.Key, now func() time.Time) *Signer { return &Signer{key: key, now: now} }

// claims are those of a statement. The audience is one text, because some libraries take no list.
type claims struct {
	Issuer   string   `json:"iss"`
	Subject  string   `json:"sub"`
	Audience string   `json:"aud"`
	ID       string   `json:"jti"`
	Issued   int64    `json:"iat"`
	Expires  int64    `json:"exp"`
	Email    string   `json:"email,omitempty"`
	Groups   []string `json:"groups,omitempty"`
	Client   string   `json:"client,omitempty"`
}

// Sign returns the statement of an issuer about a caller as a JWT.
func (s *Signer) Sign(issuer, audience string, of upstream.Identified) (string, error) {
	keys, err := s.today()
	if err != nil {
		return "", err
	}
	now := s.now()
	text, err := json.Marshal(claims{issuer, of.Subject, audience, rand.Text(), now.Unix(), now.Add(lasts).Unix(),
		of.Email, of.Groups, of.Client})
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: keys[0]},
		new(jose.SignerOptions).WithType("JWT"))
	if err != nil {
		return "", err
	}
	signed, err := signer.Sign(text)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}

// Public returns the public keys.
func (s *Signer) Public() ([]jose.JSONWebKey, error) {
	keys, err := s.today()
	if err != nil {
		return nil, err
	}
	var public []jose.JSONWebKey
	for _, key := range keys {
		one := key.Public()
		one.Use, one.Algorithm = "sig", string(jose.ES256)
		public = append(public, one)
	}
	return public, nil
}

// today returns the keys of the day, of the one before and of the next one. The first one signs.
func (s *Signer) today() ([]jose.JSONWebKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	day := s.now().Unix() / int64(period/time.Second)
	if s.keys != nil && s.day == day {
		return s.keys, nil
	}
	var keys []jose.JSONWebKey
	for _, of := range []int64{day, day - 1, day + 1} {
		for _, seed := range s.key.Secrets(fmt.Sprintf("identity of callers, day %d", of)) {
			key, err := derive(seed)
			if err != nil {
				return nil, err
			}
			keys = append(keys, key)
		}
	}
	s.keys, s.day = keys, day
	return slices.Clip(keys), nil
}

// derive returns the key of a seed. Its ID is its thumbprint (RFC 7638). One of four billion seeds is none.
func derive(seed []byte) (k jose.JSONWebKey, err error) {
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seed)
	if err != nil {
		return k, fmt.Errorf("a key for the identity of callers: %w; put a new key into sessions.key_file", err)
	}
	k.Key = key
	sum, err := k.Thumbprint(crypto.SHA256)
	k.KeyID = base64.RawURLEncoding.EncodeToString(sum)
	return k, err
}

// Join returns a set of public keys with more keys. set is JSON (RFC 7517); nil is an empty one.
func Join(set []byte, more []jose.JSONWebKey) ([]byte, error) {
	var all jose.JSONWebKeySet
	if set != nil {
		if err := json.Unmarshal(set, &all); err != nil {
			return nil, err
		}
	}
	all.Keys = append(all.Keys, more...)
	return json.Marshal(all)
}
