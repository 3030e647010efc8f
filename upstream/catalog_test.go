package upstream

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"junction/upstream/upstreamtest"
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

// TestListThatBreaksOffCostsOnlyItself: an answer over HTTP that ends too early is read once more. If it
// ends too early again, the list is left out with the reason, and the tools are offered. If it does not,
// nothing is missing.
func TestListThatBreaksOffCostsOnlyItself(t *testing.T) {
	for _, era := range []string{"legacy", "modern"} {
		for _, times := range []int{1, 0} { // 0 is always
			t.Run(fmt.Sprintf("%s, %d", era, times), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					broken := upstreamtest.Rule{Method: "prompts/list", Times: times, Status: 200,
						Header: map[string]string{"Content-Type": "text/event-stream"}, Body: "data: {\"jsonrpc\":\"2.0\",\n"}
					r := newRig(t, upstreamtest.Script{Era: era, Tools: tools("echo"),
						Prompts: []json.RawMessage{[]byte(`{"name":"ask"}`)}, Rules: []upstreamtest.Rule{broken}}, Config{})
					settle(time.Minute)
					cat := r.Catalog()
					if n := r.count("prompts/list"); n < 2 || len(cat.Tools) != 1 {
						t.Errorf("the list was read %d times, and there are %d tools (%s)", n, len(cat.Tools), r.Status().Err)
					}
					if len(cat.Left) != 1-times || len(cat.Prompts) != times {
						t.Errorf("%d prompts, left out: %+v", len(cat.Prompts), cat.Left)
					}
				})
			})
		}
	}
}
