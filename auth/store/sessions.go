package store

import (
	"context"
	"fmt"
	"time"
)

// IDPSession is a user's session at an identity provider.
type IDPSession struct {
	ID           string // set by AddIDPSession
	User         string // User.ID
	IDP          string // the provider's id in the configuration
	Sub, SID     string // claims of the ID token, by which the provider ends the session; may be ""
	RefreshToken string // sealed in the store; "" if the provider gave none
	Claims       []byte // JSON
	Created      time.Time
	Checked      time.Time // last confirmation by the provider
	OKUntil      time.Time // end of validity without another confirmation
	Ended        time.Time // zero while it stands

	claimed time.Time // until when one caller alone asks the provider; see ClaimIDPSession
}

func (i *IDPSession) table() string { return "idp_sessions" }

func (i *IDPSession) fields() []field {
	return []field{{"id", &i.ID}, {"user_id", &i.User}, {"idp", &i.IDP}, {"sub", &i.Sub}, {"sid", &i.SID},
		{"claims", &i.Claims}, {"created_at", &i.Created}, {"checked_at", &i.Checked}, {"ok_until", &i.OKUntil},
		{"claimed_until", &i.claimed}, {"ended_at", &i.Ended}}
}

func (i *IDPSession) secrets() []field {
	return []field{sealedField("refresh_token_enc", i, &i.RefreshToken)}
}

func (i *IDPSession) free() []string { return nil }

func (i *IDPSession) ended() bool { return !i.Ended.IsZero() }

// AddIDPSession stores a session and returns it with its ID. It ignores Created and Ended.
func (s *Store) AddIDPSession(ctx context.Context, i IDPSession) (IDPSession, error) {
	if i.ID == "" {
		i.ID = NewID()
	}
	i.Created, i.Ended, i.claimed = s.now(), time.Time{}, time.Time{}
	return i, s.insert(ctx, &i)
}

// IDPSession returns the session with an id; ErrRevoked comes with the session if it has ended. In
// a transaction the row is locked.
func (s *Store) IDPSession(ctx context.Context, id string) (i IDPSession, err error) {
	err = s.find(ctx, into{&i}, `WHERE id = $1`+s.lock(ctx), id)
	if err == nil {
		err = sameRow("idp_sessions", i.ID, id)
	}
	if err == nil && !i.Ended.IsZero() {
		err = ErrRevoked
	}
	return i, err
}

// ClaimIDPSession returns a session, and reserves the next query of its provider for the caller.
// Others, also on other replicas, get ErrUsed until d has passed or UpdateIDPSession is called. So
// the provider is queried without an open transaction. ErrNotFound also means that the session has
// ended. The claim is bound to the master keys: another program could keep Junction from asking the
// provider otherwise.
func (s *Store) ClaimIDPSession(ctx context.Context, id string, d time.Duration) (i IDPSession, err error) {
	err = s.WithTx(ctx, func(ctx context.Context) (err error) {
		now := s.now()
		switch i, err = s.IDPSession(ctx, id); {
		case err == ErrRevoked:
			return ErrNotFound
		case err != nil:
			return err
		case seconds(i.claimed) > seconds(now):
			return ErrUsed
		}
		i.claimed = now.Add(d)
		return s.put(ctx, &i, "id", id)
	})
	return i, err
}

// UpdateIDPSession stores RefreshToken, Claims, Checked and OKUntil of a standing session, and
// releases the claim. i must come from this store.
func (s *Store) UpdateIDPSession(ctx context.Context, i IDPSession) error {
	i.Ended, i.claimed = time.Time{}, time.Time{}
	return s.only(ctx,
		`UPDATE idp_sessions SET refresh_token_enc = $2, claims = $3, checked_at = $4, ok_until = $5, mac = $6,
			claimed_until = 0 WHERE id = $1 AND ended_at = 0`,
		i.ID, s.stored(i.secrets()[0].value), i.Claims, seconds(i.Checked), seconds(i.OKUntil), s.sign(&i))
}

