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
func (f *Server) callback(w http.ResponseWriter, r *http.Request) {
	i := slices.IndexFunc(f.providers, func(p *provider) bool { return p.ID == r.PathValue("idp") })
	if i < 0 {
		f.page(w, http.StatusNotFound, "error", pageData{Title: "There is no such page", Text: "The address is not one of this server's."})
		return
	}
	p, q := f.providers[i], r.URL.Query()
	binding := cookie(r, bindingCookie)
	if binding == "" || len(q["state"]) != 1 || len(q["code"]) > 1 {
		f.startAgain(w, binding == "")
		return
	}
	row, err := f.store.ConsumeAuthRequest(r.Context(), p.ID, q.Get("state"), binding)
	if err != nil {
		f.over(w, r, err)
		return
	}
	var who asking
	_ = json.Unmarshal(row.Detail, &who)
	id, refreshToken, err := f.answerOf(r.Context(), p, row, q)
	if err != nil {
		f.notSignedIn(w, r, p, row, who, "", err)
		return
	}
	in, err := f.signIn(r.Context(), p, id, refreshToken)
	if err != nil {
		if errors.Is(err, store.ErrRevoked) {
			f.notSignedIn(w, r, p, row, who, in.user.ID, fmt.Errorf("%w: the operator has disabled %s", errRules, in.user.ID))
			return
		}
		f.unreachable(w, r, err)
		return
	}
	setCookie(w, sessionCookie, in.cookie, sessionTTL)
	f.event(r, "signed_in", in.user.ID, row.ClientID, p.ID)
	if row.Purpose == purposeLogin {
		next := "/account"
		if len(row.Request) > 0 { // the page of ours that wanted to know who it is
			next = string(row.Request)
		}
		http.Redirect(w, r, f.url+next, http.StatusSeeOther)
		return
	}
	f.deliver(w, r, row, who, in.user, in.idp)
}

// answerOf reads the provider's answer.
func (f *Server) answerOf(ctx context.Context, p *provider, row store.AuthRequest, q url.Values) (identity, string, error) {
	if err := p.issuer(ctx, q); err != nil {
		return identity{}, "", err
	}
	switch {
	case q.Get("error") != "":
		return identity{}, "", &refusal{visible(q.Get("error"), 60)}
	case q.Get("code") == "":
		return identity{}, "", &refusal{"missing_code"}
	}
	return p.finish(ctx, q.Get("code"), row.Nonce, row.Verifier)
}

// notSignedIn tells a person why they are not signed in, and lets the client know if they go on.
// user is "" if nobody knows who it is.
func (f *Server) notSignedIn(w http.ResponseWriter, r *http.Request, p *provider, row store.AuthRequest, who asking, user string, err error) {
	no, refused := errors.AsType[*refusal](err)
	if !refused && !errors.Is(err, errRules) {
		f.providerAway(w, r, p, err)
		return
	}
	f.log.Warn("somebody could not sign in", "provider", p.ID, "request_id", auth.RequestID(w), "error", err)
	f.event(r, "sign_in_refused", user, row.ClientID, p.ID)
	d := pageData{Title: "You are not signed in", Client: who.Name}
	if refused {
		d.Text = p.label() + " answered: " + no.code + "."
	} else {
		d.Text = "You have signed in at " + p.label() + ", but this account may not use this server. Ask whoever runs it, or sign in with another account."
	}
	if row.Purpose == purposeAuthorize {
		d.Next = f.refusal(&flaw{row.RedirectURI, string(row.State), "access_denied", "the person could not sign in"})
	}
	f.page(w, http.StatusForbidden, "refused", d)
}

// signedIn is what a sign-in has left behind.
type signedIn struct {
	user   store.User
	idp    store.IDPSession
	cookie string
}

// claimsOf is what is kept of an identity.
type claimsOf struct {
	Groups []string `json:"groups,omitempty"`
}

// signIn stores who has signed in. The error wraps store.ErrRevoked if the operator has shut them
// out.
func (f *Server) signIn(ctx context.Context, p *provider, id identity, refreshToken string) (in signedIn, err error) {
	claims, err := json.Marshal(claimsOf{id.Groups})
	if err != nil {
		return in, err
	}
	in.cookie = secret()
	err = f.store.WithTx(ctx, func(ctx context.Context) (err error) {
		in.user, err = f.store.PutUser(ctx, store.User{Issuer: id.Issuer, Subject: id.Subject, Email: id.Email, Display: id.Display, Claims: claims})
		if err != nil {
			return err
		}
		if !in.user.Disabled.IsZero() {
			return store.ErrRevoked
		}
		now := f.now()
		good := now.Add(f.tokens.IDPOutageGrace)
		if refreshToken == "" {
			good = now.Add(f.tokens.MaxAgeWithoutIDPRefresh)
		}
		in.idp, err = f.store.AddIDPSession(ctx, store.IDPSession{User: in.user.ID, IDP: p.ID, RefreshToken: refreshToken, Claims: claims, Checked: now, OKUntil: good})
		if err != nil {
			return err
		}
		return f.store.AddWebSession(ctx, in.cookie, store.WebSession{User: in.user.ID, IDPSession: in.idp.ID, Expires: now.Add(sessionTTL)})
	})
	return in, err
}

