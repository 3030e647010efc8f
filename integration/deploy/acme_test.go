package deploy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"junction/cmd/junction/base/certificate/certificatetest"
	"junction/integration/harness"
	"junction/integration/harness/needs"
	"junction/integration/harness/process"
)

// This file orders certificates from Pebble, the ACME authority that Let's Encrypt tests with.

// pebble is a running Pebble with a DNS server that says that this machine has every host.
type pebble struct {
	dir       string // with ca.pem, who signs its https
	directory string
	manage    string
	client    *http.Client
	roots     *x509.CertPool // of the certificates that it issues
	ca        *certificatetest.Signed
	stop      func()
}

// mustPebble starts Pebble, which checks a host at a port of this machine, and whose certificates are valid for some
// seconds. With bound, it accepts only accounts that are bound with binding.
func mustPebble(t *testing.T, port string, seconds int, bound bool) *pebble {
	t.Helper()
	programs := os.Getenv("JUNCTION_PEBBLE")
	if programs == "" {
		t.Skip("JUNCTION_PEBBLE is not set; name the folder with pebble and pebble-challtestsrv")
	}
	p := &pebble{dir: t.TempDir()}
	p.ca = certificatetest.MustSign(t, nil, "CA", 100, certificatetest.AsAuthority)
	own := certificatetest.MustSign(t, p.ca, "pebble", 100, func(c *x509.Certificate) {
		c.DNSNames, c.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	})
	cert, key := certificatetest.MustWrite(t, p.dir, certificatetest.PEM(own), own.MustKeyPEM(t))
	if err := os.WriteFile(p.authorities(), []byte(certificatetest.PEM(p.ca)), 0o600); err != nil {
		t.Fatal(err)
	}
	listen, manage, dns, dnsManage := process.FreePort(t), process.FreePort(t), process.FreePort(t), process.FreePort(t)
	keys := map[string]string{"kid-1": secret}
	config, err := json.Marshal(map[string]any{"pebble": map[string]any{"listenAddress": listen,
		"managementListenAddress": manage, "certificate": cert, "privateKey": key, "httpPort": 1, "tlsPort": number(t, port),
		"domainBlocklist": []string{"blocked.example.com"}, "retryAfter": map[string]int{"authz": 1, "order": 1},
		"externalAccountBindingRequired": bound, "externalAccountMACKeys": keys,
		"profiles": map[string]any{"default": map[string]any{"description": "short", "validityPeriod": seconds}}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(p.dir, "pebble.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	process.MustStartServer(t, exec.CommandContext(ctx, filepath.Join(programs, "pebble-challtestsrv"), "-defaultIPv4", "127.0.0.1",
		"-defaultIPv6", "", "-dnsserver", dns, "-management", dnsManage, "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""),
		regexp.MustCompile(`(?i)starting management`))
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "pebble"), "-config", file, "-dnsserver", dns)
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=20", "PEBBLE_AUTHZREUSE=0")
	process.MustStartServer(t, cmd, regexp.MustCompile(`ACME directory available`))
	p.directory, p.manage, p.stop = "https://"+listen+"/dir", "https://"+manage, cancel
	t.Cleanup(cancel)
	roots := x509.NewCertPool()
	roots.AddCert(p.ca.Cert)
	p.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	t.Cleanup(p.client.CloseIdleConnections)
	p.roots = x509.NewCertPool()
	p.roots.AppendCertsFromPEM([]byte(p.root(t)))
	return p
}

func (p *pebble) authorities() string { return filepath.Join(p.dir, "ca.pem") }

// root returns the root of the certificates that Pebble issues, in PEM.
func (p *pebble) root(t *testing.T) string {
	t.Helper()
	again, enough := time.NewTicker(20*time.Millisecond), time.After(harness.Patience)
	defer again.Stop()
	resp, err := p.client.Get(p.manage + "/roots/0")
	for ; err != nil; resp, err = p.client.Get(p.manage + "/roots/0") { // it announces only the other address
		select {
		case <-again.C:
		case <-enough:
			t.Fatal(err)
		}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func number(t *testing.T, text string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// ordering returns a team that orders from a directory.
func ordering(t *testing.T, p *pebble, listen, directory string) *team {
	t.Helper()
	m := newTeam(t, "{ listen: "+listen+", acme: { email: ops@example.com, directory: "+directory+" } }\n"+
		"outbound: { ca_file: "+p.authorities()+" }")
	return m
}

const issued = "a certificate was issued"

// secret is the key with which accounts are bound, and binding has the keys of the configuration for it.
const (
	secret  = "canary-eab-secret-of-the-authority-0123456789ABC"
	binding = ", eab_key_id: kid-1, eab_secret: " + secret
)

// mustLog waits until the log has a line n times.
func (m *team) mustLog(t *testing.T, text string, n int) {
	t.Helper()
	m.Stderr.MustMatch(t, regexp.MustCompile("(?s)"+strings.Repeat(regexp.QuoteMeta(text)+".*", n)), harness.Patience, m.Done)
}

// certificateOf returns the certificate that a client gets.
func (m *team) certificateOf(t *testing.T, p *pebble) *x509.Certificate {
	t.Helper()
	c, err := tls.Dial("tcp", m.secure(t), &tls.Config{RootCAs: p.roots, ServerName: host})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}

// mustExpire waits until a client rejects the certificate because it has expired. No event tells that.
func (m *team) mustExpire(t *testing.T, p *pebble) {
	t.Helper()
	again, enough := time.NewTicker(100*time.Millisecond), time.After(harness.Patience)
	defer again.Stop()
	for {
		c, err := tls.Dial("tcp", m.secure(t), &tls.Config{RootCAs: p.roots, ServerName: host})
		if err == nil {
			c.Close()
		} else if invalid, is := errors.AsType[x509.CertificateInvalidError](err); is && invalid.Reason == x509.Expired {
			return
		}
		select {
		case <-again.C:
		case <-enough:
			t.Fatalf("the certificate does not expire: %v", err)
		}
	}
}

// TestOperateCertificateOfAnAuthority: the certificate is ordered at the start, clients of Go, Node and Python accept
// its chain, a restart orders none, and a damaged store orders a new one.
func TestOperateCertificateOfAnAuthority(t *testing.T) {
	harness.Waits(t)
	listen := process.FreePort(t)
	p := mustPebble(t, port(listen), 7776000, false)
	needs.Node.Require(t)
	m := ordering(t, p, listen, p.directory)
	m.MustServe(t)
	m.mustLog(t, issued, 1)
	first := m.certificateOf(t, p)
	wantForeign(t, m, p.root(t))
	m.MustStop(t)
	m.MustServe(t)
	if again := m.certificateOf(t, p); !again.Equal(first) {
		t.Error("a restart ordered a certificate again")
	}
	m.MustStop(t)
	stored, err := filepath.Glob(filepath.Join(m.Dir, "certificates", "*", host+".pem"))
	if err != nil || len(stored) != 1 {
		t.Fatalf("the certificate is stored in %q, %v", stored, err)
	}
	if info, err := os.Stat(stored[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the stored certificate has the mode %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(stored[0], []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.MustServe(t)
	m.mustLog(t, "the stored certificate cannot be used", 1)
	m.mustLog(t, issued, 2)
	if again := m.certificateOf(t, p); again.Equal(first) {
		t.Error("a damaged store was used")
	}
}

// TestOperateCertificateIsRenewed: certificates of fifteen seconds are renewed while Junction serves. When the
// authority is gone, the last one expires, /readyz is degraded and ready, and everything but https works. The next
// start after the outage orders again.
func TestOperateCertificateIsRenewed(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	listen := process.FreePort(t)
	p := mustPebble(t, port(listen), 15, false)
	m := ordering(t, p, listen, p.directory)
	m.MustServe(t)
	m.mustLog(t, issued, 2)
	m.certificateOf(t, p)
	p.stop()
	m.mustLog(t, "a certificate was not issued", 1)
	m.mustLog(t, "a part that Junction depends on fails", 2) // once before the first certificate
	resp, err := http.Get(m.Admin + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !regexp.MustCompile(`"name": "certificate",\s+"ok": false`).Match(text) {
		t.Errorf("/readyz during the outage: %d %s, %v", resp.StatusCode, text, err)
	}
	harness.WantEcho(t, (&stack{public: m.Origin(), key: m.key, http: http.DefaultClient}).client(t, harness.ModernEra).Tool(t, "up__echo", `{}`))
	m.mustExpire(t, p)
	m.MustStop(t)
	again := mustPebble(t, port(listen), 7776000, false)
	config, err := os.ReadFile(m.File())
	if err != nil {
		t.Fatal(err)
	}
	m.MustWrite(t, strings.NewReplacer(p.directory, again.directory, p.dir, again.dir).Replace(string(config)))
	m.MustServe(t)
	m.mustLog(t, issued, 3)
	m.certificateOf(t, again)
}

// TestOperateAuthorityRefuses: an authority that refuses the account or the host, cannot reach it, limits orders or hangs
// leaves Junction running without https. The log has the reason, and a limit holds over a restart.
func TestOperateAuthorityRefuses(t *testing.T) {
	harness.Waits(t)
	listen := process.FreePort(t)
	p := mustPebble(t, port(process.FreePort(t)), 7776000, true) // checks a port that nobody serves
	target, err := url.Parse(strings.TrimSuffix(p.directory, "/dir"))
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: p.client.Transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
	}}
	front := func(order http.HandlerFunc) string {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/order-plz" {
				order(w, r)
				return
			}
			proxy.ServeHTTP(w, r)
		}))
		own := certificatetest.MustSign(t, p.ca, "front", 100, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} })
		s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{own.Cert.Raw}, PrivateKey: own.Key}}}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.URL + "/dir" + binding
	}
	orders := make(chan time.Time, 100)
	ended := make(chan struct{})
	defer close(ended)
	for name, test := range map[string]struct{ directory, host, log string }{
		"knows nobody": {p.directory, host, "set tls.acme.eab_key_id and eab_secret"},
		"knows others": {p.directory + strings.Replace(binding, "kid-1", "kid-2", 1), host, "the authority does not accept the account"},
		"refuses":      {p.directory + binding, "blocked.example.com", "the authority does not accept the order"},
		"cannot reach": {p.directory + binding, host, "its port 443 must lead to this process"},
		"limits": {front(func(w http.ResponseWriter, _ *http.Request) {
			orders <- time.Now()
			w.Header().Set("Retry-After", "3600")
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, `{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many certificates"}`)
		}), host, "too many certificates"},
		"hangs": {front(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-ended:
			}
		}), host, "a certificate is ordered"},
	} {
		m := ordering(t, p, listen, test.directory)
		config, err := os.ReadFile(m.File())
		if err != nil {
			t.Fatal(err)
		}
		m.MustWrite(t, strings.Replace(string(config), "https://"+host, "https://"+test.host, 1))
		m.MustServe(t)
		m.mustLog(t, test.log, 1)
		harness.WantEcho(t, (&stack{public: m.Origin(), key: m.key, http: http.DefaultClient}).client(t, harness.ModernEra).Tool(t, "up__echo", `{}`))
		if c, err := tls.Dial("tcp", m.secure(t), &tls.Config{InsecureSkipVerify: true, ServerName: test.host}); err == nil {
			c.Close()
			t.Errorf("an authority that %s: there is a certificate", name)
		}
		if name == "limits" {
			m.mustLog(t, "a certificate was not issued", 1)
			m.MustStop(t)
			m.MustServe(t)
			m.mustLog(t, "a part that Junction depends on fails", 2)
			if n := len(orders); n != 1 {
				t.Errorf("%d orders although the authority asked to wait", n)
			}
		}
		m.MustStop(t)
	}
}
