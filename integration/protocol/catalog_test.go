package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"junction/integration/harness"
	"junction/proxy"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// The lists that clients get from the lists of the upstreams.

func TestOneNameOfTwoUpstreams(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		one, two := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions("search")}), p.Serve(t,
			upstreamtest.Script{Tools: harness.Definitions("search")})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"one": one.Config, "two": two.Config}})
		j.Offers(t, "one", "two")
		c := j.Talk(t)
		if got, want := c.Names(t), []string{"one__search", "two__search"}; !slices.Equal(got, want) {
			t.Fatalf("tools/list names = %q, want %q", got, want)
		}
		for i, s := range []*harness.Served{one, two} {
			c.Succeed(t, []string{"one__search", "two__search"}[i], fmt.Sprintf(`{"for":%d}`, i))
			calls := harness.CallsOf(t, s.Journal, 1)
			if len(calls) != 1 {
				t.Fatalf("upstream %d got %d calls, want its own one", i, len(calls))
			}
			if got, want := string(calls[0].Message.Params), fmt.Sprintf(`"for":%d`, i); !strings.Contains(got, want) ||
				harness.Text(t, calls[0].Message.Params, "name") != "search" {
				t.Errorf("upstream %d got %s, want search with %s", i, got, want)
			}
		}
		bare := j.TalkTo(t, "/one")
		if got := bare.Names(t); !slices.Equal(got, []string{"search"}) {
			t.Errorf("names on the upstream's own endpoint = %q, want [search]", got)
		}
	})
}

func TestListOrderIsStable(t *testing.T) {
	harness.Waits(t)
	names := []string{"a", "b", "c"}
	for _, era := range harness.Eras {
		for _, order := range [][]string{{"a", "b", "c"}, {"c", "a", "b"}} {
			t.Run(string(era)+" "+strings.Join(order, ""), func(t *testing.T) {
				ready, configs := map[string]func(){}, map[string]upstream.Config{}
				for _, name := range names {
					script := upstreamtest.Script{Era: string(era), Tools: harness.Definitions("two", "one")}
					s, wait := upstreamtest.New(script), make(chan struct{})
					t.Cleanup(s.Close)
					h := s.Handler()
					url, _ := upstreamtest.Serve(t, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						select {
						case <-wait:
							h.ServeHTTP(w, r)
						case <-r.Context().Done():
						}
					}))
					ready[name], configs[name] = sync.OnceFunc(func() { close(wait) }), upstream.Config{URL: url + "/mcp"}
				}
				j := harness.Start(t, harness.Pair{Client: era, Upstream: era, Transport: "http"},
					harness.Setup{Upstreams: configs})
				for _, name := range order {
					ready[name]()
					j.Offers(t, name)
				}
				want := []string{"a__two", "a__one", "b__two", "b__one", "c__two", "c__one"}
				c := j.Talk(t)
				for range 3 {
					if got := c.Names(t); !slices.Equal(got, want) {
						t.Fatalf("names = %q, want %q", got, want)
					}
				}
			})
		}
	}
}

// exotic is a definition with everything that a proxy that knows its schemas loses.
const exotic = `{ "name":"tool","title":"Tööl \u00e4","description":"line\nbreak","icons":[{"src":"data:,x",` +
	`"mimeType":"image/png","sizes":["48x48"],"theme":"dark","x":1}],` +
	`"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"urn:x","type":"object",` +
	`"$defs":{"n":{"type":"integer","maximum":9007199254740993}},` +
	`"properties":{"a":{"$ref":"#/$defs/n"},"b":{"enum":[1.0,null,"x",{}]}},` +
	`"patternProperties":{"^x-":{"type":"string"}},"dependentRequired":{"a":["b"]},` +
	`"if":{"required":["a"]},"then":{"minProperties":2},"else":false,"unevaluatedProperties":false,` +
	`"propertyNames":{"maxLength":3},"anyOf":[true]},` +
	`"outputSchema":{"type":"object","prefixItems":[true],"x-unknown":1e2},"annotations":{"title":"T","readOnlyHint":true,` +
	`"vendor":{"deep":[1,2]}},` +
	`"execution":{"taskSupport":"forbidden"},"_meta":{"com.example/a":[0.10,"\u2028"],"ui":{"resourceUri":"ui://x"}},` +
	`"unknown":{"kept":true} , "last":[]}`

