package authserver

import (
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
	"junction/auth/store"
)

// callback is GET /oauth/callback/{idp}: a provider's answer. It counts only in the browser that
// was sent there, and once.
func (srv *Server) callback(w http.ResponseWriter, r *http.Request) {
	i := slices.IndexFunc(srv.providers, func(p *provider) bool { return p.ID == r.PathValue("idp") })
	if i < 0 {
		srv.page(w, http.StatusNotFound, "error",
			pageData{Title: "There is no such page", Text: "The address is not one of this server's."})
		return
	}
	p, q := srv.providers[i], r.URL.Query()
	binding := cookie(r, bindingCookie)
	if binding == "" || len(q["state"]) != 1 || len(q["code"]) > 1 {
		srv.startAgain(w, binding == "")
		return
	}
	row, err := srv.store.ConsumeAuthRequest(r.Context(), p.ID, q.Get("state"), binding)
	if err != nil {
		srv.showRequestError(w, r, err)
		return
	}
	var who requestDetail
	_ = json.Unmarshal(row.Detail, &who)
	id, refreshToken, err := srv.readAnswer(r.Context(), p, row, q)
	if err != nil {
		srv.notSignedIn(w, r, p, row, who, "", err)
		return
	}
	in, err := srv.signIn(r.Context(), p, id, refreshToken)
	if err != nil {
		if errors.Is(err, store.ErrRevoked) {
			srv.notSignedIn(w, r, p, row, who, in.user.ID,
				fmt.Errorf("%w: the operator has disabled %s", errRules, in.user.ID))
			return
		}
		srv.showOutage(w, r, err)
		return
	}
	setCookie(w, sessionCookie, in.cookie, sessionTTL)
	srv.event(r, "signed_in", in.user.ID, row.ClientID, p.ID)
	if row.Purpose == purposeLogin {
		next := "/account"
		if len(row.Request) > 0 { // the page of ours that wanted to know who it is
			next = string(row.Request)
		}
		http.Redirect(w, r, srv.url+next, http.StatusSeeOther)
		return
	}
	srv.deliver(w, r, row, who, in.user, in.idp)
}

// answerOf reads the provider's answer.
func (srv *Server) readAnswer(
	ctx context.Context, p *provider, row store.AuthRequest, q url.Values,
) (identity, string, error) {
	if err := p.issuer(ctx, q); err != nil {
		return identity{}, "", err
	}
	switch {
	case q.Get("error") != "":
		return identity{}, "", &providerError{safeText(q.Get("error"), 60)}
	case q.Get("code") == "":
		return identity{}, "", &providerError{"missing_code"}
	}
	return p.finish(ctx, q.Get("code"), row.Nonce, row.Verifier)
}

// notSignedIn tells a person why they are not signed in, and lets the client know if they go on.
// user is "" if nobody knows who it is.
func (srv *Server) notSignedIn(
	w http.ResponseWriter, r *http.Request, p *provider, row store.AuthRequest, who requestDetail, user string,
	err error,
) {
	no, refused := errors.AsType[*providerError](err)
	if !refused && !errors.Is(err, errRules) {
		srv.showProviderOutage(w, r, p, err)
		return
	}
	srv.log.Warn("somebody could not sign in", "provider", p.ID, "request_id", auth.RequestID(w), "error", err)
	srv.event(r, "sign_in_refused", user, row.ClientID, p.ID)
	d := pageData{Title: "You are not signed in", Client: who.Name}
	if refused {
		d.Text = p.label() + " answered: " + no.code + "."
	} else {
		d.Text = "You have signed in at " + p.label() + ", but this account may not use this server. Ask whoever " +
			"runs it, or sign in with another account."
	}
	if row.Purpose == purposeAuthorize {
		d.Next = srv.errorURL(&redirectError{row.RedirectURI, string(row.State), "access_denied",
			"the person could not sign in"})
	}
	srv.page(w, http.StatusForbidden, "refused", d)
}

// signedIn is what a sign-in has left behind.
type signedIn struct {
	user   store.User
	idp    store.IDPSession
	cookie string
}

// claimsOf is what is kept of an identity.
type storedClaims struct {
	Groups []string `json:"groups,omitempty"`
}

// signIn stores who has signed in. The error wraps store.ErrRevoked if the operator has shut them
// out.
func (srv *Server) signIn(ctx context.Context, p *provider, id identity, refreshToken string) (in signedIn, err error) {
	claims, err := json.Marshal(storedClaims{id.Groups})
	if err != nil {
		return in, err
	}
	in.cookie = secret()
	err = srv.store.WithTx(ctx, func(ctx context.Context) (err error) {
		in.user, err = srv.store.PutUser(ctx,
			store.User{Issuer: id.Issuer, Subject: id.Subject, Email: id.Email, Display: id.Display, Claims: claims})
		if err != nil {
			return err
		}
		if !in.user.Disabled.IsZero() {
			return store.ErrRevoked
		}
		now := srv.now()
		good := now.Add(srv.tokens.IDPOutageGrace)
		if refreshToken == "" {
			good = now.Add(srv.tokens.MaxAgeWithoutIDPRefresh)
		}
		in.idp, err = srv.store.AddIDPSession(ctx, store.IDPSession{User: in.user.ID, IDP: p.ID,
			RefreshToken: refreshToken, Claims: claims, Checked: now, OKUntil: good})
		if err != nil {
			return err
		}
		return srv.store.AddWebSession(ctx, in.cookie,
			store.WebSession{User: in.user.ID, IDPSession: in.idp.ID, Expires: now.Add(sessionTTL)})
	})
	return in, err
}

