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

// identity has the secrets that all members share. Both ends of a connection between members use
// the same private key. It is derived from the key of sessions, so operators manage no
// certificates.
type identity struct {
	certificate tls.Certificate
	public      ed25519.PublicKey
	fingerprint string // of public, not secret
	digests     []byte // key of the digests of configurations
}

func newIdentity(key *seal.Key) (*identity, error) {
	private := ed25519.NewKeyFromSeed(key.Secret("members tls"))
	i := &identity{digests: key.Secret("members digests"), public: private.Public().(ed25519.PublicKey)}
	sum := sha256.Sum256(i.public)
	i.fingerprint = hex.EncodeToString(sum[:8])
	// The other end compares only the public key of the certificate.
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0),
		NotAfter: time.Unix(1<<33, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, i.public, private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the other processes: %w", err)
	}
	i.certificate = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
	return i, nil
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
			if !ok || subtle.ConstantTimeCompare(key, i.public) != 1 {
				return errStranger
			}
			return nil
		},
	}
}
