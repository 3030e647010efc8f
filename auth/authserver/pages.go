package authserver

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"junction/auth"
)

//go:embed pages
var files embed.FS

//go:embed pages/style.css
var style string

// pages are the HTML pages: one stylesheet, no scripts, and no content from other origins. The mark
// and the icon, a data URL, come from package cmd/junction/ops/pages.
type pages struct {
	all    map[string]*template.Template
	policy string // Content-Security-Policy
}

// pageData is the data of a page. All of it is text that the templates escape.
type pageData struct {
	Title, Text string
	Server      string // the name of this server
	Request     string // id of the request

	Code         string // OAuth error code
	Tx, CSRF     string
	Client, Kind string
	ClientHost   string
	Blocked      bool   // the client is blocked, and the user cannot change that
	Target       string // where the browser will go
	Local        bool   // Target is on this computer
	Resource     string
	User         string
	Scopes       string   // beyond the default ones
	Lasts        string   // how long access lasts without use
	Ends         string   // when access ends at the latest, if that is before Lasts; otherwise ""
	Servers      []string // that the user may use
	Providers    []choice
	Next, Label  string // link to go on, and its text
	Grants       []grantRow
	Upstream     string // that the user connects
	Tokens       string // the host that gets the code of the sign-in there
	UsedAt       string // the host that gets the access token, or the program that gets a key
	Runs         bool   // UsedAt is a program
	Seen         string // what Begin of the Connector compares, and More
	More         string // the scopes that a call has lacked
	Upstreams    []upstreamRow
}

// Link is Next as a trusted URL. redirect.go has checked redirect URIs; other links come from this
// server or the provider.
func (d pageData) Link() template.URL { return template.URL(d.Next) }

type choice struct{ ID, Name string }

type grantRow struct{ ID, Client, Kind, Host, Resource, Used, Expires string }

func newPages() *pages {
	sum := sha256.Sum256([]byte(style))
	p := &pages{all: map[string]*template.Template{},
		policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; img-src data:; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"}
	inline := template.FuncMap{"style": func() template.CSS { return template.CSS(style) }}
	layout := template.Must(template.New("layout.html").Funcs(inline).ParseFS(files, "pages/layout.html"))
	for _, name := range []string{
		"consent", "login", "going", "refused", "error", "client", "mistake", "account", "connect", "upstream",
		"connected", "key",
	} {
		p.all[name] = template.Must(template.Must(layout.Clone()).ParseFS(files, "pages/"+name+".html"))
	}
	return p
}

// pageHeaders sets the security headers of everything that a browser shows.
func pageHeaders(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// pageHandler answers a request of a browser. If it returns an error, it has answered nothing: the
// error is a *stopped, or means that the server cannot answer.
type pageHandler func(w http.ResponseWriter, r *http.Request) error

// stopped is a page that tells a person why a request ends, as an error.
type stopped struct {
	status int
	page   string
	data   pageData
}

func (s *stopped) Error() string { return s.data.Title }

// stop returns a *stopped with the page "error".
func stop(status int, d pageData) error { return &stopped{status, "error", d} }

var errNoPage = stop(http.StatusNotFound,
	pageData{Title: "Page not found", Text: "This server has no page at this address.",
		Next: "/", Label: "How to connect a client"})

// forPeople is a handler that shows the errors of answer.
func (srv *Server) forPeople(answer pageHandler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := answer(w, r)
		if err == nil {
			return
		}
		s, ok := errors.AsType[*stopped](err)
		if !ok {
			if r.Context().Err() == nil {
				srv.log.Error("cannot show a sign-in page", "path", r.URL.Path, auth.LogIDs(w, r),
					"error", err)
			}
			s = &stopped{http.StatusServiceUnavailable, "error", pageData{Title: "Temporarily unavailable",
				Text: "This server cannot answer right now. Nothing is lost. Reload the page in a moment."}}
		}
		if s.status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "5")
		}
		if err := srv.page(w, s.status, s.page, s.data); err != nil {
			srv.log.Error("cannot show a page", "error", err)
			http.Error(w, "This server cannot answer right now.", http.StatusInternalServerError)
		}
	})
}

// page answers with a page. After an error it has answered nothing.
func (srv *Server) page(w http.ResponseWriter, status int, name string, d pageData) error {
	d.Server, d.Request = srv.name, auth.RequestID(w)
	var b bytes.Buffer
	if err := srv.pages.all[name].Execute(&b, d); err != nil {
		return fmt.Errorf("render the page %s: %w", name, err)
	}
	pageHeaders(w)
	h := w.Header()
	h.Set("Content-Security-Policy", srv.pages.policy)
	h.Set("Content-Type", "text/html; charset=utf-8")
	if strings.ContainsAny(h.Get("Refresh"), "\r\n") {
		h.Del("Refresh")
	}
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
	return nil
}
