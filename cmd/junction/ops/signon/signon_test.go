package signon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth/oauth"
)

// mustStart serves the metadata of a protected resource, if it is required, and counts the requests.
func mustStart(t *testing.T, required bool) (url string, asked *int) {
	t.Helper()
	asked = new(int)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked++
		if !required || r.URL.Path != "/.well-known/oauth-protected-resource/mcp" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"resource":"x","authorization_servers":["https://example.com"]}`))
	}))
	t.Cleanup(s.Close)
	return s.URL + "/mcp", asked
}

// TestOpenEndpoint: an endpoint without a sign-in is asked once, and gets no token.
func TestOpenEndpoint(t *testing.T) {
	url, asked := mustStart(t, false)
	s := New(Options{URL: url, Dir: t.TempDir()})
	for range 3 {
		if token, err := s.Token(t.Context()); token != "" || err != nil {
			t.Fatalf("Token = %q, %v", token, err)
		}
	}
	if *asked != 1 {
		t.Errorf("the endpoint was asked %d times, want once", *asked)
	}
}

// TestWithoutATerminal: without permission to ask, the error says what to do.
func TestWithoutATerminal(t *testing.T) {
	url, _ := mustStart(t, true)
	if token, err := New(Options{URL: url, Dir: t.TempDir()}).Token(t.Context()); token != "" || !errors.Is(err, ErrNeeded) {
		t.Errorf("Token = %q, %v, want ErrNeeded", token, err)
	}
}

// TestKept: a token is used as long as it is valid and not refused, and only for its endpoint.
func TestKept(t *testing.T) {
	url, _ := mustStart(t, true)
	s := New(Options{URL: url, Dir: t.TempDir()})
	put := func(at string, expires time.Time) {
		t.Helper()
		if err := s.write(&kept{at, oauth.Grant{ClientID: "c", Access: "canary-token-1", Expires: expires}}); err != nil {
			t.Fatal(err)
		}
	}
	put(url, time.Now().Add(time.Hour))
	if token, err := s.Token(t.Context()); token != "canary-token-1" || err != nil {
		t.Errorf("Token = %q, %v", token, err)
	}
	if info, err := os.Stat(s.file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v, %v", info.Mode(), err)
	}
	if token, err := s.Token(t.Context(), "canary-token-1"); token != "" || !errors.Is(err, ErrNeeded) {
		t.Errorf("with a refused token, Token = %q, %v", token, err)
	}
	put(url, time.Now().Add(-time.Hour))
	if token, err := s.Token(t.Context()); token != "" || !errors.Is(err, ErrNeeded) {
		t.Errorf("with an expired token, Token = %q, %v", token, err)
	}
	put("http://elsewhere/mcp", time.Now().Add(time.Hour))
	if token, err := s.Token(t.Context()); token != "" || !errors.Is(err, ErrNeeded) {
		t.Errorf("with a token of another endpoint, Token = %q, %v", token, err)
	}
	if err := os.WriteFile(s.file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if token, err := s.Token(t.Context()); token != "" || !errors.Is(err, ErrNeeded) {
		t.Errorf("with a broken file, Token = %q, %v", token, err)
	}
}

// TestRefreshTokenStaysAtItsOrigin: an endpoint that names another token endpoint than at the sign-in
// does not get the refresh token. The person signs in again.
func TestRefreshTokenStaysAtItsOrigin(t *testing.T) {
	var posted []string
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	say := func(text string, args ...any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, text, args...)
		}
	}
	mux.HandleFunc("/.well-known/oauth-protected-resource/mcp", say(`{"resource":"%[1]s/mcp","authorization_servers":[%[1]q]}`,
		server.URL))
	mux.HandleFunc("/.well-known/oauth-authorization-server",
		say(`{"issuer":%[1]q,"authorization_endpoint":"%[1]s/authorize","token_endpoint":"%[1]s/token",`+
			`"code_challenge_methods_supported":["S256"]}`, server.URL))
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		posted = append(posted, r.PostFormValue("refresh_token"))
		say(`{"access_token":"canary-renewed","token_type":"Bearer","expires_in":3600}`)(w, r)
	})
	s := New(Options{URL: server.URL + "/mcp", Dir: t.TempDir()})
	for _, issued := range []string{"", "https://honest.example/token", server.URL + "/other"} {
		if err := s.write(&kept{s.URL, oauth.Grant{ClientID: "c", AuthMethod: "none", Issuer: server.URL, Resource: s.URL,
			TokenEndpoint: issued, Access: "canary-old", Refresh: "canary-refresh",
			Expires: time.Now().Add(-time.Hour)}}); err != nil {
			t.Fatal(err)
		}
		token, err := s.Token(t.Context())
		if own := issued == server.URL+"/other"; own && (token != "canary-renewed" || err != nil || len(posted) != 1) ||
			!own && (token != "" || !errors.Is(err, ErrNeeded) || len(posted) > 0) {
			t.Errorf("issued by %q: Token = %q, %v; the endpoint received %q", issued, token, err, posted)
		}
	}
}

// TestSlowRenewalKeepsItsLock: a process that renews the tokens slowly, such as through a slow
// network, keeps the lock. A second process that took it would use the same refresh token, and the
// authorization server would then end the sign-in for both.
func TestSlowRenewalKeepsItsLock(t *testing.T) {
	s := New(Options{URL: "http://127.0.0.1:1/mcp", Dir: t.TempDir()})
	unlock, err := s.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	locks, err := filepath.Glob(filepath.Join(s.Dir, "*.lock"))
	if err != nil || len(locks) != 1 {
		t.Fatalf("the locks are %v, %v", locks, err)
	}
	if err := os.Chtimes(locks[0], old, old); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.lock(over); !errors.Is(err, context.Canceled) {
		t.Errorf("the second lock: %v, want that it waits", err)
	}
	unlock()
	unlock, err = s.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

// TestCallbackSaysWhyASignInFailed: the page has the reason in one line, and how to start again.
func TestCallbackSaysWhyASignInFailed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answers, stop, err := Callback(t.Context(), l, callbackPath, func(url.Values) bool { return true }, "Done.",
		"Start it again.")
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	go func() { (<-answers).Result <- errors.New("it\nfails\x1b.") }()
	resp, err := http.Get("http://" + l.Addr().String() + callbackPath)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if want := "The sign-in failed: it fails. Start it again.</p>"; err != nil || !strings.Contains(string(body), want) {
		t.Errorf("the page has no %q: %v\n%s", want, err, body)
	}
}
