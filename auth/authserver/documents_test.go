package authserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"junction/auth/fetch"
)

// net is the internet of a test: documents by URL, with the number of requests for each.
type net struct {
	mu    sync.Mutex
	at    map[string]string
	fresh time.Duration
	err   error
	asked atomic.Int64
	hold  chan struct{} // until it is closed no fetch ends; nil does not wait
}

func (n *net) fetch(_ context.Context, where string, max int64) (fetch.Document, error) {
	n.asked.Add(1)
	if n.hold != nil {
		<-n.hold
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	text, ok := n.at[where]
	switch {
	case n.err != nil:
		return fetch.Document{}, n.err
	case !ok:
		return fetch.Document{}, &fetch.Error{Class: fetch.Status}
	case int64(len(text)) > max:
		return fetch.Document{}, &fetch.Error{Class: fetch.TooLarge}
	}
	d := fetch.Document{Body: []byte(text), Header: http.Header{}}
	if n.fresh >= 0 {
		d.Header.Set("Cache-Control", fmt.Sprintf("max-age=%d", n.fresh/time.Second))
	}
	return d, nil
}

func (n *net) put(where, text string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[where], n.err = text, err
}

const documentAt = "https://client.example/oauth/client.json"

func describe(more string) string {
	return `{"client_id":"` + documentAt +
		`","client_name":"The Client","redirect_uris":["http://localhost/callback"]` + more + `}`
}

func mustNet(t *testing.T, change func(*Options)) (*stand, *net) {
	n := &net{at: map[string]string{documentAt: describe("")}, fresh: -1}
	return mustStand(t, func(o *Options) {
		o.Fetch = n.fetch
		if change != nil {
			change(o)
		}
	}), n
}

// TestClientByMetadataDocument fetches the document over TLS, from a server with a private
// certificate authority, as with outbound.ca_file. Only the port differs from a real client_id.
func TestClientByMetadataDocument(t *testing.T) {
	asked := 0
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.URL.Path != "/oauth/client.json" || r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
			t.Errorf("it is asked for %s with %v", r.URL, r.Header)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(describe("")))
	}))
	t.Cleanup(site.Close)
	roots := x509.NewCertPool()
	roots.AddCert(site.Certificate())
	fetcher := &fetch.Fetcher{RootCAs: roots, AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	s := mustStand(t, func(o *Options) {
		o.Fetch = func(ctx context.Context, where string, max int64) (fetch.Document, error) {
			return fetcher.GetJSON(ctx, strings.Replace(where, "https://client.example", site.URL, 1), max)
		}
	})
	a, b := app{s, documentAt, strings.Repeat("v", 43), clientAt}, newBrowser(t)
	p := b.once(http.MethodGet, a.asks(), nil)
	if p.status != 200 || !strings.Contains(p.body, "<b>The Client</b> is identified by "+
		"<b>client.example</b>") {
		t.Fatalf("%d %s", p.status, p.body)
	}
	m := a.mustSignIn(t, b)
	if p := s.mustVerify(t, m["access_token"]); p.OAuthClient != documentAt {
		t.Errorf("the client is %s", p.OAuthClient)
	}
	if status, m := a.refresh(t, m["refresh_token"]); status != 200 {
		t.Error(status, m)
	}
	if asked != 1 {
		t.Errorf("the document was fetched %d times", asked)
	}
}

