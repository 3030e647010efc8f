package protocol

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// The tests of this file are the assertions about eras, headers and versions, of which each has a
// number; some about the catalog and calls are in protocol_tools_test.go. All of them talk to the
// proxy as bytes on HTTP.

const (
	ownInfo         = `{"name":"junction","title":"Junction","version":"devel"}`
	ownMeta         = `{"io.modelcontextprotocol/serverInfo":` + ownInfo + `}`
	allVersions     = `["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`
	ownCapabilities = `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"listChanged":true}}`
	// beside them, for modern clients
	ownExtensions = `,"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["text/html;profile=mcp-app"]}}}`
)

// echoing is a proxy over one server, called up, whose tools are those of upstreamtest.
func echoing(t *testing.T, options ...harness.Option) (*harness.Endpoint, *upstreamtest.Journal) {
	t.Helper()
	config, journal := harness.Pair{Upstream: client.EraModern, Transport: "http"}.Start(t, upstreamtest.Script{})
	return harness.MustProxy(t, map[string]upstream.Config{"up": config}, options...), journal
}

// throughMode is a proxy over one server, called up, and a client of it, both as the mode says.
func throughMode(t *testing.T, m harness.Pair, script upstreamtest.Script) (*harness.Client, *upstreamtest.Journal) {
	t.Helper()
	config, journal := m.Start(t, script)
	return harness.MustClient(t, harness.MustProxy(t, map[string]upstream.Config{"up": config}), m.Client), journal
}

// wantBody compares an answer with what it should be, byte for byte.
func wantBody(t *testing.T, a harness.Answered, status int, body string) {
	t.Helper()
	if a.Status != status || string(a.Body) != body {
		t.Errorf("got  %s\nwant HTTP %d %s", a, status, body)
	}
}

// wantError wants an error as one JSON document. An id of "" must be left out.
func wantError(t *testing.T, a harness.Answered, status int, id string, code int64) {
	t.Helper()
	if a.Status != status || a.Message.Error == nil || a.Message.Error.Code != code || string(a.Message.ID) != id ||
		a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got  %s\nwant HTTP %d, id %s, code %d", a, status, id, code)
	}
	if _, err := raw.Get(a.Body, "id"); (id == "") != (err == raw.ErrAbsent) {
		t.Errorf("got %s, want an id only if there was one", a.Body)
	}
}

func TestDiscoverDescribesJunction(t *testing.T) {
	harness.Waits(t)
	c := harness.NewClient(t, harness.MustProxy(t, nil), client.EraModern)
	wantBody(t, c.CallID(t, `"d"`, "server/discover", ""), 200,
		`{"jsonrpc":"2.0","id":"d","result":{"supportedVersions":`+allVersions+
			`,"capabilities":`+strings.TrimSuffix(ownCapabilities, "}")+ownExtensions+
			`,"ttlMs":60000,"cacheScope":"public","resultType":"complete","_meta":`+ownMeta+`}}`)
}

func TestDiscoverWithoutClientInfo(t *testing.T) {
	harness.Waits(t)
	c := harness.NewClient(t, harness.MustProxy(t, nil), client.EraModern)
	want := c.CallID(t, "1", "server/discover", "")
	wantBody(t, c.CallID(t, "1", "server/discover",
		`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}`),
		200, string(want.Body))
}

func TestIncompleteMetaIsRejected(t *testing.T) {
	harness.Waits(t)
	c := harness.NewClient(t, harness.MustProxy(t, nil), client.EraModern)
	for name, params := range map[string]string{
		"no _meta":        `{"_meta":{}}`,
		"no version":      `{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}`,
		"no capabilities": `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`,
		"capabilities no object": `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientCapabilities":[]}}`,
		"version no string": `{"_meta":{"io.modelcontextprotocol/protocolVersion":20260728,` +
			`"io.modelcontextprotocol/clientCapabilities":{}}}`,
	} {
		t.Run(name, func(t *testing.T) { wantError(t, c.CallID(t, `"x"`, "tools/list", params), 400, `"x"`, -32602) })
	}
	for name, body := range map[string]string{
		"params empty": `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{}}`,
		"no params":    `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`,
	} {
		t.Run(name, func(t *testing.T) {
			wantError(t, c.Post(t, body, harness.With("Mcp-Protocol-Version", "2026-07-28"),
				harness.With("Mcp-Method", "tools/list")), 400, "7", -32602)
		})
	}
}