// carryOn is GET /oauth/continue: somebody who was signed in has agreed.
func (srv *Server) continueRequest(w http.ResponseWriter, r *http.Request) {
	binding := cookie(r, bindingCookie)
	id := r.URL.Query().Get("tx")
	if binding == "" || id == "" {
		srv.startAgain(w, binding == "")
		return
	}
	row, err := srv.store.ConsumeApproved(r.Context(), id, binding)
	if err != nil {
		srv.showRequestError(w, r, err)
		return
	}
	var who requestDetail
	_ = json.Unmarshal(row.Detail, &who)
	// Whoever agreed may have signed out since, or been shut out.
	s, err := srv.session(r)
	if err == nil && (s.user.ID != who.User || s.IDPSession != who.Session) {
		err = store.ErrNotFound
	}
	var idp store.IDPSession
	if err == nil {
		idp, err = srv.store.IDPSession(r.Context(), who.Session)
	}
	if err != nil {
		srv.showRequestError(w, r, err)
		return
	}
	srv.deliver(w, r, row, who, s.user, idp)
}

// deliver makes a grant and a code of an approved request, and takes both to the client.
func (srv *Server) deliver(
	w http.ResponseWriter, r *http.Request, row store.AuthRequest, who requestDetail, user store.User,
	idp store.IDPSession,
) {
	d := pageData{Client: who.Name, User: session{user: user}.label()}
	if p := srv.principal(user, idp.Claims, store.Grant{ClientID: row.ClientID, Scope: row.Scope,
		Resource: row.Resource}); srv.granted != nil && !srv.granted(p) {
		srv.event(r, "not_granted", user.ID, row.ClientID, "")
		d.Title, d.Text = "You are signed in, and may use nothing here", "You are "+d.User+
			", and no policy of this server lets you use anything. Ask whoever runs it."
		d.Next = srv.errorURL(&redirectError{row.RedirectURI, string(row.State), "access_denied",
			"signed in, and no policy lets this person use anything"})
		srv.page(w, http.StatusForbidden, "refused", d)
		return
	}
	host, local := displayTarget(row.RedirectURI)
	expires := srv.now().Add(srv.tokens.AbsoluteTTL)
	if idp.RefreshToken == "" && idp.OKUntil.Before(expires) {
		expires = idp.OKUntil
	}
	grant := store.NewID()
	answer, err := srv.issueCode(r.Context(), checkedRequest{
		Client: &client{ID: row.ClientID, Kind: who.Kind, Name: who.Name,
			Host: who.Host}, RedirectURI: row.RedirectURI, State: string(row.State),
		Challenge: row.CodeChallenge, Scope: row.Scope, Resource: row.Resource, ExplicitRedirect: len(row.Request) > 0,
	}, store.Grant{
		ID: grant, User: user.ID, IDPSession: idp.ID, ClientID: row.ClientID, ClientKind: string(who.Kind),
		ClientName: who.Name, RedirectHost: host, Resource: row.Resource,
		Scope: row.Scope, Expires: expires,
	})
	if err == nil {
		// The client may have been shut out while the person was on their way. Now that the grant
		// is stored, whoever shuts it out later ends that.
		err = srv.checkBlocked(r.Context(), row.ClientID)
	}
	if wrong, ok := errors.AsType[*pageError](err); ok {
		if _, err = srv.store.RevokeGrant(r.Context(), grant, "client_blocked"); err == nil {
			srv.showPageError(w, r, wrong, row.ClientID, row.RedirectURI)
			return
		}
	}
	if err != nil {
		srv.showRequestError(w, r, err)
		return
	}
	srv.event(r, "code_issued", user.ID, row.ClientID, "")
	if strings.HasPrefix(row.RedirectURI, "https://") && !local {
		pageHeaders(w)
		http.Redirect(w, r, answer, http.StatusSeeOther)
		return
	}
	d.Title = "Connected as " + d.User
	d.Text = "Returning to " + who.Name + ". You can close this page if nothing happens any more."
	srv.redirectByPage(w, answer, d)
}

// principal is who a user is for policies, by way of a grant.
func (srv *Server) principal(u store.User, claims []byte, g store.Grant) *auth.Principal {
	var c storedClaims
	_ = json.Unmarshal(claims, &c)
	return &auth.Principal{
		Kind: auth.KindUser, ID: auth.UserID(u.Issuer, u.Subject), User: u.Subject, Issuer: u.Issuer, Email: u.Email,
		Groups: c.Groups, Scopes: strings.Fields(g.Scope),
		OAuthClient: g.ClientID, Grant: g.ID, Resources: []string{g.Resource},
	}
}

// event writes down what happened. What cannot be written down is logged: nobody is kept out for
// it.
func (srv *Server) event(r *http.Request, what, user, client, detail string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
	defer cancel()
	srv.audit(ctx, what, user, client, detail)
}
