package config

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/cmd/junction/base/certificate/certificatetest"
)

// TestMistakesInTLS: a section that cannot serve has a mistake with what is missing, once.
func TestMistakesInTLS(t *testing.T) {
	const files = ", cert_file: /c.pem, key_file: /k.pem"
	for name, test := range map[string]struct{ tls, more, path, problem string }{
		"good":              {`listen: ":443"` + files, "", "", ""},
		"loopback":          {`listen: "127.0.0.1:8443"` + files, "", "", ""},
		"nothing":           {"", "", "tls", "needs listen"},
		"no listen":         {strings.TrimPrefix(files, ", "), "", "tls", "needs listen"},
		"no certificate":    {`listen: ":443"`, "", "tls", "needs a certificate: cert_file and key_file, or acme"},
		"no key":            {`listen: ":443", cert_file: /c.pem`, "", "tls", "needs cert_file and key_file"},
		"relative":          {`listen: ":443", cert_file: c.pem, key_file: /k.pem`, "", "tls.cert_file", "must be an absolute path"},
		"no address":        {`listen: "443"` + files, "", "tls.listen", "must be host:port, such as 0.0.0.0:443"},
		"port of listen":    {`listen: ":8420"` + files, "", "tls.listen", "has the port of listen"},
		"port of admin":     {`listen: ":8421"` + files, "", "tls.listen", "has the port of admin"},
		"port of replicas":  {`listen: ":8422"` + files, "replicas: { listen: \":8422\", advertise: \"127.0.0.1:8422\" }", "replicas.listen", "has the port of tls.listen"},
		"no authentication": {`listen: ":443"` + files, "auth: { none: true }", "tls.listen", "needs auth.api_keys or auth.oauth"},
		"acme":              {`listen: ":443", acme: { email: ops@example.com }`, "", "", ""},
		"acme, all default": {`listen: ":443", acme: {}`, "", "", ""},
		"acme and files":    {`listen: ":443", acme: {}` + files, "", "tls.acme", "contradicts cert_file"},
		"acme and replicas": {`listen: ":443", acme: {}`, "replicas: { listen: \":8422\", advertise: \"127.0.0.1:8422\" }", "tls.acme", "write cert_file and key_file for all replicas"},
		"acme of an IP":     {`listen: ":443", acme: {}`, "public_url: https://192.0.2.1", "tls.acme", "needs a name"},
		"acme over http":    {`listen: ":443", acme: { directory: "http://ca.example" }`, "", "tls.acme.directory", "must be the https URL"},
		"acme, EAB":         {`listen: ":443", acme: { eab_key_id: a, eab_secret: "canary-eab-0_-==" }`, "", "", ""},
		"acme, half an EAB": {`listen: ":443", acme: { eab_key_id: a }`, "", "tls.acme", "needs eab_key_id and eab_secret"},
		"acme, wrong EAB":   {`listen: ":443", acme: { eab_key_id: a, eab_secret: "canary-+eab" }`, "", "tls.acme.eab_secret", "in base64url"},
		"acme, no email":    {`listen: ":443", acme: { email: ops }`, "", "tls.acme.email", "must be an address"},
		"no public_url":     {`listen: ":443"` + files, "public_url: \"\"", "tls", "needs an https public_url"},
		"http":              {`listen: ":443"` + files, "public_url: http://localhost", "tls", "needs an https public_url"},
	} {
		t.Run(name, func(t *testing.T) {
			text := "tls: { " + test.tls + " }\nupstreams: { a: { command: [x] } }\n" + test.more + "\n"
			for key, line := range map[string]string{"auth:": "auth: { api_keys: [" + keyA + "] }", "public_url:": "public_url: https://mcp.example.com"} {
				if !strings.Contains(text, key) {
					text += line + "\n"
				}
			}
			_, err := Parse("/config.yaml", []byte(text), func(string) (string, bool) { return "", false })
			problems, _ := errors.AsType[Problems](err)
			var found int
			for _, p := range problems {
				if p.Path == test.path && strings.Contains(p.Text, test.problem) {
					found++
				} else if strings.HasPrefix(p.Path, "tls") {
					t.Errorf("another mistake: %v", p)
				}
			}
			if want := min(1, len(test.path)); found != want {
				t.Errorf("%d mistakes at %s have %q, want %d:\n%v", found, test.path, test.problem, want, err)
			}
		})
	}
}

