package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/cmd/junction/base/certificate/certificatetest"
	"junction/cmd/junction/base/health"
)

// team is a configuration with TLS, a key of clients, and who trusts the certificate.
type team struct {
	dir, text, key string
	root           *certificatetest.Signed
	trusts         *x509.CertPool
}

func newTeam(t *testing.T) *team {
	t.Helper()
	m := &team{dir: t.TempDir(), key: auth.NewKey(), trusts: x509.NewCertPool()}
	authtest.Secret("an API key", m.key)
	hash, err := auth.HashKey(m.key)
	if err != nil {
		t.Fatal(err)
	}
	m.root = certificatetest.MustSign(t, nil, "Root", 1000, certificatetest.AsAuthority)
	m.trusts.AddCert(m.root.Cert)
	m.mustWrite(t, certificatetest.Host, 90)
	m.text = "public_url: https://" + certificatetest.Host + "\ntls: { listen: 127.0.0.1:0, cert_file: " + m.dir +
		"/cert.pem, key_file: " + m.dir + "/key.pem }\nauth: { api_keys: [{ name: team, hash: \"" + hash.String() +
		"\" }] }\nupstreams: { demo: { command: [junction, demo] } }\n"
	return m
}

// mustWrite writes a new certificate of a host with its chain.
func (m *team) mustWrite(t *testing.T, host string, days int) {
	t.Helper()
	leaf := certificatetest.MustSign(t, m.root, "leaf", days, func(c *x509.Certificate) { c.DNSNames = []string{host} })
	certificatetest.MustWrite(t, m.dir, certificatetest.PEM(leaf, m.root), leaf.MustKeyPEM(t))
}

// client returns an HTTP client that reaches the host at an address.
func (m *team) client(t *testing.T, r *running) *http.Client {
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: m.trusts},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, r.listening.secure.String())
		}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask sends a request with the key, and returns the status and the text.
func (m *team) ask(t *testing.T, c *http.Client, change func(*http.Request)) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+certificatetest.Host+"/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",`+
			`"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Authorization": {"Bearer " + m.key}, "Content-Type": {"application/json"},
		"Accept": {"application/json, text/event-stream"}}
	if change != nil {
		change(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(text)
}

// part returns the state of the certificate in /readyz.
func certificatePart(t *testing.T, r *running) health.State {
	t.Helper()
	for _, s := range r.pages.asSeen().Report(t.Context()).Parts {
		if s.Name == "certificate" {
			return s
		}
	}
	t.Fatal("/readyz has no part certificate")
	return health.State{}
}

// TestTLSWithoutAProxy: https serves the host of public_url with its origin, a key is needed, other hosts and
// origins are refused, and the plain address still serves this machine.
func TestTLSWithoutAProxy(t *testing.T) {
	m := newTeam(t)
	r := mustServe(t, m.text)
	c := m.client(t, r)
	for name, test := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"with the key":       {nil, 200},
		"without a key":      {func(r *http.Request) { r.Header.Del("Authorization") }, 401},
		"of its own pages":   {func(r *http.Request) { r.Header.Set("Origin", "https://"+certificatetest.Host) }, 200},
		"of other pages":     {func(r *http.Request) { r.Header.Set("Origin", "https://other.example.com") }, 403},
		"of pages over http": {func(r *http.Request) { r.Header.Set("Origin", "http://"+certificatetest.Host) }, 403},
		"for another host":   {func(r *http.Request) { r.Host = "other.example.com" }, 403},
	} {
		if status, text := m.ask(t, c, test.change); status != test.status {
			t.Errorf("a request %s is answered %d, want %d: %s", name, status, test.status, text)
		}
	}
	plain := func(r0 *http.Request) {
		r0.URL.Scheme, r0.URL.Host, r0.Host = "http", r.listening.public.Addr().String(), ""
	}
	if status, text := m.ask(t, http.DefaultClient, plain); status != 200 {
		t.Errorf("the plain address answers %d: %s", status, text)
	}
	if s := certificatePart(t, r); !s.OK && !s.Since.IsZero() {
		t.Errorf("the certificate is %+v", s)
	}
}

