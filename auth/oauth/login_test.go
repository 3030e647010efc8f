package oauth

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth/store"
)

// strictServer is an upstream and its authorization server, which checks each request as the
// specification demands, and has one oddity.
type strictServer struct {
	*httptest.Server
	oddity string

	mu       sync.Mutex
	redirect string // of the registration
	clients  int
	codes    map[string]url.Values // of the authorization requests, by code
	refresh  string                // that is good now
	renewed  int
	revoked  []string
}

func mustStrictServer(t *testing.T, oddity string) *strictServer {
	s := &strictServer{oddity: oddity, codes: map[string]url.Values{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *strictServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/mcp":
		if s.oddity != "no metadata parameter" {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+s.URL+`/place"`)
		}
		w.WriteHeader(http.StatusUnauthorized)
	case "/place", "/.well-known/oauth-protected-resource/mcp":
		fmt.Fprintf(w, `{"resource":%q,"authorization_servers":[%q]}`, s.URL+"/mcp", s.URL+"/as")
	case "/.well-known/oauth-authorization-server/as", "/as/.well-known/openid-configuration":
		if (s.oddity == "OpenID metadata") == strings.HasPrefix(r.URL.Path, "/.well-known") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		m := map[string]any{
			"issuer": s.URL + "/as", "authorization_endpoint": s.URL + "/authorize", "token_endpoint": s.URL + "/token",
			"registration_endpoint": s.URL + "/register", "revocation_endpoint": s.URL + "/revoke",
			"code_challenge_methods_supported":               []string{"S256"},
			"authorization_response_iss_parameter_supported": true,
			"token_endpoint_auth_methods_supported":          []string{"none"},
		}
		if s.oddity == "no registration" {
			delete(m, "registration_endpoint")
		}
		json.NewEncoder(w).Encode(m)
	case "/register":
		var asked registration
		json.NewDecoder(r.Body).Decode(&asked)
		s.redirect, s.clients = asked.RedirectURIs[0], s.clients+1
		if asked.ApplicationType != "native" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"client_id":"client-%d"}`, s.clients)
	case "/token":
		s.token(w, r)
	case "/revoke":
		s.revoked = append(s.revoked, r.FormValue("token"))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (s *strictServer) token(w http.ResponseWriter, r *http.Request) {
	no := func(code string) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":%q}`, code)
	}
	switch s.oddity {
	case "token redirects":
		http.Redirect(w, r, s.URL+"/elsewhere", http.StatusTemporaryRedirect)
		return
	case "token without a word":
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if r.FormValue("resource") != s.URL+"/mcp" {
		no("invalid_target")
		return
	}
	switch r.FormValue("grant_type") {
	case "authorization_code":
		asked := s.codes[r.FormValue("code")]
		delete(s.codes, r.FormValue("code"))
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if asked == nil || base64.RawURLEncoding.EncodeToString(sum[:]) != asked.Get("code_challenge") ||
			r.FormValue("redirect_uri") != asked.Get("redirect_uri") ||
			r.FormValue("client_id") != asked.Get("client_id") {
			no("invalid_grant")
			return
		}
	case "refresh_token":
		if r.FormValue("refresh_token") != s.refresh ||
			r.FormValue("client_id") != fmt.Sprintf("client-%d", s.clients) {
			no("invalid_grant")
			return
		}
		s.renewed++
	}
	s.refresh = fmt.Sprintf("refresh-%d", s.renewed)
	answer := map[string]any{"access_token": fmt.Sprintf("access-%d", s.renewed), "token_type": "Bearer",
		"expires_in": 3600, "refresh_token": s.refresh}
	if s.oddity == "no refresh token" {
		delete(answer, "refresh_token")
	}
	json.NewEncoder(w).Encode(answer)
}

// browse does what a browser does at the address of a sign-in, and returns the answer.
func (s *strictServer) browse(t *testing.T, where string) url.Values {
	t.Helper()
	to, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	q := to.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.oddity != "no registration" && q.Get("redirect_uri") != s.redirect {
		t.Errorf("the redirect URI is %q, registered is %q", q.Get("redirect_uri"), s.redirect)
	}
	s.codes["the-code"] = q
	answer := url.Values{"code": {"the-code"}, "state": {q.Get("state")}, "iss": {s.URL + "/as"}}
	switch s.oddity {
	case "wrong iss":
		answer.Set("iss", "https://other.example")
	case "no iss":
		answer.Del("iss")
	case "denied":
		answer.Del("code")
		answer.Set("error", "access_denied")
	case "foreign state":
		answer.Set("state", "another")
	case "two codes":
		answer.Add("code", "the-code")
	}
	return answer
}

