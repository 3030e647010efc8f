package client

import (
	"slices"
	"testing"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// TestWhatAGapMissed: where a subscription ended before the next one began, those who had
// subscribed are told, and who subscribes just now is not: that comes after it.
func TestWhatAGapMissed(t *testing.T) {
	m, l := &modernConn{}, &listen{uris: []string{"one", "two"}, gap: true, before: []string{"one"}, settled: make(chan struct{})}
	var told []string
	m.init(authtest.Log(t), Hooks{Missed: func(uris []string) {
		select {
		case <-l.settled:
			told = append(told, "to all")
		default:
			told = append(told, "to those before")
		}
		told = append(told, uris...)
	}}, EraModern)
	m.listens["1"] = l
	acknowledgement, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"resourceSubscriptions":["one"]},`+
		`"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`), raw.DefaultDepth)
	if err != nil {
		t.Fatal(err)
	}
	// the second time it was opened again
	for _, want := range [][]string{{"to those before", "one"}, {"to all", "one", "two"}} {
		told = nil
		if m.deliver(ownRequest, &acknowledgement); !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	}
	if !slices.Equal(l.accepted, []string{"one"}) {
		t.Errorf("accepted %q", l.accepted)
	}
}
