package scope

import (
	"fmt"
	"runtime"
	"testing"

	"junction/auth"
	"junction/policy"
	"junction/proxy/proxytest"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/raw"
)

// TestSkillsInMemory: /mcp and the endpoint of a server with 10,000 skills keep together at most 700
// bytes of each, beside the entry with the URIs of /mcp. With the 300 of the catalog, a skill takes
// less than 1 KB.
func TestSkillsInMemory(t *testing.T) {
	const n = 10_000
	backend := proxytest.NewBackend(t, 1, 10)
	for i := range n {
		uri := fmt.Sprintf("skill://s%d/SKILL.md", i)
		o, err := raw.Parse(fmt.Appendf(nil, `{"uri":%q,"frontmatter":{"name":"s%d","description":"d"},"resources":[`+
			`{"uri":%q,"digest":"sha256:%064d","size":1}]}`, uri, i, uri, i))
		if err != nil {
			t.Fatal(err)
		}
		backend.Lists.Skills = append(backend.Lists.Skills, upstream.Item{Name: uri, Definition: o.Forget()})
	}
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	c := Config{Names: view.Names{}.WithDefaults(), Guard: &auth.Guard{}, Policy: policy.Open()}
	before := heap()
	w := New(c, []view.Backend{backend}, nil, &Made{})
	listed, size := 0, 0
	for target := range w.Endpoints[""].View.All(upstream.PartSkills) {
		listed, size = listed+1, size+len(target.Item.Definition.Text())
	}
	beside := (heap() - before - size) / n
	t.Logf("%d bytes beside the %d of an entry", beside, size/n)
	if listed != n || beside > 700 {
		t.Errorf("%d skills of %d are listed, with %d bytes each beside the entry; want at most 700", listed, n, beside)
	}
	runtime.KeepAlive(w)
}
