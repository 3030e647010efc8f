package oauth

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/auth/store"
)

// The tests of this file are the shapes of real servers: what they answer, where, and what follows.

const (
	mcpHost = "mcp.example" // of the upstream, whose URL is https://mcp.example/mcp
	asHost  = "as.example"  // of its authorization server
	apiHost = "api.example" // of another token endpoint
)

// shape is an upstream and its authorization server.
type shape struct {
	t         *testing.T
	client    *Client
	clock     *clock
	challenge string         // of the upstream
	status    int            // of the upstream; 200 asks for nothing
	documents map[string]any // by URL: a status, a page, or a JSON document
	answer    url.Values     // what the browser brings back besides state and code

	registered, exchanged any // the answers; a status, or JSON
	asked                 []string
	authorized            url.Values            // the query of the last authorization request
	posted                map[string]url.Values // by URL, the last one
	passwords             map[string]string     // by URL, of Basic
}

// metadataOf is what an authorization server publishes of itself.
func metadataOf(issuer string, more ...any) map[string]any {
	m := map[string]any{"issuer": issuer, "authorization_endpoint": "https://" + asHost + "/authorize",
		"token_endpoint": "https://" + asHost + "/token", "registration_endpoint": "https://" + asHost + "/register",
		"code_challenge_methods_supported":      []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"none", "client_secret_basic"}}
	for i := 0; i < len(more); i += 2 {
		if m[more[i].(string)] = more[i+1]; more[i+1] == nil {
			delete(m, more[i].(string))
		}
	}
	return m
}

func resourceOf(resource string, issuers ...string) map[string]any {
	return map[string]any{"resource": resource, "authorization_servers": issuers}
}

const (
	resourceAt = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
	serverAt   = "https://as.example/.well-known/oauth-authorization-server"
	openIDAt   = "https://as.example/.well-known/openid-configuration"
	ownAt      = "https://mcp.example/.well-known/oauth-authorization-server"
	mcpURL     = "https://mcp.example/mcp"
	asIssuer   = "https://as.example"
)

// mustShape returns a shape that follows the specification; u is its configuration.
func mustShape(t *testing.T, u Upstream) *shape {
	s := &shape{t: t, status: 401, posted: map[string]url.Values{}, passwords: map[string]string{},
		documents:  map[string]any{resourceAt: resourceOf(mcpURL, asIssuer), serverAt: metadataOf(asIssuer)},
		registered: map[string]any{"client_id": "us"}, answer: url.Values{},
		exchanged: map[string]any{"access_token": "canary-access", "refresh_token": "canary-refresh", "expires_in": 3600}}
	s.client, s.clock = mustClientWithClock(t, "https://junction.example")
	net := internet{}
	for _, host := range []string{mcpHost, asHost, apiHost, "login.microsoftonline.com", "other.example"} {
		net[host] = s.serve
	}
	mustNet(s.client, net)
	if u.URL == "" {
		u.URL = mcpURL
	}
	s.client.Apply(map[string]Upstream{"linear": u})
	return s
}

// refusal is an answer with a status and a document.
type refusal struct {
	status   int
	document any
}