func TestVersionsOfHeaderAndMetaMustAgree(t *testing.T) {
	harness.Waits(t)
	c := harness.NewClient(t, harness.MustProxy(t, nil), client.EraModern)
	wantError(t, c.Call(t, "tools/list", `{"_meta":`+harness.MetaText("v999", "raw")+`}`), 400, "1", -32020)
}

func TestUnsupportedVersionIsRejected(t *testing.T) {
	harness.Waits(t)
	c := harness.NewClient(t, harness.MustProxy(t, nil), client.EraModern)
	a := c.Call(t, "tools/list", `{"_meta":`+harness.MetaText("v999.0.0", "raw")+`}`,
		harness.With("Mcp-Protocol-Version", "v999.0.0"))
	wantError(t, a, 400, "1", -32022)
	if data, err := raw.Get(a.Body, "error", "data"); err != nil ||
		string(data) != `{"supported":`+allVersions+`,"requested":"v999.0.0"}` {
		t.Errorf("got data %s, %v", data, err)
	}
	// A legacy version is supported, but not by a request that has no session.
	wantError(t, c.Call(t, "tools/list", `{"_meta":`+harness.MetaText("2025-11-25", "raw")+`}`,
		harness.With("Mcp-Protocol-Version", "2025-11-25")), 400, "2", -32022)
}

func TestVersionHeaderIsRequired(t *testing.T) {
	harness.Waits(t)
	c := harness.NewClient(t, harness.MustProxy(t, nil), client.EraModern)
	wantError(t, c.Call(t, "tools/list", "", harness.Without("Mcp-Protocol-Version")), 400, "1", -32020)
	wantError(t, c.Call(t, "tools/list", "", harness.With("Mcp-Protocol-Version", "2026-07-28", "2025-11-25")), 400, "2",
		-32020)
}

func TestMethodHeaderMustAgree(t *testing.T) {
	harness.Waits(t)
	e, journal := echoing(t)
	c := harness.NewClient(t, e, client.EraModern)
	for _, q := range []struct{ method, params string }{
		{"server/discover", ""}, {"tools/list", ""}, {"tools/call", `{"name":"up__echo","arguments":{}}`},
		{"subscriptions/listen", `{"notifications":{}}`},
	} {
		for name, ch := range map[string]harness.HeaderChange{
			"missing": harness.Without("Mcp-Method"), "different": harness.With("Mcp-Method", "ping"),
			"wrong case": harness.With("Mcp-Method", strings.ToUpper(q.method)),
			"empty":      harness.With("Mcp-Method", ""), "twice": harness.With("Mcp-Method", q.method, q.method),
		} {
			t.Run(q.method+" "+name,
				func(t *testing.T) { wantError(t, c.CallID(t, "1", q.method, q.params, ch), 400, "1", -32020) })
		}
	}
	harness.WantUncalled(t, journal, "tools/call")
}

func TestNameHeaderMustAgree(t *testing.T) {
	harness.Waits(t)
	e, journal := echoing(t)
	c := harness.NewClient(t, e, client.EraModern)
	for _, q := range []struct{ method, params string }{
		{"tools/call", `{"name":"up__echo","arguments":{}}`}, {"prompts/get", `{"name":"up__echo"}`},
		{"resources/read", `{"uri":"up__echo"}`},
	} {
		for name, ch := range map[string]harness.HeaderChange{
			"missing": harness.Without("Mcp-Name"), "different": harness.With("Mcp-Name", "up__fail"),
			"wrong case": harness.With("Mcp-Name", "up__Echo"),
			"empty":      harness.With("Mcp-Name", ""), "twice": harness.With("Mcp-Name", "up__echo", "up__echo"),
		} {
			t.Run(q.method+" "+name,
				func(t *testing.T) { wantError(t, c.CallID(t, "1", q.method, q.params, ch), 400, "1", -32020) })
		}
	}
	harness.WantUncalled(t, journal, "tools/call")
}

