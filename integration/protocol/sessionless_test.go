package protocol

import (
	"net/http"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// Requests of legacy clients that send no Mcp-Session-Id, as scripts and some frameworks do.

// sessionless returns a legacy client that has not initialized.
func sessionless(t *testing.T, url string) *harness.Client {
	t.Helper()
	return harness.NewClient(t, &harness.Endpoint{URL: url}, client.EraLegacy)
}

// TestLegacyRequestsWithoutASession has a script call tools, with initialize and without it: it gets the
// answers, and no server request.
func TestLegacyRequestsWithoutASession(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, nil)
			c := sessionless(t, j.URL)
			for _, handshake := range []bool{false, true} {
				if handshake {
					c.MustInitialize(t, "2025-11-25")
					c.Session = "" // the script ignores the header
				}
				wantBody(t, c.CallID(t, `"p"`, "ping", ""), 200, `{"jsonrpc":"2.0","id":"p","result":{}}`)
				if a := c.Call(t, "tools/list", ""); a.Status != 200 || !strings.Contains(string(a.Body), `"up__echo"`) {
					t.Errorf("tools/list: %s", a)
				}
				for _, version := range append([]string{""}, harness.LegacyVersions...) {
					change := harness.With("Mcp-Protocol-Version", version)
					if version == "" {
						change = harness.Without("Mcp-Protocol-Version")
					}
					a := c.Tool(t, "up__echo", `{}`, change)
					if harness.WantEcho(t, a); a.Header.Get("Mcp-Session-Id") != "" {
						t.Errorf("the answer in version %q has a session: %v", version, a.Header)
					}
				}
				harness.WantEcho(t, c.Tool(t, "up__echo", `{}`, harness.With("Accept", "application/json")))
				for _, method := range []string{"initialized", "cancelled", "progress", "roots/list_changed"} {
					wantBody(t, c.Post(t, `{"jsonrpc":"2.0","method":"notifications/`+method+`"}`), 202, "")
				}
				a := c.Call(t, "tools/call", "{"+harness.Asking(harness.AskForm).Params+"}")
				if a.Status != 200 || strings.Contains(string(a.Body), harness.Accepted) ||
					strings.Contains(string(a.Body), `"method"`) {
					t.Errorf("a tool that asks is answered %s", a)
				}
			}
			harness.CallsOf(t, s.Journal, 1)
		})
	}
}

// TestWhatNeedsASession has a script without a session make the requests that change one, answer a
// server request and open a stream.
func TestWhatNeedsASession(t *testing.T) {
	harness.Waits(t)
	p := harness.Pair{Client: client.EraLegacy, Upstream: client.EraLegacy, Transport: "http"}
	_, j := harness.Over(t, p, harness.Library("a"), nil)
	c := sessionless(t, j.URL)
	for _, row := range []struct{ method, params string }{
		{"logging/setLevel", `{"level":"debug"}`},
		{"resources/subscribe", `{"uri":"file:///dir"}`},
		{"resources/unsubscribe", `{"uri":"file:///dir"}`},
	} {
		a := c.CallID(t, "1", row.method, row.params)
		wantError(t, a, 400, "1", -32600)
		if !strings.Contains(string(a.Body), row.method+" needs the header Mcp-Session-Id; send initialize first") {
			t.Errorf("%s: the error does not say what to do: %s", row.method, a)
		}
	}
	wantError(t, c.Post(t, `{"jsonrpc":"2.0","id":"junction-1","result":{}}`), 400, "", -32600)
	wantError(t, c.Post(t, `[{"jsonrpc":"2.0","id":1,"method":"ping"}]`), 400, "", -32600)
	for verb, want := range map[string]int{http.MethodGet: 405, http.MethodDelete: 400} {
		if got := c.MustDo(t, verb); got != want {
			t.Errorf("%s is answered %d, want %d", verb, got, want)
		}
	}
	wantError(t, c.CallID(t, "2", "unknown/x", ""), 200, "2", -32601)
}

// TestIsolatedSessionsNeedASession: with isolation: session, a call belongs to the process of its
// session, so a call without a session is refused and not made.
func TestIsolatedSessionsNeedASession(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraLegacy, up, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{},
				func(c *upstream.Config) { c.Isolation = upstream.IsolationSession })
			c := sessionless(t, j.URL)
			if a := c.Call(t, "tools/list", ""); a.Status != 200 || !strings.Contains(string(a.Body), `"up__echo"`) {
				t.Errorf("tools/list: %s", a)
			}
			a := c.CallID(t, "1", "tools/call", `{"name":"up__echo","arguments":{}}`)
			wantError(t, a, 400, "1", -32600)
			if !strings.Contains(string(a.Body), "isolation: session") {
				t.Errorf("the error does not name the setting: %s", a)
			}
			harness.WantUncalled(t, s.Journal, "tools/call")
			wantError(t, c.CallID(t, "2", "tools/call", `{"name":"up__none","arguments":{}}`), 200, "2", -32602)
		})
	}
}
