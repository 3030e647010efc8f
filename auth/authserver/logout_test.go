package authserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"junction/auth"
	"junction/auth/authserver/provider"
	"junction/auth/authtest"
	"junction/auth/store"
	"junction/upstream/prose"
)

// logoutEvent is the event of each logout token.
const logoutEvent = "http://schemas.openid.net/event/backchannel-logout"

// logout sends a logout token as the provider does.
func (s *stand) logout(t *testing.T, token string) (int, string) {
	t.Helper()
	return s.post(t, "/oauth/backchannel-logout/sso", "application/x-www-form-urlencoded",
		url.Values{"logout_token": {token}}.Encode())
}

// signInAs signs in a subject with a session at the provider.
func (s *stand) signInAs(t *testing.T, sub, sid string) (a app, b *browser, tokens map[string]any) {
	t.Helper()
	s.idp.set(func() { s.idp.claims = map[string]any{"sub": sub, "sid": sid} })
	a, b = s.mustApp(t), newBrowser(t)
	return a, b, a.mustSignIn(t, b)
}

// TestProviderLogsAUserOut: a logout token ends one session by its sid, or all sessions of a subject: the
// browser, the grants and their tokens. The audit and the log say who and why.
func TestProviderLogsAUserOut(t *testing.T) {
	log := new(authtest.Text)
	told := 0
	s := mustStand(t, func(o *Options) {
		o.Log = authtest.Log(t, log)
		o.Ended = func() { told++ }
	})
	laptop, browser, first := s.signInAs(t, "ann", "s1")
	_, _, second := s.signInAs(t, "ann", "s2")
	_, _, bens := s.signInAs(t, "ben", "s3")
	if status, body := s.logout(t, s.idp.LogoutToken(t, "junction", map[string]any{"sub": nil, "sid": "s1"})); status != 200 {
		t.Fatal(status, body)
	}
	s.mustNotVerify(t, first["access_token"], "it was revoked")
	if status, m := laptop.refresh(t, first["refresh_token"]); status != 400 || m["error"] != "invalid_grant" {
		t.Errorf("a refresh after the logout: %d %v", status, m)
	}
	if p := browser.once(http.MethodGet, laptop.asks(), nil); strings.Contains(p.body, `value="allow"`) {
		t.Error("the browser is still signed in")
	}
	s.mustVerify(t, second["access_token"])
	if status, body := s.logout(t, s.idp.LogoutToken(t, "junction", nil)); status != 200 {
		t.Fatal(status, body)
	}
	s.mustNotVerify(t, second["access_token"], "it was revoked")
	s.mustVerify(t, bens["access_token"])
	if told != 2 {
		t.Errorf("open streams were looked at %d times, want 2", told)
	}
	events, err := s.store.Events(t.Context(), 1)
	if err != nil || events[0].Event != "logged_out_at_provider" || events[0].Principal == "" ||
		string(events[0].Detail) != `{"detail":"sso, sub ann, sid none"}` || events[0].Address == "" && events[0].RequestID == "" {
		t.Errorf("the audit has %+v, %v", events, err)
	}
	if text := log.String(); strings.Count(text, "event=logged_out_at_provider") != 2 ||
		!strings.Contains(text, `detail="sso, sub none, sid s1"`) {
		t.Errorf("the log has\n%s", text)
	}
	// A user who never came is logged out already.
	if status, body := s.logout(t, s.idp.LogoutToken(t, "junction", map[string]any{"sub": "zoe"})); status != 200 {
		t.Error(status, body)
	}
}