func (s *shape) serve(w http.ResponseWriter, r *http.Request) {
	at := "https://" + r.URL.Host + r.URL.RequestURI()
	s.asked = append(s.asked, r.Method+" "+at)
	say := func(v any) {
		if no, ok := v.(refusal); ok {
			w.WriteHeader(no.status)
			v = no.document
		}
		switch v := v.(type) {
		case int:
			w.WriteHeader(v)
		case string:
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, v)
		default:
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(v)
		}
	}
	document, there := s.documents[at]
	switch {
	case there:
		say(document)
	case r.Method == "POST" && r.URL.Host == mcpHost && strings.HasPrefix(r.URL.Path, "/mcp"):
		if s.challenge != "" {
			w.Header().Set("WWW-Authenticate", s.challenge)
		}
		w.WriteHeader(s.status)
	case r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/register"):
		say(s.registered)
	case r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/token"):
		r.ParseForm()
		s.posted[at] = r.PostForm
		if id, password, given := r.BasicAuth(); given {
			s.passwords[at] = id + ":" + password
		}
		say(s.exchanged)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// count returns how many requests begin with a text.
func (s *shape) count(what string) (n int) {
	for _, a := range s.asked {
		if strings.HasPrefix(a, what) {
			n++
		}
	}
	return n
}

// signIn has a user, or the operator, sign in.
func (s *shape) signIn() error {
	u, _ := s.client.Upstream("linear")
	answer := url.Values{"state": {"state"}, "code": {"canary-code"}}
	for name, values := range s.answer {
		if answer[name] = values; values == nil {
			answer.Del(name)
		}
	}
	visit := func(where string) {
		to, err := url.Parse(where)
		if err != nil {
			s.t.Fatal(err)
		}
		s.authorized = to.Query()
	}
	if u.Shared {
		l, err := s.client.Login(s.t.Context(), "linear", "http://127.0.0.1:1"+CallbackPath("linear"))
		if err != nil {
			return err
		}
		where, err := l.URL()
		if err != nil {
			return err
		}
		visit(where)
		answer.Set("state", s.authorized.Get("state"))
		return l.Finish(s.t.Context(), answer)
	}
	user, err := s.client.Store.PutUser(s.t.Context(), store.User{Issuer: "https://idp.example", Subject: "ann"})
	if err != nil {
		s.t.Fatal(err)
	}
	where, kept, err := begin(s.client, "state", strings.Repeat("v", 43))
	if err != nil {
		return err
	}
	visit(where)
	return s.client.Finish(s.t.Context(), "linear", kept, strings.Repeat("v", 43), answer, user.ID, "user:ann")
}

// TestShapesOfRealServers signs in at servers as they are, as the operator and as a user.
func TestShapesOfRealServers(t *testing.T) {
	authtest.Secret("a client secret", "canary-secret")
	no := 404
	configured := Upstream{Issuer: asIssuer, ClientID: "us"}
	two := []any{"token_endpoint", "https://api.example/token", "registration_endpoint", "https://api.example/register"}
	for _, test := range []struct {
		name string
		u    Upstream
		is   func(s *shape)
		want string // the error contains; "" is a sign-in
	}{
		{"as the specification says", Upstream{}, func(*shape) {}, ""},

		{"a slash more in the list (Google)", Upstream{}, func(s *shape) { s.documents[resourceAt] = resourceOf(mcpURL, asIssuer+"/") }, ""},
		{"a slash more in the metadata (Expo)", Upstream{}, func(s *shape) { s.documents[serverAt] = metadataOf(asIssuer + "/") }, ""},
		{"iss has the form of the metadata", Upstream{}, func(s *shape) {
			s.documents[serverAt], s.answer = metadataOf(asIssuer+"/"), url.Values{"iss": {asIssuer + "/"}}
		}, ""},
		{"iss has another form than the metadata", Upstream{}, func(s *shape) {
			s.documents[serverAt], s.answer = metadataOf(asIssuer+"/"), url.Values{"iss": {asIssuer}}
		}, "does not come from"},
		{"a slash in the configuration", Upstream{Issuer: asIssuer + "/", ClientID: "us", ClientSecret: "canary-secret"}, func(*shape) {}, ""},
		{"a slash after a path", Upstream{}, func(s *shape) {
			s.documents[resourceAt] = resourceOf(mcpURL, asIssuer+"/x")
			s.documents[serverAt+"/x"] = metadataOf(asIssuer + "/x/")
		}, "auth.issuer"},
		{"letters of another case", Upstream{}, func(s *shape) { s.documents[serverAt] = metadataOf("https://AS.example") }, "auth.issuer"},
		{"the root instead of a path", Upstream{}, func(s *shape) {
			s.documents[resourceAt] = resourceOf(mcpURL, asIssuer+"/x")
			s.documents[serverAt+"/x"] = metadataOf(asIssuer)
		}, "auth.issuer"},
		{"another path", Upstream{}, func(s *shape) {
			s.documents[resourceAt] = resourceOf(mcpURL, asIssuer+"/x")
			s.documents[serverAt+"/x"] = metadataOf(asIssuer + "/y")
		}, "auth.issuer"},
		{"another path, and the issuer is configured (Scalekit)", Upstream{Issuer: asIssuer}, func(s *shape) {
			s.documents[resourceAt] = resourceOf(mcpURL, asIssuer+"/x")
			s.documents[serverAt+"/x"] = metadataOf(asIssuer)
		}, ""},
		{"every tenant (Entra)", Upstream{}, entra("organizations"), "https://login.microsoftonline.com/TENANT/v2.0"},
		{"every tenant, configured", Upstream{Issuer: "https://login.microsoftonline.com/organizations/v2.0", ClientID: "us"}, entra("organizations"), ""},
		{"every tenant, one is configured", Upstream{Issuer: "https://login.microsoftonline.com/t1/v2.0", ClientID: "us"}, entra("organizations"), ""},
		{"a placeholder at another host", Upstream{Issuer: asIssuer + "/organizations/v2.0", ClientID: "us"}, func(s *shape) {
			s.documents[asIssuer+"/organizations/v2.0/.well-known/openid-configuration"] = metadataOf(asIssuer + "/{tenantid}/v2.0")
		}, "publishes the metadata of another server"},

		{"no resource metadata (Intercom)", Upstream{}, own(no, metadataAtHome()), ""},
		{"401 instead of resource metadata", Upstream{}, own(401, metadataAtHome()), ""},
		{"410 instead of resource metadata", Upstream{}, own(410, metadataAtHome()), ""},
		{"a page instead of resource metadata", Upstream{}, own("<html>", metadataAtHome()), ""},
		{"an outage of the resource metadata", Upstream{}, own(503, metadataAtHome()), "does not publish where users sign in"},
		{"an outage of the first resource metadata, and others at the root", Upstream{}, func(s *shape) {
			s.documents["https://mcp.example/.well-known/oauth-protected-resource"] = resourceOf(mcpURL, asIssuer)
			s.documents[resourceAt] = 503
		}, "does not publish where users sign in"},
		{"resource metadata at the root only", Upstream{}, func(s *shape) {
			s.documents["https://mcp.example/.well-known/oauth-protected-resource"] = resourceOf(mcpURL, asIssuer)
			delete(s.documents, resourceAt)
		}, ""},
		{"a rate limit of the resource metadata", Upstream{}, own(429, metadataAtHome()), "does not publish where users sign in"},
		{"resource metadata that are refused", Upstream{}, own(403, metadataAtHome()), "does not publish where users sign in"},
		{"no metadata at all", Upstream{}, own(no, no), ""},
		{"an outage of the own metadata", Upstream{}, own(no, 503), "cannot be reached"},
		{"no resource metadata, and another issuer without iss", Upstream{}, func(s *shape) { own(no, metadataOf(asIssuer))(s) }, "mode: "},
		{"no resource metadata, and another issuer with iss", Upstream{}, func(s *shape) {
			own(no, metadataOf(asIssuer))(s)
			s.answer = url.Values{"iss": {asIssuer}}
		}, ""},
		{"no resource metadata, and another issuer that does not confirm it", Upstream{}, func(s *shape) {
			own(no, metadataOf(asIssuer))(s)
			s.documents[serverAt], s.answer = no, url.Values{"iss": {asIssuer}}
		}, "cannot be reached"},
		{"no resource metadata, and other endpoints without iss", Upstream{}, own(no, metadataOf("https://mcp.example")), "mode: "},
		{"no resource metadata, and other endpoints with iss", Upstream{}, func(s *shape) {
			own(no, metadataOf("https://mcp.example"))(s)
			s.answer = url.Values{"iss": {"https://mcp.example"}}
		}, ""},
		{"no resource metadata, and other endpoints that are permitted", Upstream{Permitted: Pair{asIssuer + "/authorize", asIssuer + "/token"}},
			own(no, metadataOf("https://mcp.example")), ""},
		{"no resource metadata, and the issuer is configured", configured, own(no, no), ""},

		{"asks for nothing (Hugging Face)", Upstream{}, func(s *shape) { s.status = 200 }, ""},
		{"asks for nothing, and is its own authorization server", Upstream{}, func(s *shape) { own(no, metadataAtHome())(s); s.status = 200 }, ""},
		{"needs nothing", Upstream{}, func(s *shape) { own(no, no)(s); s.status = 200 }, "needs no sign-in"},
		{"accepts only programs that it knows", Upstream{}, func(s *shape) { own(no, no)(s); s.status = 403 }, "answered 403 instead"},
		{"403 with resource metadata", Upstream{}, func(s *shape) { s.status = 403 }, ""},
		{"an outage", Upstream{}, func(s *shape) { s.status = 503 }, "cannot be reached"},
		{"another place without quotation marks (Stripe)", Upstream{}, func(s *shape) {
			s.challenge = `Bearer resource_metadata=https://mcp.example/place`
			s.documents["https://mcp.example/place"] = s.documents[resourceAt]
			delete(s.documents, resourceAt)
		}, ""},
		{"a relative place", Upstream{}, func(s *shape) {
			s.challenge = `Bearer resource_metadata="/place"`
			s.documents["https://mcp.example/place"] = s.documents[resourceAt]
			delete(s.documents, resourceAt)
		}, ""},
		{"a place that is missing", Upstream{}, func(s *shape) { s.challenge = `Bearer resource_metadata="/place"` }, ""},
		{"a place at another host", Upstream{}, func(s *shape) { s.challenge = `Bearer resource_metadata="https://other.example/x"` }, "other.example"},
		{"a place of another scheme", Upstream{}, func(s *shape) { s.challenge = `Negotiate resource_metadata="https://other.example/x"` }, ""},
		{"a place that redirects within the origin", Upstream{}, func(s *shape) {
			s.client.direct.Transport.(internet)[mcpHost] = func(w http.ResponseWriter, r *http.Request) {
				if r.Method == "GET" && !strings.HasSuffix(r.URL.Path, "/") {
					http.Redirect(w, r, r.URL.Path+"/", http.StatusMovedPermanently)
					return
				}
				r.URL.Path = strings.TrimSuffix(r.URL.Path, "/")
				s.serve(w, r)
			}
		}, ""},

		{"the resource is the origin (Perplexity)", Upstream{}, resource("https://mcp.example"), ""},
		{"the resource is the origin with a slash (Close)", Upstream{}, resource("https://mcp.example/"), ""},
		{"the resource lacks the slash of the address (Tavily)", Upstream{URL: mcpURL + "/"}, resource(mcpURL), ""},
		{"the resource is another host", Upstream{}, resource("https://other.example/mcp"), "metadata of another server"},
		{"the resource is another host, and the issuer is configured", configured, resource("https://other.example/mcp"), "metadata of another server"},
		{"the resource has a longer path", Upstream{}, resource(mcpURL + "/more"), "metadata of another server"},
		{"no resource (Macro)", Upstream{}, resource(""), "metadata of another server"},
		{"no resource, and the issuer is configured", Upstream{Issuer: asIssuer}, resource(""), ""},

		{"only OpenID metadata, appended", Upstream{}, func(s *shape) {
			s.documents[resourceAt] = resourceOf(mcpURL, asIssuer+"/x")
			s.documents[serverAt] = no
			s.documents[asIssuer+"/x/.well-known/openid-configuration"] = metadataOf(asIssuer + "/x")
		}, ""},
		{"a page at the first place", Upstream{}, func(s *shape) {
			s.documents[serverAt], s.documents[openIDAt] = "<html>", metadataOf(asIssuer)
		}, ""},
		{"an outage at the first place", Upstream{}, func(s *shape) {
			s.documents[serverAt], s.documents[openIDAt] = 502, metadataOf(asIssuer)
		}, "cannot be reached"},
		{"a registration in the second document", Upstream{}, func(s *shape) {
			s.documents[serverAt], s.documents[openIDAt] = metadataOf(asIssuer, "registration_endpoint", nil), metadataOf(asIssuer)
		}, ""},
		{"a registration in the second document, of another issuer", Upstream{}, func(s *shape) {
			s.documents[serverAt], s.documents[openIDAt] = metadataOf(asIssuer, "registration_endpoint", nil), metadataOf(asIssuer+"/x")
		}, "accepts only registered clients"},

		{"no S256 (Cognito)", Upstream{}, metadata("code_challenge_methods_supported", nil), "does not support PKCE"},
		{"no S256, and only the issuer is configured", Upstream{Issuer: asIssuer}, metadata("code_challenge_methods_supported", nil), "does not support PKCE"},
		{"no S256, and the client is configured", configured, metadata("code_challenge_methods_supported", nil), ""},
		{"a list without S256, and the client is configured", configured, metadata("code_challenge_methods_supported", []string{"plain"}), "does not support PKCE"},
		{"an empty list, and the client is configured", configured, metadata("code_challenge_methods_supported", []string{}), "does not support PKCE"},

		{"two origins, and the issuer is at the page (Google)", Upstream{}, metadata(two...), ""},
		{"two origins, and the issuer is at the page, with a path", Upstream{}, func(s *shape) {
			s.documents[resourceAt] = resourceOf(mcpURL, asIssuer+"/x")
			s.documents[serverAt], s.documents[serverAt+"/x"] = no, metadataOf(asIssuer+"/x", two...)
		}, ""},
		{"two origins, and only metadata below the path of the issuer", Upstream{}, func(s *shape) {
			s.documents[resourceAt] = resourceOf(mcpURL, asIssuer+"/x")
			s.documents[serverAt] = no
			s.documents[asIssuer+"/x/.well-known/openid-configuration"] = metadataOf(asIssuer+"/x", two...)
		}, "mode: "},
		{"two origins, and the issuer's path leads to a file of a tenant", Upstream{}, tenantFile("/../../u/evil", two...), "dot segments"},
		{"two origins, and an escaped path leads to a file of a tenant", Upstream{}, tenantFile("/%2e%2e/%2e%2e/u/evil", two...), "dot segments"},
		{"two origins, and a path that some servers resolve", Upstream{}, tenantFile("/..;/..;/u/evil", two...), "mode: "},
		{"two origins, and a path that is unescaped twice", Upstream{}, tenantFile("/%252e%252e/u/evil", two...), "mode: "},
		{"two origins, and a path with an empty segment", Upstream{}, tenantFile("//u/evil", two...), "mode: "},
		{"two origins, and the issuer is at the token endpoint (Box)", Upstream{}, atTokens(nil), "mode: "},
		{"two origins, and the page vouches at its root", Upstream{}, atTokens(metadataOf(asIssuer, two...)), ""},
		{"two origins, and the page names another token endpoint", Upstream{}, atTokens(metadataOf(asIssuer)), "mode: "},
		{"two origins, and the page has metadata of another origin", Upstream{}, atTokens(metadataOf("https://other.example", two...)), "mode: "},
		{"two origins, and iss is listed (Figma)", Upstream{}, func(s *shape) {
			atTokens(nil, "authorization_response_iss_parameter_supported", true)(s)
			s.answer = url.Values{"iss": {"https://api.example"}}
		}, ""},
		{"two origins, and iss is not listed, but sent", Upstream{}, func(s *shape) {
			atTokens(nil)(s)
			s.answer = url.Values{"iss": {"https://api.example"}}
		}, ""},
		{"two origins, and iss is another one's", Upstream{}, func(s *shape) {
			atTokens(nil)(s)
			s.answer = url.Values{"iss": {asIssuer}}
		}, "does not come from"},
		{"two origins with a query (Instacart)", Upstream{}, func(s *shape) {
			metadata(append([]any{"authorization_endpoint", asIssuer + "/authorize?a=b"}, two...)...)(s)
			s.answer = url.Values{"iss": {asIssuer}}
		}, "mode: "},
		{"two origins with a query, permitted", Upstream{Permitted: Pair{asIssuer + "/authorize?a=b", "https://api.example/token"}},
			metadata(append([]any{"authorization_endpoint", asIssuer + "/authorize?a=b"}, two...)...), ""},
		{"one origin with a query (Salesforce)", Upstream{}, metadata("authorization_endpoint", asIssuer+"/authorize?prompt=login"), ""},

		{"reviewed clients only (Figma)", Upstream{}, func(s *shape) { s.registered = 403 }, "registers only clients that it has reviewed"},
		{"client documents only (MongoDB)", Upstream{Shared: true}, metadata("registration_endpoint", nil, "client_id_metadata_document_supported", true),
			"auth.client_id: https://"},
		{"scope as a list, and no refresh token", Upstream{}, func(s *shape) {
			s.exchanged = map[string]any{"access_token": "canary-access", "token_type": "bearer", "scope": []string{"a", "b"}}
		}, ""},
		{"an error beside a token", Upstream{}, func(s *shape) {
			s.exchanged = map[string]any{"access_token": "canary-access", "error": "server_error"}
		}, "server_error"},
		{"another type of token", Upstream{}, func(s *shape) {
			s.exchanged = map[string]any{"access_token": "canary-access", "token_type": "mac"}
		}, "no usable token"},
		{"a resource that it does not know", Upstream{}, func(s *shape) {
			s.answer = url.Values{"code": nil, "error": {"invalid_target"}}
		}, "upstreams.linear.auth.resource"},
	} {
		for _, shared := range []bool{true, false} {
			if test.u.Shared && !shared {
				continue
			}
			u := test.u
			u.Shared = shared
			who := map[bool]string{true: "operator", false: "user"}[shared]
			t.Run(test.name+"/"+who, func(t *testing.T) {
				s := mustShape(t, u)
				test.is(s)
				err := s.signIn()
				want := test.want
				if err != nil && !shared { // the two have other words, and the user other hosts
					want = map[string]string{"mode: ": "mode: ", "no usable token": "did not return a token"}[want]
				}
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Fatalf("the sign-in: %v, want %q\n%s", err, want, strings.Join(s.asked, "\n"))
				}
				if test.want != "" && !strings.Contains("server_error no usable token", test.want) && len(s.posted) > 0 {
					t.Errorf("a code was sent: %v", s.posted)
				}
				principal := map[bool]string{true: Operator, false: "user:ann"}[shared]
				token, _ := s.client.Token(t.Context(), "linear", principal)
				if (token == "canary-access") != (err == nil) {
					t.Errorf("the token is %q", token)
				}
				if err != nil || token == "" {
					return
				}
				k, err := s.client.Store.Connection(t.Context(), "linear", principal)
				if err != nil {
					t.Fatal(err)
				}
				if s.authorized.Get("resource") != s.posted[k.TokenEndpoint].Get("resource") || s.authorized.Get("resource") == "" {
					t.Errorf("the resource was %q, and then %q", s.authorized.Get("resource"), s.posted[k.TokenEndpoint].Get("resource"))
				}
				if k.Refresh == "" {
					return
				}
				// The tokens are renewed as they were got.
				s.clock.Add(7200)
				delete(s.posted, k.TokenEndpoint)
				if _, err := s.client.Token(t.Context(), "linear", principal); err != nil ||
					s.posted[k.TokenEndpoint].Get("resource") != s.authorized.Get("resource") {
					t.Errorf("a renewal: %v, %v", err, s.posted)
				}
			})
		}
	}
}

