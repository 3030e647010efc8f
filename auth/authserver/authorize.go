package authserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"junction/auth"
	"junction/auth/store"
)

const (
	requestTTL = 10 * time.Minute // from the authorization request to the provider's answer

	// maxParam is the largest size of a parameter in bytes. The state is stored and returned as it
	// is; states of 521 bytes were seen. Of a scope only known words are stored, and clients may
	// ask for all of them (auth.scope_capabilities).
	maxParam = 1 << 10
	maxState = 2 << 10
	maxScope = 4 << 10
	maxLink  = 4 << 10 // of a link made by ConnectURL

	purposeAuthorize = "authorize"
	purposeLogin     = "login"
)

// requestDetail is what the pages after the first one show about a request.
type requestDetail struct {
	Name string     `json:"name,omitempty"` // the client's
	Host string     `json:"host,omitempty"`
	Kind clientKind `json:"kind,omitempty"`
	// User and Session are of the user who approved it without signing in again.
	User    string `json:"user,omitempty"`
	Session string `json:"session,omitempty"`
}

// checkedRequest is a valid authorization request. Nothing has been issued for it yet.
type checkedRequest struct {
	Client           *client
	RedirectURI      string
	State, Challenge string
	Scope, Resource  string
	ExplicitRedirect bool // the token request must repeat redirect_uri
}

// redirectError is an error that is sent to the client through a redirect (RFC 6749, 4.1.2.1).
type redirectError struct {
	redirect, state   string
	code, description string
}

func (f *redirectError) Error() string { return f.code + ": " + f.description }

var challengeForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// singleParams lists the parameters that may occur only once (RFC 6749, 3.1).
var singleParams = []string{
	"client_id", "redirect_uri", "response_type", "response_mode", "scope", "state", "resource", "code_challenge",
	"code_challenge_method", "prompt", "request", "request_uri",
}

// maxLen returns the largest size of a parameter in bytes.
func maxLen(name string) int {
	switch name {
	case "state":
		return maxState
	case "scope":
		return maxScope
	}
	return maxParam
}

// checkAuthorization checks an authorization request. The error is a *pageError, which is shown to
// the person; a *redirectError, which is for the client and comes with Client and RedirectURI; or
// any other error if the client could not be looked up.
func (srv *Server) checkAuthorization(ctx context.Context, form url.Values) (checkedRequest, error) {
	for _, name := range []string{"client_id", "redirect_uri"} {
		if len(form[name]) > 1 {
			return checkedRequest{}, &pageError{"invalid_client", "The app sent the parameter " + name + " twice."}
		}
	}
	if id := form.Get("client_id"); id == "" || len(id) > maxParam || !printable(id) {
		return checkedRequest{}, &pageError{"invalid_client", "The app did not send a client_id."}
	}
	c, err := srv.clientOf(ctx, form.Get("client_id"))
	if err != nil {
		return checkedRequest{}, err
	}
	redirect, err := redirectOf(c, form.Get("redirect_uri"))
	if err != nil {
		return checkedRequest{}, err
	}
	// From here on, the client and its redirect URI are known, so that errors can go to the client.
	state := form.Get("state")
	if len(state) > maxState {
		state = ""
	}
	bad := func(code, description string) (checkedRequest, error) {
		return checkedRequest{Client: c, RedirectURI: redirect}, &redirectError{redirect, state, code, description}
	}
	for _, name := range singleParams {
		switch v := form[name]; {
		case len(v) > 1 && name == "resource":
			return bad("invalid_target", "resource occurs more than once; request one endpoint per token")
		case len(v) > 1:
			return bad("invalid_request", name+" occurs more than once")
		case len(v) == 1 && len(v[0]) > maxLen(name):
			return bad("invalid_request", fmt.Sprintf("%s is longer than %d bytes", name, maxLen(name)))
		}
	}
	switch {
	case form.Get("request") != "":
		return bad("request_not_supported", "request objects are not supported")
	case form.Get("request_uri") != "":
		return bad("request_uri_not_supported", "request objects are not supported")
	case form.Get("response_type") != "code":
		return bad("unsupported_response_type", "response_type must be code")
	case form.Get("response_mode") != "" && form.Get("response_mode") != "query":
		return bad("invalid_request", "response_mode must be query")
	case form.Get("code_challenge") == "":
		return bad("invalid_request", "code_challenge is missing; PKCE is required")
	case form.Get("code_challenge_method") != "S256":
		return bad("invalid_request", "code_challenge_method must be S256")
	case !challengeForm.MatchString(form.Get("code_challenge")):
		return bad("invalid_request", "code_challenge is not the base64url of a SHA-256 hash")
	case slices.Contains(strings.Fields(form.Get("prompt")), "none"):
		return bad("interaction_required", "this server asks the user for consent each time; remove prompt=none")
	}
	resource := srv.resource(form.Get("resource"))
	if resource == "" {
		return bad("invalid_target", "resource is not an endpoint of this server")
	}
	return checkedRequest{
		Client: c, RedirectURI: redirect, State: state, Challenge: form.Get("code_challenge"),
		Scope: srv.scopeOf(form.Get("scope")), Resource: resource,
		ExplicitRedirect: form.Get("redirect_uri") != "",
	}, nil
}