// TestPageNamesWhyADocumentFails: the page names the reason why a document cannot be used, and no
// detail of the local network.
func TestPageNamesWhyADocumentFails(t *testing.T) {
	inside := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter,
		*http.Request) {
		t.Error("the redirect was followed")
	}))
	t.Cleanup(inside.Close)
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, inside.URL+"/oauth/client.json", http.StatusFound)
		case "/large":
			_, _ = fmt.Fprintf(w, "%-*s", 5<<10+1, describe(""))
		case "/full":
			_, _ = fmt.Fprintf(w, "%-*s", 5<<10, describe(""))
		case "/page":
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(describe("")))
		case "/slow":
			for r.Context().Err() == nil {
				_, _ = w.Write([]byte(" "))
				_ = http.NewResponseController(w).Flush()
			}
		case "/twice":
			_, _ = w.Write([]byte(describe(`,"client_name":"Another"`)))
		}
	}))
	t.Cleanup(site.Close)
	roots := x509.NewCertPool()
	roots.AddCert(site.Certificate())
	here := fetch.Fetcher{RootCAs: roots, Timeout: 30 * time.Second}
	allowed := here
	allowed.AllowPrivate = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for id, row := range map[string]struct {
		fetcher *fetch.Fetcher
		want    string
	}{
		"https://127.0.0.1/c.json":        {&here, string(fetch.Private)},
		"https://169.254.169.254/latest":  {&here, string(fetch.Private)},
		"https://[::ffff:10.0.0.1]/c":     {&here, string(fetch.Private)},
		"https://localhost/c.json":        {&here, string(fetch.Private)},
		"https://client.example/redirect": {&allowed, string(fetch.Status)},
		"https://client.example/large":    {&allowed, string(fetch.TooLarge)},
		// which it was read for
		"https://client.example/full":  {&allowed, "its client_id differs from its address"},
		"https://client.example/page":  {&allowed, string(fetch.Type)},
		"https://client.example/slow":  {&allowed, string(fetch.TooLarge)},
		"https://client.example/twice": {&allowed, "has a duplicate member"},
	} {
		s := mustStand(t, func(o *Options) {
			o.Fetch = func(ctx context.Context, where string, max int64) (fetch.Document, error) {
				return row.fetcher.GetJSON(ctx, strings.Replace(where, "https://client.example", site.URL, 1), max)
			}
		})
		began := time.Now()
		p := newBrowser(t).once(http.MethodGet, app{s, id, strings.Repeat("v", 43), clientAt}.asks(), nil)
		if p.status != 400 || p.next() != "" || !strings.Contains(html.UnescapeString(p.body), row.want) ||
			strings.Contains(p.body, site.Listener.Addr().String()) {
			t.Errorf("%s: %d to %q\n%s\nwant %q", id, p.status, p.next(), p.body, row.want)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%s: it took %v", id, took)
		}
	}
}

func TestInvalidDocumentsAreRejected(t *testing.T) {
	s, n := mustNet(t, nil)
	b := newBrowser(t)
	for _, id := range []string{
		"http://client.example/c.json", "https://client.example:8443/c.json", "https://client.example",
		"https://client.example/", "https://client.example/a/../c.json",
		"https://client.example/a/%2e%2E/c.json", "https://client.example/./c.json", "https://u@client.example/c.json",
		"https://client.example/c.json#x", "https://CLIENT.example/c.json",
		"https:client.example/c.json", "https:///c.json", "https://client%D0%B5.example/c.json",
	} {
		before := n.asked.Load()
		p := b.once(http.MethodGet, app{s, id, strings.Repeat("v", 43), clientAt}.asks(), nil)
		if p.status != 400 || p.next() != "" || n.asked.Load() != before {
			t.Errorf("%s: %d to %q after %d fetches", id, p.status, p.next(), n.asked.Load()-before)
		}
	}
	for name, text := range map[string]string{
		"another id":     strings.Replace(describe(""), "client.json", "Client.json", 1),
		"a slash":        strings.Replace(describe(""), "client.json", "client.json/", 1),
		"no name":        strings.Replace(describe(""), "The Client", "", 1),
		"no redirect":    strings.Replace(describe(""), "http://localhost/callback", "http://evil.example/", 1),
		"a secret":       describe(`,"client_secret":"canary-x"`),
		"twice":          describe(`,"client_id":"` + documentAt + `"`),
		"twice, in case": describe(`,"Client_ID":"x"`),
		"twice, inside":  describe(`,"jwks":{"keys":[],"keys":[]}`),
		"more":           describe("") + "{}",
		"a list":         "[]",
		"nothing":        "",
		"too large":      describe(`,"x":"` + strings.Repeat("x", 5<<10) + `"`),
		"deep":           describe(`,"x":` + strings.Repeat("[", 4000)),
		"basic":          describe(`,"token_endpoint_auth_method":"client_secret_basic"`),
		"no keys":        describe(`,"token_endpoint_auth_method":"private_key_jwt"`),
		"keys elsewhere": describe(`,"token_endpoint_auth_method":"private_key_jwt","jwks_uri":"http://client.example/keys"`),
	} {
		s.clock.forward(25 * time.Hour)
		n.put(documentAt, text, nil)
		p := b.once(http.MethodGet, app{s, documentAt, strings.Repeat("v", 43), clientAt}.asks(), nil)
		if p.status != 400 || p.next() != "" {
			t.Errorf("%s: %d %s", name, p.status, p.body)
		}
	}
}

