package oauth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"junction/auth/authtest"
)

// mustKeyFile writes private keys into a file, and reports them as secrets.
func mustKeyFile(t *testing.T, file string, keys ...any) {
	t.Helper()
	var text []byte
	for _, key := range keys {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		block := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
		authtest.Secret("a line of a private key", strings.Split(string(block), "\n")[1])
		text = append(text, block...)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func p256(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// signed is own with a key instead of the secret.
func (g *grantor) signed(file string) Upstream {
	u := g.own()
	u.ClientSecret, u.KeyFile = "", file
	return u
}

// verified returns the claims and the header of the assertion in a request, whose signature a published key
// must have.
func verified(t *testing.T, published []byte, form url.Values) (claims map[string]any, header jose.Header) {
	t.Helper()
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(published, &set); err != nil {
		t.Fatal(err)
	}
	token, err := jwt.ParseSigned(form.Get("client_assertion"), []jose.SignatureAlgorithm{jose.ES256, jose.RS256, jose.PS256})
	if err != nil {
		t.Fatal(err)
	}
	header = token.Headers[0]
	keys := set.Key(header.KeyID)
	if len(keys) != 1 || !keys[0].IsPublic() || token.Claims(keys[0].Key, &claims) != nil {
		t.Errorf("no published key with the ID %q has signed: %s", header.KeyID, published)
	}
	if form.Get("client_assertion_type") != assertionType || form.Get("client_id") != "us" || form.Has("client_secret") {
		t.Errorf("the request is %v", form)
	}
	return claims, header
}

// TestAssertionsOfAClientWithAKey: each request is signed anew, for the issuer or its token endpoint, with the
// key that the file has at that time, by an algorithm that the authorization server takes.
func TestAssertionsOfAClientWithAKey(t *testing.T) {
	g := mustGrantor(t, "private_key_jwt")
	file := filepath.Join(t.TempDir(), "key.pem")
	first, second := p256(t), p256(t)
	big, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	c, k := mustClientWithClock(t, "https://mcp.example.com")
	defer c.Close()
	step := func(u Upstream, algorithms []string, want jose.SignatureAlgorithm, audience string) (id string) {
		t.Helper()
		g.algorithms = algorithms
		c.Apply(nil)
		c.Apply(map[string]Upstream{"x": u})
		k.Add(3700)
		if token, err := c.Token(t.Context(), "x", Own); err != nil || token == "" {
			t.Fatalf("the token is %q, %v", token, err)
		}
		claims, header := verified(t, c.Keys(), g.requests[len(g.requests)-1])
		for name, value := range map[string]any{"iss": "us", "sub": "us", "aud": audience,
			"iat": float64(k.Load()), "exp": float64(k.Load() + 60)} {
			if claims[name] != value {
				t.Errorf("%s is %v, want %v", name, claims[name], value)
			}
		}
		if header.Algorithm != string(want) {
			t.Errorf("the algorithm is %s, want %s", header.Algorithm, want)
		}
		return fmt.Sprint(claims["jti"])
	}
	mustKeyFile(t, file, first)
	u := g.signed(file)
	one, two := step(u, nil, jose.ES256, g.URL), step(u, []string{"RS256", "ES256"}, jose.ES256, g.URL)
	if one == two || len(one) < 20 {
		t.Errorf("the IDs of two assertions are %q and %q", one, two)
	}
	mustKeyFile(t, file, second, first) // the old key stays published
	step(u, nil, jose.ES256, g.URL)
	if n := strings.Count(string(c.Keys()), `"kid"`); n != 2 {
		t.Errorf("%d keys are published: %s", n, c.Keys())
	}
	mustKeyFile(t, file, big)
	u.ToEndpoint, u.KeyID = true, "reports-1"
	step(u, nil, jose.RS256, g.URL+"/token")
	step(u, []string{"PS256"}, jose.PS256, g.URL+"/token")
	if id, err := c.KeyID("x"); id != "reports-1" || err != nil {
		t.Errorf("the ID of the key is %q, %v", id, err)
	}
	if text := string(c.Keys()); strings.Contains(text, `"d"`) || strings.Contains(text, `"p"`) {
		t.Errorf("private numbers are published: %s", text)
	}
}

// TestBadKeySendsNothing: with a file that cannot be used, or an authorization server that takes no signature
// of the key, no request is sent, and the reason is in the error and in the state. The right file heals it.
func TestBadKeySendsNothing(t *testing.T) {
	g := mustGrantor(t, "private_key_jwt")
	g.algorithms = []string{"RS256", "canary\x1b[31m"}
	file := filepath.Join(t.TempDir(), "key.pem")
	c, k := mustClientWithClock(t, "https://mcp.example.com")
	defer c.Close()
	c.Apply(map[string]Upstream{"x": g.signed(file)})
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() {}, "cannot read " + file},
		{func() { mustKeyFile(t, file, p256(t)) }, "takes signatures of RS256, canary[31m, and the key signs with ES256"},
		{func() { _ = os.Chmod(file, 0o644) }, "other users of this machine can read " + file},
	} {
		step.do()
		k.Add(200)
		_, err := c.Token(t.Context(), "x", Own)
		if err == nil || !strings.Contains(err.Error(), step.want) {
			t.Errorf("%v, want %q", err, step.want)
		}
		if _, why := c.Failing("x"); why == nil {
			t.Error("the state has no reason")
		}
	}
	if string(c.Keys()) != `{"keys":[]}` {
		t.Errorf("the published keys are %s", c.Keys())
	}
	if n := g.count(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	_ = os.Chmod(file, 0o600)
	g.algorithms = nil
	c.Apply(nil)
	c.Apply(map[string]Upstream{"x": g.signed(file)})
	if token, err := c.Token(t.Context(), "x", Own); token == "" || err != nil {
		t.Errorf("the right file: %q, %v", token, err)
	}
}

// TestAssertionGoesToTheConfiguredIssuerOnly: an upstream that names another authorization server, and
// metadata that name another issuer, get no assertion.
func TestAssertionGoesToTheConfiguredIssuerOnly(t *testing.T) {
	g, thief := mustGrantor(t, "private_key_jwt"), mustGrantor(t, "private_key_jwt")
	file := filepath.Join(t.TempDir(), "key.pem")
	mustKeyFile(t, file, p256(t))
	c := mustClient(t, "")
	defer c.Close()
	u := g.signed(file)
	u.URL = thief.URL + "/mcp" // its resource metadata name the authorization server of the thief
	c.Apply(map[string]Upstream{"x": u})
	if token, err := c.Token(t.Context(), "x", Own); token == "" || err != nil || thief.count() != 0 || g.count() != 1 {
		t.Errorf("%q, %v; %d requests at the upstream's own authorization server", token, err, thief.count())
	}
	thief.issuer = g.URL // as if it were the honest one
	u.Issuer = thief.URL
	c.Apply(map[string]Upstream{"x": u})
	if token, err := c.Token(t.Context(), "x", Own); token != "" || err == nil || thief.count() != 0 {
		t.Errorf("metadata of another issuer: %q, %v, %d requests", token, err, thief.count())
	}
	g.answers(func(w http.ResponseWriter, _ int) {
		w.Header().Set("Location", thief.URL+"/token")
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	c.Apply(map[string]Upstream{"x": g.signed(file)})
	if token, err := c.Token(t.Context(), "x", Own); token != "" || err == nil || thief.count() != 0 {
		t.Errorf("a redirect of the token endpoint: %q, %v, %d requests", token, err, thief.count())
	}
}

// TestStrangersCannotMakeJunctionReadKeys: a thousand requests for the published keys read the files once.
func TestStrangersCannotMakeJunctionReadKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key.pem")
	mustKeyFile(t, file, p256(t))
	c, k := mustClientWithClock(t, "https://mcp.example.com")
	defer c.Close()
	if c.Keys() != nil {
		t.Error("keys are published without a client that has one")
	}
	g := mustGrantor(t)
	c.Apply(map[string]Upstream{"x": g.signed(file)})
	before := string(c.Keys())
	mustKeyFile(t, file, p256(t))
	for range 1000 {
		if text := string(c.Keys()); text != before {
			t.Fatalf("the file was read again: %s", text)
		}
	}
	k.Add(int64(keysTTL/time.Second) + 1)
	if text := string(c.Keys()); text == before {
		t.Error("the new key is not published")
	}
}
