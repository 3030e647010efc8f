package safety

import (
	"regexp"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// These tests show what callers can find out about upstreams and endpoints that are hidden from them.

// requestID is the only difference between two refusals.
var requestID = regexp.MustCompile(`,"request_id":"[^"]*"`)

func TestEndpointsOfOthersAreUnknown(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		full := p.Serve(t, upstreamtest.Script{})
		empty := p.Serve(t, upstreamtest.Script{Capabilities: []byte(
			`{"tools":{},"resources":{"subscribe":true},"logging":{},"completions":{}}`), Tools: harness.Definitions()})
		guard, keys := harness.Keyring(t, "some", "glob", "web", "nobody")
		down := upstream.Config{URL: "http://127.0.0.1:1/mcp"}
		j := harness.Start(t, p, harness.Setup{
			Upstreams: map[string]upstream.Config{"open": full.Config, "full": full.Config, "empty": empty.Config, "down": down},
			Guard:     guard, Endpoints: map[string]scope.EndpointConfig{"web": {Upstreams: []string{"full"}}},
			Policy: harness.MustPolicy(t, `
- { name: some, match: { key: some }, rules: [ { allow: { upstreams: open } } ] }
- { name: glob, match: { key: glob }, rules: [ { allow: { tools: "open__*" } } ] }
- { name: web, match: { key: web, surface: other }, rules: [ { allow: { upstreams: "*" } } ] }
`)})
		j.Offers(t, "open", "full", "empty")
		for name, key := range keys {
			c := &harness.Talker{URL: j.URL, Era: p.Client, Key: key}
			root := strings.TrimSuffix(j.URL, "/mcp")
			post := func(url string) (int, string) {
				status, text := c.PostTo(t, url)
				return status, requestID.ReplaceAllString(text, "")
			}
			status, text := post(j.URL + "/nothing")
			for _, path := range []string{"/mcp/full", "/mcp/empty", "/mcp/down", "/web/mcp", "/nothing/mcp"} {
				if s, b := post(root + path); s != status || b != text {
					t.Errorf("%s finds %s: %d %s\nand of what does not exist %d %s", name, path, s, b, status, text)
				}
			}
		}
		for _, name := range []string{"some", "glob"} {
			c := j.As(t, keys[name])
			var said string
			if p.Client == client.EraModern {
				said = string(c.Must(t, "server/discover", ""))
			} else {
				said = string(c.Begin(t,
					harness.Query{Method: "initialize",
						Params: `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`}).Answer(
					t).Result)
			}
			for _, hidden := range []string{"logging", "completions", "subscribe"} {
				if strings.Contains(said, hidden) {
					t.Errorf("%s is told %s", name, said)
				}
			}
		}
	})
}

// TestStreamsOfWhatIsHiddenEnd removes the access of one listener to an endpoint, and all access of
// another one.
func TestStreamsOfWhatIsHiddenEnd(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s, other := p.Serve(t, upstreamtest.Script{}), p.Serve(t, upstreamtest.Script{})
		guard, keys := harness.Keyring(t, "some", "all")
		w := harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config, "other": other.Config}, Guard: guard,
			Policy: harness.MustPolicy(t, "- { name: all, rules: [ { allow: { upstreams: \"*\" } } ] }\n")}
		j := harness.Start(t, p, w)
		j.Offers(t, "up", "other")
		listens := func(key, path string) *harness.Answering {
			c := j.As(t, key, func(c *harness.Talker) { c.URL += path })
			if p.Client == client.EraLegacy {
				return c.Get(t)
			}
			a, _ := harness.Subscribe(t, c, `"s"`, `{"toolsListChanged":true}`)
			return a
		}
		hidden, stays, gone := listens(keys["some"], "/up"), listens(keys["some"], ""), listens(keys["all"], "")
		w.Policy = harness.MustPolicy(t,
			"- { name: some, match: { key: some }, rules: [ { allow: { upstreams: other } } ] }\n")
		j.Apply(w)
		for name, a := range map[string]*harness.Answering{"of an endpoint that is hidden now": hidden,
			"of somebody who may use nothing now": gone} {
			for {
				if m, ok := a.Next(t); !ok {
					break
				} else if m.IsResponse() {
					t.Errorf("the stream %s says %s", name, m.Append(nil))
				}
			}
		}
		harness.WantNotes(t, stays, "tools/list_changed")
	})
}

// TestUpdatesThatWaitAreForgotten has a legacy client without a stream, for which updates wait,
// when the file denies it one of the resources.
func TestUpdatesThatWaitAreForgotten(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "it tells the proxy of updates that no server sends")
	harness.RunPair(t, client.EraLegacy, client.EraLegacy, "http", func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, harness.Library("up"))
		w := harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
			Policy: harness.MustPolicy(t, "- { name: all, rules: [ { allow: { upstreams: \"*\" } } ] }\n")}
		j := harness.Start(t, p, w)
		j.Offers(t, "up")
		s.Listened(t, p) // when its stream begins, all that was subscribed to before may have changed
		c := j.Talk(t)
		for _, uri := range []string{"file:///a", "file:///b"} {
			c.Must(t, "resources/subscribe", `"uri":"mcp://up/`+uri+`"`)
			j.Server.Streams().Updated(upstream.Update{Upstream: "up", URI: uri})
		}
		c.Must(t, "resources/subscribe", `"uri":"mcp://up/file:///sub/c"`)
		// of an upstream that is theirs alone
		j.Server.Streams().Updated(upstream.Update{Upstream: "up", User: "user:somebody else", URI: "file:///sub/c"})
		w.Policy = harness.MustPolicy(t,
			"- { name: all, rules: [ { deny: { resources: \"file:///a\" } }, { allow: { upstreams: \"*\" } } ] }\n")
		j.Apply(w)
		stream := c.Get(t)
		harness.WantNotes(t, stream, "resources/updated mcp://up/file:///b")
		harness.WantSilentEnd(t, j, stream)
	})
}
