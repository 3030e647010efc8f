package oauth

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"junction/auth/keyfile"
)

// This file signs the assertions by which Junction proves to be its client (private_key_jwt: RFC 7523,
// section 2.2), and publishes the public keys.

const (
	assertionType  = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
	assertionLasts = time.Minute
	keysTTL        = 10 * time.Second // of the published keys
	mostAlgorithms = 8                // in an error, since the authorization server chooses them
)

// KeysPath is the path of the public keys of this server's clients.
const KeysPath = "/oauth/jwks.json"

// assertion are the claims of an assertion. The audience is one text, because some servers take no list.
type assertion struct {
	Issuer   string `json:"iss"`
	Subject  string `json:"sub"`
	Audience string `json:"aud"`
	ID       string `json:"jti"`
	Issued   int64  `json:"iat"`
	Expires  int64  `json:"exp"`
}

// keys returns the private keys of an upstream with KeyFile. The first one signs.
func (u Upstream) keys() ([]jose.JSONWebKey, error) {
	keys, err := keyfile.Read(u.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("auth.private_key_file: %w", err)
	}
	if u.KeyID != "" {
		keys[0].KeyID = u.KeyID
	}
	return keys, nil
}

// assert adds the assertion of an upstream with KeyFile to a request to an authorization server.
func (c *Client) assert(r *clientRequest) error {
	u, s := r.upstream, r.server
	r.form.Set("client_id", u.ClientID)
	keys, err := u.keys()
	if err != nil {
		return err
	}
	algorithm, err := s.algorithm(keys[0].Key)
	if err != nil {
		return err
	}
	now := c.Now()
	claims := assertion{u.ClientID, u.ClientID, s.Issuer, rand.Text(), now.Unix(), now.Add(assertionLasts).Unix()}
	if u.ToEndpoint {
		claims.Audience = s.TokenEndpoint
	}
	text, err := json.Marshal(claims)
	if err != nil {
		return err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: keys[0]},
		new(jose.SignerOptions).WithType("JWT"))
	if err != nil {
		return fmt.Errorf("auth.private_key_file: %w", err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		return fmt.Errorf("auth.private_key_file: %w", err)
	}
	compact, err := signed.CompactSerialize()
	r.form.Set("client_assertion_type", assertionType)
	r.form.Set("client_assertion", compact)
	return err
}

// algorithm returns the algorithm of a key that the authorization server takes.
func (s *serverMetadata) algorithm(key any) (jose.SignatureAlgorithm, error) {
	own := keyfile.Algorithms(key)
	for _, one := range own {
		if len(s.Algorithms) == 0 || slices.Contains(s.Algorithms, string(one)) {
			return one, nil
		}
	}
	var taken []string
	for _, one := range s.Algorithms[:min(len(s.Algorithms), mostAlgorithms)] {
		taken = append(taken, safeText(one))
	}
	return "", fmt.Errorf("auth.private_key_file: %s takes signatures of %s, and the key signs with %s; use a key of "+
		"another kind", host(s.Issuer), strings.Join(taken, ", "), own[0])
}

// KeyID returns the ID of the key that signs for an upstream; "" if the upstream has no KeyFile.
func (c *Client) KeyID(name string) (string, error) {
	u, _ := c.Upstream(name)
	if u.KeyFile == "" {
		return "", nil
	}
	keys, err := u.keys()
	if err != nil {
		return "", err
	}
	return keys[0].KeyID, nil
}

// publicKeys are the published keys.
type publicKeys struct {
	text  []byte // nil if there are none
	until time.Time
}

// Keys returns the public keys of this server's clients as a set (RFC 7517); nil if there are none. It reads
// the files at most once in ten seconds, because strangers may ask.
func (c *Client) Keys() []byte {
	c.mu.Lock()
	known, upstreams := c.public, c.upstreams
	c.mu.Unlock()
	if c.Now().Before(known.until) {
		return known.text
	}
	text, _, _ := c.flights.Do("keys", func() (any, error) {
		next := publicKeys{publish(upstreams), c.Now().Add(keysTTL)}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.public = next
		return next.text, nil
	})
	return text.([]byte)
}

// publish returns the public keys of upstreams; nil if none has a KeyFile. A file that cannot be used is left
// out: the next request for a token has the error.
func publish(upstreams map[string]Upstream) []byte {
	set, some := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}, false
	for _, name := range slices.Sorted(maps.Keys(upstreams)) {
		if upstreams[name].KeyFile == "" {
			continue
		}
		some = true
		keys, err := upstreams[name].keys()
		if err != nil {
			continue
		}
		for _, key := range keys {
			public := key.Public()
			public.Use = "sig"
			if !slices.ContainsFunc(set.Keys, func(k jose.JSONWebKey) bool { return k.KeyID == public.KeyID }) {
				set.Keys = append(set.Keys, public)
			}
		}
	}
	if !some {
		return nil
	}
	text, _ := json.Marshal(set) // public keys can be marshalled
	return text
}