// metadata changes what the authorization server publishes.
func metadata(more ...any) func(*shape) {
	return func(s *shape) { s.documents[serverAt] = metadataOf(asIssuer, more...) }
}

// resource changes what the resource metadata name; "" is nothing.
func resource(text string) func(*shape) {
	return func(s *shape) {
		m := resourceOf(text, asIssuer)
		if text == "" {
			delete(m, "resource")
		}
		s.documents[resourceAt] = m
	}
}

// metadataAtHome is what an upstream publishes that is its own authorization server.
func metadataAtHome() map[string]any {
	const home = "https://mcp.example"
	return metadataOf(home, "authorization_endpoint", home+"/authorize", "token_endpoint", home+"/token",
		"registration_endpoint", home+"/register")
}

// own is an upstream with these answers at the places of its resource metadata, and of its own metadata.
func own(resource, server any) func(*shape) {
	return func(s *shape) {
		s.documents[resourceAt] = resource
		s.documents["https://mcp.example/.well-known/oauth-protected-resource"] = resource
		s.documents[ownAt] = server
	}
}

// atTokens has the issuer at the origin of the token endpoint. page are the metadata at the origin of
// the sign-in page; nil for none.
func atTokens(page any, more ...any) func(*shape) {
	return func(s *shape) {
		s.documents[resourceAt] = resourceOf(mcpURL, "https://api.example")
		s.documents["https://api.example/.well-known/oauth-authorization-server"] = metadataOf("https://api.example",
			append([]any{"token_endpoint", "https://api.example/token", "registration_endpoint", "https://api.example/register"},
				more...)...)
		if page == nil {
			page = 404
		}
		s.documents[serverAt] = page
	}
}

// tenantFile is a host on which a tenant has written a file, and which finds it by the path of an issuer
// behind the well-known place.
func tenantFile(path string, more ...any) func(*shape) {
	return func(s *shape) {
		s.documents[resourceAt] = resourceOf(mcpURL, asIssuer+path)
		s.documents[serverAt], s.documents[serverAt+path] = 404, metadataOf(asIssuer+path, more...)
	}
}

// entra is the authorization server of Microsoft, whose addresses for several tenants have a placeholder
// in the metadata, and which lists no S256.
func entra(named string) func(*shape) {
	return func(s *shape) {
		const host = "https://login.microsoftonline.com/"
		s.documents[resourceAt] = resourceOf(mcpURL, host+named+"/v2.0")
		for tenant, issuer := range map[string]string{named: host + "{tenantid}/v2.0", "t1": host + "t1/v2.0"} {
			s.documents[host+tenant+"/v2.0/.well-known/openid-configuration"] = metadataOf(issuer, "authorization_endpoint",
				host+tenant+"/oauth2/v2.0/authorize", "token_endpoint", host+tenant+"/oauth2/v2.0/token",
				"registration_endpoint", nil, "code_challenge_methods_supported", nil)
		}
	}
}
