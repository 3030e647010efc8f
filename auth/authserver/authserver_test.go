package authserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/store"
)

var here = netip.MustParseAddr("127.0.0.1")

func (s *stand) verify(token any) (*auth.Principal, error) {
	return s.Verify(context.Background(), fmt.Sprint(token), here)
}

func (s *stand) mustVerify(t *testing.T, token any) *auth.Principal {
	t.Helper()
	p, err := s.verify(token)
	if err != nil {
		t.Fatalf("the token is not good: %v", err)
	}
	return p
}

func (s *stand) mustNotVerify(t *testing.T, token any, why string) {
	t.Helper()
	if p, err := s.verify(token); p != nil || !errors.Is(err, auth.ErrInvalidToken) ||
		!strings.Contains(err.Error(), why) {
		t.Errorf("the token is of %v, %v; want an error with %q", p, err, why)
	}
}

func TestSignInAndRefresh(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	began := s.clock.now()
	m := a.mustSignIn(t, b)
	if m["token_type"] != "Bearer" || m["expires_in"] != 3600.0 || m["scope"] != "mcp offline_access" {
		t.Errorf("the tokens are %v", m)
	}
	p := s.mustVerify(t, m["access_token"])
	if p.Kind != auth.KindUser || p.User != "ann" || p.Issuer != s.idp.URL || p.Email != "ann@acme.example" ||
		!slices.Equal(p.Groups, []string{"engineering"}) ||
		p.OAuthClient != a.id || p.Grant == "" || !slices.Equal(p.Scopes, []string{"mcp", "offline_access"}) ||
		!slices.Equal(p.Resources, []string{s.url + "/mcp"}) ||
		p.Address != here || p.Expires.Before(s.clock.now().Add(59*time.Minute)) {
		t.Errorf("the principal is %+v", *p)
	}
	status, next := a.refresh(t, m["refresh_token"])
	if status != http.StatusOK || next["access_token"] == m["access_token"] ||
		next["refresh_token"] == m["refresh_token"] {
		t.Fatal(status, next)
	}
	if q := s.mustVerify(t, next["access_token"]); q.ID != p.ID || q.Grant != p.Grant {
		t.Errorf("refreshed it is of %+v", *q)
	}
	s.mustVerify(t, m["access_token"])
	if status, third := a.refresh(t, next["refresh_token"]); status != http.StatusOK {
		t.Errorf("the new refresh token is answered %d %v", status, third)
	} else {
		s.mustVerify(t, third["access_token"])
	}
	s.mustVerify(t, m["access_token"])
	s.mustVerify(t, next["access_token"])
	s.mustNotVerify(t, next["refresh_token"], "this server does not know it")
	s.mustNotVerify(t, fmt.Sprint(m["access_token"])+"x", "this server does not know it")
	s.clock.forward(time.Hour - time.Second - s.clock.now().Sub(began))
	s.mustVerify(t, next["access_token"])
	s.clock.forward(3 * time.Second)
	s.mustNotVerify(t, next["access_token"], "it is expired")
}

func TestRefreshAgainGivesTheSameTokens(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	first := a.mustSignIn(t, b)
	_, second := a.refresh(t, first["refresh_token"])
	status, again := a.refresh(t, first["refresh_token"])
	if status != http.StatusOK || fmt.Sprint(again) != fmt.Sprint(second) {
		t.Fatalf("again it is %d %v, not %v", status, again, second)
	}
	if status, m := (app{s, s.mustApp(t).id + "x", a.verifier, a.redirect}).refresh(t,
		second["refresh_token"]); status != http.StatusUnauthorized {
		t.Errorf("of an unknown client: %d %v", status, m)
	}
	if status, m := a.refresh(t, second["refresh_token"], "scope", "mcp admin"); status != 400 ||
		m["error"] != "invalid_scope" {
		t.Errorf("wider: %d %v", status, m)
	}
	if status, m := a.refresh(t, second["refresh_token"], "resource", s.url+"/web/mcp"); status != 400 ||
		m["error"] != "invalid_target" {
		t.Errorf("of another endpoint: %d %v", status, m)
	}
	status, third := a.refresh(t, second["refresh_token"], "scope", "mcp")
	if status != http.StatusOK || third["scope"] != "mcp" {
		t.Fatal(status, third)
	}
	if p := s.mustVerify(t, third["access_token"]); !slices.Equal(p.Scopes, []string{"mcp"}) {
		t.Errorf("narrower it has %v", p.Scopes)
	}
	if status, m := a.refresh(t, first["refresh_token"]); status != 400 || m["error"] != "invalid_grant" {
		t.Errorf("after the successor was used: %d %v", status, m)
	}
	for _, m := range []map[string]any{first, second, third} {
		s.mustNotVerify(t, m["access_token"], "it was revoked")
	}
	if status, m := a.refresh(t, third["refresh_token"]); status != 400 || m["error"] != "invalid_grant" {
		t.Errorf("of the family: %d %v", status, m)
	}
}

