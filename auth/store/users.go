package store

import (
	"context"
	"errors"
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

func (u *User) free() []string { return []string{"last_seen_at"} }

func (u *User) ended() bool { return false }

// PutUser inserts or updates a user who has signed in, by Issuer and Subject, and returns the row.
// It ignores ID, Created and Disabled.
func (s *Store) PutUser(ctx context.Context, u User) (User, error) {
	now := s.now()
	u.ID, u.Created, u.Seen, u.Disabled = NewID(), now, now, time.Time{}
	statement, args := s.insertion(&u)
	err := s.WithTx(ctx, func(ctx context.Context) error {
		n, err := s.exec(ctx, statement+` ON CONFLICT (issuer, subject) DO NOTHING`, args...)
		if err != nil || n > 0 {
			return err
		}
		known, err := s.userToChange(ctx, `WHERE issuer = $1 AND subject = $2`, u.Issuer, u.Subject)
		if err == nil {
			err = sameRow("users", known.Issuer, u.Issuer, known.Subject, u.Subject)
		}
		if err != nil {
			return err
		}
		known.Email, known.Display, known.Claims, known.Seen = u.Email, u.Display, u.Claims, u.Seen
		u = known
		return s.put(ctx, &u, "id", u.ID)
	})
	if err != nil {
		return User{}, err
	}
	return u, nil
}

// userToChange returns a user whose row the transaction will change. The lock is as weak as the lock of
// an UPDATE: other transactions may add rows that refer to the user.
func (s *Store) userToChange(ctx context.Context, where string, args ...any) (u User, err error) {
	lock := ""
	if s.postgres {
		lock = " FOR NO KEY UPDATE"
	}
	err = s.find(ctx, into{&u}, where+lock, args...)
	return u, err
}

// operatorIssuer is the issuer of the operator's own row, which is not a person.
const operatorIssuer = "urn:junction:operator"

// Operator returns the user whose connections to upstreams all callers share. Users does not list
// this user.
func (s *Store) Operator(ctx context.Context) (User, error) {
	return s.PutUser(ctx, User{Issuer: operatorIssuer, Subject: "operator"})
}

// Holder returns the user who has the connections of a principal that is no person, such as key:ci. Users does
// not list this user.
func (s *Store) Holder(ctx context.Context, principal string) (User, error) {
	return s.PutUser(ctx, User{Issuer: operatorIssuer, Subject: principal})
}

// User returns the user with an id. In a transaction the row is locked.
func (s *Store) User(ctx context.Context, id string) (u User, err error) {
	err = s.find(ctx, into{&u}, `WHERE id = $1`+s.lock(ctx), id)
	if err == nil {
		err = sameRow("users", u.ID, id)
	}
	return u, err
}

// unlocked is User without a lock.
func (s *Store) unlocked(ctx context.Context, id string) (u User, err error) {
	err = s.find(ctx, into{&u}, `WHERE id = $1`, id)
	if err == nil {
		err = sameRow("users", u.ID, id)
	}
	return u, err
}

// Users returns the users with an e-mail address, or all if it is "", the last seen first. Several
// users may have one address.
func (s *Store) Users(ctx context.Context, email string) ([]User, error) {
	return list[User](ctx, s, `WHERE issuer <> '`+operatorIssuer+
		`' AND ($1 = '' OR lower(email) = lower($1)) ORDER BY last_seen_at DESC, id`, email)
}

// DisabledUsers returns the disabled users. Nothing verifies the rows: a program that can write to the
// database can delete such a row, too.
func (s *Store) DisabledUsers(ctx context.Context) ([]User, error) {
	return list[User](ctx, s, `WHERE disabled_at <> 0`)
}

// DisableUser disables a user, and ends all their sessions, grants and connections to upstreams.
// For a disabled user it ends what is left. ErrNotFound means that there is no such user.
func (s *Store) DisableUser(ctx context.Context, id, why string) (ended Ended, err error) {
	err = s.WithTx(ctx, func(ctx context.Context) error {
		u, err := s.userToChange(ctx, `WHERE id = $1`, id)
		switch {
		case errors.Is(err, ErrChanged): // it stays unusable, and shows people that it is disabled
			err = s.only(ctx, `UPDATE users SET disabled_at = $2, mac = NULL WHERE id = $1`, id, seconds(s.now()))
		case err == nil && u.Disabled.IsZero():
			u.Disabled = s.now()
			err = s.put(ctx, &u, "id", id)
		}
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
	return s.WithTx(ctx, func(ctx context.Context) error {
		u, err := s.userToChange(ctx, `WHERE id = $1`, id)
		if err == nil && u.Disabled.IsZero() {
			err = ErrNotFound
		}
		if err != nil {
			return err
		}
		u.Disabled = time.Time{}
		return s.put(ctx, &u, "id", id)
	})
}
