package store

import (
	"errors"
	"testing"
	"time"
)

// TestRowsOfOtherTypesAreChangedRows: SQLite stores a text in a column of numbers. Such a row is a
// changed row like others: it does not keep the operator from ending it, listing and checking the
// others, and replacing the master key.
func TestRowsOfOtherTypesAreChangedRows(t *testing.T) {
	run(t, func(t *testing.T, d database) {
		if d.driver != SQLite {
			t.Skip("Postgres stores no value of another type")
		}
		s, ctx := mustOpenUnswept(t, d, newClock().now), t.Context()
		ann := mustOwn(t, s, "ann")
		mustOwn(t, s, "bob")
		i := mustIntrude(t, d)
		for _, table := range boundRows {
			r := table.blank()
			for _, f := range columnsOf(r) {
				switch f.value.(type) {
				case *time.Time, *int64:
				default:
					continue
				}
				for _, other := range []any{"another", 1.5, []byte("5")} {
					i.during(t, r.table(), table.key, ann.keys[r.table()], f.column, other, func() {
						if got, err := ann.gives(t, s, r.table()); got != "" || !errors.Is(err, ErrChanged) && !over(err) {
							t.Errorf("%s.%s = %q: the row gives %q, %v", r.table(), f.column, other, got, err)
						}
						if n := problems(t, d); n != 1 {
							t.Errorf("%s.%s = %q: Check finds %d problems, want 1", r.table(), f.column, other, n)
						}
					})
				}
			}
		}
		i.must(t, `UPDATE users SET created_at = 'another' WHERE id = $1`, ann.keys["users"])
		i.must(t, `UPDATE grants SET expires_at = 'another' WHERE id = $1`, ann.keys["grants"])
		i.must(t, `UPDATE idp_sessions SET ok_until = 'another' WHERE id = $1`, ann.keys["idp_sessions"])
		if r, err := s.Reencrypt(ctx); err != nil || r.Changed != 3 {
			t.Errorf("Reencrypt = %+v, %v; want three changed rows", r, err)
		}
		if all, err := s.Users(ctx, ""); err != nil || len(all) != 2 {
			t.Errorf("Users = %+v, %v; want both", all, err)
		}
		if all, err := s.Grants(ctx, GrantFilter{}); err != nil || len(all) != 2 {
			t.Errorf("Grants = %+v, %v; want both", all, err)
		}
		if allowed, err := s.ClientAllowed(ctx, "client of ann"); allowed || err != nil {
			t.Errorf("ClientAllowed = %v, %v; a changed grant does not count", allowed, err)
		}
		ended, err := s.DisableUser(ctx, ann.keys["users"], "test")
		if err != nil || len(ended.Grants) != 1 || ended.Sessions != 1 {
			t.Errorf("DisableUser = %+v, %v", ended, err)
		}
	})
}
