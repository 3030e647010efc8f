package proxy

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"junction/auth"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/raw"
)

// listed returns the names of the tools that a principal lists, page by page. With a cursor it begins there.
func (s *Server) listed(tb testing.TB, p *auth.Principal, cursor string) (names []string, cursors []string) {
	tb.Helper()
	for {
		params := modernMeta
		if cursor != "" {
			params += `,"cursor":"` + cursor + `"`
		}
		w := s.as2(p, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+params+`}}`, modernHeader("tools/list", ""))
		o, err := raw.Parse(w)
		if err == nil {
			o, err = o.Object("result")
		}
		if err != nil {
			tb.Fatalf("the list of %s is answered %.300s", p.ID, w)
		}
		tools, err := o.Elements("tools")
		if err != nil {
			tb.Fatalf("the list of %s is answered %.300s", p.ID, w)
		}
		for _, tool := range tools {
			definition, err := raw.Parse(tool)
			if err != nil {
				tb.Fatal(err)
			}
			name, err := definition.String("name")
			if err != nil {
				tb.Fatal(err)
			}
			names = append(names, name)
		}
		if cursor, err = o.String("nextCursor"); err != nil {
			return names, cursors
		}
		cursors = append(cursors, cursor)
	}
}

// as2 returns the answer to a request of the principal's.
func (s *Server) as2(p *auth.Principal, body string, header http.Header) []byte {
	w := &whole{nowhere: nowhere{header: http.Header{}}}
	s.send(w, p, body, header)
	return w.text
}

// whole is a ResponseWriter that keeps the answer.
type whole struct {
	nowhere
	text []byte
}

func (w *whole) Write(b []byte) (int, error) {
	w.text = append(w.text, b...)
	return len(b), nil
}

// mayList returns the names of the tools that policy makes visible for a principal, found out one by one.
func (s *Server) mayList(p *auth.Principal) (names []string) {
	w := s.world.Load()
	rights := w.policy.For(subject(p, ""))
	for t := range w.endpoints[""].view.all(upstream.PartTools) {
		if rights.Bind(t.policyItem()).Visible() {
			names = append(names, t.exposed)
		}
	}
	return names
}

