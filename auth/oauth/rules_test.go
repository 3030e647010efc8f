package oauth

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/store"
)

// TestRegistrationAnswers: the method of a registration is the one that the answer names. A secret
// without a method is sent by Basic, or in the form if the metadata list only that.
func TestRegistrationAnswers(t *testing.T) {
	authtest.Secret("a client secret", "canary-secret")
	const secret, id = "canary-secret", "us"
	for _, test := range []struct {
		name    string
		methods any
		answer  map[string]any
		want    string // basic, form, or none
	}{
		{"a secret without a method", []string{"none"}, map[string]any{"client_secret": secret}, "basic"},
		{"a secret without a method, and no methods are listed", nil, map[string]any{"client_secret": secret}, "basic"},
		{"a secret without a method, for the form only", []string{"client_secret_post"}, map[string]any{"client_secret": secret}, "form"},
		{"a secret for the form (Make)", []string{"client_secret_post"},
			map[string]any{"client_secret": secret, "token_endpoint_auth_method": "client_secret_post"}, "form"},
		{"a secret that is not used", []string{"none"}, map[string]any{"client_secret": secret, "token_endpoint_auth_method": "none"}, "none"},
		{"no secret", []string{"client_secret_basic"}, map[string]any{}, "none"},
		{"a method without its secret", []string{"none"}, map[string]any{"token_endpoint_auth_method": "client_secret_basic"}, ""},
		{"a method of keys", []string{"none"}, map[string]any{"token_endpoint_auth_method": "private_key_jwt"}, ""},
	} {
		s := mustShape(t, Upstream{})
		metadata("token_endpoint_auth_methods_supported", test.methods)(s)
		test.answer["client_id"] = id
		s.registered = test.answer
		err := s.signIn()
		const at = asIssuer + "/token"
		got := ""
		switch form := s.posted[at]; {
		case err != nil:
		case s.passwords[at] == id+":"+secret && form.Get("client_secret") == "":
			got = "basic"
		case form.Get("client_secret") == secret && form.Get("client_id") == id && s.passwords[at] == "":
			got = "form"
		case form.Get("client_secret") == "" && form.Get("client_id") == id && s.passwords[at] == "":
			got = "none"
		}
		if got != test.want {
			t.Errorf("%s: by %q, want %q; %v, %v", test.name, got, test.want, err, s.posted)
		}
	}
}

// TestNextAuthorizationServer: the first one that can be used is, but an outage of one changes nothing.
func TestNextAuthorizationServer(t *testing.T) {
	const second = "https://api.example"
	there := func(s *shape) {
		s.documents[resourceAt] = resourceOf(mcpURL, asIssuer, second)
		s.documents[second+"/.well-known/oauth-authorization-server"] = metadataOf(second, "authorization_endpoint",
			second+"/authorize", "token_endpoint", second+"/token", "registration_endpoint", second+"/register")
	}
	for _, test := range []struct {
		name string
		u    Upstream
		is   func(*shape)
		want string // the token endpoint, or a part of the error
	}{
		{"both can be used", Upstream{}, func(*shape) {}, asIssuer + "/token"},
		{"the first has no metadata", Upstream{}, func(s *shape) { s.documents[serverAt] = 404 }, second + "/token"},
		{"the first is another one", Upstream{}, metadata("issuer", "https://other.example"), second + "/token"},
		{"the first lacks S256", Upstream{}, metadata("code_challenge_methods_supported", []string{"plain"}), second + "/token"},
		{"the first registers nobody", Upstream{}, metadata("registration_endpoint", nil), second + "/token"},
		{"the first has an outage", Upstream{}, func(s *shape) { s.documents[serverAt] = 503 }, "cannot be reached"},
		{"the first is configured", Upstream{Issuer: asIssuer}, func(s *shape) { s.documents[serverAt] = 404 }, "cannot be reached"},
		{"the second is configured", Upstream{Issuer: second, ClientID: "us"}, func(*shape) {}, second + "/token"},
		{"the first refuses the registration", Upstream{Shared: true}, func(s *shape) {
			s.documents[asIssuer+"/register"] = 400
		}, second + "/token"},
		{"both refuse the registration", Upstream{Shared: true}, func(s *shape) {
			s.documents[asIssuer+"/register"], s.documents[second+"/register"] = 400, 400
		}, "rejected the registration"},
	} {
		s := mustShape(t, test.u)
		there(s)
		test.is(s)
		err := s.signIn()
		if err != nil {
			if !strings.Contains(err.Error(), test.want) || len(s.posted) > 0 {
				t.Errorf("%s: %v; want %q", test.name, err, test.want)
			}
		} else if s.posted[test.want] == nil || len(s.posted) != 1 {
			t.Errorf("%s: the code went to %v; want %s", test.name, s.posted, test.want)
		}
		if n := s.count("POST " + asIssuer + "/register"); n > 1 {
			t.Errorf("%s: %d registrations", test.name, n)
		}
	}
	// A page of a user shows the hosts of the second one after the first has refused the registration.
	s := mustShape(t, Upstream{})
	there(s)
	s.documents[asIssuer+"/register"] = 400
	if err := s.signIn(); err == nil || !strings.Contains(err.Error(), "rejected the registration") {
		t.Errorf("the first sign-in: %v", err)
	}
	if err := s.signIn(); err != nil || s.posted[second+"/token"] == nil {
		t.Errorf("the second sign-in: %v, %v", err, s.posted)
	}
}

