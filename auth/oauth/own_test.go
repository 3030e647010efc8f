package oauth

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/store"
)

// grantor is an upstream with an authorization server for the client credentials grant only: its metadata
// have neither an authorization endpoint nor PKCE.
type grantor struct {
	*httptest.Server
	mu       sync.Mutex
	answer   func(w http.ResponseWriter, n int) // of the token endpoint; guarded by mu
	requests []url.Values                       // at the token endpoint; guarded by mu
	basic    []string                           // user names of Basic; guarded by mu
	busy     chan struct{}                      // each request waits for a value, if it is not nil
	methods  []string
	// what the metadata name; nil and "" is nothing, and the own address
	algorithms, challenges []string
	authorize, issuer      string
}

// lasting is an answer with a new token and this expires_in.
func lasting(expires string) func(http.ResponseWriter, int) {
	return func(w http.ResponseWriter, n int) {
		fmt.Fprintf(w, `{"access_token":"canary-own-%d","token_type":"bearer","expires_in":%s}`, n, expires)
	}
}

func mustGrantor(t *testing.T, methods ...string) *grantor {
	t.Helper()
	g := &grantor{answer: lasting("3600"), methods: methods}
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	return g
}

func (g *grantor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/mcp":
		w.Header().Set("WWW-Authenticate", `Bearer scope="read", resource_metadata="/place"`)
		w.WriteHeader(http.StatusUnauthorized)
	case "/place":
		fmt.Fprintf(w, `{"resource":%q,"authorization_servers":[%q]}`, g.URL+"/mcp", g.URL)
	case "/.well-known/oauth-authorization-server":
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": cmp.Or(g.issuer, g.URL), "token_endpoint": g.URL + "/token",
			"token_endpoint_auth_methods_supported":            g.methods,
			"token_endpoint_auth_signing_alg_values_supported": g.algorithms, "code_challenge_methods_supported": append([]string{}, g.challenges...),
			"authorization_endpoint": g.authorize})
	case "/token":
		_ = r.ParseForm()
		name, _, _ := r.BasicAuth()
		g.mu.Lock()
		g.requests, g.basic = append(g.requests, r.PostForm), append(g.basic, name)
		n, answer, busy := len(g.requests), g.answer, g.busy
		g.mu.Unlock()
		if busy != nil {
			<-busy
		}
		answer(w, n)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (g *grantor) answers(answer func(http.ResponseWriter, int)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answer = answer
}

func (g *grantor) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.requests)
}

func (g *grantor) own() Upstream {
	return Upstream{URL: g.URL + "/mcp", Issuer: g.URL, ClientID: "us", ClientSecret: "canary-s", Own: true, Shared: true,
		Mode: "client_credentials"}
}

// member returns another process with the storage of c.
func member(c *Client, upstreams map[string]Upstream) *Client {
	other := New(c.Options)
	other.Apply(upstreams)
	return other
}

// TestOwnTokenIsRequestedAsTheServersAsk: the request has the secret as the authorization server takes it,
// and the resource, scopes and audience, also when the token is renewed.
func TestOwnTokenIsRequestedAsTheServersAsk(t *testing.T) {
	for _, test := range []struct {
		method, basic, secret string
		change                func(*Upstream)
		scope, resource       string
	}{
		{methodBasic, "us", "", func(*Upstream) {}, "read", "URL/mcp"},
		{"client_secret_post", "", "canary-s", func(u *Upstream) { u.Scopes, u.Audience = []string{"a", "b"}, "api" }, "a b", "URL/mcp"},
		{methodBasic, "us", "", func(u *Upstream) { u.Resource = ResourceNone }, "read", ""},
		{methodBasic, "us", "", func(u *Upstream) { u.Resource = "api://x" }, "read", "api://x"},
	} {
		g := mustGrantor(t, test.method)
		c, k := mustClientWithClock(t, "")
		u := g.own()
		test.change(&u)
		c.Apply(map[string]Upstream{"x": u})
		for n := range 2 {
			if token, err := c.Token(t.Context(), "x", Own); err != nil || token != fmt.Sprintf("canary-own-%d", n+1) {
				t.Fatalf("%s: the token is %q, %v", test.method, token, err)
			}
			k.Add(3601)
		}
		for i, form := range g.requests {
			for key, want := range map[string]string{"grant_type": "client_credentials", "scope": test.scope,
				"resource": strings.Replace(test.resource, "URL", g.URL, 1), "audience": u.Audience, "client_secret": test.secret} {
				if got := form.Get(key); got != want {
					t.Errorf("%s, request %d: %s is %q, want %q", test.method, i, key, got, want)
				}
			}
			if g.basic[i] != test.basic {
				t.Errorf("%s: Basic has the name %q", test.method, g.basic[i])
			}
		}
		c.Close()
	}
}

