package view

import (
	"fmt"
	"slices"
	"strings"

	"junction/policy"
	"junction/proxy/search"
	"junction/upstream"
	"junction/upstream/raw"
)

// Explanation describes one item for one subject.
type Explanation struct {
	Upstream string
	Part     upstream.Part
	Own      string // the upstream's own name or URI
	Exposed  string // the name on the endpoint, even if the item is not visible
	Listed   bool   // a resource may be readable and in no list, and a tool be found by search
	Visible  bool   // exists for the subject, perhaps only for some arguments or after approval
	Withheld string // why pinned policies hide it; "" if they do not
	Pinned   bool   // the subject's policies are pinned
	Denied   string // why a file of a skill hides it from the subject; "" if none does
	Problem  string // why no client, or no client of 2026-07-28, sees it; "" if it is offered
	Verdict  policy.Verdict
	Cache    string // what the key cache means for a tool; "" if it is not set
	Reads    bool   // the verdict depends on the arguments; Verdict is then for a call without arguments
	Reasons  []policy.Reason
}

// Explain returns explanations of the items that the name may mean for a subject. The name is the
// exposed name or URI, the upstream's own name, or the full name before shortening. The list is
// empty if no item has that name for any subject. listed reports whether lists have a visible item.
func (v *View) Explain(rights *policy.Rights, name string, listed func(*Target) bool) []Explanation {
	var list []Explanation
	for p := range upstream.Parts {
		for t := range v.All(p) {
			if t.Exposed != name && t.Name != name && !slices.Contains(t.Names, name) && t.skillPath() != name {
				continue
			}
			if p == upstream.PartResources && v.isSkill(t) {
				continue
			}
			x := explain(rights, t)
			x.Listed = x.Visible && listed(t)
			if t.Tool != nil && !t.Connects {
				x.Cache, _ = Reused(t.Item.Definition, t.Backend.Config().CacheOf(t.Name))
			}
			if t.Tool != nil && t.Tool.HeaderProblem != "" {
				x.Problem = "not offered to clients of 2026-07-28: " + t.Tool.HeaderProblem
			}
			list = append(list, x)
		}
	}
	for _, problem := range v.Problems {
		same := func(x Explanation) bool { return x.Upstream == problem.Upstream && x.Part == problem.Part }
		if problem.Name == name && !slices.ContainsFunc(list, same) {
			list = append(list, Explanation{Upstream: problem.Upstream, Part: problem.Part, Own: name,
				Problem: problem.Reason})
		}
	}
	if len(list) == 0 && strings.Contains(name, ":") { // as every URI has
		if t, err := Everything(v).Resource(name); err == nil {
			list = append(list, explain(rights, t))
		}
	}
	return list
}

// isSkill reports whether a listed resource is the SKILL.md of a skill. The explanation of the skill
// covers the resource.
func (v *View) isSkill(t *Target) bool {
	skill := v.Exposed(upstream.PartSkills, t.Exposed)
	return skill != nil && skill.home == t.home
}

func explain(rights *policy.Rights, t *Target) Explanation {
	g := rights.Bind(t.PolicyItem())
	d, _ := g.Decide(raw.Object{})
	x := Explanation{Upstream: t.Backend.Name(), Part: t.Part, Own: t.Name, Exposed: t.Exposed, Withheld: t.Withheld,
		Pinned: rights.Safeguards().Pinned, Verdict: d.Verdict, Reads: g.Reads(),
		Reasons: rights.Explain(t.PolicyItem())}
	if t.Part == upstream.PartSkills {
		if file, _ := deniedFile(rights, t.home, t.Item.Definition); file != "" {
			x.Denied = "policy denies its file " + file
		}
	}
	x.Visible = g.Visible() && !(x.Pinned && x.Withheld != "") && x.Denied == ""
	return x
}

// Problems appends the problems of items that the list does not have yet, on any endpoint. Problems
// without an upstream are left out.
func Problems(list, more []Problem) []Problem {
	for _, p := range more {
		same := func(o Problem) bool { return o.Upstream == p.Upstream && o.Part == p.Part && o.Name == p.Name }
		if p.Upstream != "" && !slices.ContainsFunc(list, same) {
			list = append(list, p)
		}
	}
	return list
}

// Shadowed returns the tools that have the name of a tool of Junction on an endpoint with search.
// Clients that search reach them with a call tool.
func (v *View) Shadowed(endpoint string) (list []Problem) {
	for _, own := range search.OwnNames() {
		if t := v.Exposed(upstream.PartTools, own); t != nil {
			list = append(list, Problem{endpoint, t.Backend.Name(), t.Part, t.Name,
				fmt.Sprintf("with catalog: search, its name %s is that of a tool of Junction, and clients reach it "+
					"only with %s; set prefix or tools.%s.as", own, search.ClassOf(t.Item.Definition).Tool(), t.Name)})
		}
	}
	return list
}
