package front

import (
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"junction/auth"
	"junction/policy"
	"junction/proxy"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/bounded"
)

// TestPrincipalTakesFewBytes has principals with a policy each list 10,500 tools. Each of them
// keeps at most 4 KB, of which the caches count as much. Before, it was 10.5 MB.
func TestPrincipalTakesFewBytes(t *testing.T) {
	const some, keys = 20, 220
	c := proxytest.KeysOfOnePolicy(keys, 50, 210)
	s := serverOf(t, &c, proxy.Limits{})
	list := func(principals []*auth.Principal) {
		for _, p := range principals {
			s.listTools(&nowhere{header: http.Header{}}, p, "")
		}
	}
	list(c.Principals[:some]) // for buffers and the like
	w := s.Snapshot()
	before, counted := proxytest.MemoryInUse(), w.Subjects.Used
	list(c.Principals[some:])
	each, eachCounted := (proxytest.MemoryInUse()-before)/(keys-some), (w.Subjects.Used-counted)/(keys-some)
	t.Logf("a principal that has listed %d tools keeps %d bytes; %d are counted", 50*210, each, eachCounted)
	if each > 4000 {
		t.Errorf("a principal that has listed %d tools keeps %d bytes, want at most 4000", 50*210, each)
	}
	if int(each) > eachCounted*5/4 {
		t.Errorf("a principal keeps %d bytes, and %d are counted", each, eachCounted)
	}
	if n := w.Endpoints[""].Cached().Subjects; n != keys {
		t.Errorf("%d principals are remembered, want all %d", n, keys)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(&c)
}

// TestEqualSightsShareAPage have different policies. A page is prepared for all of them
// together.
func TestEqualSightsShareAPage(t *testing.T) {
	c := proxytest.KeysOfOnePolicy(3, 4, 50)
	for i := range c.Policies {
		c.Policies[i].Rules = []policy.Rule{proxytest.Allow(proxytest.Tools("up1__*", fmt.Sprint("none", i)))}
	}
	s := serverOf(t, &c, proxy.Limits{})
	e := s.Snapshot().Endpoints[""]
	for i, p := range c.Principals {
		want := s.mayList(p)
		if names, _ := s.listed(t, p, ""); !slices.Equal(names, want) || len(names) != 50 {
			t.Errorf("%s lists %v, want %v", p.ID, names, want)
		}
		if n, want := e.Cached().Pages, min(i, 1); n != want {
			t.Errorf("after %d lists there are %d prepared pages, want %d", i+1, n, want)
		}
	}
	if n := e.Cached().Rights; n != 3 {
		t.Errorf("there are %d shares, want 3", n)
	}
}

// TestOneToolMakesADifference has principals who may use all tools but one each. They list
// again and again while the configuration is loaded anew, with another tool for each. None ever
// gets a page with its tool, a page that lacks another tool, or the tool by its name.
func TestOneToolMakesADifference(t *testing.T) {
	const keys, perUpstream, page = 12, 40, 7
	c := proxytest.KeysOfOnePolicy(keys, 1, perUpstream)
	configs := make([]scope.Config, 3)
	for k := range configs {
		for i := range c.Policies {
			c.Policies[i].Rules = []policy.Rule{proxytest.Deny(proxytest.Tools(fmt.Sprintf("*_tool%d", i+10*k))), proxytest.Allow(proxytest.All())}
		}
		configs[k] = scope.Config{Guard: &auth.Guard{}, Policy: proxytest.MustPolicy(t, c.Policies)}
	}
	s, backends := mustServer(t), c.Backends(t)
	s.ApplyBackends(configs[0], backends)
	done := make(chan struct{})
	var loads, lists sync.WaitGroup
	loads.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-done:
				return
			default:
				s.ApplyBackends(configs[i%len(configs)], backends)
				s.Refresh()
			}
		}
	})
	verbs := []string{"read", "write", "delete", "query", "drop"}
	look := func(i int, p *auth.Principal) {
		w := s.Snapshot()
		e := w.EndpointFor("", p)
		share := w.SubjectViewFor(e, p)
		k := slices.IndexFunc(configs, func(c scope.Config) bool { return c.Policy == w.Config.Policy })
		text := ""
		for offset := 0; ; {
			body, items, next, _ := e.Page(share.Sight(), upstream.PartTools, view.LegacyKind, offset, page, nil)
			text += string(items.AppendTo(slices.Clone(body)))
			if offset = next; next == 0 {
				break
			}
		}
		for n := range perUpstream {
			name := fmt.Sprintf("up0__%s_tool%d", verbs[n%5], n)
			denied := n == i+10*k
			if strings.Contains(text, `"`+name+`"`) == denied {
				t.Errorf("%s lists %s: %t", p.ID, name, denied)
			}
			if (share.Named(upstream.PartTools, name) == nil) != denied {
				t.Errorf("%s finds %s: %t", p.ID, name, denied)
			}
		}
	}
	for i, p := range c.Principals {
		lists.Go(func() {
			for range 60 {
				look(i, p)
			}
		})
	}
	lists.Wait()
	close(done)
	loads.Wait()
}

