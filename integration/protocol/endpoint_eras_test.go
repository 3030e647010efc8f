package protocol

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// Endpoints of one era (eras). Some clients send the header of one era with a body of the other.

// The members of _meta that make a body one of the modern era, and what some clients send of them.
const (
	modernMeta  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	versionMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	olderMeta   = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}`
	wrongMeta   = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2999-01-01","io.modelcontextprotocol/clientCapabilities":{}}`
	older       = "2025-11-25"
	newest      = "2026-07-28"
)

// eraRequest is a request to one of the endpoints, and its answer.
type eraRequest struct {
	name, version, method, params string
	header                        []string // name, value
	status                        int
	want                          string // of the body
}

// initializeParams are those of a legacy client.
const initializeParams = `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}`

var (
	regionTool = harness.ToolWithProperties("echo", `{"region":{"type":"string","x-mcp-header":"Region"}}`)
	callEcho   = `"name":"up__echo","arguments":{"region":"north"}`
)

// ofEndpoints are the requests by endpoint. Each row is one kind of mixture, or a request of one
// era.
var ofEndpoints = map[string][]eraRequest{
	"old": {
		{name: "initialize with the header of the modern era", version: newest, method: "initialize", params: initializeParams, status: 200, want: `"protocolVersion":"2025-11-25"`},
		{name: "initialize with _meta of the modern era", version: newest, method: "initialize", params: initializeParams + "," + modernMeta, status: 200, want: `"protocolVersion":"2025-11-25"`},
		{name: "a list with the header of the modern era", version: newest, method: "tools/list", status: 200, want: `"up__echo"`},
		{name: "a list with a body of the modern era", version: older, method: "tools/list", params: modernMeta, status: 200, want: `"up__echo"`},
		{name: "a list with a body of the modern era and no header", method: "tools/list", params: modernMeta, status: 200, want: `"up__echo"`},
		{name: "a call with the header of the modern era", version: newest, method: "tools/call", params: callEcho, status: 200, want: "north"},
		{name: "a call with a body of the modern era", version: older, method: "tools/call", params: callEcho + "," + modernMeta, status: 200, want: "north"},
		{name: "a request of the modern era", version: newest, method: "server/discover", params: modernMeta, header: []string{"Mcp-Method", "server/discover"}, status: 400, want: "eras: legacy"},
		{name: "a list of the modern era", version: newest, method: "tools/list", params: modernMeta, header: []string{"Mcp-Method", "tools/list"}, status: 400, want: `"code":-32600`},
		{name: "an unknown version", version: "2999-01-01", method: "tools/list", status: 400, want: `"code":-32600`},
		{name: "two versions in headers", header: []string{"Mcp-Protocol-Version", newest, "Mcp-Protocol-Version", older}, method: "tools/list", status: 400, want: `"code":-32600`},
	},
	"new": {
		{name: "a list with the header of the legacy era", version: older, method: "tools/list", params: modernMeta, status: 200, want: `"resultType":"complete"`},
		{name: "a list without a header", method: "tools/list", params: modernMeta, status: 200, want: `"resultType":"complete"`},
		{name: "a list with a body of the legacy era", version: newest, method: "tools/list", status: 200, want: `"resultType":"complete"`},
		{name: "a list without capabilities", version: older, method: "tools/list", params: versionMeta, status: 200, want: `"resultType":"complete"`},
		{name: "a list whose body has an older version", version: newest, method: "tools/list", params: olderMeta, status: 200, want: `"resultType":"complete"`},
		{name: "a call with the header of the legacy era", version: older, method: "tools/call", params: callEcho + "," + modernMeta, status: 200, want: "north"},
		{name: "a call with a body of the legacy era", version: newest, method: "tools/call", params: callEcho, status: 200, want: "north"},
		{name: "the versions", version: older, method: "server/discover", params: modernMeta, status: 200, want: `"supportedVersions":["2026-07-28"]`},
		{name: "another name in the header", version: older, method: "tools/call", params: callEcho + "," + modernMeta, header: []string{"Mcp-Name", "other"}, status: 400, want: `"code":-32020`},
		{name: "another argument in the header", version: older, method: "tools/call", params: callEcho + "," + modernMeta, header: []string{"Mcp-Param-Region", "south"}, status: 400, want: `"code":-32020`},
		{name: "a call without the headers of the modern era", version: newest, method: "tools/call", params: callEcho + "," + modernMeta, status: 400, want: `"code":-32020`},
		{name: "another version in the header", version: "2999-01-01", method: "tools/list", params: modernMeta, status: 400, want: `"code":-32020`},
		{name: "two versions in headers", header: []string{"Mcp-Protocol-Version", older, "Mcp-Protocol-Version", newest}, method: "tools/list", params: modernMeta, status: 400, want: `"code":-32020`},
		{name: "two versions in headers, the other way round", header: []string{"Mcp-Protocol-Version", newest, "Mcp-Protocol-Version", older}, method: "tools/list", status: 400, want: `"code":-32602`},
		{name: "two versions in one header", header: []string{"Mcp-Protocol-Version", older + ", " + newest}, method: "tools/list", params: modernMeta, status: 400, want: `"code":-32020`},
		{name: "an unknown version", version: newest, method: "tools/list", params: wrongMeta, status: 400, want: `"code":-32020`},
		{name: "initialize", method: "initialize", params: initializeParams, status: 400, want: `"supported":["2026-07-28"],"requested":"2025-11-25"`},
		{name: "a list of the legacy era", version: older, method: "tools/list", status: 400, want: `"code":-32022`},
	},
	"": { // without eras, a mixture is refused, as the specification orders
		{name: "a list with the header of the legacy era", version: older, method: "tools/list", params: modernMeta, status: 400, want: `"code":-32020`},
		{name: "the hint of a mixture", version: older, method: "tools/list", params: modernMeta, status: 400, want: "set eras for an endpoint of its own"},
		{name: "a list with a body of the legacy era", version: newest, method: "tools/list", status: 400, want: `"code":-32602`},
		{name: "the hint of a legacy body", version: newest, method: "tools/list", status: 400, want: "set eras for an endpoint of its own"},
	},
}

