package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"junction/auth"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
)

// TestSubscriptionsTakeTheShare: what a session subscribes to counts until it unsubscribes.
func TestSubscriptionsTakeTheShare(t *testing.T) {
	b := proxytest.NewBudget(t, [budget.Quotas]int64{budget.Bytes: 1 << 20})
	ls := &listeners{open: map[*Listener]struct{}{}, subscribers: map[*subscriber]struct{}{}}
	backend := proxytest.NewBackend(t, 1, 10)
	x := &Exchange{Caller: scope.Caller{Endpoint: &scope.Endpoint{}}, Grant: b.Grant(budget.Account{Principal: "hog"}, "")}
	var hearers []*subscriber
	uri, n := "file:///"+strings.Repeat("x", 1000), 0
	for range 1000 {
		h := ls.subscriber(x, nil, &Session{})
		if err := h.subscribed(resourceKey{"up", uri}, subscription{exposed: uri, backend: backend}); err == nil {
			n++
		}
		hearers = append(hearers, h)
	}
	if want := 1 << 19 / 2216; n != want {
		t.Errorf("%d of 1000 sessions have subscribed, want %d", n, want)
	}
	for _, h := range hearers {
		ls.release(h, nothing)
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

func (b slow) Subscribe(
	ctx context.Context, _ client.Profile, _, _ string, uris []string,
) (upstream.Source, []string, error) {
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
		h := &subscriber{resources: map[resourceKey]subscription{}}
		for _, name := range []string{"a", "b"} {
			old := named(name)
			for i := range each {
				key := resourceKey{name, fmt.Sprint("x:", i)}
				h.resources[key] = subscription{"mcp://" + name + "/" + key.uri, old, upstream.Source{}}
			}
		}
		s := mustCore(t, named("a"), named("b"))
		h.Principal = &auth.Principal{Kind: auth.KindLocal}
		h.Endpoint = s.Snapshot().EndpointFor("", h.Principal)
		s.listeners.mu.Lock()
		s.listeners.subscribers = map[*subscriber]struct{}{h: {}}
		s.listeners.mu.Unlock()
		began := time.Now()
		s.follow()
		for range 2 * each {
			<-took
		}
		if d := time.Since(began); d != 2*subscribePatience {
			t.Errorf("they moved in %v, want %v", d, 2*subscribePatience)
		}
		synctest.Wait()
		s.listeners.mu.Lock()
		defer s.listeners.mu.Unlock()
		for key, sub := range h.resources {
			if sub.backend == nil || !slices.ContainsFunc(h.Endpoint.View.Stocks, func(st *view.Stock) bool { return st.Backend == sub.backend }) {
				t.Errorf("%v did not move", key)
			}
		}
	})
}

// gated accepts subscriptions when it is told to, or never.
type gated struct {
	*proxytest.Backend
	accept <-chan bool
}

func (b gated) Subscribe(
	_ context.Context, _ client.Profile, _, _ string, uris []string,
) (upstream.Source, []string, error) {
	if !<-b.accept {
		uris = nil
	}
	return upstream.Source{}, uris, nil
}

// TestRefusedSubscriptionUndoesNoOther: while an upstream thinks about the first subscription of a session,
// another subscription is refused, or ended. The first one is then accepted all the same.
func TestRefusedSubscriptionUndoesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustCore(t)
		ls := &s.listeners
		local := &auth.Principal{Kind: auth.KindLocal}
		x := &Exchange{Grant: proxytest.NewBudget(t, [budget.Quotas]int64{budget.Bytes: 1 << 20}).Grant(budget.Account{}, "")}
		x.Caller = scope.Caller{Snapshot: s.Snapshot(), Endpoint: s.Snapshot().EndpointFor("", local), Principal: local}
		session := &Session{}
		subscribe := func(accept <-chan bool) bool {
			target := &view.Target{Backend: gated{proxytest.NewBackend(t, 1, 1), accept}, Name: "file:///a"}
			h := ls.subscriber(x, nil, session)
			defer ls.leave(h)
			accepted, _ := s.subscribeTo(t.Context(), h, []*view.Target{target})
			return accepted[target]
		}
		never, later := make(chan bool), make(chan bool)
		close(never)
		var first sync.WaitGroup
		first.Go(func() {
			if !subscribe(later) {
				t.Error("the first subscription is not accepted")
			}
		})
		synctest.Wait()
		if subscribe(never) {
			t.Error("the second subscription is accepted")
		}
		later <- true
		first.Wait()
		if len(ls.subscribers) != 1 {
			t.Errorf("%d subscribers are left, want 1", len(ls.subscribers))
		}
		ls.forget(session)
		if len(ls.subscribers) != 0 {
			t.Errorf("%d subscribers are left after the session, want none", len(ls.subscribers))
		}
	})
}
