package certificate

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"junction/upstream/files"
)

// Store keeps the account at an authority, and the certificates that it has issued, with their keys. Only the owner
// can read it. Without it, each start would order again, until the authority refuses.
type Store struct{ dir string }

// OpenStore opens the store below a folder for the authority with a directory. It returns an error if nothing can
// be written there.
func OpenStore(dir, directory string) (*Store, error) {
	sum := sha256.Sum256([]byte(directory)) // an account and its certificates are of one authority
	s := &Store{filepath.Join(dir, hex.EncodeToString(sum[:8]))}
	err := os.MkdirAll(s.dir, 0o700)
	if err == nil {
		probe := filepath.Join(s.dir, "probe")
		if err = files.Write(probe, nil); err == nil {
			err = os.Remove(probe)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("tls.acme: cannot write certificates to %s: %w; let the user of Junction write to it",
			s.dir, files.Reason(err))
	}
	return s, nil
}

// account is the name of the file with the key of the account.
const account = "account.pem"

// Account returns the key of the account, which it makes if there is none. lost is why an existing one cannot be
// used, which is replaced.
func (s *Store) Account() (key crypto.Signer, lost, err error) {
	text, lost := s.read(account)
	if lost == nil {
		if key, lost = parseKey(text); lost == nil {
			return key, nil, nil
		}
	}
	if errors.Is(lost, fs.ErrNotExist) {
		lost = nil
	}
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, lost, err
	}
	return made, lost, s.write(account, made, nil)
}

// Certificate returns the certificate of a host, also one that has expired. The error is fs.ErrNotExist if there is
// none, and another one if the file is damaged.
func (s *Store) Certificate(host string) (*tls.Certificate, error) {
	text, err := s.read(host + ".pem")
	if err != nil {
		return nil, err
	}
	c, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	if err := c.Leaf.VerifyHostname(host); err != nil {
		return nil, err
	}
	return &c, nil
}

// Save writes the certificate of a host.
func (s *Store) Save(host string, c *tls.Certificate) error {
	key, is := c.PrivateKey.(crypto.Signer)
	if !is {
		return errors.New("the key cannot be written")
	}
	return s.write(host+".pem", key, c.Certificate)
}

// Wait returns the time until which the authority has asked to send no order; zero if it has not.
func (s *Store) Wait() time.Time {
	text, err := s.read("wait")
	if err != nil {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
	if err != nil {
		return time.Time{}
	}
	return at
}

// SetWait notes that time, for a later start.
func (s *Store) SetWait(at time.Time) error {
	return files.Write(filepath.Join(s.dir, "wait"), []byte(at.UTC().Format(time.RFC3339)+"\n"))
}

func (s *Store) read(name string) ([]byte, error) {
	text, err := files.Read(filepath.Join(s.dir, name), maxFile)
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", filepath.Join(s.dir, name), err)
	}
	return text, nil
}

// write writes a key and certificates in PEM.
func (s *Store) write(name string, key crypto.Signer, chain [][]byte) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	for _, one := range chain {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one})...)
	}
	return files.WriteSync(filepath.Join(s.dir, name), text)
}

// parseKey reads a key in PEM.
func parseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("there is no key in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, is := key.(crypto.Signer)
	if !is {
		return nil, errors.New("the key cannot sign")
	}
	return signer, nil
}
