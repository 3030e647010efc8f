package pages

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"junction/upstream/prose"
)

// SignIn is one sign-in of the operator at an upstream.
type SignIn interface {
	URL() (string, error)                           // where the person signs in
	About() string                                  // names the hosts that take part, for the person
	Mine(answer url.Values) bool                    // reports whether an answer belongs to the sign-in
	Finish(ctx context.Context, a url.Values) error // stores what an answer that is Mine brings
}

// signIns are the sign-ins that were started on the page. Their answers come back to the admin
// listener, since it is on this machine, like the browser.
type signIns struct {
	mu   sync.Mutex
	open map[string]openSignIn // by upstream; guarded by mu
}

type openSignIn struct {
	SignIn
	until time.Time
	back  string // the page on which it was started
}

const (
	signInTime  = 10 * time.Minute // for a person to sign in
	prepareTime = 30 * time.Second // to find out where
)

// begin keeps a sign-in. It replaces an earlier one of the upstream.
func (s *signIns) begin(upstream, back string, in SignIn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]openSignIn{}
	}
	s.open[upstream] = openSignIn{in, time.Now().Add(signInTime), back}
}

// take returns the sign-in that an answer belongs to, once.
func (s *signIns) take(upstream string, answer url.Values) (in openSignIn, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in, there := s.open[upstream]
	if !there || !in.Mine(answer) {
		return openSignIn{}, false
	}
	delete(s.open, upstream)
	return in, !time.Now().After(in.until)
}

// CallbackPattern is the route of the requests that bring answers of authorization servers. They come
// from another site.
const CallbackPattern = "/connect/{upstream}/callback"

// signInPage is the data of the pages during a sign-in.
type signInPage struct {
	Title, Text   string
	Link, Label   string
	Again, Failed bool // Again: the browser goes on by itself
}

// signIn starts a sign-in for the owner. The answer is a page that goes on.
func (s *Site) signIn(w http.ResponseWriter, r *http.Request) {
	name, back := r.FormValue("upstream"), viewOf(r).Base
	ctx, cancel := context.WithTimeout(r.Context(), prepareTime)
	defer cancel()
	in, err := s.SignIn(ctx, name, "http://"+callbackHost(r))
	where := ""
	if err == nil {
		where, err = in.URL()
	}
	if err != nil {
		s.failed(w, http.StatusBadGateway, name, back, err)
		return
	}
	s.signIns.begin(name, back, in)
	host := where
	if u, err := url.Parse(where); err == nil {
		host = u.Host
	}
	s.Log.Info("a sign-in was started on the status page", "upstream", name)
	s.signInPage.Serve(w, s.Log, http.StatusOK, signInPage{Title: "Sign in to " + name,
		Text: in.About() + " Everyone who may use " + name + " here then acts with your sign-in.",
		Link: where, Label: "Continue at " + host, Again: true})
}

// callbackHost returns the host that answers come back to: that of the page, as an address, which
// authorization servers accept more often than the name localhost (RFC 8252, section 8.3).
func callbackHost(r *http.Request) string {
	host, port, err := net.SplitHostPort(r.Host)
	if _, notAddress := netip.ParseAddr(host); err != nil || notAddress == nil {
		return r.Host
	}
	ip := "127.0.0.1"
	if at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && at.IP.To4() == nil {
		ip = "::1"
	}
	return net.JoinHostPort(ip, port)
}

// callback takes the answer of an authorization server. The state in the answer protects it: only a
// sign-in that the form has started has one, and it is accepted once.
func (s *Site) callback(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("upstream")
	in, ok := s.signIns.take(name, r.URL.Query())
	if !ok {
		s.failed(w, http.StatusBadRequest, name, "/",
			errors.New("this answer does not belong to a sign-in that is in progress; start again on the first page"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), prepareTime)
	defer cancel()
	if err := in.Finish(ctx, r.URL.Query()); err != nil {
		s.failed(w, http.StatusOK, name, in.back, err) // the answer was taken, and says no
		return
	}
	s.Log.Info("the operator has signed in on the status page", "upstream", name)
	s.SignedIn(name)
	s.signInPage.Serve(w, s.Log, http.StatusOK, signInPage{Title: "Signed in to " + name,
		Text: "Junction connects to " + name + " now.",
		Link: in.back + "#upstream-" + url.PathEscape(name), Label: "Back to the first page", Again: true})
}

// failed answers with the reason why a sign-in failed.
func (s *Site) failed(w http.ResponseWriter, status int, name, back string, err error) {
	s.Log.Warn("a sign-in on the status page has failed", "upstream", name, "error", err)
	page := signInPage{Title: "Not signed in",
		Text: fmt.Sprintf("The sign-in to %s failed: %s.", prose.Flat(name), prose.Flat(err.Error())),
		Link: back, Label: "Back to the first page", Failed: true}
	s.signInPage.Serve(w, s.Log, status, page)
}
