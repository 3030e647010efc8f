package client

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth/authtest"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
	"junction/upstream/transport"
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

// crossing is a server over HTTP, where each subscription has a stream of its own.
type crossing struct {
	*teller
	streams []chan string // what arrives on each subscription after the acknowledgement
}

func (s *crossing) PerRequest() bool { return true }

func (s *crossing) Call(ctx context.Context, req *transport.Request, on func(*jsonrpc.Message)) (*jsonrpc.Message, error) {
	_, acknowledgement := s.subscribe(req, make(chan struct{}))
	arrives := make(chan string, 1)
	s.streams = append(s.streams, arrives)
	for text := acknowledgement; ; {
		m, err := jsonrpc.Parse([]byte(text), raw.DefaultDepth)
		if err != nil {
			return nil, err
		}
		on(&m)
		select {
		case text = <-arrives:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// TestChangesCrossTheirSubscription has a server announce a change on a subscription that is being
// replaced. The message arrives after the acknowledgement of the next subscription, on another stream.
func TestChangesCrossTheirSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &crossing{teller: &teller{}}
		d := subscribersOver(t, s.teller, s)
		for _, uri := range []string{"note:1", "note:2"} {
			d.subscribe(t, uri)
			replaced := s.streams[len(s.streams)-2]
			time.Sleep(overlap / 2)
			before := d.changes
			replaced <- `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
			synctest.Wait()
			if d.changes == before {
				t.Errorf("the change that crossed the subscription to %s is lost", uri)
			}
		}
		time.Sleep(overlap)
		synctest.Wait()
		if n := len(d.conn.listens); n != 1 || len(s.streams) != 3 {
			t.Errorf("%d subscriptions are open, and %d were opened; want one of three", n, len(s.streams))
		}
	})
}
