package authserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"junction/auth"
	"junction/auth/authserver/provider"
	"junction/auth/store"
	"junction/upstream/prose"
)

// refresh exchanges a refresh token for its successor. store.Refresh makes sure that this happens
// once, and that a client which lost the answer gets the same answer again.
func (srv *Server) refresh(r *http.Request, c *client, q url.Values) ([]byte, error) {
	ctx := r.Context()
	invalid := bad("invalid_grant", "the refresh token is invalid or expired")
	signature, ok := srv.minter.signature(q.Get("refresh_token"), refreshPrefix)
	if !ok {
		return nil, invalid
	}
	t, err := srv.store.Token(ctx, store.RefreshToken, signature)
	if err != nil && !isOver(err) {
		return nil, err
	}
	if err == nil {
		g, err := srv.store.Grant(ctx, t.Grant)
		if err != nil && !isOver(err) {
			return nil, err
		}
		if err == nil && g.ClientID == c.ID {
			err := srv.recheckSession(ctx, g.IDPSession, c.ID)
			if isOver(err) {
				err = cmp.Or(srv.endWithSession(ctx, g), error(invalid))
			}
			if err != nil {
				return nil, err
			}
		}
	}
	by := callerOf(ctx)
	body, err := srv.store.Refresh(ctx, store.Presented{
		Token: q.Get("refresh_token"), Signature: signature, Grant: srv.minter.grant(q.Get("refresh_token")),
		ClientID: c.ID, Interval: srv.reuseInterval(t),
		Address: by.address, RequestID: by.request, TraceID: by.trace,
	}, func(ctx context.Context, t store.Token, g store.Grant) (store.Successor, error) {
		if resource := q.Get("resource"); resource != "" && srv.resource(resource) != g.Resource {
			return store.Successor{}, bad("invalid_target", "the refresh token is for the resource %s", g.Resource)
		}
		var narrow []string
		if asked := strings.Fields(q.Get("scope")); len(asked) > 0 {
			granted := strings.Fields(g.Scope)
			// A request for offline_access changes nothing, so it is accepted.
			asked = slices.DeleteFunc(asked,
				func(scope string) bool { return scope == scopeOffline && !slices.Contains(granted, scopeOffline) })
			if !subset(asked, granted) {
				return store.Successor{}, bad("invalid_scope", "the user has allowed only the scope %s", g.Scope)
			}
			narrow = asked
		}
		rec, err := readRecord(t.Request, g)
		if err != nil {
			return store.Successor{}, err
		}
		for _, scope := range rec.Scopes {
			if !slices.Contains(srv.scopes, scope) {
				if err := srv.decided(keyScopes); err != nil {
					return store.Successor{}, err
				}
				return store.Successor{}, bad("invalid_scope", "this server no longer has the scope %s", scope)
			}
		}
		return srv.addTokens(ctx, g, rec, narrow)
	})
	if errors.Is(err, store.ErrReused) {
		grant := cmp.Or(t.Grant, srv.minter.grant(q.Get("refresh_token")))
		srv.log.Warn("a refresh token was reused; its grant has ended", "client", prose.ASCII(c.ID, 64), "grant", grant)
		srv.grantsEnded(grant)
		return nil, invalid
	}
	if err != nil {
		return nil, toldIfOver(err, invalid)
	}
	_ = srv.store.TouchGrant(ctx, t.Grant) // only the time of use is lost
	return body, nil
}

// reuseInterval returns how long a refresh token gets its answer again, as it was when the token was made.
func (srv *Server) reuseInterval(t store.Token) time.Duration {
	var rec record
	if json.Unmarshal(t.Request, &rec) == nil && rec.ReuseInterval != nil {
		return min(*rec.ReuseInterval, maxReuseInterval) // the row of a used token has no code
	}
	return *srv.tokens.ReuseInterval // a token of a version that has not stored it
}

const (
	recheckAfter   = time.Minute      // how long the provider's last answer is trusted
	recheckTimeout = 30 * time.Second // for one request to the provider
)

