package integration

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"junction/proxy"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// What somebody may find out of upstreams and endpoints that are not for them.

// postTo posts a ping to a path beside /mcp and returns the status and the body.
func (c *talker) postTo(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	c.own(r.Header)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestEndpointsOfOthersAreUnknown(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		full := p.serve(t, upstreamtest.Script{})
		empty := p.serve(t, upstreamtest.Script{Capabilities: []byte(`{"tools":{},"resources":{"subscribe":true},"logging":{},"completions":{}}`), Tools: definitions()})
		guard, keys := keyring(t, "some", "glob", "web", "nobody")
		down := upstream.Config{URL: "http://127.0.0.1:1/mcp"}
		j := start(t, p, world{
			upstreams: map[string]upstream.Config{"open": full.config, "full": full.config, "empty": empty.config, "down": down},
			guard:     guard, endpoints: map[string]proxy.Endpoint{"web": {Upstreams: []string{"full"}}},
			policy: mustPolicy(t, `
- { name: some, match: { key: some }, rules: [ { allow: { upstreams: open } } ] }
- { name: glob, match: { key: glob }, rules: [ { allow: { tools: "open__*" } } ] }
- { name: web, match: { key: web, surface: other }, rules: [ { allow: { upstreams: "*" } } ] }
`)})
		j.offers(t, "open", "full", "empty")
		for name, key := range keys {
			c := &talker{url: j.url, era: p.client, key: key}
			root := strings.TrimSuffix(j.url, "/mcp")
			status, text := c.postTo(t, j.url+"/nothing")
			for _, path := range []string{"/mcp/full", "/mcp/empty", "/mcp/down", "/web/mcp", "/nothing/mcp"} {
				if s, b := c.postTo(t, root+path); s != status || b != text {
					t.Errorf("%s finds %s: %d %s\nand of what does not exist %d %s", name, path, s, b, status, text)
				}
			}
		}
		for _, name := range []string{"some", "glob"} {
			c := j.as(t, keys[name])
			var said string
			if p.client == upstream.EraModern {
				said = string(c.must(t, "server/discover", ""))
			} else {
				said = string(c.begin(t, query{method: "initialize", params: `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`}).answer(t).Result)
			}
			for _, hidden := range []string{"logging", "completions", "subscribe"} {
				if strings.Contains(said, hidden) {
					t.Errorf("%s is told %s", name, said)
				}
			}
		}
	})
}

// TestStreamsOfWhatIsHiddenEnd takes everything of an endpoint away from somebody who listens
// there, and everything from somebody else.
func TestStreamsOfWhatIsHiddenEnd(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		s, other := p.serve(t, upstreamtest.Script{}), p.serve(t, upstreamtest.Script{})
		guard, keys := keyring(t, "some", "all")
		w := world{upstreams: map[string]upstream.Config{"up": s.config, "other": other.config}, guard: guard,
			policy: mustPolicy(t, "- { name: all, rules: [ { allow: { upstreams: \"*\" } } ] }\n")}
		j := start(t, p, w)
		j.offers(t, "up", "other")
		listens := func(key, path string) *answering {
			c := j.as(t, key, func(c *talker) { c.url += path })
			if p.client == upstream.EraLegacy {
				return c.get(t)
			}
			a, _ := subscribe(t, c, `"s"`, `{"toolsListChanged":true}`)
			return a
		}
		hidden, stays, gone := listens(keys["some"], "/up"), listens(keys["some"], ""), listens(keys["all"], "")
		w.policy = mustPolicy(t, "- { name: some, match: { key: some }, rules: [ { allow: { upstreams: other } } ] }\n")
		j.apply(w)
		for name, a := range map[string]*answering{"of an endpoint that is hidden now": hidden, "of somebody who may use nothing now": gone} {
			for {
				if m, ok := a.next(t); !ok {
					break
				} else if m.IsResponse() {
					t.Errorf("the stream %s says %s", name, m.Append(nil))
				}
			}
		}
		hears(t, stays, "tools/list_changed")
	})
}

// TestReplaysEndWithTheirKey revokes the key of somebody who has taken up the stream of a call
// again: no event follows.
func TestReplaysEndWithTheirKey(t *testing.T) {
	runPair(t, pair{upstream.EraLegacy, upstream.EraLegacy, "http"}, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		guard, keys := keyring(t, "gone")
		w := world{upstreams: map[string]upstream.Config{"up": s.config}, guard: guard}
		j := start(t, p, w)
		j.offers(t, "up")
		c := j.as(t, keys["gone"])
		c.succeed(t, "up__echo", `{}`)
		s.openGate(t, "g")
		stream := playCall(t, c, called("up__progress", `{"n":3,"gate":"g"}`))
		stream.skipFirst(t, c)
		first := stream.wantStep(t, 1)
		stream.drop()
		again := resume(t, c, first)
		s.openGate(t, "g")
		again.wantStep(t, 2)
		w.guard, _ = keyring(t, "other")
		j.apply(w)
		s.openGate(t, "g")
		if e, ok := again.next(t); ok {
			t.Errorf("the stream of a key that was revoked says %s", e.Data)
		}
	})
}

// TestUpdatesThatWaitAreForgotten has a legacy client without a stream, for which updates wait,
// when the file denies it one of the resources.
func TestUpdatesThatWaitAreForgotten(t *testing.T) {
	runPair(t, pair{upstream.EraLegacy, upstream.EraLegacy, "http"}, func(t *testing.T, p pair) {
		s := p.serve(t, library("up"))
		w := world{upstreams: map[string]upstream.Config{"up": s.config}, policy: mustPolicy(t, "- { name: all, rules: [ { allow: { upstreams: \"*\" } } ] }\n")}
		j := start(t, p, w)
		j.offers(t, "up")
		s.listened(t, p) // when its stream begins, all that was subscribed to before may have changed
		c := j.talk(t)
		for _, uri := range []string{"file:///a", "file:///b"} {
			c.must(t, "resources/subscribe", `"uri":"mcp://up/`+uri+`"`)
			j.server.Updated(upstream.Update{Upstream: "up", URI: uri})
		}
		c.must(t, "resources/subscribe", `"uri":"mcp://up/file:///sub/c"`)
		// of an upstream that is theirs alone
		j.server.Updated(upstream.Update{Upstream: "up", Person: "user:somebody else", URI: "file:///sub/c"})
		w.policy = mustPolicy(t, "- { name: all, rules: [ { deny: { resources: \"file:///a\" } }, { allow: { upstreams: \"*\" } } ] }\n")
		j.apply(w)
		stream := c.get(t)
		hears(t, stream, "resources/updated mcp://up/file:///b")
		silent(t, j, stream)
	})
}
