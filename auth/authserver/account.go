package authserver

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"junction/auth/store"
)

// account is GET /account: the apps that a user has allowed, and the upstreams they have connected.
func (srv *Server) account(w http.ResponseWriter, r *http.Request) error {
	s, err := srv.session(r)
	if isOver(err) {
		return srv.startRequest(w, r, store.AuthRequest{Purpose: purposeLogin}, "")
	}
	if err != nil {
		return err
	}
	grants, err := srv.store.Grants(r.Context(), store.GrantFilter{User: s.user.ID, Standing: true})
	if err != nil {
		return err
	}
	upstreams, err := srv.upstreams(r.Context(), s)
	if err != nil {
		return err
	}
	d := pageData{Title: "Your account", User: s.label(),
		CSRF:      srv.formToken(srv.binding(w, r), s.user.ID, "account"),
		Upstreams: upstreams, Resource: srv.url + "/mcp", Next: srv.url + "/"}
	if srv.servers != nil {
		d.Servers = srv.servers(srv.everything(s))
		if most := 100; len(d.Servers) > most {
			d.Text = fmt.Sprintf("and %d more", len(d.Servers)-most)
			d.Servers = d.Servers[:most]
		}
		if len(d.Servers) == 0 {
			d.Text = "No policy of this server gives you access to a server. " + groupsText(srv.groups(s.user.Claims)) +
				" Ask the operator of this server."
		}
	}
	for _, g := range grants {
		d.Grants = append(d.Grants, grantRow{
			ID: g.ID, Client: g.ClientName, Kind: g.ClientKind, Host: g.RedirectHost,
			Resource: strings.TrimPrefix(g.Resource, srv.url),
			Used:     g.Used.UTC().Format("2006-01-02 15:04 UTC"), Expires: g.Expires.UTC().Format(time.DateOnly),
		})
	}
	return srv.page(w, http.StatusOK, "account", d)
}

// accountForm is a handler of a form of the account page, with the session behind it.
func (srv *Server) accountForm(answer func(w http.ResponseWriter, r *http.Request, s session) error) pageHandler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := srv.sameOriginForm(r); err != nil {
			return err
		}
		shown, ok := srv.shownTo(r, "account")
		if !ok {
			return stop(http.StatusForbidden, pageData{Title: "This page has expired",
				Text: "Nothing was changed. Open your account page again.", Next: srv.url + "/account"})
		}
		s, err := srv.session(r)
		if isOver(err) {
			return stop(http.StatusForbidden, pageData{Title: "You are signed out",
				Text: "Nothing was changed. Sign in again.", Next: srv.url + "/account"})
		}
		if err != nil {
			return err
		}
		if err := srv.sameUser(s, shown, "Nothing was changed.", srv.url+"/account"); err != nil {
			return err
		}
		return answer(w, r, s)
	}
}

// revokeGrant is POST /account/grants/{id}/revoke.
func (srv *Server) revokeGrant(w http.ResponseWriter, r *http.Request, s session) error {
	g, err := srv.store.Grant(r.Context(), r.PathValue("id"))
	if err == nil && g.User != s.user.ID {
		err = store.ErrNotFound
	}
	if err == nil {
		err = srv.endGrant(r.Context(), g.ID, "revoked_by_user")
	}
	switch {
	case err == nil:
		srv.event(r, "grant_revoked", s.user.ID, g.ClientID, "by the user")
	case errors.Is(err, store.ErrNotFound):
		return stop(http.StatusNotFound, pageData{Title: "App not found",
			Text: "You have not allowed an app with this id.", Next: srv.url + "/account"})
	case !isOver(err):
		return err
	}
	http.Redirect(w, r, srv.url+"/account", http.StatusSeeOther)
	return nil
}

// signOut is POST /account/signout. It signs the user out of this browser; their apps stay connected.
func (srv *Server) signOut(w http.ResponseWriter, r *http.Request, s session) error {
	if err := srv.store.EndWebSession(r.Context(), cookie(r, sessionCookie)); err != nil {
		return err
	}
	srv.event(r, "signed_out", s.user.ID, "", "this browser")
	return srv.signedOut(w, "You are signed out of this browser. Your apps stay connected.")
}

// signedOut ends the session of this browser, and shows what has ended.
func (srv *Server) signedOut(w http.ResponseWriter, ended string) error {
	setCookie(w, sessionCookie, "", 0)
	return srv.page(w, http.StatusOK, "error", pageData{Title: "You are signed out",
		Text: ended + " You may still be signed in at your identity provider.",
		Next: srv.url + "/account", Label: "Sign in again"})
}

// logout is POST /account/logout. It signs the user out of every browser and ends all their grants.
func (srv *Server) logout(w http.ResponseWriter, r *http.Request, s session) error {
	ended, err := srv.store.RevokeGrants(r.Context(), store.GrantFilter{User: s.user.ID}, "signed_out")
	if err == nil {
		err = srv.store.EndWebSessions(r.Context(), s.user.ID)
	}
	if err != nil {
		return err
	}
	srv.grantsEnded(ended...)
	srv.event(r, "signed_out", s.user.ID, "", "")
	return srv.signedOut(w, "You are signed out of every browser, and all apps are disconnected.")
}

// instructions is GET /: how to connect a client to this server.
func (srv *Server) instructions(w http.ResponseWriter, _ *http.Request) error {
	return srv.page(w, http.StatusOK, "connect", pageData{Title: "Connect to " + srv.name, Resource: srv.url + "/mcp"})
}