func TestHeadersInAnyCaseAndSpacing(t *testing.T) {
	harness.Waits(t)
	e, _ := echoing(t)
	c := harness.NewClient(t, e, client.EraModern)
	body, _ := c.Request("1", "tools/call", `{"name":"up__echo","arguments":{}}`)
	for name, head := range map[string]string{
		"lower":       "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: up__echo\r\n",
		"upper":       "MCP-PROTOCOL-VERSION: 2026-07-28\r\nMCP-METHOD: tools/call\r\nMCP-NAME: up__echo\r\n",
		"no space":    "Mcp-Protocol-Version:2026-07-28\r\nMcp-Method:tools/call\r\nMcp-Name:up__echo\r\n",
		"white space": "Mcp-Protocol-Version: \t 2026-07-28\t \r\nMcp-Method:  tools/call \r\nMcp-Name: \t up__echo \t\r\n",
	} {
		t.Run(name, func(t *testing.T) { harness.WantEcho(t, postText(t, e, head, body)) })
	}
}

// postText sends a request whose header is written by hand: net/http would tidy it up.
func postText(t *testing.T, e *harness.Endpoint, head, body string) harness.Answered {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	addr := strings.TrimSuffix(strings.TrimPrefix(e.URL, "http://"), "/mcp")
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	fmt.Fprintf(conn,
		"POST /mcp HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: "+
			"%d\r\n%s\r\n%s", addr, len(body), head, body)
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("read the response: %v", err)
	}
	defer r.Body.Close()
	a := harness.Answered{Status: r.StatusCode, Header: r.Header}
	if a.Body, err = io.ReadAll(r.Body); err != nil {
		t.Fatalf("read the response: %v", err)
	}
	a.Message, _ = jsonrpc.Parse(a.Body, raw.DefaultDepth) // what is no message shows in the comparison
	return a
}

func TestEncodedNameHeader(t *testing.T) {
	harness.Waits(t)
	e, journal := echoing(t)
	c := harness.NewClient(t, e, client.EraModern)
	wanted := 0 // calls that reach the server
	encoded := func(name string) string { return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(name)) + "?=" }
	const literal = "=?BASE64?dXBfX2VjaG8=?="
	for _, row := range []struct {
		what, name, header string
		status             int
		code               int64 // 0: the tool answers
	}{
		{"encoded", "up__echo", encoded("up__echo"), 200, 0},
		{"encoded UTF-8", "büro", encoded("büro"), 200, -32602}, // understood: the tool does not exist
		{"encoded, different", "up__echo", encoded("up__fail"), 400, -32020},
		{"bad Base64", "up__echo", "=?base64?dXBfX2VjaG8*?=", 400, -32020},
		{"upper case is literal", "up__echo", literal, 400, -32020},
		{"literal", literal, literal, 200, -32602},
	} {
		t.Run(row.what, func(t *testing.T) {
			a := c.CallID(t, "1", "tools/call", `{"name":`+string(raw.Quote(row.name))+`,"arguments":{}}`,
				harness.With("Mcp-Name", row.header))
			if row.code == 0 {
				wanted++
				harness.WantEcho(t, a)
			} else {
				wantError(t, a, row.status, "1", row.code)
			}
			got := 0
			for _, method := range journal.Methods() {
				if method == "tools/call" {
					got++
				}
			}
			if got != wanted {
				t.Errorf("the upstream received %d calls so far, want %d", got, wanted)
			}
		})
	}
}

func TestLegacyMethodsAreUnknownToModernClients(t *testing.T) {
	harness.Waits(t)
	c := harness.NewClient(t, harness.MustProxy(t, nil), client.EraModern)
	for i, method := range []string{"initialize", "ping", "logging/setLevel", "resources/subscribe",
		"resources/unsubscribe", "unknown/x", "tools/List"} {
		t.Run(method, func(t *testing.T) {
			id := fmt.Sprintf(`"id %d"`, i)
			a := c.CallID(t, id, method, "")
			wantBody(t, a, 404, `{"jsonrpc":"2.0","id":`+id+`,"error":{"code":-32601,"message":"Method not found: `+method+`"}}`)
			if s := a.Header.Get("Mcp-Session-Id"); s != "" {
				t.Errorf("got a session %s", s)
			}
		})
	}
}