func TestDocumentsAreCached(t *testing.T) {
	s, n := mustNet(t, nil)
	a := app{s, documentAt, strings.Repeat("v", 43), clientAt}
	const all = 200
	n.hold = make(chan struct{})
	arrived, next := make(chan struct{}, all), s.http.Config.Handler
	s.http.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case arrived <- struct{}{}:
		default: // that come later
		}
		next.ServeHTTP(w, r)
	})
	var group sync.WaitGroup
	for range all {
		group.Go(func() {
			if p := newBrowser(t).once(http.MethodGet, a.asks(), nil); p.status != 200 {
				t.Errorf("%d %s", p.status, p.body)
			}
		})
	}
	for range all {
		<-arrived
	}
	close(n.hold)
	group.Wait()
	if got := n.asked.Load(); got != 1 {
		t.Errorf("200 at once fetch it %d times", got)
	}
	n.mu.Lock()
	n.fresh = 10 * time.Second
	n.mu.Unlock()
	s.clock.forward(61 * time.Minute)
	want := int64(2)
	for _, after := range []time.Duration{0, 4 * time.Minute, 2 * time.Minute} { // five minutes at least
		s.clock.forward(after)
		if after == 2*time.Minute {
			want++
		}
		if _, err := s.clientOf(t.Context(), documentAt); err != nil || n.asked.Load() != want {
			t.Errorf("after %v: %d fetches, want %d, %v", after, n.asked.Load(), want, err)
		}
	}
	// While the document cannot be fetched, the cached one is used for a day.
	n.put(documentAt, "", errors.New("the server cannot be reached"))
	s.clock.forward(10 * time.Minute)
	if _, err := s.clientOf(t.Context(), documentAt); err != nil {
		t.Errorf("stale: %v", err)
	}
	s.clock.forward(50 * time.Hour)
	b := newBrowser(t)
	p := b.once(http.MethodGet, a.asks(), nil)
	if p.status != 400 || !strings.Contains(p.body, "cannot be reached") ||
		!strings.Contains(p.body, "client.example") {
		t.Errorf("after two days: %d %s", p.status, p.body)
	}
	before := n.asked.Load()
	for range 10 { // what could not be fetched is not tried again for a minute
		b.once(http.MethodGet, a.asks(), nil)
	}
	if status, m := a.refresh(t, "jct_rt_x"); status != 503 || n.asked.Load() != before {
		t.Errorf("at the token endpoint: %d %v after %d more fetches", status, m, n.asked.Load()-before)
	}
	n.put(documentAt, describe(""), nil)
	s.clock.forward(61 * time.Second)
	if p := b.once(http.MethodGet, a.asks(), nil); p.status != 200 || n.asked.Load() != before+1 {
		t.Errorf("after a minute: %d after %d more fetches", p.status, n.asked.Load()-before)
	}
}

func TestChangedDocumentTakesEffect(t *testing.T) {
	s, n := mustNet(t, nil)
	a, b := app{s, documentAt, strings.Repeat("v", 43), clientAt}, newBrowser(t)
	if p := b.once(http.MethodGet, a.asks(), nil); p.status != 200 {
		t.Fatal(p.status, p.body)
	}
	n.put(documentAt, strings.Replace(describe(""), "/callback", "/other", 1), nil)
	s.clock.forward(25 * time.Hour)
	if p := b.once(http.MethodGet, a.asks(), nil); p.status != 400 || p.next() != "" {
		t.Errorf("the old redirect: %d", p.status)
	}
}

func TestDocumentOfAnotherHostIsNotFetched(t *testing.T) {
	s, n := mustNet(t, func(o *Options) {
		o.Config.Clients.CIMD = CIMD{Trust: trustAllowlist, Hosts: []string{"other.example"}}
	})
	p := newBrowser(t).once(http.MethodGet, app{s, documentAt, strings.Repeat("v", 43), clientAt}.asks(), nil)
	if p.status != 400 || n.asked.Load() != 0 {
		t.Errorf("%d after %d fetches", p.status, n.asked.Load())
	}
}

// mustClientKey returns the key of a signing client, and its published form.
func mustClientKey(t *testing.T) (key *ecdsa.PrivateKey, published string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k",
		Algorithm: "ES256", Use: "sig"}}})
	if err != nil {
		t.Fatal(err)
	}
	return key, string(keys)
}

