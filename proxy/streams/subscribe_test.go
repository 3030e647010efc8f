package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
)

// TestSubscriptionsTakeTheShare: what a session subscribes to counts until it unsubscribes.
func TestSubscriptionsTakeTheShare(t *testing.T) {
	b := proxytest.NewBudget(t, [budget.Quotas]int64{budget.Bytes: 1 << 20})
	ls := New(Options{Log: authtest.Log(t)})
	backend := proxytest.NewBackend(t, 1, 10)
	caller, grant := scope.Caller{Endpoint: &scope.Endpoint{}}, b.Grant(budget.Account{Principal: "hog"}, "")
	var hearers []*Subscriber
	uri, n := "file:///"+strings.Repeat("x", 1000), 0
	for range 1000 {
		h := ls.Enter(caller, nil, new(Session), grant.Empty())
		if err := h.subscribed(resourceKey{"up", uri}, subscription{exposed: uri, backend: backend}); err == nil {
			n++
		}
		hearers = append(hearers, h)
	}
	if want := 1 << 19 / 2216; n != want {
		t.Errorf("%d of 1000 sessions have subscribed, want %d", n, want)
	}
	for _, h := range hearers {
		h.session.End()
		ls.Leave(h)
	}
	if b.Used() != [budget.Quotas]int64{} {
		t.Errorf("%v is used when nobody has subscribed", b.Used())
	}
}

// slow takes subscribePatience for each subscription.
type slow struct {
	*proxytest.Backend
	took chan<- struct{} // receives when a subscription is accepted
}

func (b slow) Subscribe(ctx context.Context, _ *upstream.Call, uris []string) (upstream.Source, []string, error) {
	<-ctx.Done()
	b.took <- struct{}{}
	return upstream.Source{}, uris, nil
}

// TestSubscriptionsMoveSideBySide replaces two upstreams that are slow to subscribe: neither waits for
// the other, and mostMoving subscriptions of one upstream move at once.
func TestSubscriptionsMoveSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 2 * mostMoving
		took := make(chan struct{}, 2*each)
		named := func(name string) view.Backend {
			b := proxytest.NewBackend(t, 1, 10)
			b.Named = name
			return slow{b, took}
		}
		h := &Subscriber{resources: map[resourceKey]subscription{}}
		for _, name := range []string{"a", "b"} {
			old := named(name)
			for i := range each {
				key := resourceKey{name, fmt.Sprint("x:", i)}
				h.resources[key] = subscription{"mcp://" + name + "/" + key.uri, old, nil, upstream.Source{}}
			}
		}
		w := open(t, named("a"), named("b"))
		h.Caller = w.caller(&auth.Principal{Kind: auth.KindLocal})
		w.subscribers[h] = struct{}{}
		began := time.Now()
		w.follow()
		for range 2 * each {
			<-took
		}
		if d := time.Since(began); d != 2*subscribePatience {
			t.Errorf("they moved in %v, want %v", d, 2*subscribePatience)
		}
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		for key, sub := range h.resources {
			if sub.backend == nil || !slices.ContainsFunc(h.Endpoint.View.Stocks, func(st *view.Stock) bool { return st.Backend == sub.backend }) {
				t.Errorf("%v did not move", key)
			}
		}
	})
}

// deciding is a backend that accepts a subscription when the test says so, or refuses it.
type deciding struct {
	*proxytest.Backend
	asked, accept chan struct{} // nil to refuse at once
	left          []string      // unsubscribed
}

func (b *deciding) Subscribe(_ context.Context, _ *upstream.Call, uris []string) (upstream.Source, []string, error) {
	if b.accept == nil {
		return upstream.Source{}, nil, errors.New("refused")
	}
	close(b.asked)
	<-b.accept
	return upstream.Source{}, uris, nil
}

func (b *deciding) Unsubscribe(_ upstream.Source, uris []string) { b.left = append(b.left, uris...) }

// newDeciding is a deciding backend, which refuses at once.
func newDeciding(t *testing.T, name string) *deciding {
	b := &deciding{Backend: proxytest.NewBackend(t, 1, 10)}
	b.Named = name
	return b
}

// TestSubscriptionsOfASessionAreIndependent: while an upstream decides about the first subscription of a
// session, another one is refused, and the session unsubscribes from a resource. The first one is accepted
// all the same, unless the session ends before. Then nothing is remembered of it.
func TestSubscriptionsOfASessionAreIndependent(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			slow, refusing := newDeciding(t, "slow"), newDeciding(t, "refusing")
			slow.asked, slow.accept = make(chan struct{}), make(chan struct{})
			w, session := open(t, slow, refusing), new(Session)
			caller, grant := w.caller(auth.Local), proxytest.NewBudget(t, [budget.Quotas]int64{budget.Bytes: 1 << 20}).Grant(budget.Account{}, "")
			subscribe := func(b view.Backend) bool {
				h, target := w.Enter(caller, nil, session, grant.Empty()), view.NewResource(b, "x:1", "mcp://"+b.Name()+"/x:1", false)
				defer w.Leave(h)
				accepted, _ := w.Subscribe(t.Context(), h, []*view.Target{target}, nil)
				return accepted[target]
			}
			var first sync.WaitGroup
			first.Go(func() {
				if accepted := subscribe(slow); accepted == ends {
					t.Errorf("the session ends: %v; its first subscription is accepted: %v", ends, accepted)
				}
			})
			<-slow.asked
			if subscribe(refusing) {
				t.Error("the other upstream has not refused")
			}
			h := w.Enter(caller, nil, session, grant.Empty())
			w.Unsubscribe(h, view.NewResource(refusing, "x:1", "", false))
			w.Leave(h)
			if ends {
				w.Forget(session)
			}
			close(slow.accept)
			first.Wait()
			if kept := len(slow.left) == 0; kept == ends {
				t.Errorf("the session ends: %v; its subscription is kept: %v", ends, kept)
			}
			if w.Forget(session); len(slow.left) != 1 || len(w.subscribers) != 0 {
				t.Errorf("after the session, %q ended, and %d subscribers are left", slow.left, len(w.subscribers))
			}
		})
	}
}

// TestAnEndedSessionKeepsNoSubscription: a session ends and is forgotten, and then a request of it
// subscribes, which began before. The subscription ends with the request.
func TestAnEndedSessionKeepsNoSubscription(t *testing.T) {
	b, session := newDeciding(t, "up"), new(Session)
	b.asked, b.accept = make(chan struct{}), make(chan struct{})
	close(b.accept)
	w := open(t, b)
	session.End()
	w.Forget(session)
	grant := proxytest.NewBudget(t, [budget.Quotas]int64{budget.Bytes: 1 << 20}).Grant(budget.Account{}, "")
	h, target := w.Enter(w.caller(auth.Local), nil, session, grant), view.NewResource(b, "x:1", "mcp://up/x:1", false)
	if accepted, err := w.Subscribe(t.Context(), h, []*view.Target{target}, nil); !accepted[target] {
		t.Fatalf("the subscription is not accepted: %v", err)
	}
	if w.Leave(h); len(b.left) != 1 || len(w.subscribers) != 0 {
		t.Errorf("%q ended, and %d subscribers are left", b.left, len(w.subscribers))
	}
}
