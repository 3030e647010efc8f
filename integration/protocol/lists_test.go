package protocol

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/upstreamtest"
)

// The lists and requests that are not of tools; those of tools are in catalog_test.go.

// otherLists are the lists but that of tools: method, member of the result, the member that clients
// know an item by, and what stands before an item's own.
var otherLists = []struct{ method, member, key, before string }{
	{"prompts/list", "prompts", "name", "up__"},
	{"resources/list", "resources", "uri", "mcp://up/"},
	{"resources/templates/list", "resourceTemplates", "uriTemplate", "mcp://up/"},
}

// five has five items of each kind, which a server lists as a proxy that knows its schemas would
// not.
func five() (script upstreamtest.Script) {
	for _, letter := range "abcde" {
		odd := `"title":"\u00e9\/","size":1.0,"icons":[{"src":"data:,x"}],"annotations":{"priority":0.10},` +
			`"_meta":{"k":[1E2]},"future":12345678901234567890`
		script.Prompts = append(script.Prompts,
			fmt.Appendf(nil, `{"x":{},"name":"%c","arguments":[{"name":"x","required":true}],%s}`, letter, odd))
		script.Resources = append(script.Resources, fmt.Appendf(nil, `{"name":"n","uri":"note:%c",%s}`, letter, odd))
		script.Templates = append(script.Templates,
			fmt.Appendf(nil, `{"name":"n","uriTemplate":"note:%c{/x}",%s}`, letter, odd))
	}
	return script
}

// TestOtherDefinitionsKeepTheirBytes reads all pages of the upstream, and all
// pages of Junction.
func TestOtherDefinitionsKeepTheirBytes(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		script := five()
		script.PageSize, script.EmptyCursor = 2, true
		s := p.Serve(t, script)
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Limits: proxy.Limits{Page: 2}})
		j.Offers(t, "up")
		c, bare := j.Talk(t), j.TalkTo(t, "/up")
		given := map[string][]json.RawMessage{"prompts/list": script.Prompts, "resources/list": script.Resources,
			"resources/templates/list": script.Templates}
		for _, l := range otherLists {
			items, results := c.Drain(t, l.method, l.member)
			own, _ := bare.Drain(t, l.method, l.member)
			if len(items) != 5 || len(own) != 5 || len(results) != 3 {
				t.Fatalf("%s has %d items on %d pages, and %d on the upstream's own endpoint, want 5 on 3", l.method, len(items),
					len(results), len(own))
			}
			for i, item := range items {
				want := strings.Replace(string(given[l.method][i]), `"`+l.key+`":"`, `"`+l.key+`":"`+l.before, 1)
				if string(item) != want || string(own[i]) != string(given[l.method][i]) {
					t.Errorf("%s: definition %s and %s\nwant %s and %s", l.method, item, own[i], want, given[l.method][i])
				}
			}
			for _, result := range results {
				hints := harness.Member(result, "ttlMs") + harness.Member(result, "cacheScope") +
					harness.Member(result, "resultType")
				if want := map[client.Era]string{client.EraModern: `600000"private""complete"`}[p.Client]; hints != want {
					t.Errorf("%s has the hints %s, want %s", l.method, hints, want)
				}
			}
		}
	})
}

func TestCursorOfAnotherListIsRejected(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, five())
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Limits: proxy.Limits{Page: 2}})
		j.Offers(t, "up")
		c := j.Talk(t)
		cursors := map[string]string{"tools/list": harness.Member(c.Must(t, "tools/list", ``), "nextCursor")}
		for _, l := range otherLists {
			cursors[l.method] = harness.Member(c.Must(t, l.method, ``), "nextCursor")
		}
		for _, l := range otherLists {
			for of, cursor := range cursors {
				if cursor == "" {
					t.Fatalf("%s has no second page", of)
				}
				if m := c.Ask(t, l.method, `"cursor":`+cursor); of != l.method {
					harness.WantCode(t, m, -32602)
				} else if m.Error != nil {
					t.Errorf("%s: its own cursor is refused: %s", of, m.Append(nil))
				}
			}
			harness.WantCode(t, c.Ask(t, l.method, `"cursor":"page-1"`), -32602)
		}
	})
}

func TestOtherEndlessListsAreGivenUp(t *testing.T) {
	harness.Waits(t)
	for _, l := range otherLists {
		t.Run(l.method, func(t *testing.T) {
			harness.EachEra(t, func(t *testing.T, p harness.Pair) {
				script := five()
				script.Rules = []upstreamtest.Rule{{Method: l.method,
					Result: fmt.Appendf(nil, `{"%s":[],"nextCursor":"again"}`, l.member)}}
				s, j := harness.Over(t, p, script, nil)
				c := j.Talk(t)
				c.Succeed(t, "up__echo", `{}`)
				if items, _ := c.Drain(t, l.method, l.member); len(items) > 0 {
					t.Errorf("%s has %q", l.method, items)
				}
				if n := len(s.RequestsOf(t, l.method, 1)); n == 0 || n > 20 {
					t.Errorf("the upstream was asked for %d pages", n)
				}
			})
		})
	}
}

