package pages

import (
	"bytes"
	"context"
	"html/template"
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
	Open     func() bool
	Sessions func() (latest []front.SessionStatus, total int)
	Streams  func() int64 // of clients, open
	Calls    *Calls
	History  *History
	// of processes with their children, in bytes; without those that are not known
	Memory    func(pids []int) map[int]int64
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
	list             []page
}

// page is a page of the site, a row of pages.
type page struct {
	word  string  // in the navigation; "" if it is not there
	path  string  // a pattern of chi
	name  string  // its template is page-NAME
	owner bool    // it is in the console alone
	build builder // fills the data
	// versions names the parts of the page, with what is shown of them; nil if another page names them, or they
	// never change.
	versions func(seen *seen, add adder)
}

// pages returns the pages, in the order of the navigation. The templates of one are in the file of its name.
func (s *Site) pages() []page {
	return []page{
		{"Overview", "/", "overview", false, s.overview, s.overviewVersions},
		{"Servers", "/servers", "servers", false, s.servers, serversVersions},
		{"", "/servers/{upstream}", "server", false, s.server, s.serverVersions},
		{"Calls", "/calls", "recent", false, s.recent, s.recentVersions},
		{"Clients", "/clients", "access", false, s.connect, nil},
	}
}

// action is what a form of the pages does, a row of actions.
type action struct {
	path  string
	owner bool // it is in the console alone; the others are for commands, too
	do    http.HandlerFunc
}

func (s *Site) actions() []action {
	return []action{
		{"/reconnect", false, s.reconnect},
		{"/signin", false, s.signIn},
	}
}

// seen is one look at the proxy, for the parts of all pages.
type seen struct {
	report   diagnose.Report
	sessions []front.SessionStatus // the latest ones
	total    int                   // sessions
}

// adder takes a part of a page, with the values that it shows.
type adder func(part string, values ...any)

// versions names the parts of all pages, with what is shown of them.
func (s *Site) versions(add adder) {
	now := &seen{report: s.Report(true)}
	now.sessions, now.total = s.Sessions()
	for _, p := range s.list {
		if p.versions != nil {
			p.versions(now, add)
		}
	}
}

// NewSite returns the pages.
func NewSite(o SiteOptions) (*Site, error) {
	s := &Site{SiteOptions: o, owned: chi.NewRouter()}
	s.list = s.pages()
	more := []string{"clients"}
	for _, p := range s.list {
		more = append(more, p.name)
	}
	var err error
	if s.page, err = newPage("site", "connect-src 'self'; form-action 'self'", more...); err != nil {
		return nil, err
	}
	if s.signInPage, err = newPage("signin", "form-action 'none'"); err != nil {
		return nil, err
	}
	s.live.versions = s.versions
	s.route(s.owned, true)
	return s, nil
}

// Register adds the routes of the open pages, and those of commands.
func (s *Site) Register(r chi.Router) {
	s.route(r, false)
	r.Get(CallbackPattern, s.callback)
	r.Head(CallbackPattern, s.callback)
}

// route adds the routes of the open pages, or of the console.
func (s *Site) route(r chi.Router, owned bool) {
	get := func(path string, answer http.HandlerFunc) {
		r.Get(path, answer)
		r.Head(path, answer)
	}
	for _, p := range s.list {
		if owned || !p.owner {
			get(p.path, s.show(p))
		}
	}
	get("/events", s.events)
	get("/changes", s.changes)
	for _, a := range s.actions() {
		if owned || !a.owner {
			r.Post(a.path, a.do)
		}
	}
}

// Serve answers a request of the console. The caller has checked that the owner sent it, and the token of a form.
func (s *Site) Serve(w http.ResponseWriter, r *http.Request, v View) { s.owned.ServeHTTP(w, v.with(r)) }

// pageData is the data of every page.
type pageData struct {
	View
	Title, Version string
	Zone           string // of the times, which a script writes again in that of the browser
	Seq            uint64 // of the changes that the page has
	People         bool   // callers are named
	Others         int    // processes over one database; 0 if there is one
	Nav            []link
	Data           any             // of this page alone
	parts          map[string]part // that the script can fetch

	site *Site
	name string // of the page; "" if there is none
}

// link is a page in the navigation.
type link struct {
	Word, Path string
	Here       bool
}

// Content returns the body of the page.
func (d *pageData) Content() (template.HTML, error) {
	if d.name == "" {
		return "<p>Choose one above.</p>", nil
	}
	var b strings.Builder
	err := d.site.page.Render(&b, "page-"+d.name, d)
	return template.HTML(b.String()), err
}

// part is a piece of a page that changes by itself.
type part struct {
	template string
	data     any
}

// row is the data of a template that needs that of its page, too.
type row struct {
	*pageData
	Row any
}

// With joins the data of a page with that of a part.
func (d *pageData) With(data any) row { return row{d, data} }

// builder fills the data of a page for a request. It returns false if there is no such page.
type builder func(r *http.Request, d *pageData) bool

// PartsHeader is a header in which the script of a page names the parts that it wants.
const PartsHeader = "Junction-Parts"

// mostParts is the most parts of one answer.
const mostParts = 200

// show returns the handler of a page. A request that names parts gets these alone.
func (s *Site) show(p page) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := viewOf(r)
		d := &pageData{View: v, Version: s.Version, Zone: time.Now().Format("MST"), Seq: s.live.now().seq,
			People: v.Owner || s.Open(), parts: map[string]part{}, site: s, name: p.name}
		for _, one := range s.list {
			if one.word != "" && (v.Owner || !one.owner) {
				path := v.Base + strings.TrimPrefix(one.path, "/")
				d.Nav = append(d.Nav, link{one.word, path, one.name == p.name})
			}
		}
		if !p.build(r, d) {
			d.name, d.Title = "", "There is no such page"
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
