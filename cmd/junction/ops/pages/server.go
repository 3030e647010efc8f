package pages

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"junction/cmd/junction/ops/diagnose"
	"junction/upstream"
)

// serverData is the data of the page of one server.
type serverData struct {
	*upstreamData
	Next      time.Time // of the next attempt; zero if none is due
	Processes []diagnose.CommandProcess
	Others    int // processes that Processes leaves out
	Last      []Call
	Commands  []string // for the terminal
}

// mostServerProcesses is the most processes on the page of a server.
const mostServerProcesses = 50

// server builds the page of one server.
func (s *Site) server(r *http.Request, d *pageData) bool {
	name := r.PathValue("upstream")
	report := s.Report(d.People)
	i := slices.IndexFunc(report.Upstreams, func(u diagnose.UpstreamStatus) bool { return u.Name == name })
	if i < 0 {
		return false
	}
	one := &serverData{upstreamData: s.rows(d.View, report.Upstreams[i:i+1])[0]}
	if one.State == upstream.StateRetrying.String() {
		one.Next = one.RetryAt
	}
	one.Processes, one.Others = few(one.Running, mostServerProcesses)
	for _, c := range s.Calls.Last() {
		if c.Upstream == name {
			one.Last = append(one.Last, c)
		}
	}
	for _, words := range [][]string{{"status", name}, {"doctor", name}, {"tools", name + "__*"}, {"logs"}} {
		one.Commands = append(one.Commands, s.Command(words...))
	}
	if one.Again != "" {
		one.Commands = append(one.Commands, one.Again)
	}
	d.Title, d.Data = name, one
	d.parts["server/"+name] = part{"server", d}
	d.of(&report)
	return true
}

// noUpstream is the answer for a name that no upstream has.
func noUpstream(name string) string {
	return fmt.Sprintf("there is no upstream %q; junction list shows their names", name)
}

// serverVersions names the content of the page of each server.
func (s *Site) serverVersions(now *seen, add adder) {
	for i := range now.report.Upstreams {
		u := &now.report.Upstreams[i]
		add("server/"+u.Name, u, u.RetryAt, s.Calls.Rate(u.Name), s.Calls.LastOf(u.Name))
	}
}
