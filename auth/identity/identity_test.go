package identity

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"junction/auth/seal"
	"junction/upstream"
)

const (
	issuer   = "https://junction.example.com"
	audience = "https://crm.example.com"
)

var ann = upstream.Identified{Subject: "user:https://login.example.com ann", Email: "ann@example.com",
	Groups: []string{"sales"}, Client: "claude"}

// clock is a time that a test changes.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func mustKey(t *testing.T, first []byte, accepted ...[]byte) *seal.Key {
	t.Helper()
	key, err := seal.NewKey(first, accepted...)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func mustSign(t *testing.T, s *Signer) string {
	t.Helper()
	token, err := s.Sign(issuer, audience, ann)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// server verifies statements with go-oidc, by the keys that a Signer publishes; it keeps them as that library does.
func server(t *testing.T, s *Signer, c *clock) *oidc.IDTokenVerifier {
	t.Helper()
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		public, err := s.Public()
		if err != nil {
			t.Error(err)
		}
		set, err := Join(nil, public)
		if err != nil || strings.Contains(string(set), `"d"`) {
			t.Errorf("the keys are %s, %v", set, err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(set)
	}))
	t.Cleanup(keys.Close)
	return oidc.NewVerifier(issuer, oidc.NewRemoteKeySet(t.Context(), keys.URL), &oidc.Config{ClientID: audience,
		SupportedSigningAlgs: []string{oidc.ES256}, Now: c.now})
}

// TestServerVerifiesWhoCalls: a statement has what it must have, is valid for a minute and for its audience, and no two
// have one ID.
func TestServerVerifiesWhoCalls(t *testing.T) {
	c := &clock{time.Now()}
	s := New(mustKey(t, seal.NewSecret()), c.now)
	verifier := server(t, s, c)
	token := mustSign(t, s)
	got, err := verifier.Verify(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		JTI, Email, Client string
		Groups             []string
	}
	if err := got.Claims(&all); err != nil {
		t.Fatal(err)
	}
	if got.Subject != ann.Subject || all.Email != ann.Email || !slices.Equal(all.Groups, ann.Groups) || all.Client != ann.Client ||
		all.JTI == "" || got.Expiry.Sub(got.IssuedAt) != time.Minute {
		t.Errorf("the statement is %+v with %+v", got, all)
	}
	if mustSign(t, s) == token {
		t.Error("two statements are the same")
	}
	other := oidc.NewVerifier(issuer, nil, &oidc.Config{ClientID: "another server", InsecureSkipSignatureCheck: true, Now: c.now})
	if _, err := other.Verify(t.Context(), token); err == nil {
		t.Error("another server takes the statement")
	}
	c.at = c.at.Add(time.Minute + time.Second)
	if _, err := verifier.Verify(t.Context(), token); err == nil {
		t.Error("the statement is valid for more than a minute")
	}
}

// TestKeysRotate: each day has another key. A server that keeps the keys for a day verifies the statements of the next
// day, and each replica publishes the keys of the others, also while the secret changes.
func TestKeysRotate(t *testing.T) {
	old, next := seal.NewSecret(), seal.NewSecret()
	c := &clock{time.Date(2026, 11, 30, 23, 59, 0, 0, time.UTC)}
	first := New(mustKey(t, old, next), c.now)
	second := New(mustKey(t, next, old), c.now)
	before, err := first.Public()
	if err != nil {
		t.Fatal(err)
	}
	verifier := server(t, first, c)
	for _, replica := range []*Signer{first, second} {
		if _, err := verifier.Verify(t.Context(), mustSign(t, replica)); err != nil {
			t.Error(err)
		}
	}
	c.at = c.at.Add(2 * time.Minute)
	kept := server(t, New(mustKey(t, old, next), func() time.Time { return c.at.Add(-2 * time.Minute) }), c)
	for _, replica := range []*Signer{first, second} {
		token := mustSign(t, replica)
		if _, err := kept.Verify(t.Context(), token); err != nil {
			t.Errorf("a server with the keys of the day before: %v", err)
		}
	}
	after, err := first.Public()
	if err != nil || before[0].KeyID == after[0].KeyID {
		t.Errorf("the next day has the key %s as well, %v", after[0].KeyID, err)
	}
	stranger := New(mustKey(t, seal.NewSecret()), c.now)
	if _, err := verifier.Verify(t.Context(), mustSign(t, stranger)); err == nil {
		t.Error("a statement with the key of another installation is verified")
	}
}
