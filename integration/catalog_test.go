package integration

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

	"junction/proxy"
	"junction/upstream"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// The assertions of protocol.md §6.2: what clients are shown of the upstreams' lists.

func TestProtocolT24TwoUpstreamsOneName(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		one, two := p.serve(t, upstreamtest.Script{Tools: definitions("search")}), p.serve(t, upstreamtest.Script{Tools: definitions("search")})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"one": one.config, "two": two.config}})
		j.offers(t, "one", "two")
		c := j.talk(t)
		if got, want := c.names(t), []string{"one__search", "two__search"}; !slices.Equal(got, want) {
			t.Fatalf("tools/list names = %q, want %q", got, want)
		}
		for i, s := range []*served{one, two} {
			c.succeed(t, []string{"one__search", "two__search"}[i], fmt.Sprintf(`{"for":%d}`, i))
			calls := callsOf(t, s.Journal, 1)
			if len(calls) != 1 {
				t.Fatalf("upstream %d got %d calls, want its own one", i, len(calls))
			}
			if got, want := string(calls[0].Message.Params), fmt.Sprintf(`"for":%d`, i); !strings.Contains(got, want) || text(t, calls[0].Message.Params, "name") != "search" {
				t.Errorf("upstream %d got %s, want search with %s", i, got, want)
			}
		}
		bare := j.talkTo(t, "/one")
		if got := bare.names(t); !slices.Equal(got, []string{"search"}) {
			t.Errorf("names on the upstream's own endpoint = %q, want [search]", got)
		}
	})
}

func TestProtocolT25ListOrderDoesNotDependOnWhoAnswersFirst(t *testing.T) {
	names := []string{"a", "b", "c"}
	for _, era := range eras {
		for _, order := range [][]string{{"a", "b", "c"}, {"c", "a", "b"}} {
			t.Run(string(era)+" "+strings.Join(order, ""), func(t *testing.T) {
				ready, configs := map[string]func(){}, map[string]upstream.Config{}
				for _, name := range names {
					script := upstreamtest.Script{Era: string(era), Tools: definitions("two", "one")}
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
				j := start(t, pair{era, era, "http"}, world{upstreams: configs})
				for _, name := range order {
					ready[name]()
					j.offers(t, name)
				}
				want := []string{"a__two", "a__one", "b__two", "b__one", "c__two", "c__one"}
				c := j.talk(t)
				for range 3 {
					if got := c.names(t); !slices.Equal(got, want) {
						t.Fatalf("names = %q, want %q", got, want)
					}
				}
			})
		}
	}
}

// exotic is a definition with everything that a proxy that knows its schemas loses.
const exotic = `{ "name":"tool","title":"Tööl \u00e4","description":"line\nbreak","icons":[{"src":"data:,x","mimeType":"image/png","sizes":["48x48"],"theme":"dark","x":1}],` +
	`"inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"urn:x","type":"object","$defs":{"n":{"type":"integer","maximum":9007199254740993}},` +
	`"properties":{"a":{"$ref":"#/$defs/n"},"b":{"enum":[1.0,null,"x",{}]}},"patternProperties":{"^x-":{"type":"string"}},"dependentRequired":{"a":["b"]},` +
	`"if":{"required":["a"]},"then":{"minProperties":2},"else":false,"unevaluatedProperties":false,"propertyNames":{"maxLength":3},"anyOf":[true]},` +
	`"outputSchema":{"type":"object","prefixItems":[],"x-unknown":1e2},"annotations":{"title":"T","readOnlyHint":true,"vendor":{"deep":[1,2]}},` +
	`"execution":{"taskSupport":"forbidden"},"_meta":{"com.example/a":[0.10,"\u2028"],"ui":{"resourceUri":"ui://x"}},"unknown":{"kept":true} , "last":[]}`

func TestProtocolT26DefinitionIsKeptByteForByte(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		exotic := exotic
		// the script of a child is JSON, whose spaces between tokens encoding/json takes out before
		// our server sees them
		if p.wire == "stdio" {
			var b bytes.Buffer
			if err := json.Compact(&b, []byte(exotic)); err != nil {
				t.Fatal(err)
			}
			exotic = b.String()
		}
		s := p.serve(t, upstreamtest.Script{Tools: []json.RawMessage{json.RawMessage(exotic)}})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}})
		j.offers(t, "up")
		tools, _ := j.talk(t).list(t, "")
		if got, want := string(tools[0]), strings.NewReplacer(`"name":"tool"`, `"name":"up__tool"`, "ui://x", "ui://up/x").Replace(exotic); got != want {
			t.Errorf("definition = %s\nwant         %s", got, want)
		}
		tools, _ = j.talkTo(t, "/up").list(t, "")
		if got := string(tools[0]); got != exotic {
			t.Errorf("bare definition = %s\nwant              %s", got, exotic)
		}
	})
}

