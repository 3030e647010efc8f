package upstream

import (
	"context"
	"slices"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// follower is a conn that follows what it is asked to.
type follower struct{ conn }

func (follower) follow(_ context.Context, _ func() []string, added, _ []string) ([]string, error) {
	return added, nil
}

// TestWhatANewConnMissed: what was subscribed to before it was there may have changed meanwhile,
// what it was asked for itself has not, whoever comes first.
func TestWhatANewConnMissed(t *testing.T) {
	for _, early := range []bool{false, true} {
		var told []string
		p := &pool{connConfig: Config{ConnectTimeout: time.Minute}, log: authtest.Log(t), subs: map[linkKey]*subscriptions{}}
		subs, l := p.subscriptions(p.reading()), &link{pool: p}
		p.options.Hooks.ResourceUpdated = func(u Update) { told = append(told, u.URI) }
		subscribe := func(c conn, uri string) {
			if err := subs.sync(t.Context(), c, []string{uri}); err != nil || !subs.followed[uri] {
				t.Fatalf("%s is not followed: %v", uri, err)
			}
			subs.wanted[uri]++
			delete(subs.idle, uri)
		}
		first, second := &follower{}, &follower{}
		subscribe(first, "one")
		subs.resubscribe(t.Context(), l, first)
		if len(told) > 0 {
			t.Errorf("the first conn has missed %q", told)
		}
		if early {
			subscribe(second, "two")
		}
		subs.resubscribe(t.Context(), l, second)
		if !slices.Equal(told, []string{"one"}) || !subs.followed["one"] {
			t.Errorf("the second conn has missed %q, want one", told)
		}
	}
}

// TestWhatAGapMissed: where a subscription ended before the next one began, those who had
// subscribed are told, and who subscribes just now is not: that comes after it.
func TestWhatAGapMissed(t *testing.T) {
	m, l := &modernConn{}, &listen{uris: []string{"one", "two"}, gap: true, before: []string{"one"}, settled: make(chan struct{})}
	var told []string
	m.init(authtest.Log(t), hooks{missed: func(uris []string) {
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
