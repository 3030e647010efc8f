package auth_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
)

// users is a Directory that accepts no token of its own.
type users struct {
	disabled map[string]bool
	err      error
	asked    int
}

// Verify implements auth.Verifier.
func (*users) Verify(context.Context, string, netip.Addr) (*auth.Principal, error) {
	return nil, auth.ErrInvalidToken
}

// Disabled implements auth.Directory.
func (u *users) Disabled(_ context.Context, id string) (bool, error) {
	u.asked++
	return u.disabled[id], u.err
}

// KnownDisabled implements auth.Directory.
func (u *users) KnownDisabled(id string) bool { return u.disabled[id] }

// TestATokenOfAnotherServerIsRefusedForADisabledUser: a user whom the operator has disabled has the same ID with a
// token of the issuer, signed or opaque. It is refused, also if it was accepted before, and so are open streams. A
// service, and the same subject at another issuer, stay.
func TestATokenOfAnotherServerIsRefusedForADisabledUser(t *testing.T) {
	for name, kind := range map[string]struct {
		config func(s *authtest.Server) *auth.Config
		token  func(t *testing.T, s *authtest.Server, claims map[string]any) string
	}{
		"signed": {func(s *authtest.Server) *auth.Config { return &auth.Config{JWT: []auth.Issuer{entry(s)}} },
			func(t *testing.T, s *authtest.Server, claims map[string]any) string { return s.Token(t, claims) }},
		"opaque": {func(s *authtest.Server) *auth.Config { return introspects(s) },
			func(t *testing.T, s *authtest.Server, claims map[string]any) string {
				token := "opaque-" + auth.UserID("", claims["sub"].(string))[5:21] + claims["sub"].(string)
				s.Opaque(token, claims)
				return token
			}},
	} {
		t.Run(name, func(t *testing.T) {
			s := authtest.New(t)
			own := &users{disabled: map[string]bool{}}
			p := auth.NewProviders(s.Client())
			t.Cleanup(p.Close)
			g := kind.config(s).Guard(p, publicURL, own)
			g.Log = authtest.Log(t)
			ann := kind.token(t, s, s.Claims(resource, nil))
			bob := kind.token(t, s, s.Claims(resource, map[string]any{"sub": "bob"}))
			service := kind.token(t, s, s.Claims(resource, map[string]any{"sub": "app", "client_id": "app"}))
			stream := wantIn(t, g, ann)
			own.disabled[auth.UserID(s.URL, "ann")] = true
			own.disabled[auth.UserID(s.URL, "app")] = true
			own.disabled[auth.UserID("https://other.example", "bob")] = true
			wantOut(t, g, ann, http.StatusUnauthorized, "the operator has disabled its user")
			if g.Still(stream) {
				t.Error("her open stream goes on")
			}
			for _, token := range []string{bob, service} {
				if p := wantIn(t, g, token); !g.Still(p) {
					t.Errorf("a stream of %s does not go on", p.ID)
				}
			}
			own.disabled = nil
			if p := wantIn(t, g, ann); !g.Still(p) {
				t.Error("when she is enabled again, her stream does not go on")
			}
			asked := own.asked
			own.err = errors.New("the store is away")
			wantOut(t, g, ann, http.StatusServiceUnavailable, "")
			wantIn(t, g, service)
			if own.asked != asked+1 {
				t.Errorf("the users were asked for %d times, want once: a service is no user", own.asked-asked)
			}
		})
	}
}