func TestDefinitionKeepsItsBytes(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		exotic := exotic
		// the script of a child is JSON, whose spaces between tokens encoding/json takes out before
		// our server sees them
		if p.Transport == "stdio" {
			var b bytes.Buffer
			if err := json.Compact(&b, []byte(exotic)); err != nil {
				t.Fatal(err)
			}
			exotic = b.String()
		}
		s := p.Serve(t, upstreamtest.Script{Tools: []json.RawMessage{json.RawMessage(exotic)}})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}})
		j.Offers(t, "up")
		tools, _ := j.Talk(t).List(t, "")
		if got, want := string(tools[0]), strings.NewReplacer(`"name":"tool"`, `"name":"up__tool"`, "ui://x",
			"ui://up/x").Replace(exotic); got != want {
			t.Errorf("definition = %s\nwant         %s", got, want)
		}
		tools, _ = j.TalkTo(t, "/up").List(t, "")
		if got := string(tools[0]); got != exotic {
			t.Errorf("bare definition = %s\nwant              %s", got, exotic)
		}
	})
}

func TestExposedNamesAreLegalAndStable(t *testing.T) {
	harness.Waits(t)
	legal := regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
	given := harness.Definitions("plain", "with space", "a/b", "日本語", strings.Repeat("long", 30), "dot.ted", "UPPER", "%",
		"x\u0000y")
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: given})
		other := p.Serve(t, upstreamtest.Script{Tools: given})
		for _, limit := range []int{0, 20, 128} {
			names := view.Names{MaxLength: limit}
			first := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Names: names})
			first.Offers(t, "up")
			c := first.Talk(t)
			before := c.Names(t)
			if len(before) != len(given) {
				t.Fatalf("limit %d: %d names %q, want %d", limit, len(before), before, len(given))
			}
			for i, name := range before {
				if !legal.MatchString(name) || limit > 0 && len(name) > limit || limit == 0 && len(name) > 48 {
					t.Errorf("limit %d: name %q is not one that clients take", limit, name)
				}
				c.Succeed(t, name, `{}`)
				calls := harness.CallsOf(t, s.Journal, 1)
				if got, want := harness.Text(t, calls[len(calls)-1].Message.Params, "name"), harness.Text(t, given[i],
					"name"); got != want {
					t.Errorf("limit %d: %s called %q, want %q", limit, name, got, want)
				}
			}
			again := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config, "a": other.Config}, Names: names})
			again.Offers(t, "up", "a")
			after := again.Talk(t).Names(t)
			for _, name := range before {
				if !slices.Contains(after, name) {
					t.Errorf("limit %d: after a restart with another upstream %q is gone; there are %q", limit, name, after)
				}
			}
		}
	})
}

