package authserver

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"junction/auth/store"
	"junction/upstream/prose"
)

// This file has the page on which users give a key of their own for an upstream. A key is stored for the user
// who is signed in in the browser; the link to the page gives no right.

// Keeper keeps the keys that users give for upstreams; package auth/credentials implements it. If an error has
// a method Public() string, that text is shown to the user.
type Keeper interface {
	// Upstreams returns the names of the upstreams for which users give keys.
	Upstreams() []string
	// Describe returns the origin or the command that gets a key, and the header or the variables that carry it.
	Describe(upstream string) (origin, carrier string)
	// Give stores a key of a user. origin is the one that the user has seen. principal is the ID of the user.
	Give(ctx context.Context, upstream, origin, key, user, principal string) error
	// Forget deletes the key of a user.
	Forget(ctx context.Context, upstream, user string) error
}

// keeps reports whether users give keys for an upstream.
func (srv *Server) keeps(name string) bool {
	return srv.keeper != nil && slices.Contains(srv.keeper.Upstreams(), name)
}

// keyPage answers with the form for a key. problem is why the last one was not stored; "" if there was none.
func (srv *Server) keyPage(w http.ResponseWriter, r *http.Request, s session, name, problem string) error {
	origin, carrier := srv.keeper.Describe(name)
	place, runs := store.KeyPlace(origin)
	status := http.StatusOK
	if problem != "" {
		status = http.StatusUnprocessableEntity
	}
	return srv.page(w, status, "key", pageData{Title: "Your key for " + name, Upstream: name, User: s.label(),
		UsedAt: place, Runs: runs, Target: carrier, Seen: origin, Text: problem,
		CSRF: srv.formToken(srv.binding(w, r), s.user.ID, purposeConnect, name, "key", origin)})
}

// giveKey is POST /connect/{upstream} for an upstream with keys.
func (srv *Server) giveKey(w http.ResponseWriter, r *http.Request, name string) error {
	s, err := srv.session(r)
	if err != nil && !isOver(err) {
		return err
	}
	page, origin := srv.url+"/connect/"+url.PathEscape(name), r.PostForm.Get("seen")
	shown, ok := srv.shownTo(r, purposeConnect, name, "key", origin)
	if err != nil || !ok {
		return stop(http.StatusForbidden, pageData{Title: "This page has expired",
			Text: "The key was not stored. Open the page again.", Next: page})
	}
	if err := srv.sameUser(s, shown, "The key was not stored.", page); err != nil {
		return err
	}
	if err := srv.mayConnect(s, name); err != nil {
		return err
	}
	err = srv.keeper.Give(r.Context(), name, origin, r.PostForm.Get("key"), s.user.ID, s.principal())
	if public, known := errors.AsType[interface {
		error
		Public() string
	}](err); known {
		return srv.keyPage(w, r, s, name, prose.ASCII(public.Public(), 300))
	}
	if err != nil {
		return err
	}
	srv.event(r, "upstream_connected", s.user.ID, "", name)
	return srv.page(w, http.StatusOK, "connected",
		pageData{Title: "The key for " + name + " is stored", Upstream: name, User: s.label()})
}

// drop ends a connection of a user: the tokens of a sign-in, or a key.
func (srv *Server) drop(ctx context.Context, k store.Connection) error {
	if k.Issuer != store.KeyIssuer {
		return srv.connector.Disconnect(ctx, k.Upstream, k.User)
	}
	if srv.keeper == nil {
		_, err := srv.store.DeleteConnection(ctx, k.Upstream, k.User)
		return err
	}
	return srv.keeper.Forget(ctx, k.Upstream, k.User)
}

// hostOf returns the host of a URL, for people.
func hostOf(where string) string {
	at, err := url.Parse(where)
	if err != nil {
		return ""
	}
	return at.Host
}
