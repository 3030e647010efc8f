package authserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"junction/auth"
	"junction/auth/authserver/provider"
	"junction/auth/store"
)

// callback is GET /oauth/callback/{idp}: a provider's answer. It is accepted once, and only in the
// browser that was sent to the provider.
func (srv *Server) callback(w http.ResponseWriter, r *http.Request) error {
	p, q := srv.provider(r.PathValue("idp")), r.URL.Query()
	if p == nil {
		return cmp.Or(srv.decided(keyProviders), error(errNoPage))
	}
	binding := cookie(r, bindingCookie)
	if binding == "" || len(q["state"]) != 1 || len(q["code"]) > 1 {
		return startAgain(binding == "")
	}
	row, err := srv.store.ConsumeAuthRequest(r.Context(), p.ID, q.Get("state"), binding)
	if err != nil {
		return cannotGoOn(err)
	}
	who := detailOf(row)
	id, refreshToken, err := p.Finish(r.Context(), q, row.Nonce, row.Verifier)
	if err != nil {
		return srv.notSignedIn(w, r, p, row, who, "", err)
	}
	in, err := srv.signIn(r.Context(), p, id, refreshToken)
	if errors.Is(err, store.ErrRevoked) {
		return srv.notSignedIn(w, r, p, row, who, in.user.ID,
			fmt.Errorf("%w: the operator has disabled %s", provider.ErrRules, in.user.ID))
	}
	if err != nil {
		return err
	}
	setCookie(w, sessionCookie, in.cookie, sessionTTL)
	setCookie(w, knownCookie, srv.newKnown(), knownTTL)
	srv.event(r, "signed_in", in.user.ID, row.ClientID, p.ID)
	if row.Purpose == purposeLogin {
		next := "/account"
		if len(row.Request) > 0 { // the page that required the sign-in
			next = string(row.Request)
		}
		http.Redirect(w, r, srv.url+next, http.StatusSeeOther)
		return nil
	}
	return srv.deliver(w, r, row, who, in.user, in.idp)
}