func TestCollidingNamesStayApart(t *testing.T) {
	harness.Waits(t)
	long := strings.Repeat("x", 60)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions("a b", "a/b", "a_b", long+"1", long+"2")})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}})
		j.Offers(t, "up")
		c := j.Talk(t)
		got := c.Names(t)
		if len(got) != 5 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 5 {
			t.Fatalf("names = %q, want five that differ", got)
		}
		for i, name := range got {
			c.Succeed(t, name, `{}`)
			calls := harness.CallsOf(t, s.Journal, 1)
			if got, want := harness.Text(t, calls[len(calls)-1].Message.Params, "name"), []string{"a b", "a/b", "a_b",
				long + "1", long + "2"}[i]; got != want {
				t.Errorf("%s called %q, want %q", name, got, want)
			}
		}

		// With bare names two upstreams can want the very same one: the first keeps it, and the
		// other is reported, not shadowed in silence.
		bare := ""
		one, two := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions("same")}), p.Serve(t,
			upstreamtest.Script{Tools: harness.Definitions("same", "other")})
		one.Config.Prefix, two.Config.Prefix = &bare, &bare
		j = harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"one": one.Config}})
		j.Offers(t, "one")
		j.Apply(harness.Setup{Upstreams: map[string]upstream.Config{"a-two": two.Config, "one": one.Config}})
		j.Offers(t, "a-two")
		c = j.Talk(t)
		if got := slices.Sorted(slices.Values(c.Names(t))); !slices.Equal(got, []string{"other", "same"}) {
			t.Errorf("bare names = %q, want other and same", got)
		}
		c.Succeed(t, "same", `{}`)
		if n, m := len(harness.CallsOf(t, one.Journal, 1)), len(harness.CallsOf(t, two.Journal, 0)); n != 1 || m != 0 {
			t.Errorf("same was called %d and %d times, want it to stay with the upstream that had the name", n, m)
		}
		problems := j.Problems()
		if len(problems) != 1 || problems[0].Upstream != "a-two" || problems[0].Name != "same" {
			t.Errorf("problems = %+v, want same of a-two", problems)
		}
	})
}

func TestPagesOfAnUpstreamAreServedAnew(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		names := []string{"a", "b", "c", "d", "e"}
		s := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions(names...), PageSize: 2, EmptyCursor: true})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Limits: proxy.Limits{Page: 2}})
		j.Offers(t, "up")
		harness.Await(t, s.Journal, "last page",
			func(r upstreamtest.Record) bool { return harness.Member(r.Message.Params, "cursor") == `"page-2"` })
		cursors := []string{}
		for _, r := range s.Received() {
			if r.Message.Method == "tools/list" {
				cursors = append(cursors, harness.Member(r.Message.Params, "cursor"))
			}
		}
		// A subscription that begins after the list was read makes it be read again.
		if harness.Processes() > 1 { // each of which reads all pages
			slices.Sort(cursors)
			cursors = slices.Compact(cursors)
		}
		if len(cursors) < 3 || !slices.Equal(cursors[:3], []string{"", `""`, `"page-2"`}) {
			t.Errorf("the upstream was asked for the cursors %q, want three pages, one of them \"\"", cursors)
		}
		c := j.Talk(t)
		var got []string
		for params, pages := "", 1; ; pages++ {
			tools, result := c.List(t, params)
			got = append(got, harness.NamesOf(t, tools)...)
			next := harness.Member(result, "nextCursor")
			if next == "" {
				if pages != 3 {
					t.Errorf("%d pages, want 3", pages)
				}
				break
			}
			if next == `"page-1"` || next == `""` || pages > 3 {
				t.Fatalf("page %d: cursor %s, want one of ours, and three pages", pages, next)
			}
			params = `"cursor":` + next
		}
		if want := []string{"up__a", "up__b", "up__c", "up__d", "up__e"}; !slices.Equal(got, want) {
			t.Errorf("names = %q, want %q", got, want)
		}
	})
}

