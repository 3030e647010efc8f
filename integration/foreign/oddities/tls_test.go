package oddities

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// This file serves rows over TLS. All clients trust one authority of this process.

// kindsOfTLS has what the certificate or the connection of each kind is.
var kindsOfTLS = map[string]func(*x509.Certificate, *tls.Config){
	"good":    func(*x509.Certificate, *tls.Config) {},
	"expired": func(c *x509.Certificate, _ *tls.Config) { c.NotAfter = time.Now().Add(-time.Hour) },
	"future":  func(c *x509.Certificate, _ *tls.Config) { c.NotBefore = time.Now().Add(time.Hour) },
	"other-name": func(c *x509.Certificate, _ *tls.Config) {
		c.IPAddresses, c.DNSNames = nil, []string{"other.example"}
	},
	"named": func(c *x509.Certificate, _ *tls.Config) {
		c.IPAddresses, c.DNSNames = nil, slices.Collect(maps.Values(nameOf))
	},
	"no-name": func(c *x509.Certificate, _ *tls.Config) { c.IPAddresses = nil },
	"client-use": func(c *x509.Certificate, _ *tls.Config) {
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	},
	"long": func(c *x509.Certificate, _ *tls.Config) { c.NotAfter = time.Now().AddDate(20, 0, 0) },
	"self": func(*x509.Certificate, *tls.Config) {}, // mustCertify signs it with its own key
	"old": func(_ *x509.Certificate, c *tls.Config) {
		c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	},
	"tls-1.2": func(_ *x509.Certificate, c *tls.Config) {
		c.MaxVersion = tls.VersionTLS12
	},
	"tls-1.3":     func(_ *x509.Certificate, c *tls.Config) { c.MinVersion = tls.VersionTLS13 },
	"http-2":      func(_ *x509.Certificate, c *tls.Config) { c.NextProtos = []string{"h2"} },
	"client-cert": func(_ *x509.Certificate, c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert },
	"asks-cert":   func(_ *x509.Certificate, c *tls.Config) { c.ClientAuth = tls.RequestClientCert },
}

// signer is a certificate with its key.
type signer struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// authority is the authority of this process.
var authority = sync.OnceValues(func() (signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return signer{}, err
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "odd authority"},
		NotBefore: time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &key.PublicKey, key)
	if err != nil {
		return signer{}, err
	}
	certificate, err := x509.ParseCertificate(der)
	return signer{certificate, key}, err
})

// trust returns the variables with which clients trust the authority.
func trust(t testing.TB) []string {
	t.Helper()
	file := mustWriteAuthority(t)
	return []string{"SSL_CERT_FILE=" + file, "NODE_EXTRA_CA_CERTS=" + file}
}

// mustWriteAuthority returns a file with the certificate of the authority.
func mustWriteAuthority(t testing.TB) string {
	t.Helper()
	ca, err := authority()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "authority.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// startTLS starts a server of a kind.
func startTLS(t testing.TB, ts *httptest.Server, kind string) {
	t.Helper()
	ca, err := authority()
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "127.0.0.1"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	config := &tls.Config{}
	kindsOfTLS[kind](form, config)
	if kind == "self" {
		ca = signer{form, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, form, ca.Certificate, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	config.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	ts.TLS, ts.EnableHTTP2 = config, kind == "http-2"
	ts.StartTLS()
}