func TestCodesAreBoundAndExpire(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	code := a.mustCode(t, b)
	_, body := s.post(t, "/oauth/register", "application/json",
		`{"client_name":"other","redirect_uris":["http://localhost/callback"]}`)
	for name, changes := range map[string][]string{
		"another client":   {"client_id", member(t, body, "client_id")},
		"another resource": {"resource", s.url + "/web/mcp"},
	} {
		if status, m := a.redeem(t, code, changes...); status < 400 {
			t.Errorf("%s: %d %v", name, status, m)
		}
	}
	status, m := a.redeem(t, code, "resource", "")
	if status != http.StatusOK {
		t.Fatal(status, m)
	}
	if status, again := a.redeem(t, code); status != 400 || again["error"] != "invalid_grant" {
		t.Errorf("a second time: %d %v", status, again)
	}
	s.mustNotVerify(t, m["access_token"], "it was revoked")

	code = a.mustCode(t, b)
	if status, m := a.redeem(t, code, "code_verifier", strings.Repeat("w", 43)); status != 400 ||
		m["error"] != "invalid_grant" {
		t.Errorf("with a wrong verifier: %d %v", status, m)
	}
	if status, m := a.redeem(t, code); status != 400 || m["error"] != "invalid_grant" {
		t.Errorf("after a wrong verifier: %d %v", status, m)
	}
	if status, m := a.redeem(t, a.mustCode(t, b), "redirect_uri", "http://localhost:1/callback"); status != 400 ||
		m["error"] != "invalid_grant" {
		t.Errorf("with another redirect URI: %d %v", status, m)
	}
	code = a.mustCode(t, b)
	s.clock.forward(121 * time.Second)
	if status, m := a.redeem(t, code); status != 400 || m["error"] != "invalid_grant" {
		t.Errorf("after 121 s: %d %v", status, m)
	}
}

// TestEndedSessionGrantsNothing ends a session between its check and the code.
func TestEndedSessionGrantsNothing(t *testing.T) {
	s := mustStand(t, nil)
	a, ctx := s.mustApp(t), t.Context()
	a.mustSignIn(t, newBrowser(t))
	all, err := s.store.Grants(ctx, store.GrantFilter{})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if _, err := s.store.SignOut(ctx, all[0].User, "test"); err != nil {
		t.Fatal(err)
	}
	g := all[0]
	g.ID = ""
	to, err := s.issueCode(ctx, store.AuthRequest{RedirectURI: a.redirect, State: []byte("the state"), CodeChallenge: "x"}, g)
	if !errors.Is(err, store.ErrRevoked) {
		t.Errorf("the code goes to %q, %v; want %v", to, err, store.ErrRevoked)
	}
	if left, err := s.store.Grants(ctx, store.GrantFilter{Standing: true}); err != nil || len(left) != 0 {
		t.Errorf("left are %+v, %v", left, err)
	}
}

// TestSignInsEndTheGrantsUnusedForLongest: a user who signs in again and again has a bounded number of
// grants, and the last ones work.
func TestSignInsEndTheGrantsUnusedForLongest(t *testing.T) {
	s := mustStand(t, nil)
	a, b, ctx := s.mustApp(t), newBrowser(t), t.Context()
	first := a.mustSignIn(t, b)
	all, err := s.store.Grants(ctx, store.GrantFilter{})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	s.mustVerify(t, first["access_token"])
	s.clock.forward(2 * time.Minute)
	for range store.MaxGrants - 1 {
		g := all[0]
		g.ID = ""
		if _, err := s.issueCode(ctx, store.AuthRequest{RedirectURI: a.redirect, CodeChallenge: "x"}, g); err != nil {
			t.Fatal(err)
		}
	}
	last := a.mustSignIn(t, b)
	s.mustNotVerify(t, first["access_token"], "it was revoked")
	s.mustVerify(t, last["access_token"])
	if left, err := s.store.Grants(ctx, store.GrantFilter{Standing: true}); err != nil || len(left) != store.MaxGrants {
		t.Errorf("%d grants stand, %v", len(left), err)
	}
}

func TestScopesThatAClientAsksFor(t *testing.T) {
	s := mustStand(t, func(o *Options) { o.Scopes = []string{"mcp:write"} })
	a, b := s.mustApp(t), newBrowser(t)
	p := b.once(http.MethodGet, a.asks("scope", "mcp:write mcp:admin openid"), nil)
	if p.status != 200 || !strings.Contains(p.body, "<b>mcp:write</b>") || strings.Contains(p.body, "mcp:admin") {
		t.Fatalf("%d %s", p.status, p.body)
	}
	p = b.follow(b.press(p, "idp:sso"))
	status, m := a.redeem(t, p.url.Query().Get("code"))
	if status != 200 || m["scope"] != "mcp mcp:write" {
		t.Fatal(status, m)
	}
	if p := s.mustVerify(t, m["access_token"]); !slices.Equal(p.Scopes, []string{"mcp", "mcp:write"}) {
		t.Errorf("the principal has %v", p.Scopes)
	}
	if m := a.mustSignIn(t, b); m["scope"] != "mcp offline_access" {
		t.Errorf("without asking it has %v", m["scope"])
	}
}

// TestHalfATokenIsNone: the half of a token that the store has is not valid, and does no harm.
func TestHalfATokenIsNone(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	forge := func(token any) string {
		prefix, signature, _ := strings.Cut(fmt.Sprint(token), ".")
		return prefix[:len("jct_at_")] + strings.Repeat("A", len(prefix)-len("jct_at_")) + "." + signature
	}
	a.refresh(t, m["refresh_token"])
	s.clock.forward(2 * time.Minute) // now the real one would end everything
	if status, n := a.refresh(t, forge(m["refresh_token"])); status != 400 || n["error"] != "invalid_grant" {
		t.Errorf("%d %v", status, n)
	}
	s.mustNotVerify(t, forge(m["access_token"]), "this server does not know it")
	s.mustVerify(t, m["access_token"])
	code := a.mustCode(t, b)
	if status, n := a.redeem(t, forge(code)); status != 400 || n["error"] != "invalid_grant" {
		t.Errorf("%d %v", status, n)
	}
	if status, n := a.redeem(t, code); status != 200 {
		t.Errorf("%d %v", status, n)
	}
}
