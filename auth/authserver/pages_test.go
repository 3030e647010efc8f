package authserver

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"junction/auth/store"
)

func TestPagesShowNoForeignMarkup(t *testing.T) {
	s := mustStand(t, nil)
	const evil = `</title></style><script>alert(1)</script><img src=x onerror=alert(1)>"'&`
	_, body := s.post(t, "/oauth/register", "application/json",
		`{"client_name":`+fmt.Sprintf("%q", evil)+`,"redirect_uris":["http://localhost/callback"]}`)
	a, b := app{s, member(t, body, "client_id"), strings.Repeat("v", 43), clientAt}, newBrowser(t)
	for name, p := range map[string]page{
		"consent":  b.once(http.MethodGet, a.asks("state", evil), nil),
		"going":    b.press(b.once(http.MethodGet, a.asks("state", evil), nil), "idp:sso"),
		"error":    b.once(http.MethodGet, s.url+"/oauth/callback/sso?error="+url.QueryEscape(evil)+"&state=x", nil),
		"client":   b.once(http.MethodGet, a.asks("redirect_uri", evil), nil),
		"login":    b.once(http.MethodGet, s.url+"/account", nil),
		"connect":  b.once(http.MethodGet, s.url+"/", nil),
		"nowhere":  b.once(http.MethodGet, s.url+"/account/x", nil),
		"canceled": b.press(b.once(http.MethodGet, a.asks("state", evil), nil), "cancel"),
		"refused": func() page {
			s.idp.set(func() {
				s.idp.answer = url.Values{"code": nil, "error": {evil}, "error_description": {evil},
					"error_uri": {"javascript:alert(1)"}}
			})
			defer s.idp.set(func() { s.idp.answer = nil })
			return b.follow(b.press(b.once(http.MethodGet, a.asks("state", evil), nil), "idp:sso"))
		}(),
	} {
		h := p.header
		if strings.Contains(p.body, "<script") || strings.Contains(p.body, "<img") ||
			strings.Contains(p.body, "onerror=alert(1)>") || strings.Contains(p.body, "javascript:") {
			t.Errorf("%s: markup of a stranger:\n%s", name, p.body)
		}
		csp := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none'; style-src 'sha256-") ||
			!strings.Contains(csp, "frame-ancestors 'none'") || !strings.Contains(csp, "form-action 'self'") ||
			!strings.Contains(csp, "base-uri 'none'") || h.Get("Cache-Control") != "no-store" ||
			h.Get("Referrer-Policy") != "no-referrer" ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" ||
			h.Get("X-Request-Id") == "" || !strings.Contains(p.body, h.Get("X-Request-Id")) {
			t.Errorf("%s: headers %v", name, h)
		}
	}
	p := b.follow(b.press(b.once(http.MethodGet, a.asks("state", evil), nil), "idp:sso"))
	if p.url.Query().Get("state") != evil || strings.Contains(p.body, "<script") {
		t.Errorf("the state comes back as %q\n%s", p.url.Query().Get("state"), p.body)
	}
}

// TestWhoAgreedIsWhoGoesOn: an approval does not carry over to another user who signs in in the
// same browser in between.
func TestWhoAgreedIsWhoGoesOn(t *testing.T) {
	for name, between := range map[string]func(s *stand, a app, b *browser){
		"nobody": func(*stand, app, *browser) {},
		"signed out": func(s *stand, _ app, b *browser) {
			delete(b.cookies[strings.TrimPrefix(s.url, "http://")], sessionCookie)
		},
		"somebody else": func(s *stand, a app, b *browser) {
			s.idp.set(func() { s.idp.claims = map[string]any{"sub": "ben"} })
			b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustStand(t, nil)
			a, b := s.mustApp(t), newBrowser(t)
			a.mustCode(t, b)
			allowed := b.press(b.once(http.MethodGet, a.asks(), nil), "allow")
			between(s, a, b)
			if p := b.follow(allowed); (p.url.Host == "localhost:61802") != (name == "nobody") {
				t.Errorf("it ends at %s with %d", p.url, p.status)
			}
		})
	}
}

// counted is a Connector with one upstream. It counts how often a browser is sent there.
type counted struct {
	connectable
	began *atomic.Int64
}

// Describe implements Connector.
func (counted) Describe(context.Context, string, string, []string) ([4]string, []string, error) {
	return [4]string{"a.example", "b.example", "c.example", "scopes"}, nil, nil
}

// Begin implements Connector.
func (c counted) Begin(context.Context, string, string, string, string, [4]string, []string) (string, []byte, error) {
	c.began.Add(1)
	return "https://a.example/authorize", []byte("{}"), nil
}

