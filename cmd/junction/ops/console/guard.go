package console

import (
	"crypto/subtle"
	"io"
	"net/http"
	"strings"

	"junction/cmd/junction/ops/pages"
	"junction/cmd/junction/ops/pages/frame"
	"junction/proxy/origin"
	"junction/upstream/loopback"
)

// Prefix is the beginning of the paths of all sessions.
const Prefix = "/c/"

// cookie is the name of the cookie of a session. Its path is that of the session: browsers send cookies to all
// ports of a host, and another user of the machine may listen on one of them.
const cookie = "junction-console"

// mostForm is the most bytes of a form.
const mostForm = 64 << 10

// ServeHTTP answers all requests below Prefix. The admin address has checked the Host header, and that no page of
// another site or port sent the request.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if origin.Proxied(r) != "" || !loopback.Address(r.RemoteAddr) {
		c.show(w, http.StatusForbidden, notFromHere)
		return
	}
	name, rest, slash := strings.Cut(strings.TrimPrefix(r.URL.Path, Prefix), "/")
	if !slash || !c.sessions.Known(name) {
		c.show(w, http.StatusNotFound, sessionOver)
		return
	}
	base := Prefix + name + "/"
	quiet := rest == "events" || r.Header.Get(pages.QuietHeader) != "" // the script asks, and not the person
	own, stage := c.session(r, name, !quiet)
	compared, _ := c.sessions.Stage(name)
	switch {
	case stage == Gone && rest == "" && compared != Agreed && r.Method == http.MethodGet &&
		r.Header.Get("Sec-Purpose") == "":
		c.open(w, name, base)
	case stage == Gone:
		c.show(w, http.StatusForbidden, notYours)
	case rest == "stage":
		frame.Secure(w.Header())
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, map[Stage]string{Opened: "waiting", Agreed: "open"}[stage])
	case stage == Opened:
		c.show(w, http.StatusOK, stillWaiting.with("", base))
	case r.Method != http.MethodGet && r.Method != http.MethodHead && !c.permitted(w, r, own):
	case r.Method == http.MethodPost && rest == "end":
		c.sessions.End(name)
		c.Log.Info("a session of the console was ended in its browser")
		c.Event("console_ended")
		c.show(w, http.StatusOK, sessionEnded)
	default:
		below := r.Clone(r.Context())
		below.URL.Path, below.URL.RawPath = "/"+rest, ""
		if raw, ok := strings.CutPrefix(r.URL.RawPath, base); ok {
			below.URL.RawPath = "/" + raw
		}
		c.Pages(w, below, pages.View{Base: base, Owner: true, Token: own.Token, Ended: own.ctx,
			Lasts: func() bool { _, stage := c.sessions.Of(name, own.secret, false); return stage == Agreed }})
	}
}

// open answers the first request for the page of an invitation with the code and the cookie, and later ones with
// neither.
func (c *Console) open(w http.ResponseWriter, name, base string) {
	secret, code, first := c.sessions.Open(name)
	if !first {
		c.show(w, http.StatusConflict, secondBrowser)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookie, Value: secret, Path: base, HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
	c.show(w, http.StatusOK, compareCode.with(code, base))
}

// session returns the session of a request. A page of another port can add cookies of the same name, so that all
// are tried.
func (c *Console) session(r *http.Request, name string, used bool) (owned, Stage) {
	for _, one := range r.CookiesNamed(cookie) {
		if s, stage := c.sessions.Of(name, one.Value, used); stage != Gone {
			return owned{s, one.Value}, stage
		}
	}
	return owned{}, Gone
}

// owned is the session of a request, with the secret of its cookie.
type owned struct {
	session
	secret string
}

// permitted reports whether a request that changes something comes from a form of a page of its session. If not, it
// has answered.
func (c *Console) permitted(w http.ResponseWriter, r *http.Request, own owned) bool {
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	from := r.Header["Origin"]
	if r.Method == http.MethodPost && len(from) == 1 && from[0] == "http://"+r.Host && r.ParseForm() == nil {
		given := r.PostForm["token"]
		if len(given) == 1 && subtle.ConstantTimeCompare([]byte(given[0]), []byte(own.Token)) == 1 {
			return true
		}
	}
	c.show(w, http.StatusForbidden, notFromPage)
	return false
}

func (c *Console) show(w http.ResponseWriter, status int, n notice) {
	c.page.Serve(w, c.Log, status, n)
}