// scopeOf returns the scopes that are granted for a requested scope: the known ones, and always
// mcp.
func (srv *Server) scopeOf(asked string) string {
	var granted []string
	for _, s := range srv.scopes {
		if slices.Contains(strings.Fields(asked), s) {
			granted = append(granted, s)
		}
	}
	if !slices.Contains(granted, scopeMCP) {
		granted = append([]string{scopeMCP}, granted...)
	}
	return strings.Join(granted, " ")
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// authorize is GET and POST /oauth/authorize. It checks the request and shows the consent page.
func (srv *Server) authorize(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		srv.page(w, http.StatusBadRequest, "error",
			pageData{Title: "Invalid request", Text: "The form cannot be read. Start again from your app."})
		return
	}
	request, err := srv.checkAuthorization(r.Context(), r.Form)
	if wrong, ok := errors.AsType[*pageError](err); ok {
		srv.showPageError(w, r, wrong, r.Form.Get("client_id"), r.Form.Get("redirect_uri"))
		return
	}
	if wrong, ok := errors.AsType[*redirectError](err); ok {
		srv.answerRedirectError(w, r, request, wrong)
		return
	}
	if gone, ok := errors.AsType[*fetchError](err); ok {
		srv.page(w, http.StatusBadRequest, "client", pageData{Title: "This app cannot sign you in right now",
			Text: "The app's description at " + gone.host + " cannot be read: " + gone.why + "."})
		return
	}
	if err != nil {
		srv.showOutage(w, r, err)
		return
	}
	detail, err := json.Marshal(requestDetail{Name: request.Client.label(), Host: request.Client.Host,
		Kind: request.Client.Kind})
	if err != nil {
		srv.showOutage(w, r, err)
		return
	}
	srv.startRequest(w, r, store.AuthRequest{
		Purpose: purposeAuthorize, ClientID: request.Client.ID, RedirectURI: request.RedirectURI,
		State: []byte(request.State), Scope: request.Scope,
		Resource: request.Resource, CodeChallenge: request.Challenge, Request: explicit(request.ExplicitRedirect),
		Detail: detail,
	})
}

// answerRedirectError sends an error to the client. If no user has allowed the client yet, it shows
// a page with a link instead: anyone can register a client, and a redirect would lead to any
// address they choose.
func (srv *Server) answerRedirectError(
	w http.ResponseWriter, r *http.Request, request checkedRequest, wrong *redirectError,
) {
	c := request.Client
	known, err := srv.returnsTo(r.Context(), c, request.RedirectURI)
	if err != nil {
		srv.showOutage(w, r, err)
		return
	}
	if known {
		http.Redirect(w, r, srv.errorURL(wrong), http.StatusSeeOther)
		return
	}
	srv.event(r, "authorize_refused", "", c.ID, wrong.code)
	d := pageData{
		Title: "This app cannot sign you in", Text: wrong.description, Code: wrong.code,
		Client: c.label(), Kind: string(c.Kind), ClientHost: c.Host, Next: srv.errorURL(wrong),
	}
	d.Target, d.Local = displayTarget(request.RedirectURI)
	srv.page(w, http.StatusBadRequest, "mistake", d)
}

// returnsTo reports whether the redirect URI of a client is trusted: the operator has configured
// it, or a user has allowed the client with this redirect target. On loopback the port is ignored,
// since clients use another port each time.
func (srv *Server) returnsTo(ctx context.Context, c *client, redirect string) (bool, error) {
	if c.Kind == kindStatic {
		return true, nil
	}
	host, local := displayTarget(redirect)
	if u, err := url.Parse(redirect); local && err == nil {
		host = strings.TrimSuffix(host, ":"+u.Port())
	}
	return srv.store.RedirectAllowed(ctx, c.ID, host, local)
}

// showPageError shows a person why the app cannot sign them in.
func (srv *Server) showPageError(w http.ResponseWriter, r *http.Request, wrong *pageError, client, redirect string) {
	srv.event(r, "authorize_refused", "", safeText(client, 64), wrong.code)
	d := pageData{Title: "This app cannot sign you in", Text: wrong.text, Target: safeText(redirect, 200),
		Blocked: wrong.code == codeBlocked}
	srv.page(w, http.StatusBadRequest, "client", d)
}

func explicit(b bool) []byte {
	if b {
		return []byte("redirect_uri")
	}
	return nil
}

