package authserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"junction/auth"
	"junction/auth/store"
	"junction/upstream/prose"
)

// This file holds the pages on which users connect upstreams that need a sign-in of each user.
// Tokens are stored for the user who is signed in in the browser that was sent to the upstream. A
// link made for another user is rejected.

// Connector is the OAuth client of upstreams; package auth/oauth implements it. If an error has
// a method Public() string, that text is shown to the user.
type Connector interface {
	// Upstreams returns the names of the upstreams that users connect.
	Upstreams() []string
	// Describe returns what the user confirms before a sign-in. seen has the hosts: where the user signs
	// in, which one gets the code and returns the tokens, and which one then gets the access token, and a
	// digest of the scopes. scopes are the requested scopes: the upstream's, the scopes that the
	// principal has granted, and more.
	Describe(ctx context.Context, upstream, principal string, more []string) (
		seen [4]string, scopes []string, err error)
	// Begin returns the URL to send the browser to, and the state that Finish needs. It fails if
	// the hosts or the scopes differ from those that the user has seen. Pass the same principal and more
	// as to Describe.
	Begin(ctx context.Context, upstream, principal, state, verifier string, seen [4]string, more []string) (
		where string, kept []byte, err error)
	// Finish takes the answer that the browser brought back, and stores the user's tokens.
	// principal is the ID of the same user.
	Finish(ctx context.Context, upstream string, kept []byte, verifier string, answer url.Values, user,
		principal string) error
	// Disconnect ends a user's connection. It may return an error if there is none.
	Disconnect(ctx context.Context, upstream, user string) error
	// Document is this server's client metadata document; nil if there is none.
	Document() []byte
}

const purposeConnect = "connect"

// connectState is stored while a user connects an upstream.
type connectState struct {
	User    string          `json:"user"`
	Session string          `json:"session"`
	Kept    json.RawMessage `json:"kept"`
}

// upstreamRow is an upstream on the account page.
type upstreamRow struct {
	Name, At, Since   string
	Connected, Broken bool
	Gone              bool // it is no longer configured
	Words             Words
}

// Words are the words of a kind of credential on the account page: what the page says of the upstream after its
// name, and what the buttons do.
type Words struct {
	Has, Lost, Lacks   string
	Give, Replace, End string
}

// State returns what the page says of the upstream.
func (r upstreamRow) State() string {
	switch {
	case r.Connected:
		return r.Words.Has
	case r.Broken:
		return r.Words.Lost
	}
	return r.Words.Lacks
}

// Action returns what the button for a credential does.
func (r upstreamRow) Action() string {
	if r.Connected || r.Broken {
		return r.Words.Replace
	}
	return r.Words.Give
}

// words returns the words for an upstream; key is whether users give keys for it.
func (srv *Server) words(key bool) Words {
	if key {
		return srv.keyWords
	}
	return srv.signInWords
}

// ConnectURL returns the page on which a principal connects an upstream, with more scopes than those
// that the upstream names. The link works for that principal alone.
func (srv *Server) ConnectURL(upstream, principal string, more ...string) string {
	text := principal
	for _, scope := range more {
		if len(text)+len(scope) < mostScopes {
			text += "\n" + scope
		}
	}
	return srv.url + "/connect/" + url.PathEscape(upstream) + "?t=" +
		base64.RawURLEncoding.EncodeToString(srv.links.Seal([]byte(text), upstream))
}

// mostScopes bounds the content of a link, in bytes: sealed and encoded, it is shorter than maxLink.
const mostScopes = maxLink / 2

// opened returns the principal and the scopes of a link; the principal is "" if ConnectURL did not make
// the link.
func (srv *Server) opened(upstream, t string) (principal string, more []string) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(t)
	if err != nil {
		return "", nil
	}
	text, err := srv.links.Open(sealed, upstream)
	if err != nil {
		return "", nil
	}
	parts := strings.Split(string(text), "\n")
	return parts[0], parts[1:]
}

