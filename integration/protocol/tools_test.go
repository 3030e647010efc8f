package protocol

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// These are two tools as a server lists them, and as clients should read them.
const (
	oddTool = `{"inputSchema":{"x":1.0,"type":"object"},"title":"\u00e9\/","name":"odd","future":[12345678901234567890]}`
	oddSeen = `{"inputSchema":{"x":1.0,"type":"object"},"title":"\u00e9\/","name":"up__odd",` +
		`"future":[12345678901234567890]}`
	evenTool = `{"name":"even","inputSchema":{"type":"object"}}`
	evenSeen = `{"name":"up__even","inputSchema":{"type":"object"}}`
)

func TestListsAreAlikeInBothEras(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, m harness.Pair) {
		config, _ := m.Start(t, upstreamtest.Script{Tools: harness.ToolTexts(oddTool, evenTool)})
		e := harness.MustProxy(t, map[string]upstream.Config{"up": config})
		want := `{"jsonrpc":"2.0","id":"l","result":{"tools":[` + oddSeen + `,` + evenSeen + `]`
		if m.Client == client.EraModern {
			want += `,"ttlMs":600000,"cacheScope":"private","resultType":"complete","_meta":` + ownMeta
		}
		for range 2 { // each with a connection, and where there are any a session, of its own
			c := harness.MustClient(t, e, m.Client)
			for range 2 {
				wantBody(t, c.CallID(t, `"l"`, "tools/list", ""), 200, want+"}}")
			}
		}
	})
}

func TestListsDoNotDependOnTheClientName(t *testing.T) {
	harness.Waits(t)
	e, _ := echoing(t)
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		var first []byte
		for _, name := range []string{"raw", "claude-code", "Cursor", "admin", ""} {
			c := harness.NewClient(t, e, era)
			c.Name = name
			if era == client.EraLegacy {
				c.MustInitialize(t, "2025-11-25")
			}
			a := c.CallID(t, "1", "tools/list", "")
			if first == nil {
				first = a.Body
			}
			if a.Status != 200 || a.Message.Result == nil || !bytes.Equal(a.Body, first) {
				t.Errorf("%q: got  %s\nwant %s", name, a, first)
			}
			harness.WantEcho(t, c.Tool(t, "up__echo", "{}"))
		}
	})
}

func TestUnofferedMethodsAreUnknown(t *testing.T) {
	harness.Waits(t)
	e, journal := echoing(t)
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		c := harness.MustClient(t, e, era)
		status := 200
		if era == client.EraModern {
			status = 404
		}
		for _, q := range []struct{ method, params string }{
			{"resources/subscribe", `{"uri":"file:///x"}`}, {"resources/unsubscribe", `{"uri":"file:///x"}`},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":""}}`},
			{"tasks/list", "{}"},
		} {
			t.Run(q.method, func(t *testing.T) {
				wantError(t, c.CallID(t, `"m"`, q.method, q.params), status, `"m"`, -32601)
				harness.WantUncalled(t, journal, q.method)
			})
		}
	})
}

func TestUnknownTool(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, m harness.Pair) {
		c, journal := throughMode(t, m, upstreamtest.Script{})
		for i, name := range []string{"up__nope", "nope", "UP__echo", "up__", ""} {
			wantBody(t, c.CallID(t, fmt.Sprint(i), "tools/call", `{"name":"`+name+`","arguments":{}}`), 200,
				fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,"message":"Unknown tool: %s"}}`, i, name))
		}
		c.Tool(t, "up__echo", `{"last":1}`)
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		defer cancel()
		r, err := journal.Await(ctx, upstreamtest.Method("tools/call"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := raw.Get(r.Message.Params, "arguments"); err != nil || string(got) != `{"last":1}` {
			t.Errorf("the first call that the upstream received is %s", r.Body)
		}
	})
}

func TestToolErrorIsAResult(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, m harness.Pair) {
		c, _ := throughMode(t, m, upstreamtest.Script{})
		const result = `{"isError":true, "content":[{"type":"text","text":"\u00e9 broke"}],"x":1.0`
		want := result
		if m.Client == client.EraModern {
			want += `,"resultType":"complete","_meta":` + ownMeta
		}
		wantBody(t, c.CallID(t, `"e"`, "tools/call", `{"name":"up__echo","arguments":{"result":`+result+`}}}`), 200,
			`{"jsonrpc":"2.0","id":"e","result":`+want+`}}`)
	})
}
