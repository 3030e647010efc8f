package authserver

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
)

// TestFailedSignInsNameTheRemedy: the log says what the operator can do about each failure, and the page
// whether the user can do anything.
func TestFailedSignInsNameTheRemedy(t *testing.T) {
	log := new(authtest.Text)
	s := mustStand(t, func(o *Options) { o.Log = authtest.Log(t, log) })
	a := s.mustApp(t)
	told := func(text string) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, text)
		}
	}
	for name, row := range map[string]struct {
		claims      map[string]any
		answer      url.Values
		token       func(http.ResponseWriter, *http.Request)
		page, heard string
	}{
		"the user cancels": {answer: url.Values{"code": nil, "error": {"access_denied"}},
			page: "You have cancelled the sign-in there", heard: ""},
		"a wrong secret": {token: told(`{"error":"invalid_client","error_description":"bad secret"}`),
			page: "You cannot correct this yourself", heard: `reason="bad secret" advice="compare client_id and client_secret of ` +
				`the identity provider sso with the registration there"`},
		"a wrong clock": {claims: map[string]any{"exp": time.Now().Add(-time.Hour).Unix()},
			page:  "This server rejected the answer of Acme SSO: invalid_id_token. You cannot correct",
			heard: `advice="compare the clock of this machine with the provider's"`},
		"a clock that is slow": {claims: map[string]any{"nbf": time.Now().Add(time.Hour).Unix()},
			page:  "This server rejected the answer of Acme SSO: invalid_id_token. You cannot correct",
			heard: `advice="compare the clock of this machine with the provider's"`},
		"an audience with the words of another error": {claims: map[string]any{"aud": "expired nbf"},
			page: "You cannot correct this yourself", heard: `advice="compare issuer and client_id`},
		"another audience": {claims: map[string]any{"aud": "somebody"}, page: "You cannot correct this yourself",
			heard: `expected audience \"junction\" got [\"somebody\"]" advice="compare issuer and client_id`},
		"another issuer": {answer: url.Values{"iss": {"https://evil.example"}}, page: "You cannot correct this yourself",
			heard: "compare issuer of the identity provider sso with what the provider calls itself"},
		"a scope that is unknown": {answer: url.Values{"code": nil, "error": {"invalid_scope"}},
			page: "You cannot correct this yourself", heard: "remove the scopes that the provider does not have"},
		"a busy provider": {answer: url.Values{"code": nil, "error": {"temporarily_unavailable"}},
			page: "Try again in a moment", heard: "read the provider's log, and try again"},
	} {
		s.idp.set(func() { s.idp.claims, s.idp.answer = row.claims, row.answer })
		if row.token != nil {
			s.idp.Answer("/token", row.token)
		}
		log.Take()
		b := newBrowser(t)
		p := b.follow(b.press(b.once(http.MethodGet, a.asks(), nil), "idp:sso"))
		if !strings.Contains(p.body, row.page) {
			t.Errorf("%s: the page has no %q:\n%s", name, row.page, p.body)
		}
		got := log.Take()
		if !strings.Contains(got, "a user could not sign in") || !strings.Contains(got, row.heard) ||
			(row.heard == "") == strings.Contains(got, "advice=") {
			t.Errorf("%s: the log has no %q:\n%s", name, row.heard, got)
		}
		if row.token != nil {
			s.idp.Answer("/token", s.idp.token)
		}
	}
}
