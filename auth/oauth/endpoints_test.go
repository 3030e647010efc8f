package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/auth/store"
	"junction/upstream/client"
	"junction/upstream/transport"
)

// TestCodeGoesOnlyWhereTheUserSignedIn: a token endpoint at another origin gets a code only if the
// origin of the page names it, if the answer names the issuer, or if the operator permits exactly these
// two endpoints.
func TestCodeGoesOnlyWhereTheUserSignedIn(t *testing.T) {
	const page, token, other = "https://login.example/authorize", "https://login.example/token", "https://evil.example/token"
	const yes, named, no = "yes", "if the answer names the issuer", "no"
	const home = "https://login.example"
	for _, test := range []struct {
		name string
		Endpoints
		permitted Pair
		want      string
	}{
		{"one origin", Endpoints{page, token, false, false, ""}, Pair{}, yes},
		{"one origin, written otherwise", Endpoints{page, "https://LOGIN.example:443/token", false, false, ""}, Pair{}, yes},
		{"one origin, with a query", Endpoints{page + "?tenant=1", token, false, false, ""}, Pair{}, yes},
		{"another host", Endpoints{page, other, false, false, ""}, Pair{}, named},
		{"another port", Endpoints{page, "https://login.example:8443/token", false, false, ""}, Pair{}, named},
		{"another scheme", Endpoints{page, "http://login.example/token", false, false, ""}, Pair{}, named},
		{"a host below", Endpoints{page, "https://api.login.example/token", false, false, ""}, Pair{}, named},
		{"nothing", Endpoints{"", "", false, false, ""}, Pair{}, no},
		{"another host, and answers name the issuer", Endpoints{page, other, true, false, ""}, Pair{}, named},
		{"another host, and the page vouches", Endpoints{page, other, false, true, ""}, Pair{}, yes},
		{"a request object", Endpoints{page + "?request_uri=https://evil.example/x", other, true, false, ""}, Pair{}, no},
		{"a request object, and the page vouches", Endpoints{page + "?request_uri=https://evil.example/x", other, true, true, ""}, Pair{}, no},
		{"a query of another kind", Endpoints{page + "?x", other, true, false, ""}, Pair{}, no},
		{"an empty query", Endpoints{page + "?", other, true, false, ""}, Pair{}, no},
		{"permitted", Endpoints{page, other, false, false, ""}, Pair{page, other}, yes},
		{"permitted, with a query", Endpoints{page + "?x", other, false, false, ""}, Pair{page + "?x", other}, yes},
		{"permitted is another page", Endpoints{page, other, false, true, ""}, Pair{page + "2", other}, no},
		{"permitted is another token endpoint", Endpoints{page, other, false, true, ""}, Pair{page, token}, no},
		{"one origin, and others are permitted", Endpoints{page, token, true, false, ""}, Pair{page, other}, no},
		{"at home", Endpoints{page, token, false, false, home}, Pair{}, yes},
		{"at home, with a query", Endpoints{page + "?x", token, false, false, home}, Pair{}, yes},
		{"the page is at home", Endpoints{page, other, false, true, home}, Pair{}, named},
		{"away from home", Endpoints{page, token, false, true, "https://evil.example"}, Pair{}, named},
		{"away from home, with a query", Endpoints{page + "?x", token, false, true, "https://evil.example"}, Pair{}, no},
		{"away from home, and permitted", Endpoints{page, token, false, false, "https://evil.example"}, Pair{page, token}, yes},
	} {
		mustName, err := test.Check(test.permitted)
		got := yes
		refused, ok := errors.AsType[*PairError](err)
		switch {
		case ok:
			got = no
		case mustName:
			got = named
		}
		if got != test.want || !ok && err != nil {
			t.Errorf("%s: %s, %v; want %s", test.name, got, err, test.want)
		}
		if ok && refused.Line("linear", Upstream{Shared: true, Mode: "oauth"}) != fmt.Sprintf(
			"upstreams.linear.auth: { mode: oauth, authorization_endpoint: %q, token_endpoint: %q }", test.Authorization, test.Token) {
			t.Errorf("%s: the line is %s", test.name, refused.Line("linear", Upstream{Shared: true, Mode: "oauth"}))
		}
	}
}

// internet answers requests to hosts that do not exist.
type internet map[string]http.HandlerFunc

func (i internet) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, there := i[r.URL.Host]
	if !there {
		return nil, fmt.Errorf("no host %s", r.URL.Host)
	}
	w := httptest.NewRecorder()
	answer(w, r)
	return w.Result(), nil
}