// TestLogin has the operator sign in at strict and odd authorization servers. The tokens are used,
// renewed and revoked; after a failed sign-in the store is as it was.
func TestLogin(t *testing.T) {
	const redirect = "http://127.0.0.1:33445/connect/linear/callback"
	for oddity, want := range map[string]string{
		"":                      "",
		"OpenID metadata":       "",
		"no metadata parameter": "",
		"no refresh token":      "",
		"no registration":       "set auth.client_id",
		"wrong iss":             "does not come from",
		"no iss":                "does not name its issuer",
		"denied":                "access_denied",
		"foreign state":         "does not belong to this sign-in",
		"two codes":             "contains a duplicate parameter",
		"token redirects":       "rejected the sign-in (its token endpoint redirects, with status 307, and Junction does not follow)",
		"token without a word":  "rejected the sign-in (status 400 without an error code)",
	} {
		t.Run(oddity, func(t *testing.T) {
			s := mustStrictServer(t, oddity)
			c, k := mustClientWithClock(t, "http://127.0.0.1:8420")
			var changed []string
			c.Changed = func(upstream, principal string) { changed = append(changed, upstream+" "+principal) }
			c.Apply(map[string]Upstream{"linear": {URL: s.URL + "/mcp", Shared: true}})
			err := login(t, c, s, redirect)
			if want != "" {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want %q", err, want)
				}
				if _, err := c.Token(t.Context(), "linear", Operator); !errors.Is(err, ErrNotConnected) ||
					len(changed) > 0 {
					t.Errorf("after a failed sign-in: Token = %v; changes are %q", err, changed)
				}
				return
			}
			if err != nil || len(changed) != 1 || changed[0] != "linear operator" {
				t.Fatalf("Login = %v; changes are %q", err, changed)
			}
			if token, err := c.Token(t.Context(), "linear", Operator); token != "access-0" || err != nil {
				t.Errorf("Token = %q, %v", token, err)
			}
			if users, err := c.Store.Users(t.Context(), ""); len(users) != 0 || err != nil {
				t.Errorf("the operator is listed as a user: %v, %v", users, err)
			}
			if names := c.Upstreams(); len(names) != 0 {
				t.Errorf("people are offered to connect %q", names)
			}
			k.Add(3600)
			if oddity == "no refresh token" {
				if _, err := c.Token(t.Context(), "linear", Operator); !errors.Is(err, ErrBroken) {
					t.Errorf("after an hour without a refresh token: %v", err)
				}
				if err := login(t, c, s, redirect); err != nil {
					t.Errorf("the second sign-in: %v", err)
				}
				return
			}
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if token, err := c.Token(t.Context(), "linear", Operator); token != "access-1" || err != nil {
						t.Errorf("after an hour: Token = %q, %v", token, err)
					}
				})
			}
			wg.Wait()
			c.Close()
			if s.renewed != 1 {
				t.Errorf("50 calls renewed the token %d times", s.renewed)
			}
			if err := c.Logout(t.Context(), "linear"); err != nil || len(s.revoked) != 1 ||
				s.revoked[0] != "refresh-1" {
				t.Errorf("Logout = %v; revoked are %q", err, s.revoked)
			}
			if _, err := c.Token(t.Context(), "linear", Operator); !errors.Is(err, ErrNotConnected) {
				t.Errorf("after the end: %v", err)
			}
			if err := c.Logout(t.Context(), "linear"); !errors.Is(err, ErrNotConnected) {
				t.Errorf("the second Logout = %v", err)
			}
		})
	}
}

func login(t *testing.T, c *Client, s *strictServer, redirect string) error {
	t.Helper()
	l, err := c.Login(t.Context(), "linear", redirect)
	if err != nil {
		return err
	}
	where, err := l.URL()
	if err != nil {
		return err
	}
	return l.Finish(t.Context(), s.browse(t, where))
}

// TestLoginOfAnother: connections of users and of the operator are separate.
func TestLoginOfAnother(t *testing.T) {
	s := mustStrictServer(t, "")
	c, k := mustClientWithClock(t, "https://mcp.acme.example")
	c.Apply(map[string]Upstream{"linear": {URL: s.URL + "/mcp", Shared: true}})
	user, err := c.Store.PutUser(t.Context(), store.User{Issuer: "https://idp.example", Subject: "operator"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Store.PutConnection(t.Context(), store.Connection{
		Upstream: "linear", User: user.ID, Principal: "user:1234:operator", Access: "canary-token", Resource: s.URL +
			"/mcp", Expires: k.now().Add(time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	if token, err := c.Token(t.Context(), "linear", Operator); token != "" || !errors.Is(err, ErrNotConnected) {
		t.Errorf("the operator gets %q, %v", token, err)
	}
	if err := c.Logout(t.Context(), "linear"); !errors.Is(err, ErrNotConnected) {
		t.Errorf("the operator ends another's connection: %v", err)
	}
	if token, err := c.Token(t.Context(), "linear", "user:1234:operator"); token != "canary-token" || err != nil {
		t.Errorf("the person gets %q, %v", token, err)
	}
}

// TestLoginTakesNothingAway: a sign-in for another scope also asks for those of the present one.
func TestLoginTakesNothingAway(t *testing.T) {
	s := mustStrictServer(t, "")
	c, _ := mustClientWithClock(t, "https://mcp.acme.example")
	scopes := func(configured string, more ...string) string {
		t.Helper()
		c.Apply(map[string]Upstream{"linear": {URL: s.URL + "/mcp", Shared: true, Scopes: strings.Fields(configured)}})
		l, err := c.Login(t.Context(), "linear", "http://127.0.0.1:4711"+CallbackPath("linear"), more...)
		if err != nil {
			t.Fatal(err)
		}
		where, err := l.URL()
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Finish(t.Context(), s.browse(t, where)); err != nil {
			t.Fatal(err)
		}
		to, _ := url.Parse(where)
		return to.Query().Get("scope")
	}
	for _, step := range []struct {
		configured string
		more       []string
		want       string
	}{
		{"read", nil, "read"},
		{"read", []string{"write", "read"}, "read write"},
		{"read", nil, "read write"},
		{"", []string{"admin"}, "read write admin"},
	} {
		if got := scopes(step.configured, step.more...); got != step.want {
			t.Errorf("with %q and %q it asks for %q, want %q", step.configured, step.more, got, step.want)
		}
	}
	if err := c.Logout(t.Context(), "linear"); err != nil {
		t.Fatal(err)
	}
	if got := scopes("read"); got != "read" {
		t.Errorf("after a logout it asks for %q", got)
	}
}
