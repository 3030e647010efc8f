package proxy

import (
	"slices"
	"strings"

	"junction/policy"
	"junction/proxy/pins"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/raw"
)

// This file answers an operator who wonders why somebody sees a tool, or does not.

// Explanation is what there is to say of one item and one subject.
type Explanation struct {
	Upstream string
	Part     upstream.Part
	Own      string // the upstream's own name or URI
	Exposed  string // under which it is, or would be, seen on the endpoint
	Listed   bool   // it is in a list; a resource may be readable and in none
	Visible  bool   // it exists for the subject, if only for some arguments or after asking
	Held     string // why pinned policies hold it back, if they do; the subject's do if Pinned
	Pinned   bool
	Problem  string // why it is offered to nobody, or not to clients of 2026-07-28; "" when it is offered
	Verdict  policy.Verdict
	Reads    bool // the verdict depends on the arguments; then Verdict is that on a call without any
	Reasons  []policy.Reason
}

// Explain returns what there is to say of the items that the name may mean on an endpoint: the name
// or URI that clients see, the upstream's own, or the full one before it was shortened. It is empty
// if nothing has that name, whatever the subject; false means that there is no such endpoint.
func (s *Server) Explain(who policy.Subject, endpoint, name string) ([]Explanation, bool) {
	w := s.world.Load()
	e := w.endpoints[endpoint]
	if e == nil {
		return nil, false
	}
	who.Surface = e.surface
	rights := w.policy.For(who)
	var list []Explanation
	for p := range upstream.Parts {
		for t := range e.view.All(p) {
			if t.Exposed != name && t.Name != name && !slices.Contains(t.Names, name) {
				continue
			}
			x := explain(rights, t)
			x.Listed = x.Visible
			if t.Tool != nil && t.Tool.HeaderProblem != "" {
				x.Problem = "not offered to clients of 2026-07-28: " + t.Tool.HeaderProblem
			}
			list = append(list, x)
		}
	}
	for _, problem := range e.view.Problems {
		if problem.Name == name && !slices.ContainsFunc(list, func(x Explanation) bool { return x.Upstream == problem.Upstream && x.Part == problem.Part }) {
			list = append(list, Explanation{Upstream: problem.Upstream, Part: problem.Part, Own: name, Problem: problem.Reason})
		}
	}
	if len(list) == 0 && strings.Contains(name, ":") { // as every URI has
		if t, err := view.Everything(e.view).Resource(name); err == nil {
			list = append(list, explain(rights, t))
		}
	}
	return list, true
}

func explain(rights *policy.Rights, t *view.Target) Explanation {
	g := rights.Bind(t.PolicyItem())
	d, _ := g.Decide(raw.Object{})
	x := Explanation{Upstream: t.Backend.Name(), Part: t.Part, Own: t.Name, Exposed: t.Exposed, Held: t.Held, Pinned: rights.Guards().Pinned,
		Verdict: d.Verdict, Reads: g.Reads(), Reasons: g.Explain()}
	x.Visible = g.Visible() && !(x.Pinned && x.Held != "")
	return x
}

// Definitions returns the definitions of all tools that the configuration does not leave out, in
// the order of upstreams and of their lists. They alias the catalogs.
func (s *Server) Definitions() []pins.Definition {
	var list []pins.Definition
	for _, b := range s.world.Load().backends {
		catalog, config := b.Catalog(), b.Config()
		for i := range catalog.Tools {
			t := &catalog.Tools[i]
			if _, offered := config.Offers(t.Name); offered {
				list = append(list, pins.Definition{Upstream: b.Name(), Name: t.Name, Definition: t.Definition.Text()})
			}
		}
	}
	return list
}