func TestInitializeInEveryLegacyVersion(t *testing.T) {
	harness.Waits(t)
	c := harness.NewClient(t, harness.MustProxy(t, nil), client.EraLegacy)
	for _, version := range []string{"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"} {
		t.Run(version, func(t *testing.T) {
			wantSession(t, c.CallID(t, "0", "initialize", harness.InitializeParams(version, "raw")), version)
		})
	}
}

// wantSession wants the answer to an initialize whose id is 0.
func wantSession(t *testing.T, a harness.Answered, version string) {
	t.Helper()
	wantBody(t, a, 200, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"`+version+`","capabilities":`+
		ownCapabilities+`,"serverInfo":`+ownInfo+`}}`)
	id := a.Header.Get("Mcp-Session-Id")
	if id == "" || strings.ContainsFunc(id, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
		t.Errorf("got session id %q, want visible ASCII", id)
	}
}

func TestInitializeInAnotherVersion(t *testing.T) {
	harness.Waits(t)
	c := harness.NewClient(t, harness.MustProxy(t, nil), client.EraLegacy)
	for _, version := range []string{"2026-07-28", "1999-01-01", ""} {
		t.Run(version, func(t *testing.T) {
			wantSession(t, c.CallID(t, "0", "initialize", harness.InitializeParams(version, "raw")), "2025-11-25")
		})
	}
}

func TestUnknownSessionsAreNotFound(t *testing.T) {
	harness.Waits(t)
	c := harness.MustClient(t, harness.MustProxy(t, nil), client.EraLegacy)
	for _, method := range []string{"tools/list", "tools/call", "ping", "unknown/x"} {
		wantError(t, c.CallID(t, `"b"`, method, "", harness.With("Mcp-Session-Id", "junk")), 404, `"b"`, -32001)
		wantError(t, c.CallID(t, `"c"`, method, "", harness.With("Mcp-Session-Id", c.Session+"x")), 404, `"c"`, -32001)
	}
	wantBody(t, c.CallID(t, "1", "ping", ""), 200, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	if status := c.MustDo(t, http.MethodDelete); status/100 != 2 {
		t.Fatalf("DELETE: got %d, want success", status)
	}
	for _, method := range []string{"tools/list", "ping"} {
		wantError(t, c.CallID(t, "2", method, ""), 404, "2", -32001)
	}
	for _, verb := range []string{http.MethodDelete, http.MethodGet} {
		if status := c.MustDo(t, verb); status != 404 {
			t.Errorf("%s after DELETE: got %d, want 404", verb, status)
		}
	}
}

func TestLegacyVersionHeader(t *testing.T) {
	harness.Waits(t)
	c := harness.MustClient(t, harness.MustProxy(t, nil), client.EraLegacy)
	for _, version := range []string{"1900-01-01", "2026-07-29", "junk", ""} {
		wantError(t, c.CallID(t, "1", "tools/list", "", harness.With("Mcp-Protocol-Version", version)), 400, "1", -32600)
	}
	wantBody(t, c.CallID(t, "2", "ping", "", harness.Without("Mcp-Protocol-Version")), 200,
		`{"jsonrpc":"2.0","id":2,"result":{}}`)
}

func TestModernRequestsIgnoreSessions(t *testing.T) {
	harness.Waits(t)
	e, _ := echoing(t)
	c := harness.NewClient(t, e, client.EraModern)
	a := c.Tool(t, "up__echo", "{}", harness.With("Mcp-Session-Id", "junk"), harness.With("Last-Event-ID", "1"))
	harness.WantEcho(t, a)
	if v, ok := a.Header["Mcp-Session-Id"]; ok {
		t.Errorf("got Mcp-Session-Id %q, want none", v)
	}
}

func TestBothErasOnOneConnection(t *testing.T) {
	harness.Waits(t)
	e, _ := echoing(t)
	var dials atomic.Int32
	transport := &http.Transport{MaxConnsPerHost: 1,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		}}
	defer transport.CloseIdleConnections()
	legacy, modern := harness.NewClient(t, e, client.EraLegacy), harness.NewClient(t, e, client.EraModern)
	legacy.HTTP, modern.HTTP = &http.Client{Transport: transport}, &http.Client{Transport: transport}
	legacy.MustInitialize(t, "2025-11-25")
	for range 3 {
		m, l := modern.CallID(t, "1", "tools/list", ""), legacy.CallID(t, "1", "tools/list", "")
		if _, err := raw.Get(m.Message.Result, "resultType"); m.Status != 200 || err != nil {
			t.Errorf("modern: got %.300s, %v", m, err)
		}
		if _, err := raw.Get(l.Message.Result, "resultType"); l.Status != 200 || l.Message.Result == nil ||
			err != raw.ErrAbsent {
			t.Errorf("legacy: got %.300s, %v", l, err)
		}
		harness.WantEcho(t, modern.Tool(t, "up__echo", "{}"))
		harness.WantEcho(t, legacy.Tool(t, "up__echo", "{}"))
		wantError(t, modern.CallID(t, "1", "ping", ""), 404, "1", -32601)
		wantBody(t, legacy.CallID(t, "1", "ping", ""), 200, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("the requests went over %d connections, want 1", n)
	}
}

func TestBatches(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, m harness.Pair) {
		if m.Client == client.EraModern {
			t.Skip("2025-03-26 alone has batches")
		}
		config, _ := m.Start(t, upstreamtest.Script{})
		c := harness.NewClient(t, harness.MustProxy(t, map[string]upstream.Config{"up": config}), m.Client)
		c.MustInitialize(t, "2025-03-26")
		wantBody(t, c.Post(t,
			` [{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__echo","arguments":{"result":{"content":[],`+
				`"n":1.0}}}},`+
				`{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":"1","method":"ping"},`+
				`{"jsonrpc":"2.0","id":2,"method":"unknown/x"},{"jsonrpc":"2.0","id":null,"method":"ping"}]`), 200,
			`[{"jsonrpc":"2.0","id":1,"result":{"content":[],"n":1.0}},{"jsonrpc":"2.0","id":"1","result":{}},`+
				`{"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"Method not found: unknown/x"}},`+
				string(jsonrpc.AppendError(nil, "", batchNullID(t, c)))+`]`)
		wantBody(t, c.Post(t, `[{"jsonrpc":"2.0","method":"notifications/initialized"}]`), 202, "")
		wantError(t, c.Post(t, `[]`), 400, "", -32600)
		wantError(t, c.Post(t, `[{"jsonrpc":"2.0","id":1,"method":"ping"}`), 400, "", -32700)
	})
}

