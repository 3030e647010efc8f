package pages

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"junction/cmd/junction/ops/diagnose"
	"junction/proxy/front"
	"junction/upstream"
)

// serversData is the data of the list of all servers.
type serversData struct {
	Query, State, Sort string // of the form
	States             []stateCount
	Rows               []*upstreamData
	All                int // servers, also those that the form leaves out
	Disabled           []string
}

// stateCount is a state that some servers have.
type stateCount struct {
	State  string
	Count  int
	Chosen bool
}

// sorts are the orders of the list, by the word of the form.
var sorts = map[string]func(a, b *upstreamData) int{
	"name":   func(a, b *upstreamData) int { return strings.Compare(a.Name, b.Name) },
	"calls":  func(a, b *upstreamData) int { return cmp.Compare(b.Hour.Calls, a.Hour.Calls) },
	"errors": func(a, b *upstreamData) int { return cmp.Compare(b.Hour.Errors, a.Hour.Errors) },
	"slow":   func(a, b *upstreamData) int { return cmp.Compare(b.Hour.P95, a.Hour.P95) },
	"tools":  func(a, b *upstreamData) int { return cmp.Compare(b.Tools, a.Tools) },
}

// servers builds the list of all servers.
func (s *Site) servers(r *http.Request, d *pageData) bool {
	q := r.URL.Query()
	report := s.Report(d.People)
	l := &serversData{Query: strings.TrimSpace(q.Get("q")), State: q.Get("state"), Sort: q.Get("sort"),
		All: len(report.Upstreams), Disabled: report.Disabled}
	counts := map[string]int{}
	for _, u := range s.rows(d.View, report.Upstreams) {
		counts[u.State]++
		named := strings.Contains(strings.ToLower(u.Name), strings.ToLower(l.Query))
		if named && (l.State == "" || l.State == u.State) {
			l.Rows = append(l.Rows, u)
			d.parts["s/"+u.Name] = part{"row", row[*upstreamData]{d, u}}
		}
	}
	for state, n := range counts {
		l.States = append(l.States, stateCount{state, n, state == l.State})
	}
	slices.SortFunc(l.States, func(a, b stateCount) int { return strings.Compare(a.State, b.State) })
	if by := sorts[l.Sort]; by != nil {
		slices.SortStableFunc(l.Rows, by)
	}
	d.Title, d.Page, d.Servers = "Servers", "servers", l
	d.of(&report)
	d.parts["servers"] = part{"servers", d}
	return true
}

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
	d.Title, d.Page, d.Server = name, "server", one
	d.parts["server/"+name] = part{"server", d}
	d.of(&report)
	return true
}

// noUpstream is the answer for a name that no upstream has.
func noUpstream(name string) string {
	return fmt.Sprintf("there is no upstream %q; junction list shows their names", name)
}

// callsData is the data of the page of calls and sessions.
type callsData struct {
	Last     []Call
	Latest   []sessionData
	Sessions int
}

type sessionData struct {
	front.SessionStatus
	By string // the caller, for people
}

// calls builds the page of calls and sessions.
func (s *Site) calls(_ *http.Request, d *pageData) bool {
	c := &callsData{Last: s.Calls.Last()}
	names := map[string]string{} // of users, by their ids
	for _, one := range c.Last {
		names[one.Caller] = one.By()
	}
	latest, total := s.Sessions()
	c.Sessions = total
	for _, one := range latest {
		c.Latest = append(c.Latest, sessionData{one, cmp.Or(names[one.Principal], one.Principal)})
	}
	d.Title, d.Page, d.Calls = "Calls", "calls", c
	d.parts["calls"], d.parts["sessions"] = part{"calls", d}, part{"sessions", d}
	return true
}

// CallsOf joins calls with the data of their page, for the template of their table.
func (d *pageData) CallsOf(list []Call) row[[]Call] { return row[[]Call]{d, list} }

// Millis returns a duration in whole milliseconds.
func (*pageData) Millis(d time.Duration) string {
	return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + " ms"
}

// connect builds the page about clients.
func (s *Site) connect(_ *http.Request, d *pageData) bool {
	d.Title, d.Page = "Connect a client", "connect"
	d.Connect = newConnectData(s.Access(), s.SiteOptions.Clients, s.Variable)
	return true
}