// provider returns the identity provider with an id, nil if there is none.
func (srv *Server) provider(id string) *provider.Provider {
	for _, p := range srv.providers {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// notSignedIn shows why a person is not signed in, with a link that reports it to the client. user
// is "" if the user is unknown.
func (srv *Server) notSignedIn(
	w http.ResponseWriter, r *http.Request, p *provider.Provider, row store.AuthRequest, who requestDetail,
	user string, err error,
) error {
	no, refused := errors.AsType[*provider.Error](err)
	if !refused && !errors.Is(err, provider.ErrRules) {
		// The answer of the provider counts once, so going back would not help.
		d := pageData{Text: "Nothing was allowed. Go back to your app, and connect again in a moment."}
		if row.Purpose != purposeAuthorize {
			d = pageData{Text: "Try again in a moment.", Next: srv.url + "/account", Label: "Sign in again"}
		}
		return srv.providerOutage(w, r, p, err, d)
	}
	srv.log.Warn("a user could not sign in", refusal(p, err, auth.LogIDs(w, r))...)
	srv.event(r, "sign_in_refused", user, row.ClientID, p.ID)
	d := pageData{Title: "You are not signed in", Client: who.Name}
	if refused {
		d.Text = p.Says(no)
	} else {
		d.Text = "You have signed in at " + p.Label() + ", but this account may not use this server. " +
			"Ask the operator of this server, or sign in with another account."
	}
	if row.Purpose != purposeAuthorize {
		d.Next, d.Label = srv.url+"/account", "Sign in again"
		return stop(http.StatusForbidden, d)
	}
	d.Next = srv.deniedURL(row, "the user could not sign in")
	return &stopped{http.StatusForbidden, "refused", d}
}

// refusal returns the attributes of a log line about a provider that has not confirmed a user: others, what
// the provider says, and what the operator can do.
func refusal(p *provider.Provider, err error, others ...any) []any {
	attrs := slices.Concat([]any{"provider", p.ID}, others, []any{"error", err})
	if no, refused := errors.AsType[*provider.Error](err); refused && no.Text != "" {
		attrs = append(attrs, "reason", no.Text)
	}
	if todo := p.Advice(err); todo != "" {
		attrs = append(attrs, "advice", todo)
	}
	return attrs
}

// signedIn is what a sign-in has stored.
type signedIn struct {
	user   store.User
	idp    store.IDPSession
	cookie string
}

// groupsText says which groups of a user the policies see, so that the operator can compare them with
// the file.
func groupsText(all []string) string {
	if groups := groupNames(all, 20); groups != "" {
		return "Your identity provider sent these groups: " + groups + "."
	}
	return "Your identity provider sent no groups."
}

// groupNames returns at most so many groups of a user, and the number of the others; "" if there are
// none.
func groupNames(all []string, most int) string {
	var shown []string
	for _, group := range all[:min(len(all), most)] {
		name := cleanName(group)
		if utf8.RuneCountInString(group) > maxClientName {
			name += "…"
		}
		shown = append(shown, name)
	}
	text := strings.Join(shown, ", ")
	if more := len(all) - len(shown); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// notGranted returns the detail of an event: the app, and groups of the user, who gets nothing by them.
func notGranted(app string, groups []string) string {
	return appText(app) + ", groups: " + cmp.Or(groupNames(groups, 5), "none")
}

// appText returns the detail of an event that names an app.
func appText(app string) string { return "app " + strconv.Quote(cleanName(app)) }

// signIn stores a user with their sessions. The error wraps store.ErrRevoked if the operator has
// disabled the user.
func (srv *Server) signIn(
	ctx context.Context, p *provider.Provider, id provider.Identity, refreshToken string,
) (in signedIn, err error) {
	claims, err := claimsOf(p, id)
	if err != nil {
		return in, err
	}
	in.cookie = secret()
	err = srv.store.WithTx(ctx, func(ctx context.Context) (err error) {
		in.user, err = srv.store.PutUser(ctx, store.User{Issuer: id.Issuer, Subject: id.Subject, Email: id.Email,
			Display: cleanName(id.Display), Claims: claims})
		if err != nil {
			return err
		}
		if !in.user.Disabled.IsZero() {
			return store.ErrRevoked
		}
		p.NoRefresh.Store(refreshToken == "")
		now := srv.now()
		good := now.Add(srv.tokens.IDPOutageGrace)
		if refreshToken == "" {
			good = now.Add(srv.tokens.MaxAgeWithoutIDPRefresh)
		}
		in.idp, err = srv.store.AddIDPSession(ctx, store.IDPSession{User: in.user.ID, IDP: p.ID, Sub: id.Sub,
			SID: id.SID, RefreshToken: refreshToken, Claims: claims, Checked: now, OKUntil: good})
		if err != nil {
			return err
		}
		return srv.store.AddWebSession(ctx, in.cookie,
			store.WebSession{User: in.user.ID, IDPSession: in.idp.ID, Expires: now.Add(sessionTTL)})
	})
	return in, err
}

// continueRequest is GET /oauth/continue: a user who was already signed in has approved a request.
func (srv *Server) continueRequest(w http.ResponseWriter, r *http.Request) error {
	binding := cookie(r, bindingCookie)
	id := r.URL.Query().Get("tx")
	if binding == "" || id == "" {
		return startAgain(binding == "")
	}
	row, err := srv.store.AuthRequest(r.Context(), id, binding)
	if err != nil {
		return cannotGoOn(err)
	}
	who := detailOf(row)
	// The user may have signed out, or been disabled, since approving.
	s, err := srv.session(r)
	if err == nil && (s.user.ID != who.User || s.IDPSession != who.Session) {
		err = store.ErrNotFound
	}
	if err != nil {
		return cannotGoOn(err)
	}
	// After an outage of the provider the request is not consumed yet, so that reloading the page helps.
	if err := srv.recheckSession(r.Context(), who.Session, row.ClientID); isOver(err) {
		return srv.signInAgain(w, r, row, who)
	} else if err != nil {
		return err
	}
	if row, err = srv.store.ConsumeApproved(r.Context(), id, binding); err != nil {
		return cannotGoOn(err)
	}
	idp, err := srv.store.IDPSession(r.Context(), who.Session) // with the groups of now
	if err != nil {
		return cannotGoOn(err)
	}
	return srv.deliver(w, r, row, who, s.user, idp)
}

// signInAgain ends the session of a browser whose session at the provider is over, and shows the page of an
// approved request again, for a sign-in there.
func (srv *Server) signInAgain(
	w http.ResponseWriter, r *http.Request, row store.AuthRequest, who requestDetail,
) error {
	if err := srv.store.EndWebSession(r.Context(), cookie(r, sessionCookie)); err != nil {
		return err
	}
	setCookie(w, sessionCookie, "", 0)
	who.User, who.Session = "", ""
	detail, err := json.Marshal(who)
	if err != nil {
		return err
	}
	return srv.startRequest(w, r, store.AuthRequest{
		Purpose: row.Purpose, ClientID: row.ClientID, RedirectURI: row.RedirectURI, State: row.State,
		CodeChallenge: row.CodeChallenge, Scope: row.Scope, Resource: row.Resource, Request: row.Request,
		Detail: detail,
	}, "Your session at the identity provider has ended. Sign in there again.")
}

// deliver makes a grant and a code for an approved request, and returns the code to the client.
func (srv *Server) deliver(
	w http.ResponseWriter, r *http.Request, row store.AuthRequest, who requestDetail, user store.User,
	idp store.IDPSession,
) error {
	d := pageData{Client: who.Name, User: session{user: user}.label()}
	if p := srv.principal(user, idp.Claims, store.Grant{ClientID: row.ClientID, Scope: row.Scope,
		Resource: row.Resource}); srv.granted != nil && !srv.granted(p) {
		srv.event(r, "not_granted", user.ID, row.ClientID, notGranted(who.Name, p.Groups))
		d.Title, d.Text = "You are signed in, but have no access", "You are "+d.User+
			", and no policy of this server gives you access. "+groupsText(p.Groups)+
			" Ask the operator of this server."
		d.Next = srv.deniedURL(row, "no policy gives the user access to anything")
		return &stopped{http.StatusForbidden, "refused", d}
	}
	host, local := displayTarget(row.RedirectURI)
	expires := srv.now().Add(srv.tokens.AbsoluteTTL)
	if idp.RefreshToken == "" && idp.OKUntil.Before(expires) {
		expires = idp.OKUntil
	}
	grant := store.NewID()
	answer, err := srv.issueCode(r.Context(), row, store.Grant{
		ID: grant, User: user.ID, IDPSession: idp.ID, ClientID: row.ClientID, ClientKind: string(who.Kind),
		ClientName: who.Name, RedirectHost: host, Resource: row.Resource,
		Scope: row.Scope, Expires: expires,
	})
	if err == nil {
		// The operator may have blocked the client in the meantime. From now on, blocking the
		// client also ends this stored grant.
		err = srv.checkBlocked(r.Context(), row.ClientID)
	}
	if pageErr, ok := errors.AsType[*pageError](err); ok {
		if _, err = srv.store.RevokeGrant(r.Context(), grant, "client_blocked"); err == nil {
			return srv.refused(r, pageErr, row.ClientID, row.RedirectURI)
		}
	}
	if err != nil {
		return cannotGoOn(err)
	}
	srv.event(r, "code_issued", user.ID, row.ClientID, appText(who.Name))
	if strings.HasPrefix(row.RedirectURI, "https://") && !local {
		pageHeaders(w)
		http.Redirect(w, r, answer, http.StatusSeeOther)
		return nil
	}
	d.Title = "Connected as " + d.User
	d.Text = "Returning to " + who.Name + ". You can close this page."
	return srv.redirectByPage(w, answer, d)
}

// principal is the principal of a user with the tokens of a grant.
func (srv *Server) principal(u store.User, claims []byte, g store.Grant) *auth.Principal {
	return &auth.Principal{
		Kind: auth.KindUser, ID: auth.UserID(u.Issuer, u.Subject), User: u.Subject, Issuer: u.Issuer, Email: u.Email,
		Name: u.Display, Groups: srv.groups(claims), Scopes: strings.Fields(g.Scope),
		OAuthClient: g.ClientID, Grant: g.ID, Resources: []string{g.Resource},
	}
}

// KnownUser is a user who has signed in before.
type KnownUser struct {
	Principal *auth.Principal // as of the last sign-in or refresh, without the parts that a grant has
	Seen      time.Time
	Disabled  bool
}

// Users returns the users with an e-mail address, the last seen first. Users of several identity
// providers may have the same address.
func (srv *Server) Users(ctx context.Context, email string) ([]KnownUser, error) {
	all, err := srv.store.Users(ctx, email)
	var known []KnownUser
	for _, u := range all {
		known = append(known, KnownUser{srv.principal(u, u.Claims, store.Grant{}), u.Seen, !u.Disabled.IsZero()})
	}
	return known, err
}

// event audits an event of a request. If the audit fails, the request still goes on.
func (srv *Server) event(r *http.Request, what, user, client, detail string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 5*time.Second)
	defer cancel()
	srv.audit(ctx, what, user, client, detail)
}