// batchNullID returns the error of a message whose id is null, as it is outside of a batch.
func batchNullID(t *testing.T, c *harness.Client) *jsonrpc.Error {
	t.Helper()
	a := c.Post(t, `{"jsonrpc":"2.0","id":null,"method":"ping"}`)
	wantError(t, a, 400, "", -32600)
	if a.Message.Error == nil {
		t.FailNow()
	}
	return a.Message.Error
}

func TestBatchesOfOtherVersionsAreRefused(t *testing.T) {
	harness.Waits(t)
	e := harness.MustProxy(t, nil)
	const batch = `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`
	for _, version := range []string{"2024-11-05", "2025-06-18", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			c := harness.NewClient(t, e, client.EraLegacy)
			c.MustInitialize(t, version)
			wantError(t, c.Post(t, batch), 400, "", -32600)
		})
	}
	t.Run("no session", func(t *testing.T) {
		wantError(t, harness.NewClient(t, e, client.EraLegacy).Post(t, batch), 400, "", -32600)
	})
	t.Run("modern", func(t *testing.T) {
		c := harness.NewClient(t, e, client.EraModern)
		text, _ := c.Request("1", "tools/list", "")
		wantError(t, c.Post(t, "["+text+"]", harness.With("Mcp-Protocol-Version", "2026-07-28"),
			harness.With("Mcp-Method", "tools/list")), 400, "", -32600)
	})
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	harness.Waits(t)
	e := harness.MustProxy(t, nil)
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		c := harness.MustClient(t, e, era)
		var own []harness.HeaderChange
		if era == client.EraModern {
			own = []harness.HeaderChange{harness.With("Mcp-Protocol-Version", "2026-07-28"),
				harness.With("Mcp-Method", "tools/list")}
		}
		for _, row := range []struct {
			body, id string
			code     int64
		}{
			{``, "", -32700}, {`{`, "", -32700}, {`{"jsonrpc":"2.0","id":1,"method":"tools/list"`, "", -32700},
			{`nonsense`, "", -32700},
			{`{"jsonrpc":"2.0","id":1,"method":"tools/list"} x`, "", -32700}, {"\ufeff{}", "", -32600}, {"\ufeff\ufeff{}", "", -32700},
			{`"text"`, "", -32600}, {`7`, "", -32600},
			{`{"jsonrpc":"2.0","id":null,"method":"tools/list"}`, "", -32600},
			{`{"jsonrpc":"2.0","id":{},"method":"tools/list"}`, "", -32600},
			{`{"jsonrpc":"2.0","id":true,"method":"tools/list"}`, "", -32600}, {`{"jsonrpc":"2.0","id":1}`, "1", -32600},
			{`{"jsonrpc":"1.0","id":1,"method":"tools/list"}`, "1", -32600}, {`{"id":1,"method":"tools/list"}`, "1", -32600},
			{`{"jsonrpc":"2.0","id":1,"method":7}`, "1", -32600},
			{`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":[1]}`, "1", -32600},
		} {
			t.Run(row.body, func(t *testing.T) { wantError(t, c.Post(t, row.body, own...), 400, row.id, row.code) })
		}
	})
}

