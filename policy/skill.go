package policy

import (
	"slices"
	"strings"
)

// This file applies the rules of skills to the files of skills, which are resources.

const skillScheme = "skill://"

// SkillPath returns the path of a skill for rules: its upstream, and the upstream's own URI of its
// SKILL.md without the scheme skill and without the name of the file.
func SkillPath(upstream, own string) string {
	return upstream + "/" + strings.TrimSuffix(strings.TrimPrefix(own, skillScheme), "/SKILL.md")
}

// selectsInSkill reports whether a rule applies to a resource because a skill has it, and with which
// verdict. As in selectsPlace, an allow does not match an ambiguous URI, and an ask denies one.
func (r *rule) selectsInSkill(n *named) (Verdict, bool) {
	match := func(path string) bool { return r.skills.matches(path) }
	uris := n.Names
	if r.verdict == Allow && n.odd {
		return Allow, false
	}
	if r.verdict != Allow {
		if n.computeForms(); n.long || n.odd {
			return Deny, len(n.Within) > 0 || slices.ContainsFunc(n.Names, mayBeInSkill)
		}
		uris = n.forms
	}
	if slices.ContainsFunc(n.Within, match) {
		return r.verdict, true
	}
	for _, uri := range uris {
		// the URI on /mcp, which begins with the name of the upstream
		path, ok := strings.CutPrefix(uri, skillScheme)
		if !ok || !strings.HasPrefix(path, n.Upstream+"/") {
			continue
		}
		for at := strings.LastIndexByte(path, '/'); at > len(n.Upstream); at = strings.LastIndexByte(path[:at], '/') {
			if match(path[:at]) {
				return r.verdict, true
			}
		}
		if match(path) { // the folder itself
			return r.verdict, true
		}
	}
	return r.verdict, false
}

// mayBeInSkill reports whether the scheme of a URI is that of skills.
func mayBeInSkill(uri string) bool {
	return len(uri) >= len(skillScheme) && strings.EqualFold(uri[:len(skillScheme)], skillScheme)
}

// FilesDiffer reports whether the rules of the subject may tell resources of an upstream apart. If
// not, all of them have the same ruling.
func (r *Rights) FilesDiffer(upstream string) bool {
	return slices.ContainsFunc(r.entries, func(e *entry) bool {
		return slices.ContainsFunc(e.rules, func(r rule) bool {
			return (r.resources != nil || r.skills != nil) && r.appliesTo(upstream)
		})
	})
}
