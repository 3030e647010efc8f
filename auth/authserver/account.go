package authserver

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"junction/auth/store"
)

// account is GET /account: what somebody has allowed which apps, and what they have connected.
func (f *Server) account(w http.ResponseWriter, r *http.Request) {
	s, err := f.session(r)
	if isOver(err) {
		f.ask(w, r, store.AuthRequest{Purpose: purposeLogin})
		return
	}
	if err != nil {
		f.unreachable(w, r, err)
		return
	}
	grants, err := f.store.Grants(r.Context(), store.GrantFilter{User: s.user.ID, Standing: true})
	if err != nil {
		f.unreachable(w, r, err)
		return
	}
	upstreams, err := f.upstreams(r.Context(), s)
	if err != nil {
		f.unreachable(w, r, err)
		return
	}
	binding := f.binding(w, r)
	d := pageData{Title: "Your account", User: s.label(), CSRF: f.derive("csrf", "account", binding), Upstreams: upstreams}
	for _, g := range grants {
		d.Grants = append(d.Grants, grantRow{
			ID: g.ID, Client: g.ClientName, Kind: g.ClientKind, Host: g.RedirectHost, Resource: strings.TrimPrefix(g.Resource, f.url),
			Used: g.Used.UTC().Format("2006-01-02 15:04 UTC"), Expires: g.Expires.UTC().Format(time.DateOnly),
		})
	}
	f.page(w, http.StatusOK, "account", d)
}

// mine returns who sends a form of the account page; if ok is false, it has been answered.
func (f *Server) mine(w http.ResponseWriter, r *http.Request) (s session, ok bool) {
	if !f.ownForm(w, r) {
		return s, false
	}
	binding := cookie(r, bindingCookie)
	if binding == "" || !f.derived(r.PostForm.Get("csrf"), "csrf", "account", binding) {
		f.page(w, http.StatusForbidden, "error", pageData{Title: "This page is too old", Text: "Nothing was changed. Open your account again.", Next: f.url + "/account"})
		return s, false
	}
	s, err := f.session(r)
	if isOver(err) {
		f.page(w, http.StatusForbidden, "error", pageData{Title: "You are signed out", Text: "Nothing was changed. Sign in again.", Next: f.url + "/account"})
		return s, false
	}
	if err != nil {
		f.unreachable(w, r, err)
		return s, false
	}
	return s, true
}

// revokeGrant is POST /account/grants/{id}/revoke.
func (f *Server) revokeGrant(w http.ResponseWriter, r *http.Request) {
	s, ok := f.mine(w, r)
	if !ok {
		return
	}
	g, err := f.store.Grant(r.Context(), r.PathValue("id"))
	if err == nil && g.User != s.user.ID {
		err = store.ErrNotFound
	}
	if err == nil {
		err = f.core.RevokeGrant(r.Context(), g.ID, "revoked_by_user")
	}
	switch {
	case err == nil:
		f.event(r, "grant_revoked", s.user.ID, g.ClientID, "by the user")
	case errors.Is(err, store.ErrNotFound):
		f.page(w, http.StatusNotFound, "error", pageData{Title: "There is no such app", Text: "It is not among the apps that you have allowed.", Next: f.url + "/account"})
		return
	case !isOver(err):
		f.unreachable(w, r, err)
		return
	}
	http.Redirect(w, r, f.url+"/account", http.StatusSeeOther)
}

// logout is POST /account/logout: the person is signed out in every browser, and every app too.
func (f *Server) logout(w http.ResponseWriter, r *http.Request) {
	s, ok := f.mine(w, r)
	if !ok {
		return
	}
	ended, err := f.store.RevokeGrants(r.Context(), store.GrantFilter{User: s.user.ID}, "signed_out")
	if err == nil {
		err = f.store.EndWebSessions(r.Context(), s.user.ID)
	}
	if err != nil {
		f.unreachable(w, r, err)
		return
	}
	f.forget(ended...)
	f.event(r, "signed_out", s.user.ID, "", "")
	setCookie(w, sessionCookie, "", 0)
	f.page(w, http.StatusOK, "error", pageData{Title: "You are signed out",
		Text: "In every browser, and in every app that you had connected. At your identity provider you may still be signed in."})
}

// connect is GET /: what this is, and how to connect to it.
func (f *Server) connect(w http.ResponseWriter, r *http.Request) {
	f.page(w, http.StatusOK, "connect", pageData{Title: "Connect to " + f.name, Resource: f.url + "/mcp"})
}
