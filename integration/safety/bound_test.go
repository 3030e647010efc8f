package safety

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"junction/auth"
	"junction/integration/harness"
	"junction/policy"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestOutsideTheirEndpointsCallersFindNothing: an endpoint to which a caller is not bound has the answer of
// one that does not exist, for each way to bind, and a stream there ends when a reload binds its caller.
func TestOutsideTheirEndpointsCallersFindNothing(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "the guard of the test is made in this process")
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		keys, list := map[string]string{}, []auth.Key{}
		for _, name := range []string{"web", "guest", "free"} {
			keys[name] = auth.NewKey()
			hash, err := auth.HashKey(keys[name])
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, auth.Key{Name: name, Hash: hash})
		}
		list[0].Endpoints = []string{"web"}
		under := func(list []auth.Key) harness.Setup {
			return harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
				Guard: new(auth.Config{APIKeys: list}).Guard(nil, "", nil),
				Endpoints: map[string]scope.EndpointConfig{"web": {},
					"ops": {Surface: "chat", Match: &policy.Match{Key: policy.List{"free"}}}},
				Policy: harness.MustPolicy(t, `
- { name: all, rules: [ { allow: { upstreams: "*" } } ] }
- { name: guests, match: { key: guest }, endpoints: [web, mcp/up] }
- { name: more, match: { kind: key, key: guest }, endpoints: [mcp, web, ops] }
`)}
		}
		j := harness.Start(t, p, under(list))
		j.Offers(t, "up")
		base := strings.TrimSuffix(j.URL, "/mcp")
		get := func(path, key string) (int, string) {
			t.Helper()
			q, err := http.NewRequestWithContext(t.Context(), http.MethodPut, base+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Authorization", "Bearer "+key)
			a, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			text, err := io.ReadAll(a.Body)
			if err != nil {
				t.Fatal(err)
			}
			return a.StatusCode, string(text)
		}
		all := []string{"/mcp", "/mcp/up", "/web/mcp", "/ops/mcp", "/none/mcp", "/mcp/none"}
		for name, open := range map[string]string{"web": "/web/mcp", "guest": "/web/mcp",
			"free": "/mcp /mcp/up /web/mcp /ops/mcp"} {
			_, nothing := get("/none/mcp", keys[name])
			for _, path := range all {
				want := http.StatusNotFound
				if strings.Contains(" "+open+" ", " "+path+" ") {
					want = http.StatusMethodNotAllowed // the endpoint is there
				}
				status, text := get(path, keys[name])
				if status != want || want == http.StatusNotFound && text != nothing {
					t.Errorf("%s of %s has the status %d %q, want %d", path, name, status, text, want)
				}
			}
		}
		// A reload binds a key that was free.
		free := j.As(t, keys["free"])
		var stream *harness.Answering
		if p.Client == client.EraLegacy {
			stream = free.Get(t)
		} else {
			stream, _ = harness.Subscribe(t, free, `"s"`, `{"toolsListChanged":true}`)
		}
		bound := slices.Clone(list)
		bound[2].Endpoints = []string{"ops"}
		j.Apply(under(bound))
		for open := true; open; {
			_, open = stream.Next(t)
		}
		if status, _ := get("/mcp", keys["free"]); status != http.StatusNotFound {
			t.Errorf("after the reload /mcp has the status %d", status)
		}
		if status, _ := get("/ops/mcp", keys["free"]); status != http.StatusMethodNotAllowed {
			t.Errorf("after the reload /ops/mcp has the status %d", status)
		}
	})
}