func TestAmbiguousMembersAreRefused(t *testing.T) {
	harness.Waits(t)
	e, journal := echoing(t)
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		c := harness.MustClient(t, e, era)
		const echo = `"name":"up__echo","arguments":{}`
		good, own := c.Request("1", "tools/call", `{`+echo+`}`)
		for _, row := range []struct{ what, old, new string }{
			{"name twice", `"name":"up__echo"`, `"name":"up__echo","name":"up__fail"`},
			{"Name first", `"name":"up__echo"`, `"Name":"up__fail","name":"up__echo"`},
			{"NAME last", echo, echo + `,"NAME":"up__fail"`},
			{"escaped name", echo, echo + `,"n\u0061me":"up__fail"`},
			{"only Name", `"name":"up__echo"`, `"Name":"up__echo"`},
			{"method twice", `"method":"tools/call"`, `"method":"tools/call","method":"ping"`},
			{"Method", `"method":"tools/call"`, `"method":"tools/call","Method":"ping"`},
			{"id twice", `"id":1`, `"id":1,"id":2`},
			{"params twice", `"params":`, `"params":{},"params":`},
			{"Params", `"params":`, `"Params":{},"params":`},
		} {
			t.Run(row.what, func(t *testing.T) {
				body := strings.Replace(good, row.old, row.new, 1)
				if body == good {
					t.Fatal("the row changes nothing")
				}
				if a := c.Post(t, body, own...); a.Status != 400 || a.Message.Error == nil || a.Message.Error.Code != -32600 {
					t.Errorf("%s: got %s, want HTTP 400, code -32600", body, a)
				}
			})
		}
	})
	harness.WantUncalled(t, journal, "tools/call")
}

func TestAmbiguousArgumentsAreForwarded(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, m harness.Pair) {
		c, journal := throughMode(t, m, upstreamtest.Script{})
		const arguments = `{"a":1,"A":2.0,"a":12345678901234567890,"n\u0061me":"x","name":{ },"":null}`
		if a := c.Tool(t, "up__echo", arguments); a.Message.Result == nil {
			t.Fatalf("got %s, want a result", a)
		}
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		r, err := journal.Await(ctx, upstreamtest.Method("tools/call"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := raw.Get(r.Message.Params, "arguments"); err != nil || string(got) != arguments {
			t.Errorf("the upstream received %s (%v), want %s", got, err, arguments)
		}
	})
}