// TestCachesKeepTheirBudget has 10,000 principals with other policies each, in memory for some
// hundreds. The caches stay within their budget, and each principal sees what policy says, whatever
// has left the caches.
func TestCachesKeepTheirBudget(t *testing.T) {
	const budget = 256 << 10
	n := 10_000
	if testing.Short() {
		t.Attr("short", "true")
		n = 2000
	}
	c := proxytest.UsersOfGroups(n, 500, 5, 20)
	s := serverOf(t, &c, proxy.Limits{Page: 60})
	w := s.Snapshot()
	w.Subjects.Max, w.Pages.Max = budget, budget
	var often []*auth.Principal // who list now and then
	want := map[string][]string{}
	for i := 0; i < n; i += n / 10 {
		p := c.Principals[i]
		often, want[p.ID] = append(often, p), s.mayList(p)
	}
	check := func(p *auth.Principal) {
		t.Helper()
		if names, _ := s.listed(t, p, ""); !slices.Equal(names, want[p.ID]) {
			t.Fatalf("%s lists %v, want %v", p.ID, names, want[p.ID])
		}
	}
	before := proxytest.MemoryInUse()
	for i, p := range c.Principals {
		if s.listAll(t, p); i%100 == 0 {
			check(often[i/100%len(often)])
			check(often[i/100%len(often)])
		}
		if w.Subjects.Used > budget || w.Pages.Used > budget {
			t.Fatalf("after %d principals %d bytes of subjects and %d of pages are in use, want at most %d",
				i+1, w.Subjects.Used, w.Pages.Used, budget)
		}
	}
	grown, remembered := proxytest.MemoryInUse()-before, w.Endpoints[""].Cached().Subjects
	t.Logf("%d principals take %d KiB; %d of them are remembered", n, grown>>10, remembered)
	if limit := int64(2*budget + view.MaxRulings + 1<<20); grown > limit {
		t.Errorf("%d principals take %d KiB, want at most %d", n, grown>>10, limit>>10)
	}
	if remembered < 50 || remembered > 1000 {
		t.Errorf("%d principals are remembered, want some hundreds", remembered)
	}
	for _, p := range often {
		check(p)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(&c)
}

// TestCursorsOutliveEviction takes a cursor, has everything leave the caches that can, and
// goes on.
func TestCursorsOutliveEviction(t *testing.T) {
	c := proxytest.KeysOfOnePolicy(2, 3, 20)
	s := serverOf(t, &c, proxy.Limits{Page: 10})
	w := s.Snapshot()
	for i, p := range c.Principals {
		names, cursors := s.listed(t, p, "")
		if len(cursors) < 2 {
			t.Fatalf("%s lists %d tools with %d cursors", p.ID, len(names), len(cursors))
		}
		for k, cursor := range cursors {
			for _, r := range []*bounded.Room{&w.Subjects, &w.Pages} {
				most := r.Max
				r.Close()
				r.Max = most
			}
			if rest, _ := s.listed(t, p, cursor); !slices.Equal(rest, names[10*(k+1):]) {
				t.Errorf("from page %d on %s lists %v, want %v", k+2, p.ID, rest, names[10*(k+1):])
			}
		}
		w, other := newAnswer(), c.Principals[1-i]
		if s.listTools(w, other, cursors[0]); !strings.Contains(string(w.text), "Invalid cursor") {
			t.Errorf("%s's cursor is answered %.200s for %s", p.ID, w.text, other.ID)
		}
	}
}
