package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// issue stores a refresh token that is its own signature, and an access token.
func issue(ctx context.Context, s *Store, g Grant, refresh string) (Successor, error) {
	for kind, signature := range map[string]string{RefreshToken: "sig-" + refresh, AccessToken: "sig-at-" + refresh} {
		err := s.AddToken(ctx, Token{Signature: signature, Kind: kind, Grant: g.ID, RequestID: "request",
			Expires: s.now().Add(30 * 24 * time.Hour)})
		if err != nil {
			return Successor{}, err
		}
	}
	return Successor{"sig-" + refresh, []byte("answer with " + refresh)}, nil
}

func mustIssue(t testing.TB, s *Store, g Grant, refresh string) {
	t.Helper()
	if _, err := issue(t.Context(), s, g, refresh); err != nil {
		t.Fatal(err)
	}
}

// exchange refreshes as the token endpoint does.
func exchange(ctx context.Context, s *Store, client, old, next string) (string, error) {
	var grant string // in a token of this server
	if strings.HasPrefix(old, "rt") {
		if err := s.get(ctx, []any{&grant}, `SELECT id FROM grants ORDER BY created_at, id LIMIT 1`); err != nil {
			return "", err
		}
	}
	response, err := s.Refresh(ctx,
		Presented{Token: old, Signature: "sig-" + old, Grant: grant, ClientID: client, Interval: time.Minute},
		func(ctx context.Context, t Token, g Grant) (Successor, error) { return issue(ctx, s, g, next) })
	return string(response), err
}

func TestConcurrentExchangesGetOnePair(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s := replicas(t, d, c.now)
		g := mustGrant(t, s[0], "ann")
		mustIssue(t, s[0], g, "rt0")
		answers := make([]string, 50)
		n := parallel(t, len(answers), nil, func(i int) (err error) {
			answers[i], err = exchange(t.Context(), s[i%2], "client", "rt0", fmt.Sprintf("rt1-%d", i))
			return err
		})
		if n != len(answers) || len(slices.Compact(answers)) != 1 {
			t.Fatalf("%d of %d succeeded with the answers %q, want one answer for all", n, len(answers),
				slices.Compact(answers))
		}
		tokens := 0
		want(t, "count", s[0].get(t.Context(), []any{&tokens},
			`SELECT count(*) FROM oauth_tokens`), nil)
		if tokens != 4 {
			t.Errorf("%d tokens are stored, want two pairs", tokens)
		}
		c.pass(59 * time.Second)
		if again, err := exchange(t.Context(), s[1], "client", "rt0", "rt2"); err != nil || again != answers[0] {
			t.Errorf("the same token 59 s later: %q, %v; want %q", again, err, answers[0])
		}
	})
}

func TestReusedTokenRevokesTheGrant(t *testing.T) {
	for name, reuse := range map[string]func(t *testing.T, s *Store, c *clock){
		"after the successor was used": func(t *testing.T, s *Store, c *clock) {
			_, err := exchange(t.Context(), s, "client", "rt1", "rt2")
			want(t, "the successor", err, nil)
		},
		"after the interval": func(t *testing.T, s *Store, c *clock) { c.pass(time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, d database) {
				c := newClock()
				s := replicas(t, d, c.now)
				g := mustGrant(t, s[0], "ann")
				mustIssue(t, s[0], g, "rt0")
				_, err := exchange(t.Context(), s[0], "client", "rt0", "rt1")
				want(t, "the first use", err, nil)
				reuse(t, s[1], c)
				_, err = exchange(t.Context(), s[0], "client", "rt0", "rt3")
				want(t, "the reuse", err, ErrReused)
				for _, token := range []string{"rt0", "rt1"} {
					_, err := exchange(t.Context(), s[1], "client", token, "rt4")
					want(t, token+" after the reuse", err, ErrRevoked)
					_, err = s[1].Access(t.Context(), "sig-at-"+token)
					want(t, "the access token with "+token, err, ErrRevoked)
				}
				if g, err := s[1].Grant(t.Context(), g.ID); err != ErrRevoked || g.Reason != "refresh_reuse" {
					t.Errorf("the grant: %q, %v; want it revoked for the reuse", g.Reason, err)
				}
				if ids, err := s[1].RevokedSince(t.Context(), c.now().Add(-10*time.Second)); err != nil ||
					!slices.Equal(ids, []string{g.ID}) {
					t.Errorf("RevokedSince = %q, %v; want the grant", ids, err)
				}
				if e, err := s[1].Events(t.Context(), 10); err != nil || len(e) != 1 || e[0].Event != "refresh_reuse" ||
					e[0].ClientID != "client" {
					t.Errorf("Events = %+v, %v; want the reuse", e, err)
				}
			})
		})
	}
}

