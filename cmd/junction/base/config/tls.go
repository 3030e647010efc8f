package config

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"junction/cmd/junction/base/certificate"
	"junction/upstream/shell"
)

// TLS is the file's tls section: a further listener, for https.
type TLS struct {
	// The address for https, such as :443 for all addresses of this machine. systemd can open it for
	// a service that may not (see junction.socket in cmd/junction/deploy).
	Listen string `yaml:"listen" example:"\":443\""`
	// The certificate for the host of public_url, followed by the certificates of its issuers, in
	// PEM. Junction reads both files again when they change.
	CertFile string `yaml:"cert_file" example:"/etc/junction/tls/fullchain.pem"`
	// The key of the certificate, in PEM and without a password.
	KeyFile string `yaml:"key_file" example:"/etc/junction/tls/privkey.pem"`
	// Order the certificate for the host of public_url from an ACME authority, in place of the two
	// files, and renew it. The authority checks the host at its port 443 (tls-alpn-01, and no other
	// way), which must lead to listen. With this section you agree to the terms of the authority.
	ACME *ACME `yaml:"acme"`
}

// ACME is the section tls.acme: an authority that issues the certificate.
type ACME struct {
	// Where the authority writes to you. Default: none.
	Email string `yaml:"email" example:"ops@example.com"`
	// The directory of the authority. Default https://acme-v02.api.letsencrypt.org/directory.
	//
	// An authority of your own can have a certificate of outbound.ca_file.
	Directory string `yaml:"directory"`
	// The key identifier that the authority has given you (external account binding). Default: none.
	EABKeyID string `yaml:"eab_key_id" example:"kid-1"`
	// The HMAC key of eab_key_id, in base64url.
	EABSecret string `yaml:"eab_secret" example:"${EAB_SECRET}"`
}

// Binding returns the key of the account at the authority; nil if there is none, or if it cannot be read.
func (a *ACME) Binding() *certificate.Binding {
	key, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(a.EABSecret, "="))
	if err != nil || len(key) == 0 {
		return nil
	}
	return &certificate.Binding{KID: a.EABKeyID, Key: key}
}

// DirectoryURL returns the directory, which is that of Let's Encrypt by default.
func (a *ACME) DirectoryURL() string { return cmp.Or(a.Directory, certificate.Directory) }

// On reports whether Junction serves https.
func (t TLS) On() bool { return t.Listen != "" }

// validateTLS adds to d the mistakes in the section tls. It opens no files.
func (c *Config) validateTLS(d *decoder) {
	t := c.TLS
	switch {
	case d.broken("tls") || !d.has("tls"):
		return
	case t.Listen == "" && !d.broken("tls.listen"):
		d.invalid("tls", `needs listen, the address for https, such as listen: ":443"; remove the section to `+
			"serve http only")
		return
	}
	_, _, problem := splitAddress(t.Listen, "0.0.0.0:443")
	if problem == "" {
		problem = c.ListenProblem(t.Listen, d.broken("auth.api_keys") || d.broken("auth.jwt") ||
			d.broken("auth.introspection") || d.broken("auth.oauth") || d.wrong["auth"], true)
	}
	if d.check("tls.listen", problem); problem == "" {
		c.checkPort(d, "tls.listen", t.Listen)
	}
	if !strings.HasPrefix(c.PublicURL, "https://") && !d.broken("public_url") {
		d.invalid("tls", "needs an https public_url, whose host is that of the certificate, such as "+
			"https://mcp.example.com")
	}
	c.validateACME(d)
	for _, f := range []struct{ key, file, other, example string }{
		{"tls.cert_file", t.CertFile, t.KeyFile, "fullchain.pem"},
		{"tls.key_file", t.KeyFile, t.CertFile, "privkey.pem"}} {
		switch {
		case f.file != "" && !filepath.IsAbs(f.file):
			d.check(f.key, "must be an absolute path, such as /etc/junction/tls/"+f.example)
		case f.file == "" && f.other != "" && !d.broken(f.key):
			d.invalid("tls", "needs cert_file and key_file, the two files of one certificate")
		}
	}
	if t.CertFile+t.KeyFile == "" && !d.has("tls.acme") && !d.broken("tls.cert_file") && !d.broken("tls.key_file") {
		d.invalid("tls", "needs a certificate: cert_file and key_file, or acme")
	}
}