// TestRefusedClientDocument: if an authorization server does not take the client metadata document, one
// attempt with a registration follows.
func TestRefusedClientDocument(t *testing.T) {
	for name, refuse := range map[string]func(*shape){
		"in the answer":         func(s *shape) { s.answer = url.Values{"code": nil, "error": {"unauthorized_client"}} },
		"at the token endpoint": func(s *shape) { s.exchanged = map[string]any{"error": "invalid_client"} },
	} {
		s := mustShape(t, Upstream{})
		metadata("client_id_metadata_document_supported", true)(s)
		good := s.exchanged
		refuse(s)
		err := s.signIn()
		if id := s.authorized.Get("client_id"); id != "https://junction.example/oauth/client-metadata.json" {
			t.Errorf("%s: the client is %s", name, id)
		}
		if err == nil || !strings.Contains(err.Error(), "connect linear again") || s.count("POST "+asIssuer+"/register") != 1 {
			t.Errorf("%s: %v, %q", name, err, s.asked)
		}
		s.answer, s.exchanged = url.Values{}, good
		if err := s.signIn(); err != nil || s.authorized.Get("client_id") != "us" {
			t.Errorf("%s: the next sign-in, as %s: %v", name, s.authorized.Get("client_id"), err)
		}
		if n := s.count("POST " + asIssuer + "/register"); n != 1 {
			t.Errorf("%s: %d registrations", name, n)
		}
	}
}

// TestMuteRefusalOfARenewal: a refresh token that is refused without an error code, again and again,
// has ended. One refusal, or an outage, tells nothing.
func TestMuteRefusalOfARenewal(t *testing.T) {
	s := mustShape(t, Upstream{})
	if err := s.signIn(); err != nil {
		t.Fatal(err)
	}
	s.clock.Add(7200)
	token := func(what string, answer any, want error) {
		t.Helper()
		s.exchanged = answer
		_, err := s.client.Token(t.Context(), "linear", "user:ann")
		if broken := errors.Is(err, ErrBroken); broken != (want == ErrBroken) || (err == nil) != (want == nil) {
			t.Errorf("%s: %v", what, err)
		}
	}
	some := errors.New("an error that changes nothing")
	good := s.exchanged
	token("the first refusal", 400, some)
	token("another one at once", 400, some)
	s.clock.Add(10)
	token("an outage", 503, some)
	token("no refusal", good, nil)
	s.clock.Add(7200)
	token("a refusal long after", 401, some)
	s.clock.Add(int64(muteTime / time.Second))
	token("an error code that tells nothing", map[string]any{"error": "invalid_request"}, some)
	token("a refusal that repeats", 401, ErrBroken)
}

