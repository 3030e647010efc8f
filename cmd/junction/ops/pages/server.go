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
	Others    int    // processes that Processes leaves out
	States    []Past // the newest first, for people
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
	var pids []int
	for _, process := range one.Processes {
		pids = append(pids, process.PID)
	}
	memory := s.Memory(pids)
	for i := range one.Processes {
		one.Processes[i].Memory = memory[one.Processes[i].PID]
	}
	if d.People {
		one.States = s.History.Of(name)
	}
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

// Class returns the class of a state in the style sheet.
func (*pageData) Class(state string) string { return class(state) }

// Megabytes returns a size for people; "" if it is 0.
func (*pageData) Megabytes(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf("%d MB", (bytes+500_000)/1_000_000)
}

// noUpstream is the answer for a name that no upstream has.
func noUpstream(name string) string {
	return fmt.Sprintf("there is no upstream %q; junction list shows their names", name)
}

// serverVersions names the content of the page of each server.
func (s *Site) serverVersions(now *seen, add adder) {
	for i := range now.report.Upstreams {
		u := &now.report.Upstreams[i]
		add("server/"+u.Name, u, u.RetryAt, s.Calls.Rate(u.Name), s.Calls.LastOf(u.Name), s.History.Last(u.Name))
	}
}
