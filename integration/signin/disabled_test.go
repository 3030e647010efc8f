package signin

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
)

// TestADisabledUserHasNoOtherToken: a user has signed in here, and has tokens of the same issuer, one signed and
// one opaque. When the operator disables the user, both are refused within ten seconds, their streams end, and a
// restart changes nothing. The tokens of another user stay.
func TestADisabledUserHasNoOtherToken(t *testing.T) {
	onEachStorage(t, func(t *testing.T, c *company) {
		s := authtest.Start(t)
		restart := func() {
			t.Helper()
			c.MustStop(t)
			c.MustServe(t, "--listen", strings.TrimPrefix(c.origin, "http://"))
			c.MustReady(t, harness.Patience)
		}
		more := fmt.Sprintf(`auth:
  jwt: [{ issuer: %q, audiences: [%s/mcp], jwks_url: %q }]
  introspection:
    { issuer: %[1]q, endpoint: %[4]q, client_id: %[5]q, client_secret: %[6]q, audiences: [%[2]s/mcp] }
`, c.issuer, c.origin, s.URL+authtest.Keys, s.URL+authtest.Introspect, authtest.ClientID, authtest.ClientSecret)
		if err := os.WriteFile(c.File(), []byte(strings.Replace(mustRead(t, c.File()), "auth:\n", more, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		restart()
		a, tokens := mustRegister(t, c, appRedirect), map[string][]string{}
		for _, name := range []string{"ann", "bob"} {
			a.mustSignIn(t, newPerson(t, name))
			claims := s.Claims(c.origin+"/mcp", map[string]any{"iss": c.issuer, "sub": name})
			opaque := "opaque-token-of-" + name
			s.Opaque(opaque, claims)
			tokens[name] = []string{s.Token(t, claims), opaque}
		}
		var streams []*harness.EventStream
		for _, token := range tokens["ann"] {
			wantTokenIn(t, c.Program, token)
			streams = append(streams, showing(t, c.Program, client.EraLegacy, token, "/mcp").MustOpen(t))
		}
		c.mustOperate(t, "users", "disable", "ann@acme.example")
		began := time.Now()
		for _, stream := range streams {
			mustClose(t, stream)
		}
		if took := time.Since(began); took > harness.Promptly {
			t.Errorf("her streams go on for %v", took)
		}
		for _, when := range []string{"at once", "after a restart"} {
			if when == "after a restart" {
				restart()
			}
			for n, token := range tokens["ann"] {
				k := showing(t, c.Program, client.EraModern, "", "/mcp")
				k.Key = token
				wantRefused(t, "POST", refusedTo(t, k, "POST"), 401, refusedToken+"the operator has disabled its user")
				wantTokenIn(t, c.Program, tokens["bob"][n])
			}
		}
		c.mustOperate(t, "users", "enable", "ann@acme.example")
		restart()
		for _, token := range tokens["ann"] {
			wantTokenIn(t, c.Program, token)
		}
	})
}
