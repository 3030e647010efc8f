package proxy

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"junction/upstream/client"
)

// rooted is the front of a client that hears, and answers roots/list when the test says so.
type rooted struct {
	direct
	asked   int
	answers chan string
}

func (r *rooted) Hears() bool { return true }

func (r *rooted) Ask(ctx context.Context, _ string, _ []byte, _ func([]byte)) ([]byte, error) {
	r.asked++
	select {
	case text := <-r.answers:
		return []byte(text), nil
	case <-ctx.Done():
		return nil, ErrNoAnswer
	}
}

// TestWaitForRootsEndsWithItsRequest: one request of a session asks the client for its roots, and others wait for the
// answer. A request that is cancelled waits no longer, whether it asks or not; then another one asks.
func TestWaitForRootsEndsWithItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &rooted{answers: make(chan string)}
		s, first := between(t, client.EraLegacy, client.EraLegacy, "2025-11-25", client.Profile{Roots: true})
		first.Session.Key = "s"
		begin := func() (got chan []string, cancel context.CancelFunc) {
			x := &Exchange{Era: client.EraLegacy, Session: first.Session}
			s.Prepare(x, f, first.Caller, first.Grant)
			x.Who.Profile = first.Who.Profile
			ctx, cancel := context.WithCancel(t.Context())
			got = make(chan []string, 1)
			go func() { got <- x.sessionRoots(ctx) }()
			synctest.Wait()
			return got, cancel
		}
		over := func(who string, got chan []string) {
			t.Helper()
			synctest.Wait()
			select {
			case uris := <-got:
				if uris != nil {
					t.Errorf("%s has the roots %q", who, uris)
				}
			default:
				t.Errorf("%s waits, though it is cancelled", who)
			}
		}
		asks, cancelAsks := begin()
		waits, cancelWaits := begin()
		next, cancelNext := begin()
		defer cancelNext()
		cancelWaits()
		over("the request that waits", waits)
		cancelAsks()
		over("the request that asks", asks)
		f.answers <- `{"roots":[{"uri":"file:///shop"}]}`
		if uris := <-next; !slices.Equal(uris, []string{"file:///shop"}) || f.asked != 2 {
			t.Errorf("the next request has the roots %q after %d questions", uris, f.asked)
		}
	})
}