// TestOneOwnTokenForAllMembers: a thousand callers at three members cause one request, and later one
// renewal before the expiry, for which nobody waits.
func TestOneOwnTokenForAllMembers(t *testing.T) {
	g := mustGrantor(t)
	g.answers(lasting("60"))
	c, k := mustClientWithClock(t, "")
	upstreams := map[string]Upstream{"x": g.own()}
	c.Apply(upstreams)
	members := []*Client{c, member(c, upstreams), member(c, upstreams)}
	callers := 1000
	if testing.Short() { // the race detector on a busy machine is slower than the limit of the database
		callers = 100
	}
	all := func(want string) {
		t.Helper()
		var calls sync.WaitGroup
		for i := range callers {
			calls.Go(func() {
				if token, err := members[i%3].Token(t.Context(), "x", Own); token != want || err != nil {
					t.Errorf("the token is %q, %v; want %q", token, err, want)
				}
			})
		}
		calls.Wait()
	}
	all("canary-own-1")
	if n := g.count(); n != 1 {
		t.Fatalf("%d requests for the first token", n)
	}
	busy := make(chan struct{})
	g.mu.Lock()
	g.busy = busy
	g.mu.Unlock()
	k.Add(45)
	all("canary-own-1") // while the authorization server has not answered
	close(busy)
	for _, m := range members {
		m.Close()
	}
	all("canary-own-2")
	if n := g.count(); n != 2 {
		t.Errorf("%d requests after a renewal", n)
	}
}

// TestOneRenewalForEachUser: a hundred users have tokens that end, and each has ten callers at three members. Each token
// is renewed once, and each caller has the token of its user.
func TestOneRenewalForEachUser(t *testing.T) {
	g := mustGrantor(t)
	g.challenges, g.authorize = []string{"S256"}, g.URL+"/authorize"
	c, k := mustClientWithClock(t, "https://mcp.acme.example")
	upstreams := map[string]Upstream{"x": {URL: g.URL + "/mcp", Issuer: g.URL, ClientID: "us", ClientSecret: "canary-s"}}
	c.Apply(upstreams)
	members := []*Client{c, member(c, upstreams), member(c, upstreams)}
	users := 100
	if testing.Short() {
		users = 10
	}
	for i := range users {
		user, err := c.Store.PutUser(t.Context(), store.User{Issuer: "https://idp.example", Subject: fmt.Sprint(i)})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Store.PutConnection(t.Context(), store.Connection{Upstream: "x", User: user.ID,
			Principal: fmt.Sprint("user:", i), Access: fmt.Sprint("canary-access-", i), Refresh: fmt.Sprint("canary-refresh-", i),
			Issuer: g.URL, TokenEndpoint: g.URL + "/token", Resource: g.URL + "/mcp", ClientID: "us",
			Expires: k.now().Add(time.Minute)}); err != nil {
			t.Fatal(err)
		}
	}
	k.Add(61)
	var mu sync.Mutex
	got := map[string]map[string]int{} // by user and token
	var calls sync.WaitGroup
	for i := range 10 * users {
		calls.Go(func() {
			user := fmt.Sprint("user:", i%users)
			token, err := members[i%3].Token(t.Context(), "x", user)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if got[user] == nil {
				got[user] = map[string]int{}
			}
			got[user][token]++
		})
	}
	calls.Wait()
	for _, m := range members {
		m.Close()
	}
	if n := g.count(); n != users {
		t.Errorf("%d requests for %d users", n, users)
	}
	all := map[string]string{}
	for user, tokens := range got {
		for token := range tokens {
			if other := all[token]; len(tokens) != 1 || other != "" {
				t.Errorf("%s has the tokens %v, and %q has one of them", user, tokens, other)
			}
			all[token] = user
		}
	}
}

