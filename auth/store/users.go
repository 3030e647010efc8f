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

func (u *User) table() string { return "users" }

func (u *User) fields() []field {
	return []field{{"id", &u.ID}, {"issuer", &u.Issuer}, {"subject", &u.Subject}, {"email", &u.Email},
		{"display", &u.Display}, {"claims", &u.Claims}, {"created_at", &u.Created}, {"last_seen_at", &u.Seen},
		{"disabled_at", &u.Disabled}}
}

// PutUser inserts or updates a user who has signed in, by Issuer and Subject, and returns the row.
// It ignores ID, Created and Disabled.
func (s *Store) PutUser(ctx context.Context, u User) (User, error) {
	now := s.now()
	u.ID, u.Created, u.Seen, u.Disabled = NewID(), now, now, time.Time{}
	statement, args := s.insertion(&u)
	err := s.change(ctx, &u, statement+` ON CONFLICT (issuer, subject) DO UPDATE SET email = excluded.email,
		display = excluded.display, claims = excluded.claims, last_seen_at = excluded.last_seen_at`, args...)
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
	err = s.find(ctx, into{&u}, `WHERE id = $1`+s.lock(ctx), id)
	return u, err
}

// unlocked is User without a lock.
func (s *Store) unlocked(ctx context.Context, id string) (u User, err error) {
	err = s.find(ctx, into{&u}, `WHERE id = $1`, id)
	return u, err
}

// Users returns the users with an e-mail address, or all if it is "", the last seen first. Several
// users may have one address.
func (s *Store) Users(ctx context.Context, email string) ([]User, error) {
	return list[User](ctx, s, `WHERE issuer <> '`+operatorIssuer+
		`' AND ($1 = '' OR lower(email) = lower($1)) ORDER BY last_seen_at DESC, id`, email)
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
