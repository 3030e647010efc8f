package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"junction/auth"
	"junction/auth/store"
)

// refresh exchanges a refresh token for its successor. The store sees to it that this happens once,
// that whoever did not hear the answer gets it again, and that nobody else does.
func (srv *Server) refresh(r *http.Request, c *client, q url.Values) ([]byte, error) {
	ctx := r.Context()
	gone := bad("invalid_grant", "the refresh token is not good, or not any more")
	signature, ok := srv.minter.signature(q.Get("refresh_token"), refreshPrefix)
	if !ok {
		return nil, gone
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
			if err := srv.recheckSession(ctx, g); err != nil {
				return nil, err
			}
		}
	}
	by := callerOf(ctx)
	body, err := srv.store.Refresh(ctx, store.Presented{
		Token: q.Get("refresh_token"), Signature: signature, ClientID: c.ID, Interval: *srv.tokens.ReuseInterval,
		Address: by.address, RequestID: by.request,
	}, func(ctx context.Context, t store.Token, g store.Grant) (store.Successor, error) {
		if resource := q.Get("resource"); resource != "" && srv.resource(resource) != g.Resource {
			return store.Successor{}, bad("invalid_target", "the token is for %s", g.Resource)
		}
		var narrow []string
		if asked := strings.Fields(q.Get("scope")); len(asked) > 0 {
			granted := strings.Fields(g.Scope)
			// Who asks to stay signed in is told nothing new.
			asked = slices.DeleteFunc(asked,
				func(scope string) bool { return scope == scopeOffline && !slices.Contains(granted, scopeOffline) })
			if !subset(asked, granted) {
				return store.Successor{}, bad("invalid_scope", "the person has allowed %s", g.Scope)
			}
			narrow = asked
		}
		rec, err := readRecord(t.Request, g)
		if err != nil {
			return store.Successor{}, err
		}
		for _, scope := range rec.Granted {
			if !slices.Contains(srv.scopes, scope) {
				return store.Successor{}, bad("invalid_scope", "The OAuth 2.0 Client is not allowed to request "+
					"scope '%s'.", scope)
			}
		}
		made, err := srv.addTokens(ctx, g, rec, narrow)
		return store.Successor{Signature: made.refreshSignature, Response: made.response}, err
	})
	if errors.Is(err, store.ErrReused) {
		srv.log.Warn("a refresh token was used twice: its grant has ended", "client", safeText(c.ID, 64), "grant",
			t.Grant)
		srv.grantsEnded(t.Grant)
		return nil, gone
	}
	if err != nil {
		return nil, toldIfOver(err, gone)
	}
	_ = srv.store.TouchGrant(ctx, t.Grant) // what is lost is when it was used
	return body, nil
}

const (
	recheckAfter   = time.Minute      // for how long what a provider has said is believed without asking again
	recheckTimeout = 30 * time.Second // for how long one of us may ask it
)

// confirm asks the provider whether the person behind a grant may still sign in, and what groups
// they are in. If they may not, their grants have ended when it returns, and the store knows. An
// error means that nobody can say, and that too much time has gone by to go on all the same.
func (srv *Server) recheckSession(ctx context.Context, g store.Grant) error {
	// It does not end half-way because a client hangs up: a provider that replaces its own refresh
	// tokens tells the new one once.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recheckTimeout)
	defer cancel()
	session, err := srv.store.IDPSession(ctx, g.IDPSession)
	if err != nil {
		if isOver(err) {
			return nil
		}
		return err
	}
	now := srv.now()
	if session.RefreshToken == "" {
		if now.Before(session.OKUntil) {
			return nil
		}
		return srv.endSession(ctx, session.ID, "idp_cannot_be_asked")
	}
	if now.Before(session.Checked.Add(recheckAfter)) {
		return nil
	}
	i := slices.IndexFunc(srv.providers, func(p *provider) bool { return p.ID == session.IDP })
	if i < 0 {
		return srv.endSession(ctx, session.ID, "idp_removed")
	}
	session, err = srv.store.ClaimIDPSession(ctx, session.ID, recheckTimeout)
	switch {
	case errors.Is(err, store.ErrUsed) && now.Before(session.OKUntil):
		return nil // somebody is asking; what was last known holds meanwhile
	case errors.Is(err, store.ErrUsed):
		return errors.New("the provider is being asked")
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	user, err := srv.store.User(ctx, session.User)
	if err != nil {
		return err
	}
	id, refreshToken, err := srv.providers[i].renew(ctx, session.RefreshToken, user.Subject)
	if errors.Is(err, errEnded) {
		return srv.endSession(ctx, session.ID, "idp_session_ended")
	}
	if err != nil {
		srv.log.Warn("a provider cannot be asked whether a person may still sign in", "provider", session.IDP,
			"good until", session.OKUntil, "error", err)
		if release := srv.store.UpdateIDPSession(ctx, session); release != nil && !isOver(release) {
			return release
		}
		if now.Before(session.OKUntil) {
			return nil
		}
		return err
	}
	claims, err := json.Marshal(storedClaims{id.Groups})
	if err != nil {
		return err
	}
	session.RefreshToken, session.Claims, session.Checked, session.OKUntil = refreshToken, claims, now,
		now.Add(srv.tokens.IDPOutageGrace)
	err = srv.store.WithTx(ctx, func(ctx context.Context) error {
		if _, err := srv.store.PutUser(ctx, store.User{Issuer: user.Issuer, Subject: user.Subject, Email: id.Email,
			Display: id.Display, Claims: claims}); err != nil {
			return err
		}
		return srv.store.UpdateIDPSession(ctx, session)
	})
	if isOver(err) {
		return nil
	}
	srv.dropUser(auth.UserID(user.Issuer, user.Subject)) // what is remembered of their tokens has the old groups
	return err
}

func (srv *Server) endSession(ctx context.Context, session, why string) error {
	ended, err := srv.store.EndIDPSession(ctx, session, why)
	if err == nil {
		srv.audit(ctx, "idp_session_ended", "", "", why)
		srv.grantsEnded(ended...)
	}
	return err
}
