package proxy

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"junction/auth"
	"junction/policy"
	"junction/proxy/view"
	"junction/upstream"
)

// apart is a backend that has catalogs for single sessions.
type apart struct {
	*canned
	of map[string]*upstream.Catalog
}

func (a *apart) Separates() bool { return true }
func (a *apart) CatalogFor(_ upstream.Profile, session, _ string) *upstream.Catalog {
	if c := a.of[session]; c != nil {
		return c
	}
	return a.catalog
}

// clientsApart is a snapshot of 2,000 tools, and an upstream that has a catalog of its own for each
// client. stocked counts the stocks that are made.
func clientsApart(t *testing.T, clients int, stocked *atomic.Uint64) (w *snapshot, own *apart) {
	c := crowd{upstreams: 10, tools: 200}
	own = &apart{cannedBackend(t, 3, 10), map[string]*upstream.Catalog{}}
	own.name = "own"
	for i := range clients {
		catalog := &upstream.Catalog{Era: upstream.EraLegacy, Listed: time.Now()}
		for _, name := range []string{fmt.Sprint("of", i), "tool1", "delete"} {
			catalog.Tools = append(catalog.Tools, toolOf(t, `{"name":"`+name+`"}`))
		}
		own.of[fmt.Sprint(i)] = catalog
	}
	p := compiledPolicy(t, policy.Config{{Name: "all", Rules: []policy.Rule{deny(tools("*delete*")), allow(all())}}})
	w = newSnapshot(SnapshotConfig{Names: view.Names{}.WithDefaults(), Guard: &auth.Guard{}, Policy: p}, append([]view.Backend{own}, c.backends(t)...), nil, stocked)
	return w, own
}

// seesItsOwn returns the endpoint of a client of clientsApart, which sees its own tools and those
// of all.
func seesItsOwn(t *testing.T, w *snapshot, own *apart, i int) *endpoint {
	t.Helper()
	key := &auth.Principal{Kind: auth.KindKey, ID: "key:a", Key: "a"}
	c := caller{snapshot: w, endpoint: w.endpoints[""], principal: key, subject: w.subjectView(w.endpoints[""], key)}
	c.who.session = fmt.Sprint(i)
	c = w.forClient(c)
	var its []string
	n := 0
	for target := range c.subject.Sight().All(upstream.PartTools) {
		mine := target.Backend == view.Backend(own)
		if n++; mine {
			its = append(its, target.Name)
		}
		if (mine || n%50 == 0) && c.subject.Named(upstream.PartTools, target.Exposed) != target {
			t.Errorf("client %d does not find %s by its name", i, target.Exposed)
		}
	}
	if want := []string{fmt.Sprint("of", i), "tool1"}; !slices.Equal(its, want) || n != 10*160+2 {
		t.Fatalf("client %d lists %d tools, of which %v are its own, want %v", i, n, its, want)
	}
	finds := map[string]bool{fmt.Sprint("of", i): true, "own__tool1": true, "own__tool2": false, "own__delete": false}
	for name, want := range finds {
		if got := c.subject.Named(upstream.PartTools, name); (got != nil) != want {
			t.Errorf("client %d finds %s: %v", i, name, got)
		}
	}
	return c.endpoint
}

