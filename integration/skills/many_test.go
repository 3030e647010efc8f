package skills

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// shelf is a server with many small skills.
func shelf(n int) (s upstreamtest.Script) {
	s.Contents = map[string]json.RawMessage{}
	for i := range n {
		entry, contents := upstreamtest.Skill(fmt.Sprintf("skill://team%d/skill-%d", i%7, i), "Text.", nil)
		if s.Skills = append(s.Skills, entry); i%1000 == 0 {
			maps.Copy(s.Contents, contents)
		}
	}
	return s
}

// TestTenThousandSkillsAreListed: no page is cut, and skills from all pages verify, in each pair of eras
// over each wire.
func TestTenThousandSkillsAreListed(t *testing.T) {
	harness.Waits(t)
	const n = 10_000
	each := func(t *testing.T, p harness.Pair) {
		served := p.Serve(t, shelf(n))
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"a": harness.Exact(served.Config)}})
		j.Offers(t, "a")
		c := j.Talk(t)
		all := listed(t, c)
		if len(all) != n {
			t.Errorf("%d skills are listed, want %d", len(all), n)
		}
		for i := 0; i < n; i += 1000 {
			s, ok := all[fmt.Sprintf("skill://a/team%d/skill-%d/SKILL.md", i%7, i)]
			if !ok {
				t.Errorf("the skill %d is missing", i)
			}
			verify(t, c, s)
		}
	}
	if testing.Short() {
		each(t, harness.Pair{Client: client.EraModern, Upstream: client.EraModern, Transport: "http"})
		return
	}
	harness.EachPair(t, each)
}

// TestBadEntriesAreLeftOutAlone lists each bad entry between good ones, over each wire: the good ones
// are listed and verify, and the bad ones are left out with a reason and unknown to each method.
func TestBadEntriesAreLeftOutAlone(t *testing.T) {
	harness.Waits(t)
	digest := "sha256:" + strings.Repeat("0a", 32)
	file := func(uri, digest, size string) string {
		return fmt.Sprintf(`{"uri":%q,"digest":%q,"size":%s}`, uri, digest, size)
	}
	entry := func(uri, name string, files ...string) json.RawMessage {
		return fmt.Appendf(nil, `{"uri":%q,"frontmatter":{"name":%q,"description":"d"},"resources":[%s]}`, uri, name,
			strings.Join(append([]string{file(uri, digest, "1")}, files...), ","))
	}
	many := make([]string, 600)
	for i := range many {
		many[i] = file(fmt.Sprintf("skill://s/many/%d", i), digest, "1")
	}
	bad := map[string]json.RawMessage{
		"cut":      json.RawMessage(`{"uri":"skill://s/cut/SKILL.md","frontmatter":{"name":"cut","description":"d"}}`),
		"twice":    entry("skill://s/twice/SKILL.md", "twice", file("skill://s/twice/a", digest, "1"), file("skill://s/twice/a", digest, "1")),
		"outside":  entry("skill://s/outside/SKILL.md", "outside", file("skill://s/other/a", digest, "1")),
		"digest":   entry("skill://s/digest/SKILL.md", "digest", file("skill://s/digest/a", "sha256:00", "1")),
		"negative": entry("skill://s/negative/SKILL.md", "negative", file("skill://s/negative/a", digest, "-1")),
		"many":     entry("skill://s/many/SKILL.md", "many", many...),
		"large":    entry("skill://s/large/SKILL.md", "large", file("skill://s/large/a", digest, "20971520")),
		"renamed":  entry("skill://s/renamed/SKILL.md", "another"),
		"dots":     entry("skill://s/dots/SKILL.md", "dots", file("skill://s/dots/../a", digest, "1")),
		"encoded":  entry("skill://s/encoded/SKILL.md", "encoded", file("skill://s/encoded/%2e%2e/a", digest, "1")),
		"empty":    entry("skill://s/empty/SKILL.md", "empty", file("skill://s/empty//a", digest, "1")),
		"host":     entry("skill://s/host/SKILL.md", "host", file("skill://t/host/a", digest, "1")),
	}
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := upstreamtest.Script{Contents: map[string]json.RawMessage{}}
		for _, name := range []string{"first", "last"} {
			good, contents := upstreamtest.Skill("skill://s/"+name, "Text.", nil)
			maps.Copy(s.Contents, contents)
			s.Skills = append(s.Skills, good)
			if name == "first" {
				for _, b := range bad {
					s.Skills = append(s.Skills, b)
				}
				s.Skills = append(s.Skills, good, // a second time
					json.RawMessage(`null`), json.RawMessage(`"skill://s/text/SKILL.md"`), json.RawMessage(`{}`))
			}
		}
		served := p.Serve(t, s)
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"a": harness.Exact(served.Config)}})
		j.Offers(t, "a")
		c := j.Talk(t)
		items, _ := c.Drain(t, "skills/list", "skills")
		if len(items) != 2 {
			t.Errorf("%d skills are listed, want the 2 good ones: %s", len(items), items)
		}
		for _, item := range items {
			verify(t, c, mustEntry(t, item))
		}
		reasons := leftOut(j, "a")
		for name := range bad {
			if reasons["skill://s/"+name+"/SKILL.md"] == "" {
				t.Errorf("%s is left out without a reason: %v", name, reasons)
			}
			if m := c.Ask(t, "skills/get", `"uri":"skill://a/s/`+name+`/SKILL.md"`); m.Error == nil {
				t.Errorf("skills/get %s = %s", name, m.Result)
			}
		}
	})
}

// TestGetReturnsTheChangedSkill: skills/get asks the server each time, so that a host gets the digests of
// files that have changed since the list was read.
func TestGetReturnsTheChangedSkill(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		const own, exposed = "skill://acme/refunds/SKILL.md", "skill://a/acme/refunds/SKILL.md"
		before, _ := upstreamtest.Skill("skill://acme/refunds", "Before.", nil)
		after, contents := upstreamtest.Skill("skill://acme/refunds", "After.", map[string]string{"new.md": "New."})
		served := p.Serve(t, upstreamtest.Script{Skills: []json.RawMessage{before}, Contents: contents,
			Gets: map[string]json.RawMessage{own: after}})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"a": harness.Exact(served.Config)}})
		j.Offers(t, "a")
		c := j.Talk(t)
		if s := listed(t, c)[exposed]; len(s.Resources) != 1 {
			t.Fatalf("the list has %+v, want the skill before the change", s)
		}
		result := c.Must(t, "skills/get", `"uri":"`+exposed+`"`)
		s := mustEntry(t, []byte(harness.Member(result, "skill")))
		if len(s.Resources) != 2 {
			t.Errorf("skills/get = %s, want the changed skill", result)
		}
		verify(t, c, s)
	})
}
