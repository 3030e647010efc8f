package protocol

import (
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
)

// TestParamsAsAnEmptyArray: some clients write [] for no params. A method that needs params does not take
// it, and no method takes a list with something in it.
func TestParamsAsAnEmptyArray(t *testing.T) {
	harness.Waits(t)
	e := harness.MustProxy(t, nil)
	c := harness.MustClient(t, e, client.EraLegacy)
	for _, method := range []string{"ping", "tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
		for _, params := range []string{"[]", "[ \n]"} {
			if a := c.Post(t, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":`+params+`}`); a.Status != 200 || a.Message.Error != nil {
				t.Errorf("%s with %s: %s", method, params, a)
			}
		}
		wantError(t, c.Post(t, `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":[1]}`), 400, "7", -32600)
	}
	wantBody(t, c.Post(t, `{"jsonrpc":"2.0","method":"notifications/initialized","params":[]}`), 202, "")
	wantError(t, c.Post(t, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}`), 400, "7", -32600)
	wantError(t, c.Post(t, `{"jsonrpc":"2.0","id":7,"method":"no/method","params":[]}`), 200, "7", -32601)
	wantError(t, c.Post(t, `{"jsonrpc":"2.0","id":7,"method":"initialize","params":[]}`), 200, "7", -32602)
	// A modern request needs params, so that an empty list is answered as absent params are.
	m := harness.MustClient(t, e, client.EraModern)
	own := []harness.HeaderChange{harness.With("Mcp-Protocol-Version", "2026-07-28"), harness.With("Mcp-Method", "tools/list")}
	wantError(t, m.Post(t, `{"jsonrpc":"2.0","id":9,"method":"tools/list","params":[]}`, own...), 400, "9", -32602)
}

// TestVersionHeaderTwice: two version headers with one value are one. Different ones are refused in the
// modern era, and other headers stay strict.
func TestVersionHeaderTwice(t *testing.T) {
	harness.Waits(t)
	e := harness.MustProxy(t, nil)
	for _, era := range harness.Eras {
		c := harness.MustClient(t, e, era)
		own := map[client.Era]string{client.EraLegacy: "2025-11-25", client.EraModern: "2026-07-28"}[era]
		for _, values := range [][]string{{own, own}, {own + ", " + own}, {own + "," + own, " " + own}} {
			if a := c.Call(t, "tools/list", "", harness.With("Mcp-Protocol-Version", values...)); a.Status != 200 || a.Message.Error != nil {
				t.Errorf("%s client with %q: %s", era, values, a)
			}
		}
	}
	m := harness.MustClient(t, e, client.EraModern)
	for _, values := range [][]string{{"2026-07-28", "2025-11-25"}, {"2026-07-28, 2026-07-29"}, {"2026-07-28", ""}} {
		wantError(t, m.CallID(t, "1", "tools/list", "", harness.With("Mcp-Protocol-Version", values...)), 400, "1", -32020)
	}
}

// TestByteOrderMarkOfClients: a byte order mark before a message of a client is no part of it.
func TestByteOrderMarkOfClients(t *testing.T) {
	harness.Waits(t)
	e := harness.MustProxy(t, nil)
	c := harness.MustClient(t, e, client.EraLegacy)
	if a := c.Post(t, "\ufeff"+`{"jsonrpc":"2.0","id":7,"method":"ping"}`); a.Status != 200 || a.Message.Error != nil {
		t.Errorf("legacy client: %s", a)
	}
	old := harness.NewClient(t, e, client.EraLegacy)
	old.MustInitialize(t, "2025-03-26")
	if a := old.Post(t, "\ufeff"+` [{"jsonrpc":"2.0","id":7,"method":"ping"}]`); a.Status != 200 || string(a.Body) != `[{"jsonrpc":"2.0","id":7,"result":{}}]` {
		t.Errorf("a batch of a client of 2025-03-26: %s", a)
	}
	m := harness.MustClient(t, e, client.EraModern)
	body, own := m.Request("9", "tools/list", "")
	if a := m.Post(t, "\ufeff"+body, own...); a.Status != 200 || a.Message.Error != nil {
		t.Errorf("modern client: %s", a)
	}
}

// TestEmptyCursor: for legacy clients, "" is no cursor. In the modern era it is one, which Junction has
// never given.
func TestEmptyCursor(t *testing.T) {
	harness.Waits(t)
	e := harness.MustProxy(t, nil)
	for _, method := range []string{"tools/list", "prompts/list", "resources/list", "resources/templates/list"} {
		if a := harness.MustClient(t, e, client.EraLegacy).Call(t, method, `{"cursor":""}`); a.Status != 200 || a.Message.Error != nil {
			t.Errorf("legacy client, %s: %s", method, a)
		}
		wantError(t, harness.MustClient(t, e, client.EraModern).CallID(t, "1", method, `{"cursor":""}`), 200, "1", -32602)
		wantError(t, harness.MustClient(t, e, client.EraLegacy).CallID(t, "1", method, `{"cursor":" "}`), 200, "1", -32602)
	}
}