// TestSafety10ClientsWithTheirOwnCatalogs has 300 clients with catalogs of their own. Each endpoint
// is compiled once, and takes little more than what is its own. With less memory some of them are
// kept.
func TestSafety10ClientsWithTheirOwnCatalogs(t *testing.T) {
	const clients = 300
	var made atomic.Uint64
	w, own := clientsApart(t, clients, &made)
	seesItsOwn(t, w, own, 0)
	before, counted, stocked := held(), w.subjects.Used, made.Load()
	var first []*endpoint
	for i := range clients {
		first = append(first, seesItsOwn(t, w, own, i))
	}
	each, eachCounted := (held()-before)/clients, (w.subjects.Used-counted)/clients
	t.Logf("a client with a catalog of its own takes %d bytes; %d are counted", each, eachCounted)
	if each > 16<<10 || int(each) > eachCounted*5/4 {
		t.Errorf("a client with its own catalog takes %d bytes, of which %d are counted", each, eachCounted)
	}
	for i := range clients {
		if seesItsOwn(t, w, own, i) != first[i] {
			t.Fatalf("the endpoint of client %d is made again", i)
		}
	}
	if n := made.Load() - stocked; n != clients-1 {
		t.Errorf("%d catalogs were compiled, want %d", n, clients-1)
	}
	one := first[3]
	w.subjects.Mu.Lock()
	for _, f := range w.endpoints[""].clientEndpoints.Of {
		if f.Value.made == one {
			f.Leave()
		}
	}
	w.subjects.Mu.Unlock()
	if !one.pages.of.Closed || !one.subjects.of.Closed || len(one.subjects.of.Of) > 0 || len(one.subjects.alike) > 0 {
		t.Error("an endpoint that has left the cache still keeps something")
	}
	w.subjects.Max = 512 << 10
	w.subjects.Trim()
	gone := weak.Make(first[clients/2].view)
	first, one = nil, nil
	for range 3 {
		for i := range clients {
			if i != clients/2 {
				seesItsOwn(t, w, own, i)
			}
			if w.subjects.Used > w.subjects.Max {
				t.Fatalf("%d bytes are in use, want at most %d", w.subjects.Used, w.subjects.Max)
			}
		}
	}
	if runtime.GC(); gone.Value() != nil {
		t.Error("the view of a client that has not asked for long is still in memory")
	}
	seesItsOwn(t, w, own, clients/2)
	if n := len(w.endpoints[""].clientEndpoints.Of); n == 0 || n > clients/2 {
		t.Errorf("%d endpoints are kept", n)
	}
}

// TestSafety10RulingsAreBounded calls many tools as many subjects. What was ruled last is found
// again without new memory, and all rulings together stay within their budget.
func TestSafety10RulingsAreBounded(t *testing.T) {
	c := keysOfOnePolicy(40, 10, 200)
	for i := range c.policies {
		for k := range 30 {
			rule := ask(tools("*"))
			rule.Ask.Where = policy.Where{"a": {{Glob: fmt.Sprint(k)}}}
			c.policies[i].Rules = append(c.policies[i].Rules, rule)
		}
	}
	w := newSnapshot(SnapshotConfig{Names: view.Names{}.WithDefaults(), Guard: &auth.Guard{}, Policy: compiledPolicy(t, c.policies)}, c.backends(t), nil, new(atomic.Uint64))
	e := w.endpoints[""]
	for _, p := range c.principals {
		share := w.subjectView(e, p)
		for target := range e.view.All(upstream.PartTools) {
			ruling, want := share.Ruling(target), share.Rights.Bind(target.PolicyItem())
			if ruling.Visible() != want.Visible() || ruling.Reads() != want.Reads() {
				t.Fatalf("the ruling of %s about %s is another one", p.ID, target.Exposed)
			}
			if share.Ruling(target) != ruling {
				t.Fatalf("the ruling of %s about %s is made again at once", p.ID, target.Exposed)
			}
		}
		if n := w.rulings.Bytes.Load(); n > view.MaxRulings {
			t.Fatalf("rulings take %d bytes, want at most %d", n, view.MaxRulings)
		}
	}
	share, target := w.subjectView(e, c.principals[0]), e.view.Exposed(upstream.PartTools, "up1__read_tool0")
	if n := testing.AllocsPerRun(100, func() { share.Ruling(target) }); n > 0 {
		t.Errorf("a ruling that was just made takes %v pieces of memory", n)
	}
	sum := int64(0)
	for i := range w.rulings.Places {
		if one := w.rulings.Places[i].Load(); one != nil {
			sum += one.Bytes
		}
	}
	if counted := w.rulings.Bytes.Load(); sum != counted || sum < view.MaxRulings/2 {
		t.Errorf("the rulings take %d bytes, and %d are counted", sum, counted)
	}
}
