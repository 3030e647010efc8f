package authserver

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"junction/auth/authserver/provider"
	"junction/auth/authtest"
)

// TestOutageAfterARefreshEndsNoSession: the provider replaces its refresh token and then fails: its userinfo,
// or its keys after they have changed. After the outage the user is still signed in.
func TestOutageAfterARefreshEndsNoSession(t *testing.T) {
	for _, part := range []string{"userinfo", "keys"} {
		t.Run(part, func(t *testing.T) {
			s := mustStand(t, nil)
			userinfo := func(w http.ResponseWriter, _ *http.Request) {
				reply(w, http.StatusOK, map[string]any{"sub": "ann", "groups": []string{"engineering"}})
			}
			fails := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
			if part == "userinfo" {
				s.idp.Answer(authtest.Metadata, s.metadataWith(map[string]any{"userinfo_endpoint": s.idp.URL + "/userinfo"}))
				s.idp.set(func() { s.idp.claims = map[string]any{"groups": nil} })
			}
			s.idp.Answer("/userinfo", userinfo)
			a := s.mustApp(t)
			tokens := a.mustSignIn(t, newBrowser(t))
			s.clock.forward(2 * time.Minute)
			if part == "userinfo" {
				s.idp.Answer("/userinfo", fails)
			} else {
				s.idp.SetKeys(authtest.NewKey(t, "new", "RS256"))
				s.idp.Answer(authtest.Keys, fails)
			}
			status, tokens := a.refresh(t, tokens["refresh_token"])
			if status != http.StatusOK {
				t.Errorf("during the outage a refresh is answered %d", status)
			}
			s.idp.Answer("/userinfo", userinfo)
			s.idp.Answer(authtest.Keys, nil)
			s.clock.forward(2 * time.Minute)
			if status, _ := a.refresh(t, tokens["refresh_token"]); status != http.StatusOK {
				t.Errorf("after the outage a refresh is answered %d", status)
			}
		})
	}
}

// TestRefusedRefreshShowsNoSecret: what the provider says when it refuses, or cannot answer, is logged
// without the refresh token and the client secret of the request, and in few words.
func TestRefusedRefreshShowsNoSecret(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, r *http.Request) {
			reply(w, http.StatusBadRequest, map[string]string{"error": "invalid_request",
				"error_description": "bad token " + r.PostFormValue("refresh_token")})
		},
		"broken": func(w http.ResponseWriter, r *http.Request) {
			_ = r.ParseForm()
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte("no server for " + r.PostForm.Encode() + strings.Repeat("x", 500_000)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(authtest.Text)
			s := mustStand(t, func(o *Options) { o.Log = authtest.Log(t, log) })
			a := s.mustApp(t)
			tokens := a.mustSignIn(t, newBrowser(t))
			var secret string
			s.idp.set(func() { secret = s.idp.refresh })
			s.clock.forward(2 * time.Minute)
			s.idp.Answer("/token", answer)
			log.Take()
			a.refresh(t, tokens["refresh_token"])
			if text := log.String(); !strings.Contains(text, "cannot ask the provider") || strings.Contains(text, secret) ||
				len(text) > 10_000 {
				t.Errorf("the log has %d bytes: %.1000s", len(text), text)
			}
		})
	}
}

// TestRefusedUserinfoNamesTheScopes: a provider that refuses userinfo has answered; the log says what to
// compare.
func TestRefusedUserinfoNamesTheScopes(t *testing.T) {
	log := new(authtest.Text)
	s := mustStand(t, func(o *Options) { o.Log = authtest.Log(t, log) })
	s.idp.Answer(authtest.Metadata, s.metadataWith(map[string]any{"userinfo_endpoint": s.idp.URL + "/userinfo"}))
	s.idp.set(func() { s.idp.claims = map[string]any{"groups": nil} })
	s.idp.Answer("/userinfo", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	b := newBrowser(t)
	p := b.follow(b.press(b.once(http.MethodGet, s.mustApp(t).asks(), nil), "idp:sso"))
	if p.status == http.StatusServiceUnavailable || !strings.Contains(log.String(), "compare scopes of the identity provider sso") {
		t.Errorf("the page has the status %d, and the log has %s", p.status, log)
	}
}

// TestRequiredNumberIsReadAsWritten: a claim that is a number has the digits that the provider wrote.
func TestRequiredNumberIsReadAsWritten(t *testing.T) {
	for _, n := range []int{42, 1234567, 20231115} {
		s := mustStand(t, func(o *Options) {
			o.Config.IdentityProviders[0].RequiredClaims = map[string]provider.OneOf{"org": {strconv.Itoa(n)}}
		})
		s.idp.set(func() { s.idp.claims = map[string]any{"org": n} })
		s.mustApp(t).mustSignIn(t, newBrowser(t))
	}
}