// mustAssert returns a client assertion of the client of documentAt; change may be nil.
func (s *stand) mustAssert(
	t *testing.T, id string, change func(c *jwt.Claims), algorithm jose.SignatureAlgorithm, key any,
) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key},
		new(jose.SignerOptions).WithType("JWT").WithHeader("kid", "k"))
	if err != nil {
		t.Fatal(err)
	}
	c := jwt.Claims{Issuer: documentAt, Subject: documentAt, Audience: jwt.Audience{s.url}, ID: id,
		Expiry: jwt.NewNumericDate(s.clock.now().Add(time.Minute))}
	if change != nil {
		change(&c)
	}
	text, err := jwt.Signed(signer).Claims(c).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestClientAssertionsAreVerified(t *testing.T) {
	key, keys := mustClientKey(t)
	for name, document := range map[string]string{
		"inline": describe(`,"token_endpoint_auth_method":"private_key_jwt","jwks":` + keys),
		"by URL": describe(`,"token_endpoint_auth_method":"private_key_jwt","jwks_uri":"https://client.example/keys.json"`),
	} {
		t.Run(name, func(t *testing.T) {
			s, n := mustNet(t, nil)
			n.put(documentAt, document, nil)
			n.put("https://client.example/keys.json", keys, nil)
			a, b := app{s, documentAt, strings.Repeat("v", 43), clientAt}, newBrowser(t)
			code := a.mustCode(t, b)
			i := 0
			assertion := func(change func(c *jwt.Claims), algorithm jose.SignatureAlgorithm, with any) string {
				t.Helper()
				i++
				return s.mustAssert(t, fmt.Sprint(i), change, algorithm, with)
			}
			use := func(text string, more ...string) (int, map[string]any) {
				return a.redeem(t, code,
					append([]string{"client_assertion_type", assertionType, "client_assertion", text}, more...)...)
			}
			other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string]string{
				"another key": assertion(nil, jose.ES256, other),
				"a secret":    assertion(nil, jose.HS256, []byte(strings.Repeat("k", 32))),
				"another aud": assertion(func(c *jwt.Claims) { c.Audience = jwt.Audience{"https://other.example"} },
					jose.ES256, key),
				"another iss": assertion(func(c *jwt.Claims) { c.Issuer = "https://other.example" }, jose.ES256, key),
				"another sub": assertion(func(c *jwt.Claims) { c.Subject = "https://other.example" }, jose.ES256,
					key),
				"expired":       assertion(func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(s.clock.now().Add(-2 * time.Minute)) }, jose.ES256, key),
				"for ever":      assertion(func(c *jwt.Claims) { c.Expiry = jwt.NewNumericDate(s.clock.now().Add(time.Hour)) }, jose.ES256, key),
				"no expiry":     assertion(func(c *jwt.Claims) { c.Expiry = nil }, jose.ES256, key),
				"not yet":       assertion(func(c *jwt.Claims) { c.NotBefore = jwt.NewNumericDate(s.clock.now().Add(5 * time.Minute)) }, jose.ES256, key),
				"no jti":        assertion(func(c *jwt.Claims) { c.ID = "" }, jose.ES256, key),
				"no assertion":  "",
				"not a JWT":     "x.y.z",
				"not signed":    "eyJhbGciOiJub25lIn0.e30.",
				"much too long": strings.Repeat("x", 17<<10),
			} {
				if status, m := use(text); status != 401 || m["error"] != "invalid_client" {
					t.Errorf("%s: %d %v", name, status, m)
				}
			}
			if status, m := a.redeem(t, code); status != 401 || m["error"] != "invalid_client" {
				t.Errorf("without any: %d %v", status, m)
			}
			once := assertion(nil, jose.ES256, key)
			statuses := make(chan int, 20)
			for range cap(statuses) {
				go func() {
					status, _ := a.exchange(t, "grant_type", "refresh_token", "refresh_token", "jct_rt_x.y",
						"client_assertion_type", assertionType, "client_assertion", once)
					statuses <- status
				}()
			}
			counts := map[int]int{}
			for range cap(statuses) {
				counts[<-statuses]++
			}
			if counts[400] != 1 || counts[401] != 19 { // the one that was let in had no good token
				t.Errorf("one assertion 20 times at once: %v", counts)
			}
			status, m := use(assertion(func(c *jwt.Claims) { c.Audience = jwt.Audience{s.url + "/oauth/token"} },
				jose.ES256, key), "client_id", "")
			if status != 200 {
				t.Fatal(status, m)
			}
			if status, m := a.refresh(t, m["refresh_token"]); status != 401 {
				t.Errorf("refresh without: %d %v", status, m)
			}
			if status, m := a.refresh(t, m["refresh_token"], "client_assertion_type", assertionType, "client_assertion",
				assertion(nil, jose.ES256, key)); status != 200 {
				t.Errorf("refresh: %d %v", status, m)
			}
		})
	}
}
