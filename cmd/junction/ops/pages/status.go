package pages

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"

	"junction/cmd/junction/ops/diagnose"
	"junction/cmd/junction/ops/pages/frame"
	"junction/proxy/front"
	"junction/upstream"
)

// StatusOptions are what the status page shows and does. All fields must be set.
type StatusOptions struct {
	Report func(people bool) diagnose.Report // without people, it names no callers and no folders of theirs
	// Open reports whether there is no authentication, so that callers are programs of this machine and no people.
	Open      func() bool
	Sessions  func() (latest []front.SessionStatus, total int)
	Calls     *Calls
	Reconnect func(upstream string) bool // returns false if there is no such upstream; does not block
	// SignIn prepares a sign-in of the operator, whose answer comes back to the origin. The error is
	// for the person.
	SignIn   func(ctx context.Context, upstream, origin string) (SignIn, error)
	SignedIn func(upstream string)        // called after a sign-in that has succeeded; does not block
	Version  string                       // of the program
	URL      func() string                // of the merged endpoint, for people
	File     string                       // the configuration file; "" is the demo
	Command  func(words ...string) string // returns a command about this proxy, for a shell
	Stopping context.Context              // ends when the process is going to end
	Log      *slog.Logger
}

// Status is the page that shows a running proxy, its event stream, and what the owner may do. It is
// for the admin listener, whose handler has checked the Host header, that no page of another site sent
// the request, and that a POST has the secret of the owner. There the page cannot know the owner: it shows
// commands and no people. In the console (package console) it shows people, and has buttons.
type Status struct {
	StatusOptions
	page, signInPage *frame.Page
	owned            chi.Router // of the console
	signIns          signIns
	streams          atomic.Int64
}

// NewStatus returns the page.
func NewStatus(o StatusOptions) (*Status, error) {
	p, err := newPage("status", "connect-src 'self'; form-action 'self'")
	if err != nil {
		return nil, err
	}
	in, err := newPage("signin", "form-action 'none'")
	if err != nil {
		return nil, err
	}
	made := &Status{StatusOptions: o, page: p, signInPage: in, owned: chi.NewRouter()}
	made.pages(made.owned)
	return made, nil
}

// Register adds the routes of the open page, and those of commands.
func (s *Status) Register(r chi.Router) {
	s.pages(r)
	r.Get(CallbackPattern, s.callback)
	r.Head(CallbackPattern, s.callback)
}

// pages adds the routes that the open page and the console have.
func (s *Status) pages(r chi.Router) {
	for path, answer := range map[string]http.HandlerFunc{"/": s.show, "/events": s.events} {
		r.Get(path, answer)
		r.Head(path, answer)
	}
	r.Post("/reconnect", s.reconnect)
	r.Post("/signin", s.signIn)
}

// Serve answers a request of the console. The caller has checked that the owner sent it, and the token of a form.
func (s *Status) Serve(w http.ResponseWriter, r *http.Request, v View) {
	s.owned.ServeHTTP(w, v.with(r))
}

func (s *Status) show(w http.ResponseWriter, r *http.Request) {
	s.page.Serve(w, s.Log, http.StatusOK, s.data(viewOf(r)))
}

// statusData is the data of the page.
type statusData struct {
	View
	diagnose.Report
	People         bool // callers are named
	Title, Version string
	URL, File      string
	Heading        string   // how many servers work
	Lacking        []string // what of the file is not in force
	Secure         string   // until when the certificate of TLS is valid
	Zone           string   // of the times, which a script writes again in that of the browser
	Upstreams      []upstreamData
	More           int // problems of tools that the page does not show
	Calls          []Call
	Latest         []sessionData
	Sessions       int
	Fine           bool // there are no problems
}

type upstreamData struct {
	diagnose.UpstreamStatus
	Rate   int    // calls within the last minute
	Words  string // the state
	Class  string // of the state, in the style sheet
	Broken bool   // a person should read the reason
	Again  string // the command that connects the upstream again; "" if that would change nothing
	Enter  bool   // the owner can sign in to the server
	Few    []diagnose.CommandProcess
	Others int    // processes that Few leaves out
	All    string // the command that shows all
}

type sessionData struct {
	front.SessionStatus
	By string // the caller, for people
}

// canReconnect reports whether the owner can have the upstream connected again. If it needs a sign-in,
// its error names the command.
func (u *upstreamData) canReconnect() bool {
	signIn := u.SignIn && (u.State == upstream.StateSignIn.String() || len(u.Lacks) > 0)
	return !signIn && !u.Invalid && u.State != diagnose.PerUser && u.State != upstream.StateStarting.String()
}

// pageTime is a time as the page shows it: Short has no date if it is today.
type pageTime struct{ Exact, Full, Short string }

// Time returns a time in the zone of this machine.
func (statusData) Time(t time.Time) pageTime {
	at := t.Local()
	p := pageTime{at.Format(time.RFC3339), at.Format("2006-01-02 15:04:05 MST"), at.Format(time.TimeOnly)}
	if at.Format(time.DateOnly) != time.Now().Format(time.DateOnly) {
		p.Short = at.Format(time.DateTime)
	}
	return p
}

