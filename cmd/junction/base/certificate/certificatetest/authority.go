// Package certificatetest makes certificates for tests.
package certificatetest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Host is the host of ForHost.
const Host = "mcp.example.com"

// Signed is a certificate with its key. It can sign others.
type Signed struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// MustSign returns a certificate of the name, valid until days from now, which by has signed. With nil, it signs
// itself. change may be nil.
func MustSign(t testing.TB, by *Signed, name string, days int, change func(*x509.Certificate)) *Signed {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().AddDate(0, 0, days)}
	if change != nil {
		change(template)
	}
	made := &Signed{Key: key}
	parent, signer := template, crypto.Signer(key)
	if by != nil {
		parent, signer = by.Cert, by.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	if made.Cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return made
}

// AsAuthority lets a certificate sign others.
func AsAuthority(c *x509.Certificate) {
	c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
}

// ForHost makes a certificate of Host.
func ForHost(c *x509.Certificate) { c.DNSNames = []string{Host} }

// PEM returns certificates in PEM.
func PEM(list ...*Signed) (text string) {
	for _, s := range list {
		text += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Cert.Raw}))
	}
	return text
}

// MustKeyPEM returns the key in PEM.
func (s *Signed) MustKeyPEM(t testing.TB) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(s.Key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// MustWrite writes cert.pem and key.pem into a folder, each in one step.
func MustWrite(t testing.TB, dir, cert, key string) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, text := range map[string]string{certFile: cert, keyFile: key} {
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}
