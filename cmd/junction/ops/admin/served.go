package admin

import (
	"context"
	"fmt"
	"strings"

	"junction/cmd/junction/base/config"
	"junction/cmd/junction/base/runfile"
	"junction/cmd/junction/ops/diagnose"
	"junction/upstream/prose"
)

// Served is where a junction of this machine serves a file.
type Served struct {
	runfile.Place
	// User runs the process, if no run file of this user with this state folder has it: a service that runs as
	// another user, for one. "" if a run file has it. The process has said all of the place then, so that a
	// command neither ends a process nor sends a credential because of it.
	User string
}

// Other reports whether no run file of this user has the process.
func (s *Served) Other() bool { return s.User != "" }

// Process names the process for people.
func (s *Served) Process() string {
	if s.User == "" || s.User == runfile.User() {
		return fmt.Sprintf("process %d", s.PID)
	}
	return fmt.Sprintf("process %d of the user %s", s.PID, prose.Quote(s.User))
}

// ServedAt returns where a junction of this machine serves a file. The run files tell about those of this
// user with this state folder. Any other one, such as a service, is asked at the admin address of the file.
func ServedAt(ctx context.Context, file string) (s Served, running bool) {
	s.Place, running = runfile.Find(file)
	if running || file == "" {
		return s, running
	}
	c, _ := config.LoadPlaces(file)
	if c == nil || *c.Admin == "" || strings.HasSuffix(*c.Admin, ":0") {
		return s, false
	}
	var r diagnose.Running
	if askAdmin(ctx, *c.Admin, "/status", nil, ownLimit, &r) != nil || r.File == "" || !sameFile(file, r.File) {
		return s, false
	}
	if own, ok := runfile.Present(file); ok && own.PID == r.PID { // it is ending
		return s, false
	}
	s.Place = runfile.Place{URL: prose.Flat(r.URL), Admin: *c.Admin, File: r.File}
	s.PID, s.User = r.PID, prose.Flat(r.User)
	if s.User == "" {
		s.User = "?"
	}
	return s, true
}
