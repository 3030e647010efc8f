package auth_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"

	"junction/auth"
)

// differing are other processes that differ in one key.
type differing string

func (d differing) Differs(key string) bool { return string(d) == key }
func (d differing) Lacks(key string) bool   { return string(d) == key }

// TestARolloutRefusesNoToken: a token that this process refuses, and another one may accept by its file, is
// answered 503 without a challenge, so that the client keeps it. Tokens that no file decides about are refused.
func TestARolloutRefusesNoToken(t *testing.T) {
	for _, tt := range []struct {
		token, differs string
		err            error
		status         int
	}{
		{"jct_key_x", "auth.api_keys", auth.ErrInvalidToken, 503},
		{"jct_key_x", "auth.jwt", auth.ErrInvalidToken, 401},
		{"jct_key_x", "", auth.ErrInvalidToken, 401},
		{"other", "auth.jwt", auth.ErrInvalidToken, 503},
		{"other", "auth.introspection", auth.ErrInvalidToken, 503},
		{"other", "auth.api_keys", auth.ErrInvalidToken, 401},
		{"other", "auth.jwt", &auth.ScopeError{Scopes: []string{"mcp"}}, 503},
		{"jct_at_x", "auth.jwt", auth.ErrInvalidToken, 401},
		{"jct_at_x", "auth.api_keys", auth.ErrInvalidToken, 401},
	} {
		g := &auth.Guard{Verifier: verify(func(string, netip.Addr) (*auth.Principal, error) {
			return nil, fmt.Errorf("refused: %w", tt.err)
		})}
		g.Among(differing(tt.differs))
		p, resp := ask(t, g, "POST", "/mcp", authorization("Bearer "+tt.token))
		retries := resp.Header.Get("Retry-After") != ""
		if p != nil || resp.StatusCode != tt.status || retries != (tt.status == 503) ||
			retries == (resp.Header.Get("WWW-Authenticate") != "") {
			t.Errorf("%s, refused with %v, while %q differs: %d, %v; want %d", tt.token, tt.err, tt.differs, resp.StatusCode,
				resp.Header, tt.status)
		}
	}
}

// TestOnlyIssuersOfAllAreOffered: clients are told to sign in at the issuers that all processes accept. If one
// process lacks the only issuer, it is named: there is no other place.
func TestOnlyIssuersOfAllAreOffered(t *testing.T) {
	const one, two, asked = "https://one.example", "https://two.example", "https://three.example"
	rules := func(issuer string) auth.TokenRules {
		return auth.TokenRules{Issuer: issuer, Audiences: []string{"https://mcp.example.com/mcp"}}
	}
	both := &auth.Config{JWT: []auth.Issuer{{TokenRules: rules(one)}, {TokenRules: rules(two)}},
		Introspection: &auth.Introspection{TokenRules: rules(asked)}}
	for _, tt := range []struct {
		of    *auth.Config
		lacks string
		want  []string
	}{
		{both, "", []string{one, two, asked}},
		{both, "auth.jwt." + two, []string{one, asked}},
		{both, "auth.introspection", []string{one, two}},
		{&auth.Config{JWT: both.JWT[:1]}, "auth.jwt." + one, []string{one}},
	} {
		g := tt.of.Guard(noProviders(t), "https://mcp.example.com", nil)
		g.Among(differing(tt.lacks))
		w := httptest.NewRecorder()
		g.Resources.ServeHTTP(w, httptest.NewRequest("GET", "/.well-known/oauth-protected-resource/mcp", nil))
		var m struct {
			Servers []string `json:"authorization_servers"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil || !slices.Equal(m.Servers, tt.want) {
			t.Errorf("without %q, %v, %v are offered; want %v", tt.lacks, err, m.Servers, tt.want)
		}
	}
}

// noProviders are providers whose requests fail.
func noProviders(t *testing.T) *auth.Providers {
	p := auth.NewProviders(&http.Client{Transport: failing{}})
	t.Cleanup(p.Close)
	return p
}

type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no network") }
