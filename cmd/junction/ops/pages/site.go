package pages

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"junction/cmd/junction/ops/diagnose"
	"junction/cmd/junction/ops/pages/frame"
	"junction/proxy/front"
)

// SiteOptions are what the pages of the admin address show and do. All fields must be set.
type SiteOptions struct {
	Report func(people bool) diagnose.Report // without people, it names no callers and no folders of theirs
	// Open reports whether there is no authentication, so that callers are programs of this machine and no people.
	Open      func() bool
	Sessions  func() (latest []front.SessionStatus, total int)
	Streams   func() int64 // of clients, open
	Calls     *Calls
	Reconnect func(upstream string) bool // returns false if there is no such upstream; does not block
	// SignIn prepares a sign-in of the operator, whose answer comes back to the origin. The error is
	// for the person.
	SignIn   func(ctx context.Context, upstream, origin string) (SignIn, error)
	SignedIn func(upstream string) // called after a sign-in that has succeeded; does not block
	Version  string                // of the program
	URL      func() string         // of the merged endpoint, for people
	File     string                // the configuration file; "" is the demo
	// Access and Clients return how clients connect; see NewConnect.
	Access   func() Access
	Clients  Clients
	Variable string
	// Ends returns sentences about what ends soon: certificates, and keys if people may be named.
	Ends     func(people bool) []string
	Command  func(words ...string) string // returns a command about this proxy, for a shell
	Stopping context.Context              // ends when the process is going to end
	Log      *slog.Logger
}

// Site is the pages that show a running proxy, and what the owner may do. It is
// for the admin listener, whose handler has checked the Host header, that no page of another site sent
// the request, and that a POST has the secret of the owner. There the pages cannot know the owner: they show
// commands and no people. In the console (package console) they show people, and have buttons.
type Site struct {
	SiteOptions
	page, signInPage *frame.Page
	owned            chi.Router // of the console
	signIns          signIns
	live             live
}

// NewSite returns the pages.
func NewSite(o SiteOptions) (*Site, error) {
	p, err := newPage("site", "connect-src 'self'; form-action 'self'", "clients")
	if err != nil {
		return nil, err
	}
	in, err := newPage("signin", "form-action 'none'")
	if err != nil {
		return nil, err
	}
	s := &Site{SiteOptions: o, page: p, signInPage: in, owned: chi.NewRouter()}
	s.live.versions = s.versions
	s.pages(s.owned)
	return s, nil
}

// Register adds the routes of the open pages, and those of commands.
func (s *Site) Register(r chi.Router) {
	s.pages(r)
	r.Get(CallbackPattern, s.callback)
	r.Head(CallbackPattern, s.callback)
}

// pages adds the routes that the open pages and the console have.
func (s *Site) pages(r chi.Router) {
	for path, answer := range map[string]http.HandlerFunc{
		"/": s.show(s.overview), "/servers": s.show(s.servers), "/servers/{upstream}": s.show(s.server),
		"/calls": s.show(s.calls), "/clients": s.show(s.connect), "/events": s.events, "/changes": s.changes,
	} {
		r.Get(path, answer)
		r.Head(path, answer)
	}
	r.Post("/reconnect", s.reconnect)
	r.Post("/signin", s.signIn)
}

// Serve answers a request of the console. The caller has checked that the owner sent it, and the token of a form.
func (s *Site) Serve(w http.ResponseWriter, r *http.Request, v View) { s.owned.ServeHTTP(w, v.with(r)) }

// pageData is the data of every page. Page is the name of the one whose field is set.
type pageData struct {
	View
	Title, Page, Version string
	Zone                 string // of the times, which a script writes again in that of the browser
	Seq                  uint64 // of the changes that the page has
	People               bool   // callers are named
	Others               int    // processes over one database; 0 if there is one
	Overview             *overviewData
	Servers              *serversData
	Server               *serverData
	Calls                *callsData
	Connect              *connectData
	parts                map[string]part // that the script can fetch
}

// part is a piece of a page that changes by itself.
type part struct {
	template string
	data     any
}

// row is the data of a part that needs that of its page, too.
type row[T any] struct {
	*pageData
	Row T
}

// builder fills the data of a page for a request. It returns false if there is no such page.
type builder func(r *http.Request, d *pageData) bool

// PartsHeader is a header in which the script of a page names the parts that it wants.
const PartsHeader = "Junction-Parts"

// mostParts is the most parts of one answer.
const mostParts = 200

// show returns the handler of a page. A request that names parts gets these alone.
func (s *Site) show(build builder) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := viewOf(r)
		d := &pageData{View: v, Version: s.Version, Zone: time.Now().Format("MST"), Seq: s.live.now().seq,
			People: v.Owner || s.Open(), parts: map[string]part{}}
		if !build(r, d) {
			d.Page, d.Title = "missing", "There is no such page"
			s.page.Serve(w, s.Log, http.StatusNotFound, d)
			return
		}
		wanted, partly := r.Header[PartsHeader]
		if !partly {
			s.page.Serve(w, s.Log, http.StatusOK, d)
			return
		}
		var b bytes.Buffer
		names := strings.Split(strings.Join(wanted, ","), ",")
		for _, name := range names[:min(len(names), mostParts)] {
			p, there := d.parts[name]
			if !there {
				continue
			}
			if err := s.page.Render(&b, p.template, p.data); err != nil {
				s.Log.Error("cannot render a part of a page", "part", name, "error", err)
				http.Error(w, "The part cannot be shown; the log has the reason.", http.StatusInternalServerError)
				return
			}
		}
		frame.Secure(w.Header())
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(b.Bytes())
	}
}

// pageTime is a time as the pages show it: Short has no date if it is today.
type pageTime struct{ Exact, Full, Short string }

// Time returns a time in the zone of this machine.
func (*pageData) Time(t time.Time) pageTime {
	at := t.Local()
	p := pageTime{at.Format(time.RFC3339), at.Format("2006-01-02 15:04:05 MST"), at.Format(time.TimeOnly)}
	if at.Format(time.DateOnly) != time.Now().Format(time.DateOnly) {
		p.Short = at.Format(time.DateTime)
	}
	return p
}

// reconnect connects an upstream again.
func (s *Site) reconnect(w http.ResponseWriter, r *http.Request) {
	frame.Secure(w.Header())
	name := r.FormValue("upstream")
	if !s.Reconnect(name) {
		http.Error(w, noUpstream(name), http.StatusNotFound)
		return
	}
	s.Log.Info("an upstream is connected again, as its owner has asked", "upstream", name)
	if v := viewOf(r); v.Owner {
		http.Redirect(w, r, v.serverPage(name), http.StatusSeeOther)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, "{}\n")
}
