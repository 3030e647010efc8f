package view

import (
	"testing"
	"time"

	"junction/policy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// TestFilesOfSkillsInNoList denies a folder of skills to a server whose skills are in no list. Of a URI
// with the scheme skill, each file is denied. Of others, only the SKILL.md can be: nothing tells that
// another resource is a file of a skill, so a rule for resources denies it.
func TestFilesOfSkillsInNoList(t *testing.T) {
	offers, err := raw.Parse([]byte(`{"extensions":{"io.modelcontextprotocol/skills":{}}}`))
	if err != nil {
		t.Fatal(err)
	}
	c := &upstream.Catalog{Era: client.EraModern, Listed: time.Now(), Capabilities: offers}
	c.Fresh[upstream.PartSkills].Has = true
	st := NewStock(&canned{name: "a", catalog: c}, c, StockSettings{Names: Names{}.WithDefaults()})
	skills := deny(policy.Selector{Skills: []string{"a/file:///srv/secret/*", "a/secret/*"}})
	resources := deny(policy.Selector{Resources: []string{"file:///srv/secret/*"}})
	for _, tt := range []struct {
		uri          string
		skills, both bool // visible with a rule for skills, and with one for resources, too
	}{
		{"skill://secret/x/SKILL.md", false, false},
		{"skill://secret/x/data.txt", false, false},
		{"file:///srv/secret/x/SKILL.md", false, false},
		{"FILE:///srv/secret/%78/SKILL.md", false, false},
		{"file:///srv/open/x/SKILL.md", true, true},
		{"file:///srv/secret/x/data.txt", true, false},
		{"file:///srv/open/x/data.txt", true, true},
	} {
		for want, rules := range map[*bool][]policy.Rule{&tt.skills: {skills}, &tt.both: {skills, resources}} {
			p := compiledPolicy(t, policy.Config{{Name: "p", Rules: append(rules, allow(all()))}})
			if got := p.For(policy.Subject{}).Bind(st.fileItem(tt.uri)).Visible(); got != *want {
				t.Errorf("%s with %d rules that deny is visible: %t, want %t", tt.uri, len(rules), got, *want)
			}
		}
	}
}
