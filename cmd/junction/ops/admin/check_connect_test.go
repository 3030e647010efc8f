package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"junction/cmd/junction/base/config"
)

// TestCheckAsksForATokenOnlyWithConnect: check asks no authorization server, and runs no program. With --connect it
// gets a token, whose secret a program prints, and shows scopes and expiry, or why there is no token.
func TestCheckAsksForATokenOnlyWithConnect(t *testing.T) {
	var asked atomic.Int32
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/oauth-authorization-server":
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": server.URL, "token_endpoint": server.URL + "/token"})
		case "/token":
			asked.Add(1)
			if _, secret, _ := r.BasicAuth(); secret != "canary-printed" {
				w.WriteHeader(http.StatusUnauthorized)
				fmt.Fprint(w, `{"error":"invalid_client"}`)
				return
			}
			fmt.Fprint(w, `{"access_token":"canary-token","token_type":"Bearer","expires_in":60,"scope":"read run"}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "secret")
	text := fmt.Sprintf("outbound: { allow_private: [127.0.0.0/8] }\nupstreams:\n  x: { url: %[1]s/mcp, auth: { mode: "+
		"client_credentials, issuer: %[1]q, client_id: us, client_secret: '${exec: [cat, %[2]q]}' } }\n", server.URL, secret)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	none := Foresight{
		Obstacles: func(*config.Config, string) []config.Problem { return nil },
		Revived:   func(*config.Config, string, string) (config.Problems, error) { return nil, nil },
	}
	check := func(args ...string) (string, error) {
		t.Helper()
		var out strings.Builder
		cmd := checkCommand(&out, &file, none)
		cmd.SetArgs(args)
		err := cmd.ExecuteContext(t.Context())
		if strings.Contains(out.String(), "canary") {
			t.Errorf("check %v shows a secret:\n%s", args, out.String())
		}
		return strings.Join(strings.Fields(out.String()), " "), err
	}
	if out, err := check(); err != nil || asked.Load() != 0 || !strings.Contains(out, "does not run it: cat") {
		t.Errorf("check: %v, %d requests for a token:\n%s", err, asked.Load(), out)
	}
	if out, err := check("--connect"); err == nil || asked.Load() != 0 || !strings.Contains(out, "WRONG") ||
		!strings.Contains(out, "the program cat exited with status 1") {
		t.Errorf("without the secret, check --connect: %v, %d requests for a token:\n%s", err, asked.Load(), out)
	}
	for content, want := range map[string]string{
		"canary-printed\n": "with the scopes: read run", "canary-wrong\n": "WRONG get a token at",
	} {
		if err := os.WriteFile(secret, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		asked.Store(0)
		out, err := check("--connect")
		if (err != nil) != strings.HasPrefix(want, "WRONG") || asked.Load() == 0 || !strings.Contains(out, want) {
			t.Errorf("with %q, check --connect: %v, %d requests for a token:\n%s", content, err, asked.Load(), out)
		}
	}
	if err := os.WriteFile(secret, []byte("canary-printed\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := check("--connect", "--json"); err != nil || !strings.Contains(out, `"connected": [`) {
		t.Errorf("check --connect --json: %v:\n%s", err, out)
	}
}