func TestInvalidCursorsAreRejected(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions("a", "b", "c")})
		configs := map[string]upstream.Config{"up": s.Config}
		j := harness.Start(t, p, harness.Setup{Upstreams: configs, Limits: proxy.Limits{Page: 1}})
		j.Offers(t, "up")
		// another key
		foreign := harness.Start(t, p, harness.Setup{Upstreams: configs, Limits: proxy.Limits{Page: 1}})
		foreign.Offers(t, "up")
		c := j.Talk(t)
		refused := func(what, cursor string) {
			t.Helper()
			m := c.Begin(t, harness.Query{Method: "tools/list", Params: `"cursor":` + cursor}).Answer(t)
			if m.Error == nil || m.Error.Code != -32602 {
				t.Errorf("%s: %s, want -32602", what, m.Append(nil))
			}
		}
		cursorOf := func(c *harness.Talker) string {
			_, result := c.List(t, "")
			return harness.Member(result, "nextCursor")
		}
		refused("garbage", `"garbage"`)
		if p.Client == client.EraModern { // in the legacy era, it is no cursor
			refused("empty", `""`)
		}
		refused("a number", `7`)
		refused("another proxy's", cursorOf(foreign.Talk(t)))
		refused("another endpoint's", cursorOf(j.TalkTo(t, "/up")))
	})
}

// TestEndlessCursorIsGivenUp: a server that names the same cursor for ever has ended its list, as such servers
// mean it: what it has listed is offered, and the reason is told.
func TestEndlessCursorIsGivenUp(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions("a", "b"), PageSize: 1, LoopCursor: true})
		good := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions("fine")})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"good": good.Config, "loop": s.Config}})
		j.Offers(t, "good", "loop")
		want, most := []string{"good__fine", "loop__a", "loop__b"}, 6*harness.Processes() // twice, and for callers
		if left := fmt.Sprint(j.Status("loop").Left); harness.Processes() == 1 && !strings.Contains(left, "never ends") {
			t.Errorf("what is left out is %v, want the reason", left)
		}
		if n := len(s.RequestsOf(t, "tools/list", 2)); n > most {
			t.Errorf("tools/list was asked %d times, want at most %d", n, most)
		}
		if got := j.Talk(t).Names(t); !slices.Equal(got, want) {
			t.Errorf("names = %q, want %q", got, want)
		}
	})
}

// freshness reads ttlMs and cacheScope.
func freshness(t *testing.T, result []byte) (ttl int, scope string) {
	t.Helper()
	if err := json.Unmarshal([]byte(harness.Member(result, "ttlMs")), &ttl); err != nil {
		t.Fatalf("ttlMs of %s: %v", result, err)
	}
	return ttl, harness.Text(t, result, "cacheScope")
}

func TestModernListsAreCacheable(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{TTLMs: 60000, CacheScope: "public", Tools: harness.Definitions("a")})
			j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}})
			j.Offers(t, "up")
			c := j.Talk(t)
			_, result := c.List(t, "")
			ttl, scope := freshness(t, result)
			// the server declares changes, so its list is read again every 10 minutes
			if up == client.EraLegacy && (ttl != 600_000 || scope != "private") {
				t.Errorf("ttlMs = %d, cacheScope = %s, want 600000 and private of a server that says nothing", ttl, scope)
			}
			if up == client.EraModern && (ttl <= 0 || ttl > 60000 || scope != "public") {
				t.Errorf("ttlMs = %d, cacheScope = %s, want what is left of 60000, and public", ttl, scope)
			}
			m := c.Begin(t, harness.Query{Method: "server/discover"}).Answer(t)
			if ttl, scope := freshness(t, m.Result); ttl < 0 || scope != "public" && scope != "private" {
				t.Errorf("server/discover: ttlMs = %d, cacheScope = %s", ttl, scope)
			}
		})
	}
}

func TestCacheHintsAreMergedToTheLeast(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraModern, func(t *testing.T, p harness.Pair) {
		a := p.Serve(t, upstreamtest.Script{TTLMs: 30000, CacheScope: "public", Tools: harness.Definitions("a", "b")})
		b := p.Serve(t, upstreamtest.Script{TTLMs: 60000, CacheScope: "private", Tools: harness.Definitions("c", "d")})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"a": a.Config, "b": b.Config}, Limits: proxy.Limits{Page: 1}})
		j.Offers(t, "a", "b")
		c := j.Talk(t)
		for params, page := "", 1; page <= 4; page++ {
			_, result := c.List(t, params)
			if ttl, scope := freshness(t, result); ttl > 30000 || ttl <= 0 || scope != "private" {
				t.Errorf("page %d: ttlMs = %d, cacheScope = %s, want at most 30000 and private", page, ttl, scope)
			}
			params = `"cursor":` + harness.Member(result, "nextCursor")
		}
	})
}

