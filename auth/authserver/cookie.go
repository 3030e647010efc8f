package authserver

import (
	"cmp"
	"net/http"
	"time"

	"junction/auth/store"
)

// The cookies. One identifies the browser in which a request began, the other the signed-in user.
// The prefix __Host- makes browsers bind them to this host and send them over https or loopback
// only.
const (
	bindingCookie = "__Host-junction_tx"
	sessionCookie = "__Host-junction_session"
	sessionTTL    = 12 * time.Hour
)

// binding returns the secret of the browser. It sets a new one only if there is none, so that
// several sign-ins can run in one browser.
func (srv *Server) binding(w http.ResponseWriter, r *http.Request) string {
	b := cookie(r, bindingCookie)
	if b == "" {
		b = secret()
	}
	setCookie(w, bindingCookie, b, time.Hour)
	return b
}

// cookie returns the value of a cookie, "" if it is missing or malformed.
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

// session is a signed-in browser with its user.
type session struct {
	store.WebSession
	user store.User
}

func (s session) label() string { return cmp.Or(s.user.Email, s.user.Display, s.user.Subject) }

// session returns the session of the browser. The error satisfies isOver if no user is signed in.
func (srv *Server) session(r *http.Request) (session, error) {
	value := cookie(r, sessionCookie)
	if value == "" {
		return session{}, store.ErrNotFound
	}
	s, user, err := srv.store.WebSession(r.Context(), value)
	return session{s, user}, err
}

// sameOriginForm parses the form of a POST. It returns an error unless the POST comes from a page of
// this server, by its headers. The caller checks the CSRF token.
func (srv *Server) sameOriginForm(r *http.Request) error {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	// A page without a referrer makes browsers send Origin: null (Fetch, section 3.2). A sandboxed
	// frame of another site does so too, but is cross-site.
	own := origin == "" || origin == srv.url || origin == "null" && site == "same-origin"
	if !own || site != "" && site != "same-origin" || r.ParseForm() != nil {
		return startAgain(false)
	}
	return nil
}