// Millis returns a duration in whole milliseconds.
func (statusData) Millis(d time.Duration) string {
	return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + " ms"
}

const mostProblems = 50 // of tools that the page shows

func (s *Status) data(v View) statusData {
	now := time.Now()
	people := v.Owner || s.Open()
	d := statusData{View: v, Report: s.Report(people), People: people, Title: "Status", Version: s.Version, URL: s.URL(),
		File: s.File, Calls: s.Calls.Last(), Zone: now.Format("MST")}
	d.Heading, d.Lacking = diagnose.Summary(d.Report.Upstreams), d.Unfollowed()
	d.Secure = d.Certificate.Sentence(now)
	if d.More = max(len(d.Problems)-mostProblems, 0); d.More > 0 {
		d.Problems = d.Problems[:mostProblems]
	}
	d.Fine = len(d.Problems)+len(d.Overuse)+len(d.Warnings) == 0 && len(d.Lacking) == 0
	for _, issuer := range d.Issuers {
		d.Fine = d.Fine && issuer.Err == ""
	}
	for _, part := range d.Parts {
		d.Fine = d.Fine && (part.OK || part.Error == "")
	}
	for _, u := range d.Report.Upstreams {
		row := upstreamData{UpstreamStatus: u, Rate: s.Calls.Rate(u.Name), Words: u.Shown(now),
			Class:  strings.ReplaceAll(u.State, " ", "-"),
			Broken: u.Need() < diagnose.NeedsTime || u.Degraded > 0 || len(u.Lacks) > 0}
		if row.canReconnect() {
			row.Again = s.Command("reconnect", u.Name)
		}
		row.Enter = v.Owner && u.SignIn
		row.Few, row.Others = u.FewProcesses()
		row.All = s.Command("status", u.Name, "--json")
		d.Fine = d.Fine && !row.Broken
		d.Upstreams = append(d.Upstreams, row)
	}
	slices.SortStableFunc(d.Upstreams, func(a, b upstreamData) int { return cmp.Compare(a.Need(), b.Need()) })
	names := map[string]string{} // of users, by their ids
	for _, c := range d.Calls {
		names[c.Caller] = c.By()
	}
	latest, total := s.Sessions()
	d.Sessions = total
	for _, one := range latest {
		d.Latest = append(d.Latest, sessionData{one, cmp.Or(names[one.Principal], one.Principal)})
	}
	return d
}

const (
	maxStreams = 16 // open event streams
	every      = time.Second
	quiet      = 15 // times every, after which an unchanged stream sends a comment
)

// events sends the content of the page whenever it has changed.
func (s *Status) events(w http.ResponseWriter, r *http.Request) {
	if s.streams.Add(1) > maxStreams {
		s.streams.Add(-1)
		http.Error(w, "Too many status pages are open; close some.", http.StatusServiceUnavailable)
		return
	}
	defer s.streams.Add(-1)
	c := http.NewResponseController(w)
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		s.Log.Error("cannot open the event stream of the status page", "error", err)
		return
	}
	v := viewOf(r)
	var ended <-chan struct{} // never for the open page
	if v.Ended != nil {
		ended = v.Ended.Done()
	}
	frame.Secure(w.Header())
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last []byte
	for unchanged := 0; ; unchanged++ {
		now, err := s.render(v)
		if err != nil {
			s.Log.Error("cannot render the status page", "error", err)
			return
		}
		if !bytes.Equal(now, last) || unchanged == quiet {
			text := ":\n\n"
			if !bytes.Equal(now, last) {
				text = "data: " + string(now) + "\n\n"
			}
			last, unchanged = now, 0
			if c.SetWriteDeadline(time.Now().Add(10*time.Second)) != nil {
				return
			}
			if _, err := w.Write([]byte(text)); err != nil || c.Flush() != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.Stopping.Done():
			return
		case <-ended:
			return
		case <-tick.C:
			if v.Lasts != nil && !v.Lasts() {
				return
			}
		}
	}
}

// render returns the part of the page that changes, as a JSON string.
func (s *Status) render(v View) ([]byte, error) {
	var b bytes.Buffer
	if err := s.page.Render(&b, "live", s.data(v)); err != nil {
		return nil, err
	}
	return json.Marshal(b.String())
}

// reconnect connects an upstream again.
func (s *Status) reconnect(w http.ResponseWriter, r *http.Request) {
	frame.Secure(w.Header())
	name := r.FormValue("upstream")
	if !s.Reconnect(name) {
		http.Error(w, fmt.Sprintf("there is no upstream %q; junction list shows their names", name),
			http.StatusNotFound)
		return
	}
	s.Log.Info("an upstream is connected again, as its owner has asked", "upstream", name)
	if v := viewOf(r); v.Owner {
		http.Redirect(w, r, v.Base+"#upstream-"+url.PathEscape(name), http.StatusSeeOther)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	io.WriteString(w, "{}\n")
}