// startRequest stores a request and shows its page. The page is shown each time, even to a
// signed-in user: another site may have sent the browser here.
func (srv *Server) startRequest(w http.ResponseWriter, r *http.Request, row store.AuthRequest) {
	binding := srv.binding(w, r)
	id := secret()
	row.Expires, row.Network = srv.now().Add(requestTTL), callerOf(r.Context()).network()
	if err := srv.store.AddAuthRequest(r.Context(), id, binding, row); err != nil {
		srv.showOutage(w, r, err)
		return
	}
	srv.showConsent(w, r, id, binding, row)
}

func (srv *Server) showConsent(w http.ResponseWriter, r *http.Request, id, binding string, row store.AuthRequest) {
	var who requestDetail
	_ = json.Unmarshal(row.Detail, &who)
	d := pageData{Tx: id, CSRF: srv.derive("csrf", id, binding), Client: who.Name, Kind: string(who.Kind),
		ClientHost: who.Host, Resource: row.Resource, Lasts: lasts(srv.tokens.RefreshTTL)}
	d.Target, d.Local = displayTarget(row.RedirectURI)
	d.Scopes = strings.Join(slices.DeleteFunc(strings.Fields(row.Scope),
		func(s string) bool { return slices.Contains(scopes, s) }), ", ")
	for _, p := range srv.providers {
		d.Providers = append(d.Providers, choice{p.ID, p.label()})
	}
	if row.Purpose == purposeLogin {
		d.Title = "Sign in to " + srv.name
		if to, err := url.Parse(string(row.Request)); err == nil {
			d.Upstream = strings.TrimPrefix(to.Path, "/connect/")
		}
		srv.page(w, http.StatusOK, "login", d)
		return
	}
	if s, err := srv.session(r); err == nil {
		d.User = s.label()
	} else if !isOver(err) {
		srv.showOutage(w, r, err)
		return
	}
	d.Title = "Allow " + who.Name + "?"
	srv.page(w, http.StatusOK, "consent", d)
}

// lasts formats a duration for people.
func lasts(d time.Duration) string {
	n, unit := int(d/time.Hour), "hour"
	if n >= 48 {
		n, unit = n/24, "day"
	}
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprint(n, " ", unit)
}

// consent is POST /oauth/consent: the user has chosen.
func (srv *Server) consent(w http.ResponseWriter, r *http.Request) {
	if !srv.sameOriginForm(w, r) {
		return
	}
	id, action := r.PostForm.Get("tx"), r.PostForm.Get("action")
	binding := cookie(r, bindingCookie)
	if binding == "" || id == "" || !srv.derived(r.PostForm.Get("csrf"), "csrf", id, binding) {
		srv.startAgain(w, binding == "")
		return
	}
	row, err := srv.store.AuthRequest(r.Context(), id, binding)
	if err != nil {
		srv.showRequestError(w, r, err)
		return
	}
	var who requestDetail
	_ = json.Unmarshal(row.Detail, &who)
	switch {
	case action == "cancel" && row.Purpose == purposeAuthorize:
		if _, err := srv.store.ApproveAuthRequest(r.Context(), id, binding, store.Approval{}); err != nil &&
			!errors.Is(err, store.ErrUsed) {
			srv.showRequestError(w, r, err)
			return
		}
		if _, err := srv.store.ConsumeApproved(r.Context(), id, binding); err != nil {
			srv.showRequestError(w, r, err)
			return
		}
		srv.event(r, "consent_denied", "", row.ClientID, "")
		srv.redirectByPage(w, srv.errorURL(&redirectError{row.RedirectURI, string(row.State), "access_denied",
			"the user denied the request"}), pageData{
			Title: "Access denied", Client: who.Name, Text: "Returning to " + who.Name + "."})
	case action == "allow" && row.Purpose == purposeAuthorize:
		srv.allow(w, r, id, binding, who)
	case strings.HasPrefix(action, "idp:"):
		srv.toProvider(w, r, id, binding, strings.TrimPrefix(action, "idp:"))
	default:
		srv.startAgain(w, false)
	}
}

// allow approves a request for the user who is signed in in this browser.
func (srv *Server) allow(w http.ResponseWriter, r *http.Request, id, binding string, who requestDetail) {
	s, err := srv.session(r)
	if err != nil {
		srv.showRequestError(w, r, err)
		return
	}
	who.User, who.Session = s.user.ID, s.IDPSession
	detail, err := json.Marshal(who)
	if err != nil {
		srv.showOutage(w, r, err)
		return
	}
	// A second click finds the request approved and takes the same way. Only its consumption
	// happens once.
	row, err := srv.store.ApproveAuthRequest(r.Context(), id, binding, store.Approval{Detail: detail})
	if errors.Is(err, store.ErrUsed) && row.Consumed.IsZero() && row.IDP == "" {
		err = nil
	}
	if err != nil {
		srv.showRequestError(w, r, err)
		return
	}
	srv.redirectByPage(w, srv.url+"/oauth/continue?tx="+url.QueryEscape(id),
		pageData{Title: "Allowed", Client: who.Name, Text: "One moment."})
}

