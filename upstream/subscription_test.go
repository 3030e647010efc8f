package upstream

import (
	"context"
	"slices"
	"testing"
	"time"

	"junction/auth/authtest"
)

// follower is a conn that follows what it is asked to.
type follower struct{ conn }

func (follower) follow(_ context.Context, _, added, _ []string) ([]string, error) { return added, nil }

// TestWhatANewConnMissed: what was subscribed to before it was there may have changed meanwhile, what it was asked for itself has not, whoever comes first.
func TestWhatANewConnMissed(t *testing.T) {
	for _, early := range []bool{false, true} {
		var told []string
		p := &pool{hard: Config{ConnectTimeout: time.Minute}, log: authtest.Log(t), subs: newSubscriptions()}
		p.options.Hooks.ResourceUpdated = func(_, _, uri string) { told = append(told, uri) }
		subscribe := func(c conn, uri string) {
			if err := p.subs.sync(t.Context(), c, []string{uri}); err != nil || !p.subs.followed[uri] {
				t.Fatalf("%s is not followed: %v", uri, err)
			}
			p.subs.wanted[uri]++
		}
		first, second := &follower{}, &follower{}
		subscribe(first, "one")
		p.resubscribe(t.Context(), first)
		if len(told) > 0 {
			t.Errorf("the first conn has missed %q", told)
		}
		if early {
			subscribe(second, "two")
		}
		p.resubscribe(t.Context(), second)
		if !slices.Equal(told, []string{"one"}) || !p.subs.followed["one"] {
			t.Errorf("the second conn has missed %q, want one", told)
		}
	}
}
