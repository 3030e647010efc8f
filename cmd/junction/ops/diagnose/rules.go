package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"

	"junction/cmd/junction/base/config"
	"junction/policy"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/prose"
	"junction/upstream/yamlread"
)

// This file finds the rules of policies that match nothing in the catalogs of the upstreams, and adds
// the warnings of the file.

// KindRule is the kind of a finding about a rule of a policy.
const KindRule = "rule"

// KindWarning is the kind of a finding about a likely mistake in the file.
const KindWarning = "warning"

// KindNote is the kind of a finding that is no problem.
const KindNote = "note"

// known returns the catalogs of an upstream after its check: that of the check, and that of the
// running proxy if the upstream is ready. It returns none if the items of the upstream are not
// known.
func (e *examinee) known(r *upstream.Report) (list []*upstream.Catalog) {
	if e.config.Questions.OfClients() { // other clients may get other items
		return nil
	}
	if r.Err == nil && r.Catalog != nil {
		list = append(list, r.Catalog)
	}
	if e.status != nil && e.status.State == upstream.StateReady && e.catalog != nil && !e.catalog.Listed.IsZero() {
		list = append(list, e.catalog)
	}
	return list
}

// compareRules adds a finding for each rule, and each glob of always, that matches nothing. file is the
// configuration file, for the lines of the rules; "" if the file is not in force.
func (d *Diagnosis) compareRules(c *config.Config, file string) {
	var listings []policy.Listing
	for _, u := range c.Known() {
		listings = append(listings, listing(c, u, d.catalogs[u.Name]))
	}
	d.addUnlisted(c, file, "policies", c.Policies.Unlisted(listings))
	var always []policy.Always
	for _, name := range slices.Sorted(maps.Keys(c.Endpoints)) {
		if e := c.Endpoints[name]; e.Always != nil {
			at := "." + name + ".always"
			always = append(always, policy.Always{Path: at, Upstreams: e.Upstreams, Tools: e.Always})
		}
	}
	if always != nil {
		d.addUnlisted(c, file, "endpoints", policy.UnlistedAlways(listings, always))
	}
}

// addUnlisted adds a finding for each problem of a section.
func (d *Diagnosis) addUnlisted(c *config.Config, file, section string, unlisted []yamlread.Problem) {
	located := config.Locate(file, os.LookupEnv, section, unlisted)
	for i, p := range unlisted {
		f := Finding{Kind: KindRule, Name: section + p.Path, Text: p.Text, Advice: ruleAdvice}
		if located != nil {
			f.Text, f.Detail = located[i].Text, policyOf(c, section+p.Path)+fmt.Sprintf("line %d", located[i].Line)
		}
		d.Findings = append(d.Findings, f)
	}
}

// policyOf returns the name of the policy of a path as the beginning of a detail; "" for another path.
func policyOf(c *config.Config, path string) string {
	var i int
	if _, err := fmt.Sscanf(path, "policies[%d]", &i); err != nil || i < 0 || i >= len(c.Policies) {
		return ""
	}
	return "policy " + c.Policies[i].Name + ", "
}

const ruleAdvice = "correct the rule; a rule for an item that a server lists later may stay"

// listing returns the items of an upstream for package policy. Without a catalog, none is known.
func listing(c *config.Config, u policy.Known, catalogs []*upstream.Catalog) policy.Listing {
	l := policy.Listing{Known: u}
	if len(catalogs) == 0 {
		for k := range l.Unknown {
			l.Unknown[k] = true
		}
		return l
	}
	seen := map[string]bool{}
	add := func(p upstream.Part, name string, item policy.Listed) {
		if key := p.String() + " " + name; !seen[key] {
			seen[key] = true
			l.Items = append(l.Items, item)
		}
	}
	for _, catalog := range catalogs {
		l.Places = l.Places || catalog.Offers("resources")
		for p := range upstream.Parts {
			has := catalog.Items(p) > 0 || catalog.Fresh[p].Has
			l.Places = l.Places || has && (p == upstream.PartResources || p == upstream.PartTemplates)
			l.Templates = l.Templates || p == upstream.PartTemplates && catalog.Items(p) > 0
			for i := range catalog.Items(p) {
				name := catalog.Item(p, i).Name
				add(p, name, listed(c, u.Name, catalog, p, i))
			}
		}
		for _, left := range catalog.Left {
			item := itemNamed(c, u.Name, left.Part, left.Name)
			if left.Name == "" { // the list could not be read
				l.Unknown[item.Kind] = true
			} else {
				add(left.Part, left.Name, item)
			}
		}
	}
	return l
}

// listed returns an item of a catalog for package policy.
func listed(c *config.Config, name string, catalog *upstream.Catalog, p upstream.Part, i int) policy.Listed {
	item := catalog.Item(p, i)
	it := itemNamed(c, name, p, item.Name)
	switch {
	case p == upstream.PartTools:
		it.Hints = policy.HintsOf(item.Definition)
		if catalog.Tools[i].Loose != "" { // its schema was repaired
			return it
		}
		fallthrough
	case p == upstream.PartPrompts:
		it.Arguments = func() policy.Arguments { return policy.ArgumentsOf(it.Kind, item.Definition) }
	}
	return it
}

// itemNamed returns an item with the names that rules may use. An item that clients do not see has
// them, too: a rule for it is no mistake.
func itemNamed(c *config.Config, name string, p upstream.Part, own string) policy.Listed {
	u := c.Upstreams[name]
	it := policy.Listed{Item: policy.Item{Kind: policy.Resource, Upstream: name}}
	switch p {
	case upstream.PartTools, upstream.PartPrompts:
		it.Kind = policy.Prompt
		as := own
		if p == upstream.PartTools {
			rule, _ := u.Offers(own)
			if it.Kind, as = policy.Tool, cmp.Or(rule.As, own); as != own {
				_, it.Former = c.Names.Expose(u.PrefixOr(name), own)
			}
		}
		exposed, full := c.Names.Expose(u.PrefixOr(name), as)
		it.Names = slices.Compact([]string{full, exposed})
	case upstream.PartSkills:
		it.Kind, it.Names = policy.Skill, []string{policy.SkillPath(name, own)}
	default:
		it.Names = []string{own, view.ExposeURI(name, own)}
	}
	return it
}

// addWarnings adds a finding for each likely mistake of the file in force. Hidden tools are missing for
// all clients.
func (d *Diagnosis) addWarnings(warnings config.Problems) {
	list, more := config.Lasting(warnings)
	check := config.Command(d.Config, "check")
	for _, w := range list {
		d.Findings = append(d.Findings, Finding{Grave: config.Grave(w), Kind: KindWarning,
			Text: w.String(), Advice: "correct the file; this command compares it: " + check})
	}
	if more > 0 {
		d.Findings = append(d.Findings, Finding{Kind: KindWarning, Text: prose.Count(more, "more warning"),
			Advice: "this command shows all: " + check})
	}
}