// mustNet has a client send all its requests to an internet.
func mustNet(c *Client, net internet) {
	c.guarded, c.direct = &http.Client{Transport: net}, &http.Client{Transport: net}
	for _, sender := range []*http.Client{c.guarded, c.direct} {
		sender.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	c.Probe = func(ctx context.Context, u Upstream) *client.Probed {
		r, _ := http.NewRequestWithContext(ctx, "POST", u.URL, strings.NewReader("{}"))
		w, err := net.RoundTrip(r)
		if err != nil || w.StatusCode == 200 {
			return &client.Probed{Err: err}
		}
		challenge, _ := transport.OfBearer(w.Header.Values("WWW-Authenticate"))
		return &client.Probed{Err: &transport.StatusError{Status: w.StatusCode}, Status: w.StatusCode,
			Metadata: challenge.Parameters["resource_metadata"], Scope: challenge.Parameters["scope"]}
	}
}

const honest, evil = "login.honest.example", "mcp.evil.example"

// twoParties is an honest authorization server, and an MCP server of an attacker, whose
// authorization server names the endpoints of the first or its own.
type twoParties struct {
	metadata  map[string]any // of the attacker's authorization server
	scopes    []string       // that the attacker's MCP server names
	issuers   []string       // that the attacker's MCP server names
	posted    map[string][]url.Values
	passwords map[string][]string // of client authentication, by host
	// the registrations, by host, and how the secrets begin that they return; "" for none
	registered map[string]int
	secret     string
	granted    string // scopes in the token answers; "" for none
	unknown    bool   // the token endpoint does not know the client
	client     *Client
	clock      *clock
}

// issuerPath returns the path of the issuer in metadata.
func issuerPath(metadata map[string]any) string {
	issuer, _ := url.Parse(metadata["issuer"].(string))
	return issuer.Path
}

func mustTwoParties(t *testing.T, u Upstream) *twoParties {
	t.Helper()
	p := &twoParties{posted: map[string][]url.Values{}, passwords: map[string][]string{}, registered: map[string]int{}}
	p.metadata = map[string]any{"issuer": "https://" + evil, "authorization_endpoint": "https://" + honest + "/authorize",
		"token_endpoint": "https://" + honest + "/token", "revocation_endpoint": "https://" + honest + "/revoke",
		"registration_endpoint": "https://" + honest + "/register", "code_challenge_methods_supported": []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"none", "client_secret_basic"}}
	p.issuers = []string{"https://" + evil}
	forms := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == "GET" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if r.URL.Path == "/register" {
			p.registered[r.URL.Host]++
			if p.secret != "" {
				fmt.Fprintf(w, `{"client_id":"us at %s","client_secret":"%s-%s"}`, r.URL.Host, p.secret, r.URL.Host)
				return
			}
			fmt.Fprint(w, `{"client_id":"us"}`)
			return
		}
		r.ParseForm()
		p.posted[r.URL.Host] = append(p.posted[r.URL.Host], r.PostForm)
		if _, password, given := r.BasicAuth(); given {
			p.passwords[r.URL.Host] = append(p.passwords[r.URL.Host], password)
		}
		if p.unknown {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error":"invalid_client"}`)
			return
		}
		answer := map[string]any{"access_token": "canary-access", "refresh_token": "canary-refresh", "expires_in": 3600}
		if p.granted != "" {
			answer["scope"] = p.granted
		}
		json.NewEncoder(w).Encode(answer)
	}
	net := internet{honest: forms, evil: func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/mcp":
			w.WriteHeader(http.StatusUnauthorized)
		case "/.well-known/oauth-protected-resource/mcp":
			json.NewEncoder(w).Encode(map[string]any{"resource": "https://" + evil + "/mcp", "authorization_servers": p.issuers,
				"scopes_supported": p.scopes})
		case "/.well-known/oauth-authorization-server", "/.well-known/oauth-authorization-server" + issuerPath(p.metadata):
			json.NewEncoder(w).Encode(p.metadata)
		case "/register", "/token", "/revoke":
			forms(w, r)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}}
	p.client, p.clock = mustClientWithClock(t, "https://junction.example")
	mustNet(p.client, net)
	u.URL = "https://" + evil + "/mcp"
	p.client.Apply(map[string]Upstream{"linear": u})
	return p
}