func TestOriginAndHostAreChecked(t *testing.T) {
	harness.Waits(t)
	allowed := []string{"http://localhost:3000", "http://127.0.0.1", "https://[::1]:8443"}
	e := harness.MustProxy(t, nil, harness.Allowing(allowed))
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		c := harness.MustClient(t, e, era)
		body, own := c.Request("1", "tools/list", "")
		for _, verb := range []string{http.MethodPost, http.MethodGet, http.MethodDelete, http.MethodOptions} {
			for what, ch := range map[string]harness.HeaderChange{
				"evil":       harness.With("Origin", "http://evil.example"),
				"opaque":     harness.With("Origin", "null"),
				"empty":      harness.With("Origin", ""),
				"looks like": harness.With("Origin", "http://localhost.evil.example"),
				"user":       harness.With("Origin", "http://localhost@evil.example"),
				"two":        harness.With("Origin", "http://localhost", "http://evil.example"),
				"host":       harness.With("Host", "evil.example"),
				"host port":  harness.With("Host", "evil.example:80"),
				"no port":    harness.With("Host", "127.0.0.1:80.evil.example"),
				"no port 6":  harness.With("Host", "[::1]:80.evil.example"),
				"rebound": func(h http.Header) {
					h["Origin"], h["Host"] = []string{"http://evil.example"}, []string{"evil.example"}
				},
			} {
				t.Run(verb+" "+what, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
					defer cancel()
					text := ""
					if verb == http.MethodPost {
						text = body
					}
					r, err := c.Send(ctx, verb, text, append(own[:len(own):len(own)], ch)...)
					if err != nil {
						t.Fatal(err)
					}
					r.Body.Close()
					if r.StatusCode != 403 || r.Header.Get("Access-Control-Allow-Origin") != "" {
						t.Errorf("got HTTP %d, %v, want 403", r.StatusCode, r.Header)
					}
				})
			}
		}
		for _, origin := range append([]string{""}, allowed...) {
			var changes []harness.HeaderChange
			if origin != "" {
				changes = append(changes, harness.With("Origin", origin))
			}
			a := c.Call(t, "tools/list", "", changes...)
			if got := a.Header.Get("Access-Control-Allow-Origin"); a.Message.Result == nil || got != origin {
				t.Errorf("Origin %q: got %s, Access-Control-Allow-Origin %q", origin, a, got)
			}
		}
		c.MustOpen(t, harness.With("Origin", "http://localhost:3000"))
	})
}

func TestNotificationsAreAccepted(t *testing.T) {
	harness.Waits(t)
	e := harness.MustProxy(t, nil)
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		c := harness.MustClient(t, e, era)
		params := ""
		if era == client.EraModern {
			params = `,"params":{"_meta":` + harness.MetaText("2026-07-28", "raw") + `}`
		}
		for _, method := range []string{"notifications/initialized", "notifications/cancelled", "notifications/unknown"} {
			body := `{"jsonrpc":"2.0","method":"` + method + `"` + params + `}`
			wantBody(t, c.Post(t, body), 202, "") // has neither Mcp-Method nor, of the modern client, a version header
			wantBody(t, c.Post(t, body, harness.With("Mcp-Method", method)), 202, "")
		}
	})
	t.Run("by header", func(t *testing.T) {
		c := harness.NewClient(t, e, client.EraModern)
		wantBody(t, c.Post(t, `{"jsonrpc":"2.0","method":"notifications/unknown"}`,
			harness.With("Mcp-Protocol-Version", "2026-07-28")), 202, "")
	})
}

func TestGETNeedsALegacySession(t *testing.T) {
	harness.Waits(t)
	e := harness.MustProxy(t, nil)
	legacy, modern := harness.MustClient(t, e, client.EraLegacy), harness.NewClient(t, e, client.EraModern)
	legacy.MustOpen(t)
	for _, row := range []struct {
		what    string
		client  *harness.Client
		changes []harness.HeaderChange
		status  int
	}{
		{"no session", legacy, []harness.HeaderChange{harness.Without("Mcp-Session-Id")}, 405},
		{"unknown session", legacy, []harness.HeaderChange{harness.With("Mcp-Session-Id", "junk")}, 404},
		{"does not accept a stream", legacy, []harness.HeaderChange{harness.With("Accept", "application/json")}, 406},
		{"nothing at all", modern, nil, 405},
		{"modern", modern, []harness.HeaderChange{harness.With("Mcp-Protocol-Version", "2026-07-28"),
			harness.With("Mcp-Method", "subscriptions/listen")}, 405},
		{"modern with Last-Event-ID", modern,
			[]harness.HeaderChange{harness.With("Mcp-Protocol-Version", "2026-07-28"), harness.With("Last-Event-ID", "1")}, 405},
	} {
		t.Run(row.what, func(t *testing.T) {
			if got := row.client.MustDo(t, http.MethodGet, row.changes...); got != row.status {
				t.Errorf("got %d, want %d", got, row.status)
			}
		})
	}
}
