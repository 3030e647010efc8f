package upstream

import (
	"slices"
	"strings"
	"testing"
)

// TestSkillsOfALongURIAreFoundQuickly looks for the skills of a URI of a million slashes. If each of them
// cost a look at all before it, the test would not end.
func TestSkillsOfALongURIAreFoundQuickly(t *testing.T) {
	const skill = "skill://a/SKILL.md"
	c := &Catalog{Skills: []Item{{Name: skill}}}
	c.index[PartSkills] = map[string]int{skill: 0}
	if got := c.SkillsWith("skill://a/b/c"); !slices.Equal(got, []string{skill}) {
		t.Errorf("the file is in %v", got)
	}
	if got := c.SkillsWith("x:" + strings.Repeat("/", 4<<20)); got != nil {
		t.Errorf("the URI is in %v", got)
	}
}