// toProvider approves a request and sends the browser to the provider. State, nonce and verifier
// are derived from the request and the browser, so that a second click sends the same values.
func (srv *Server) toProvider(w http.ResponseWriter, r *http.Request, id, binding, idp string) {
	i := slices.IndexFunc(srv.providers, func(p *provider) bool { return p.ID == idp })
	if i < 0 {
		srv.startAgain(w, false)
		return
	}
	p := srv.providers[i]
	state, nonce, verifier := srv.derive("state", id, binding), srv.derive("nonce", id, binding), srv.derive("verifier",
		id, binding)
	where, err := p.begin(r.Context(), state, nonce, verifier)
	if err != nil {
		srv.showProviderOutage(w, r, p, err) // not approved yet: the user can try again
		return
	}
	approved, err := srv.store.ApproveAuthRequest(r.Context(), id, binding,
		store.Approval{IDP: idp, State: state, Nonce: nonce, Verifier: verifier})
	if errors.Is(err, store.ErrUsed) && approved.Consumed.IsZero() && approved.IDP == idp {
		err = nil
	}
	if err != nil {
		srv.showRequestError(w, r, err)
		return
	}
	srv.redirectByPage(w, where, pageData{Title: "Going to " + p.label(), Text: "You sign in there and then return " +
		"to this server."})
}

// errorURL returns the redirect that sends an error to the client (RFC 6749, section 4.1.2.1; RFC
// 9207).
func (srv *Server) errorURL(wrong *redirectError) string {
	return srv.answerURL(wrong.redirect, url.Values{"error": {wrong.code}, "error_description": {wrong.description}},
		wrong.state)
}

// answerURL adds parameters to a redirect URI and keeps its query.
func (srv *Server) answerURL(redirect string, members url.Values, state string) string {
	if state != "" {
		members.Set("state", state)
	}
	members.Set("iss", srv.url)
	separator := "?"
	if strings.Contains(redirect, "?") {
		separator = "&"
	}
	return redirect + separator + members.Encode()
}

// redirectByPage answers with a page that goes on to where. A redirect would fail: the directive
// form-action of the page's security policy also covers redirects after a form.
func (srv *Server) redirectByPage(w http.ResponseWriter, where string, d pageData) {
	d.Next = where
	w.Header().Set("Refresh", "0; url="+where)
	srv.page(w, http.StatusOK, "going", d)
}

// startAgain shows that a page belongs to another browser, or has expired.
func (srv *Server) startAgain(w http.ResponseWriter, noCookies bool) {
	d := pageData{Title: "Start again from your app", Text: "This page belongs to another browser, or has expired. " +
		"Nothing was allowed. Go back to your app and connect again."}
	if noCookies {
		d.Text = "Your browser sent no cookie of this server. Either this page belongs to another browser, or " +
			"cookies are blocked. Allow cookies for this server, go back to your app and connect again."
	}
	srv.page(w, http.StatusForbidden, "error", d)
}

// showRequestError answers with the reason why a stored request cannot go on.
func (srv *Server) showRequestError(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, store.ErrUsed):
		srv.page(w, http.StatusForbidden, "error", pageData{Title: "This page was already used",
			Text: "If your app is not connected, go back to it and connect again."})
	case errors.Is(err, store.ErrExpired):
		srv.page(w, http.StatusForbidden, "error", pageData{Title: "This page has expired",
			Text: "Nothing was allowed. Go back to your app and connect again."})
	case isOver(err):
		srv.startAgain(w, false)
	default:
		srv.showOutage(w, r, err)
	}
}

// showOutage answers a person with 503.
func (srv *Server) showOutage(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		srv.log.Error("cannot show a sign-in page", "path", r.URL.Path, "request_id", auth.RequestID(w), "error",
			err)
	}
	w.Header().Set("Retry-After", "5")
	srv.page(w, http.StatusServiceUnavailable, "error", pageData{Title: "Temporarily unavailable",
		Text: "This server cannot answer right now. Nothing is lost. Reload the page in a moment."})
}

func (srv *Server) showProviderOutage(w http.ResponseWriter, r *http.Request, p *provider, err error) {
	if r.Context().Err() == nil {
		srv.log.Error("cannot reach the identity provider", "provider", p.ID, "request_id", auth.RequestID(w),
			"error", err)
	}
	w.Header().Set("Retry-After", "5")
	srv.page(w, http.StatusServiceUnavailable, "error", pageData{Title: p.label() + " cannot be reached",
		Text: "Nothing is lost. Go back and try again in a moment."})
}
