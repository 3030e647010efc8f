package protocol

import (
	"encoding/json"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// undeclared is a library that subscribes and completes, and declares neither.
func undeclared(name string) upstreamtest.Script {
	script := harness.Library(name)
	script.Capabilities = json.RawMessage(`{"tools":{"listChanged":true},"prompts":{},"resources":{"subscribe":false}}`)
	script.Completions = map[string]json.RawMessage{"p": []byte(`{"values":["yes"]}`)}
	return script
}

// TestUndeclaredMethodsReachLegacyServers: a client of the legacy era that asks for what no capability
// declares gets what the server answers, as it does without Junction. Junction declares no more than the
// server.
func TestUndeclaredMethodsReachLegacyServers(t *testing.T) {
	harness.Waits(t)
	const ref = `"ref":{"type":"ref/prompt","name":"up__p"},"argument":{"name":"a","value":""}`
	harness.EachTransport(t, client.EraLegacy, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		s, j := harness.Over(t, p, undeclared("up"), nil)
		s.Listened(t, p)
		c := j.Talk(t)
		updates := c.Get(t)
		c.Must(t, "resources/subscribe", `"uri":"mcp://up/file:///dir"`)
		s.Updated(t, "file:///dir")
		harness.WantNotes(t, updates, "resources/updated mcp://up/file:///dir")
		c.Must(t, "resources/unsubscribe", `"uri":"mcp://up/file:///dir"`)
		harness.Await(t, s.Journal, "unsubscription", upstreamtest.Method("resources/unsubscribe"))
		if got := string(c.Must(t, "completion/complete", ref)); !strings.Contains(got, `"yes"`) {
			t.Errorf("completion/complete = %s", got)
		}
		declared := string(c.Must(t, "initialize",
			`"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}`))
		if strings.Contains(declared, "subscribe") || strings.Contains(declared, "completions") {
			t.Errorf("Junction declares what the server does not: %s", declared)
		}
	})
	// A server without the methods says so itself.
	harness.EachTransport(t, client.EraLegacy, client.EraLegacy, func(t *testing.T, p harness.Pair) {
		script := harness.Library("up")
		script.NoSubscribe = true
		_, j := harness.Over(t, p, script, nil)
		c := j.Talk(t)
		harness.WantCode(t, c.Ask(t, "resources/subscribe", `"uri":"mcp://up/file:///dir"`), -32601)
		harness.WantCode(t, c.Ask(t, "completion/complete", ref), -32601)
	})
}

// TestUndeclaredMethodsAreUnknownInTheModernEra: there, a method whose capability is not declared does not
// exist, for clients and at servers.
func TestUndeclaredMethodsAreUnknownInTheModernEra(t *testing.T) {
	harness.Waits(t)
	const ref = `"ref":{"type":"ref/prompt","name":"up__p"},"argument":{"name":"a","value":""}`
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		if p.Client == client.EraLegacy && p.Upstream == client.EraLegacy {
			return
		}
		s, j := harness.Over(t, p, undeclared("up"), nil)
		c := j.Talk(t)
		harness.WantCode(t, c.Ask(t, "completion/complete", ref), -32601)
		if p.Client == client.EraLegacy {
			harness.WantCode(t, c.Ask(t, "resources/subscribe", `"uri":"mcp://up/file:///dir"`), -32601)
		} else if _, honoured := harness.Subscribe(t, c, `"s"`, `{"resourceSubscriptions":["mcp://up/file:///dir"]}`); honoured != "{}" {
			t.Errorf("acknowledged %s", honoured)
		}
		if n := len(s.RequestsOf(t, "completion/complete", 0)); n > 0 {
			t.Errorf("the server got %d requests to complete", n)
		}
	})
}

// TestDraftVersion: 2024-10-07, the draft of 2024-11-05, is a version of servers and of clients. A version
// that nobody knows is none.
func TestDraftVersion(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			_, j := harness.Over(t, p, upstreamtest.Script{Versions: []string{"2024-10-07"}}, nil)
			c := j.Talk(t)
			if got := string(c.Must(t, "tools/call", `"name":"up__echo","arguments":{"a":1}`)); !strings.Contains(got, `\"a\":1`) {
				t.Errorf("tools/call = %s", got)
			}
		})
	}
	t.Run("client", func(t *testing.T) {
		e := harness.MustProxy(t, nil)
		for offered, want := range map[string]string{"2024-10-07": "2024-10-07", "2024-10-08": "2025-11-25"} {
			a := harness.MustClient(t, e, client.EraLegacy).Post(t, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+
				offered+`","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
			if got := harness.Member(a.Message.Result, "protocolVersion"); got != `"`+want+`"` {
				t.Errorf("a client of %s gets the version %s", offered, got)
			}
		}
	})
}
