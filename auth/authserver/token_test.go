package authserver

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/store"
)

func TestConcurrentRedemptionsRevokeTheGrant(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	code := a.mustCode(t, b)
	results := make(chan map[string]any, 20)
	for range 20 {
		go func() {
			status, m := a.redeem(t, code)
			m["status"] = status
			results <- m
		}()
	}
	good := 0
	var tokens map[string]any
	for range 20 {
		if m := <-results; m["status"] == 200 {
			good++
			tokens = m
		}
	}
	if good != 1 {
		t.Fatalf("%d redemptions succeed", good)
	}
	s.mustNotVerify(t, tokens["access_token"], "it was revoked")
	if status, _ := a.refresh(t, tokens["refresh_token"]); status != 400 {
		t.Errorf("its refresh token is good: %d", status)
	}
}

func TestTokenEndpointRejectsMalformedRequests(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	good := url.Values{"grant_type": {"authorization_code"}, "code": {a.mustCode(t, b)}, "client_id": {a.id},
		"code_verifier": {a.verifier}, "redirect_uri": {a.redirect}}.Encode()
	const form = "application/x-www-form-urlencoded"
	for name, row := range map[string]struct{ path, media, body string }{
		"JSON":           {"/oauth/token", "application/json", `{"grant_type":"authorization_code"}`},
		"no type":        {"/oauth/token", "", good},
		"a second code":  {"/oauth/token", form, good + "&code=x"},
		"in the URL":     {"/oauth/token?" + good, form, "x=y"},
		"both":           {"/oauth/token?x=y", form, good},
		"nothing":        {"/oauth/token", form, ""},
		"no grant":       {"/oauth/token", form, "client_id=" + a.id},
		"password":       {"/oauth/token", form, "client_id=" + a.id + "&grant_type=password&username=a&password=b"},
		"too large":      {"/oauth/token", form, good + "&x=" + strings.Repeat("x", 70<<10)},
		"with a secret":  {"/oauth/token", form, good + "&client_secret=x"},
		"unknown client": {"/oauth/token", form, strings.Replace(good, a.id, "somebody", 1)},
	} {
		status, body := s.post(t, row.path, row.media, row.body)
		if status != 400 && status != 401 || member(t, body, "error") == "" ||
			(status == 401) != (member(t, body, "error") == "invalid_client") {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	resp, err := http.Get(s.url + "/oauth/token?" + good)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 400 || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("GET: %d, %v", resp.StatusCode, resp.Header)
	}
	if status, body := s.post(t, "/oauth/token", form, good); status != 200 {
		t.Errorf("after all that the code is not good: %d %s", status, body)
	}
}

func TestConcurrentRefreshesGetOnePair(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	answers := make(chan string, 50)
	for range 50 {
		go func() {
			status, m := a.refresh(t, m["refresh_token"])
			answers <- fmt.Sprint(status, m["access_token"], m["refresh_token"])
		}()
	}
	first := <-answers
	for range 49 {
		if next := <-answers; next != first || !strings.HasPrefix(next, "200") {
			t.Errorf("%s and %s", first, next)
		}
	}
}

func TestLateRefreshRevokesTheGrant(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	_, second := a.refresh(t, m["refresh_token"])
	s.clock.forward(61 * time.Second)
	if status, n := a.refresh(t, m["refresh_token"]); status != 400 || n["error"] != "invalid_grant" {
		t.Errorf("after 61 s: %d %v", status, n)
	}
	s.mustNotVerify(t, second["access_token"], "it was revoked")
	events, err := s.store.Events(t.Context(), 3)
	if err != nil || len(events) == 0 || events[0].Event != "refresh_reuse" {
		t.Errorf("the audit has %v, %v", events, err)
	}
}

// TestRefreshesLeaveNoRows: a device that refreshes for months has as many rows as after an hour. Its
// first refresh token is not stored any more, and still reveals a thief.
func TestRefreshesLeaveNoRows(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	first := a.mustSignIn(t, b)
	m := first
	for i := range 60 {
		s.clock.forward(61 * time.Second)
		status, next := a.refresh(t, m["refresh_token"])
		if status != 200 {
			t.Fatalf("refresh %d: %d %v", i, status, next)
		}
		m = next
		if n := s.rows(t, "oauth_tokens"); n > 12 {
			t.Fatalf("after %d refreshes of one device, %d tokens are stored", i+1, n)
		}
	}
	s.mustVerify(t, m["access_token"])
	_, body := s.post(t, "/oauth/register", "application/json",
		`{"client_name":"other","redirect_uris":["http://localhost/callback"]}`)
	stranger := app{s, member(t, body, "client_id"), a.verifier, a.redirect}
	if status, n := stranger.refresh(t, first["refresh_token"]); status != 400 {
		t.Errorf("another client: %d %v", status, n)
	}
	s.mustVerify(t, m["access_token"])
	if status, n := a.refresh(t, first["refresh_token"]); status != 400 || n["error"] != "invalid_grant" {
		t.Errorf("the first token again: %d %v", status, n)
	}
	s.mustNotVerify(t, m["access_token"], "it was revoked")
	events, err := s.store.Events(t.Context(), 1)
	if err != nil || len(events) == 0 || events[0].Event != "refresh_reuse" {
		t.Errorf("the audit has %v, %v", events, err)
	}
}

func TestRefreshTokenIsForItsClient(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	_, body := s.post(t, "/oauth/register", "application/json",
		`{"client_name":"other","redirect_uris":["http://localhost/callback"]}`)
	other := app{s, member(t, body, "client_id"), a.verifier, a.redirect}
	if status, n := other.refresh(t, m["refresh_token"]); status != 400 || n["error"] != "invalid_grant" {
		t.Errorf("%d %v", status, n)
	}
	if status, n := a.refresh(t, m["refresh_token"]); status != 200 {
		t.Errorf("its owner: %d %v", status, n)
	}
}

func TestTokensEndWithTheGrant(t *testing.T) {
	s := mustStand(t, func(o *Options) {
		o.Config.Tokens = Tokens{RefreshTTL: 24 * time.Hour,
			AbsoluteTTL: 48 * time.Hour}
	})
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	for range 4 {
		s.clock.forward(11*time.Hour + 50*time.Minute)
		var status int
		if status, m = a.refresh(t, m["refresh_token"]); status != 200 {
			t.Fatal(status, m)
		}
	}
	if m["expires_in"].(float64) > 3600*0.7 {
		t.Errorf("forty minutes before the end an access token is good for %v s", m["expires_in"])
	}
	s.clock.forward(41 * time.Minute)
	if status, n := a.refresh(t, m["refresh_token"]); status != 400 || n["error"] != "invalid_grant" {
		t.Errorf("after the end: %d %v", status, n)
	}
}

func TestTokensSurviveAClosedStore(t *testing.T) {
	var options Options
	s := mustStand(t, func(o *Options) { options = *o })
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	s.store.Close()
	if status, n := a.refresh(t, m["refresh_token"]); status != 503 || n["error"] != "temporarily_unavailable" {
		t.Errorf("refresh: %d %v", status, n)
	}
	if p, err := s.verify(m["access_token"]); p != nil || err == nil || strings.Contains(err.Error(), "not valid") {
		t.Errorf("verify: %v, %v", p, err)
	}
	for _, where := range []string{a.asks(), s.url + "/account", s.url + "/oauth/callback/sso?state=x&code=y"} {
		if p := b.once(http.MethodGet, where, nil); p.status != 503 || p.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d", where, p.status)
		}
	}
	var err error
	if options.Store, err = store.Open(t.Context(), store.Config{DSN: filepath.Join(s.dir, "junction.db"),
		Keys: options.Keys, Now: s.clock.now, Log: options.Log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { options.Store.Close() })
	s.Server = s.second(t, options)
	s.mustVerify(t, m["access_token"])
	if status, n := a.refresh(t, m["refresh_token"]); status != 200 {
		t.Errorf("it is back, and the same token is answered %d %v", status, n)
	}
}

// TestFailureOfOneTableEndsNoSignIn fails the store half-way through a refresh. Such a failure must not
// end a sign-in.
func TestFailureOfOneTableEndsNoSignIn(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	db, err := sql.Open("sqlite", filepath.Join(s.dir, "junction.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rename := func(from, to string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{"client_blocks", "oauth_tokens", "grants", "idp_sessions", "users"} {
		rename(table, "away")
		s.clock.forward(6 * time.Second) // a token is not looked up each time
		if status, n := a.refresh(t, m["refresh_token"]); status != 503 || n["error"] != "temporarily_unavailable" {
			t.Errorf("without %s, refresh: %d %v", table, status, n)
		}
		if p, err := s.verify(m["access_token"]); errors.Is(err, auth.ErrInvalidToken) || p == nil && err == nil {
			t.Errorf("without %s, verify: %v", table, err)
		}
		rename("away", table)
	}
	s.mustVerify(t, m["access_token"])
	if status, n := a.refresh(t, m["refresh_token"]); status != 200 {
		t.Errorf("all is back, and the same token is answered %d %v", status, n)
	}
}

func TestRevokedGrantEndsItsTokens(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	for _, which := range []string{"access_token", "refresh_token"} {
		m := a.mustSignIn(t, b)
		p := s.mustVerify(t, m["access_token"])
		if !s.Still(p) {
			t.Error("before that it is not still let in")
		}
		const form = "application/x-www-form-urlencoded"
		if status, body := s.post(t, "/oauth/revoke", form,
			url.Values{"token": {fmt.Sprint(m[which])}, "client_id": {"dcr_x"}}.Encode()); status != 401 {
			t.Errorf("by an unknown client: %d %s", status, body)
		}
		s.mustVerify(t, m["access_token"])
		if status, body := s.post(t, "/oauth/revoke", form,
			url.Values{"token": {fmt.Sprint(m[which])}, "client_id": {a.id}}.Encode()); status != 200 {
			t.Errorf("%d %s", status, body)
		}
		s.mustNotVerify(t, m["access_token"], "it was revoked")
		if s.Still(p) {
			t.Error("it is still let in")
		}
		if status, _ := a.refresh(t, m["refresh_token"]); status != 400 {
			t.Errorf("it can be refreshed: %d", status)
		}
		if status, body := s.post(t, "/oauth/revoke", form,
			url.Values{"token": {"unknown"}, "client_id": {a.id}}.Encode()); status != 200 {
			t.Errorf("an unknown token: %d %s", status, body)
		}
	}
	m := a.mustSignIn(t, b)
	other := newBrowser(t)
	s.idp.set(func() { s.idp.claims = map[string]any{"sub": "ben", "email": "ben@acme.example"} })
	a.mustCode(t, other) // ben
	account := b.once(http.MethodGet, s.url+"/account", nil)
	action := s.url + "/account/grants/" + s.mustVerify(t, m["access_token"]).Grant + "/revoke"
	if !strings.Contains(account.body, strings.TrimPrefix(action, s.url)) ||
		!strings.Contains(account.body, "Claude Code (junction)") {
		t.Fatalf("the account shows %s", account.body)
	}
	if p := other.once(http.MethodPost, action,
		fill(other.once(http.MethodGet, s.url+"/account", nil), "")); p.status != 404 {
		t.Errorf("by ben: %d", p.status)
	}
	if p := b.once(http.MethodPost, action, url.Values{"csrf": {"x"}}); p.status != 403 {
		t.Errorf("without the token: %d", p.status)
	}
	s.mustVerify(t, m["access_token"])
	if p := b.once(http.MethodPost, action, fill(account, "")); p.status != 303 {
		t.Errorf("%d %s", p.status, p.body)
	}
	s.mustNotVerify(t, m["access_token"], "it was revoked")
	if status, _ := a.refresh(t, m["refresh_token"]); status != 400 {
		t.Errorf("it can be refreshed: %d", status)
	}
	if p := b.once(http.MethodPost, s.url+"/account/logout", fill(account, "")); p.status != 200 {
		t.Errorf("sign out: %d", p.status)
	}
	if p := b.once(http.MethodGet, s.url+"/account", nil); !strings.Contains(p.body, "Continue with Acme SSO") {
		t.Errorf("after that the account shows %s", p.body)
	}
}

// TestEventsHaveTheAddressOfTheRequest, and its trace, if it has one: it has ann and a thief come through a trusted
// proxy.
func TestEventsHaveTheAddressOfTheRequest(t *testing.T) {
	guard := &auth.Guard{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Log: authtest.Log(t)}
	s := mustStand(t, func(o *Options) { o.Address = guard.Address })
	a, b := s.mustApp(t), newBrowser(t)
	const ann, thief, trace = "203.0.113.9", "2001:db8::1", "4bf92f3577b34da6a3ce929d0e0e4736"
	b.header.Set("X-Forwarded-For", ann)
	steals := func(path string, form url.Values) (int, string) {
		t.Helper()
		form.Set("client_id", a.id)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-For", "["+thief+"]:1234")
		r.Header.Set("Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode, resp.Header.Get("X-Request-Id")
	}
	want := func(what, address, request string) {
		t.Helper()
		events, err := s.store.Events(t.Context(), 1)
		if err != nil || len(events) != 1 {
			t.Fatal(events, err)
		}
		if e := events[0]; e.Event != what || e.Address != address || e.RequestID == "" || request != "" &&
			e.RequestID != request {
			t.Errorf("the audit has %+v, want %s from %s in the request %s", e, what, address, request)
		} else if traced := strings.Contains(string(e.Detail), `"trace_id":"`+trace+`"`); traced != (address == thief) {
			t.Errorf("the audit has the detail %s of %s from %s", e.Detail, what, address)
		}
	}
	m := a.mustSignIn(t, b)
	want("code_issued", ann, "")
	if status, _ := a.refresh(t, m["refresh_token"]); status != 200 {
		t.Fatal(status)
	}
	s.clock.forward(2 * time.Minute)
	_, request := steals("/oauth/token",
		url.Values{"grant_type": {"refresh_token"}, "refresh_token": {fmt.Sprint(m["refresh_token"])}})
	want("refresh_reuse", thief, request)

	code := a.mustCode(t, b)
	status, m := a.redeem(t, code)
	if status != 200 {
		t.Fatal(status, m)
	}
	_, request = steals("/oauth/token", url.Values{"grant_type": {"authorization_code"}, "code": {code},
		"code_verifier": {a.verifier}, "redirect_uri": {a.redirect}})
	want("code_reuse", thief, request)

	m = a.mustSignIn(t, b)
	_, request = steals("/oauth/revoke", url.Values{"token": {fmt.Sprint(m["access_token"])}})
	want("grant_revoked", thief, request)

	m = a.mustSignIn(t, b)
	s.idp.set(func() { s.idp.refresh = "" })
	s.clock.forward(2 * time.Minute)
	_, request = steals("/oauth/token",
		url.Values{"grant_type": {"refresh_token"}, "refresh_token": {fmt.Sprint(m["refresh_token"])}})
	want("idp_session_ended", thief, request)
}
