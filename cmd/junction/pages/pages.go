// Package pages has the HTML pages for people: how to connect a client (connect.go), and the status
// of a running proxy (status.go) with its last calls (calls.go) and the operator's sign-ins
// (signin.go). A page has one style sheet and one script, both inline and named by their hashes in
// the Content-Security-Policy, and works without the script.
package pages

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
)

//go:embed files
var files embed.FS

// page is an HTML page and its security policy.
type page struct {
	template *template.Template
	policy   string // Content-Security-Policy
}

// newPage reads the files of a page. sources are further directives of its policy.
func newPage(name, sources string) (*page, error) {
	read := func(file string) (text, hash string, err error) {
		b, err := files.ReadFile("files/" + file)
		sum := sha256.Sum256(b)
		return string(b), "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'", err
	}
	style, styleHash, err := read("style.css")
	if err != nil {
		return nil, err
	}
	script, scriptHash, err := read(name + ".js")
	if errors.Is(err, fs.ErrNotExist) {
		script, scriptHash = "", "'none'"
	} else if err != nil {
		return nil, err
	}
	t, err := template.New("layout.html").Funcs(template.FuncMap{
		"style":  func() template.CSS { return template.CSS(style) },
		"script": func() template.JS { return template.JS(script) },
	}).ParseFS(files, "files/layout.html", "files/"+name+".html")
	if err != nil {
		return nil, err
	}
	return &page{t, "default-src 'none'; style-src " + styleHash + "; script-src " + scriptHash +
		"; img-src data:; base-uri 'none'; frame-ancestors 'none'; " + sources}, nil
}

// serve answers with the page.
func (p *page) serve(w http.ResponseWriter, log *slog.Logger, status int, data any) {
	var b bytes.Buffer
	if err := p.template.Execute(&b, data); err != nil {
		log.Error("cannot render a page", "page", p.template.Name(), "error", err)
		http.Error(w, "The page cannot be shown; the log has the reason.", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	secure(h)
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// secure sets the headers of everything that a browser shows.
func secure(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, forms have the origin "null"
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