// TestBadAnswersGiveNoOwnToken: the reason is in the error, without the secret.
func TestBadAnswersGiveNoOwnToken(t *testing.T) {
	for want, answer := range map[string]func(w http.ResponseWriter, n int){
		"not JSON":      func(w http.ResponseWriter, _ int) { fmt.Fprint(w, "<html>canary-html</html>") },
		"invalid_scope": func(w http.ResponseWriter, _ int) { fmt.Fprint(w, `{"error":"invalid_scope"}`) },
		"it answered 400 ...": func(w http.ResponseWriter, _ int) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":"canary-s"}`)
		},
		"it answered 200 bad ...": func(w http.ResponseWriter, _ int) { fmt.Fprint(w, `{"error":"bad canary-s"}`) },
		"of an unknown type":      func(w http.ResponseWriter, _ int) { fmt.Fprint(w, `{"access_token":"x","token_type":"canary-s"}`) },
		"of the type DPoP":        func(w http.ResponseWriter, _ int) { fmt.Fprint(w, `{"access_token":"canary","token_type":"DPoP"}`) },
		"no valid token":          func(w http.ResponseWriter, _ int) { fmt.Fprint(w, `{"token_type":"bearer"}`) },
		"too large":               func(w http.ResponseWriter, _ int) { fmt.Fprint(w, strings.Repeat(" ", maxAnswer+1)) },
		"answer is too large": func(w http.ResponseWriter, _ int) { // a header of 64 KB
			fmt.Fprintf(w, `{"access_token":%q,"token_type":"bearer"}`, strings.Repeat("canary", 11000))
		},
		"it answered 503": func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusServiceUnavailable) },
		"401 invalid_client": func(w http.ResponseWriter, _ int) {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"invalid_client"}`)
		},
	} {
		g := mustGrantor(t)
		g.answers(answer)
		c := mustClient(t, "")
		c.Apply(map[string]Upstream{"x": g.own()})
		token, err := c.Token(t.Context(), "x", Own)
		if token != "" || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: %q, %v", want, token, err)
		}
		if n, why := c.Failing("x"); why == nil || n != 1 {
			t.Errorf("%s: the state has %v after %d requests", want, why, n)
		}
		c.Close()
	}
}

// TestExpiriesOfOwnTokens: a token without a usable expiry is kept, and one of a second is renewed each
// second only.
func TestExpiriesOfOwnTokens(t *testing.T) {
	for expires, want := range map[string]int{`null`: 1, `0`: 1, `-5`: 1, `3155760000`: 1, `"x"`: 1, `1`: 10, `"3600"`: 1} {
		g := mustGrantor(t)
		g.answers(lasting(expires))
		c, k := mustClientWithClock(t, "")
		c.Apply(map[string]Upstream{"x": g.own()})
		for range 10 {
			for range 5 {
				if token, err := c.Token(t.Context(), "x", Own); token == "" || err != nil {
					t.Fatalf("%s: %q, %v", expires, token, err)
				}
			}
			k.Add(1)
		}
		c.Close()
		if n := g.count(); n != want {
			t.Errorf("expires_in %s: %d requests in ten seconds, want %d", expires, n, want)
		}
	}
}

// TestIssuerOutForAnHour: calls fail at once with the reason, few requests reach the authorization server,
// and the first request after the outage gets a token. Another upstream has its token all the time.
func TestIssuerOutForAnHour(t *testing.T) {
	g, other := mustGrantor(t), mustGrantor(t)
	g.answers(func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusBadGateway) })
	c, k := mustClientWithClock(t, "")
	defer c.Close()
	c.Apply(map[string]Upstream{"x": g.own(), "other": other.own()})
	for range 1000 {
		token, err := c.Token(t.Context(), "x", Own)
		if token != "" || err == nil || !strings.Contains(err.Error(), "it answered 502") {
			t.Fatalf("%q, %v", token, err)
		}
		if token, err := c.Token(t.Context(), "other", Own); token != "canary-own-1" || err != nil {
			t.Fatalf("the other upstream has %q, %v", token, err)
		}
		k.Add(3)
	}
	if n := g.count(); n < 30 || n > 70 {
		t.Errorf("%d requests in 50 minutes", n)
	}
	g.answers(lasting("60"))
	k.Add(76)
	if token, err := c.Token(t.Context(), "x", Own); token == "" || err != nil {
		t.Errorf("after the outage: %q, %v", token, err)
	}
	if _, why := c.Failing("x"); why != nil {
		t.Errorf("after the outage the state has %v", why)
	}
}

// unanswered is an internet with an authorization server that takes a request for a token and does not answer.
type unanswered struct {
	internet
	requests *atomic.Int32
}

func (u unanswered) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != asHost || r.URL.Path != "/token" {
		return u.internet.RoundTrip(r)
	}
	u.requests.Add(1)
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// TestAThousandCallersOfASlowIssuer: they cause one request, and have the reason when it is given up. Those who come
// later have it at once, and callers of another upstream do not wait.
func TestAThousandCallersOfASlowIssuer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustShape(t, Upstream{})
		defer s.client.Store.Close()
		s.documents["https://api.example/.well-known/oauth-authorization-server"] = metadataOf("https://api.example",
			"token_endpoint", "https://api.example/token")
		slow := unanswered{internet{mcpHost: s.serve, asHost: s.serve, apiHost: s.serve}, new(atomic.Int32)}
		s.client.guarded, s.client.direct = &http.Client{Transport: slow}, &http.Client{Transport: slow}
		x := Upstream{URL: mcpURL, Issuer: asIssuer, ClientID: "us", ClientSecret: "canary-s", Own: true, Shared: true}
		other := x
		other.Issuer = "https://api.example"
		s.client.Apply(map[string]Upstream{"x": x, "other": other})
		const want = "get a token at as.example: it did not answer within 10s"
		var callers sync.WaitGroup
		for range 1000 {
			callers.Go(func() {
				if token, err := s.client.Token(t.Context(), "x", Own); token != "" || err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%q, %v; want %q", token, err, want)
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		if token, err := s.client.Token(t.Context(), "other", Own); token == "" || err != nil || time.Since(began) > 0 {
			t.Errorf("the other upstream has %q, %v after %v", token, err, time.Since(began))
		}
		callers.Wait()
		began = time.Now()
		if _, err := s.client.Token(t.Context(), "x", Own); err == nil || !strings.Contains(err.Error(), "; the next request is at") ||
			time.Since(began) > 0 {
			t.Errorf("a later caller has %v after %v", err, time.Since(began))
		}
		k, err := s.client.Store.Connection(t.Context(), "x", x.ownPrincipal())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.client.renew(t.Context(), x, k); err == nil {
			t.Error("a caller who came while the request failed has a token")
		}
		if n := slow.requests.Load(); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestRejectedOwnToken: an old token that the upstream rejects is replaced once. If the upstream rejects
// the new one, too, the operator has to act, and no further request is sent for a while.
func TestRejectedOwnToken(t *testing.T) {
	g := mustGrantor(t)
	c, k := mustClientWithClock(t, "")
	defer c.Close()
	c.Apply(map[string]Upstream{"x": g.own()})
	want := func(token string, err error, requests int, refused ...string) {
		t.Helper()
		got, failed := c.Token(t.Context(), "x", Own, refused...)
		if got != token || !errors.Is(failed, err) || g.count() != requests {
			t.Errorf("%q, %v after %d requests; want %q, %v after %d", got, failed, g.count(), token, err, requests)
		}
	}
	want("canary-own-1", nil, 1)
	k.Add(60)
	want("canary-own-2", nil, 2, "canary-own-1")
	want("", ErrBroken, 2, "canary-own-1", "canary-own-2")
	want("canary-own-2", nil, 2)
	want("canary-own-2", nil, 2, "canary-own-2")
	want("", ErrBroken, 2, "canary-own-2", "canary-own-2")
	k.Add(int64(refusedPause/time.Second) + 1)
	want("canary-own-3", nil, 3, "canary-own-2")
}

// TestRejectedClientGetsAnotherSecret: after the authorization server has rejected the client, the request is sent
// once more with the secret that the entry has now. It is not sent again if the secret is the same, or is rejected, too.
func TestRejectedClientGetsAnotherSecret(t *testing.T) {
	for other, want := range map[string]struct {
		requests int
		works    bool
	}{"canary-new": {2, true}, "canary-wrong": {2, false}, "canary-s": {1, false}, "": {1, false}} {
		g := mustGrantor(t, "client_secret_post")
		g.answers(func(w http.ResponseWriter, n int) {
			if g.requests[n-1].Get("client_secret") == "canary-new" {
				lasting("3600")(w, n)
				return
			}
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"invalid_client"}`)
		})
		first := mustClient(t, "")
		options := first.Options
		options.Other = func(_ context.Context, name, sent string) string {
			if name != "x" || sent != "canary-s" {
				t.Errorf("Other is asked for %s and %s", name, sent)
			}
			return other
		}
		c := New(options)
		c.Apply(map[string]Upstream{"x": g.own()})
		token, err := c.Token(t.Context(), "x", Own)
		if (err == nil) != want.works || (token != "") != want.works || g.count() != want.requests {
			t.Errorf("another secret %q: the token %q, %v after %d requests", other, token, err, g.count())
		}
		c.Close()
		first.Close()
	}
}

// TestOwnTokenStaysWithItsConfiguration: a token of another URL, client or scope is not used, even if the
// authorization server is out.
func TestOwnTokenStaysWithItsConfiguration(t *testing.T) {
	g := mustGrantor(t)
	c := mustClient(t, "")
	defer c.Close()
	c.Apply(map[string]Upstream{"x": g.own()})
	if _, err := c.Token(t.Context(), "x", Own); err != nil {
		t.Fatal(err)
	}
	g.answers(func(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusBadGateway) })
	for what, change := range map[string]func(*Upstream){
		"client":   func(u *Upstream) { u.ClientID = "another" },
		"scopes":   func(u *Upstream) { u.Scopes = []string{"write"} },
		"audience": func(u *Upstream) { u.Audience = "another" },
		"url":      func(u *Upstream) { u.URL = g.URL + "/other" },
		"issuer":   func(u *Upstream) { u.Issuer = g.URL + "/other" },
	} {
		u := g.own()
		change(&u)
		c.Apply(map[string]Upstream{"x": u})
		if token, err := c.Token(t.Context(), "x", Own); token != "" || err == nil {
			t.Errorf("another %s has the token %q, %v", what, token, err)
		}
	}
}
