package proxy

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// TestClientThatNamesNoFolderIsOneWithout: a client that declares roots, and does not answer or answers something else,
// has none. Its call waits for rootsPatience, or until its own time is over.
func TestClientThatNamesNoFolderIsOneWithout(t *testing.T) {
	for name, tt := range map[string]struct {
		answer   string // "" for none
		left     time.Duration
		took     time.Duration
		roots    int
		rootless string
	}{
		"silent":                     {"", time.Hour, rootsPatience, 0, noAnswer},
		"silent, in the call's time": {"", time.Second, time.Second, 0, ""},
		"no list":                    {`{"roots":"file:///shop"}`, time.Hour, 0, 0, noRoots},
		"no object":                  {`[]`, time.Hour, 0, 0, noRoots},
		"no text":                    {`{"roots":[{"uri":5},{},"file:///shop",null]}`, time.Hour, 0, 0, noRoots},
		"empty":                      {`{"roots":[]}`, time.Hour, 0, 0, noRoots},
		"10,000": {`{"roots":[` + strings.Repeat(`{"uri":"file:///shop"},`, 9999) + `{"uri":"file:///shop"}]}`, time.Hour, 0,
			maxRoots, noRoots},
		"1 MB": {`{"roots":[{"uri":"file:///shop"},{"uri":"file:///` + strings.Repeat("a", 1<<20) + `"}]}`, time.Hour, 0, 1, noRoots},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &rooted{answers: make(chan string, 1)}
				if tt.answer != "" {
					f.answers <- tt.answer
				}
				s, first := between(t, client.EraLegacy, client.EraLegacy, "2025-11-25", client.Profile{Roots: true})
				x := &Exchange{Era: client.EraLegacy, Session: first.Session}
				x.Session.Key = "s"
				s.Prepare(x, f, first.Caller, first.Grant)
				x.Who.Profile = first.Who.Profile
				ctx, cancel := context.WithTimeout(t.Context(), tt.left)
				defer cancel()
				began := time.Now()
				uris := x.sessionRoots(ctx)
				if took := time.Since(began); len(uris) != tt.roots || took != tt.took || x.rootless != tt.rootless {
					t.Errorf("%d roots after %v, and the client %q", len(uris), took, x.rootless)
				}
			})
		})
	}
}