// TestAPageActsForTheUserItWasShownTo: a page was shown to ann, and another tab of the browser has signed in
// bob. What is pressed on the page happens for neither of them.
func TestAPageActsForTheUserItWasShownTo(t *testing.T) {
	var began atomic.Int64
	s := mustStand(t, func(o *Options) { o.Connector = counted{connectable{}, &began} })
	a, b := s.mustApp(t), newBrowser(t)
	anns := a.mustSignIn(t, b)
	upstream := s.url + "/connect/" + counted{}.Upstreams()[0]
	consent := b.once(http.MethodGet, a.asks(), nil)
	account := b.once(http.MethodGet, s.url+"/account", nil)
	connect := b.once(http.MethodGet, upstream, nil)
	s.idp.set(func() { s.idp.claims = map[string]any{"sub": "bob", "email": "bob@acme.example"} })
	p := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso"))
	_, bobs := a.redeem(t, p.url.Query().Get("code"))
	before, err := s.store.Grants(t.Context(), store.GrantFilter{})
	if err != nil || len(before) != 2 {
		t.Fatal(before, err)
	}
	for name, p := range map[string]page{
		"allow":    b.follow(b.press(consent, "allow")),
		"sign out": b.once(http.MethodPost, s.url+"/account/signout", fill(account, "")),
		"log out":  b.once(http.MethodPost, s.url+"/account/logout", fill(account, "")),
		"connect":  b.follow(b.once(http.MethodPost, upstream, fill(connect, "connect"))),
	} {
		if p.status != 403 || !strings.Contains(p.body, "You are now signed in as bob@acme.example") {
			t.Errorf("%s: %d at %s\n%s", name, p.status, p.url, p.body)
		}
	}
	after, err := s.store.Grants(t.Context(), store.GrantFilter{Standing: true})
	if err != nil || len(after) != 2 || began.Load() != 0 {
		t.Errorf("there are the grants %v, %v, and %d sign-ins at the upstream", after, err, began.Load())
	}
	s.mustVerify(t, anns["access_token"])
	if got := s.mustVerify(t, bobs["access_token"]); got.User != "bob" {
		t.Errorf("the second user is %s", got.User)
	}
	// The other buttons of the page do nothing for the user of the session.
	s.idp.set(func() { s.idp.claims = map[string]any{} })
	if p := b.follow(b.press(consent, "idp:sso")); p.url.Query().Get("code") == "" {
		t.Errorf("another account: %d at %s\n%s", p.status, p.url, p.body)
	}
	if p := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "allow")); p.url.Query().Get("code") == "" {
		t.Errorf("a page of the user who is signed in: %d at %s\n%s", p.status, p.url, p.body)
	}
}

// TestTwoPagesOfOneBrowserSignIn: a page that was shown before the user signed in by another page still goes
// to the provider.
func TestTwoPagesOfOneBrowserSignIn(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	first, second := b.once(http.MethodGet, a.asks(), nil), b.once(http.MethodGet, a.asks(), nil)
	for _, p := range []page{first, second} {
		if p := b.follow(b.press(p, "idp:sso")); p.url.Query().Get("code") == "" {
			t.Errorf("%d at %s\n%s", p.status, p.url, p.body)
		}
	}
}

// TestFloods: a flood of endpoints without credentials does not stop clients with tokens.
func TestFloods(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	status := 201
	for i := 0; i < 2000 && status == 201; i++ {
		status, _ = s.post(t, "/oauth/register", "application/json", `{"redirect_uris":["http://localhost/callback"]}`)
	}
	if status != 429 {
		t.Errorf("a flood is answered %d", status)
	}
	if status, m := a.refresh(t, m["refresh_token"]); status != 200 {
		t.Errorf("after it: %d %v", status, m)
	}
}

// TestStrangersFillNothing: rejected requests fill neither the audit nor the log, and the actions
// of users are still recorded.
func TestStrangersFillNothing(t *testing.T) {
	s := mustStand(t, nil)
	a, b := s.mustApp(t), newBrowser(t)
	for range 300 {
		s.clock.forward(250 * time.Millisecond) // slow enough for one address
		if p := b.once(http.MethodGet, a.asks("redirect_uri", "https://evil.example/cb"), nil); p.status != 400 {
			t.Fatal(p.status)
		}
	}
	a.mustSignIn(t, b)
	events, err := s.store.Events(t.Context(), 1000)
	counts := map[string]int{}
	for _, e := range events {
		counts[e.Event]++
		if e.Event == "code_issued" && !strings.Contains(string(e.Detail), `app \"`) {
			t.Errorf("the audit does not name the app: %s", e.Detail)
		}
	}
	if n := counts["authorize_refused"]; err != nil || n < 10 || n > 65 || counts["signed_in"] != 1 ||
		counts["code_issued"] != 1 {
		t.Errorf("the audit has %v, %v", counts, err)
	}
}

// TestBlockedCookiesAreExplained: without cookies a clear page is shown, and no redirect loop occurs.
func TestBlockedCookiesAreExplained(t *testing.T) {
	s := mustStand(t, nil)
	a := s.mustApp(t)
	b := newBrowser(t)
	p := b.once(http.MethodGet, a.asks(), nil)
	clear(b.cookies)
	if p = b.press(p, "idp:sso"); p.status != 403 || p.next() != "" ||
		!strings.Contains(p.body, "Allow cookies for this server") {
		t.Errorf("%d to %q: %s", p.status, p.next(), p.body)
	}
}
