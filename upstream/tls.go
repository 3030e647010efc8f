package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"time"

	"junction/upstream/files"
	"junction/upstream/shell"
	"junction/upstream/transport"
)

// TLS is the section tls of an upstream: whom Junction trusts there, and how it proves who connects.
type TLS struct {
	// Certificate authorities for the server, in PEM, beside those of the system and
	// outbound.ca_file. A relative path is relative to the folder of this file.
	//
	// Junction reads the files of the section again when they change.
	CAFile string `yaml:"ca_file" json:",omitempty" example:"/etc/junction/internal-ca.pem" change:"connection,waits"`
	// The certificate that Junction shows to the server, in PEM, with key_file.
	CertFile string `yaml:"cert_file" json:",omitempty" example:"/etc/junction/client.pem" change:"connection,waits"`
	// The key of cert_file, in PEM and without a password. Only the user of Junction may be able to
	// read it.
	KeyFile string `yaml:"key_file" json:",omitempty" example:"/etc/junction/client-key.pem" change:"connection,waits"`
	// The name in the certificate of the server. Default: the host of url.
	ServerName string `yaml:"server_name" json:",omitempty" example:"mcp.internal" change:"connection,waits"`
	// Sum is the sum of the contents of the files. The reader of the file sets it, so that another content is
	// another connection.
	Sum string `yaml:"-" json:"-" change:"connection"`
}

// maxPEM is the most bytes of a file of the section.
const maxPEM = 256 << 10

// Given reports whether the section has a key.
func (t TLS) Given() bool { return t.CAFile+t.CertFile+t.KeyFile+t.ServerName != "" }

// Files returns the files of the section that are set.
func (t *TLS) Files() (list []*string) {
	for _, file := range []*string{&t.CAFile, &t.CertFile, &t.KeyFile} {
		if *file != "" {
			list = append(list, file)
		}
	}
	return list
}

// Security reads the files, for connections to the server. roots are authorities that the server may have,
// too; nil are those of the system.
func (t TLS) Security(roots *x509.CertPool, now time.Time) (s transport.Security, err error) {
	s = transport.Security{Roots: roots, ServerName: t.ServerName}
	if t.CAFile != "" {
		text, err := files.Read(t.CAFile, maxPEM)
		if err != nil {
			return s, fmt.Errorf("tls.ca_file: cannot read %s: %w", t.CAFile, err)
		}
		if roots != nil {
			s.Roots = roots.Clone()
		} else if s.Roots, err = x509.SystemCertPool(); err != nil {
			s.Roots = x509.NewCertPool()
		}
		if !s.Roots.AppendCertsFromPEM(text) {
			return s, fmt.Errorf("tls.ca_file: %s has no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile == "" {
		return s, nil
	}
	s.Certificate, err = Pair{"tls", t.CertFile, t.KeyFile}.Read(now)
	return s, err
}

// Pair are the two files of a certificate with its key, and the section of an entry that names them.
type Pair struct{ Section, CertFile, KeyFile string }

// Read reads the files. The error has nothing of their content.
func (p Pair) Read(now time.Time) (*tls.Certificate, error) {
	if files.Readable(p.KeyFile) {
		return nil, fmt.Errorf("%s.key_file: other users of this machine can read %s; run: chmod 600 %s", p.Section,
			p.KeyFile, shell.Quote(p.KeyFile))
	}
	cert, err := files.Read(p.CertFile, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("%s.cert_file: cannot read %s: %w", p.Section, p.CertFile, err)
	}
	key, err := files.Read(p.KeyFile, maxPEM)
	if err != nil {
		return nil, fmt.Errorf("%s.key_file: cannot read %s: %w", p.Section, p.KeyFile, err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, errors.New(p.Section + ".cert_file: " + p.CertFile + " and " + p.KeyFile + " are no certificate " +
			"with its key in PEM; name the two files of one certificate, and write the key without a password")
	}
	if now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("%s.cert_file: the certificate in %s expired on %s; renew it", p.Section, p.CertFile,
			pair.Leaf.NotAfter.UTC().Format(time.DateOnly))
	}
	return &pair, nil
}

// securePool returns the pool for the connections of an entry; nil if none of its own is needed.
func (c *Config) securePool(roots *x509.CertPool) *transport.Pool {
	if !c.Kind().HTTP || !c.TLS.Given() && roots == nil {
		return nil
	}
	s, err := c.TLS.Security(roots, time.Now())
	s.Err = err
	return transport.NewSecurePool(c.URL, s)
}

// validateTLS checks the section tls of an entry with a URL.
func (c *Config) validateTLS(u *url.URL, bad func(path, format string, args ...any)) {
	t := c.TLS
	if scheme, known := transport.SchemeOf(u); t.Given() && known && !scheme.Secure {
		bad("tls", "has no effect, because the url is %s; use https, or remove the section", scheme.Word)
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		bad("tls", "needs cert_file and key_file, the two files of one certificate")
	}
}