func TestProtocolT27ExposedNames(t *testing.T) {
	legal := regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)
	given := definitions("plain", "with space", "a/b", "日本語", strings.Repeat("long", 30), "dot.ted", "UPPER", "%", "x\u0000y")
	eachEra(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{Tools: given})
		other := p.serve(t, upstreamtest.Script{Tools: given})
		for _, limit := range []int{0, 20, 128} {
			names := proxy.Names{MaxLength: limit}
			first := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, names: names, crowded: true})
			first.offers(t, "up")
			c := first.talk(t)
			before := c.names(t)
			if len(before) != len(given) {
				t.Fatalf("limit %d: %d names %q, want %d", limit, len(before), before, len(given))
			}
			for i, name := range before {
				if !legal.MatchString(name) || limit > 0 && len(name) > limit || limit == 0 && len(name) > 48 {
					t.Errorf("limit %d: name %q is not one that clients take", limit, name)
				}
				c.succeed(t, name, `{}`)
				calls := callsOf(t, s.Journal, 1)
				if got, want := text(t, calls[len(calls)-1].Message.Params, "name"), text(t, given[i], "name"); got != want {
					t.Errorf("limit %d: %s called %q, want %q", limit, name, got, want)
				}
			}
			again := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config, "a": other.config}, names: names, crowded: true})
			again.offers(t, "up", "a")
			after := again.talk(t).names(t)
			for _, name := range before {
				if !slices.Contains(after, name) {
					t.Errorf("limit %d: after a restart with another upstream %q is gone; there are %q", limit, name, after)
				}
			}
		}
	})
}

func TestProtocolT28CollidingNames(t *testing.T) {
	long := strings.Repeat("x", 60)
	eachEra(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{Tools: definitions("a b", "a/b", "a_b", long+"1", long+"2")})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}})
		j.offers(t, "up")
		c := j.talk(t)
		got := c.names(t)
		if len(got) != 5 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 5 {
			t.Fatalf("names = %q, want five that differ", got)
		}
		for i, name := range got {
			c.succeed(t, name, `{}`)
			calls := callsOf(t, s.Journal, 1)
			if got, want := text(t, calls[len(calls)-1].Message.Params, "name"), []string{"a b", "a/b", "a_b", long + "1", long + "2"}[i]; got != want {
				t.Errorf("%s called %q, want %q", name, got, want)
			}
		}

		// With bare names two upstreams can want the very same one: the first keeps it, and the
		// other is reported, not shadowed in silence.
		bare := ""
		one, two := p.serve(t, upstreamtest.Script{Tools: definitions("same")}), p.serve(t, upstreamtest.Script{Tools: definitions("same", "other")})
		one.config.Prefix, two.config.Prefix = &bare, &bare
		j = start(t, p, world{upstreams: map[string]upstream.Config{"one": one.config}, crowded: true})
		j.offers(t, "one")
		j.apply(world{upstreams: map[string]upstream.Config{"a-two": two.config, "one": one.config}})
		j.offers(t, "a-two")
		c = j.talk(t)
		if got := slices.Sorted(slices.Values(c.names(t))); !slices.Equal(got, []string{"other", "same"}) {
			t.Errorf("bare names = %q, want other and same", got)
		}
		c.succeed(t, "same", `{}`)
		if n, m := len(callsOf(t, one.Journal, 1)), len(callsOf(t, two.Journal, 0)); n != 1 || m != 0 {
			t.Errorf("same was called %d and %d times, want it to stay with the upstream that had the name", n, m)
		}
		problems := j.server.Problems()
		if len(problems) != 1 || problems[0].Upstream != "a-two" || problems[0].Name != "same" {
			t.Errorf("problems = %+v, want same of a-two", problems)
		}
	})
}