// TestLogoutTokensAreChecked: no token but a fresh one of the provider for this server ends a session.
func TestLogoutTokensAreChecked(t *testing.T) {
	s := mustStand(t, func(o *Options) {
		o.Config.IdentityProviders = append(o.Config.IdentityProviders,
			provider.Config{ID: "other", Issuer: o.Config.IdentityProviders[0].Issuer, ClientID: "other"})
	})
	_, _, m := s.signInAs(t, "ann", "s1")
	now := time.Now()
	encode := base64.RawURLEncoding.EncodeToString
	unsigned := func(alg string) string {
		text, err := json.Marshal(s.idp.Claims("junction", map[string]any{"jti": "x",
			"events": map[string]any{logoutEvent: map[string]any{}}}))
		if err != nil {
			t.Fatal(err)
		}
		return encode([]byte(`{"alg":"`+alg+`"}`)) + "." + encode(text) + "."
	}
	used := s.idp.LogoutToken(t, "junction", map[string]any{"sub": "zoe"})
	if status, body := s.logout(t, used); status != 200 {
		t.Fatal(status, body)
	}
	claims := func(name string, value any) string {
		return s.idp.LogoutToken(t, "junction", map[string]any{name: value})
	}
	for name, row := range map[string]struct{ token, want string }{
		"another audience":    {s.idp.LogoutToken(t, "other", nil), "expected audience"},
		"another issuer":      {claims("iss", "https://evil.example"), "issued by a different provider"},
		"no algorithm":        {unsigned("none"), "unexpected signature algorithm"},
		"a shared secret":     {unsigned("HS256"), "unexpected signature algorithm"},
		"another key":         {authtest.NewKey(t, "rsa", jose.RS256).Token(t, s.idp.Claims("junction", nil), map[string]any{"typ": nil}), "verify signature"},
		"another kind":        {s.idp.LogoutToken(t, "junction", nil, map[string]any{"typ": "at+jwt"}), "typ"},
		"an ID token":         {s.idp.Token(t, s.idp.Claims("junction", nil), map[string]any{"typ": "JWT"}), "event"},
		"a nonce":             {claims("nonce", "n"), "nonce"},
		"an empty nonce":      {claims("nonce", ""), "nonce"},
		"no event":            {claims("events", nil), "event"},
		"another event":       {claims("events", map[string]any{"https://example.com/e": map[string]any{}}), "event"},
		"an event of text":    {claims("events", map[string]any{logoutEvent: "yes"}), "event"},
		"events of text":      {claims("events", logoutEvent), "wrong type"},
		"expired":             {claims("exp", now.Add(-time.Minute).Unix()), "expired"},
		"no end":              {claims("exp", nil), "expired"},
		"no iat":              {claims("iat", nil), "iat"},
		"from the future":     {claims("iat", now.Add(time.Hour).Unix()), "iat"},
		"from the past":       {s.idp.LogoutToken(t, "junction", map[string]any{"iat": now.Add(-2 * time.Hour).Unix(), "exp": now.Add(time.Hour).Unix()}), "more than an hour ago"},
		"no jti":              {claims("jti", nil), "jti"},
		"a long jti":          {claims("jti", strings.Repeat("x", 513)), "512 bytes"},
		"of nobody":           {claims("sub", nil), "sub"},
		"used":                {used, "already used"},
		"a number as sub":     {claims("sub", 1), ""},
		"text with a NUL":     {claims("sub", "a\x00"), "cannot be stored"},
		"no token":            {"", "missing"},
		"no JWT":              {"x.y.z", "not valid"},
		"a long token":        {strings.Repeat("x", 8<<10+1), "longer"},
		"a body without end":  {strings.Repeat("x", maxBody+1), "too large"},
		"the sid of somebody": {s.idp.LogoutToken(t, "junction", map[string]any{"sub": "ben", "sid": "s1"}), "200"},
		"an unknown sid":      {s.idp.LogoutToken(t, "junction", map[string]any{"sid": "s9"}), "200"},
	} {
		status, body := s.logout(t, row.token)
		if row.want == "200" {
			if status != 200 {
				t.Errorf("%s: %d %s", name, status, body)
			}
		} else if status != 400 || member(t, body, "error") != "invalid_request" || !strings.Contains(body, row.want) {
			t.Errorf("%s: %d %s, want %q", name, status, body, row.want)
		}
	}
	ours := s.idp.LogoutToken(t, "junction", nil)
	for path, status := range map[string]int{"/oauth/backchannel-logout/other": 400, "/oauth/backchannel-logout/x": 404,
		"/oauth/backchannel-logout/sso?x=y": 400} {
		if got, body := s.post(t, path, "application/x-www-form-urlencoded", "logout_token="+ours); got != status {
			t.Errorf("%s: %d %s, want %d", path, got, body, status)
		}
	}
	if status, body := s.post(t, "/oauth/backchannel-logout/sso", "application/json", `{"logout_token":"`+ours+`"}`); status != 400 {
		t.Errorf("as JSON: %d %s", status, body)
	}
	s.mustVerify(t, m["access_token"])
	if status, body := s.logout(t, ours); status != 200 {
		t.Error(status, body)
	}
	s.mustNotVerify(t, m["access_token"], "it was revoked")
}