// EndIDPSession ends a session, its grants and its web sessions. It returns the ids of the grants
// that it ended.
func (s *Store) EndIDPSession(ctx context.Context, id, why string) (grants []string, err error) {
	_, grants, err = s.endSessions(ctx, `id = $1`, []any{id}, why)
	return grants, err
}

// endSessions ends the sessions of a condition, their grants and web sessions, with a constant number
// of statements, as revoke does. The condition must hold for a session that has ended, too. It returns the
// sessions that stood, the newest first, and the ids of the grants.
func (s *Store) endSessions(ctx context.Context, which string, args []any, why string) (
	ended []IDPSession, grants []string, err error) {
	err = s.WithTx(ctx, func(ctx context.Context) (err error) {
		ended, grants = nil, nil
		of := ` WHERE idp_session_id IN (SELECT id FROM idp_sessions WHERE ` + which + `)`
		// Lock order: a refresh locks its grant before the session.
		if grants, err = s.revoke(ctx, of, args, why); err != nil {
			return err
		}
		// In a fixed order, to avoid deadlocks.
		if ended, err = list[IDPSession](ctx, s, `WHERE ended_at = 0 AND `+which+
			` ORDER BY created_at DESC, id`+s.lock(ctx), args...); err != nil {
			return err
		}
		if _, err := s.exec(ctx, `DELETE FROM web_sessions`+of, args...); err != nil {
			return err
		}
		end := fmt.Sprintf(`UPDATE idp_sessions SET ended_at = $%d, refresh_token_enc = NULL, mac = NULL
			WHERE ended_at = 0 AND `, len(args)+1) + which
		if _, err := s.exec(ctx, end, append(args, seconds(s.now()))...); err != nil {
			return err
		}
		// A transaction that had locked the session may have added a grant in the meantime. No more
		// can follow.
		late, err := s.revoke(ctx, of, args, why)
		grants = append(grants, late...)
		return err
	})
	return ended, grants, err
}

// ProviderLogout is a logout token: the sessions that a provider has ended.
type ProviderLogout struct {
	IDP      string // the provider's id in the configuration
	Sub, SID string // with both, a session must have both; one may be ""
	JTI      string
	Expires  time.Time // after it, the token is not accepted any more
}

// EndAtProvider ends the sessions of a logout token, with their grants and web sessions, and returns the
// sessions and the ids of the grants. ErrUsed means that the token was already used.
func (s *Store) EndAtProvider(ctx context.Context, l ProviderLogout, why string) (
	ended []IDPSession, grants []string, err error) {
	err = s.WithTx(ctx, func(ctx context.Context) error {
		ended, grants = nil, nil
		if l.Sub == "" && l.SID == "" {
			return ErrNotFound
		}
		// A client's issuer is a URL or begins with dcr_, so that no client shares these rows.
		if err := s.UseAssertion(ctx, "idp:"+l.IDP, l.JTI, l.Expires); err != nil {
			return err
		}
		var err error
		ended, grants, err = s.endSessions(ctx, `idp = $1 AND ($2 = '' OR sub = $2) AND ($3 = '' OR sid = $3)`,
			[]any{l.IDP, l.Sub, l.SID}, why)
		return err
	})
	return ended, grants, err
}

// IDPSessions returns the standing sessions of a user, or of all if user is "", the newest first,
// without refresh tokens.
func (s *Store) IDPSessions(ctx context.Context, user string) ([]IDPSession, error) {
	return list[IDPSession](ctx, s,
		`WHERE ended_at = 0 AND ($1 = '' OR user_id = $1) ORDER BY created_at DESC, id`, user)
}

