package upstream

import (
	"context"
	"slices"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/upstream/client"
)

// follower is a conn that follows what it is asked to.
type follower struct{ client.Conn }

func (follower) Follow(_ context.Context, _ func() []string, added, _ []string) ([]string, error) {
	return added, nil
}

// slowFollower is a conn whose Follow waits until it is released.
type slowFollower struct {
	client.Conn
	asked, release chan struct{}
}

func (s slowFollower) Follow(_ context.Context, _ func() []string, added, _ []string) ([]string, error) {
	s.asked <- struct{}{}
	<-s.release
	return added, nil
}

// TestUnsubscribeDuringAnotherRequest: the last subscriber of a resource leaves while a request of the
// connection is at the server. The server is told after that request.
func TestUnsubscribeDuringAnotherRequest(t *testing.T) {
	for name, request := range map[string]func(*subscriptions, *link, client.Conn){
		"subscribe":   func(s *subscriptions, l *link, c client.Conn) { s.subscribe(t.Context(), l, c, []string{"two"}) },
		"resubscribe": func(s *subscriptions, l *link, c client.Conn) { s.resubscribe(t.Context(), l, c) },
	} {
		t.Run(name, func(t *testing.T) {
			p := &pool{connConfig: Config{ConnectTimeout: time.Minute}, log: authtest.Log(t), subs: map[linkKey]*subscriptions{}}
			s, l := p.subscriptions(p.reading()), &link{pool: p}
			if _, err := s.subscribe(t.Context(), l, &follower{}, []string{"one"}); err != nil {
				t.Fatal(err)
			}
			c := &slowFollower{asked: make(chan struct{}), release: make(chan struct{})}
			s.mu.Lock()
			s.conn, s.lacking["two"] = c, true
			s.mu.Unlock()
			done := make(chan struct{})
			go func() { defer close(done); request(s, l, c) }()
			<-c.asked
			s.unsubscribe([]string{"one"})
			<-s.stale // as the link does
			s.withdraw(t.Context(), c)
			close(c.release)
			<-done
			select {
			case <-s.stale:
			default:
				t.Error("the server still follows a resource without a subscriber, and nothing tells it")
			}
		})
	}
}

// TestWhatANewConnMissed: resources that were subscribed to before the connection existed may have
// changed meanwhile; resources that it was asked for itself have not, in either order.
func TestWhatANewConnMissed(t *testing.T) {
	for _, early := range []bool{false, true} {
		var told []string
		p := &pool{connConfig: Config{ConnectTimeout: time.Minute}, log: authtest.Log(t), subs: map[linkKey]*subscriptions{}}
		subs, l := p.subscriptions(p.reading()), &link{pool: p}
		p.options.Hooks.ResourceUpdated = func(u Update) { told = append(told, u.URI) }
		subscribe := func(c client.Conn, uri string) {
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
