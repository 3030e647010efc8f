package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/seal"
)

// live runs a whole sign-in with secrets that contain the word, and returns them.
func live(t *testing.T, s *Store, word string) (secrets []string) {
	t.Helper()
	ctx := t.Context()
	secret := func(name string) string {
		secrets = append(secrets, word+"-"+name)
		return secrets[len(secrets)-1]
	}
	id, binding, state := secret("request"), secret("binding"), secret("state")
	want(t, "AddAuthRequest", s.AddAuthRequest(ctx, id, binding, AuthRequest{Purpose: "authorize", ClientID: "client",
		State: []byte("client's\x00\xff"), Expires: s.now().Add(time.Hour)}), nil)
	_, err := s.ApproveAuthRequest(ctx, id, binding,
		Approval{IDP: "idp", State: state, Nonce: "nonce", Verifier: secret("verifier")})
	want(t, "ApproveAuthRequest", err, nil)
	a, err := s.ConsumeAuthRequest(ctx, "idp", state, binding)
	want(t, "ConsumeAuthRequest", err, nil)
	if a.Verifier != secrets[3] || string(a.State) != "client's\x00\xff" {
		t.Errorf("the request is %+v; want the verifier %q, and the state byte for byte", a, secrets[3])
	}
	u, err := s.PutUser(ctx, User{Issuer: "https://idp.example", Subject: word})
	want(t, "PutUser", err, nil)
	i, err := s.AddIDPSession(ctx, IDPSession{User: u.ID, IDP: "idp", RefreshToken: secret("old-idp-token")})
	want(t, "AddIDPSession", err, nil)
	i.RefreshToken = secret("idp-token")
	want(t, "UpdateIDPSession", s.UpdateIDPSession(ctx, i), nil)
	want(t, "AddWebSession", s.AddWebSession(ctx, secret("cookie"),
		WebSession{User: u.ID, IDPSession: i.ID, Expires: s.now().Add(time.Hour)}), nil)
	want(t, "UseAssertion", s.UseAssertion(ctx, "client", secret("jti"), s.now().Add(time.Hour)), nil)
	want(t, "PutConnection", s.PutConnection(ctx, Connection{Upstream: "linear", User: u.ID,
		Principal: "user:" + word[:3], Access: secret("upstream-at"), Refresh: secret("upstream-rt")}), nil)
	_, err = s.AddUpstreamClient(ctx, UpstreamClient{Upstream: "linear", Issuer: "https://as.example", ClientID: "us",
		Secret: secret("upstream-client")})
	want(t, "AddUpstreamClient", err, nil)
	g, err := s.AddGrant(ctx, Grant{User: u.ID, IDPSession: i.ID, ClientID: "client", Expires: s.now().Add(time.Hour)})
	want(t, "AddGrant", err, nil)
	want(t, "AddToken", s.AddToken(ctx,
		Token{Signature: word[:3] + "sig0", Kind: RefreshToken, Grant: g.ID, Expires: s.now().Add(time.Hour)}), nil)
	_, err = s.Refresh(ctx, Presented{Token: secret("rt"), Signature: word[:3] + "sig0", ClientID: "client",
		Interval: time.Minute}, func(ctx context.Context, _ Token, g Grant) (Successor, error) {
		err := s.AddToken(ctx, Token{Signature: word[:3] + "sig1", Kind: RefreshToken, Grant: g.ID,
			Expires: s.now().Add(time.Hour)})
		return Successor{word[:3] + "sig1", []byte(`{"access_token":"` + secret("at") + `"}`)}, err
	})
	want(t, "Refresh", err, nil)
	return secrets
}

// dump returns the raw content of a database.
func dump(t *testing.T, s *Store, d database) []byte {
	t.Helper()
	var all bytes.Buffer
	if d.driver == SQLite {
		files, err := filepath.Glob(filepath.Join(filepath.Dir(d.dsn), "*"))
		if err != nil || len(files) < 3 {
			t.Fatalf("Glob = %q, %v; want the file, its log and its lease", files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
		return all.Bytes()
	}
	tables, err := s.texts(t.Context(), `SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY table_name`)
	want(t, "tables", err, nil)
	for _, table := range tables {
		rows, err := s.texts(t.Context(), `SELECT `+table+`::text FROM `+table+` ORDER BY 1`)
		want(t, table, err, nil)
		fmt.Fprintln(&all, table, rows)
	}
	return all.Bytes()
}

func TestDatabaseHoldsNoSecrets(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s := mustOpen(t, d, nil)
		secrets := live(t, s, "canary-3f9c1b")
		held := dump(t, s, d)
		if !bytes.Contains(held, []byte("https://idp.example")) {
			t.Fatal("the dump does not hold what is no secret")
		}
		for _, secret := range secrets {
			for _, form := range []string{secret, hex.EncodeToString([]byte(secret)),
				base64.StdEncoding.EncodeToString([]byte(secret)),
				base64.RawURLEncoding.EncodeToString([]byte(secret))} {
				if bytes.Contains(held, []byte(form)) {
					t.Errorf("the database holds %s", form)
				}
			}
		}
	})
}

