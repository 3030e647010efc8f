package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"junction/auth/authtest"
)

// addMember adds the row of a living process with an address and a description.
func addMember(t *testing.T, s *Store, address, shared string) {
	t.Helper()
	_, err := s.exec(t.Context(), `INSERT INTO members VALUES ($1, $1, '', $2, '', 1767225600000000,
		(extract(epoch FROM statement_timestamp() + interval '1 hour') * 1000000)::bigint)`, address, shared)
	want(t, "INSERT", err, nil)
}

// TestReencryptAsksMembers: a rotation of the master key changes nothing while a living process does not
// encrypt with the first key, and names each such process. Afterwards a process without that key may not
// join.
func TestReencryptAsksMembers(t *testing.T) {
	ctx, d := t.Context(), mustLoadPostgres(t, Latest())
	open := func(ids ...string) *Store {
		c := d.config(t)
		c.Keys, c.Attach, c.Log = mustRing(t, ids...), true, authtest.Log(t)
		return mustOpenConfig(t, c)
	}
	old, both := open("a"), open("b", "a")
	prints := func(ids ...string) string {
		return fmt.Sprintf("~schema=%d %s=%s auth=00", Latest(), MasterKeys, strings.Join(mustRing(t, ids...).Prints(), ","))
	}
	before, err := both.texts(ctx, `SELECT encode(secret_enc, 'hex') FROM canary`)
	want(t, "SELECT", err, nil)

	addMember(t, old, "10.0.0.1:8422", prints("b", "a"))
	addMember(t, old, "10.0.0.2:8422", prints("a"))
	addMember(t, old, "10.0.0.3:8422", prints("a", "b"))
	addMember(t, old, "10.0.0.4:8422", fmt.Sprintf("~schema=%d auth=00", Latest()))
	addMember(t, old, "10.0.0.5:8422", strings.Replace(prints("a"), MasterKeys+"=a:", MasterKeys+"=b:", 1))
	addMember(t, old, "10.0.0.6:8422", prints("a"))
	_, err = old.exec(ctx, `UPDATE members SET expires_at = begun_at WHERE address = '10.0.0.6:8422'`)
	want(t, "UPDATE", err, nil)
	_, err = both.Reencrypt(ctx)
	want(t, "Reencrypt", err, ErrMembers)
	for _, says := range []string{"the first master key is b here",
		"10.0.0.2:8422 (since 2026-01-01T00:00:00Z; it does not know the key)",
		"10.0.0.3:8422 (since 2026-01-01T00:00:00Z; it encrypts with a)",
		"10.0.0.4:8422 (since 2026-01-01T00:00:00Z; its version does not say which keys it has)",
		"10.0.0.5:8422 (since 2026-01-01T00:00:00Z; it does not know the key)"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("the error is %q, want %q in it", err, says)
		}
	}
	for _, address := range []string{"10.0.0.1", "10.0.0.6"} {
		if strings.Contains(err.Error(), address) {
			t.Errorf("the error names %s, which knows the key or has ended: %q", address, err)
		}
	}
	after, err := both.texts(ctx, `SELECT encode(secret_enc, 'hex') FROM canary`)
	if want(t, "SELECT", err, nil); !slices.Equal(before, after) {
		t.Error("what was refused has sealed the canary anew")
	}
	_, err = old.Reencrypt(ctx) // with the only key, which all have: there is nothing to do
	want(t, "Reencrypt with one key", err, nil)
	want(t, "MayJoin before the rotation", old.MayJoin(ctx), nil)

	_, err = old.exec(ctx, `DELETE FROM members WHERE address <> '10.0.0.1:8422'`)
	want(t, "DELETE", err, nil)
	r, err := both.Reencrypt(ctx)
	if err != nil || r.Values == 0 || r.Rows == 0 {
		t.Errorf("Reencrypt = %+v, %v", r, err)
	}
	want(t, "MayJoin after the rotation", old.MayJoin(ctx), ErrKeys)
	want(t, "MayJoin with the new key", both.MayJoin(ctx), nil)
}

// TestReencryptKeepsOthersFromJoining: a process that joins at the same time is seen by the rotation.
func TestReencryptKeepsOthersFromJoining(t *testing.T) {
	ctx, d := t.Context(), mustLoadPostgres(t, Latest())
	c := d.config(t)
	c.Keys, c.Attach = mustRing(t, "b", "a"), true
	s := mustOpenConfig(t, c)
	joining, result := mustHoldJoining(t, s), make(chan error, 1)
	go func() {
		_, err := s.Reencrypt(ctx)
		result <- err
	}()
	mustWaitForJoining(t, joining, result)
	_, err := joining.Exec(`INSERT INTO members VALUES ('a', '10.0.0.7:8422', '', '~schema=2', '', 0,
		(extract(epoch FROM statement_timestamp() + interval '1 hour') * 1000000)::bigint)`)
	want(t, "INSERT", err, nil)
	want(t, "Commit", joining.Commit(), nil)
	want(t, "Reencrypt", <-result, ErrMembers)
}