func TestProtocolT29PagesAreDrainedAndServedAsOurOwn(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		names := []string{"a", "b", "c", "d", "e"}
		s := p.serve(t, upstreamtest.Script{Tools: definitions(names...), PageSize: 2, EmptyCursor: true})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, limits: proxy.Limits{Page: 2}})
		j.offers(t, "up")
		await(t, s.Journal, "last page", func(r upstreamtest.Record) bool { return member(r.Message.Params, "cursor") == `"page-2"` })
		cursors := []string{}
		for _, r := range s.Received() {
			if r.Message.Method == "tools/list" {
				cursors = append(cursors, member(r.Message.Params, "cursor"))
			}
		}
		// A subscription that begins after the list was read makes it be read again.
		if len(cursors) < 3 || !slices.Equal(cursors[:3], []string{"", `""`, `"page-2"`}) {
			t.Errorf("the upstream was asked for the cursors %q, want three pages, one of them \"\"", cursors)
		}
		c := j.talk(t)
		var got []string
		for params, pages := "", 1; ; pages++ {
			tools, result := c.list(t, params)
			got = append(got, namesOf(t, tools)...)
			next := member(result, "nextCursor")
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

func TestProtocolT30ForeignCursor(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{Tools: definitions("a", "b", "c")})
		configs := map[string]upstream.Config{"up": s.config}
		j := start(t, p, world{upstreams: configs, limits: proxy.Limits{Page: 1}})
		j.offers(t, "up")
		foreign := start(t, p, world{upstreams: configs, limits: proxy.Limits{Page: 1}, crowded: true}) // another key
		foreign.offers(t, "up")
		c := j.talk(t)
		refused := func(what, cursor string) {
			t.Helper()
			m := c.begin(t, query{method: "tools/list", params: `"cursor":` + cursor}).answer(t)
			if m.Error == nil || m.Error.Code != -32602 {
				t.Errorf("%s: %s, want -32602", what, m.Append(nil))
			}
		}
		cursorOf := func(c *talker) string {
			_, result := c.list(t, "")
			return member(result, "nextCursor")
		}
		refused("garbage", `"garbage"`)
		refused("empty", `""`)
		refused("a number", `7`)
		refused("another proxy's", cursorOf(foreign.talk(t)))
		refused("another endpoint's", cursorOf(j.talkTo(t, "/up")))
		old := cursorOf(c)
		if err := s.setTools(definitions("x", "y", "z")); err != nil {
			t.Fatal(err)
		}
		j.until(t, "the new list", func() bool { return slices.Equal(c.names(t), []string{"up__x"}) })
		refused("of a list that has changed", old)
	})
}

func TestProtocolT31EndlessCursor(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{Tools: definitions("a", "b"), PageSize: 1, LoopCursor: true})
		good := p.serve(t, upstreamtest.Script{Tools: definitions("fine")})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"good": good.config, "loop": s.config}})
		j.offers(t, "good")
		j.until(t, "a reason that a person can read", func() bool { return strings.Contains(j.status("loop").Err, "never ends") })
		lists := 0
		for _, m := range s.Methods() {
			if m == "tools/list" {
				lists++
			}
		}
		if lists < 2 || lists > 12 { // a few attempts to connect, each of which asks three times at most
			t.Errorf("tools/list was asked %d times, want a few", lists)
		}
		if got := j.talk(t).names(t); !slices.Equal(got, []string{"good__fine"}) {
			t.Errorf("names = %q, want those of the other upstream", got)
		}
	})
}

// freshness reads ttlMs and cacheScope.
func freshness(t *testing.T, result []byte) (ttl int, scope string) {
	t.Helper()
	if err := json.Unmarshal([]byte(member(result, "ttlMs")), &ttl); err != nil {
		t.Fatalf("ttlMs of %s: %v", result, err)
	}
	return ttl, text(t, result, "cacheScope")
}

func TestProtocolT32ModernListsAreCacheable(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			s := p.serve(t, upstreamtest.Script{TTLMs: 60000, CacheScope: "public", Tools: definitions("a")})
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}})
			j.offers(t, "up")
			c := j.talk(t)
			_, result := c.list(t, "")
			ttl, scope := freshness(t, result)
			if up == upstream.EraLegacy && (ttl != 0 || scope != "private") {
				t.Errorf("ttlMs = %d, cacheScope = %s, want 0 and private of a server that says nothing", ttl, scope)
			}
			if up == upstream.EraModern && (ttl <= 0 || ttl > 60000 || scope != "public") {
				t.Errorf("ttlMs = %d, cacheScope = %s, want what is left of 60000, and public", ttl, scope)
			}
			m := c.begin(t, query{method: "server/discover"}).answer(t)
			if ttl, scope := freshness(t, m.Result); ttl < 0 || scope != "public" && scope != "private" {
				t.Errorf("server/discover: ttlMs = %d, cacheScope = %s", ttl, scope)
			}
		})
	}
}

