package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
