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
	uris, within := n.Names, n.Within
	if !r.verdict.doubts() && n.odd {
		return r.verdict, false
	}
	if r.verdict.doubts() {
		n.computeForms()
		within = slices.Concat(n.Within, n.Near)
		if n.long || n.odd {
			return Deny, len(within) > 0 || slices.ContainsFunc(n.Names, mayBeInSkill) ||
				slices.ContainsFunc(n.forms, mayBeInSkill)
		}
		uris = n.forms
	}
	if slices.ContainsFunc(within, match) {
		return r.verdict, true
	}
	for _, uri := range uris {
		rest, ok := strings.CutPrefix(uri, skillScheme)
		if !ok {
			continue
		}
		// the URI on /mcp, which begins with the name of the upstream
		if strings.HasPrefix(rest, n.Upstream+"/") && inFolder(rest, len(n.Upstream), match) {
			return r.verdict, true
		}
		// the upstream's own URI, of which only the forms have the scheme and the host in lower case
		if r.verdict.doubts() && inFolder(n.Upstream+"/"+rest, len(n.Upstream), match) {
			return r.verdict, true
		}
	}
	return r.verdict, false
}

// inFolder reports whether a path, or a folder of it that is longer than least, matches.
func inFolder(path string, least int, match func(string) bool) bool {
	for at := strings.LastIndexByte(path, '/'); at > least; at = strings.LastIndexByte(path[:at], '/') {
		if match(path[:at]) {
			return true
		}
	}
	return match(path) // the folder itself
}

// Readings returns the forms of a URI that a deny compares; false if they are too much work.
func Readings(uri string) ([]string, bool) {
	if len(uri) > maxURI {
		return nil, false
	}
	return forms([]string{uri})
}

// mayBeInSkill reports whether a URI has the scheme of skills.
func mayBeInSkill(uri string) bool {
	return len(uri) >= len(skillScheme) && strings.EqualFold(uri[:len(skillScheme)], skillScheme)
}

// FilesDiffer reports whether the rules of the subject may tell resources of an upstream apart. If
// not, all of them have the same ruling.
func (r *Rights) FilesDiffer(upstream string) bool {
	return r.also != nil && r.also.FilesDiffer(upstream) || slices.ContainsFunc(r.entries, func(e *entry) bool {
		return slices.ContainsFunc(e.rules, func(r rule) bool {
			return (r.resources != nil || r.skills != nil) && r.appliesTo(upstream)
		})
	})
}