func TestRefreshRefused(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := mustOpen(t, d, c.now), t.Context()
		g := mustGrant(t, s, "ann")
		mustIssue(t, s, g, "rt0")

		_, err := exchange(ctx, s, "client", "nonsense", "x")
		want(t, "an unknown token", err, ErrNotFound)
		_, err = exchange(ctx, s, "client", "at-rt0", "x")
		want(t, "an access token", err, ErrNotFound)
		_, err = exchange(ctx, s, "other client", "rt0", "x")
		want(t, "another client", err, ErrNotFound)

		// A failure is rolled back, and the token stays valid.
		broken := errors.New("broken")
		_, err = s.Refresh(ctx, Presented{Token: "rt0", Signature: "sig-rt0", ClientID: "client",
			Interval: time.Minute}, func(ctx context.Context, _ Token, g Grant) (Successor, error) {
			if _, err := issue(ctx, s, g, "rt1"); err != nil {
				return Successor{}, err
			}
			return Successor{}, broken
		})
		want(t, "a failure", err, broken)
		_, err = s.Token(ctx, RefreshToken, "sig-rt1")
		want(t, "what the failure made", err, ErrNotFound)

		answer, err := exchange(ctx, s, "client", "rt0", "rt1")
		want(t, "its own client", err, nil)
		_, err = exchange(ctx, s, "other client", "rt0", "x")
		want(t, "another client with a rotated token", err, ErrNotFound)
		if again, err := exchange(ctx, s, "client", "rt0", "x"); err != nil || again != answer {
			t.Errorf("its own client again: %q, %v; want %q", again, err, answer)
		}
		// Write access to the database does not allow to move one token's answer to another token.
		_, err = s.exec(ctx,
			`UPDATE oauth_tokens SET state = 'rotated', rotated_at = $1, successor = 'sig-rt1', replay_enc = (SELECT replay_enc FROM oauth_tokens WHERE signature = 'sig-rt0')
			WHERE signature = 'sig-rt1'`, seconds(c.now()))
		want(t, "UPDATE", err, nil)
		mustIssue(t, s, g, "rt4")
		_, err = s.exec(ctx, `UPDATE oauth_tokens SET successor = 'sig-rt4' WHERE signature = 'sig-rt1'`)
		want(t, "UPDATE", err, nil)
		_, err = exchange(ctx, s, "client", "rt1", "x")
		want(t, "an answer that was moved to another token", err, ErrChanged)

		mustIssue(t, s, g, "rt5")
		c.pass(30 * 24 * time.Hour)
		_, err = exchange(ctx, s, "client", "rt5", "x")
		want(t, "a token that has expired", err, ErrExpired)
		mustIssue(t, s, g, "rt6")
		_, err = s.DisableUser(ctx, g.User, "test")
		want(t, "DisableUser", err, nil)
		_, err = exchange(ctx, s, "client", "rt6", "x")
		want(t, "a disabled user", err, ErrRevoked)
		c.pass(60 * 24 * time.Hour)
		g2 := mustGrant(t, s, "bob")
		c.pass(89 * 24 * time.Hour)
		mustIssue(t, s, g2, "rt7")
		c.pass(24 * time.Hour) // the token has 29 days left, its grant none
		_, err = exchange(ctx, s, "client", "rt7", "x")
		want(t, "a grant that has expired", err, ErrExpired)
	})
}