// TestEndpointsOfOneEra has clients that mix the eras, and clients of each era, at endpoints of
// each.
func TestEndpointsOfOneEra(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{Tools: []json.RawMessage{regionTool}})
			j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
				Endpoints: map[string]scope.EndpointConfig{"old": {Eras: scope.ErasLegacy}, "new": {Eras: scope.ErasModern}}})
			j.Offers(t, "up")
			for endpoint, requests := range ofEndpoints {
				for _, q := range requests {
					status, body := ask(t, endpointURL(j.URL, endpoint), "POST", q)
					if status != q.status || !strings.Contains(body, q.want) {
						t.Errorf("%s: %s is answered %d %s, want %d with %s", endpoint, q.name, status, body, q.status, q.want)
					}
				}
			}
		})
	}
}

// TestMethodsOfHTTPAtAModernEndpoint: it has no sessions, so no stream and nothing to delete; and
// no batches.
func TestMethodsOfHTTPAtAModernEndpoint(t *testing.T) {
	harness.Waits(t)
	p := harness.Pair{Client: client.EraLegacy, Upstream: client.EraLegacy, Transport: "http"}
	s := p.Serve(t, upstreamtest.Script{})
	j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
		Endpoints: map[string]scope.EndpointConfig{"new": {Eras: scope.ErasModern}}})
	j.Offers(t, "up")
	c := harness.TalkAs(t, j.URL, client.EraLegacy, "2025-03-26", "{}")
	own := http.Header{}
	c.Own(own)
	session := []string{"Mcp-Session-Id", own.Get("Mcp-Session-Id")}
	for _, method := range []string{"GET", "DELETE"} {
		if status, body := ask(t, endpointURL(j.URL, "new"), method, eraRequest{header: session}); status != 405 {
			t.Errorf("%s is answered %d %s", method, status, body)
		}
	}
	batch := `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`
	if status, body := send(t, endpointURL(j.URL, "new"), "POST", batch, append(session, "Mcp-Protocol-Version", "2025-03-26")); status != 400 {
		t.Errorf("a batch is answered %d %s", status, body)
	}
	if status, body := send(t, j.URL, "POST", batch, append(session, "Mcp-Protocol-Version", "2025-03-26")); status != 200 {
		t.Errorf("at the other endpoint, a batch is answered %d %s", status, body)
	}
}

// TestAMixedSession: a hosted client has a session at an endpoint of the legacy era, and sends the
// header of the modern era with each request.
func TestAMixedSession(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
				Endpoints: map[string]scope.EndpointConfig{"old": {Eras: scope.ErasLegacy}}})
			j.Offers(t, "up")
			c := harness.Talk(t, endpointURL(j.URL, "old"), client.EraLegacy)
			q := harness.Asking(harness.AskForm)
			q.Header = http.Header{"Mcp-Protocol-Version": {newest}}
			q.Meta = strings.TrimSuffix(strings.TrimPrefix(modernMeta, `"_meta":{`), "}")
			m, asked := c.Converse(t, q, harness.AnswersTo)
			if got := harness.AnswersOf(t, m); len(asked) != 1 || got != `[{`+harness.Accepted+`}]` {
				t.Errorf("asked %d times, and the upstream was answered %s", len(asked), got)
			}
		})
	}
}

// TestAMixedReturn: a client at an endpoint of the modern era sends the header of the legacy era with each
// request, also with the one that returns to a call which waits for its answer.
func TestAMixedReturn(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			s := p.Serve(t, upstreamtest.Script{})
			j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
				Endpoints: map[string]scope.EndpointConfig{"new": {Eras: scope.ErasModern}}})
			j.Offers(t, "up")
			c := harness.Talk(t, endpointURL(j.URL, "new"), client.EraModern)
			q := harness.Asking(harness.AskForm)
			q.Header = http.Header{"Mcp-Protocol-Version": {older}}
			m, asked := c.Converse(t, q, harness.AnswersTo)
			if got := harness.AnswersOf(t, m); len(asked) != 1 || got != `[{`+harness.Accepted+`}]` {
				t.Errorf("asked %d times, and the upstream was answered %s", len(asked), got)
			}
		})
	}
}

// endpointURL returns the URL of an endpoint of the file; that of the merged one for "".
func endpointURL(url, endpoint string) string {
	if endpoint == "" {
		return url
	}
	return strings.TrimSuffix(url, "/mcp") + "/" + endpoint + "/mcp"
}

// ask sends a request, and returns the status and the body of its answer.
func ask(t *testing.T, url, method string, q eraRequest) (int, string) {
	t.Helper()
	header := slices.Clone(q.header)
	if q.version != "" {
		header = append(header, "Mcp-Protocol-Version", q.version)
	}
	return send(t, url, method, `{"jsonrpc":"2.0","id":1,"method":"`+q.method+`","params":{`+q.params+`}}`, header)
}

func send(t *testing.T, url, method, body string, header []string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(harness.Patient(t), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
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