// signIn has a user sign in, and returns what Finish returns. between runs while the user is away.
func (p *twoParties) signIn(t *testing.T, between func(answer url.Values)) error {
	t.Helper()
	user, err := p.client.Store.PutUser(t.Context(), store.User{Issuer: "https://idp.example", Subject: "ann"})
	if err != nil {
		t.Fatal(err)
	}
	_, kept, err := begin(p.client, "state", strings.Repeat("v", 43))
	if err != nil {
		return err
	}
	answer := url.Values{"state": {"state"}, "code": {"canary-code"}}
	between(answer)
	return p.client.Finish(t.Context(), "linear", kept, strings.Repeat("v", 43), answer, user.ID, "user:ann")
}

// TestMetadataThatChangeDuringASignIn: an attacker sends the user to an honest server, whose token
// endpoint they name, too, and then change the metadata. The code of the honest server is not sent
// to the attacker.
func TestMetadataThatChangeDuringASignIn(t *testing.T) {
	p := mustTwoParties(t, Upstream{})
	err := p.signIn(t, func(url.Values) {
		p.clock.Add(int64(metadataTTL.Seconds()) + 1)
		p.metadata["authorization_endpoint"] = "https://" + evil + "/authorize"
		p.metadata["token_endpoint"] = "https://" + evil + "/token"
	})
	if err == nil || !strings.Contains(err.Error(), "has changed during the sign-in") {
		t.Errorf("Finish = %v", err)
	}
	if len(p.posted[evil]) > 0 {
		t.Errorf("the attacker received %v", p.posted[evil])
	}
	// The promise to name the issuer cannot be taken back, either.
	p = mustTwoParties(t, Upstream{})
	p.metadata["authorization_response_iss_parameter_supported"] = true
	p.metadata["token_endpoint"] = "https://" + evil + "/token"
	p.metadata["registration_endpoint"] = "https://" + evil + "/register"
	err = p.signIn(t, func(url.Values) {
		p.clock.Add(int64(metadataTTL.Seconds()) + 1)
		delete(p.metadata, "authorization_response_iss_parameter_supported")
	})
	if err == nil || !strings.Contains(err.Error(), "does not name its issuer") || len(p.posted[evil]) > 0 {
		t.Errorf("Finish = %v; the attacker received %v", err, p.posted[evil])
	}
}

// TestHostsThatChangeAfterThePage: a user is sent only to the hosts that the page has shown.
func TestHostsThatChangeAfterThePage(t *testing.T) {
	p := mustTwoParties(t, Upstream{})
	seen, _, err := p.client.Describe(t.Context(), "linear", "user:ann", nil)
	if want := [3]string{honest, honest, evil}; err != nil || [3]string(seen[:3]) != want {
		t.Fatalf("Describe = %q, %v", seen, err)
	}
	p.clock.Add(int64(metadataTTL.Seconds()) + 1)
	p.metadata["authorization_response_iss_parameter_supported"] = true
	p.metadata["token_endpoint"] = "https://" + evil + "/token"
	if where, _, err := p.client.Begin(t.Context(), "linear", "user:ann", "s", "v", seen, nil); err == nil ||
		!strings.Contains(err.Error(), "have changed since you saw them") {
		t.Errorf("Begin = %s, %v", where, err)
	}
}

// TestRefreshTokenStaysAtItsOrigin: after a sign-in at an honest server, the attacker names
// endpoints of their own for the renewal and the revocation. They get neither the refresh token nor
// the access token.
func TestRefreshTokenStaysAtItsOrigin(t *testing.T) {
	for what, change := range map[string]func(p *twoParties){
		"the token endpoint": func(p *twoParties) { p.metadata["token_endpoint"] = "https://" + evil + "/token" },
		"all endpoints": func(p *twoParties) {
			for _, name := range []string{"authorization", "token", "revocation"} {
				p.metadata[name+"_endpoint"] = "https://" + evil + "/" + name
			}
		},
		"the revocation endpoint": func(p *twoParties) { p.metadata["revocation_endpoint"] = "https://" + evil + "/revoke" },
	} {
		p := mustTwoParties(t, Upstream{})
		if err := p.signIn(t, func(url.Values) {}); err != nil {
			t.Fatal(err)
		}
		k, err := p.client.Store.Connection(t.Context(), "linear", "user:ann")
		if err != nil || k.TokenEndpoint != "https://"+honest+"/token" {
			t.Fatalf("the connection is %+v, %v", k, err)
		}
		p.clock.Add(7200)
		change(p)
		_, err = p.client.Token(t.Context(), "linear", "user:ann")
		if moved := what != "the revocation endpoint"; errors.Is(err, ErrBroken) != moved {
			t.Errorf("%s moved: Token = %v", what, err)
		}
		if err := p.client.Disconnect(t.Context(), "linear", k.User); err != nil {
			t.Errorf("%s moved: Disconnect = %v", what, err)
		}
		if len(p.posted[evil]) > 0 {
			t.Errorf("%s moved: the attacker received %v", what, p.posted[evil])
		}
	}
}

