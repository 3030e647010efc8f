package store

import (
	"context"
	"time"
)

// User is a person. Issuer and Subject together identify them; the e-mail address does not.
type User struct {
	ID              string // set by PutUser
	Issuer, Subject string
	Email, Display  string
	Claims          []byte // JSON of the last sign-in or refresh
	Created, Seen   time.Time
	Disabled        time.Time // zero if the user may sign in
}

const userColumns = "users.id, users.issuer, users.subject, users.email, users.display, users.claims, " +
	"users.created_at, users.last_seen_at, users.disabled_at"

func (u *User) fields() []any {
	return []any{&u.ID, &u.Issuer, &u.Subject, &u.Email, &u.Display, &u.Claims, moment{&u.Created}, moment{&u.Seen},
		moment{&u.Disabled}}
}

// PutUser inserts or updates a user who has signed in, by Issuer and Subject, and returns the row.
// It ignores ID, Created and Disabled.
func (s *Store) PutUser(ctx context.Context, u User) (User, error) {
	now := seconds(s.now())
	err := s.change(ctx, func(row scanner) error { return row.Scan(u.fields()...) },
		`INSERT INTO users (id, issuer, subject, email, display, claims, created_at, last_seen_at, disabled_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $7, 0)
		ON CONFLICT (issuer, subject) DO UPDATE SET email = excluded.email, display = excluded.display,
		claims = excluded.claims, last_seen_at = excluded.last_seen_at
		RETURNING `+userColumns, NewID(), u.Issuer, u.Subject, u.Email, u.Display, u.Claims, now)
	return u, err
}

// operatorIssuer is the issuer of the operator's own row, which is not a person.
const operatorIssuer = "urn:junction:operator"

// Operator returns the user whose connections to upstreams all callers share. Users does not list
// this user.
func (s *Store) Operator(ctx context.Context) (User, error) {
	return s.PutUser(ctx, User{Issuer: operatorIssuer, Subject: "operator"})
}

// User returns the user with an id. In a transaction the row is locked.
func (s *Store) User(ctx context.Context, id string) (u User, err error) {
	return s.userRow(ctx, id, s.lock(ctx))
}

// user is User without a lock.
func (s *Store) user(ctx context.Context, id string) (u User, err error) {
	return s.userRow(ctx, id, "")
}

func (s *Store) userRow(ctx context.Context, id, lock string) (u User, err error) {
	err = s.get(ctx, func(row scanner) error { return row.Scan(u.fields()...) },
		`SELECT `+userColumns+` FROM users WHERE id = $1`+lock, id)
	return u, err
}

// Users returns the users with an e-mail address, or all if it is "", the last seen first. Several
// users may have one address.
func (s *Store) Users(ctx context.Context, email string) (all []User, err error) {
	err = s.all(ctx, func(row scanner) error {
		var u User
		err := row.Scan(u.fields()...)
		all = append(all, u)
		return err
	}, `SELECT `+userColumns+` FROM users WHERE issuer <> '`+operatorIssuer+
		`' AND ($1 = '' OR lower(email) = lower($1)) ORDER BY last_seen_at DESC, id`, email)
	return all, err
}

// DisableUser disables a user, and ends all their sessions, grants and connections to upstreams.
// For a disabled user it ends what is left. ErrNotFound means that there is no such user.
func (s *Store) DisableUser(ctx context.Context, id, why string) (ended Ended, err error) {
	err = s.WithTx(ctx, func(ctx context.Context) error {
		err := s.only(ctx,
			`UPDATE users SET disabled_at = CASE WHEN disabled_at = 0 THEN CAST($2 AS BIGINT) ELSE disabled_at END
				WHERE id = $1`, id, seconds(s.now()))
		if err != nil {
			return err
		}
		if ended, err = s.SignOut(ctx, id, why); err != nil {
			return err
		}
		_, err = s.exec(ctx, `DELETE FROM upstream_tokens WHERE owner = $1`, id)
		return err
	})
	return ended, err
}

// EnableUser allows a disabled user to sign in again. ErrNotFound means that the user was not
// disabled.
func (s *Store) EnableUser(ctx context.Context, id string) error {
	return s.only(ctx, `UPDATE users SET disabled_at = 0 WHERE id = $1 AND disabled_at > 0`, id)
}
