package signin

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/client"
)

// mustKey writes a new private key into a file.
func mustKey(t *testing.T, file string, key any) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	authtest.Secret("a line of a private key", strings.Split(string(text), "\n")[1])
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// mustCertify writes the certificates of a private authority, of a server at 127.0.0.1 and of the client us.example.com
// with their keys into a folder. It returns the files of the server for as.mjs.
func mustCertify(t *testing.T, dir string) (server string) {
	t.Helper()
	var authority *x509.Certificate
	var signer *ecdsa.PrivateKey
	for i, name := range []string{"authority", "server", "us.example.com"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name},
			DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: time.Now().Add(time.Hour), IsCA: authority == nil, BasicConstraintsValid: true}
		if authority == nil {
			authority, signer = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		mustKey(t, filepath.Join(dir, name+".key"), key)
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
		if err := os.WriteFile(filepath.Join(dir, name+".pem"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	return fmt.Sprintf(`{"cert":%q,"key":%q,"ca":%q}`, in("server.pem"), in("server.key"), in("authority.pem"))
}

// TestOwnClientAtAForeignServer: Junction gets a token with a client of its own at an authorization server that
// others wrote, by each way of proving the client. The server reads the public key from the running Junction, and
// the log, the status and the published keys have no secret.
func TestOwnClientAtAForeignServer(t *testing.T) {
	harness.WithoutShort(t)
	harness.Waits(t)
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsa2048, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		method, algorithm string
		key               any
		proof             string
		certified         bool
	}{
		"basic": {method: "client_secret_basic", proof: "client_secret: canary-own-secret"},
		"post":  {method: "client_secret_post", proof: "client_secret: '${exec: [cat, SECRET]}'"},
		"ES256": {"private_key_jwt", "ES256", p256, "private_key_file: own.pem", false},
		"RS256": {"private_key_jwt", "RS256", rsa2048, "private_key_file: own.pem, assertion_audience: token_endpoint", false},
		"TLS":   {method: "tls_client_auth", proof: "cert_file: us.example.com.pem, key_file: us.example.com.key", certified: true},
	} {
		t.Run(name, func(t *testing.T) {
			defer harness.Computes(t)()
			authtest.Secret("the secret of our client", "canary-own-secret")
			l := mustLinear(t)
			address := process.FreePort(t)
			own := map[string]any{"client_id": "us", "grant_types": []string{"client_credentials"}, "redirect_uris": []string{},
				"response_types": []string{}, "token_endpoint_auth_method": test.method}
			p := harness.NewProgram(t)
			asTLS, ca := []string(nil), ""
			switch {
			case test.certified:
				files := mustCertify(t, p.Dir)
				own["tls_client_auth_san_dns"], asTLS, ca = "us.example.com", []string{files}, ", ca_file: "+filepath.Join(p.Dir, "authority.pem")
			case test.key == nil:
				own["client_secret"] = "canary-own-secret"
			default:
				own["jwks_uri"] = "http://" + address + "/oauth/jwks.json"
				own["token_endpoint_auth_signing_alg"] = test.algorithm
			}
			text, err := json.Marshal([]any{own})
			if err != nil {
				t.Fatal(err)
			}
			as := mustNode(t, append([]string{"as.mjs", l.url, string(text)}, asTLS...)...)
			var said struct{ Issuer string }
			as.MustRead(&said)
			l.change(func() {
				l.issuer, l.whose = said.Issuer, func(token string) string { return whose(token, said.Issuer, l.url) }
			})
			if test.key != nil {
				mustKey(t, filepath.Join(p.Dir, "own.pem"), test.key)
			}
			secret := filepath.Join(p.Dir, "secret")
			if err := os.WriteFile(secret, []byte("canary-own-secret\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			p.MustConfigure(t, fmt.Sprintf("public_url: http://%[1]s\nstorage: { dsn: %[2]s/junction.db, key_file: %[2]s/master.key }\n"+
				"outbound: { allow_private: [127.0.0.0/8]%[6]s }\nupstreams:\n  reports: { url: %[3]q, auth: { mode: client_credentials, "+
				"issuer: %[4]q, client_id: us, %[5]s, scopes: [read] } }\n", address, p.Dir, l.url, said.Issuer,
				strings.ReplaceAll(test.proof, "SECRET", secret), ca))
			p.MustServe(t, "--listen", address)
			p.MustReady(t, harness.Patience)
			c := harness.Talk(t, "http://"+address+"/mcp", client.EraModern)
			c.Succeed(t, "reports__echo", `{"say":"x"}`)
			resp, err := http.Get("http://" + address + "/oauth/jwks.json")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			keys, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if has := resp.StatusCode == 200 && strings.Contains(string(keys), `"kid"`); has != (test.key != nil) ||
				strings.Contains(string(keys), `"d"`) {
				t.Errorf("the published keys: %d %s", resp.StatusCode, keys)
			}
			out, errs, err := harness.RunJunction(t, []string{"XDG_STATE_HOME=" + p.Dir}, "auth", "doctor", "--config", p.File())
			if err != nil || !strings.Contains(out, "Junction gets a token that expires at") ||
				test.key != nil && !strings.Contains(strings.Join(strings.Fields(out), " "), "jwks_uri http://"+address) {
				t.Errorf("junction auth doctor: %v\n%s%s", err, out, errs)
			}
			for _, words := range [][]string{{"check", "--connect"}, {"doctor"}, {"doctor", "reports"}} {
				if len(words) == 2 && words[0] == "doctor" {
					p.MustStop(t) // then doctor connects with a token of its own
					if test.key != nil {
						break // the public key is read from the running Junction
					}
				}
				more, errs, _ := harness.RunJunction(t, []string{"XDG_STATE_HOME=" + p.Dir}, append(words, "--config", p.File())...)
				if flat := strings.Join(strings.Fields(more), " "); !strings.Contains(flat, "Junction gets a token that expires at") ||
					len(words) == 2 && words[0] == "doctor" && !strings.Contains(flat, "reports ok") {
					t.Errorf("junction %v:\n%s%s", words, more, errs)
				}
				out += more
			}
			if all := p.Stdout.String() + p.Stderr.String() + out; strings.Contains(all, "canary-own-secret") {
				t.Error("the log or the doctor shows the secret")
			}
		})
	}
}
