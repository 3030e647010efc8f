package pages

import (
	"cmp"
	"fmt"
	"net/http"
	"runtime/metrics"
	"slices"
	"strings"
	"time"

	"junction/cmd/junction/ops/diagnose"
	"junction/upstream"
	"junction/upstream/prose"
)

const (
	mostNeeds    = 20  // servers with their reasons on the overview
	mostWorking  = 50  // other servers on the overview
	mostProblems = 50  // of tools
	mostReason   = 300 // bytes of a reason in a list
)

// overviewData is the data of the first page.
type overviewData struct {
	diagnose.Report
	URL, File string
	Heading   string   // how many servers work
	Lacking   []string // what of the file is not in force
	Secure    string   // until when the certificate of TLS is valid
	Ends      []string // sentences about what ends soon
	Hour      Figures
	Memory    string // of this process
	Sessions  int
	Streams   int64           // of clients
	Needs     []*upstreamData // that do not work, or not in full
	MoreNeeds int             // servers that Needs leaves out
	Works     []*upstreamData
	MoreWorks int // servers that Works leaves out
	More      int // problems of tools that the page does not show
	Fine      bool
	Troubled  bool // there are problems beside Needs
}

// upstreamData is one row of a server.
type upstreamData struct {
	diagnose.UpstreamStatus
	Page   string // the path of its page
	Rate   int    // calls within the last minute
	Hour   Figures
	Class  string // of the state, in the style sheet
	Reason string // the error in short
	Broken bool   // a person should read the reason
	Again  string // the command that connects the upstream again; "" if that would change nothing
	Enter  bool   // the owner can sign in to the server
	First  bool   // a sign-in is what the server needs
}

// canReconnect reports whether the owner can have the upstream connected again. If it needs a sign-in,
// its error names the command.
func (u *upstreamData) canReconnect() bool {
	return !u.First && !u.Invalid && u.State != diagnose.PerUser && u.State != upstream.StateStarting.String()
}

// rows returns the rows of all servers, those that need a person first.
func (s *Site) rows(v View, list []diagnose.UpstreamStatus) (rows []*upstreamData) {
	for _, u := range list {
		r := &upstreamData{UpstreamStatus: u, Page: v.serverPage(u.Name), Rate: s.Calls.Rate(u.Name),
			Hour: s.Calls.Hour(u.Name), Class: class(u.State),
			Reason: prose.Cut(prose.Flat(u.Error), mostReason), Enter: v.Owner && u.SignIn, Broken: broken(&u),
			First: u.SignIn && (u.State == upstream.StateSignIn.String() || len(u.Lacks) > 0)}
		if r.canReconnect() {
			r.Again = s.Command("reconnect", u.Name)
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b *upstreamData) int { return cmp.Compare(a.Need(), b.Need()) })
	return rows
}

// class returns the class of a state in the style sheet.
func class(state string) string { return strings.ReplaceAll(state, " ", "-") }

// broken reports whether a person should read why a server does not work, or not in full.
func broken(u *diagnose.UpstreamStatus) bool {
	return u.Need() < diagnose.NeedsTime || u.Degraded > 0 || len(u.Lacks) > 0
}

// overview builds the first page.
func (s *Site) overview(_ *http.Request, d *pageData) bool {
	now := time.Now()
	o := &overviewData{Report: s.Report(d.People), URL: s.URL(), File: s.File, Hour: s.Calls.Hour(""),
		Memory: ownMemory(), Ends: s.Ends(d.People)}
	o.Heading, o.Lacking = diagnose.Summary(o.Report.Upstreams), o.Unfollowed()
	o.Secure = o.Certificate.Sentence(now)
	_, o.Sessions = s.Sessions()
	o.Streams = s.Streams()
	if o.More = max(len(o.Problems)-mostProblems, 0); o.More > 0 {
		o.Problems = o.Problems[:mostProblems]
	}
	for _, u := range s.rows(d.View, o.Report.Upstreams) {
		if u.Broken {
			o.Needs = append(o.Needs, u)
		} else {
			o.Works = append(o.Works, u)
		}
	}
	o.Troubled = len(o.Problems)+len(o.Overuse)+len(o.Warnings)+o.MoreWarnings+len(o.Lacking) > 0
	for _, issuer := range o.Issuers {
		o.Troubled = o.Troubled || issuer.Err != ""
	}
	for _, part := range o.Parts {
		o.Troubled = o.Troubled || !part.OK && part.Error != ""
	}
	o.Fine = !o.Troubled && len(o.Needs) == 0
	o.Needs, o.MoreNeeds = few(o.Needs, mostNeeds)
	o.Works, o.MoreWorks = few(o.Works, mostWorking)
	d.Title, d.Data = "Overview", o
	d.of(&o.Report)
	for _, name := range []string{"summary", "needs", "works", "problems", "figures", "ends"} {
		d.parts[name] = part{name, d}
	}
	for _, u := range o.Needs {
		d.parts["s/"+u.Name] = part{"need", d.With(u)}
	}
	for _, u := range o.Works {
		d.parts["s/"+u.Name] = part{"row", d.With(u)}
	}
	return true
}

// of notes the process that a page is about.
func (d *pageData) of(r *diagnose.Report) {
	if len(r.Replicas) > 1 {
		d.Others = len(r.Replicas)
	}
}

// few returns the first of a list, and how many it leaves out.
func few[T any](list []T, most int) ([]T, int) {
	n := min(len(list), most)
	return list[:n], len(list) - n
}

// ownMemory returns the memory that this process has from the system, without that of its commands.
func ownMemory() string {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return fmt.Sprintf("%d MB", (sample[0].Value.Uint64()-sample[1].Value.Uint64())>>20)
}

// overviewVersions names the parts of the first page, and the rows of servers, which other pages have, too.
func (s *Site) overviewVersions(now *seen, add adder) {
	r := &now.report
	var needs, works []string
	for i := range r.Upstreams {
		u := &r.Upstreams[i]
		if broken(u) {
			needs = append(needs, u.Name)
		} else {
			works = append(works, u.Name)
		}
		// The time of the next attempt is not shown in a row.
		add("s/"+u.Name, u.State, u.Since, u.Error, u.Advice, u.Note, u.Tools, u.Listed, u.Processes, len(u.Running),
			u.Stuck, u.Lacks, s.Calls.Rate(u.Name), s.Calls.LastOf(u.Name))
	}
	add("needs", needs)
	add("works", works)
	add("summary", diagnose.Summary(r.Upstreams), r.Unfollowed(), r.Status, r.Tools, r.Certificate.Sentence(time.Now()))
	add("problems", r.Problems, r.Parts, r.Issuers, r.Overuse, r.Warnings, r.MoreWarnings, r.Reload, r.Restart)
	add("figures", s.Calls.Added(), now.total, s.Streams(), time.Now().Unix()/60)
	add("ends", s.Ends(true))
}