func TestProtocolT33CacheHintsAreMergedToTheLeast(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraModern, ""}, func(t *testing.T, p pair) {
		a := p.serve(t, upstreamtest.Script{TTLMs: 30000, CacheScope: "public", Tools: definitions("a", "b")})
		b := p.serve(t, upstreamtest.Script{TTLMs: 60000, CacheScope: "private", Tools: definitions("c", "d")})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"a": a.config, "b": b.config}, limits: proxy.Limits{Page: 1}})
		j.offers(t, "a", "b")
		c := j.talk(t)
		for params, page := "", 1; page <= 4; page++ {
			_, result := c.list(t, params)
			if ttl, scope := freshness(t, result); ttl > 30000 || ttl <= 0 || scope != "private" {
				t.Errorf("page %d: ttlMs = %d, cacheScope = %s, want at most 30000 and private", page, ttl, scope)
			}
			params = `"cursor":` + member(result, "nextCursor")
		}
	})
}

// TestProtocolT34IsolatedConnections: two callers whom the upstream is to tell apart have
// connections of their own, for their calls. The list is the upstream's to us, whose credentials
// are one, and is private to each of our callers (TestListsOfAPrincipalArePrivate).
func TestProtocolT34IsolatedConnections(t *testing.T) {
	guard, keys := keyring(t, "one", "two")
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
			eachWire(t, pair{upstream.EraLegacy, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
				s := p.serve(t, upstreamtest.Script{CacheScope: "private"})
				s.config.Isolation = row.isolation
				j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, guard: guard})
				j.offers(t, "up")
				var seen []string
				for _, key := range []string{"one", row.second} {
					// roots are a principal's own whatever the isolation
					c := j.as(t, keys[key], func(c *talker) { c.capabilities = `{}` })
					for range 2 {
						result := c.succeed(t, "up__whoami", `{}`)
						seen = append(seen, member(result, "structuredContent", "session")+member(result, "structuredContent", "pid"))
					}
				}
				if seen[0] != seen[1] || seen[2] != seen[3] {
					t.Errorf("connections of the calls = %q, want the same one for both of a client's", seen)
				}
				if got := seen[0] != seen[2]; got != row.apart {
					t.Errorf("connections of the calls = %q, apart = %t, want %t", seen, got, row.apart)
				}
			})
		})
	}
}

func TestProtocolT35ChangeEndsFreshness(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{TTLMs: 3600_000, CacheScope: "public", Tools: definitions("old")})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}})
		j.offers(t, "up")
		s.listened(t, p)
		c := j.talk(t)
		if err := s.setTools(definitions("new")); err != nil {
			t.Fatal(err)
		}
		j.until(t, "the new list", func() bool { return slices.Equal(c.names(t), []string{"up__new"}) })
	})
}

func TestProtocolT36LegacyListIsTheModernOne(t *testing.T) {
	eachWire(t, pair{upstream.EraModern, upstream.EraModern, ""}, listsAreAlike)
	eachWire(t, pair{upstream.EraModern, upstream.EraLegacy, ""}, listsAreAlike)
}

func listsAreAlike(t *testing.T, p pair) {
	s := p.serve(t, upstreamtest.Script{Tools: append(definitions("a", "b"), json.RawMessage(exotic))})
	j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}})
	j.offers(t, "up")
	_, modern := j.talk(t).list(t, "")
	for range 2 {
		legacy := talk(t, j.url, upstream.EraLegacy)
		for range 2 {
			_, result := legacy.list(t, "")
			http.DefaultClient.CloseIdleConnections() // the next request comes over another socket
			if got, want := member(result, "tools"), member(modern, "tools"); got != want {
				t.Errorf("legacy tools = %s\nmodern       = %s", got, want)
			}
			for _, name := range []string{"ttlMs", "cacheScope", "resultType"} {
				if v := member(result, name); v != "" {
					t.Errorf("the legacy list has %s = %s", name, v)
				}
			}
		}
	}
}

