// Package console has the rights of the owner's pages, the console: who runs Junction proves it at a terminal, and
// one browser gets a session (sessions.go). guard.go serves the paths of sessions, and lets nobody else in. The
// pages themselves are in package pages.
package console

import (
	"embed"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net/http"

	"github.com/go-chi/chi/v5"

	"junction/cmd/junction/ops/pages"
	"junction/cmd/junction/ops/pages/frame"
)

//go:embed files
var files embed.FS

// Options are what a console needs. All fields must be set.
type Options struct {
	// Pages answers a request of the owner. Its path is the one below that of the session.
	Pages func(w http.ResponseWriter, r *http.Request, v pages.View)
	Event func(event string) // writes a line of the audit
	Log   *slog.Logger
}

// Console is the owner's pages of one process. Create it with New.
type Console struct {
	Options
	sessions Sessions
	page     *frame.Page
}

// New returns a console without sessions.
func New(o Options) (*Console, error) {
	below, err := fs.Sub(files, "files")
	if err != nil {
		return nil, err
	}
	p, err := frame.New(below, "code", "connect-src 'self'; form-action 'none'")
	return &Console{Options: o, page: p}, err
}

// The paths of the requests of commands. The admin address has checked that they have the secret of the owner,
// because their method is POST.
const (
	InvitePath = "/console"
	StagePath  = "/console/stage"
	AnswerPath = "/console/answer"
	EndPath    = "/console/end"
)

// Invitation is the answer of InvitePath.
type Invitation struct {
	Name string `json:"name"` // for the other requests
	Path string `json:"path"` // of the page
}

// Compared is the answer of StagePath and AnswerPath.
type Compared struct {
	Stage Stage  `json:"stage"`
	Code  string `json:"code,omitempty"` // which the page shows, if Stage is Opened
}

// Ended is the answer of EndPath.
type Ended struct {
	Sessions int `json:"sessions"`
}

// Register adds the routes of commands.
func (c *Console) Register(r chi.Router) {
	r.Post(InvitePath, func(w http.ResponseWriter, _ *http.Request) {
		name := c.sessions.Invite()
		answer(w, Invitation{Name: name, Path: Prefix + name + "/"})
	})
	r.Post(StagePath, func(w http.ResponseWriter, r *http.Request) {
		stage, code := c.sessions.Stage(r.URL.Query().Get("name"))
		answer(w, Compared{stage, code})
	})
	r.Post(AnswerPath, c.answered)
	r.Post(EndPath, func(w http.ResponseWriter, _ *http.Request) {
		n := c.sessions.EndAll()
		if n > 0 {
			c.Log.Info("the sessions of the console were ended by the owner", "sessions", n)
			c.Event("console_ended")
		}
		answer(w, Ended{n})
	})
}

// answered takes the answer of the owner at the terminal.
func (c *Console) answered(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	same := q.Get("same") == "true"
	if !c.sessions.Answer(q.Get("name"), q.Get("code"), same) {
		http.Error(w, "The invitation has ended. Run junction console again.", http.StatusGone)
		return
	}
	if !same {
		c.Log.Warn("the owner has refused a browser that has opened the console")
		c.Event("console_refused")
		answer(w, Compared{Stage: Gone})
		return
	}
	c.Log.Info("a session of the console was opened")
	c.Event("console_opened")
	answer(w, Compared{Stage: Agreed})
}

func answer(w http.ResponseWriter, v any) {
	frame.Secure(w.Header())
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client has gone
}
