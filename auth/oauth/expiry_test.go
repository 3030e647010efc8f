package oauth

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/store"
)

const daySeconds = 24 * 60 * 60

// mustExpire returns a shape whose server issues a new client at each registration, with a secret for 30
// days.
func mustExpire(t *testing.T, u Upstream) *expiringShape {
	s := &expiringShape{mustShape(t, u), 0}
	s.documents[serverAt] = metadataOf(asIssuer, "token_endpoint_auth_methods_supported", []string{"client_secret_basic"})
	s.next()
	return s
}

type expiringShape struct {
	*shape
	clients int
}

// next prepares the next registration.
func (s *expiringShape) next() {
	s.clients++
	secret := "canary-secret-" + strconv.Itoa(s.clients)
	authtest.Secret("the secret of a registration", secret)
	s.registered = map[string]any{"client_id": "us-" + strconv.Itoa(s.clients), "client_secret": secret,
		"client_secret_expires_at": s.clock.now().Unix() + 30*daySeconds}
}

func (s *expiringShape) days(n int64) { s.clock.Add(n * daySeconds) }

// registrations returns how many there were, and which client has asked for tokens last.
func (s *expiringShape) registrations() (n int, client string) {
	client, _, _ = strings.Cut(s.passwords[asIssuer+"/token"], ":")
	return s.count("POST " + asIssuer + "/register"), client
}

func (s *expiringShape) want(t *testing.T, what string, n int, client string) {
	t.Helper()
	if got, who := s.registrations(); got != n || who != client {
		t.Errorf("%s: %d registrations, and %s asks for tokens; want %d and %s", what, got, who, n, client)
	}
}

// connect stores the connection of another user at the present client.
func (s *expiringShape) connect(t *testing.T, client string) {
	t.Helper()
	user, err := s.client.Store.PutUser(t.Context(), store.User{Issuer: "https://idp.example", Subject: "bob"})
	if err == nil {
		err = s.client.Store.PutConnection(t.Context(), store.Connection{Upstream: "linear", User: user.ID,
			Principal: "user:bob", Access: "canary-bob", Refresh: "canary-refresh", Issuer: asIssuer,
			TokenEndpoint: asIssuer + "/token", Resource: mcpURL, ClientID: client, Expires: s.clock.now()})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestClientIsRegisteredBeforeItsSecretExpires: a sign-in in the last days of a client secret registers anew,
// once. Users of the old client stay signed in until its secret has expired. Then they must sign in again, and
// learn why.
func TestClientIsRegisteredBeforeItsSecretExpires(t *testing.T) {
	s, ctx := mustExpire(t, Upstream{}), t.Context()
	renew := func() error {
		_, err := s.client.Token(ctx, "linear", "user:bob")
		return err
	}
	for range 2 {
		if err := s.signIn(); err != nil {
			t.Fatal(err)
		}
	}
	s.want(t, "two sign-ins", 1, "us-1")
	s.connect(t, "us-1")
	if why := s.client.Ending(ctx, "linear", "user:bob"); why != "" {
		t.Errorf("at first it ends because %q", why)
	}

	s.days(24)
	s.next()
	if why := s.client.Ending(ctx, "linear", "user:bob"); !strings.Contains(why, "expires on "+day(s.clock.now().Add(6*24*time.Hour))) {
		t.Errorf("six days before, it ends because %q", why)
	}
	for range 2 {
		if err := s.signIn(); err != nil {
			t.Fatal(err)
		}
	}
	s.want(t, "sign-ins six days before the end", 2, "us-2")
	if err := renew(); err != nil {
		t.Fatal(err)
	}
	s.want(t, "a renewal at the old client", 2, "us-1")

	s.days(7)
	s.exchanged = refusal{http.StatusUnauthorized, map[string]any{"error": "invalid_client"}}
	for range 2 {
		if err := renew(); !errors.Is(err, ErrBroken) {
			t.Errorf("after the end of the old client, a renewal is %v", err)
		}
	}
	if why := s.client.Ending(ctx, "linear", "user:bob"); !strings.HasPrefix(why, "the client secret of this sign-in, from "+asHost+", expired on ") {
		t.Errorf("after the end, it ends because %q", why)
	}
	if why := s.client.Ending(ctx, "linear", "user:ann"); why != "" {
		t.Errorf("the sign-in at the new client ends because %q", why)
	}
}

// TestExpiredClientIsReplacedAtTheSignIn: a sign-in after the expiry of a client secret goes to a new client at
// once, and does not fail first. If the registration is refused, a client that has not expired is used.
func TestExpiredClientIsReplacedAtTheSignIn(t *testing.T) {
	s := mustExpire(t, Upstream{})
	if err := s.signIn(); err != nil {
		t.Fatal(err)
	}
	s.days(25)
	s.registered = http.StatusForbidden
	if err := s.signIn(); err != nil {
		t.Errorf("a client that can still be used: %v", err)
	}
	s.want(t, "a refused registration before the end", 2, "us-1")
	s.days(6)
	if err := s.signIn(); err == nil || !strings.Contains(err.Error(), "registers only clients that it has reviewed") {
		t.Errorf("a refused registration after the end: %v", err)
	}
	s.next()
	if err := s.signIn(); err != nil {
		t.Fatal(err)
	}
	s.want(t, "a registration after the end", 4, "us-2")
}

// TestExpiredClientIsAsked: some servers do not enforce the expiry that they have named. There the sign-in
// goes on, as with other clients.
func TestExpiredClientIsAsked(t *testing.T) {
	for _, shared := range []bool{false, true} {
		s := mustExpire(t, Upstream{Shared: shared})
		if err := s.signIn(); err != nil {
			t.Fatal(err)
		}
		principal := "user:ann"
		if shared {
			principal = Operator
		}
		s.days(31)
		token, err := s.client.Token(t.Context(), "linear", principal)
		if token != "canary-access" || err != nil {
			t.Errorf("%s: a renewal: %q, %v", principal, token, err)
		}
		if why := s.client.Ending(t.Context(), "linear", principal); !strings.Contains(why, "expired on ") {
			t.Errorf("%s: it ends because %q", principal, why)
		}
		s.exchanged = http.StatusServiceUnavailable
		s.days(1)
		if _, err := s.client.Token(t.Context(), "linear", principal); err == nil || errors.Is(err, ErrBroken) {
			t.Errorf("%s: an outage is %v", principal, err)
		}
	}
}

// TestTimesOfExpiry: only a time that can be the expiry of a secret counts.
func TestTimesOfExpiry(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	for text, want := range map[string]int64{
		`1800003600`: 1_800_003_600, `"1800003600"`: 1_800_003_600, `1.8000036e9`: 1_800_003_600,
		`0`: 0, ``: 0, `null`: 0, `"2027-01-15"`: 0, `-1`: 0, `{}`: 0, `1e99`: 0, `"NaN"`: 0,
		`2592000`:    0, // a lifetime
		`1800000000`: 0, // the time of the registration
	} {
		got := secretExpiry(json.RawMessage(text), now)
		if got.IsZero() != (want == 0) || want != 0 && got.Unix() != want {
			t.Errorf("%s is %v, want %d", text, got, want)
		}
	}
}