// TestRefusalsOfARenewalByCode: error_code of Supabase Auth ends a sign-in at once, and invalid_request,
// which Dex answers for an ended refresh token, if it repeats. Other codes end none.
func TestRefusalsOfARenewalByCode(t *testing.T) {
	supabase := func(code string) map[string]any {
		return map[string]any{"code": 400, "error_code": code, "msg": "Invalid Refresh Token"}
	}
	dex := map[string]any{"error": "invalid_request", "error_description": "Refresh token is invalid or has already been claimed"}
	for _, tt := range []struct {
		name        string
		answer      any
		first, last bool // whether the first refusal ends the sign-in, and one half a minute later
	}{
		{"an unknown refresh token", refusal{400, supabase("refresh_token_not_found")}, true, true},
		{"a used refresh token", refusal{400, supabase("refresh_token_already_used")}, true, true},
		{"an ended session", refusal{400, supabase("session_not_found")}, true, true},
		{"another error_code", refusal{400, supabase("validation_failed")}, false, true},
		{"error_code in an outage", refusal{503, supabase("refresh_token_not_found")}, false, false},
		{"error_code beside another error", refusal{400, map[string]any{"error": "server_error", "error_code": "session_not_found"}}, false, false},
		{"invalid_request", refusal{400, dex}, false, true},
		{"invalid_scope", refusal{400, map[string]any{"error": "invalid_scope"}}, false, false},
		{"invalid_request with another status", refusal{403, dex}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := mustShape(t, Upstream{})
			if err := s.signIn(); err != nil {
				t.Fatal(err)
			}
			s.clock.Add(7200)
			s.exchanged = tt.answer
			for i, ends := range []bool{tt.first, tt.last} {
				_, err := s.client.Token(t.Context(), "linear", "user:ann")
				if errors.Is(err, ErrBroken) != ends || err == nil {
					t.Errorf("refusal %d: %v, want ErrBroken: %t", i+1, err, ends)
				}
				s.clock.Add(int64(muteTime / time.Second))
			}
		})
	}
}

// TestResourceOfTheConfiguration: auth.resource replaces the resource in all requests of a sign-in, or
// removes it, and nothing is sent twice.
func TestResourceOfTheConfiguration(t *testing.T) {
	for resource, want := range map[string]string{"": mcpURL, "api://0000/mcp": "api://0000/mcp", ResourceNone: ""} {
		for _, shared := range []bool{true, false} {
			s := mustShape(t, Upstream{Issuer: asIssuer, ClientID: "us", Resource: resource, Shared: shared})
			if err := s.signIn(); err != nil {
				t.Fatal(err)
			}
			requests := []url.Values{s.authorized, s.posted[asIssuer+"/token"]}
			s.clock.Add(7200)
			delete(s.posted, asIssuer+"/token")
			if _, err := s.client.Token(t.Context(), "linear", map[bool]string{true: Operator, false: "user:ann"}[shared]); err != nil {
				t.Fatal(err)
			}
			for i, r := range append(requests, s.posted[asIssuer+"/token"]) {
				if got := r["resource"]; strings.Join(got, " ") != want || r == nil {
					t.Errorf("%q: the resource of request %d is %q in %v", resource, i, got, r)
				}
			}
		}
	}
	s := mustShape(t, Upstream{Shared: true})
	s.exchanged = map[string]any{"error": "invalid_target"}
	if err := s.signIn(); err == nil || !strings.Contains(err.Error(), "upstreams.linear.auth.resource") ||
		s.count("POST "+asIssuer+"/token") != 1 {
		t.Errorf("a refused resource: %v, %q", err, s.asked)
	}
}