// forUpstream is a handler of the upstream in the path, which users connect.
func (srv *Server) forUpstream(answer func(w http.ResponseWriter, r *http.Request, name string) error) pageHandler {
	return func(w http.ResponseWriter, r *http.Request) error {
		name := r.PathValue("upstream")
		if !srv.keeps(name) && (srv.connector == nil || !slices.Contains(srv.connector.Upstreams(), name)) {
			return stop(http.StatusNotFound, pageData{Title: "Server not found",
				Text: "No server with this name needs a connection.", Next: srv.url + "/account",
				Label: "Go to your account"})
		}
		return answer(w, r, name)
	}
}

// canUse reports whether policies let a user use anything of an upstream, with all scopes that apps
// may request.
func (srv *Server) canUse(s session, upstream string) bool {
	return srv.mayUse == nil || srv.mayUse(srv.everything(s), upstream)
}

// everything returns the user as a principal with all scopes that apps may request.
func (srv *Server) everything(s session) *auth.Principal {
	return srv.principal(s.user, s.user.Claims, store.Grant{Scope: strings.Join(srv.scopes, " ")})
}

// principal is the ID of the user as a principal.
func (s session) principal() string { return auth.UserID(s.user.Issuer, s.user.Subject) }

// connectPage is GET /connect/{upstream}. It explains the connection and asks for confirmation.
func (srv *Server) connectPage(w http.ResponseWriter, r *http.Request, name string) error {
	link := r.URL.Query().Get("t")
	var whose string
	var more []string
	if link != "" && len(link) <= maxLink {
		whose, more = srv.opened(name, link)
	}
	if link != "" && whose == "" {
		link = "?" // invalid; foreign text is not stored
	}
	s, err := srv.session(r)
	if isOver(err) {
		return srv.startRequest(w, r, store.AuthRequest{Purpose: purposeLogin,
			Request: []byte("/connect/" + url.PathEscape(name) + "?" + url.Values{"t": {link}}.Encode())}, "")
	}
	if err != nil {
		return err
	}
	if r.URL.Query().Get("t") != "" && whose != s.principal() {
		srv.event(r, "connect_refused", s.user.ID, "", name)
		return stop(http.StatusForbidden,
			pageData{Title: "This link is for another user", Next: srv.url + "/account", Label: "Go to your account",
				Text: "You are signed in as " + s.label() + ", and this link was made for another user. " +
					"Nothing was connected. " +
					"If another person sent you this link, they may want to use your account at " +
					name + ". To connect " + name + " for yourself, start from your own app or your account page."})
	}
	if err := srv.mayConnect(s, name); err != nil {
		return err
	}
	if srv.keeps(name) {
		return srv.keyPage(w, r, s, name, "")
	}
	seen, scopes, err := srv.connector.Describe(r.Context(), name, s.principal(), more)
	if err != nil {
		return srv.notConnected(w, r, name, err)
	}
	d := pageData{Title: "Connect " + name + "?", Upstream: name, User: s.label(), Target: seen[0], Tokens: seen[1],
		UsedAt: seen[2], Seen: strings.Join(append(seen[:], more...), " "), Scopes: strings.Join(scopes, ", "),
		More: strings.Join(more, ", ")}
	if d.More != "" {
		d.Title = "Allow more at " + name + "?"
	}
	d.CSRF = srv.formToken(srv.binding(w, r), s.user.ID, purposeConnect, name, d.Seen)
	return srv.page(w, http.StatusOK, "upstream", d)
}

// mayConnect returns an error unless policies let the user use the upstream.
func (srv *Server) mayConnect(s session, name string) error {
	if srv.canUse(s, name) {
		return nil
	}
	return stop(http.StatusForbidden, pageData{Title: "No access to " + name,
		Text: "You are " + s.label() + ", and no policy of this server gives you access to it. " +
			groupsText(srv.groups(s.user.Claims)) + " Ask the operator of this server."})
}