// TestCheckReadsTheCertificate: a certificate with which Junction does not start is a mistake for junction
// check, whose last line says so; a key that others can read is a warning.
func TestCheckReadsTheCertificate(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key.pem")
	if err := os.WriteFile(key, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config.yaml")
	text := "tls: { listen: \":443\", cert_file: " + dir + "/cert.pem, key_file: " + key + " }\nupstreams: { a: { command: [x] } }\n" +
		"public_url: https://mcp.example.com\nauth: { api_keys: [" + keyA + "] }\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Inspect(file, func(string) (string, bool) { return "", false }, (*Config).Obstacles)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range r.Warnings {
		got[p.Path] = p.Text
	}
	for _, p := range r.Rejecting {
		got[p.Path] = p.Text
	}
	if err := r.Err(); err == nil || err.Error() != file+" has 1 mistake; Junction does not start because of line 1" {
		t.Errorf("the last line is %v", err)
	}
	if !strings.Contains(got["tls.cert_file"], "cannot read "+dir+"/cert.pem") ||
		!strings.HasSuffix(got["tls.cert_file"], "; Junction does not start with it") {
		t.Errorf("tls.cert_file has the warning %q", got["tls.cert_file"])
	}
	if want := "other users of this machine can read the key " + key + "; run: chmod 600 " + key; got["tls.key_file"] != want {
		t.Errorf("tls.key_file has the warning %q, want %q", got["tls.key_file"], want)
	}
}

// TestCheckWarnsOfACertificateThatIsACA: a certificate as openssl req -x509 makes it works with some clients only.
func TestCheckWarnsOfACertificateThatIsACA(t *testing.T) {
	asHost := func(c *x509.Certificate) { c.DNSNames = []string{certificatetest.Host} }
	asBoth := func(c *x509.Certificate) { asHost(c); certificatetest.AsAuthority(c) }
	for want, change := range map[bool]func(*x509.Certificate){false: asHost, true: asBoth} {
		self := certificatetest.MustSign(t, nil, "self", 90, change)
		dir := t.TempDir()
		cert, key := certificatetest.MustWrite(t, dir, certificatetest.PEM(self), self.MustKeyPEM(t))
		file := filepath.Join(dir, "config.yaml")
		text := "tls: { listen: \":443\", cert_file: " + cert + ", key_file: " + key + " }\nupstreams: { a: { command: [x] } }\n" +
			"public_url: https://" + certificatetest.Host + "\nauth: { api_keys: [" + keyA + "] }\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Inspect(file, func(string) (string, bool) { return "", false }, (*Config).Obstacles)
		if err != nil || r.Err() != nil {
			t.Fatal(err, r.Err())
		}
		if got := strings.Contains(fmt.Sprint(r.Warnings), "the certificate is a CA itself"); got != want {
			t.Errorf("a CA: %v; the warnings are %v", want, r.Warnings)
		}
	}
}

// TestWithoutAPublicURLNoCertificateIsCompared: the mistake is the missing URL, and nothing is said of a host "".
func TestWithoutAPublicURLNoCertificateIsCompared(t *testing.T) {
	dir := t.TempDir()
	certificatetest.MustWrite(t, dir, "no certificate\n", "no key\n")
	file := filepath.Join(dir, "config.yaml")
	text := "tls: { listen: \":443\", cert_file: " + dir + "/cert.pem, key_file: " + dir + "/key.pem }\n" +
		"upstreams: { a: { command: [junction, demo] } }\nauth: { api_keys: [" + keyA + "] }\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Inspect(file, os.LookupEnv, (*Config).Obstacles)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rejecting) != 1 || !strings.Contains(r.Rejecting[0].Text, "needs an https public_url") {
		t.Errorf("the mistakes are %v", r.Rejecting)
	}
	for _, w := range r.Warnings {
		if strings.HasPrefix(w.Path, "tls") {
			t.Errorf("check warns: %v", w)
		}
	}
}
