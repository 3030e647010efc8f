package scope

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"junction/auth"
	"junction/policy"
	"junction/proxy/proxytest"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
)

// apart is a backend that has catalogs for single sessions.
type apart struct {
	*proxytest.Backend
	of map[string]*upstream.Catalog
}

func (a *apart) Separates() bool { return true }
func (a *apart) CatalogFor(_ client.Profile, session, _ string) *upstream.Catalog {
	if c := a.of[session]; c != nil {
		return c
	}
	return a.Lists
}

// clientsApart is a snapshot of 2,000 tools, and an upstream that has a catalog of its own for each
// client.
func clientsApart(t *testing.T, clients int, made *Made) (w *Snapshot, own *apart) {
	c := proxytest.Crowd{Upstreams: 10, Tools: 200}
	own = &apart{proxytest.NewBackend(t, 3, 10), map[string]*upstream.Catalog{}}
	own.Named = "own"
	for i := range clients {
		catalog := &upstream.Catalog{Era: client.EraLegacy, Listed: time.Now()}
		for _, name := range []string{fmt.Sprint("of", i), "tool1", "delete"} {
			catalog.Tools = append(catalog.Tools, proxytest.MustTool(t, `{"name":"`+name+`"}`))
		}
		own.of[fmt.Sprint(i)] = catalog
	}
	p := proxytest.MustPolicy(t, policy.Config{{Name: "all", Rules: []policy.Rule{proxytest.Deny(proxytest.Tools("*delete*")), proxytest.Allow(proxytest.All())}}})
	w = New(Config{Names: view.Names{}.WithDefaults(), Guard: &auth.Guard{}, Policy: p}, append([]view.Backend{own}, c.Backends(t)...), nil, made)
	return w, own
}

// seesItsOwn returns the endpoint of a client of clientsApart, which sees its own tools and those
// of all.
func seesItsOwn(t *testing.T, w *Snapshot, own *apart, i int) *Endpoint {
	t.Helper()
	key := &auth.Principal{Kind: auth.KindKey, ID: "key:a", Key: "a"}
	c := Caller{Snapshot: w, Endpoint: w.Endpoints[""], Principal: key, Subject: w.SubjectViewFor(w.Endpoints[""], key)}
	c.Who.Session = fmt.Sprint(i)
	c = w.ForClient(c)
	var its []string
	n := 0
	for target := range c.Subject.Sight().All(upstream.PartTools) {
		mine := target.Backend == view.Backend(own)
		if n++; mine {
			its = append(its, target.Name)
		}
		if (mine || n%50 == 0) && c.Subject.Named(upstream.PartTools, target.Exposed) != target {
			t.Errorf("client %d does not find %s by its name", i, target.Exposed)
		}
	}
	if want := []string{fmt.Sprint("of", i), "tool1"}; !slices.Equal(its, want) || n != 10*160+2 {
		t.Fatalf("client %d lists %d tools, of which %v are its own, want %v", i, n, its, want)
	}
	finds := map[string]bool{fmt.Sprint("of", i): true, "own__tool1": true, "own__tool2": false, "own__delete": false}
	for name, want := range finds {
		if got := c.Subject.Named(upstream.PartTools, name); (got != nil) != want {
			t.Errorf("client %d finds %s: %v", i, name, got)
		}
	}
	return c.Endpoint
}

