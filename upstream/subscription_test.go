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