// validateACME adds to d the mistakes in tls.acme.
func (c *Config) validateACME(d *decoder) {
	if !d.has("tls.acme") || d.broken("tls.acme") {
		return
	}
	if c.TLS.ACME == nil { // acme: without a value means its defaults
		c.TLS.ACME = &ACME{}
	}
	_, ip := netip.ParseAddr(c.Host())
	switch a := c.TLS.ACME; {
	case c.TLS.CertFile+c.TLS.KeyFile != "":
		d.invalid("tls.acme", "contradicts cert_file and key_file; remove it, or remove them")
	case c.Replicas.On():
		d.invalid("tls.acme", "is for one process: each replica would order its own certificate, and the authority "+
			"checks only one of them; let one ACME client of yours, such as certbot or cert-manager, write cert_file "+
			"and key_file for all replicas, or terminate TLS at the load balancer")
	case c.Host() != "" && ip == nil:
		d.invalid("tls.acme", "needs a name as the host of public_url, and %s is an address; use a name, or "+
			"cert_file and key_file", c.Host())
	case a.Email != "" && !strings.Contains(a.Email, "@"):
		d.check("tls.acme.email", "must be an address, such as ops@example.com")
	case (a.EABKeyID == "") != (a.EABSecret == "") && !d.broken("tls.acme.eab_key_id") &&
		!d.broken("tls.acme.eab_secret"):
		d.invalid("tls.acme", "needs eab_key_id and eab_secret, which the authority has given you together")
	case a.EABSecret != "" && a.Binding() == nil:
		d.check("tls.acme.eab_secret", "must be the HMAC key of the authority, in base64url")
	case !strings.HasPrefix(a.DirectoryURL(), "https://"):
		d.check("tls.acme.directory", "must be the https URL of a directory, such as "+certificate.Directory)
	}
}

// checkPort reports that an address of the key has the port of another listener.
func (c *Config) checkPort(d *decoder, key, address string) {
	_, port, _ := splitAddress(address, "0.0.0.0:8422")
	for _, l := range []struct{ key, address string }{
		{"listen", c.Listen}, {"admin", *c.Admin}, {"tls.listen", c.TLS.Listen}} {
		if l.key == key || port == 0 {
			continue
		}
		if _, other, problem := splitAddress(l.address, "0.0.0.0:8422"); problem == "" && other == port {
			d.invalid(key, "has the port of %s; give one of them another port", l.key)
		}
	}
}

// Pair returns the files of the certificate, and the host that it must be for. The authorities of
// outbound.ca_file are trusted, if the file can be read.
func (c *Config) Pair() certificate.Pair {
	p := certificate.Pair{Cert: c.TLS.CertFile, Key: c.TLS.KeyFile, Host: c.Host()}
	if fetcher, err := c.Outbound.Fetcher(); err == nil {
		p.Roots = fetcher.RootCAs
	}
	return p
}

// Host returns the host of public_url, without a port; "" without one.
func (c *Config) Host() string {
	u, err := url.Parse(c.PublicURL)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// Public returns the URL of the merged endpoint for other machines; "" if Junction serves no https itself.
func (c *Config) Public() string {
	if !c.TLS.On() {
		return ""
	}
	return strings.TrimSuffix(c.PublicURL, "/") + "/mcp"
}

// warnTLS warns of a key that others can read, and of a certificate that some clients reject.
func (c *Config) warnTLS(warn func(path, format string, args ...any)) {
	if pair := c.Pair(); c.TLS.KeyFile != "" && pair.ReadableKey() {
		warn("tls.key_file", "%s", ReadableKey(c.TLS.KeyFile))
	}
	if c.TLS.CertFile == "" {
		return
	}
	if pair, err := c.Pair().Load(time.Now()); err == nil && pair.Leaf.IsCA {
		warn("tls.cert_file", "the certificate is a CA itself, as openssl req -x509 makes it; some clients, such as "+
			"Codex, reject that: make a CA, and a certificate that it signs")
	}
}

// ReadableKey is the warning of a key that other users of this machine can read.
func ReadableKey(file string) string {
	return fmt.Sprintf("other users of this machine can read the key %s; run: chmod 600 %s", file, shell.Quote(file))
}
