package authserver

import (
	"html"
	"net/http"
	"strings"
	"testing"

	"junction/auth"
)

// TestAccountPage has a user look at their account, and sign out of this browser: another browser and
// the apps stay.
func TestAccountPage(t *testing.T) {
	s := mustStand(t, func(o *Options) {
		o.Servers = func(p *auth.Principal) []string {
			if p.Email != "ann@acme.example" {
				t.Errorf("the servers of %+v are asked for", p)
			}
			return []string{"github", "jira"}
		}
	})
	a, b, other := s.mustApp(t), newBrowser(t), newBrowser(t)
	m := a.mustSignIn(t, b)
	a.mustSignIn(t, other)
	account := b.once(http.MethodGet, s.url+"/account", nil)
	for _, want := range []string{"github, jira", s.url + "/mcp</code>", `href="` + s.url + `/"`, `<button class="quiet" aria-label="Disconnect`} {
		if !strings.Contains(account.body, want) {
			t.Errorf("the account does not have %s:\n%s", want, account.body)
		}
	}
	if p := b.once(http.MethodPost, s.url+"/account/signout", nil); p.status == 200 {
		t.Errorf("without the token of the page: %d", p.status)
	}
	kept := b.cookies[account.url.Host][sessionCookie]
	if p := b.once(http.MethodPost, s.url+"/account/signout", fill(account, "")); p.status != 200 || !strings.Contains(p.body, "out of this browser") {
		t.Errorf("sign out: %d %s", p.status, p.body)
	}
	b.cookies[account.url.Host][sessionCookie] = kept // the browser of a thief keeps the cookie
	if p := b.once(http.MethodGet, s.url+"/account", nil); !strings.Contains(p.body, "Continue with Acme SSO") {
		t.Errorf("after that the account shows %s", p.body)
	}
	if p := other.once(http.MethodGet, s.url+"/account", nil); !strings.Contains(p.body, "Connected apps") {
		t.Errorf("another browser is signed out, too: %s", p.body)
	}
	s.mustVerify(t, m["access_token"])
}

// TestNoAccessShowsTheGroups: the operator compares them with the file.
func TestNoAccessShowsTheGroups(t *testing.T) {
	for name, row := range map[string]struct {
		claims map[string]any
		want   string
	}{
		"some":    {map[string]any{"groups": []string{"sales", "<b>eu</b>"}}, "Your identity provider sent these groups: sales, <b>eu</b>."},
		"many":    {map[string]any{"groups": strings.Fields(strings.Repeat("g ", 30))}, "g, g, and 10 more."},
		"nothing": {map[string]any{"groups": []string{}}, "Your identity provider sent no groups."},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustStand(t, nil)
			s.granted = func(*auth.Principal) bool { return false }
			s.idp.set(func() { s.idp.claims = row.claims })
			a, b := s.mustApp(t), newBrowser(t)
			p := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso"))
			if p.status != 403 || !strings.Contains(p.body, html.EscapeString(row.want)) {
				t.Errorf("%d %s", p.status, p.body)
			}
		})
	}
}

// TestConsentNamesTheEndOfTheSignIn: without a refresh token of the provider, access ends although the
// app is used.
func TestConsentNamesTheEndOfTheSignIn(t *testing.T) {
	s := mustStand(t, nil)
	s.idp.set(func() { s.idp.refresh = "" })
	a, b := s.mustApp(t), newBrowser(t)
	a.mustSignIn(t, b)
	if p := b.once(http.MethodGet, a.asks(), nil); !strings.Contains(p.body, "Access ends at ") || strings.Contains(p.body, "30 days") {
		t.Errorf("a signed-in user reads %s", p.body)
	}
	if p := newBrowser(t).once(http.MethodGet, a.asks(), nil); !strings.Contains(p.body, "Access ends 24 hours after you sign in") {
		t.Errorf("a new user reads %s", p.body)
	}
	s.idp.set(func() { s.idp.refresh = "refresh-token-of-the-provider" })
	a.mustSignIn(t, newBrowser(t))
	if p := newBrowser(t).once(http.MethodGet, a.asks(), nil); !strings.Contains(p.body, "Access ends after 30 days of no use") {
		t.Errorf("once there is a refresh token, a new user reads %s", p.body)
	}
}