// TestIsolationSeparatesConnections: two callers whom the upstream is to tell apart have
// connections of their own, for their calls. The list is the upstream's to us, whose credentials
// are one, and is private to each of our callers (TestListsOfAPrincipalArePrivate).
func TestIsolationSeparatesConnections(t *testing.T) {
	harness.Waits(t)
	guard, keys := harness.Keyring(t, "one", "two")
	for _, row := range []struct {
		isolation upstream.Isolation
		second    string // whose client it is, beside one of key one
		apart     bool
	}{
		{upstream.IsolationShared, "one", false}, {upstream.IsolationShared, "two", false},
		{upstream.IsolationPrincipal, "one", false}, {upstream.IsolationPrincipal, "two", true},
		{upstream.IsolationSession, "one", true}, {upstream.IsolationSession, "two", true},
	} {
		t.Run(string(row.isolation)+" "+row.second, func(t *testing.T) {
			harness.EachTransport(t, client.EraLegacy, client.EraLegacy, func(t *testing.T, p harness.Pair) {
				s := p.Serve(t, upstreamtest.Script{CacheScope: "private"})
				s.Config.Isolation = row.isolation
				j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard})
				j.Offers(t, "up")
				var seen []string
				for _, key := range []string{"one", row.second} {
					// roots are a principal's own whatever the isolation
					c := j.As(t, keys[key], func(c *harness.Talker) { c.Capabilities = `{}` })
					for range 2 {
						result := c.Succeed(t, "up__whoami", `{}`)
						seen = append(seen, harness.Member(result, "structuredContent", "session")+
							harness.Member(result, "structuredContent", "pid"))
					}
				}
				if seen[0] != seen[1] || seen[2] != seen[3] {
					t.Errorf("connections of the calls = %q, want the same one for both of a client's", seen)
				}
				// Two sessions of one user may be in two processes.
				if got := seen[0] != seen[2]; got != row.apart && !(got && harness.Processes() > 1) {
					t.Errorf("connections of the calls = %q, apart = %t, want %t", seen, got, row.apart)
				}
			})
		})
	}
}

func TestListChangeEndsFreshness(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{TTLMs: 3600_000, CacheScope: "public", Tools: harness.Definitions("old")})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}})
		j.Offers(t, "up")
		s.Listened(t, p)
		c := j.Talk(t)
		if err := s.SetTools(harness.Definitions("new")); err != nil {
			t.Fatal(err)
		}
		j.Until(t, "the new list", func() bool { return slices.Equal(c.Names(t), []string{"up__new"}) })
	})
}

func TestLegacyListIsTheModernOne(t *testing.T) {
	harness.Waits(t)
	harness.EachTransport(t, client.EraModern, client.EraModern, listsAreAlike)
	harness.EachTransport(t, client.EraModern, client.EraLegacy, listsAreAlike)
}

func listsAreAlike(t *testing.T, p harness.Pair) {
	s := p.Serve(t, upstreamtest.Script{Tools: append(harness.Definitions("a", "b"), json.RawMessage(exotic))})
	j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}})
	j.Offers(t, "up")
	_, modern := j.Talk(t).List(t, "")
	for range 2 {
		legacy := harness.Talk(t, j.URL, client.EraLegacy)
		for range 2 {
			_, result := legacy.List(t, "")
			http.DefaultClient.CloseIdleConnections() // the next request comes over another socket
			if got, want := harness.Member(result, "tools"), harness.Member(modern, "tools"); got != want {
				t.Errorf("legacy tools = %s\nmodern       = %s", got, want)
			}
			for _, name := range []string{"ttlMs", "cacheScope", "resultType"} {
				if v := harness.Member(result, name); v != "" {
					t.Errorf("the legacy list has %s = %s", name, v)
				}
			}
		}
	}
}