// TestMistakenCertificatesPreventAStart: Junction does not start with a certificate that clients would reject.
func TestMistakenCertificatesPreventAStart(t *testing.T) {
	m := newTeam(t)
	for name, test := range map[string]struct {
		host string
		days int
		want string
	}{
		"expired": {certificatetest.Host, -1, "tls.cert_file: the certificate in "},
		"other":   {"other.example.com", 90, "is not for " + certificatetest.Host},
	} {
		m.mustWrite(t, test.host, test.days)
		file := t.TempDir() + "/config.yaml"
		mustWrite(t, file, addresses+m.text)
		p, err := open(options{file: file, stdout: io.Discard, stderr: authtest.Searched(t, "the log", io.Discard),
			getenv: environment(map[string]string{"XDG_STATE_HOME": t.TempDir()})})
		if err == nil {
			p.close()
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// TestCertificateIsReplacedInUse: changed files are used for new connections, without an end of the others. Files
// with a mistake leave the old certificate in use, and /readyz ready and degraded, until they are right again.
func TestCertificateIsReplacedInUse(t *testing.T) {
	m := newTeam(t)
	r := mustServe(t, m.text)
	c := m.client(t, r)
	serial := func() string { // shown by /status and the page, too
		t.Helper()
		connection, err := tls.Dial("tcp", r.listening.secure.String(), &tls.Config{RootCAs: m.trusts, ServerName: certificatetest.Host})
		if err != nil {
			t.Fatal(err)
		}
		defer connection.Close()
		leaf := connection.ConnectionState().PeerCertificates[0]
		if c := r.pages.asSeen().Report(t.Context()).Certificate; c == nil || !c.Expires.Equal(leaf.NotAfter) || c.Issuer != "Root" {
			t.Errorf("the certificate is shown as %+v, want one until %s", c, leaf.NotAfter)
		}
		return leaf.SerialNumber.String()
	}
	if status, text := m.ask(t, c, nil); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	first := serial()
	m.mustWrite(t, certificatetest.Host, 91)
	r.stderr.mustSay(t, "the certificate is replaced", 1)
	second := serial()
	if second == first {
		t.Error("new connections get the old certificate")
	}
	valid := r.pages.asSeen().Report(t.Context()).Certificate.Expires.Format("The certificate is valid until 2006-01-02 15:04 UTC")
	out, _ := mustRun(t, 0, "status", "--admin", r.listening.admin.Addr().String())
	_, page := mustRequest(t, http.MethodGet, "http://"+r.listening.admin.Addr().String()+"/", nil)
	mustContain(t, out, valid)
	mustContain(t, page, valid)
	if status, text := m.ask(t, c, nil); status != 200 {
		t.Errorf("the connection from before: %d %s", status, text)
	}
	good, err := os.ReadFile(m.dir + "/key.pem")
	if err != nil {
		t.Fatal(err)
	}
	mustWrite(t, m.dir+"/key.pem", "no key\n")
	r.stderr.mustSay(t, "the certificate is not replaced; the old one stays in use", 1)
	r.stderr.mustSay(t, "a part that Junction depends on fails", 1)
	if s := certificatePart(t, r); s.OK || !s.Ready || !strings.Contains(s.Error, "tls.key_file: ") {
		t.Errorf("with a broken key, the part is %+v", s)
	}
	if serial() != second {
		t.Error("with a broken key, another certificate is in use")
	}
	mustWrite(t, m.dir+"/key.pem", string(good))
	r.stderr.mustSay(t, "a part that Junction depends on works again", 1)
	if serial() != second {
		t.Error("with the good key again, another certificate is in use")
	}
}

// TestCertificateMustBeForTheNewHost: a reload with a public_url that the certificate is not for is refused in
// part: the old URL stays. With a certificate for both, the new one is in force.
func TestCertificateMustBeForTheNewHost(t *testing.T) {
	m := newTeam(t)
	r := mustServe(t, m.text)
	next := addresses + strings.Replace(m.text, certificatetest.Host, "new.example.com", 1)
	mustWrite(t, r.file, next)
	r.stderr.mustSay(t, "is not for new.example.com", 1)
	r.stderr.mustSay(t, "public_url", 1)
	if got := r.inForce.now().PublicURL; got != "https://"+certificatetest.Host {
		t.Errorf("public_url in force is %s", got)
	}
	leaf := certificatetest.MustSign(t, m.root, "leaf", 90, func(c *x509.Certificate) {
		c.DNSNames = []string{certificatetest.Host, "new.example.com"}
	})
	certificatetest.MustWrite(t, m.dir, certificatetest.PEM(leaf, m.root), leaf.MustKeyPEM(t))
	r.stderr.mustSay(t, "the certificate is replaced", 1)
	mustWrite(t, r.file, next+"# again\n")
	r.stderr.mustSay(t, "configuration reloaded", 1)
	if got := r.inForce.now().PublicURL; got != "https://new.example.com" {
		t.Errorf("public_url in force is %s", got)
	}
	if pair := r.checks.certified.pair.Load(); pair.Host != "new.example.com" {
		t.Errorf("the certificate must be for %s", pair.Host)
	}
}