// recheckSession asks the provider whether the user of a session may still sign in, and which groups
// they have; at most once a minute. client is the app that needs to know. If the error satisfies isOver,
// the session has ended, before or now, or is missing. Another error means that the provider cannot be
// reached, and that the outage has lasted too long to go on, or that another process may have another rule.
func (srv *Server) recheckSession(ctx context.Context, of, client string) error {
	// A client that disconnects must not interrupt this: a provider that rotates its refresh tokens
	// sends the new one only once.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recheckTimeout)
	defer cancel()
	session, err := srv.store.IDPSession(ctx, of)
	if err != nil {
		return err
	}
	now := srv.now()
	if session.RefreshToken == "" {
		if now.Before(session.OKUntil) {
			return nil
		}
		return srv.endSession(ctx, session, client, &provider.EndedError{Code: "idp_cannot_be_asked"})
	}
	if now.Before(session.Checked.Add(recheckAfter)) {
		return nil
	}
	p, rules := srv.provider(session.IDP), keyProviders+"."+session.IDP
	if p == nil {
		if err := srv.decided(rules); err != nil {
			return err
		}
		return srv.endSession(ctx, session, client, &provider.EndedError{Code: "idp_removed"})
	}
	session, err = srv.store.ClaimIDPSession(ctx, session.ID, recheckTimeout)
	switch {
	case errors.Is(err, store.ErrUsed) && now.Before(session.OKUntil):
		return nil // another request asks; the last result holds meanwhile
	case errors.Is(err, store.ErrUsed):
		return errors.New("another request is asking the provider")
	case err != nil:
		return err
	}
	user, err := srv.store.User(ctx, session.User)
	if err != nil {
		return err
	}
	id, refreshToken, err := p.Renew(ctx, session.RefreshToken, user.Subject)
	ended, isEnded := errors.AsType[*provider.EndedError](err)
	undecided := srv.decided(rules)
	if isEnded && undecided == nil {
		return srv.endSession(ctx, session, client, ended)
	}
	if err != nil {
		// the provider may have replaced the token before it failed
		session.RefreshToken = cmp.Or(refreshToken, session.RefreshToken)
		srv.log.Warn("cannot ask the provider whether a user may still sign in",
			refusal(p, err, "good until", session.OKUntil)...)
		if release := srv.store.UpdateIDPSession(ctx, session); release != nil && !isOver(release) {
			return release
		}
		if isEnded {
			return undecided
		}
		if now.Before(session.OKUntil) {
			return nil
		}
		return err
	}
	claims, err := claimsOf(p, id)
	if err != nil {
		return err
	}
	session.RefreshToken, session.Claims, session.Checked, session.OKUntil = refreshToken, claims, now,
		now.Add(srv.tokens.IDPOutageGrace)
	err = srv.store.WithTx(ctx, func(ctx context.Context) error {
		if _, err := srv.store.PutUser(ctx, store.User{Issuer: user.Issuer, Subject: user.Subject, Email: id.Email,
			Display: cleanName(id.Display), Claims: claims}); err != nil {
			return err
		}
		return srv.store.UpdateIDPSession(ctx, session)
	})
	srv.dropUser(auth.UserID(user.Issuer, user.Subject)) // the cache has the old groups
	if lost := lostGroups(srv.groups(user.Claims), id.Groups); err == nil && lost != "" {
		srv.audit(ctx, "groups_lost", user.ID, client, session.IDP+": "+lost,
			"subject", prose.ASCII(user.Subject, 64))
	}
	return err
}

// endSession ends a session that the provider no longer confirms, and says whose it was and why. client
// is the app whose request has found out. It returns store.ErrRevoked, or why the session goes on.
func (srv *Server) endSession(
	ctx context.Context, session store.IDPSession, client string, why *provider.EndedError,
) error {
	ended, err := srv.store.EndIDPSession(ctx, session.ID, why.Code)
	if err != nil {
		return err
	}
	srv.grantsEnded(ended...)
	subject := "" // only for the log
	if user, err := srv.store.User(ctx, session.User); err == nil {
		subject = prose.ASCII(user.Subject, 64)
	}
	srv.audit(ctx, "idp_session_ended", session.User, client, session.IDP+": "+why.Reason(),
		"subject", subject, "code", why.Code, "grants", len(ended))
	return store.ErrRevoked
}

// endWithSession ends a grant whose session is over. Junction ends both together and keeps the row of the
// session for as long as a grant has it, so a grant that still stands shows that another program has ended
// or deleted the session.
func (srv *Server) endWithSession(ctx context.Context, g store.Grant) error {
	stood, err := srv.store.RevokeGrant(ctx, g.ID, "idp_session_missing")
	if err != nil || !stood {
		return err
	}
	srv.grantsEnded(g.ID)
	srv.audit(ctx, "idp_session_ended", g.User, g.ClientID, "the session is missing in the database",
		"code", "idp_session_missing", "grants", 1)
	return nil
}

// lostGroups returns the groups that a user has no more, in one line of bounded length.
func lostGroups(before, now []string) string {
	lost := slices.DeleteFunc(slices.Clone(before), func(group string) bool { return slices.Contains(now, group) })
	const most = 5
	shown := make([]string, 0, most)
	for _, group := range lost[:min(len(lost), most)] {
		shown = append(shown, prose.ASCII(group, 40))
	}
	text := strings.Join(shown, ", ")
	if more := len(lost) - len(shown); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}
