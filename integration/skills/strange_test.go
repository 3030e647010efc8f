package skills

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// leftOut returns why items of an upstream are left out, by name; "" is a whole list.
func leftOut(j *harness.Junction, name string) map[string]string {
	reasons := map[string]string{}
	for _, left := range j.Status(name).Left {
		reasons[left.Name] = left.Reason
	}
	for _, p := range j.Problems() { // of another process
		if p.Upstream == name {
			reasons[p.Name] = p.Reason
		}
	}
	return reasons
}

// TestTheSameURIOnTwoServers lists the same URI on two servers, over each wire: with a scheme of their
// own, each skill has the name of its server in its URI. A web address has no room for that name, so that
// one of the two skills is left out with a reason. No file is ever read from the other server.
func TestTheSameURIOnTwoServers(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		w := harness.Setup{Upstreams: map[string]upstream.Config{}}
		for _, name := range []string{"a", "b"} {
			s := upstreamtest.Script{Contents: map[string]json.RawMessage{}}
			for _, folder := range []string{"github://o/r/refunds", "https://x.example/web"} {
				entry, contents := upstreamtest.Skill(folder, "Of "+name+".", map[string]string{"mail.md": "From " + name + "."})
				s.Skills = append(s.Skills, entry)
				maps.Copy(s.Contents, contents)
			}
			w.Upstreams[name] = harness.Exact(p.Serve(t, s).Config)
		}
		j := harness.Start(t, p, w)
		j.Offers(t, "a", "b")
		c := j.Talk(t)
		all := listed(t, c)
		want := []string{"https://x.example/web/SKILL.md", "mcp://a/github://o/r/refunds/SKILL.md",
			"mcp://b/github://o/r/refunds/SKILL.md"}
		if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
			t.Fatalf("listed %q\nwant   %q", got, want)
		}
		for uri, s := range all {
			if strings.HasPrefix(uri, "mcp://") {
				verify(t, c, s)
			}
		}
		for _, method := range []string{"skills/get", "resources/read"} { // a bare URI could be of either server
			harness.WantCode(t, c.Ask(t, method, `"uri":"github://o/r/refunds/SKILL.md"`), -32602)
		}
		if reason := leftOut(j, "b")["https://x.example/web/SKILL.md"]; !strings.Contains(reason, "a has it too") {
			t.Errorf("the skill of b is left out because %q", reason)
		}
		for _, name := range []string{"a", "b"} {
			bare := j.TalkTo(t, "/"+name)
			own := listed(t, bare)
			if len(own) != 2 {
				t.Errorf("/mcp/%s has %d skills, want 2", name, len(own))
			}
			for _, s := range own {
				verify(t, bare, s)
			}
		}
	})
}

// TestDirectoriesThatContainThemselves reads directories that list themselves, their parent, an entry
// twice and one without a name, over each wire: only direct children are passed on. Junction reads one
// directory for each request, so that a directory without end costs what its reader asks for.
func TestDirectoriesThatContainThemselves(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		const root = "skill://s/loop"
		folder := func(uri string) string { return fmt.Sprintf(`{"uri":%q,"name":"n","mimeType":"inode/directory"}`, uri) }
		entry, contents := upstreamtest.Skill(root, "Text.", nil)
		s := upstreamtest.Script{Skills: []json.RawMessage{entry}, Contents: contents, Directories: map[string]json.RawMessage{}}
		for depth, uri := 0, root; depth < 4; depth, uri = depth+1, uri+"/again" {
			s.Directories[uri] = json.RawMessage("[" + strings.Join([]string{folder(uri), folder(uri + "/"), folder(uri + "/."),
				folder(uri + "/.."), folder("skill://s"), folder("skill://other/x"), folder(uri + "/a/b"), `{"uri":"` + uri + `/unnamed"}`,
				folder(uri + "/again"), folder(uri + "/again")}, ",") + "]")
		}
		up := p.Serve(t, s)
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"a": harness.Exact(up.Config)}})
		j.Offers(t, "a")
		c := j.Talk(t)
		uri := "skill://a/s/loop"
		for range 4 {
			result := c.Must(t, "resources/directory/read", `"uri":"`+uri+`"`)
			uri += "/again"
			if got := harness.Member(result, "resources"); got != "["+folder(uri)+"]" {
				t.Errorf("the directory has %s, want only %s", got, uri)
			}
		}
		if n := len(up.RequestsOf(t, "resources/directory/read", 4)); n != 4 {
			t.Errorf("the server got %d requests for 4 directories", n)
		}
	})
}

// TestServersWithoutTheMethodsOfSkills: a server that declares the extension and has no skills/list is
// named with the reason, over each wire, and the skills of others are there.
func TestServersWithoutTheMethodsOfSkills(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		without := p.Serve(t, upstreamtest.Script{Capabilities: json.RawMessage(
			`{"tools":{},"resources":{},"extensions":{"` + extension + `":{}}}`)})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{
			"a": harness.Exact(without.Config), "b": harness.Exact(p.Serve(t, library("b")).Config)}})
		j.Offers(t, "a", "b")
		c := j.Talk(t)
		all := listed(t, c)
		if len(all) != 3 {
			t.Errorf("listed %d skills, want the 3 of b", len(all))
		}
		for _, s := range all {
			verify(t, c, s)
		}
		if reason := leftOut(j, "a")[""]; !strings.Contains(reason, "has no skills/list") {
			t.Errorf("the list of a is left out because %q", reason)
		}
		for path, code := range map[string]int64{"": -32602, "/a": -32601} {
			m := j.TalkTo(t, path).Ask(t, "skills/get", `"uri":"skill://a/x/SKILL.md"`)
			harness.WantCode(t, m, code)
		}
	})
}

// TestChangedSkillsAreAnnounced: a change of the skills of a server reaches the streams of clients, over
// each wire, as a change of the resources, which is the notification that the extension names.
func TestChangedSkillsAreAnnounced(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		before, contents := upstreamtest.Skill("skill://s/before", "Text.", nil)
		after, more := upstreamtest.Skill("skill://s/after", "Text.", map[string]string{"a.md": "A."})
		maps.Copy(contents, more)
		up := p.Serve(t, upstreamtest.Script{Skills: []json.RawMessage{before}, Contents: contents})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"a": harness.Exact(up.Config)}})
		j.Offers(t, "a")
		up.Listened(t, p)
		c := j.Talk(t)
		if all := listed(t, c); len(all) != 1 {
			t.Fatalf("listed %v, want the skill before the change", all)
		}
		var stream *harness.Answering
		if p.Client == client.EraLegacy {
			stream = c.Get(t)
		} else {
			stream, _ = harness.Subscribe(t, c, `"skills"`, `{"resourcesListChanged":true}`)
		}
		up.Set(t, "skills/list", []json.RawMessage{after})
		harness.WantNotes(t, stream, "resources/list_changed")
		all := listed(t, c)
		s, ok := all["skill://a/s/after/SKILL.md"]
		if !ok || len(all) != 1 {
			t.Fatalf("listed %v, want the skill after the change", all)
		}
		verify(t, c, s)
	})
}
