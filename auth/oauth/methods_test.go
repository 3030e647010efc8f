package oauth

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/fetch"
)

// TestReadmeHasEachMethod: the table of auth/README.md has the row of each method of client authentication.
func TestReadmeHasEachMethod(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n| method | keys of `auth` | the proof |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, m := range Methods() {
		keys := "–"
		if len(m.Keys) > 0 {
			keys = "`" + strings.Join(m.Keys, "`, `") + "`"
		}
		if row := fmt.Sprintf("| `%s` | %s | %s |", m.Name, keys, m.Cell); !slices.Contains(strings.Split(table, "\n"), row) {
			t.Errorf("auth/README.md has no row %s", row)
		}
	}
	if n := len(strings.Split(table, "\n")) - 1; n != len(Methods()) {
		t.Errorf("the table of auth/README.md has %d methods, want %d", n, len(Methods()))
	}
}

// certificate is a Certificate without files.
type certificate struct {
	*tls.Certificate
	err error
}

func (c certificate) Read(time.Time) (*tls.Certificate, error) { return c.Certificate, c.err }

// TestMethodOfAClient: the keys of the entry choose the method, and the metadata choose among those with the same
// keys.
func TestMethodOfAClient(t *testing.T) {
	secret := Upstream{ClientSecret: "canary-s"}
	for _, test := range []struct {
		u      Upstream
		listed []string
		want   string
	}{
		{secret, nil, "client_secret_basic"},
		{secret, []string{"client_secret_post"}, "client_secret_post"},
		{secret, []string{"client_secret_post", "client_secret_basic"}, "client_secret_basic"},
		{secret, []string{"none", "private_key_jwt", "tls_client_auth"}, "client_secret_basic"},
		{Upstream{KeyFile: "k"}, []string{"client_secret_basic"}, "private_key_jwt"},
		{Upstream{Certificate: certificate{}}, []string{"client_secret_basic"}, "tls_client_auth"},
		{Upstream{}, []string{"client_secret_basic"}, "none"},
	} {
		if got := (&serverMetadata{AuthMethods: test.listed}).methodOf(test.u); got != test.want {
			t.Errorf("%+v with %q: %s, want %s", test.u, test.listed, got, test.want)
		}
	}
}

// TestCertificateOfAClient: only the token endpoint sees the certificate, at the place that the metadata name for
// it, and no request has another proof. A certificate that cannot be read, or a token endpoint without TLS, is the
// reason for which no request is sent.
func TestCertificateOfAClient(t *testing.T) {
	var mu sync.Mutex
	var seen []string // path, common name of the certificate, form
	var alias, token string
	s := httptest.NewUnstartedServer(nil)
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := "-"
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].DNSNames[0]
		}
		_ = r.ParseForm()
		_, _, basic := r.BasicAuth()
		mu.Lock()
		seen = append(seen, fmt.Sprintf("%s %s %s %v %v", r.URL.Path, name, r.PostForm.Get("client_id"), basic,
			r.PostForm.Has("client_secret") || r.PostForm.Has("client_assertion")))
		mu.Unlock()
		switch r.URL.Path {
		case "/.well-known/oauth-authorization-server":
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": s.URL, "token_endpoint": token,
				"token_endpoint_auth_methods_supported": []string{"tls_client_auth"},
				"mtls_endpoint_aliases":                 map[string]string{"token_endpoint": alias}})
		case "/token", "/mtls/token":
			fmt.Fprint(w, `{"access_token":"canary-own","token_type":"bearer","expires_in":3600}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	s.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	direct := http.DefaultTransport.(*http.Transport).Clone()
	direct.TLSClientConfig = &tls.Config{RootCAs: roots}
	own := mustCertificate(t, "us.example.com")
	for _, test := range []struct {
		name, url, alias, token string
		certificate             Certificate
		want, err               string
	}{
		{"another origin", "https://up.example.com/mcp", "", s.URL + "/token", certificate{own, nil}, "/token us.example.com us false false", ""},
		{"the origin of the upstream", s.URL + "/mcp", "", s.URL + "/token", certificate{own, nil}, "/token us.example.com us false false", ""},
		{"an alias", s.URL + "/mcp", s.URL + "/mtls/token", s.URL + "/token", certificate{own, nil}, "/mtls/token us.example.com us false false", ""},
		{"an alias at an address", s.URL + "/mcp", "https://192.0.2.1/token", s.URL + "/token", certificate{own, nil},
			"/token us.example.com us false false", ""},
		{"no file", s.URL + "/mcp", "", s.URL + "/token", certificate{nil, errors.New("auth.cert_file: cannot read x.pem")}, "",
			"auth.cert_file: cannot read x.pem"},
	} {
		t.Run(test.name, func(t *testing.T) {
			mu.Lock()
			seen, alias, token = nil, test.alias, test.token
			mu.Unlock()
			c := New(Options{Fetch: &fetch.Fetcher{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, RootCAs: roots},
				HTTP: direct, Log: authtest.Log(t)})
			defer c.Close()
			c.Apply(map[string]Upstream{"x": {URL: test.url, Issuer: s.URL, ClientID: "us", Certificate: test.certificate, Own: true,
				Shared: true, Resource: "api://x", Scopes: []string{"read"}}})
			got, err := c.TryOwn(t.Context(), "x")
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) ||
				err == nil && got.Token != "canary-own" {
				t.Errorf("the token is %q, %v", got.Token, err)
			}
			var asked string
			for _, one := range seen {
				path, rest, _ := strings.Cut(one, " ")
				switch {
				case strings.HasSuffix(path, "/token"):
					asked = one
				case !strings.HasPrefix(rest, "- "):
					t.Errorf("%s has the certificate", one)
				}
			}
			if asked != test.want {
				t.Errorf("the request for a token is %q, want %q", asked, test.want)
			}
		})
	}
	plain := clientRequest{server: &serverMetadata{TokenEndpoint: "http://127.0.0.1/token"}, where: "http://127.0.0.1/token",
		form: map[string][]string{}, upstream: Upstream{Certificate: certificate{own, nil}}}
	if err := New(Options{Fetch: &fetch.Fetcher{}, Log: authtest.Log(t)}).showCertificate(&plain); err == nil || plain.certificate != nil {
		t.Errorf("a token endpoint without TLS: %v", err)
	}
}

// mustCertificate returns a certificate for a name that it has signed itself.
func mustCertificate(t *testing.T, name string) *tls.Certificate {
	t.Helper()
	key := p256(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
