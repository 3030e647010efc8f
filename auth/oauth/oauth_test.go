package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/fetch"
	"junction/auth/seal"
	"junction/auth/store"
)

// mustClient returns a Client with a URL, which may connect to loopback.
func mustClient(t *testing.T, at string) *Client {
	t.Helper()
	c, _ := mustClientWithClock(t, at)
	return c
}

// clock is a clock for a test to set, in Unix seconds.
type clock struct{ atomic.Int64 }

func (k *clock) now() time.Time { return time.Unix(k.Load(), 0).UTC() }

func mustClientWithClock(t testing.TB, at string) (*Client, *clock) {
	t.Helper()
	k := &clock{}
	k.Store(time.Now().Unix())
	ring, err := seal.ParseRing("a:" + strings.Repeat("A", 43))
	if err != nil {
		t.Fatal(err)
	}
	log := authtest.Log(t)
	c := New(Options{URL: at, Name: "Acme",
		Fetch: &fetch.Fetcher{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		HTTP:  http.DefaultTransport, Now: k.now, Log: log})
	c.Store, err = store.Open(t.Context(),
		store.Config{DSN: filepath.Join(t.TempDir(), "junction.db"), Keys: ring, Now: k.now, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Store.Close() })
	return c, k
}

// mustServers returns the URL of an upstream whose authorization server publishes these metadata
// besides the required ones, and counts requests.
func mustServers(t *testing.T, more map[string]any) (at string, asked map[string]int) {
	t.Helper()
	asked = map[string]int{}
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.URL.Path]++
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/mcp":
			w.Header().Set("WWW-Authenticate", `Bearer realm="x", scope="read write", resource_metadata="/place"`)
			w.WriteHeader(http.StatusUnauthorized)
		case "/place":
			fmt.Fprintf(w, `{"resource":%q,"authorization_servers":[%q],"scopes_supported":["everything"]}`,
				s.URL+"/mcp", s.URL)
		case "/.well-known/openid-configuration": // there are those that have no other
			document := map[string]any{"issuer": s.URL, "authorization_endpoint": s.URL + "/authorize?tenant=1",
				"token_endpoint": s.URL + "/token", "code_challenge_methods_supported": []string{"S256"}}
			for name, v := range more {
				document[name] = v
			}
			json.NewEncoder(w).Encode(document)
		case "/register":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"client_id":"registered","client_secret":"canary-s"}`)
		case "/token":
			if status, _ := more["token"].(*int); status != nil && *status != 200 {
				w.WriteHeader(*status)
				fmt.Fprint(w, `{"error":"invalid_request"}`)
				return
			}
			fmt.Fprintf(w, `{"access_token":"canary-access-%d","expires_in":3600}`, asked["/token"])
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	if more["registration_endpoint"] == "" {
		more["registration_endpoint"] = s.URL + "/register"
	}
	return s.URL + "/mcp", asked
}

// begin sends a user who has seen the hosts of a sign-in at linear there.
func begin(c *Client, state, verifier string) (where string, kept []byte, err error) {
	seen, _, err := c.Describe(context.Background(), "linear", "user:ann", nil)
	if err != nil {
		return "", nil, err
	}
	return c.Begin(context.Background(), "linear", "user:ann", state, verifier, seen, nil)
}

// TestRegistrationOrder: the client_id by the abilities of the authorization server and the
// configuration.
func TestRegistrationOrder(t *testing.T) {
	const public, loopback = "https://mcp.acme.example", "http://127.0.0.1:8420"
	everything := func() map[string]any {
		return map[string]any{"client_id_metadata_document_supported": true, "registration_endpoint": ""}
	}
	for _, test := range []struct {
		name, us   string
		u          Upstream
		says       map[string]any
		want       string
		registered int
	}{
		{"the operator's word", public, Upstream{ClientID: "ours"}, everything(), "ours", 0},
		{"our document", public, Upstream{}, everything(), public + "/oauth/client-metadata.json", 0},
		{"a document that nobody could read", loopback, Upstream{}, everything(), "registered", 1},
		{"no documents", public, Upstream{}, map[string]any{"registration_endpoint": ""}, "registered", 1},
		{"nothing", public, Upstream{}, nil, "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := mustClient(t, test.us)
			at, asked := mustServers(t, test.says)
			test.u.URL = at
			if test.u.ClientID != "" {
				test.u.Issuer = strings.TrimSuffix(at, "/mcp")
			}
			c.Apply(map[string]Upstream{"linear": test.u})
			where, kept, err := begin(c, "the state", strings.Repeat("v", 43))
			if test.want == "" {
				if err == nil || !strings.Contains(err.Error(), "auth.client_id") {
					t.Errorf("Begin = %s, %v; want what the operator has to do", where, err)
				}
				return
			}
			to, parsed := url.Parse(where)
			if err != nil || parsed != nil {
				t.Fatal(where, err, parsed)
			}
			q := to.Query()
			for name, want := range map[string]string{
				"client_id": test.want, "tenant": "1", "state": "the state", "code_challenge_method": "S256",
				"response_type": "code", "resource": at, "scope": "read write",
				"redirect_uri":   test.us + "/connect/linear/callback",
				"code_challenge": "7w_YNF9DSfIdPf_pRjSq646_kPr-2-o9NAl16JGghdM", "prompt": "",
			} {
				if got := q[name]; len(got) > 1 || q.Get(name) != want {
					t.Errorf("%s = %q, want %q", name, got, want)
				}
			}
			if strings.Contains(string(kept), "vvv") {
				t.Errorf("what is kept beside it holds the verifier: %s", kept)
			}
			if _, _, err := begin(c, "another", strings.Repeat("w", 43)); err != nil ||
				asked["/register"] != test.registered || asked["/mcp"] != 2 { // server/discover and initialize, once
				t.Errorf("once more: %v; it was asked %v", err, asked)
			}
		})
	}
}

// TestTokensAreRenewedBeforeTheyEnd follows one connection over time.
func TestTokensAreRenewedBeforeTheyEnd(t *testing.T) {
	c, k := mustClientWithClock(t, "https://mcp.acme.example")
	status := 200
	at, asked := mustServers(t, map[string]any{"registration_endpoint": "", "token": &status})
	issuer := strings.TrimSuffix(at, "/mcp")
	c.Apply(map[string]Upstream{"linear": {URL: at, Issuer: issuer, ClientID: "us", ClientSecret: "canary-s"}})
	user, err := c.Store.PutUser(t.Context(), store.User{Issuer: "https://idp.example", Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	put := func(client string, expires time.Time) {
		t.Helper()
		if err := c.Store.PutConnection(t.Context(), store.Connection{Upstream: "linear", User: user.ID,
			Principal: "user:ann", Access: "canary-access-0", Refresh: "canary-refresh", Issuer: issuer,
			TokenEndpoint: issuer + "/token", Resource: at, ClientID: client, Expires: expires}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what, token string, err error, requests int, refused ...string) {
		t.Helper()
		got, failed := c.Token(t.Context(), "linear", "user:ann", refused...)
		if got != token || !errors.Is(failed, err) || asked["/token"] != requests {
			t.Errorf("%s: Token = %q, %v after %d requests; want %q, %v after %d", what, got, failed, asked["/token"],
				token, err, requests)
		}
	}
	put("us", k.now().Add(time.Hour))
	want("for an hour", "canary-access-0", nil, 0)
	want("refused by mistake of another's", "canary-access-0", nil, 0, "canary-access-x")
	k.Add(59*60 + 1)
	status = 503
	want("a moment before its end, during an outage", "canary-access-0", nil, 1)
	status = 200
	want("a moment before its end", "canary-access-2", nil, 2)
	want("and then", "canary-access-2", nil, 2)
	k.Add(2 * 60 * 60)
	status = 503
	if got, err := c.Token(t.Context(), "linear", "user:ann"); got != "" || err == nil || errors.Is(err, ErrBroken) ||
		errors.Is(err, ErrNotConnected) {
		t.Errorf("after its end, during an outage: Token = %q, %v", got, err)
	}
	status = 400
	if got, err := c.Token(t.Context(), "linear", "user:ann"); got != "" || err == nil || errors.Is(err, ErrBroken) {
		t.Errorf("an answer that says nothing of the token: Token = %q, %v", got, err)
	}
	status = 200
	want("after the outage", "canary-access-5", nil, 5)
	// A token with a lifetime of a minute is not renewed all the time.
	put("us", k.now().Add(time.Minute))
	want("for a minute", "canary-access-0", nil, 5)
	// Tokens that were issued to another client are not used.
	put("them", k.now())
	want("another client's", "", ErrBroken, 5)
	want("and then", "", ErrBroken, 5)
	want("nobody's", "", ErrBroken, 5, "canary-access-0")
	if _, err := c.Token(t.Context(), "linear", "user:bob"); !errors.Is(err, ErrNotConnected) {
		t.Errorf("of somebody else: %v", err)
	}
	if _, err := c.Token(t.Context(), "jira", "user:ann"); !errors.Is(err, ErrNotConnected) {
		t.Errorf("of another server: %v", err)
	}
}

// TestOneRefusalEndsNoSignIn: without a refresh token, a token that was refused once is returned again, because
// the refusal may be that of one call. The second refusal during one request, and the end of its lifetime, end
// the sign-in.
func TestOneRefusalEndsNoSignIn(t *testing.T) {
	c, k := mustClientWithClock(t, "https://mcp.acme.example")
	c.Apply(map[string]Upstream{"linear": {URL: "https://linear.example/mcp"}})
	user, err := c.Store.PutUser(t.Context(), store.User{Issuer: "https://idp.example", Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	const token = "canary-access-0"
	for _, end := range []string{"refused twice", "expired"} {
		if err := c.Store.PutConnection(t.Context(), store.Connection{Upstream: "linear", User: user.ID,
			Principal: "user:ann", Access: token, Resource: "https://linear.example/mcp",
			Expires: k.now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if got, err := c.Token(t.Context(), "linear", "user:ann", token); got != token || err != nil {
				t.Errorf("refused once: Token = %q, %v; want the same token", got, err)
			}
		}
		refused := []string{token, token}
		if end == "expired" {
			k.Add(60*60 + 1)
			refused = nil
		}
		for range 2 {
			if got, err := c.Token(t.Context(), "linear", "user:ann", refused...); got != "" || !errors.Is(err, ErrBroken) {
				t.Errorf("%s: Token = %q, %v; want the end", end, got, err)
			}
		}
	}
}

func TestDocument(t *testing.T) {
	if text := mustClient(t, "http://127.0.0.1:8420").Document(); text != nil {
		t.Errorf("on loopback it is %s", text)
	}
	c := mustClient(t, "https://mcp.acme.example")
	c.Apply(map[string]Upstream{"b": {}, "a": {}})
	var r registration
	if err := json.Unmarshal(c.Document(), &r); err != nil {
		t.Fatal(err)
	}
	want := []string{"https://mcp.acme.example/connect/a/callback", "https://mcp.acme.example/connect/b/callback"}
	if r.ID != "https://mcp.acme.example/oauth/client-metadata.json" || r.Name != "Acme" ||
		!slices.Equal(r.RedirectURIs, want) || r.AuthMethod != "none" {
		t.Errorf("Document = %+v", r)
	}
}

// TestScopes: the requested scopes come from the configuration, or from the challenge or the metadata,
// with offline_access if the server has it.
func TestScopes(t *testing.T) {
	at, _ := mustServers(t, map[string]any{"registration_endpoint": "", "scopes_supported": []string{"offline_access"}})
	c := mustClient(t, "https://mcp.acme.example")
	for _, test := range []struct {
		configured []string
		want       string
		prompt     string
	}{{[]string{"one"}, "one", ""}, {nil, "read write offline_access", "consent"}, {[]string{"a", "offline_access"}, "a offline_access", "consent"}} {
		c.Apply(map[string]Upstream{"linear": {URL: at, Scopes: test.configured}})
		where, _, err := begin(c, "s", "v")
		to, _ := url.Parse(where)
		if err != nil || to.Query().Get("scope") != test.want || to.Query().Get("prompt") != test.prompt {
			t.Errorf("with %q: Begin = %s, %v", test.configured, where, err)
		}
		host := strings.TrimSuffix(strings.TrimPrefix(at, "http://"), "/mcp")
		if hosts, scopes, err := c.Describe(t.Context(), "linear", "user:ann", nil); err != nil || [3]string(hosts[:3]) != [3]string{host, host, host} ||
			strings.Join(scopes, " ") != test.want {
			t.Errorf("with %q: Describe = %q, %q, %v", test.configured, hosts, scopes, err)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, test := range []struct {
		resource, at string
		want         bool
	}{
		{"https://a.example/mcp", "https://a.example/mcp", true},
		{"https://a.example/mcp/", "https://a.example/mcp", true},
		{"https://A.example:443/mcp", "https://a.example/mcp", true},
		{"https://a.example", "https://a.example/mcp", true},
		{"https://a.example/", "https://a.example/mcp", true},
		{"https://a.example/mcp?x=1", "https://a.example/mcp?x=1", true},
		{"https://a.example/mc", "https://a.example/mcp", false},
		{"https://a.example/mcp/more", "https://a.example/mcp", false},
		{"https://a.example/mcp?x=1", "https://a.example/mcp?x=2", false},
		{"http://a.example/mcp", "https://a.example/mcp", false},
		{"https://a.example:444/mcp", "https://a.example/mcp", false},
		{"https://b.example/mcp", "https://a.example/mcp", false},
		{"https://a.example@b.example/mcp", "https://a.example/mcp", false},
		{"https://u@a.example/mcp", "https://a.example/mcp", false},
		{"https://a.example/mcp#x", "https://a.example/mcp", false},
		{"", "https://a.example/mcp", false},
		{"mcp", "https://a.example/mcp", false},
	} {
		if got := covers(test.resource, test.at); got != test.want {
			t.Errorf("covers(%q, %q) = %v", test.resource, test.at, got)
		}
	}
}

func TestEndpointsOfAnIssuer(t *testing.T) {
	secure, plain := &url.URL{Scheme: "https", Host: "as.example"}, &url.URL{Scheme: "http", Host: "127.0.0.1:9"}
	for _, test := range []struct {
		issuer *url.URL
		where  string
		want   bool
	}{
		{secure, "https://as.example/token", true},
		{secure, "https://other.example/token", true},
		{plain, "http://127.0.0.1:9/token", true},
		{secure, "http://as.example/token", false},
		{secure, "http://other.example/token", false},
		{plain, "http://127.0.0.1:10/token", false},
		{secure, "https://169.254.169.254/token", false},
		{secure, "https://[::ffff:169.254.169.254]/token", false},
		{secure, "https://2852039166/token", false},
		{secure, "https://localhost/token", false},
		{secure, "https://user@other.example/token", false},
		{secure, "https://other.example/token#x", false},
		{secure, "https://xn--othr-o2a.example/token", true},
		{secure, "https://oth%D0%B5r.example/token", false}, // shown as other.example, with a letter of another script
		{secure, "https://other.example%EF%BC%8F.evil.example/token", false},
		{&url.URL{Scheme: "https", Host: "oth\u0435r.example"}, "https://oth%D0%B5r.example/token", false},
		{secure, "javascript:alert(1)", false},
		{secure, "data:text/html,x", false},
		{secure, "//other.example/token", false},
		{secure, "/token", false},
		{secure, "", false},
	} {
		if got := endpointOf(test.issuer, test.where); got != test.want {
			t.Errorf("endpointOf(%s, %q) = %v", test.issuer, test.where, got)
		}
	}
}

// BenchmarkToken measures the wait of each request to an upstream.
func BenchmarkToken(b *testing.B) {
	c, k := mustClientWithClock(b, "https://mcp.acme.example")
	c.Apply(map[string]Upstream{"linear": {URL: "https://linear.example/mcp"}})
	user, err := c.Store.PutUser(b.Context(), store.User{Issuer: "https://idp.example", Subject: "ann"})
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Store.PutConnection(b.Context(), store.Connection{Upstream: "linear", User: user.ID,
		Principal: "user:ann", Access: strings.Repeat("a", 1000), Refresh: strings.Repeat("r", 100),
		Resource: "https://linear.example/mcp", Expires: k.now().Add(time.Hour)}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Token(b.Context(), "linear", "user:ann"); err != nil {
			b.Fatal(err)
		}
	}
}