func TestOneTimeRowsAreUsedOnce(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		c := newClock()
		s, ctx := replicas(t, d, c.now), t.Context()
		g := mustGrant(t, s[0], "ann")
		other := mustGrant(t, s[0], "cid")
		soon := c.now().Add(time.Minute)
		once := map[string]struct {
			other error
			f     func(s *Store) error
		}{
			"UseCode": {ErrUsed, func(s *Store) error { return s.UseCode(ctx, "code") }},
			"Code and UseCode in a transaction": {ErrUsed, func(s *Store) error {
				return s.WithTx(ctx, func(ctx context.Context) error {
					if _, err := s.Code(ctx, "code2"); err != nil {
						return err
					}
					return s.UseCode(ctx, "code2")
				})
			}},
			"TakePKCE": {ErrNotFound, func(s *Store) error { _, err := s.TakePKCE(ctx, "code"); return err }},
			"UseAssertion": {ErrUsed,
				func(s *Store) error { return s.UseAssertion(ctx, "https://client.example", "jti", soon) }},
			"ApproveAuthRequest": {ErrUsed, func(s *Store) error {
				_, err := s.ApproveAuthRequest(ctx, "request", "binding",
					Approval{IDP: "idp", State: "state", Nonce: "nonce", Verifier: "canary-verifier"})
				return err
			}},
			"ConsumeAuthRequest": {ErrUsed,
				func(s *Store) error { _, err := s.ConsumeAuthRequest(ctx, "idp", "state2", "binding"); return err }},
			"ConsumeApproved": {ErrUsed,
				func(s *Store) error { _, err := s.ConsumeApproved(ctx, "request3", "binding"); return err }},
			"ClaimIDPSession": {ErrUsed,
				func(s *Store) error { _, err := s.ClaimIDPSession(ctx, g.IDPSession, time.Minute); return err }},
			"RevokeGrant": {ErrRevoked, func(s *Store) error {
				stood, err := s.RevokeGrant(ctx, other.ID, "test")
				if err == nil && !stood {
					err = ErrRevoked
				}
				return err
			}},
		}
		for _, code := range []string{"code", "code2"} {
			want(t, "AddCode", s[0].AddCode(ctx,
				Code{Signature: code, Grant: g.ID, RequestID: "r", Request: []byte("{}"), Expires: soon}), nil)
		}
		want(t, "AddPKCE", s[0].AddPKCE(ctx, "code", []byte("challenge"), soon), nil)
		for _, id := range []string{"request", "request2", "request3"} {
			want(t, "AddAuthRequest",
				s[0].AddAuthRequest(ctx, id, "binding", AuthRequest{Purpose: "authorize", Expires: soon}), nil)
		}
		_, err := s[0].ApproveAuthRequest(ctx, "request2", "binding", Approval{IDP: "idp", State: "state2"})
		want(t, "ApproveAuthRequest", err, nil)
		_, err = s[0].ApproveAuthRequest(ctx, "request3", "binding", Approval{})
		want(t, "ApproveAuthRequest", err, nil)
		for name, o := range once {
			if n := parallel(t, 20, o.other, func(i int) error { return o.f(s[i%2]) }); n != 1 {
				t.Errorf("%s: %d of 20 at once succeeded, want 1", name, n)
			}
		}
		g = mustGrant(t, s[0], "bob")
		want(t, "AddCode", s[0].AddCode(ctx, Code{Signature: "code3", Grant: g.ID, Expires: soon}), nil)
		c.pass(time.Minute)
		_, err = s[0].Code(ctx, "code3")
		want(t, "a code after its time", err, ErrExpired)
	})
}