func TestSwappedSecretsAreRejected(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s, ctx := mustOpen(t, d, nil), t.Context()
		ann, bob := mustGrant(t, s, "ann"), mustGrant(t, s, "bob")
		_, err := s.exec(ctx,
			`UPDATE idp_sessions SET refresh_token_enc = (SELECT refresh_token_enc FROM idp_sessions WHERE id = $1) WHERE id = $2`, ann.IDPSession, bob.IDPSession)
		want(t, "UPDATE", err, nil)
		if i, err := s.IDPSession(ctx, ann.IDPSession); err != nil || i.RefreshToken != "refresh token of ann" {
			t.Errorf("her own: %q, %v", i.RefreshToken, err)
		}
		i, err := s.IDPSession(ctx, bob.IDPSession)
		want(t, "her token in his row", err, seal.ErrInvalid)
		if i.RefreshToken != "" {
			t.Errorf("it opened: %q", i.RefreshToken)
		}
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrRevoked) {
			t.Errorf("%v looks as if the session was over", err)
		}
		want(t, "AddAuthRequest",
			s.AddAuthRequest(ctx, "id", "binding", AuthRequest{Expires: time.Now().Add(time.Hour)}), nil)
		_, err = s.exec(ctx,
			`UPDATE auth_requests SET pkce_enc = (SELECT refresh_token_enc FROM idp_sessions WHERE id = $1)`,
			ann.IDPSession)
		want(t, "UPDATE", err, nil)
		_, err = s.AuthRequest(ctx, "id", "binding")
		want(t, "her token in another table", err, seal.ErrInvalid)
	})
}

func TestReencryptReplacesTheKey(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		open := func(ids ...string) (*Store, error) {
			s, err := Open(t.Context(),
				Config{Driver: d.driver, DSN: d.dsn, Keys: mustRing(t, ids...), Log: authtest.Log(t)})
			if err == nil {
				t.Cleanup(func() { _ = s.Close() })
			}
			return s, err
		}
		s, err := open("a")
		want(t, "the first key", err, nil)
		ann := mustGrant(t, s, "ann")
		want(t, "Close", s.Close(), nil)

		s, err = open("b", "a")
		want(t, "a new key in front", err, nil)
		bob := mustGrant(t, s, "bob")
		n, err := s.Reencrypt(t.Context())
		if err != nil || n != (Reencrypted{Values: 2, Rows: 3}) {
			t.Errorf("Reencrypt = %+v, %v; want her token and the canary, and three rows", n, err)
		}
		if n, err := s.Reencrypt(t.Context()); err != nil || n != (Reencrypted{}) {
			t.Errorf("Reencrypt again = %+v, %v; want nothing", n, err)
		}
		want(t, "Close", s.Close(), nil)

		_, err = open("a")
		want(t, "the old key alone", err, ErrKeys)
		s, err = open("b")
		want(t, "the new key alone", err, nil)
		for id, token := range map[string]string{ann.IDPSession: "refresh token of ann",
			bob.IDPSession: "refresh token of bob"} {
			i, err := s.IDPSession(t.Context(), id)
			if err != nil || i.RefreshToken != token {
				t.Errorf("IDPSession = %q, %v; want %q", i.RefreshToken, err, token)
			}
			if _, err := s.User(t.Context(), i.User); err != nil {
				t.Errorf("User = %v", err)
			}
		}
	})
}

func TestWrongKeyOpensNothing(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		s := mustOpenNow(t, d)
		g := mustGrant(t, s, "ann")
		var before []byte
		if d.driver == Postgres {
			before = dump(t, s, d)
		}
		want(t, "Close", s.Close(), nil)
		if d.driver == SQLite {
			before = mustSum(t, d.dsn)
		}
		for _, keys := range []*seal.Ring{mustRing(t, "b"), mustRing(t, "b", "c"), sameID(t)} {
			_, err := Open(t.Context(), Config{Driver: d.driver, DSN: d.dsn, Keys: keys, Log: authtest.Log(t)})
			want(t, "Open", err, ErrKeys)
			if strings.Contains(err.Error(), "nil") {
				t.Errorf("the error is %q", err)
			}
		}
		var after []byte
		if d.driver == SQLite {
			after = mustSum(t, d.dsn)
		}
		s = mustOpenNow(t, d)
		if d.driver == Postgres {
			after = dump(t, s, d)
		}
		if !bytes.Equal(before, after) {
			t.Error("the wrong key has changed the database")
		}
		if i, err := s.IDPSession(t.Context(), g.IDPSession); err != nil || i.RefreshToken == "" {
			t.Errorf("with the right key again: %+v, %v", i, err)
		}
	})
}

// sameID is another key than mustRing's with the same id.
func sameID(t *testing.T) *seal.Ring {
	t.Helper()
	return seal.RingOf("a", [seal.SecretSize]byte{1})
}

func mustSum(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return sum[:]
}
