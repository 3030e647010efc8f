package authserver

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"time"

	"junction/auth/store"
)

// The cookies. One identifies the browser in which a request began, one the signed-in user. The third
// says that a user has signed in in this browser, for the limits of pages: it gives no access.
// The prefix __Host- makes browsers bind them to this host and send them over https or loopback
// only.
const (
	bindingCookie = "__Host-junction_tx"
	sessionCookie = "__Host-junction_session"
	sessionTTL    = 12 * time.Hour
	knownCookie   = "__Host-junction_known"
	knownTTL      = 90 * 24 * time.Hour
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

// newKnown returns the value of knownCookie: the time, random bytes, and a code of both. It names no user.
func (srv *Server) newKnown() string {
	b := binary.BigEndian.AppendUint64(nil, uint64(srv.now().Unix()))
	b = append(b, make([]byte, knownBytes-len(b))...)
	rand.Read(b[8:]) // never fails, see crypto/rand
	text := base64.RawURLEncoding.EncodeToString(b)
	return text + derive(srv.cookies[0], "known", []string{text})[:knownCode]
}

const (
	knownBytes = 16
	knownCode  = 43 - 22 // characters of the code, after the 22 characters of the bytes: 126 bits
)

// knownBrowser returns what tells a browser apart in which a user has signed in, "" for any other. It is
// cheap, since strangers can send any cookie.
func (srv *Server) knownBrowser(r *http.Request) string {
	value := cookie(r, knownCookie)
	if value == "" {
		return ""
	}
	text, code := value[:len(value)-knownCode], value[len(value)-knownCode:]
	b, err := strictBase64.DecodeString(text)
	made := slices.ContainsFunc(srv.cookies, func(key []byte) bool {
		return hmac.Equal([]byte(code), []byte(derive(key, "known", []string{text})[:knownCode]))
	})
	if err != nil || !made || srv.now().After(time.Unix(int64(binary.BigEndian.Uint64(b)), 0).Add(knownTTL)) {
		return ""
	}
	return text
}

// networkOrBrowser returns on whose account a request is stored: a known browser has one of its own.
func (srv *Server) networkOrBrowser(r *http.Request) string {
	if browser := srv.knownBrowser(r); browser != "" {
		return "browser " + browser
	}
	return callerOf(r.Context()).network()
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

// formToken returns the CSRF token of a page. It binds a form to the browser, to the user to whom the page
// was shown ("" if no user was signed in), and to the other contents of the page. The token does not reveal
// the user.
func (srv *Server) formToken(binding, user string, page ...string) string {
	shown := srv.derive("shown", user)
	return shown + "." + srv.derive("csrf", append([]string{binding, shown}, page...)...)
}

// shownTo returns to whom the page of a form was shown, for sameUser. ok is false unless this server has
// shown that page in this browser.
func (srv *Server) shownTo(r *http.Request, page ...string) (shown string, ok bool) {
	binding := cookie(r, bindingCookie)
	shown, code, ok := strings.Cut(r.PostForm.Get("csrf"), ".")
	return shown, ok && binding != "" && srv.derived(code, "csrf", append([]string{binding, shown}, page...)...)
}

// sameUser returns nil if a page was shown to the user of s. Else another tab of the browser has signed in
// another user since, and what is pressed on the page is for neither of them: the error is a page that says
// so, and that nothing was done.
func (srv *Server) sameUser(s session, shown, nothing, next string) error {
	if srv.derived(shown, "shown", s.user.ID) {
		return nil
	}
	return stop(http.StatusForbidden, pageData{Title: "You are signed in as another user",
		Text: "The page was shown to another user. You are now signed in as " + s.label() + ". " + nothing, Next: next})
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