// connectUpstream is POST /connect/{upstream}. It sends the browser to the upstream's authorization
// server.
func (srv *Server) connectUpstream(w http.ResponseWriter, r *http.Request, name string) error {
	if err := srv.sameOriginForm(r); err != nil {
		return err
	}
	if srv.keeps(name) {
		return srv.giveKey(w, r, name)
	}
	s, err := srv.session(r)
	if err != nil && !isOver(err) {
		return err
	}
	page := srv.url + "/connect/" + url.PathEscape(name)
	shown, ok := srv.shownTo(r, purposeConnect, name, r.PostForm.Get("seen"))
	if err != nil || !ok {
		return stop(http.StatusForbidden, pageData{Title: "This page has expired",
			Text: "Nothing was connected. Open it again.", Next: page})
	}
	if err := srv.sameUser(s, shown, "Nothing was connected.", page); err != nil {
		return err
	}
	if err := srv.mayConnect(s, name); err != nil {
		return err
	}
	binding, id, state, verifier := cookie(r, bindingCookie), secret(), secret(), secret()
	var seen [4]string
	var more []string
	all := strings.Split(r.PostForm.Get("seen"), " ") // as connectPage wrote it: the CSRF token covers it
	if n := copy(seen[:], all); n < len(all) {
		more = all[n:]
	}
	where, kept, err := srv.connector.Begin(r.Context(), name, s.principal(), state, verifier, seen, more)
	if err != nil {
		return srv.notConnected(w, r, name, err)
	}
	detail, err := json.Marshal(connectState{s.user.ID, s.IDPSession, kept})
	if err == nil {
		err = srv.store.AddAuthRequest(r.Context(), id, binding, store.AuthRequest{
			Purpose: purposeConnect, Detail: detail, Expires: srv.now().Add(requestTTL),
			Network: srv.networkOrBrowser(r), Keep: srv.limits.requests,
		})
	}
	if err == nil {
		_, err = srv.store.ApproveAuthRequest(r.Context(), id, binding,
			store.Approval{IDP: connectKey(name), State: state, Verifier: verifier, Keep: srv.limits.requests})
	}
	if err != nil {
		return err
	}
	return srv.redirectByPage(w, where,
		pageData{Title: "Going to " + name, Text: "You sign in there and then return to this server."})
}

// connectKey is the provider id under which a request to connect an upstream is stored. No identity
// provider has such an id.
func connectKey(name string) string { return "upstream:" + name }

// connectCallback is GET /connect/{upstream}/callback: the answer of an upstream's authorization
// server. It is accepted once, in the browser that was sent there, for the user who is still signed
// in.
func (srv *Server) connectCallback(w http.ResponseWriter, r *http.Request, name string) error {
	binding, q := cookie(r, bindingCookie), r.URL.Query()
	if binding == "" || len(q["state"]) != 1 {
		return startAgain(binding == "")
	}
	row, err := srv.store.ConsumeAuthRequest(r.Context(), connectKey(name), q.Get("state"), binding)
	if err != nil {
		return cannotGoOn(err)
	}
	var way connectState
	if err := json.Unmarshal(row.Detail, &way); err != nil {
		return err
	}
	s, err := srv.session(r)
	if err != nil && !isOver(err) {
		return err
	}
	if err != nil || s.user.ID != way.User || s.IDPSession != way.Session {
		srv.event(r, "connect_refused", way.User, "", name)
		return stop(http.StatusForbidden,
			pageData{Title: "You are signed in as another user", Next: srv.url + "/account",
				Label: "Go to your account",
				Text: "The user who started to connect " + name + " is no longer signed in in this browser. " +
					"Nothing was connected."})
	}
	if err := srv.mayConnect(s, name); err != nil {
		return err
	}
	if err := srv.connector.Finish(r.Context(), name, way.Kept, row.Verifier, q, s.user.ID, s.principal()); err != nil {
		srv.event(r, "connect_failed", s.user.ID, "", name)
		return srv.notConnected(w, r, name, err)
	}
	srv.event(r, "upstream_connected", s.user.ID, "", name)
	return srv.page(w, http.StatusOK, "connected",
		pageData{Title: name + " is connected", Upstream: name, User: s.label()})
}

