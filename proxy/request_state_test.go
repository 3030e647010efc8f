package proxy

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth"
	"junction/proxy/sealed"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// TestRequestStateIsForOneRequest opens a state that Junction has sealed: by the same request, and by
// others.
func TestRequestStateIsForOneRequest(t *testing.T) {
	for _, row := range []struct {
		name   string
		params string // of the second request, without the state
		change func(x *Exchange)
		wait   time.Duration
		ok     bool
	}{
		{"the same request", `{"name":"up__tool0","arguments":{"a":1}}`, nil, 0, true},
		{"another spelling", `{ "arguments": {"a":1}, "name":"up__to\u006fl0" }`, nil, 0, true},
		{"with answers and metadata", `{"name":"up__tool0","arguments":{"a":1},"inputResponses":{"q":{}},"_meta":{"x":1}}`, nil, 0, true},
		{"other arguments", `{"name":"up__tool0","arguments":{"a":2}}`, nil, 0, false},
		{"more members", `{"name":"up__tool0","arguments":{"a":1},"task":{}}`, nil, 0, false},
		{"another user", `{"name":"up__tool0","arguments":{"a":1}}`,
			func(x *Exchange) { x.Principal = &auth.Principal{Kind: auth.KindKey, ID: "key:b"} }, 0, false},
		{"another method", `{"name":"up__tool0","arguments":{"a":1}}`, func(x *Exchange) { x.Msg.Method = "prompts/get" }, 0, false},
		{"too late", `{"name":"up__tool0","arguments":{"a":1}}`, nil, 24 * time.Hour, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, x := between(t, client.EraModern, client.EraModern, "", client.Profile{})
				defer s.Kill()
				own := s.seal(x, sealed.State{Kind: sealed.Relayed, Upstream: json.RawMessage(`"of the server"`)})
				if row.change != nil {
					row.change(x)
				}
				time.Sleep(row.wait)
				x.Params = object(t, row.params)
				c := &upstream.Call{Call: client.Call{Params: object(t, row.params)}}
				if err := spliceParams(c, raw.Edit{Name: "requestState", Value: raw.Quote(own)}); err != nil {
					t.Fatal(err)
				}
				st, err := s.openState(x, c)
				if (err == nil) != row.ok {
					t.Fatalf("the state is opened with %v, want success: %t", err, row.ok)
				}
				got, _ := c.Params.Get("requestState")
				if row.ok && (st.Kind != sealed.Relayed || string(got) != `"of the server"`) {
					t.Errorf("the upstream gets the state %s of kind %s, want its own", got, st.Kind)
				}
			})
		})
	}
}

// TestRequestStateMustBeSealed: what Junction has not sealed is no state.
func TestRequestStateMustBeSealed(t *testing.T) {
	s, x := between(t, client.EraModern, client.EraModern, "", client.Profile{})
	own := s.seal(x, sealed.State{Kind: sealed.Relayed, Upstream: json.RawMessage(`"u"`)})
	for _, text := range []string{`""`, `7`, `null`, `{}`, `"made up"`, string(raw.Quote(own[:len(own)-2])),
		string(raw.Quote("A" + own))} {
		c := &upstream.Call{Call: client.Call{Params: object(t, `{"requestState":`+text+`}`)}}
		if st, err := s.openState(x, c); err == nil {
			t.Errorf("the state %s is opened as %+v", text, st)
		}
	}
}

// TestHopMembersAreRemoved: an upstream that did not ask gets no answers, and no task of a legacy client.
func TestHopMembersAreRemoved(t *testing.T) {
	const params = `{"name":"t","inputResponses":{"q":{}},"task":{"ttl":1}}`
	for _, row := range []struct {
		client, up client.Era
		want       string
	}{
		{client.EraModern, client.EraLegacy, `{"name":"t","task":{"ttl":1}}`},
		{client.EraModern, client.EraModern, params},
		{client.EraLegacy, client.EraModern, `{"name":"t","inputResponses":{"q":{}}}`},
	} {
		s, x := between(t, row.client, row.up, "2025-11-25", client.Profile{})
		c := &upstream.Call{Call: client.Call{Params: object(t, params)}}
		if _, err := s.openState(x, c); err != nil || string(c.Params.Text()) != row.want {
			t.Errorf("from %s to %s: %s, %v; want %s", row.client, row.up, c.Params.Text(), err, row.want)
		}
	}
}