// TestOwnCatalogsTakeLittleMemory has 300 clients with catalogs of their own. Each endpoint
// is compiled once, and takes little more than what is its own. With less memory some of them are
// kept.
func TestOwnCatalogsTakeLittleMemory(t *testing.T) {
	const clients = 300
	var made Made
	w, own := clientsApart(t, clients, &made)
	seesItsOwn(t, w, own, 0)
	before, counted, stocked := proxytest.MemoryInUse(), w.Subjects.Used, made.Stocks.Load()
	var first []*Endpoint
	for i := range clients {
		first = append(first, seesItsOwn(t, w, own, i))
	}
	each, eachCounted := (proxytest.MemoryInUse()-before)/clients, (w.Subjects.Used-counted)/clients
	t.Logf("a client with a catalog of its own takes %d bytes; %d are counted", each, eachCounted)
	if each > 16<<10 || int(each) > eachCounted*5/4 {
		t.Errorf("a client with its own catalog takes %d bytes, of which %d are counted", each, eachCounted)
	}
	for i := range clients {
		if seesItsOwn(t, w, own, i) != first[i] {
			t.Fatalf("the endpoint of client %d is made again", i)
		}
	}
	if n := made.Stocks.Load() - stocked; n != clients-1 {
		t.Errorf("%d catalogs were compiled, want %d", n, clients-1)
	}
	one := first[3]
	w.Subjects.Mu.Lock()
	for _, f := range w.Endpoints[""].clientEndpoints.Of {
		if f.Value.made == one {
			f.Leave()
		}
	}
	w.Subjects.Mu.Unlock()
	if !one.pages.cache.Closed || !one.subjects.cache.Closed || len(one.subjects.cache.Of) > 0 || len(one.subjects.alike) > 0 {
		t.Error("an endpoint that has left the cache still keeps something")
	}
	w.Subjects.Max = 512 << 10
	w.Subjects.Trim()
	gone := weak.Make(first[clients/2].View)
	first, one = nil, nil
	for range 3 {
		for i := range clients {
			if i != clients/2 {
				seesItsOwn(t, w, own, i)
			}
			if w.Subjects.Used > w.Subjects.Max {
				t.Fatalf("%d bytes are in use, want at most %d", w.Subjects.Used, w.Subjects.Max)
			}
		}
	}
	if runtime.GC(); gone.Value() != nil {
		t.Error("the view of a client that has not asked for long is still in memory")
	}
	seesItsOwn(t, w, own, clients/2)
	if n := len(w.Endpoints[""].clientEndpoints.Of); n == 0 || n > clients/2 {
		t.Errorf("%d endpoints are kept", n)
	}
}

// TestRulingsAreBounded calls many tools as many subjects. What was ruled last is found
// again without new memory, and all rulings together stay within their budget.
func TestRulingsAreBounded(t *testing.T) {
	c := proxytest.KeysOfOnePolicy(40, 10, 200)
	for i := range c.Policies {
		for k := range 30 {
			rule := proxytest.Ask(proxytest.Tools("*"))
			rule.Ask.Where = policy.Where{"a": {{Glob: fmt.Sprint(k)}}}
			c.Policies[i].Rules = append(c.Policies[i].Rules, rule)
		}
	}
	w := New(Config{Names: view.Names{}.WithDefaults(), Guard: &auth.Guard{}, Policy: proxytest.MustPolicy(t, c.Policies)}, c.Backends(t), nil, new(Made))
	e := w.Endpoints[""]
	for _, p := range c.Principals {
		share := w.SubjectViewFor(e, p)
		for target := range e.View.All(upstream.PartTools) {
			ruling, want := share.Ruling(target), share.Rights.Bind(target.PolicyItem())
			if ruling.Visible() != want.Visible() || ruling.Reads() != want.Reads() {
				t.Fatalf("the ruling of %s about %s is another one", p.ID, target.Exposed)
			}
			if share.Ruling(target) != ruling {
				t.Fatalf("the ruling of %s about %s is made again at once", p.ID, target.Exposed)
			}
		}
		if n := w.Rulings.Bytes.Load(); n > view.MaxRulings {
			t.Fatalf("rulings take %d bytes, want at most %d", n, view.MaxRulings)
		}
	}
	share, target := w.SubjectViewFor(e, c.Principals[0]), e.View.Exposed(upstream.PartTools, "up1__read_tool0")
	if n := testing.AllocsPerRun(100, func() { share.Ruling(target) }); n > 0 {
		t.Errorf("a ruling that was just made takes %v pieces of memory", n)
	}
	sum := int64(0)
	for i := range w.Rulings.Places {
		if one := w.Rulings.Places[i].Load(); one != nil {
			sum += one.Bytes
		}
	}
	if counted := w.Rulings.Bytes.Load(); sum != counted || sum < view.MaxRulings/2 {
		t.Errorf("the rulings take %d bytes, and %d are counted", sum, counted)
	}
}
