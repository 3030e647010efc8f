package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"junction/upstream"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// These are two tools as a server lists them, and as clients should read them.
const (
	oddTool  = `{"inputSchema":{"x":1.0,"type":"object"},"title":"\u00e9\/","name":"odd","future":[12345678901234567890]}`
	oddSeen  = `{"inputSchema":{"x":1.0,"type":"object"},"title":"\u00e9\/","name":"up__odd","future":[12345678901234567890]}`
	evenTool = `{"name":"even","inputSchema":{"type":"object"}}`
	evenSeen = `{"name":"up__even","inputSchema":{"type":"object"}}`
)

func TestProtocolT36ListsAreAlikeInBothEras(t *testing.T) {
	run(t, func(t *testing.T, m mode) {
		config, _ := m.start(t, upstreamtest.Script{Tools: toolTexts(oddTool, evenTool)})
		e := mustProxy(t, map[string]upstream.Config{"up": config})
		want := `{"jsonrpc":"2.0","id":"l","result":{"tools":[` + oddSeen + `,` + evenSeen + `]`
		if m.client == upstream.EraModern {
			want += `,"ttlMs":0,"cacheScope":"private","resultType":"complete","_meta":` + ownMeta
		}
		for range 2 { // each with a connection, and where there are any a session, of its own
			c := mustClient(t, e, m.client)
			for range 2 {
				wantBody(t, c.callID(t, `"l"`, "tools/list", ""), 200, want+"}}")
			}
		}
	})
}

func toolTexts(texts ...string) (list []json.RawMessage) {
	for _, text := range texts {
		list = append(list, json.RawMessage(text))
	}
	return list
}

func TestProtocolT38ViewsDoNotDependOnTheClientsName(t *testing.T) {
	e, _ := echoing(t)
	runClients(t, func(t *testing.T, era upstream.Era) {
		var first []byte
		for _, name := range []string{"raw", "claude-code", "Cursor", "admin", ""} {
			c := newClient(t, e, era)
			c.name = name
			if era == upstream.EraLegacy {
				c.mustInitialize(t, "2025-11-25")
			}
			a := c.callID(t, "1", "tools/list", "")
			if first == nil {
				first = a.body
			}
			if a.status != 200 || a.message.Result == nil || !bytes.Equal(a.body, first) {
				t.Errorf("%q: got  %s\nwant %s", name, a, first)
			}
			wantEcho(t, c.tool(t, "up__echo", "{}"))
		}
	})
}

func TestProtocolT41WhatIsNotOfferedIsNoMethod(t *testing.T) {
	e, journal := echoing(t)
	runClients(t, func(t *testing.T, era upstream.Era) {
		c := mustClient(t, e, era)
		status := 200
		if era == upstream.EraModern {
			status = 404
		}
		for _, q := range []struct{ method, params string }{
			{"resources/subscribe", `{"uri":"file:///x"}`}, {"resources/unsubscribe", `{"uri":"file:///x"}`},
			{"completion/complete", `{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":""}}`},
			{"tasks/list", "{}"},
		} {
			t.Run(q.method, func(t *testing.T) {
				wantError(t, c.callID(t, `"m"`, q.method, q.params), status, `"m"`, -32601)
				wantUncalled(t, journal, q.method)
			})
		}
	})
}

func TestProtocolT65UnknownTool(t *testing.T) {
	run(t, func(t *testing.T, m mode) {
		c, journal := throughMode(t, m, upstreamtest.Script{})
		for i, name := range []string{"up__nope", "nope", "UP__echo", "up__", ""} {
			wantBody(t, c.callID(t, fmt.Sprint(i), "tools/call", `{"name":"`+name+`","arguments":{}}`), 200,
				fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,"message":"Unknown tool: %s"}}`, i, name))
		}
		c.tool(t, "up__echo", `{"last":1}`)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
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

func TestProtocolT66AnErrorOfTheToolIsAResult(t *testing.T) {
	run(t, func(t *testing.T, m mode) {
		c, _ := throughMode(t, m, upstreamtest.Script{})
		const result = `{"isError":true, "content":[{"type":"text","text":"\u00e9 broke"}],"x":1.0`
		want := result
		if m.client == upstream.EraModern {
			want += `,"resultType":"complete","_meta":` + ownMeta
		}
		wantBody(t, c.callID(t, `"e"`, "tools/call", `{"name":"up__echo","arguments":{"result":`+result+`}}}`), 200,
			`{"jsonrpc":"2.0","id":"e","result":`+want+`}}`)
	})
}
