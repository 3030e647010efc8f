package scope

import (
	"slices"

	"junction/policy"
	"junction/proxy/pins"
	"junction/proxy/view"
	"junction/upstream"
)

// This file has what operators read of a snapshot.

// Explain returns explanations of the items that the name may mean on an endpoint. It returns false
// if the endpoint does not exist.
func (w *Snapshot) Explain(who policy.Subject, endpoint, name string) ([]view.Explanation, bool) {
	e := w.Endpoints[endpoint]
	if e == nil {
		return nil, false
	}
	who.Surface = e.Surface
	rights := w.Config.Policy.For(who)
	own := rights.Safeguards()
	listed := func(t *view.Target) bool {
		return t.Tool == nil || !e.Search && !own.Search || e.Always.Match(t.Names) || own.Always.Match(t.Names)
	}
	return e.View.Explain(rights, name, listed), true
}

// Limiting returns the limits of a subject at an endpoint, with the policies that give them.
func (w *Snapshot) Limiting(who policy.Subject, endpoint string) []policy.Limiting {
	if e := w.Endpoints[endpoint]; e != nil {
		who.Surface = e.Surface
		return w.Config.Policy.For(who).Limiting()
	}
	return nil
}

// Outside returns why an endpoint does not exist for a subject, by its match or by the endpoints of a
// policy; "" if it may exist. It does not know the endpoints of keys.
func (w *Snapshot) Outside(who policy.Subject, endpoint string) string {
	e := w.Endpoints[endpoint]
	if e == nil {
		return ""
	}
	if who.Surface = e.Surface; !e.match.Matches(who) {
		return "endpoints." + e.ConfigName() + ".match does not match the caller"
	}
	if name := w.Config.Policy.For(who).Outside(e.ConfigName()); name != "" {
		return "the endpoints of the policy " + name + " do not contain " + e.ConfigName()
	}
	return ""
}

// Definitions returns the definitions of all tools except those that the configuration hides, and of
// all skills with digests, in the order of upstreams and of their lists. The definitions alias the catalogs.
func (w *Snapshot) Definitions() []pins.Definition {
	var list []pins.Definition
	for _, b := range w.Backends {
		catalog, config := b.Catalog(), b.Config()
		for i := range catalog.Tools {
			t := &catalog.Tools[i]
			if _, offered := config.Offers(t.Name); offered {
				list = append(list, pins.Definition{Upstream: b.Name(), Name: t.Name, Definition: t.Definition.Text()})
			}
		}
		for _, s := range catalog.Skills {
			if resources, err := s.Definition.Get("resources"); err == nil && resources[0] == '[' {
				list = append(list, pins.Definition{Upstream: b.Name(), Name: s.Name, Definition: s.Definition.Text()})
			}
		}
	}
	return list
}

// Tools returns the number of tools on the merged endpoint.
func (w *Snapshot) Tools() int {
	n := 0
	for _, more := range w.ToolsByUpstream() {
		n += more
	}
	return n
}

// ToolsByUpstream returns how many tools each upstream has on the merged endpoint.
func (w *Snapshot) ToolsByUpstream() map[string]int { return w.byUpstream(upstream.PartTools) }

// SkillsByUpstream returns how many skills each upstream has on the merged endpoint.
func (w *Snapshot) SkillsByUpstream() map[string]int { return w.byUpstream(upstream.PartSkills) }

func (w *Snapshot) byUpstream(p upstream.Part) map[string]int {
	n := map[string]int{}
	for t := range w.Endpoints[""].View.All(p) {
		n[t.Backend.Name()]++
	}
	return n
}

// Problems returns the hidden items and their reasons.
func (w *Snapshot) Problems() []view.Problem {
	all := slices.Clip(w.Endpoints[""].View.Problems)
	for _, b := range w.Backends {
		all = view.Problems(all, w.Endpoints[b.Name()].View.Problems)
	}
	return view.Problems(all, w.shadowed)
}
