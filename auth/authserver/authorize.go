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
	"junction/auth/authserver/provider"
	"junction/auth/store"
	"junction/upstream/prose"
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

func detailOf(row store.AuthRequest) (d requestDetail) {
	_ = json.Unmarshal(row.Detail, &d)
	return d
}

// explicitRedirect is AuthRequest.Request if the token request must repeat redirect_uri.
const explicitRedirect = "redirect_uri"

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

// checkAuthorization checks an authorization request of a client. Nothing is stored or issued yet.
// The error is a *pageError, which is shown to the person; a *redirectError, which is for the
// client; or any other error if the client could not be looked up.
func (srv *Server) checkAuthorization(ctx context.Context, form url.Values) (c *client, row store.AuthRequest,
	err error) {
	for _, name := range []string{"client_id", "redirect_uri"} {
		if len(form[name]) > 1 {
			return nil, row, &pageError{"invalid_client", "The app sent the parameter " + name + " twice."}
		}
	}
	if id := form.Get("client_id"); id == "" || len(id) > maxParam || !printable(id) {
		return c, row, &pageError{"invalid_client", "The app did not send a client_id."}
	}
	if c, err = srv.clientOf(ctx, form.Get("client_id")); err != nil {
		return c, row, err
	}
	if c.Kind == kindStatic && !srv.offered(keyStatic, c.ID) {
		return c, row, &undecidedError{keyStatic + "." + c.ID}
	}
	redirect, err := redirectOf(c, form.Get("redirect_uri"))
	if err != nil {
		return c, row, err
	}
	// From here on, the client and its redirect URI are known, so that errors can go to the client.
	state := form.Get("state")
	if len(state) > maxState {
		state = ""
	}
	bad := func(code, description string) (*client, store.AuthRequest, error) {
		return c, row, &redirectError{redirect, state, code, description}
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
	detail, err := json.Marshal(requestDetail{Name: c.label(), Host: c.Host, Kind: c.Kind})
	row = store.AuthRequest{
		Purpose: purposeAuthorize, ClientID: c.ID, RedirectURI: redirect, State: []byte(state),
		CodeChallenge: form.Get("code_challenge"), Scope: srv.scopeOf(form.Get("scope")), Resource: resource,
		Detail: detail,
	}
	if form.Get("redirect_uri") != "" {
		row.Request = []byte(explicitRedirect)
	}
	return c, row, err
}

// scopeOf returns the scopes that are granted for a requested scope: the known ones, and always
// mcp.
func (srv *Server) scopeOf(asked string) string {
	var granted []string
	for _, s := range srv.offeredScopes() {
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
func (srv *Server) authorize(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return stop(http.StatusBadRequest,
			pageData{Title: "Invalid request", Text: "The form cannot be read. Start again from your app."})
	}
	c, row, err := srv.checkAuthorization(r.Context(), r.Form)
	if refusal, ok := errors.AsType[*pageError](err); ok {
		return srv.refused(r, refusal, r.Form.Get("client_id"), r.Form.Get("redirect_uri"))
	}
	if refusal, ok := errors.AsType[*redirectError](err); ok {
		return srv.answerRedirectError(w, r, c, refusal)
	}
	if fetchErr, ok := errors.AsType[*fetchError](err); ok {
		return &stopped{http.StatusBadRequest, "client", pageData{Title: "This app cannot sign you in right now",
			Text: "The app's description at " + fetchErr.host + " cannot be read: " + fetchErr.why + "."}}
	}
	if err != nil {
		return err
	}
	return srv.startRequest(w, r, row, "")
}

// answerRedirectError sends an error to a client that the operator has configured. For all others it
// shows a page with a link instead: the person is not known here, and a person who has allowed the
// client may be another one. Any web page can send a browser here, and anyone can register a client.
func (srv *Server) answerRedirectError(
	w http.ResponseWriter, r *http.Request, c *client, refusal *redirectError,
) error {
	if c.Kind == kindStatic {
		http.Redirect(w, r, srv.errorURL(refusal), http.StatusSeeOther)
		return nil
	}
	srv.event(r, "authorize_refused", "", c.ID, refusal.code)
	d := pageData{
		Title: "This app cannot sign you in", Text: refusal.description, Code: refusal.code,
		Client: c.label(), Kind: string(c.Kind), ClientHost: c.Host, Next: srv.errorURL(refusal),
	}
	d.Target, d.Local = displayTarget(refusal.redirect)
	return &stopped{http.StatusBadRequest, "mistake", d}
}

// refused audits why an app cannot sign a person in, and returns the page that tells the person.
func (srv *Server) refused(r *http.Request, refusal *pageError, client, redirect string) error {
	srv.event(r, "authorize_refused", "", prose.ASCII(client, 64), refusal.code)
	return &stopped{http.StatusBadRequest, "client", pageData{Title: "This app cannot sign you in", Text: refusal.text,
		Target: prose.ASCII(redirect, 200), Blocked: refusal.code == codeBlocked}}
}

// startRequest stores a request and shows its page. The page is shown each time, even to a
// signed-in user: another site may have sent the browser here. why says why the page is shown again, if it is.
func (srv *Server) startRequest(w http.ResponseWriter, r *http.Request, row store.AuthRequest, why string) error {
	binding := srv.binding(w, r)
	id := secret()
	row.Expires, row.Network, row.Keep = srv.now().Add(requestTTL), srv.networkOrBrowser(r), srv.limits.requests
	if err := srv.store.AddAuthRequest(r.Context(), id, binding, row); err != nil {
		return err
	}
	return srv.showConsent(w, r, id, binding, row, why)
}

func (srv *Server) showConsent(
	w http.ResponseWriter, r *http.Request, id, binding string, row store.AuthRequest, why string,
) error {
	who := detailOf(row)
	d := pageData{Tx: id, CSRF: srv.formToken(binding, "", id), Client: who.Name, Kind: string(who.Kind),
		ClientHost: who.Host, Resource: row.Resource, Lasts: lasts(srv.tokens.RefreshTTL), Text: why}
	d.Target, d.Local = displayTarget(row.RedirectURI)
	d.Scopes = strings.Join(slices.DeleteFunc(strings.Fields(row.Scope),
		func(s string) bool { return slices.Contains(scopes, s) }), ", ")
	var err error
	if d.Providers, err = srv.choices(); err != nil {
		return err
	}
	if row.Purpose == purposeLogin {
		d.Title = "Sign in to " + srv.name
		if to, err := url.Parse(string(row.Request)); err == nil {
			d.Upstream = strings.TrimPrefix(to.Path, "/connect/")
		}
		return srv.page(w, http.StatusOK, "login", d)
	}
	if s, err := srv.session(r); err == nil {
		d.User, d.CSRF = s.label(), srv.formToken(binding, s.user.ID, id)
		if d.Ends, err = srv.ends(r.Context(), s); err != nil {
			return err
		}
	} else if !isOver(err) {
		return err
	}
	refreshes := func(p *provider.Provider) bool { return !p.NoRefresh.Load() }
	if d.User == "" && !slices.ContainsFunc(srv.providers, refreshes) {
		d.Ends = lasts(srv.tokens.MaxAgeWithoutIDPRefresh) + " after you sign in"
	}
	d.Title = "Allow " + who.Name + "?"
	return srv.page(w, http.StatusOK, "consent", d)
}

// ends returns when access by a sign-in session ends although it is used, because the provider gave no
// refresh token; "" if it does not.
func (srv *Server) ends(ctx context.Context, s session) (string, error) {
	idp, err := srv.store.IDPSession(ctx, s.IDPSession)
	if err != nil || idp.RefreshToken != "" {
		if isOver(err) {
			err = nil
		}
		return "", err
	}
	return "at " + idp.OKUntil.UTC().Format("15:04 UTC on 2006-01-02"), nil
}

// lasts formats a duration for people.
func lasts(d time.Duration) string {
	n, unit := int(d/time.Hour), "hour"
	switch {
	case n >= 48:
		n, unit = n/24, "day"
	case n == 0:
		n, unit = int(d/time.Minute), "minute"
	}
	if n != 1 {
		unit += "s"
	}
	return fmt.Sprint(n, " ", unit)
}

// consent is POST /oauth/consent: the user has chosen.
func (srv *Server) consent(w http.ResponseWriter, r *http.Request) error {
	if err := srv.sameOriginForm(r); err != nil {
		return err
	}
	id, action := r.PostForm.Get("tx"), r.PostForm.Get("action")
	binding := cookie(r, bindingCookie)
	shown, ok := srv.shownTo(r, id)
	if !ok || id == "" {
		return startAgain(binding == "")
	}
	row, err := srv.store.AuthRequest(r.Context(), id, binding)
	if err != nil {
		return cannotGoOn(err)
	}
	who := detailOf(row)
	switch {
	case action == "cancel" && row.Purpose == purposeAuthorize:
		if _, err := srv.store.ApproveAuthRequest(r.Context(), id, binding, store.Approval{}); err != nil &&
			!errors.Is(err, store.ErrUsed) {
			return cannotGoOn(err)
		}
		if _, err := srv.store.ConsumeApproved(r.Context(), id, binding); err != nil {
			return cannotGoOn(err)
		}
		srv.event(r, "consent_denied", "", row.ClientID, appText(who.Name))
		return srv.redirectByPage(w, srv.deniedURL(row, "the user denied the request"),
			pageData{Title: "Access denied", Client: who.Name, Text: "Returning to " + who.Name + "."})
	case action == "allow" && row.Purpose == purposeAuthorize:
		return srv.allow(w, r, id, binding, shown, row)
	case strings.HasPrefix(action, "idp:"):
		return srv.toProvider(w, r, id, binding, strings.TrimPrefix(action, "idp:"))
	}
	return startAgain(false)
}

// allow approves a request for the user who is signed in in this browser, and to whom its page was shown.
func (srv *Server) allow(
	w http.ResponseWriter, r *http.Request, id, binding, shown string, row store.AuthRequest,
) error {
	s, err := srv.session(r)
	if err != nil {
		return cannotGoOn(err)
	}
	if err := srv.sameUser(s, shown, "Nothing was allowed. Go back to your app and connect again.", ""); err != nil {
		srv.event(r, "authorize_refused", s.user.ID, row.ClientID, "another_user")
		return err
	}
	who := detailOf(row)
	who.User, who.Session = s.user.ID, s.IDPSession
	detail, err := json.Marshal(who)
	if err != nil {
		return err
	}
	// A second click finds the request approved and takes the same way. Only its consumption
	// happens once.
	row, err = srv.store.ApproveAuthRequest(r.Context(), id, binding,
		store.Approval{Detail: detail, Keep: srv.limits.requests})
	if errors.Is(err, store.ErrUsed) && row.Consumed.IsZero() && row.IDP == "" {
		err = nil
	}
	if err != nil {
		return cannotGoOn(err)
	}
	return srv.redirectByPage(w, srv.url+"/oauth/continue?tx="+url.QueryEscape(id),
		pageData{Title: "Allowed", Client: who.Name, Text: "One moment."})
}

// toProvider approves a request and sends the browser to the provider. State, nonce and verifier
// are derived from the request and the browser, so that a second click sends the same values.
func (srv *Server) toProvider(w http.ResponseWriter, r *http.Request, id, binding, idp string) error {
	p := srv.provider(idp)
	if p == nil {
		return startAgain(false)
	}
	state, nonce, verifier := srv.derive("state", id, binding), srv.derive("nonce", id, binding), srv.derive("verifier",
		id, binding)
	where, err := p.Begin(r.Context(), state, nonce, verifier)
	if err != nil {
		// It is not approved yet.
		return srv.providerOutage(w, r, p, err, pageData{Text: "Nothing is lost. Go back and try again in a moment."})
	}
	approved, err := srv.store.ApproveAuthRequest(r.Context(), id, binding,
		store.Approval{IDP: idp, State: state, Nonce: nonce, Verifier: verifier, Keep: srv.limits.requests})
	if errors.Is(err, store.ErrUsed) && approved.Consumed.IsZero() && approved.IDP == idp {
		err = nil
	}
	if err != nil {
		return cannotGoOn(err)
	}
	return srv.redirectByPage(w, where, pageData{Title: "Going to " + p.Label(),
		Text: "You sign in there and then return to this server."})
}

// errorURL returns the redirect that sends an error to the client (RFC 6749, section 4.1.2.1; RFC
// 9207).
func (srv *Server) errorURL(refusal *redirectError) string {
	return srv.answerURL(refusal.redirect,
		url.Values{"error": {refusal.code}, "error_description": {refusal.description}}, refusal.state)
}

// deniedURL is errorURL for a request that was denied.
func (srv *Server) deniedURL(row store.AuthRequest, why string) string {
	return srv.errorURL(&redirectError{row.RedirectURI, string(row.State), "access_denied", why})
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
func (srv *Server) redirectByPage(w http.ResponseWriter, where string, d pageData) error {
	d.Next = where
	w.Header().Set("Refresh", "0; url="+where)
	return srv.page(w, http.StatusOK, "going", d)
}

// startAgain means that a page belongs to another browser, or has expired.
func startAgain(noCookies bool) error {
	d := pageData{Title: "Start again from your app", Text: "This page belongs to another browser, or has expired. " +
		"Nothing was allowed. Go back to your app and connect again."}
	if noCookies {
		d.Text = "Your browser sent no cookie of this server. Either this page belongs to another browser, or " +
			"cookies are blocked. Allow cookies for this server, go back to your app and connect again."
	}
	return stop(http.StatusForbidden, d)
}

// cannotGoOn returns the page that tells why a stored request cannot go on. An error that is not
// about the request stays.
func cannotGoOn(err error) error {
	switch {
	case errors.Is(err, store.ErrUsed):
		return stop(http.StatusForbidden, pageData{Title: "This page was already used",
			Text: "If your app is not connected, go back to it and connect again."})
	case errors.Is(err, store.ErrExpired):
		return stop(http.StatusForbidden, pageData{Title: "This page has expired",
			Text: "Nothing was allowed. Go back to your app and connect again."})
	case isOver(err):
		return startAgain(false)
	}
	return err
}

// providerOutage returns the page about a provider that cannot be reached. d says what the user can do.
func (srv *Server) providerOutage(
	w http.ResponseWriter, r *http.Request, p *provider.Provider, err error, d pageData,
) error {
	if r.Context().Err() == nil {
		attrs := []any{"provider", p.ID, auth.LogIDs(w, r), "error", err}
		if advice := p.Advice(err); advice != "" {
			attrs = append(attrs, "advice", advice)
		}
		srv.log.Error("cannot reach the identity provider", attrs...)
	}
	d.Title = p.Label() + " cannot be reached"
	d.Text += " If that does not help, tell the operator of this server."
	return stop(http.StatusServiceUnavailable, d)
}