// TestSafety10BytesOfAPrincipal has principals with a policy each list 10,500 tools. What each of them keeps
// is at most 4 KB, and it is what is counted. Before, it was 10.5 MB.
func TestSafety10BytesOfAPrincipal(t *testing.T) {
	const some, all = 20, 220
	c := keysOfOnePolicy(all, 50, 210)
	s := c.server(t)
	list := func(principals []*auth.Principal) {
		for _, p := range principals {
			s.as2(p, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`, modernHeader("tools/list", ""))
		}
	}
	list(c.principals[:some]) // for buffers and the like
	w := s.world.Load()
	before, counted := held(), w.subjects.used
	list(c.principals[some:])
	each, eachCounted := (held()-before)/(all-some), (w.subjects.used-counted)/(all-some)
	t.Logf("a principal that has listed %d tools keeps %d bytes; %d are counted", c.upstreams*c.tools, each, eachCounted)
	if each > 4000 {
		t.Errorf("a principal that has listed %d tools keeps %d bytes, want at most 4000", c.upstreams*c.tools, each)
	}
	if int(each) > eachCounted*5/4 {
		t.Errorf("a principal keeps %d bytes, and %d are counted", each, eachCounted)
	}
	if n := len(w.endpoints[""].shares.of.of); n != all {
		t.Errorf("%d principals are remembered, want all %d", n, all)
	}
	runtime.KeepAlive(s)
}

// TestSafety10PrincipalsWhoSeeTheSame: their policies differ, what they see does not, and a page is prepared
// for all of them together.
func TestSafety10PrincipalsWhoSeeTheSame(t *testing.T) {
	c := keysOfOnePolicy(3, 4, 50)
	for i := range c.policies {
		c.policies[i].Rules = []policy.Rule{{Allow: &policy.Selector{Tools: policy.List{"up1__*", fmt.Sprint("none", i)}}}}
	}
	s := c.server(t)
	e := s.world.Load().endpoints[""]
	for i, p := range c.principals {
		want := s.mayList(p)
		if names, _ := s.listed(t, p, ""); !slices.Equal(names, want) || len(names) != 50 {
			t.Errorf("%s lists %v, want %v", p.ID, names, want)
		}
		if n, want := len(e.pages.of.of), min(i, 1); n != want {
			t.Errorf("after %d lists there are %d prepared pages, want %d", i+1, n, want)
		}
	}
	if n := len(e.shares.alike); n != 3 {
		t.Errorf("there are %d shares, want 3", n)
	}
}

// TestSafety10OneToolMakesADifference has principals of whom each may use all tools but one, list again and
// again while the configuration is loaded anew with another tool for each. None ever gets a page that has
// its tool, or of which another tool is missing.
func TestSafety10OneToolMakesADifference(t *testing.T) {
	const keys, tools = 12, 40
	c := keysOfOnePolicy(keys, 1, tools)
	configs := make([]WorldConfig, 3)
	for k := range configs {
		for i := range c.policies {
			c.policies[i].Rules = []policy.Rule{{Deny: &policy.Selector{Tools: policy.List{fmt.Sprintf("*_tool%d", i+10*k)}}}, {Allow: &policy.Selector{Upstreams: policy.List{"*"}}}}
		}
		p, err := policy.Compile(c.policies)
		if err != nil {
			t.Fatal(err)
		}
		configs[k] = WorldConfig{Guard: &auth.Guard{}, Policy: p}
	}
	s, backends := mustServer(t), c.backends(t)
	s.limits.Page = 7
	s.apply(configs[0], backends)
	done := make(chan struct{})
	var loads, lists sync.WaitGroup
	loads.Go(func() {
		for i := 1; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			s.apply(configs[i%len(configs)], backends)
			s.Refresh()
			runtime.Gosched()
		}
	})
	for i, p := range c.principals {
		lists.Go(func() {
			for range 60 {
				w := s.world.Load()
				seen := w.share(w.endpoint("", p), p).sight()
				var missing []int
				for offset := 0; ; {
					r, next := w.endpoints[""].page(seen, upstream.PartTools, legacyKind, offset, 7)
					text := string(r.items.appendTo(slices.Clone(r.body), r.size(), nil))
					for n := range tools {
						if strings.Contains(text, fmt.Sprintf("_tool%d\"", n)) {
							missing = append(missing, n)
						}
					}
					if offset = next; next == 0 {
						break
					}
				}
				if len(missing) != tools-1 {
					t.Errorf("%s lists %d tools, want %d", p.ID, len(missing), tools-1)
				}
				for k := range configs {
					if w.policy == configs[k].Policy && slices.Contains(missing, i+10*k) {
						t.Errorf("%s lists tool %d, which it is denied", p.ID, i+10*k)
					}
				}
			}
		})
	}
	lists.Wait()
	close(done)
	loads.Wait()
}

// TestSafety10BudgetHolds has 10,000 principals with a policy each, in memory for a few hundred of them. The
// caches stay within their budget, and each principal sees what policy says, whoever left the caches since.
func TestSafety10BudgetHolds(t *testing.T) {
	const budget = 256 << 10
	n := 10_000
	if testing.Short() {
		n = 2000
	}
	c := keysOfOnePolicy(n, 5, 20)
	s := c.server(t)
	s.limits.Page = 30
	w := s.world.Load()
	w.subjects.max, w.pages.max = budget, budget
	want := map[string][]string{} // of some, who list now and then
	for i := 0; i < n; i += n / 10 {
		want[c.principals[i].ID] = s.mayList(c.principals[i])
	}
	often := slices.DeleteFunc(slices.Clone(c.principals), func(p *auth.Principal) bool { return want[p.ID] == nil })
	check := func(p *auth.Principal) {
		t.Helper()
		if names, _ := s.listed(t, p, ""); !slices.Equal(names, want[p.ID]) {
			t.Fatalf("%s lists %v, want %v", p.ID, names, want[p.ID])
		}
	}
	before := held()
	for i, p := range c.principals {
		if s.listAll(t, p); i%100 == 0 {
			check(often[i/100%len(often)])
			check(often[i/100%len(often)])
		}
		if w.subjects.used > budget || w.pages.used > budget {
			t.Fatalf("after %d principals %d bytes of subjects and %d of pages are in use, want at most %d", i+1, w.subjects.used, w.pages.used, budget)
		}
	}
	grown := held() - before
	t.Logf("%d principals take %d KiB; %d of them are remembered", n, grown>>10, len(w.endpoints[""].shares.of.of))
	if limit := int64(2*budget + maxRulings + 1<<20); grown > limit {
		t.Errorf("%d principals take %d KiB, want at most %d", n, grown>>10, limit>>10)
	}
	if n := len(w.endpoints[""].shares.of.of); n < 50 || n > 1000 {
		t.Errorf("%d principals are remembered, want some hundreds", n)
	}
	for _, p := range often {
		check(p)
	}
	runtime.KeepAlive(s)
}

// TestSafety10CursorsOutliveEviction takes a cursor, has everything leave the caches that can, and goes on.
func TestSafety10CursorsOutliveEviction(t *testing.T) {
	c := keysOfOnePolicy(2, 3, 20)
	s := c.server(t)
	s.limits.Page = 10
	w := s.world.Load()
	for _, p := range c.principals {
		whole, cursors := s.listed(t, p, "")
		if len(cursors) < 2 {
			t.Fatalf("%s lists %d tools with %d cursors", p.ID, len(whole), len(cursors))
		}
		for i, cursor := range cursors {
			for _, r := range []*room{&w.subjects, &w.pages} {
				max := r.max
				r.close()
				r.max = max
			}
			rest, _ := s.listed(t, p, cursor)
			if !slices.Equal(rest, whole[10*(i+1):]) {
				t.Errorf("from page %d on %s lists %v, want %v", i+2, p.ID, rest, whole[10*(i+1):])
			}
		}
		other := c.principals[0]
		if p == other {
			other = c.principals[1]
		}
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `,"cursor":"` + cursors[0] + `"}}`
		if text := s.as2(other, body, modernHeader("tools/list", "")); !strings.Contains(string(text), "Invalid cursor") {
			t.Errorf("%s's cursor is answered %.200s for %s", p.ID, text, other.ID)
		}
	}
}

// TestSafety10ChangeIsLazy: neither a changed catalog nor a reload makes anything for principals that ask
// for nothing, and what the worlds before have made is gone.
func TestSafety10ChangeIsLazy(t *testing.T) {
	c := keysOfOnePolicy(50, 3, 20)
	c.policies = append(c.policies, policy.Entry{Name: "local", Match: &policy.Match{Kind: policy.List{"local"}}, Rules: []policy.Rule{{Allow: &policy.Selector{Tools: policy.List{"up*"}, Prompts: policy.List{"*"}}}}})
	s := c.server(t)
	for _, p := range c.principals {
		s.listAll(t, p)
		s.listAll(t, p)
	}
	stream := &listener{changed: make(chan struct{}, 1), wants: everyList()}
	stream.world = s.world.Load()
	stream.principal, stream.endpoint = auth.Local, stream.world.endpoints[""]
	stream.share = stream.world.share(stream.endpoint, stream.principal)
	stream.end = func() {}
	s.listeners.add(stream, 1)
	defer s.listeners.remove(stream)
	before := s.world.Load()
	old, page := weak.Make(before.endpoints[""].view), weak.Make(&slices.Collect(maps.Values(before.endpoints[""].pages.of.of))[0].value.text[0])
	kept := before // as if a request was in progress in it
	up := before.backends[1].(*canned)
	catalog := *up.catalog
	catalog.Prompts = append(catalog.Prompts, upstream.Item{Name: "new", Definition: mustObject(t, `{"name":"new"}`)})
	up.catalog = &catalog
	s.Refresh()
	if n := s.stocked.Load(); n != 4 {
		t.Errorf("after the change of one of 3 catalogs %d stocks were made, want 4", n)
	}
	w := s.world.Load()
	if n := len(w.endpoints[""].shares.of.of); n != 1 {
		t.Errorf("after a change %d principals are remembered, want that of the stream", n)
	}
	if w.endpoints[""].shares.of.of[shareKey{principal: auth.Local.ID}].value.seen == nil {
		t.Error("what the stream's principal sees is not known, although prompts have changed")
	}
	if len(stream.pending) != 1 || stream.pending[0].method != listChanged[upstream.PartPrompts] {
		t.Errorf("the stream is told %v, want that prompts have changed", stream.pending)
	}
	if kept.subjects.used != 0 || kept.pages.used != 0 || kept.subjects.order.Len() != 0 || kept.rulings.bytes.Load() != 0 {
		t.Errorf("%d bytes of subjects and %d of pages stay with the world before", kept.subjects.used, kept.pages.used)
	}
	if runtime.GC(); page.Value() != nil {
		t.Error("a page of the world before is still in memory")
	}
	e := kept.endpoints[""]
	if share := kept.share(e, c.principals[7]); len(slices.Collect(share.sight().all(upstream.PartTools))) == 0 || len(e.shares.of.of) != 0 {
		t.Error("a request in the world before sees nothing, or something is kept for it")
	}
	s.Refresh() // nothing has changed
	if w := s.world.Load(); w.endpoints[""].shares.of.of[shareKey{principal: auth.Local.ID}].value.seen != nil {
		t.Error("what the stream's principal sees was found out, although nothing has changed")
	}
	kept, before, e = nil, nil, nil
	for range 3 {
		s.Refresh()
		runtime.GC()
	}
	if old.Value() != nil {
		t.Error("the view of a world before is still in memory")
	}
}

func mustObject(tb testing.TB, text string) raw.Object {
	tb.Helper()
	o, err := raw.Parse([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

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

// TestSafety10ClientsWithTheirOwnCatalogs has 300 clients with a catalog of their own of one upstream, beside
// 2,000 tools that all have. Each is compiled once, and takes little more than what is its own.
func TestSafety10ClientsWithTheirOwnCatalogs(t *testing.T) {
	const clients = 300
	c := crowd{upstreams: 10, tools: 200, policies: policy.Config{{Name: "all", Rules: []policy.Rule{
		{Deny: &policy.Selector{Tools: policy.List{"*delete*"}}}, {Allow: &policy.Selector{Upstreams: policy.List{"*"}}}}}}}
	p, err := policy.Compile(c.policies)
	if err != nil {
		t.Fatal(err)
	}
	own := &apart{cannedBackend(t, 3, 10), map[string]*upstream.Catalog{}}
	own.name = "own"
	for i := range clients {
		catalog := &upstream.Catalog{Era: upstream.EraLegacy, Listed: time.Now()}
		for _, name := range []string{fmt.Sprint("of", i), "tool1", "delete"} {
			catalog.Tools = append(catalog.Tools, upstream.Tool{Item: upstream.Item{Name: name, Definition: mustObject(t, `{"name":"`+name+`"}`)}})
		}
		own.of[fmt.Sprint(i)] = catalog
	}
	s := mustServer(t)
	s.apply(WorldConfig{Guard: &auth.Guard{}, Policy: p}, append([]backend{own}, c.backends(t)...))
	w := s.world.Load()
	key := &auth.Principal{Kind: auth.KindKey, ID: "key:a", Key: "a"}
	check := func(i int) *endpoint {
		fitted := w.fit(caller{world: w, endpoint: w.endpoints[""], principal: key, share: w.share(w.endpoints[""], key), who: identity{session: fmt.Sprint(i)}})
		var its []string
		n := 0
		for target := range fitted.share.sight().all(upstream.PartTools) {
			if n++; target.backend == backend(own) {
				its = append(its, target.name)
			}
			if fitted.share.named(upstream.PartTools, target.exposed) != target {
				t.Errorf("client %d does not find %s by its name", i, target.exposed)
			}
		}
		if want := []string{fmt.Sprint("of", i), "tool1"}; !slices.Equal(its, want) || n != 10*160+2 {
			t.Fatalf("client %d lists %d tools, of which %v are its own, want %v", i, n, its, want)
		}
		if fitted.share.named(upstream.PartTools, "own__tool2") != nil || fitted.share.named(upstream.PartTools, fmt.Sprintf("of%d", i)) == nil || fitted.share.named(upstream.PartTools, "own__delete") != nil {
			t.Errorf("client %d finds a tool that it has not, or does not find one that it has", i)
		}
		return fitted.endpoint
	}
	check(0)
	before, stocked := held(), s.stocked.Load()
	var first []*endpoint
	for i := range clients {
		first = append(first, check(i))
	}
	each := (held() - before) / clients
	t.Logf("a client with a catalog of its own takes %d bytes", each)
	if each > 16<<10 {
		t.Errorf("a client with a catalog of its own takes %d bytes, want at most 16 KiB", each)
	}
	for i := range clients {
		if check(i) != first[i] {
			t.Fatalf("the endpoint of client %d is made again", i)
		}
	}
	if n := s.stocked.Load() - stocked; n != clients-1 {
		t.Errorf("%d catalogs were compiled, want %d", n, clients-1)
	}
	w.subjects.max = 512 << 10 // for some of them
	w.subjects.trim()
	gone := weak.Make(first[clients/2].view)
	first = nil
	for range 3 {
		for i := range clients {
			if i != clients/2 {
				check(i)
			}
			if w.subjects.used > w.subjects.max {
				t.Fatalf("%d bytes are in use, want at most %d", w.subjects.used, w.subjects.max)
			}
		}
	}
	if runtime.GC(); gone.Value() != nil {
		t.Error("the view of a client that has not asked for long is still in memory")
	}
	check(clients / 2)
	if n := len(w.endpoints[""].fittings.of); n == 0 || n > clients/2 {
		t.Errorf("%d endpoints are kept", n)
	}
}

// TestSafety10RulingsAreBounded calls many tools as many subjects. What was ruled last is found again without
// new memory, and all together take no more than their budget.
func TestSafety10RulingsAreBounded(t *testing.T) {
	c := keysOfOnePolicy(40, 10, 200)
	for i := range c.policies {
		for k := range 30 {
			c.policies[i].Rules = append(c.policies[i].Rules, policy.Rule{Ask: &policy.Selector{Tools: policy.List{"*"}, Where: policy.Where{"a": {{Glob: fmt.Sprint(k)}}}}})
		}
	}
	s := c.server(t)
	w := s.world.Load()
	v := w.endpoints[""].view
	for _, p := range c.principals {
		share := w.share(w.endpoints[""], p)
		for target := range v.all(upstream.PartTools) {
			ruling := share.ruling(target)
			if want := share.rights.Bind(target.policyItem()); ruling.Visible() != want.Visible() || ruling.Reads() != want.Reads() {
				t.Fatalf("the ruling of %s about %s is another one", p.ID, target.exposed)
			}
			if share.ruling(target) != ruling && ruling.Size() < 1<<10 {
				t.Fatalf("the ruling of %s about %s is made again at once", p.ID, target.exposed)
			}
		}
		if n := w.rulings.bytes.Load(); n > maxRulings {
			t.Fatalf("rulings take %d bytes, want at most %d", n, maxRulings)
		}
	}
	share := w.share(w.endpoints[""], c.principals[0])
	target := v.exposed(upstream.PartTools, "up1__read_tool0")
	if n := testing.AllocsPerRun(100, func() { share.ruling(target) }); n > 0 {
		t.Errorf("a ruling that was just made takes %v pieces of memory", n)
	}
	sum := int64(0)
	for i := range w.rulings.places {
		if one := w.rulings.places[i].Load(); one != nil {
			sum += one.bytes
		}
	}
	if sum != w.rulings.bytes.Load() || sum < maxRulings/2 {
		t.Errorf("the rulings take %d bytes, and %d are counted", sum, w.rulings.bytes.Load())
	}
}

// TestSafety10PagesAreWrittenAlike: a page that is written from the definitions and one that is prepared are
// the same bytes, whatever their size, in both eras and for clients with and without MCP Apps.
func TestSafety10PagesAreWrittenAlike(t *testing.T) {
	for _, tools := range []int{1, 7, 1000} {
		b := cannedBackend(t, tools, 10)
		app := `{"name":"app","_meta":{"ui":{"visibility":["app"]}}}`
		b.catalog.Tools = append(b.catalog.Tools, upstream.Tool{Item: upstream.Item{Name: "app", Definition: mustObject(t, app)}},
			upstream.Tool{Item: upstream.Item{Name: "headers", Definition: mustObject(t, `{"name":"headers"}`)}, HeaderProblem: "wrong"},
			upstream.Tool{Item: upstream.Item{Name: "older", Definition: mustObject(t, `{"name":"older","outputSchema":{"type":"array"}}`)}, Older: []raw.Edit{{Name: "outputSchema"}}})
		s := mustServer(t, b)
		s.limits.Page = 5000
		lists := map[string]bool{}
		for _, ui := range []string{"", "1"} {
			id, _ := s.sessions.open("2025-11-25", "test", "local", upstream.Profile{UI: ui})
			meta := modernMeta
			if ui != "" {
				meta = strings.Replace(meta, `clientCapabilities":{}`, `clientCapabilities":{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`, 1)
			}
			for _, era := range []struct {
				name, body string
				header     http.Header
			}{
				{"legacy", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, http.Header{"Mcp-Session-Id": {id}}},
				{"modern", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + meta + `}}`, modernHeader("tools/list", "")},
			} {
				var first []byte
				prepared := len(s.world.Load().endpoints[""].pages.of.of)
				for round := range 3 {
					w := &whole{nowhere: nowhere{header: http.Header{}}}
					s.send(w, auth.Local, era.body, era.header)
					if round == 0 {
						first = w.text
						if _, err := raw.Parse(first); err != nil {
							t.Fatalf("%v: %.300s", err, first)
						}
					}
					if string(w.text) != string(first) {
						t.Errorf("%d tools: the list number %d of a %s client differs from the first", tools, round+1, era.name)
					}
					if n := w.header.Get("Content-Length"); n != "" && n != fmt.Sprint(len(w.text)) {
						t.Errorf("%d tools: the list number %d of a %s client has %d bytes, and Content-Length is %s", tools, round+1, era.name, len(w.text), n)
					}
				}
				if n := len(s.world.Load().endpoints[""].pages.of.of); n != prepared+1 {
					t.Errorf("%d tools: %d pages are prepared for %s clients", tools, n-prepared, era.name)
				}
				text := string(first)
				for name, want := range map[string]bool{"up__tool0": true, "up__app": ui != "", "up__headers": era.name == "legacy", "up__older": true, "outputSchema": era.name == "modern"} {
					if strings.Contains(text, `"`+name+`"`) != want {
						t.Errorf("%d tools: %s is in the list of a %s client (apps: %q): %t", tools, name, era.name, ui, !want)
					}
				}
				lists[text[strings.Index(text, `"tools"`):strings.LastIndex(text, "]")]] = true
			}
		}
		if len(lists) != 4 {
			t.Errorf("there are %d different lists, want 4", len(lists))
		}
	}
}

// TestSafety10CachesCount puts values into caches that share a room and takes them out again. The bytes are
// those of what is there, what was used stays longer than what was not, and what is too large stays out.
func TestSafety10CachesCount(t *testing.T) {
	r := &room{max: 20 * (perKept + 100)}
	left := map[int]int{}
	a := cache[int, int]{room: r, came: func(v int) { left[v]-- }, left: func(v int) { left[v]++ }}
	b := cache[string, int]{room: r}
	check := func(want int) {
		t.Helper()
		if n := len(a.of) + len(b.of); n != want || r.order.Len() != n || r.used != n*(perKept+100) {
			t.Fatalf("%d values are kept, %d in order, with %d bytes; want %d", n, r.order.Len(), r.used, want)
		}
	}
	for i := range 15 {
		a.put(i, i, 100)
	}
	b.put("b", 1, 100)
	check(16)
	for i := range 100 {
		a.put(100+i, i, 100)
		a.get(3)
		if _, ok := b.get("b"); !ok {
			t.Fatalf("after %d others a value that is in use has left", i+1)
		}
	}
	check(20)
	if _, ok := a.get(4); ok {
		t.Error("a value that is not used is still there")
	}
	if v, ok := a.get(3); !ok || v != 3 {
		t.Error("a value that is in use has left")
	}
	a.put(3, 33, 100)
	if v, _ := a.get(3); v != 33 || left[3] != 0 {
		t.Errorf("the value is %d, want the new one", v)
	}
	if v := a.keep(3, func() (int, int) { return 0, 100 }); v != 33 {
		t.Errorf("the value is %d, want the one that is there", v)
	}
	if a.put(1, 1, r.max/2); len(a.of)+len(b.of) != 20 || left[1] != 0 {
		t.Error("a value that takes half of the room is kept")
	}
	r.mu.Lock()
	n := len(b.of)
	a.end()
	r.mu.Unlock()
	if check(n); len(left) == 0 {
		t.Error("nothing has left")
	}
	for v, n := range left {
		if n != 0 {
			t.Errorf("the value %d has left %d times more than it came", v, n)
		}
	}
	if a.put(1, 1, 100); len(a.of) != 0 {
		t.Error("a cache that has ended keeps a value")
	}
	r.close()
	check(0)
	if b.put("b", 1, 1); len(b.of) != 0 {
		t.Error("a room that is closed keeps a value")
	}
}
