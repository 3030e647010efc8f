//go:build unix

package script

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"junction/cmd/junction/base/certificate/certificatetest"
)

// cmdAuthority makes a certificate authority, which only ca.pem knows. It has signed cert.pem with key.pem, for
// mcp.example.com, and the certificate of an issuer of tokens at $ISSUER.
func cmdAuthority(ts *testscript.TestScript, neg bool, args []string) {
	once(ts, neg, len(args) == 0, "authority")
	t := ts.Value(junctionKey{}).(*junctionProcess).t
	ca := certificatetest.MustSign(t, nil, "private", 100, certificatetest.AsAuthority)
	ts.Check(os.WriteFile(ts.MkAbs("ca.pem"), []byte(certificatetest.PEM(ca)), 0o600))
	leaf := certificatetest.MustSign(t, ca, "leaf", 90, certificatetest.ForHost)
	certificatetest.MustWrite(t, ts.MkAbs("."), certificatetest.PEM(leaf), leaf.MustKeyPEM(t))

	own := certificatetest.MustSign(t, ca, "issuer", 90, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
	s := httptest.NewUnstartedServer(nil)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/keys" {
			fmt.Fprint(w, `{"keys":[]}`)
			return
		}
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, s.URL, s.URL+"/keys")
	})
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{own.Cert.Raw}, PrivateKey: own.Key}}}
	s.StartTLS()
	ts.Defer(s.Close)
	setenv(ts, "ISSUER", s.URL)
}
