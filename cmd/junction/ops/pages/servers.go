package pages

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
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
			d.parts["s/"+u.Name] = part{"row", d.With(u)}
		}
	}
	for state, n := range counts {
		l.States = append(l.States, stateCount{state, n, state == l.State})
	}
	slices.SortFunc(l.States, func(a, b stateCount) int { return strings.Compare(a.State, b.State) })
	if by := sorts[l.Sort]; by != nil {
		slices.SortStableFunc(l.Rows, by)
	}
	d.Title, d.Data = "Servers", l
	d.of(&report)
	d.parts["servers"] = part{"servers", d}
	return true
}

// serversVersions names the list of all servers. The overview names its rows.
func serversVersions(now *seen, add adder) {
	var all []string
	for _, u := range now.report.Upstreams {
		all = append(all, u.Name)
	}
	add("servers", all, now.report.Disabled)
}
