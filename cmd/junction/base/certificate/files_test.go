package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"junction/cmd/junction/base/certificate/certificatetest"
)

// mustPair writes the files of a pair.
func mustPair(t testing.TB, cert, key string) Pair {
	t.Helper()
	p := Pair{Host: certificatetest.Host}
	p.Cert, p.Key = certificatetest.MustWrite(t, t.TempDir(), cert, key)
	return p
}

// TestPairsThatClientsWouldReject: each mistake of the files is found before a client finds it, and has the key
// of its file and what to do.
func TestPairsThatClientsWouldReject(t *testing.T) {
	root := certificatetest.MustSign(t, nil, "Root", 1000, certificatetest.AsAuthority)
	middle := certificatetest.MustSign(t, root, "Middle", 500, certificatetest.AsAuthority)
	old := certificatetest.MustSign(t, root, "Middle", -1, certificatetest.AsAuthority)
	leaf := certificatetest.MustSign(t, middle, "leaf", 90, certificatetest.ForHost)
	other := certificatetest.MustSign(t, middle, "other", 90, func(c *x509.Certificate) { c.DNSNames = []string{"other.example.com"} })
	expired := certificatetest.MustSign(t, middle, "leaf", -1, certificatetest.ForHost)
	early := certificatetest.MustSign(t, middle, "leaf", 90, func(c *x509.Certificate) { certificatetest.ForHost(c); c.NotBefore = time.Now().Add(time.Hour) })
	self := certificatetest.MustSign(t, nil, "self", 90, certificatetest.ForHost)
	wild := certificatetest.MustSign(t, middle, "leaf", 90, func(c *x509.Certificate) { c.DNSNames = []string{"*.example.com"} })
	ofOld := certificatetest.MustSign(t, old, "leaf", 90, certificatetest.ForHost)
	direct := certificatetest.MustSign(t, root, "leaf", 90, certificatetest.ForHost)
	roots := x509.NewCertPool()
	roots.AddCert(root.Cert)
	key := leaf.MustKeyPEM(t)
	encrypted := strings.ReplaceAll(key, "PRIVATE", "ENCRYPTED PRIVATE")
	for name, test := range map[string]struct {
		cert, key, problem string
		roots              *x509.CertPool
	}{
		"with its chain":             {certificatetest.PEM(leaf, middle), key, "", nil},
		"with chain and root":        {certificatetest.PEM(leaf, middle, root), key, "", nil},
		"key and chain in one file":  {key + certificatetest.PEM(leaf, middle), certificatetest.PEM(leaf, middle) + key, "", nil},
		"signs itself":               {certificatetest.PEM(self), self.MustKeyPEM(t), "", nil},
		"wildcard":                   {certificatetest.PEM(wild, middle), wild.MustKeyPEM(t), "", nil},
		"of a root that is known":    {certificatetest.PEM(direct), direct.MustKeyPEM(t), "", roots},
		"of a root that nobody told": {certificatetest.PEM(direct), direct.MustKeyPEM(t), "cert_file: .*without the certificate of its issuer, Root", nil},
		"without its chain":          {certificatetest.PEM(leaf), key, "cert_file: .*without the certificate of its issuer, Middle", nil},
		"without, root known":        {certificatetest.PEM(leaf), key, "cert_file: .*without the certificate of its issuer, Middle", roots},
		"wrong chain":                {certificatetest.PEM(leaf, root), key, "cert_file: .*do not belong to it", nil},
		"chain that expired":         {certificatetest.PEM(ofOld, old), ofOld.MustKeyPEM(t), "cert_file: .*issuer, which expired", nil},
		"expired":                    {certificatetest.PEM(expired, middle), expired.MustKeyPEM(t), "cert_file: .*expired on .*; renew it", nil},
		"early":                      {certificatetest.PEM(early, middle), early.MustKeyPEM(t), "cert_file: .*is valid from", nil},
		"other host":                 {certificatetest.PEM(other, middle), other.MustKeyPEM(t), "cert_file: .*is not for mcp.example.com.* but for other.example.com", nil},
		"key of another one":         {certificatetest.PEM(leaf, middle), other.MustKeyPEM(t), "key_file: .*does not belong to the certificate", nil},
		"key with a password":        {certificatetest.PEM(leaf, middle), encrypted, "key_file: .*has a key with a password", nil},
		"no key":                     {certificatetest.PEM(leaf, middle), certificatetest.PEM(leaf), "key_file: .*has no private key", nil},
		"no certificate":             {key, key, "cert_file: .*no certificate in PEM", nil},
		"half a certificate":         {certificatetest.PEM(leaf, middle)[:300], key, "cert_file: .*no certificate in PEM", nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustPair(t, test.cert, test.key)
			p.Roots = test.roots
			c, err := p.Load(time.Now())
			if test.problem == "" {
				if err != nil || c.Leaf == nil {
					t.Errorf("%v, want a certificate", err)
				}
				return
			}
			problem, is := errors.AsType[*Problem](err)
			file, text, _ := strings.Cut(test.problem, ": .*")
			if !is || problem.Key != file || !containsAll(problem.Text, strings.Split(text, ".*")) {
				t.Errorf("%v, want %q", err, test.problem)
			}
		})
	}
	p := mustPair(t, certificatetest.PEM(leaf, middle), key)
	os.Remove(p.Key)
	if _, err := p.Load(time.Now()); err == nil || !strings.HasPrefix(err.Error(), "tls.key_file: cannot read ") {
		t.Errorf("without the file of the key: %v", err)
	}
	byIP := certificatetest.MustSign(t, nil, "self", 90, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(192, 0, 2, 1)} })
	p = mustPair(t, certificatetest.PEM(byIP), byIP.MustKeyPEM(t))
	if p.Host = "192.0.2.1"; err(p.Load(time.Now())) != nil {
		t.Errorf("a certificate for an address: %v", err(p.Load(time.Now())))
	}
}

func err(_ *tls.Certificate, err error) error { return err }

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// TestOldCertificateStaysInUse: a replacement that fails leaves the old certificate in use, and health says why,
// also when it expires meanwhile; a good one ends that.
func TestOldCertificateStaysInUse(t *testing.T) {
	var k Kept
	if _, err := k.Certificate(nil); err == nil || k.Check(t.Context()) == nil || k.Left(time.Now()) != 0 {
		t.Error("without a certificate, all is well")
	}
	leaf := func(days int) *tls.Certificate {
		return &tls.Certificate{Leaf: certificatetest.MustSign(t, nil, "self", days, certificatetest.ForHost).Cert}
	}
	first, broken := leaf(90), errors.New("tls.key_file: the key does not belong")
	k.Use(first, nil)
	if err := k.Check(t.Context()); err != nil {
		t.Error(err)
	}
	k.Use(nil, broken)
	if got, err := k.Certificate(nil); got != first || err != nil {
		t.Errorf("the certificate in use is %v, %v", got, err)
	}
	if err := k.Check(t.Context()); !errors.Is(err, broken) || !strings.Contains(err.Error(), "the old certificate is in use until") {
		t.Errorf("health has %v", err)
	}
	k.Use(leaf(-1), nil)
	k.Use(nil, broken)
	if err := k.Check(t.Context()); !errors.Is(err, broken) || !strings.Contains(err.Error(), "expired") || k.Left(time.Now()) > -23*time.Hour {
		t.Errorf("after the expiry, health has %v, and %v are left", err, k.Left(time.Now()))
	}
	k.Use(leaf(90), nil)
	if err := k.Check(t.Context()); err != nil {
		t.Errorf("with a good certificate, health has %v", err)
	}
}