func TestProtocolT39OneUpstreamDown(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		up := p.serve(t, upstreamtest.Script{Tools: definitions("fine")})
		lost := upstreamtest.New(upstreamtest.Script{Era: string(p.upstream), Tools: definitions("stale")})
		t.Cleanup(lost.Close)
		url, stop := upstreamtest.Serve(t, "127.0.0.1:0", lost.Handler())
		j := start(t, p, world{upstreams: map[string]upstream.Config{
			"never": {URL: "http://127.0.0.1:1/mcp"}, "nothing": {Command: []string{"there-is-no-such-program"}}, "lost": {URL: url + "/mcp"}, "up": up.config,
		}})
		j.offers(t, "up", "lost")
		j.until(t, "two reasons", func() bool { return j.status("never").Err != "" && j.status("nothing").Err != "" })
		c := j.talk(t)
		want := []string{"lost__stale", "up__fine"}
		if got := c.names(t); !slices.Equal(got, want) {
			t.Fatalf("names = %q, want %q", got, want)
		}
		stop()
		// The call may have gone out on a connection that was cut just then, or found none.
		if m := c.call(t, "lost__stale", `{}`); m.Error == nil || !strings.Contains(string(m.Error.Data), `{"junction":{"upstream":"lost"`) {
			t.Errorf("a call of the lost upstream = %s, want an error of ours", m.Append(nil))
		}
		if got := c.names(t); !slices.Equal(got, want) { // the last list that was good
			t.Errorf("names with one upstream lost = %q, want %q", got, want)
		}
		c.succeed(t, "up__fine", `{}`)
	})
}

// annotated is a tool whose arguments go into headers.
func annotated(name, properties string) json.RawMessage {
	return fmt.Appendf(nil, `{"name":"%s","inputSchema":{"type":"object","properties":%s}}`, name, properties)
}

func TestProtocolT40InvalidHeaderAnnotation(t *testing.T) {
	bad := []json.RawMessage{
		annotated("space", `{"a":{"type":"string","x-mcp-header":"Bad Header"}}`),
		annotated("empty", `{"a":{"type":"string","x-mcp-header":""}}`),
		annotated("break", `{"a":{"type":"string","x-mcp-header":"A\r\nB"}}`),
		annotated("twice", `{"a":{"type":"string","x-mcp-header":"Region"},"b":{"type":"string","x-mcp-header":"REGION"}}`),
		annotated("number", `{"a":{"type":"number","x-mcp-header":"A"}}`),
		annotated("items", `{"a":{"type":"array","items":{"type":"string","x-mcp-header":"A"}}}`),
		annotated("oneof", `{"a":{"oneOf":[{"type":"string","x-mcp-header":"A"}]}}`),
	}
	good := annotated("good", `{"a":{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"Region"}}}}`)
	eachPair(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{Tools: append(slices.Clone(bad), good)})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}})
		j.offers(t, "up")
		c := j.talk(t)
		names := c.names(t)
		if !slices.Contains(names, "up__good") {
			t.Fatalf("names = %q, want up__good among them", names)
		}
		for _, tool := range bad {
			name := "up__" + text(t, tool, "name")
			m := c.call(t, name, `{"a":"x"}`)
			if p.client == upstream.EraModern {
				if slices.Contains(names, name) || m.Error == nil || m.Error.Code != -32602 {
					t.Errorf("%s is listed, or called with %s; a modern client must not see it", name, m.Append(nil))
				}
			} else if p.upstream == upstream.EraModern && p.wire == "http" {
				if slices.Contains(names, name) || m.Error == nil {
					t.Errorf("%s is listed, or called with %s; we are a client over HTTP that must not use it", name, m.Append(nil))
				}
			} else if !slices.Contains(names, name) || m.Error != nil {
				t.Errorf("%s is not listed, or called with %s; a legacy client knows no such headers and may use it", name, m.Append(nil))
			}
		}
	})
}

// changes reads the list_changed notifications of a stream until there are n.
func changes(t *testing.T, stream *answering, n int) (list []jsonrpc.Message) {
	t.Helper()
	for len(list) < n {
		m, ok := stream.next(t)
		if !ok {
			t.Fatalf("the stream ended: %v", stream.err)
		}
		if m.Method != "notifications/tools/list_changed" {
			t.Fatalf("the stream has %s, want tools/list_changed", m.Append(nil))
		}
		list = append(list, m)
	}
	return list
}
