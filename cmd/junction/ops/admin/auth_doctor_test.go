package admin

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"junction/auth/authtest"
)

// TestAuthDoctor asks providers that are well, that call themselves otherwise, that are away, and
// that have no keys.
func TestAuthDoctor(t *testing.T) {
	well, other, away, keyless, silent := authtest.Start(t), authtest.Start(t), authtest.Start(t), authtest.Start(t), authtest.Start(t)
	silent.Answer(authtest.Metadata, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%[1]q,"jwks_uri":"%[1]s/keys","authorization_endpoint":"%[1]s/a","token_endpoint":"%[1]s/t"}`, silent.URL)
	})
	other.Answer(authtest.Metadata, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"issuer":"https://other.example.com"}`) })
	picky := authtest.Start(t)
	picky.Answer("/token", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, inHeader, _ := r.BasicAuth()
		inHeader, err := url.QueryUnescape(inHeader) // RFC 6749, section 2.3.1
		switch {
		case err != nil:
			t.Error(err)
		case inHeader == "" && r.FormValue("client_secret") == "right", inHeader == "right+by header":
			fmt.Fprint(w, `{"error":"invalid_grant"}`)
		case inHeader != "":
			fmt.Fprint(w, `{"error":"invalid_client","error_description":"use the form"}`)
		default:
			fmt.Fprintf(w, `{"error":"invalid_client","error_description":"%[1]s is wrong %[2]s%[1]s"}`,
				r.FormValue("client_secret"), strings.Repeat("word ", 27))
		}
	})
	sealed := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(sealed.Close)
	company := func(issuer, secret string) string {
		return "public_url: http://localhost:8420\nauth: { oauth: { identity_providers: [{ id: sso, issuer: " + issuer +
			", client_id: c, client_secret: " + secret + " }] } }\n"
	}
	away.SetDown(true)
	keyless.SetKeys()
	for name, row := range map[string]struct {
		sections string
		want     []string
		problems string
	}{
		"well": {"auth: { jwt: [{ issuer: " + well.URL + ", audiences: [x] }] }\n",
			[]string{"note  its tokens must be for: x", "ok    it is who the file says: " + well.URL, "ok    1 key at " + well.URL + authtest.Keys}, ""},
		"another issuer": {"auth: { jwt: [{ issuer: " + other.URL + ", audiences: [x] }] }\n",
			[]string{`WRONG it calls itself "https://other.example.com"`, "→ write issuer: https://other.example.com"}, "1 problem"},
		"away":    {"auth: { jwt: [{ issuer: " + away.URL + ", audiences: [x] }] }\n", []string{"WRONG"}, "1 problem"},
		"no keys": {"auth: { jwt: [{ issuer: " + keyless.URL + ", audiences: [x] }] }\n", []string{"WRONG it has no key to check a signature with"}, "1 problem"},
		"sign-in": {"public_url: http://localhost:8420\nauth: { oauth: { identity_providers: [{ id: sso, issuer: " + well.URL + ", client_id: c }] } }\n",
			[]string{"note  register as redirect URI:", "http://localhost:8420/oauth/callback/sso", "claude mcp add --scope user \\\n    --transport http junction http://localhost:8420/mcp",
				"note  register as back-channel logout URI:", "http://localhost:8420/oauth/backchannel-logout/sso"}, ""},
		"no logout": {"public_url: http://localhost:8420\nauth: { oauth: { identity_providers: [{ id: sso, issuer: " + silent.URL + ", client_id: c }] } }\n",
			[]string{"warn  it offers no back-channel logout", "→ turn on back-channel logout there if the provider has it, or shorten",
				"warn  its token endpoint " + silent.URL + "/t answers 404", "could not be checked"}, ""},
		"right secret": {company(picky.URL, "right"), []string{"ok    it does not reject client_id and client_secret"}, ""},
		"right header": {company(picky.URL, "'right+by header'"), []string{"ok    it does not reject client_id and client_secret"}, ""},
		"wrong secret": {company(picky.URL, "canary-guess"), []string{"WRONG it rejects client_id and client_secret (invalid_client: ***",
			"→ compare both with the registration of Junction at the provider"}, "1 problem"},
		"certificate": {company(sealed.URL, "s"), []string{"certificate signed by", "outbound.ca_file"}, "1 problem"},
		"off":         {company("http://127.0.0.1:1", "s"), []string{"→ no server listens there: start it"}, "1 problem"},
		"nobody":      {"", []string{"No sign-in is configured"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(file, []byte(row.sections+"upstreams: { a: { url: http://127.0.0.1:1/mcp } }\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			err := authDoctor(t.Context(), &out, file, false)
			if got := fmt.Sprint(err); (err == nil) != (row.problems == "") || err != nil && got != row.problems {
				t.Errorf("the error is %v, want %q\n%s", err, row.problems, out.String())
			}
			for _, want := range row.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it says\n%s\nwithout %s", out.String(), want)
				}
			}
			if strings.Contains(out.String(), "canary") {
				t.Errorf("it prints the secret:\n%s", out.String())
			}
			if row.problems != "" && strings.Contains(out.String(), "Clients sign in at") {
				t.Errorf("the lines for clients follow a problem:\n%s", out.String())
			}
		})
	}
}
