package upstream

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/upstream/upstreamtest"
)

// mustIssue writes a certificate and its key into files, and returns it. parent is nil for an authority.
func mustIssue(t *testing.T, dir, name string, ends time.Time, parent *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: ends, IsCA: parent == nil, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	signer, by := any(key), template
	if parent != nil {
		signer, by = parent.PrivateKey, parent.Leaf
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	authtest.Secret("a line of a private key", strings.Split(string(text), "\n")[1])
	for file, text := range map[string][]byte{name + ".pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), name + ".key": text} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// TestTLSOfAnUpstream: a server with a certificate of a private authority is reached with that authority and the
// name in the certificate, and shows its tools only to the certificate of the entry. Each wrong file has its reason,
// and no key switches the verification off.
func TestTLSOfAnUpstream(t *testing.T) {
	dir, later := t.TempDir(), time.Now().Add(time.Hour)
	authority := mustIssue(t, dir, "authority", later, nil)
	server := mustIssue(t, dir, "mcp.internal", later, authority)
	mustIssue(t, dir, "client", later, authority)
	mustIssue(t, dir, "expired", time.Now().Add(-24*time.Hour), authority)
	stranger := mustIssue(t, dir, "stranger", later, nil)
	mustIssue(t, dir, "foreign", later, stranger)
	up := upstreamtest.New(upstreamtest.Script{})
	defer up.Close()
	s := httptest.NewUnstartedServer(up.Handler())
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of the certificates that are refused
	clients := x509.NewCertPool()
	clients.AddCert(authority.Leaf)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{*server}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	s.StartTLS()
	defer s.Close()
	in := func(name string) string {
		if name == "" {
			return ""
		}
		return filepath.Join(dir, name)
	}
	ours := x509.NewCertPool()
	ours.AddCert(authority.Leaf)
	if err := os.WriteFile(in("open.key"), mustRead(t, in("client.key")), 0o644); err != nil {
		t.Fatal(err)
	}
	// With TLS 1.3, the server refuses a certificate after the handshake of the client, whose error depends on when
	// it notices.
	const refusedLate = "any"
	for _, test := range []struct {
		name, ca, cert, key, server string
		roots                       *x509.CertPool // outbound.ca_file
		want                        string         // in the error; "" for none
	}{
		{"right", "authority.pem", "client.pem", "client.key", "mcp.internal", nil, ""},
		{"outbound.ca_file", "", "client.pem", "client.key", "mcp.internal", ours, ""},
		{"both authorities", "stranger.pem", "client.pem", "client.key", "mcp.internal", ours, ""},
		{"no authority", "", "client.pem", "client.key", "mcp.internal", nil, "certificate signed by unknown authority"},
		{"another authority", "stranger.pem", "client.pem", "client.key", "mcp.internal", nil, "certificate signed by unknown authority"},
		{"another name", "authority.pem", "client.pem", "client.key", "", nil, "127.0.0.1"},
		{"no certificate", "authority.pem", "", "", "mcp.internal", nil, refusedLate},
		{"foreign certificate", "authority.pem", "foreign.pem", "foreign.key", "mcp.internal", nil, refusedLate},
		{"expired", "authority.pem", "expired.pem", "expired.key", "mcp.internal", nil, "expired on"},
		{"another key", "authority.pem", "client.pem", "foreign.key", "mcp.internal", nil, "are no certificate with its key"},
		{"readable key", "authority.pem", "client.pem", "open.key", "mcp.internal", nil, "other users of this machine can read"},
		{"missing authority", "none.pem", "client.pem", "client.key", "mcp.internal", nil, "tls.ca_file: cannot read"},
		{"no PEM", "client.key", "client.pem", "client.key", "mcp.internal", nil, "has no certificate in PEM"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := Config{URL: s.URL + "/mcp", ConnectTimeout: 5 * time.Second,
				TLS: TLS{CAFile: in(test.ca), CertFile: in(test.cert), KeyFile: in(test.key), ServerName: test.server}}
			before := len(up.Received())
			r := check(t.Context(), "x", c, Options{Roots: test.roots, Log: authtest.Log(t)}.withDefaults(), nil, nil)
			if (r.Err == nil) != (test.want == "") || r.Err != nil && test.want != refusedLate && !strings.Contains(r.Err.Error(), test.want) {
				t.Errorf("%v, want %q", r.Err, test.want)
			}
			if test.want != "" && len(up.Received()) != before {
				t.Error("the server has got a request")
			}
		})
	}
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
