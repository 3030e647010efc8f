package authserver

import (
	"cmp"
	"net/http"
	"time"

	"junction/auth/store"
)

// The cookies: one says that it is the browser that a request began in, the other that somebody has
// signed in in it. Their names make browsers refuse them from other hosts, and send them over https
// alone, or on this machine.
const (
	bindingCookie = "__Host-junction_tx"
	sessionCookie = "__Host-junction_session"
	sessionTTL    = 12 * time.Hour
)

// binding returns the secret of the browser, and gives it one if it has none. It stays the same, so
// that several sign-ins can go on in one browser.
func (srv *Server) binding(w http.ResponseWriter, r *http.Request) string {
	b := cookie(r, bindingCookie)
	if b == "" {
		b = secret()
	}
	setCookie(w, bindingCookie, b, time.Hour)
	return b
}

// cookie returns the value of a cookie, if it can be one of ours.
func cookie(r *http.Request, name string) string {
	c, err := r.Cookie(name)
	if err != nil || len(c.Value) != 43 || !printable(c.Value) {
		return ""
	}
	return c.Value
}

func setCookie(w http.ResponseWriter, name, value string, age time.Duration) {
	c := &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(age / time.Second), Secure: true, HttpOnly: true,
		SameSite: http.SameSiteLaxMode}
	if value == "" {
		c.MaxAge = -1
	}
	http.SetCookie(w, c)
}

// session is who is signed in in a browser.
type session struct {
	store.WebSession
	user store.User
}

func (s session) label() string { return cmp.Or(s.user.Email, s.user.Display, s.user.Subject) }

// session returns who is signed in in the browser; store.ErrNotFound and the like if nobody is.
func (srv *Server) session(r *http.Request) (session, error) {
	value := cookie(r, sessionCookie)
	if value == "" {
		return session{}, store.ErrNotFound
	}
	s, user, err := srv.store.WebSession(r.Context(), value)
	return session{s, user}, err
}

// ownForm reports whether a POST comes from a page of ours, as far as the browser says; if not, it
// has been answered. The token in the form is checked apart.
func (srv *Server) sameOriginForm(w http.ResponseWriter, r *http.Request) bool {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	// Pages that send no referrer have the browser send Origin: null (Fetch, section 3.2), which a
	// page of somebody else's in a frame has too; that one is cross-site.
	own := origin == "" || origin == srv.url || origin == "null" && site == "same-origin"
	if !own || site != "" && site != "same-origin" {
		srv.startAgain(w, false)
		return false
	}
	if err := r.ParseForm(); err != nil {
		srv.startAgain(w, false)
		return false
	}
	return true
}
