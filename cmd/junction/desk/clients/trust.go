package clients

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"junction/cmd/junction/desk/clients/format"
	"junction/upstream/files"
)

// trustVariables name files and folders with the certificates that junction stdio trusts. A program of the
// desktop does not see those of a shell, and several clients pass only a few variables to a command.
var trustVariables = []string{sslCerts, "SSL_CERT_DIR"}

// Variables that name a file of certificates. Clients that run in Node or Bun read nodeCerts when they start, and
// not sslCerts.
const (
	sslCerts  = "SSL_CERT_FILE"
	nodeCerts = "NODE_EXTRA_CA_CERTS"
)

// TrustNotes returns what a person must know about the certificate of an https URL, if this command trusts it by
// a variable of the shell and the client, which connects itself, may not. A client that starts junction stdio
// has the variables in its entry.
func (c *Client) TrustNotes(t Target, getenv func(string) (string, bool)) []string {
	if c.Commanded(t) || !strings.HasPrefix(t.URL, "https://") {
		return nil
	}
	var set []string
	for _, name := range trustVariables {
		if value, _ := getenv(name); value != "" {
			set = append(set, name)
		}
	}
	if len(set) == 0 {
		return nil
	}
	by := "junction trusts the certificates of " + strings.Join(set, " and ") + "; "
	value, _ := getenv(c.certs)
	switch {
	case c.certs == "":
		return []string{by + c.Name + " trusts the store of the system: install the CA there, unless it is there."}
	case !slices.Contains(set, c.certs) && value == "":
		return []string{by + c.Name + " does not read that. Set " + c.certs + " to a file with the CA where " +
			c.Name + " starts, unless the CA is in the store of the system."}
	case !slices.Contains(set, c.certs) && !hasAuthority(value, t.URL):
		return []string{by + c.Name + " reads " + c.certs + ", and " + value + " there does not have the CA: append " +
			"the CA to that file, unless it is in the store of the system."}
	case slices.Contains(set, c.certs) && ownAuthority(value, t.URL):
		return []string{by + c.Name + " reads " + c.certs + ", too, but rejects the certificate there, because it " +
			"is that of the server and a CA in one, as openssl req -x509 makes it: give the server a certificate " +
			"that a CA has signed, and name the CA."}
	}
	return nil
}

// hasAuthority reports whether a file has the CA of the certificate at a URL. It returns true if the host cannot be
// reached.
func hasAuthority(file, address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return true
	}
	text, err := files.Read(file, maxCertificates)
	roots := x509.NewCertPool()
	if err != nil || !roots.AppendCertsFromPEM(text) {
		return false
	}
	host := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: handshakeLimit}, "tcp", host, &tls.Config{RootCAs: roots})
	if err == nil {
		c.Close()
	}
	return !errors.As(err, new(x509.UnknownAuthorityError))
}

// handshakeLimit is how long the certificate of a host is waited for.
const handshakeLimit = 5 * time.Second

// maxCertificates is the most bytes of a file with certificates that is read.
const maxCertificates = 4 << 20

// ownAuthority reports whether a file has a certificate of the host of a URL that may sign others, too. rustls
// rejects such a certificate of a server.
func ownAuthority(file, address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	rest, _ := files.Read(file, maxCertificates) // connect has read it
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return false
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && cert.IsCA &&
			cert.VerifyHostname(u.Hostname()) == nil {
			return true
		}
	}
}

// Distrusted returns what to do about a certificate that this machine does not trust, as a clause.
func (c *Client) Distrusted(t Target) string {
	const begin = "this machine does not trust the certificate: install its CA in the store of the system"
	switch {
	case c.Commanded(t):
		return begin + ", or name a file with the CA in " + sslCerts + " and run this command again, so that the " +
			"entry gets the variable"
	case c.certs == sslCerts:
		return begin + ", or name a file with the CA in " + sslCerts + ", also where " + c.Name + " starts"
	case c.certs != "":
		return begin + ", or name a file with the CA in " + sslCerts + " for junction, and in " + c.certs +
			" where " + c.Name + " starts"
	}
	return begin + ", which " + c.Name + " reads"
}

// withEnv returns an entry that starts junction stdio, with the variables of the target.
func (c *Client) withEnv(entry format.Object, t Target) format.Object {
	if c.env == "" || len(t.Env) == 0 {
		return entry
	}
	var all format.Object
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		all = append(all, format.Member{Key: name, Value: t.Env[name]})
	}
	return append(entry, format.Member{Key: c.env, Value: all})
}

// Trust returns the variables that an entry for a target needs to trust the certificate of an https URL: those of
// this shell, and those that the present entry of Junction has. It returns nil if the entry starts no command, or
// is in the file of a project, because others have the certificates elsewhere.
func (o *Outfit) Trust(p Place, t Target) map[string]string {
	if p.Scope == Project || p.Client.env == "" || !p.Client.Commanded(t) || !strings.HasPrefix(t.URL, "https://") {
		return nil
	}
	var now map[string]any
	servers, _ := o.Home.read(p) // Connect reports an error
	for _, s := range servers {
		if s.Name == t.Name && t.is(s, o.Home) {
			now, _ = s.fields[p.Client.env].(map[string]any)
		}
	}
	env := map[string]string{}
	for _, name := range trustVariables {
		value, _ := o.Home.Getenv(name)
		if written, ok := now[name].(string); value == "" && ok {
			value = written
		}
		if paths := absolute(value); paths != "" {
			env[name] = paths
		}
	}
	return env
}

// absolute returns a list of paths from the root: a client starts its commands in another folder. It leaves out
// those that do not exist.
func absolute(list string) string {
	var all []string
	for _, path := range filepath.SplitList(list) {
		full, err := filepath.Abs(path)
		if err != nil || path == "" {
			continue
		}
		if _, err := os.Stat(full); err == nil {
			all = append(all, full)
		}
	}
	return strings.Join(all, string(filepath.ListSeparator))
}