// TestOddPagesCostNothing has servers that have no pages, and answer as if they had. Each item is offered
// once, and the other lists stay.
func TestOddPagesCostNothing(t *testing.T) {
	harness.Waits(t)
	page := func(cursor string) upstreamtest.Rule {
		return upstreamtest.Rule{Method: "tools/list", Result: fmt.Appendf(nil,
			`{"tools":[{"name":"a","inputSchema":{}},{"name":"b","inputSchema":{}}],"nextCursor":%s}`, cursor)}
	}
	null := upstreamtest.Rule{Method: "tools/list", Result: []byte(`{"tools":null}`)}
	for _, tt := range []struct {
		name  string
		era   client.Era // "" is each
		rules []upstreamtest.Rule
		want  []string
	}{
		{"an empty cursor for ever", client.EraLegacy, []upstreamtest.Rule{page(`""`)}, []string{"up__a", "up__b"}},
		{"one cursor for ever", client.EraLegacy, []upstreamtest.Rule{page(`"x"`)}, []string{"up__a", "up__b"}},
		{"no array", "", []upstreamtest.Rule{null}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			harness.EachPair(t, func(t *testing.T, p harness.Pair) {
				if tt.era != "" && p.Upstream != tt.era {
					return
				}
				script := five()
				script.Rules = tt.rules
				_, j := harness.Over(t, p, script, nil)
				c := j.Talk(t)
				if names := c.Names(t); !slices.Equal(names, tt.want) {
					t.Errorf("tools are %q, want %q", names, tt.want)
				}
				if items, _ := c.Drain(t, "prompts/list", "prompts"); len(items) != 5 {
					t.Errorf("there are %d prompts, want 5", len(items))
				}
			})
		})
	}
}

// TestFailedListLeavesTheOthers has a server that declares what it then does not have, as some do:
// the rest of it is offered.
func TestFailedListLeavesTheOthers(t *testing.T) {
	harness.Waits(t)
	for _, failing := range []string{"prompts/list", "resources/list", "resources/templates/list"} {
		t.Run(failing, func(t *testing.T) {
			harness.EachEra(t, func(t *testing.T, p harness.Pair) {
				script := five()
				script.Rules = []upstreamtest.Rule{{Method: failing, Error: []byte(`{"code":-32601,"message":"Method not found"}`)}}
				_, j := harness.Over(t, p, script, nil)
				c := j.Talk(t)
				c.Succeed(t, "up__echo", `{}`)
				for _, l := range otherLists {
					want := 5
					if l.method == failing {
						want = 0
					}
					if items, _ := c.Drain(t, l.method, l.member); len(items) != want {
						t.Errorf("%s has %d items, want %d", l.method, len(items), want)
					}
				}
			})
		})
	}
}

// TestOtherMethodsHaveNoModernMeta sends the requests that are not calls of tools.
func TestOtherMethodsHaveNoModernMeta(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		script := five()
		script.Era, script.Logging, script.Completions = "both", true, map[string]json.RawMessage{
			"a": []byte(`{"values":["x"]}`)}
		s, j := harness.Over(t, p, script, func(c *upstream.Config) { c.Era = p.Upstream })
		c := j.Talk(t)
		const kept = `"com.example/kept":{"a":1.0}`
		const trace = `"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`
		for method, params := range map[string]string{
			"prompts/get": `"name":"up__a"`, "resources/read": `"uri":"mcp://up/note:a"`,
			"completion/complete": `"ref":{"type":"ref/prompt","name":"up__a"},"argument":{"name":"x","value":""}`,
		} {
			q := harness.Query{Method: method, Params: params, Meta: kept + `,` + trace}
			if p.Client == client.EraModern {
				q.Meta += `,"io.modelcontextprotocol/logLevel":"info"`
			}
			if m := c.Begin(t, q).Answer(t); m.Error != nil {
				t.Fatalf("%s = %s", method, m.Append(nil))
			}
			got := s.RequestsOf(t, method, 1)[0].Message.Params
			if harness.Member(got, "_meta", "com.example/kept") != `{"a":1.0}` || !strings.Contains(string(got), trace) {
				t.Errorf("%s reached the upstream as %s, want the keys of others in _meta", method, got)
			}
			if version := harness.Member(got, "_meta",
				"io.modelcontextprotocol/protocolVersion"); (version != "") != (p.Upstream == client.EraModern) {
				t.Errorf("%s reached the %s upstream with the version %q in _meta", method, p.Upstream, version)
			}
		}
		for _, r := range s.Received() {
			if p.Upstream == client.EraLegacy && strings.Contains(string(r.Body), `"_meta"`) &&
				strings.Contains(string(r.Body), "io.modelcontextprotocol/") {
				t.Errorf("the upstream got %s", r.Body)
			}
		}
	})
}

// TestOtherIDsDoNotMix has ids of both types, of one client at once.
func TestOtherIDsDoNotMix(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		_, j := harness.Over(t, p, five(), nil)
		ids := []string{`1`, `"1"`, `9007199254740993`, `"é"`}
		var all []*harness.Answering
		c := j.Talk(t)
		for i, id := range ids {
			all = append(all, c.Begin(t,
				harness.Query{ID: id, Method: "resources/read", Params: fmt.Sprintf(`"uri":"mcp://up/note:%c"`, "abcd"[i])}))
		}
		for i, a := range slices.Backward(all) {
			m := a.Answer(t)
			if m.ID != jsonrpc.ID(ids[i]) || !strings.Contains(string(m.Result), fmt.Sprintf("content of note:%c", "abcd"[i])) {
				t.Errorf("request %s got %s", ids[i], m.Append(nil))
			}
		}
	})
}
