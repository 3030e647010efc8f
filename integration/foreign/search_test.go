package foreign

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/proxy/front"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestForeignClientsSearch has clients that others wrote list a catalog with search, find a tool and
// call it.
func TestForeignClientsSearch(t *testing.T) {
	harness.Waits(t)
	for _, caller := range npm.Tried(t, npm.Clients()) {
		t.Run(caller.Name, func(t *testing.T) {
			defer harness.Computes(t)()
			if caller.Sdk {
				caller = caller.Kept(t)
			}
			up := client.EraModern // the other one than the client's
			if caller.Modern {
				up = client.EraLegacy
			}
			_, url := upstreamtest.Start(t, upstreamtest.Script{Era: string(up), Tools: []json.RawMessage{
				[]byte(`{"name":"echo","description":"Says it again","inputSchema":{"type":"object"},` +
					`"annotations":{"readOnlyHint":true}}`)}})
			e := harness.MustProxy(t, map[string]upstream.Config{"up": {URL: url}},
				func(_ *front.Options, w *scope.Config, _ *upstream.Options) {
					w.Endpoints = map[string]scope.EndpointConfig{"few": {Catalog: "search"}}
				})
			few := strings.TrimSuffix(e.URL, "/mcp") + "/few/mcp"
			want := []string{"search_tools", "call_read_tool", "call_write_tool", "call_destructive_tool"}
			if got := caller.MustList(t, few); !slices.Equal(got.Tools, want) {
				t.Errorf("listed are %q, want %q", got.Tools, want)
			}
			found := caller.MustCall(t, few, "search_tools", `{"query":"say something again"}`).Text()
			if !strings.Contains(found, `{"call_with":"call_read_tool","definition":{"name":"up__echo"`) {
				t.Errorf("found is %s", found)
			}
			got := caller.MustCall(t, few, "call_read_tool", `{"name":"up__echo","arguments":{"x":1}}`)
			if !strings.Contains(got.Text(), `{"x":1}`) {
				t.Errorf("the call is answered %+v", got)
			}
		})
	}
}