func TestListsSurviveALostUpstream(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		up := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions("fine")})
		lost := upstreamtest.New(upstreamtest.Script{Era: string(p.Upstream), Tools: harness.Definitions("stale")})
		t.Cleanup(lost.Close)
		url, stop := upstreamtest.Serve(t, "127.0.0.1:0", lost.Handler())
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{
			"never": {URL: "http://127.0.0.1:1/mcp"}, "nothing": {Command: []string{"there-is-no-such-program"}},
			"lost": {URL: url + "/mcp"}, "up": up.Config,
		}})
		j.Offers(t, "up", "lost")
		j.Until(t, "two reasons", func() bool { return j.Status("never").Err != "" && j.Status("nothing").Err != "" })
		c := j.Talk(t)
		want := []string{"lost__stale", "up__fine"}
		if got := c.Names(t); !slices.Equal(got, want) {
			t.Fatalf("names = %q, want %q", got, want)
		}
		stop()
		// The call may have gone out on a connection that was cut just then, or found none.
		if m := c.Call(t, "lost__stale", `{}`); m.Error == nil ||
			!strings.Contains(string(m.Error.Data), `{"junction":{"upstream":"lost"`) {
			t.Errorf("a call of the lost upstream = %s, want an error of ours", m.Append(nil))
		}
		if got := c.Names(t); !slices.Equal(got, want) { // the last list that was good
			t.Errorf("names with one upstream lost = %q, want %q", got, want)
		}
		c.Succeed(t, "up__fine", `{}`)
	})
}

func TestInvalidHeaderAnnotationHidesTheTool(t *testing.T) {
	harness.Waits(t)
	bad := []json.RawMessage{
		harness.ToolWithProperties("space", `{"a":{"type":"string","x-mcp-header":"Bad Header"}}`),
		harness.ToolWithProperties("empty", `{"a":{"type":"string","x-mcp-header":""}}`),
		harness.ToolWithProperties("break", `{"a":{"type":"string","x-mcp-header":"A\r\nB"}}`),
		harness.ToolWithProperties("twice",
			`{"a":{"type":"string","x-mcp-header":"Region"},"b":{"type":"string","x-mcp-header":"REGION"}}`),
		harness.ToolWithProperties("number", `{"a":{"type":"number","x-mcp-header":"A"}}`),
		harness.ToolWithProperties("items", `{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}`),
		harness.ToolWithProperties("oneof", `{"a":{"oneOf":[{"type":"string","x-mcp-header":"A"}]}}`),
	}
	good := harness.ToolWithProperties("good",
		`{"a":{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"Region"}}}}`)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{Tools: append(slices.Clone(bad), good)})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}})
		j.Offers(t, "up")
		c := j.Talk(t)
		names := c.Names(t)
		if !slices.Contains(names, "up__good") {
			t.Fatalf("names = %q, want up__good among them", names)
		}
		for _, tool := range bad {
			name := "up__" + harness.Text(t, tool, "name")
			m := c.Call(t, name, `{"a":"x"}`)
			if p.Client == client.EraModern {
				if slices.Contains(names, name) || m.Error == nil || m.Error.Code != -32602 {
					t.Errorf("%s is listed, or called with %s; a modern client must not see it", name, m.Append(nil))
				}
			} else if p.Upstream == client.EraModern && p.Transport == "http" {
				if slices.Contains(names, name) || m.Error == nil {
					t.Errorf("%s is listed, or called with %s; we are a client over HTTP that must not use it", name, m.Append(nil))
				}
			} else if !slices.Contains(names, name) || m.Error != nil {
				t.Errorf("%s is not listed, or called with %s; a legacy client knows no such headers and may use it", name,
					m.Append(nil))
			}
		}
	})
}
