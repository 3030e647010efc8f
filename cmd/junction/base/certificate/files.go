// Package certificate has the certificate of TLS. files.go reads and checks a pair of files. authority.go orders
// certificates from an ACME authority, store.go stores them, and orders.go decides when. kept.go keeps the
// last good certificate in use.
package certificate

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"junction/upstream/files"
)

// Pair are the files of a certificate, in PEM.
type Pair struct {
	Cert string // the certificate, and the certificates of its issuers
	Key  string
	// Host is the host for which the certificate must be: a name, or an IP address.
	Host string
	// Roots are trusted authorities beside those of the system; nil has none.
	Roots *x509.CertPool
}

// Problem is a mistake of one of the files.
type Problem struct {
	Key  string // cert_file or key_file
	Text string
}

// Error implements error.
func (p *Problem) Error() string { return "tls." + p.Key + ": " + p.Text }

// The keys of the files.
const (
	CertFile = "cert_file"
	KeyFile  = "key_file"
)

// maxFile is the most bytes of a file.
const maxFile = 256 << 10

// Load reads both files, and checks that a client can accept the certificate now. The error is a *Problem.
func (p Pair) Load(now time.Time) (*tls.Certificate, error) {
	cert, err := files.Read(p.Cert, maxFile)
	if err != nil {
		return nil, &Problem{CertFile, fmt.Sprintf("cannot read %s: %v", p.Cert, err)}
	}
	key, err := files.Read(p.Key, maxFile)
	if err != nil {
		return nil, &Problem{KeyFile, fmt.Sprintf("cannot read %s: %v", p.Key, err)}
	}
	chain, err := parse(cert)
	if err != nil {
		return nil, &Problem{CertFile, fmt.Sprintf("%s: %v", p.Cert, err)}
	}
	if problem := keyProblem(key); problem != "" {
		return nil, &Problem{KeyFile, p.Key + " " + problem}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil { // the other mistakes have been found
		return nil, &Problem{KeyFile, fmt.Sprintf("the key in %s does not belong to the certificate in %s; name the "+
			"two files of one certificate", p.Key, p.Cert)}
	}
	if err := p.check(chain, now); err != nil {
		return nil, &Problem{CertFile, fmt.Sprintf("the certificate in %s %v", p.Cert, err)}
	}
	pair.Leaf = chain[0]
	return &pair, nil
}

// ReadableKey reports whether other users of this machine can read the key.
func (p Pair) ReadableKey() bool { return files.Readable(p.Key) }

// parse returns the certificates of a file.
func parse(text []byte) (chain []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d cannot be read: %w", len(chain)+1, err)
		}
		chain = append(chain, one)
	}
	if len(chain) == 0 {
		return nil, errors.New("there is no certificate in PEM (-----BEGIN CERTIFICATE-----)")
	}
	return chain, nil
}

// keyProblem returns why a text is no key that can be used, or "".
func keyProblem(text []byte) string {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return "has no private key in PEM (-----BEGIN PRIVATE KEY-----)"
		}
		switch {
		case !strings.HasSuffix(block.Type, "PRIVATE KEY"):
			continue
		case block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED"):
			return "has a key with a password, which Junction cannot ask for; write the key without one, such as " +
				"by openssl pkey"
		}
		return ""
	}
}

// check returns why clients would reject the certificate at the time now.
func (p Pair) check(chain []*x509.Certificate, now time.Time) error {
	leaf := chain[0]
	switch {
	case now.After(leaf.NotAfter):
		return fmt.Errorf("expired on %s; renew it", leaf.NotAfter.UTC().Format(time.DateOnly))
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("is valid from %s only; set the clock of this machine, or wait",
			leaf.NotBefore.UTC().Format(time.RFC3339))
	case leaf.VerifyHostname(p.Host) != nil:
		return fmt.Errorf("is not for %s, the host of public_url, but for %s; order one for %s, or change public_url",
			p.Host, namesOf(leaf), p.Host)
	}
	return p.checkChain(chain, now)
}

// namesOf returns the names of a certificate.
func namesOf(leaf *x509.Certificate) string {
	names := slices.Clone(leaf.DNSNames)
	for _, ip := range leaf.IPAddresses {
		names = append(names, ip.String())
	}
	if more := len(names) - 5; more > 0 {
		names = append(names[:5], fmt.Sprintf("%d more", more))
	}
	if len(names) == 0 {
		return "no host"
	}
	return strings.Join(names, ", ")
}

// checkChain returns an error if clients cannot find the way from the certificate to its root. A file with the
// whole way to an authority that only the clients know is right, and so is a certificate that signs itself.
func (p Pair) checkChain(chain []*x509.Certificate, now time.Time) error {
	leaf, issuers := chain[0], x509.NewCertPool()
	for _, one := range chain[1:] {
		issuers.AddCert(one)
	}
	verified := func(roots *x509.CertPool) bool {
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: issuers, CurrentTime: now})
		return err == nil
	}
	if isSelf(leaf) || verified(nil) || p.Roots != nil && verified(p.Roots) {
		return nil
	}
	if len(chain) == 1 {
		return fmt.Errorf("stands there without the certificate of its issuer, %s, which clients may not know; "+
			"append it to the file (certbot calls this file fullchain.pem), or name the root in outbound.ca_file",
			issuerOf(leaf))
	}
	for i, one := range chain[1:] {
		if chain[i].CheckSignatureFrom(one) != nil {
			return fmt.Errorf("is followed by certificates that do not belong to it: %d is not of the issuer of the "+
				"one before, %s; write the chain in its order", i+2, issuerOf(chain[i]))
		}
		if now.After(one.NotAfter) {
			return fmt.Errorf("is followed by the certificate of its issuer, which expired on %s; renew the chain",
				one.NotAfter.UTC().Format(time.DateOnly))
		}
	}
	return nil
}

// isSelf reports whether a certificate signs itself.
func isSelf(c *x509.Certificate) bool {
	return string(c.RawIssuer) == string(c.RawSubject) &&
		c.CheckSignature(c.SignatureAlgorithm, c.RawTBSCertificate, c.Signature) == nil
}

// issuerOf names the issuer of a certificate.
func issuerOf(c *x509.Certificate) string {
	if c.Issuer.CommonName != "" {
		return c.Issuer.CommonName
	}
	return c.Issuer.String()
}