// TestParamsOfTheConfiguration: auth.params are added to the authorization request, and replace none of
// its parameters.
func TestParamsOfTheConfiguration(t *testing.T) {
	s := mustShape(t, Upstream{Params: map[string]string{"access_type": "offline", "prompt": "select_account",
		"client_id": "evil", "redirect_uri": "https://evil.example", "state": "evil", "scope": "everything",
		"code_challenge_method": "plain", "response_type": "token", "resource": "https://evil.example"}})
	metadata("scopes_supported", []string{"offline_access"}, "authorization_endpoint", asIssuer+"/authorize?tenant=1")(s)
	if err := s.signIn(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"access_type": "offline", "prompt": "select_account", "client_id": "us",
		"redirect_uri": "https://junction.example/connect/linear/callback", "state": "state", "scope": "offline_access",
		"code_challenge_method": "S256", "response_type": "code", "resource": mcpURL, "tenant": "1"} {
		if got := s.authorized[name]; strings.Join(got, " ") != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestNotesForTheOperator: another issuer than the upstream names, and a missing list of challenges, are
// shown.
func TestNotesForTheOperator(t *testing.T) {
	s := mustShape(t, Upstream{Issuer: asIssuer, ClientID: "us"})
	s.documents[resourceAt] = resourceOf(mcpURL, "https://other.example")
	metadata("code_challenge_methods_supported", nil)(s)
	r, _, _, err := s.client.Route(t.Context(), "linear")
	notes := strings.Join(r.Notes, "\n")
	if err != nil || !strings.Contains(notes, `names the authorization server "https://other.example"`) ||
		!strings.Contains(notes, "does not list PKCE with S256") || s.client.Notes("linear") == "" {
		t.Errorf("Route = %q, %v; Notes = %q", notes, err, s.client.Notes("linear"))
	}
	// Before any sign-in, both are looked at when somebody asks, once.
	for _, want := range []string{"https://other.example", ""} {
		s = mustShape(t, Upstream{Issuer: asIssuer, ClientID: "us"})
		metadata("code_challenge_methods_supported", nil)(s)
		if s.documents[resourceAt] = 404; want != "" {
			s.documents[resourceAt] = resourceOf(mcpURL, "https://other.example")
		}
		s.client.Notes("linear")
		s.client.Close()
		text, asked := s.client.Notes("linear"), len(s.asked)
		if !strings.Contains(text, want) || !strings.Contains(text, "does not list PKCE with S256") {
			t.Errorf("Notes = %q after %q", text, s.asked)
		}
		if s.client.Notes("linear"); len(s.asked) != asked {
			t.Errorf("Notes asked again: %q", s.asked)
		}
	}
	s = mustShape(t, Upstream{})
	if r, _, _, err := s.client.Route(t.Context(), "linear"); err != nil || r.Notes != nil || s.client.Notes("linear") != "" {
		t.Errorf("of a usual server: %q, %v", r.Notes, err)
	}
}

// TestStoredRowsWithAnotherSlash: a registration and a connection from before the metadata changed the
// slash are still used.
func TestStoredRowsWithAnotherSlash(t *testing.T) {
	s := mustShape(t, Upstream{})
	if err := s.signIn(); err != nil {
		t.Fatal(err)
	}
	s.documents[serverAt] = metadataOf(asIssuer + "/")
	s.clock.Add(7200)
	if token, err := s.client.Token(t.Context(), "linear", "user:ann"); token != "canary-access" || err != nil {
		t.Errorf("a renewal: %q, %v", token, err)
	}
	if err := s.signIn(); err != nil || s.count("POST "+asIssuer+"/register") != 1 {
		t.Errorf("another sign-in: %v; %d registrations", err, s.count("POST "+asIssuer+"/register"))
	}
	// A row of the other form, as an earlier version has stored it.
	user, err := s.client.Store.PutUser(t.Context(), store.User{Issuer: "https://idp.example", Subject: "bob"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.client.Store.PutConnection(t.Context(), store.Connection{Upstream: "linear", User: user.ID, Principal: "user:bob",
		Access: "canary-old", Refresh: "canary-refresh", Issuer: asIssuer, TokenEndpoint: asIssuer + "/token", Resource: mcpURL,
		ClientID: "us", Expires: s.clock.now()}); err != nil {
		t.Fatal(err)
	}
	if token, err := s.client.Token(t.Context(), "linear", "user:bob"); token != "canary-access" || err != nil {
		t.Errorf("a renewal of an old row: %q, %v", token, err)
	}
}

// TestMoreScopesOfAUser: a sign-in for more asks for those that the user has granted already, too, and
// takes nothing away.
func TestMoreScopesOfAUser(t *testing.T) {
	s := mustShape(t, Upstream{Scopes: []string{"read"}})
	scopes := func(more ...string) string {
		t.Helper()
		_, scopes, err := s.client.Describe(t.Context(), "linear", "user:ann", more)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(scopes, " ")
	}
	s.exchanged = map[string]any{"access_token": "canary-access", "scope": "read write"}
	if err := s.signIn(); err != nil {
		t.Fatal(err)
	}
	if got := scopes(); got != "read write" {
		t.Errorf("another sign-in asks for %q", got)
	}
	if got := scopes("admin", "write"); got != "read write admin" {
		t.Errorf("a sign-in for more asks for %q", got)
	}
	if _, _, err := s.client.Describe(t.Context(), "linear", "user:ann", []string{strings.Repeat("x", maxScopes)}); err == nil {
		t.Error("any number of scopes is asked for")
	}
	if _, scopes, err := s.client.Describe(t.Context(), "linear", "user:bob", []string{"admin"}); err != nil || strings.Join(scopes, " ") != "read admin" {
		t.Errorf("another user's sign-in asks for %q, %v", scopes, err)
	}
}