// TestLogoutOfAProviderWithoutIt: a provider that does not offer back-channel logout, or that cannot be
// reached, ends no session. The latter may try again.
func TestLogoutOfAProviderWithoutIt(t *testing.T) {
	s := mustStand(t, nil)
	s.idp.SetDown(true)
	s.clock.stop()
	token := s.idp.LogoutToken(t, "junction", nil)
	if status, body := s.logout(t, token); status != 503 {
		t.Errorf("while it is down: %d %s", status, body)
	}
	s.idp.SetDown(false)
	s.clock.forward(5 * time.Second)
	s.idp.Answer(authtest.Keys, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	for range 2 {
		if status, body := s.logout(t, token); status != 503 {
			t.Errorf("without its keys: %d %s", status, body)
		}
	}
	if n := s.idp.Asked(authtest.Keys); n != 1 {
		t.Errorf("it was asked %d times for keys, want once", n)
	}
	s.idp.Answer(authtest.Keys, nil)
	s.clock.forward(5 * time.Second)
	if status, body := s.logout(t, token); status != 200 {
		t.Errorf("with its keys: %d %s", status, body)
	}

	s = mustStand(t, nil)
	s.idp.Answer(authtest.Metadata, func(w http.ResponseWriter, _ *http.Request) {
		reply(w, 200, map[string]any{"issuer": s.idp.URL, "jwks_uri": s.idp.URL + authtest.Keys,
			"authorization_endpoint": s.idp.URL + "/authorize", "token_endpoint": s.idp.URL + "/token"})
	})
	if status, body := s.logout(t, s.idp.LogoutToken(t, "junction", nil)); status != 400 ||
		!strings.Contains(body, "backchannel_logout_supported") {
		t.Errorf("not offered: %d %s", status, body)
	}
}

// TestLogoutFlood: strangers neither make this server ask the provider for keys again and again, nor
// check more signatures than the limit of their address. A key that the provider has added is found.
func TestLogoutFlood(t *testing.T) {
	s := mustStand(t, nil)
	s.clock.stop()
	if status, body := s.logout(t, s.idp.LogoutToken(t, "junction", nil)); status != 200 {
		t.Fatal(status, body)
	}
	before := s.idp.Asked(authtest.Keys)
	foreign := authtest.NewKey(t, "unknown", jose.RS256)
	token := foreign.Token(t, s.idp.Claims("junction", nil), map[string]any{"typ": nil})
	limited := 0
	for range 1100 {
		switch status, body := s.logout(t, token); status {
		case 429:
			limited++
		case 400:
		default:
			t.Fatal(status, body)
		}
	}
	if n := s.idp.Asked(authtest.Keys) - before; n != 0 {
		t.Errorf("the provider was asked %d more times for its keys within a minute", n)
	}
	if limited != 101 {
		t.Errorf("%d requests were limited, want 101", limited)
	}
	s.clock.forward(time.Minute)
	s.idp.SetKeys(append([]*authtest.Key{authtest.NewKey(t, "next", jose.RS256)}, s.idp.Keys()...)...)
	other := map[string]any{"iat": s.clock.now().Unix(), "exp": s.clock.now().Add(time.Minute).Unix()}
	if status, body := s.logout(t, s.idp.LogoutToken(t, "junction", other)); status != 200 {
		t.Errorf("with the next key: %d %s", status, body)
	}
	if n := s.idp.Asked(authtest.Keys) - before; n != 1 {
		t.Errorf("the provider was asked %d times for its next key", n)
	}
	events, err := s.store.Events(t.Context(), 10_000)
	if refused := strings.Count(fmt.Sprint(events), "logout_refused"); err != nil || refused > 60 || refused == 0 {
		t.Errorf("the audit has %d refusals, %v; want a few", refused, err)
	}
}

// TestLogoutReachesTheOtherReplica: a logout at one replica ends the tokens at another, and its token is
// used up there, too.
func TestLogoutReachesTheOtherReplica(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) *store.Store{"sqlite": func(*testing.T) *store.Store { return nil },
		"postgres": onPostgres} {
		t.Run(name, func(t *testing.T) {
			var options Options
			s := mustStand(t, func(o *Options) {
				if other := open(t); other != nil {
					o.Store = other
				}
				options = *o
			})
			s.store = options.Store
			_, _, m := s.signInAs(t, "ann", "s1")
			ended := make(chan struct{}, 1)
			options.Ended = func() { ended <- struct{}{} }
			other := s.second(t, options)
			token := fmt.Sprint(m["access_token"])
			p, err := other.Verify(t.Context(), token, here)
			if err != nil {
				t.Fatal(err)
			}
			logout := s.idp.LogoutToken(t, "junction", nil)
			if status, body := s.logout(t, logout); status != 200 {
				t.Fatal(status, body)
			}
			<-ended // its poller has found out
			if other.Still(p) {
				t.Error("its streams go on")
			}
			if _, err := other.Verify(t.Context(), token, here); !strings.Contains(fmt.Sprint(err), "revoked") {
				t.Errorf("Verify = %v", err)
			}
			s.http.Config.Handler = other
			if status, body := s.logout(t, logout); status != 400 || !strings.Contains(body, "already used") {
				t.Errorf("the same token at the other replica: %d %s", status, body)
			}
		})
	}
}