// notConnected returns the page that tells why an upstream is not connected.
func (srv *Server) notConnected(w http.ResponseWriter, r *http.Request, name string, err error) error {
	public, known := errors.AsType[interface {
		error
		Public() string
	}](err)
	if !known {
		return err
	}
	if r.Context().Err() == nil {
		srv.log.Warn("a user could not connect an upstream", "upstream", name, auth.LogIDs(w, r), "error",
			err)
	}
	return stop(http.StatusBadGateway,
		pageData{Title: name + " is not connected", Next: srv.url + "/account", Label: "Go to your account",
			Text: "Reason: " + prose.ASCII(public.Public(), 300) + "."})
}

// disconnect is POST /connect/{upstream}/disconnect.
func (srv *Server) disconnect(w http.ResponseWriter, r *http.Request, s session) error {
	name := r.PathValue("upstream")
	connections, err := srv.store.Connections(r.Context(), s.user.ID)
	i := slices.IndexFunc(connections, func(c store.Connection) bool { return c.Upstream == name })
	if err == nil && srv.connector != nil && i >= 0 {
		if err = srv.drop(r.Context(), connections[i]); err == nil {
			srv.event(r, "upstream_disconnected", s.user.ID, "", name)
		}
	}
	if err != nil {
		return err
	}
	http.Redirect(w, r, srv.url+"/account", http.StatusSeeOther)
	return nil
}

// upstreams returns the rows of the account page: the upstreams that the user may connect or has
// connected.
func (srv *Server) upstreams(ctx context.Context, s session) (rows []upstreamRow, err error) {
	if srv.connector == nil {
		return nil, nil
	}
	have, err := srv.store.Connections(ctx, s.user.ID)
	if err != nil {
		return nil, err
	}
	names := srv.connector.Upstreams()
	if srv.keeper != nil {
		names = append(names, srv.keeper.Upstreams()...)
	}
	for _, c := range have {
		keyed, key := srv.keeps(c.Upstream), c.Issuer == store.KeyIssuer
		row := upstreamRow{Name: c.Upstream, Broken: c.Broken, At: hostOf(c.Issuer),
			Since: c.Created.UTC().Format(time.DateOnly), Gone: !slices.Contains(names, c.Upstream)}
		row.Words = srv.words(keyed || row.Gone && key)
		if key {
			row.At, _ = store.KeyPlace(c.Resource)
			origin := ""
			if keyed {
				origin, _ = srv.keeper.Describe(c.Upstream)
			}
			row.Broken = origin != c.Resource
		} else if keyed { // a sign-in of an earlier configuration
			row.Broken = true
		}
		row.Connected = !row.Broken
		rows = append(rows, row)
	}
	for _, name := range names {
		if !slices.ContainsFunc(rows, func(r upstreamRow) bool { return r.Name == name }) && srv.canUse(s, name) {
			rows = append(rows, upstreamRow{Name: name, Words: srv.words(srv.keeps(name))})
		}
	}
	slices.SortFunc(rows, func(a, b upstreamRow) int { return strings.Compare(a.Name, b.Name) })
	return rows, nil
}

// clientDocument is GET /oauth/client-metadata.json: this server's metadata as an OAuth client of
// upstreams.
func (srv *Server) clientDocument(w http.ResponseWriter, _ *http.Request) {
	var text []byte
	if srv.connector != nil {
		text = srv.connector.Document()
	}
	if text == nil {
		fail(w, http.StatusNotFound, "not_found", "this server has no client metadata document")
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=300")
	write(w, http.StatusOK, text)
}