// TestClientSecretStaysAtItsIssuer: the secret of the configuration is for one authorization
// server. An MCP server that names another one does not get it, also not in a renewal.
func TestClientSecretStaysAtItsIssuer(t *testing.T) {
	authtest.Secret("a client secret", "canary-secret")
	const ours = "https://" + honest
	for _, u := range []Upstream{{ClientID: "us", ClientSecret: "canary-secret", Issuer: ours},
		{ClientID: "us", ClientSecret: "canary-secret"}} {
		p := mustTwoParties(t, u)
		for _, name := range []string{"authorization", "token", "revocation"} {
			p.metadata[name+"_endpoint"] = "https://" + evil + "/" + name
		}
		if err := p.signIn(t, func(url.Values) {}); err == nil {
			t.Errorf("with the issuer %q a sign-in at another one succeeds", u.Issuer)
		}
		user, err := p.client.Store.PutUser(t.Context(), store.User{Issuer: "https://idp.example", Subject: "bob"})
		if err != nil {
			t.Fatal(err)
		}
		// A connection of an earlier configuration, without the issuer.
		if err := p.client.Store.PutConnection(t.Context(), store.Connection{Upstream: "linear", User: user.ID,
			Principal: "user:bob", Access: "canary-access", Refresh: "canary-refresh", Issuer: "https://" + evil,
			TokenEndpoint: "https://" + evil + "/token", Resource: "https://" + evil + "/mcp", ClientID: "us",
			Expires: p.clock.now()}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.client.Token(t.Context(), "linear", "user:bob"); !errors.Is(err, ErrBroken) {
			t.Errorf("with the issuer %q a renewal at another one: %v", u.Issuer, err)
		}
		if len(p.passwords[evil])+len(p.posted[evil]) > 0 {
			t.Errorf("with the issuer %q the attacker received %q, %v", u.Issuer, p.passwords[evil], p.posted[evil])
		}
	}
}

// TestRegistrationStaysAtTheTokenEndpoint: the server that makes our client is the one that its
// secret goes to.
func TestRegistrationStaysAtTheTokenEndpoint(t *testing.T) {
	p := mustTwoParties(t, Upstream{Shared: true, Mode: "oauth"})
	p.metadata["registration_endpoint"] = "https://" + evil + "/register"
	_, err := p.client.Login(t.Context(), "linear", "http://127.0.0.1:1"+CallbackPath("linear"))
	if err == nil || !strings.Contains(err.Error(), "accepts only registered clients") ||
		!strings.Contains(err.Error(), "auth.issuer: https://"+evil) {
		t.Errorf("Login = %v", err)
	}
}

// TestSecretOfARegistrationStaysAtItsOrigin: an attacker's authorization server names the endpoints of an
// honest one, where Junction registers, and later names endpoints of its own. Junction registers there
// again, and the attacker does not get the secret of the first registration.
func TestSecretOfARegistrationStaysAtItsOrigin(t *testing.T) {
	p := mustTwoParties(t, Upstream{})
	p.secret = "canary-secret"
	authtest.Secret("the secret of a registration", "canary-secret-"+honest)
	authtest.Secret("the secret of the other registration", "canary-secret-"+evil)
	p.metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_basic"}
	for range 2 { // the second sign-in uses the first registration
		if err := p.signIn(t, func(url.Values) {}); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.passwords[honest]) != 2 || p.registered[honest] != 1 {
		t.Fatalf("the honest server received %q after %d registrations", p.passwords[honest], p.registered[honest])
	}
	p.unknown = true // once: then the registration is forgotten
	if err := p.signIn(t, func(url.Values) {}); err == nil {
		t.Error("a sign-in succeeds although the client is unknown")
	}
	p.unknown = false
	if err := p.signIn(t, func(url.Values) {}); err != nil || p.registered[honest] != 2 {
		t.Errorf("after that, the sign-in ends with %v and %d registrations", err, p.registered[honest])
	}
	p.clock.Add(int64(metadataTTL.Seconds()) + 1)
	p.metadata["authorization_endpoint"] = "https://" + evil + "/authorize"
	p.metadata["token_endpoint"] = "https://" + evil + "/token"
	p.metadata["registration_endpoint"] = "https://" + evil + "/register"
	if err := p.signIn(t, func(url.Values) {}); err != nil {
		t.Error(err)
	}
	for i, password := range p.passwords[evil] {
		if form := p.posted[evil][i]; strings.Contains(password, honest) || strings.Contains(form.Encode(), honest) {
			t.Errorf("the attacker received %q, %v", password, form)
		}
	}
	if len(p.passwords[evil]) != 1 || p.registered[evil] != 1 {
		t.Errorf("the attacker received %q after %d registrations", p.passwords[evil], p.registered[evil])
	}
}

// TestRefusedSignInHasItsReason: Refused has the hosts and the line of the configuration until the
// configuration permits the pair.
func TestRefusedSignInHasItsReason(t *testing.T) {
	p := mustTwoParties(t, Upstream{Shared: true, Mode: "oauth"})
	p.metadata["token_endpoint"] = "https://" + evil + "/token"
	p.metadata["registration_endpoint"] = "https://" + evil + "/register"
	refused, err := p.client.Login(t.Context(), "linear", "http://127.0.0.1:1"+CallbackPath("linear"))
	if err != nil {
		t.Fatal(err)
	}
	err = refused.Finish(t.Context(), url.Values{"state": {refused.state}, "code": {"canary-code"}})
	line := `upstreams.linear.auth: { mode: oauth, authorization_endpoint: "https://login.honest.example/authorize", ` +
		`token_endpoint: "https://mcp.evil.example/token" }`
	if err == nil || !strings.Contains(err.Error(), line) || !strings.Contains(p.client.Refused("linear"), line) {
		t.Errorf("Finish = %v; Refused = %q", err, p.client.Refused("linear"))
	}
	if r, _, _, err := p.client.Route(t.Context(), "linear"); err != nil || r.Unnamed == nil || p.client.Refused("linear") == "" {
		t.Errorf("another look at it: %+v, %v; Refused = %q", r, err, p.client.Refused("linear"))
	}
	if len(p.posted[evil]) > 0 {
		t.Errorf("the attacker received %v", p.posted[evil])
	}
	p.client.Apply(map[string]Upstream{"linear": {URL: "https://" + evil + "/mcp", Shared: true, Issuer: "https://" + evil,
		ClientID: "us", Permitted: Pair{"https://" + honest + "/authorize", "https://" + evil + "/token"}}})
	if why := p.client.Refused("linear"); why != "" {
		t.Errorf("after a reload: %q", why)
	}
	l, err := p.client.Login(t.Context(), "linear", "http://127.0.0.1:1"+CallbackPath("linear"))
	if err != nil || l.About() != "You sign in at login.honest.example. Junction then gets an access token from "+
		"mcp.evil.example, and sends it to mcp.evil.example with each call." {
		t.Errorf("Login = %v, %v", l, err)
	}
}

// TestEndpointsAreSafeToShow: the error of a refused pair is a line to copy into the configuration,
// where ${NAME} is a variable.
func TestEndpointsAreSafeToShow(t *testing.T) {
	for _, endpoint := range []string{"https://evil.example/${AWS_SECRET_ACCESS_KEY}", `https://evil.example/"`,
		"https://evil.example/" + strings.Repeat("x", maxURI), "https://evil.example/\x1b[2J", "https://evil.example/é", "https://%D0%B5vil.example/"} {
		p := mustTwoParties(t, Upstream{})
		p.metadata["token_endpoint"] = endpoint
		if err := p.signIn(t, func(url.Values) {}); err == nil || !strings.Contains(err.Error(), "has an invalid endpoint") {
			t.Errorf("%.60q: %.200v", endpoint, err)
		}
	}
}

// TestOldMetadataLeaveTheMemory: a server that names another authorization server each time does not fill the
// memory with the metadata of all of them.
func TestOldMetadataLeaveTheMemory(t *testing.T) {
	p := mustTwoParties(t, Upstream{})
	for i := range 20 {
		p.clock.Add(int64(metadataTTL.Seconds()) + 1)
		issuer := fmt.Sprintf("https://%s/%d", evil, i)
		p.issuers, p.metadata["issuer"] = []string{issuer}, issuer
		if _, _, err := p.client.Describe(t.Context(), "linear", "user:ann", nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(p.client.cache); n > 4 {
		t.Errorf("%d documents are kept", n)
	}
}