// TestEndsOfSessionsSayWhoAndWhy: if the provider refuses a refresh, or no longer permits the user, the log
// and the audit have the user, the app, and the provider's words in bounded length. Lost groups are an
// event, too.
func TestEndsOfSessionsSayWhoAndWhy(t *testing.T) {
	long := strings.Repeat("and more words, ", 60)
	for name, row := range map[string]struct {
		change func(*idp)
		event  string
		detail string
	}{
		"refused": {func(p *idp) {
			p.Answer("/token", func(w http.ResponseWriter, _ *http.Request) {
				reply(w, 400, map[string]string{"error": "invalid_grant",
					"error_description": "Account disabled\n" + long})
			})
		}, "idp_session_ended", "sso: invalid_grant: Account disabled?" + long[:143] + "…"},
		"refused, with the token": {func(p *idp) {
			p.Answer("/token", func(w http.ResponseWriter, r *http.Request) {
				reply(w, 400, map[string]string{"error": "invalid_grant",
					"error_description": "no token " + r.PostFormValue("refresh_token") + " here"})
			})
		}, "idp_session_ended", "sso: invalid_grant: no token *** here"},
		"a lost role": {func(p *idp) { p.claims = map[string]any{"role": "none"} }, "idp_session_ended",
			"sso: not_permitted: the user may not sign in here: the claim role has no value of required_claims"},
		"another user": {func(p *idp) { p.claims = map[string]any{"sub": "ben", "role": "staff"} }, "idp_session_ended",
			"sso: another_user: the provider answered for ben"},
		"lost groups": {func(p *idp) { p.claims = map[string]any{"groups": []string{"sales"}, "role": "staff"} },
			"groups_lost", "sso: engineering"},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(authtest.Text)
			s := mustStand(t, func(o *Options) {
				o.Config.IdentityProviders[0].RequiredClaims = map[string]provider.OneOf{"role": {"staff"}}
				o.Log = authtest.Log(t, log)
			})
			s.idp.set(func() { s.idp.claims = map[string]any{"role": "staff"} })
			a, b := s.mustApp(t), newBrowser(t)
			m := a.mustSignIn(t, b)
			user := s.mustVerify(t, m["access_token"])
			s.clock.forward(2 * time.Minute)
			s.idp.set(func() { row.change(s.idp) })
			a.refresh(t, m["refresh_token"])
			events, err := s.store.Events(t.Context(), 1)
			if err != nil || events[0].Event != row.event || events[0].ClientID != a.id ||
				string(events[0].Detail) != string(store.DetailJSON(map[string]string{"detail": row.detail})) {
				t.Errorf("the audit has %s, %v", fmt.Sprint(events), err)
			}
			if u, err := s.store.User(t.Context(), events[0].Principal); err != nil ||
				auth.UserID(u.Issuer, u.Subject) != user.ID {
				t.Errorf("the event is of %+v, %v", u, err)
			}
			if text := log.String(); strings.Count(text, "event="+row.event) != 1 || !strings.Contains(text, " subject=ann") ||
				!strings.Contains(text, " client="+prose.ASCII(a.id, 64)) {
				t.Errorf("the log has\n%s", text)
			}
		})
	}
}
