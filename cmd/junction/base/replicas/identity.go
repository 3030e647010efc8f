package replicas

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"time"

	"junction/auth/seal"
)

// identity has the secrets that members share. A member uses its first key at both ends of connections,
// and accepts all of its keys from others. The keys are derived from those of sessions, so operators manage
// no certificates.
type identity struct {
	certificate tls.Certificate // of the first key
	keys        []memberKey     // in the order of the file
}

// memberKey is what members derive from one key of sessions.
type memberKey struct {
	public      ed25519.PublicKey
	fingerprint string // of public, not secret
	digests     []byte // key of the digests of configurations
}

func newIdentity(key *seal.Key) (*identity, error) {
	i := &identity{}
	digests := key.Secrets("members digests")
	for n, seed := range key.Secrets("members tls") {
		public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
		sum := sha256.Sum256(public)
		i.keys = append(i.keys, memberKey{public, hex.EncodeToString(sum[:8]), digests[n]})
	}
	// The other end compares only the public key of the certificate.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0),
		NotAfter: time.Unix(1<<33, 0)}
	private := ed25519.NewKeyFromSeed(key.Secret("members tls"))
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the other processes: %w", err)
	}
	i.certificate = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
	return i, nil
}

// fingerprint returns that of the first key.
func (i *identity) fingerprint() string { return i.keys[0].fingerprint }

// fingerprints returns those of all keys, in order.
func (i *identity) fingerprints() (all []string) {
	for _, key := range i.keys {
		all = append(all, key.fingerprint)
	}
	return all
}

// accepts reports whether a public key is that of one of the keys.
func (i *identity) accepts(public ed25519.PublicKey) bool {
	found := 0
	for _, key := range i.keys {
		found |= subtle.ConstantTimeCompare(public, key.public)
	}
	return found == 1
}

// errStranger means that the other end of a connection has another key.
var errStranger = errors.New("it has another key (sessions.key_file)")

// config returns the TLS configuration of both ends of a connection.
func (i *identity) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.certificate},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // VerifyConnection compares the key
		SessionTicketsDisabled: true, // they would arrive on idle connections
		// Small first records would help only on slow networks, and cost system calls.
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errStranger
			}
			key, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !i.accepts(key) {
				return errStranger
			}
			return nil
		},
	}
}
