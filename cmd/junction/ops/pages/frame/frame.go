// Package frame is the frame of the HTML pages that Junction shows to people: their layout, style
// sheet and headers. A page has one style sheet and one script, both inline and named by their
// hashes in the Content-Security-Policy, and works without the script.
package frame

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"html/template"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
)

//go:embed layout.html style.css
var own embed.FS

// Page is an HTML page and its security policy. Create it with New.
type Page struct {
	template *template.Template
	policy   string // Content-Security-Policy
}

// New makes a page of NAME.html, which has the template body, and of NAME.js if that exists. sources
// are further directives of its policy, and more are the names of further templates and scripts.
func New(files fs.FS, name, sources string, more ...string) (*Page, error) {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	style, err := fs.ReadFile(own, "style.css")
	if err != nil {
		return nil, err
	}
	var script, scriptHash string
	var templates []string
	for _, one := range append([]string{name}, more...) {
		templates = append(templates, one+".html")
		text, err := fs.ReadFile(files, one+".js")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		script += string(text)
	}
	if scriptHash = "'none'"; script != "" {
		scriptHash = hash(script)
	}
	styleHash := hash(string(style))
	t, err := template.New("layout.html").Funcs(template.FuncMap{
		"style":  func() template.CSS { return template.CSS(style) },
		"script": func() template.JS { return template.JS(script) },
	}).ParseFS(own, "layout.html")
	if err == nil {
		t, err = t.ParseFS(files, templates...)
	}
	if err != nil {
		return nil, err
	}
	return &Page{t, "default-src 'none'; style-src " + styleHash + "; script-src " + scriptHash +
		"; img-src data:; base-uri 'none'; frame-ancestors 'none'; " + sources}, nil
}

// Render writes one template of the page.
func (p *Page) Render(w io.Writer, name string, data any) error {
	return p.template.ExecuteTemplate(w, name, data)
}

// Serve answers with the page.
func (p *Page) Serve(w http.ResponseWriter, log *slog.Logger, status int, data any) {
	var b bytes.Buffer
	if err := p.template.Execute(&b, data); err != nil {
		log.Error("cannot render a page", "page", p.template.Name(), "error", err)
		http.Error(w, "The page cannot be shown; the log has the reason.", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", p.policy)
	Secure(h)
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// Secure sets the headers of everything that a browser shows.
func Secure(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, forms have the origin "null"
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
}