// carryOn is GET /oauth/continue: somebody who was signed in has agreed.
func (f *Server) carryOn(w http.ResponseWriter, r *http.Request) {
	binding := cookie(r, bindingCookie)
	id := r.URL.Query().Get("tx")
	if binding == "" || id == "" {
		f.startAgain(w, binding == "")
		return
	}
	row, err := f.store.ConsumeApproved(r.Context(), id, binding)
	if err != nil {
		f.over(w, r, err)
		return
	}
	var who asking
	_ = json.Unmarshal(row.Detail, &who)
	// Whoever agreed may have signed out since, or been shut out.
	s, err := f.session(r)
	if err == nil && (s.user.ID != who.User || s.IDPSession != who.Session) {
		err = store.ErrNotFound
	}
	var idp store.IDPSession
	if err == nil {
		idp, err = f.store.IDPSession(r.Context(), who.Session)
	}
	if err != nil {
		f.over(w, r, err)
		return
	}
	f.deliver(w, r, row, who, s.user, idp)
}

// deliver makes a grant and a code of an approved request, and takes both to the client.
func (f *Server) deliver(w http.ResponseWriter, r *http.Request, row store.AuthRequest, who asking, user store.User, idp store.IDPSession) {
	d := pageData{Client: who.Name, User: session{user: user}.label()}
	if p := f.principal(user, idp.Claims, store.Grant{ClientID: row.ClientID, Scope: row.Scope, Resource: row.Resource}); f.granted != nil && !f.granted(p) {
		f.event(r, "not_granted", user.ID, row.ClientID, "")
		d.Title, d.Text = "You are signed in, and may use nothing here", "You are "+d.User+", and no policy of this server lets you use anything. Ask whoever runs it."
		d.Next = f.refusal(&flaw{row.RedirectURI, string(row.State), "access_denied", "signed in, and no policy lets this person use anything"})
		f.page(w, http.StatusForbidden, "refused", d)
		return
	}
	host, local := target(row.RedirectURI)
	expires := f.now().Add(f.tokens.AbsoluteTTL)
	if idp.RefreshToken == "" && idp.OKUntil.Before(expires) {
		expires = idp.OKUntil
	}
	grant := store.NewID()
	answer, err := f.core.IssueCode(r.Context(), AuthRequest{
		Client: &client{ID: row.ClientID, Kind: who.Kind, Name: who.Name, Host: who.Host}, RedirectURI: row.RedirectURI, State: string(row.State),
		Challenge: row.CodeChallenge, Scope: row.Scope, Resource: row.Resource, ExplicitRedirect: len(row.Request) > 0,
	}, store.Grant{
		ID: grant, User: user.ID, IDPSession: idp.ID, ClientID: row.ClientID, ClientKind: string(who.Kind), ClientName: who.Name, RedirectHost: host, Resource: row.Resource,
		Scope: row.Scope, Expires: expires,
	})
	if err == nil {
		// The client may have been shut out while the person was on their way. Now that the grant
		// is stored, whoever shuts it out later ends that.
		err = f.unblocked(r.Context(), row.ClientID)
	}
	if wrong, ok := errors.AsType[*problem](err); ok {
		if _, err = f.store.RevokeGrant(r.Context(), grant, "client_blocked"); err == nil {
			f.cannot(w, r, wrong, row.ClientID, row.RedirectURI)
			return
		}
	}
	if err != nil {
		f.over(w, r, err)
		return
	}
	f.event(r, "code_issued", user.ID, row.ClientID, "")
	if strings.HasPrefix(row.RedirectURI, "https://") && !local {
		pageHeaders(w)
		http.Redirect(w, r, answer, http.StatusSeeOther)
		return
	}
	d.Title = "Connected as " + d.User
	d.Text = "Returning to " + who.Name + ". You can close this page if nothing happens any more."
	f.goTo(w, answer, d)
}

// principal is who a user is for policies, by way of a grant.
func (f *Server) principal(u store.User, claims []byte, g store.Grant) *auth.Principal {
	var c claimsOf
	_ = json.Unmarshal(claims, &c)
	return &auth.Principal{
		Kind: auth.KindUser, ID: auth.UserID(u.Issuer, u.Subject), User: u.Subject, Issuer: u.Issuer, Email: u.Email, Groups: c.Groups, Scopes: strings.Fields(g.Scope),
		OAuthClient: g.ClientID, Grant: g.ID, Resources: []string{g.Resource},
	}
}

// event writes down what happened. What cannot be written down is logged: nobody is kept out for
// it.
func (f *Server) event(r *http.Request, what, user, client, detail string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
	defer cancel()
	f.audit(ctx, what, user, client, detail)
}
