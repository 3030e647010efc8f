package authserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"junction/auth/authserver/provider"
	"junction/auth/store"
	"junction/upstream/prose"
)

// This file receives logouts of the identity providers (OpenID Connect Back-Channel Logout 1.0). Anyone
// can send requests here: they are limited by address and by size before a signature is checked, and the
// keys of a provider are fetched at most once a minute for tokens that no known key has signed.

// logoutPath is the path of the endpoint; the id of the provider follows. junction auth doctor shows it.
const logoutPath = "/oauth/backchannel-logout/"

// backchannelLogout is POST /oauth/backchannel-logout/{idp}.
func (srv *Server) backchannelLogout(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		fail(w, http.StatusMethodNotAllowed, "invalid_request", "use POST")
		return
	}
	p := srv.provider(r.PathValue("idp"))
	if err := srv.decided(keyProviders); p == nil && err != nil {
		srv.answer(w, r, nil, err)
		return
	}
	if p == nil {
		fail(w, http.StatusNotFound, "not_found", "no such endpoint")
		return
	}
	err := srv.endAtProvider(r, p)
	if oauthErr, ok := errors.AsType[*oauthError](err); ok {
		srv.event(r, "logout_refused", "", "", p.ID+": "+prose.ASCII(oauthErr.description, 200))
	}
	srv.answer(w, r, []byte("{}"), err)
}

// endAtProvider ends the sessions that a logout token of a provider names.
func (srv *Server) endAtProvider(r *http.Request, p *provider.Provider) error {
	q, err := form(r)
	if err != nil {
		return err
	}
	l, err := p.ReadLogout(r.Context(), q.Get("logout_token"))
	switch {
	case errors.Is(err, provider.ErrUnchecked):
		return err
	case err != nil:
		return bad("invalid_request", "%s", err)
	}
	// The provider may close the connection early; the sessions end all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), recheckTimeout)
	defer cancel()
	ended, grants, err := srv.store.EndAtProvider(ctx, store.ProviderLogout{IDP: p.ID, Sub: l.Sub, SID: l.SID,
		JTI: l.JTI, Expires: l.Expires}, "logged_out_at_provider")
	switch {
	case errors.Is(err, store.ErrUsed):
		return bad("invalid_request", "the logout token was already used (jti)")
	case errors.Is(err, store.ErrText):
		return bad("invalid_request", "the logout token has a text that cannot be stored")
	case err != nil:
		return err
	}
	srv.grantsEnded(grants...)
	named := fmt.Sprintf("%s, sub %s, sid %s", p.ID, cmp.Or(prose.ASCII(l.Sub, 64), "none"),
		cmp.Or(prose.ASCII(l.SID, 64), "none"))
	if len(ended) == 0 {
		srv.log.Info("a provider has logged out a user who has no session here", "provider", p.ID,
			"sub", prose.ASCII(l.Sub, 64), "sid", prose.ASCII(l.SID, 64), "address", callerOf(ctx).address,
			"request_id", callerOf(ctx).request)
	}
	sessions := map[string]int{} // by user; a sid of several users would be a fault of the provider
	for _, i := range ended {
		sessions[i.User]++
	}
	for user, n := range sessions {
		srv.audit(ctx, "logged_out_at_provider", user, "", named, "sessions", n, "grants", len(grants))
	}
	return nil
}
