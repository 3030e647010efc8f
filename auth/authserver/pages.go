package authserver

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"strings"

	"junction/auth"
)

//go:embed pages
var files embed.FS

// pages are what people see: plain HTML and one stylesheet, without a script, and without anything
// from elsewhere.
type pages struct {
	all    map[string]*template.Template
	policy string // Content-Security-Policy
}

// pageData is what a page may show. All of it is text; nothing of it is HTML.
type pageData struct {
	Title, Text string
	Server      string // ours
	Request     string // its id

	Code         string // of OAuth, for what is wrong
	Tx, CSRF     string
	Client, Kind string
	ClientHost   string
	Blocked      bool   // the client is: nothing that the person can do helps
	Target       string // where the client is returned to
	Local        bool   // that is this machine
	Resource     string
	User         string
	Scopes       string // that not every client gets
	Lasts        string // without use
	Providers    []choice
	Next, Label  string // where the page goes on to, and what that is called
	Grants       []grantRow
	Upstream     string // that somebody connects
	Upstreams    []upstreamRow
}

// Link is Next for a link: where clients are returned to has been checked by redirect.go, the rest
// is ours or the provider's.
func (d pageData) Link() template.URL { return template.URL(d.Next) }

type choice struct{ ID, Name string }

type grantRow struct{ ID, Client, Kind, Host, Resource, Used, Expires string }

func newPages() (*pages, error) {
	style, err := files.ReadFile("pages/style.css")
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(style)
	p := &pages{all: map[string]*template.Template{},
		policy: "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
			"'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'"}
	inline := template.FuncMap{"style": func() template.CSS { return template.CSS(style) }}
	layout, err := template.New("layout.html").Funcs(inline).ParseFS(files, "pages/layout.html")
	if err != nil {
		return nil, err
	}
	for _, name := range []string{
		"consent", "login", "going", "refused", "error", "client", "mistake", "account", "connect", "upstream",
		"connected",
	} {
		t, err := layout.Clone()
		if err == nil {
			t, err = t.ParseFS(files, "pages/"+name+".html")
		}
		if err != nil {
			return nil, err
		}
		p.all[name] = t
	}
	return p, nil
}

// pageHeaders are those of everything that a browser shows.
func pageHeaders(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
}

// page answers with a page.
func (srv *Server) page(w http.ResponseWriter, status int, name string, d pageData) {
	d.Server, d.Request = srv.name, auth.RequestID(w)
	var b bytes.Buffer
	if err := srv.pages.all[name].Execute(&b, d); err != nil {
		srv.log.Error("a page could not be written", "page", name, "error", err)
		http.Error(w, "This server cannot answer now.", http.StatusInternalServerError)
		return
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
}