// SessionUses returns how many active grants and how many browsers depend on each session of a user, or
// of all if user is "". A session that has neither is over for the user: only its row is left.
func (s *Store) SessionUses(ctx context.Context, user string) (grants, browsers map[string]int, err error) {
	standing, err := s.Grants(ctx, GrantFilter{User: user, Standing: true})
	if err != nil {
		return nil, nil, err
	}
	windows, err := s.WebSessions(ctx, user)
	if err != nil {
		return nil, nil, err
	}
	grants, browsers = map[string]int{}, map[string]int{}
	for _, g := range standing {
		grants[g.IDPSession]++
	}
	for _, w := range windows {
		browsers[w.IDPSession]++
	}
	return grants, browsers, nil
}

// Ended is the result of SignOut.
type Ended struct {
	Sessions int      // at providers, with their web sessions, that a grant or a browser used before
	Grants   []string // their ids
}

// SignOut ends all sessions and grants of a user, who may sign in again, with a constant number of
// statements.
func (s *Store) SignOut(ctx context.Context, user, why string) (ended Ended, err error) {
	err = s.WithTx(ctx, func(ctx context.Context) error {
		ended = Ended{}
		apps, browsers, err := s.SessionUses(ctx, user)
		if err != nil {
			return err
		}
		// Lock order as in endSessions.
		if ended.Grants, err = s.RevokeGrants(ctx, GrantFilter{User: user}, why); err != nil {
			return err
		}
		sessions, late, err := s.endSessions(ctx, `user_id = $1`, []any{user}, why)
		if err != nil {
			return err
		}
		for _, i := range sessions {
			if apps[i.ID]+browsers[i.ID] > 0 {
				ended.Sessions++
			}
		}
		ended.Grants = append(ended.Grants, late...)
		return s.EndWebSessions(ctx, user)
	})
	return ended, err
}

// WebSession is a browser in which a user has signed in. Only the browser's cookie has its secret.
type WebSession struct {
	User, IDPSession string // their ids
	Created, Expires time.Time

	id string // hash of the secret
}

func (w *WebSession) table() string { return "web_sessions" }

func (w *WebSession) fields() []field {
	return []field{{"id_hash", &w.id}, {"user_id", &w.User}, {"idp_session_id", &w.IDPSession},
		{"created_at", &w.Created},
		{"expires_at", &w.Expires}}
}

func (w *WebSession) free() []string { return nil }

func (w *WebSession) ended() bool { return false }

// AddWebSession stores a session under the hash of its secret. It ignores Created.
func (s *Store) AddWebSession(ctx context.Context, secret string, w WebSession) error {
	w.id, w.Created = hash(secret), s.now()
	return s.insert(ctx, &w)
}

// WebSession returns the session with a secret, and its user. It returns ErrExpired if the session
// has expired, and ErrRevoked if the user is disabled.
func (s *Store) WebSession(ctx context.Context, secret string) (w WebSession, u User, err error) {
	err = s.find(ctx, into{&w, &u}, `JOIN users ON users.id = web_sessions.user_id WHERE id_hash = $1`, hash(secret))
	if err == nil {
		err = sameRow("web_sessions", w.id, hash(secret), w.User, u.ID)
	}
	switch {
	case err != nil:
	case !u.Disabled.IsZero():
		err = ErrRevoked
	case !s.now().Before(w.Expires):
		err = ErrExpired
	}
	return w, u, err
}

// WebSessions returns the unexpired sessions of a user, or of all if user is "", the newest first.
func (s *Store) WebSessions(ctx context.Context, user string) ([]WebSession, error) {
	return list[WebSession](ctx, s,
		`WHERE expires_at > $2 AND ($1 = '' OR user_id = $1) ORDER BY created_at DESC`, user, seconds(s.now()))
}

// EndWebSession deletes the session with a secret. It is no error if there is none.
func (s *Store) EndWebSession(ctx context.Context, secret string) error {
	_, err := s.exec(ctx, `DELETE FROM web_sessions WHERE id_hash = $1`, hash(secret))
	return err
}

// EndWebSessions deletes all web sessions of a user.
func (s *Store) EndWebSessions(ctx context.Context, user string) error {
	_, err := s.exec(ctx, `DELETE FROM web_sessions WHERE user_id = $1`, user)
	return err
}
