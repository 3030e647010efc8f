package proxy

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
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// TestSubscriptionsTakeTheShare: what a session subscribes to counts until it unsubscribes.
func TestSubscriptionsTakeTheShare(t *testing.T) {
	b := proxytest.NewBudget(t, [budget.Quotas]int64{budget.Bytes: 1 << 20})
	ls := newListeners(streamOptions{})
	backend := proxytest.NewBackend(t, 1, 10)
	caller, grant := scope.Caller{Endpoint: &scope.Endpoint{}}, b.Grant(budget.Account{Principal: "hog"}, "")
	var hearers []*subscriber
	uri, n := "file:///"+strings.Repeat("x", 1000), 0
	for range 1000 {
		h := ls.Enter(caller, nil, new(sessionStreams), grant.Empty())
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
		s.listeners.follow()
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

// deciding is a backend that accepts a subscription when the test says so, or refuses it.
type deciding struct {
	*proxytest.Backend
	asked, accept chan struct{} // nil to refuse at once
	left          []string      // unsubscribed
}

func (b *deciding) Subscribe(
	_ context.Context, _ client.Profile, _, _ string, uris []string,
) (upstream.Source, []string, error) {
	if b.accept == nil {
		return upstream.Source{}, nil, errors.New("refused")
	}
	close(b.asked)
	<-b.accept
	return upstream.Source{}, uris, nil
}

func (b *deciding) Unsubscribe(_ upstream.Source, uris []string) { b.left = append(b.left, uris...) }

// mustDecide is a deciding backend, which refuses at once.
func mustDecide(t *testing.T, name string) *deciding {
	t.Helper()
	offers, err := raw.Parse([]byte(`{"resources":{"subscribe":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	b := &deciding{Backend: proxytest.NewBackend(t, 1, 10)}
	b.Named, b.Lists.Capabilities = name, offers
	return b
}

// TestSubscriptionsOfASessionAreIndependent: while an upstream decides about the first subscription of a
// session, another one is refused, and the session unsubscribes from a resource. The first one is accepted
// all the same, unless the session ends before. Then nothing is remembered of it.
func TestSubscriptionsOfASessionAreIndependent(t *testing.T) {
	for _, ends := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			slow, refusing := mustDecide(t, "slow"), mustDecide(t, "refusing")
			slow.asked, slow.accept = make(chan struct{}), make(chan struct{})
			s, session := mustCore(t, slow, refusing), &Session{Key: "session"}
			local := &auth.Principal{ID: "local", Kind: auth.KindLocal}
			request := func(method, upstream string) *jsonrpc.Error {
				return s.answerIn(t, session, local, method, `{"uri":"mcp://`+upstream+`/x:1"}`).err
			}
			var first sync.WaitGroup
			first.Go(func() {
				if err := request("resources/subscribe", "slow"); (err != nil) != ends {
					t.Errorf("the session ends: %v; its first subscription: %v", ends, err)
				}
			})
			<-slow.asked
			if request("resources/subscribe", "refusing") == nil {
				t.Error("the other upstream has not refused")
			}
			if err := request("resources/unsubscribe", "refusing"); err != nil {
				t.Error(err)
			}
			if ends {
				s.Forget(session)
			}
			close(slow.accept)
			first.Wait()
			if kept := len(slow.left) == 0; kept == ends {
				t.Errorf("the session ends: %v; its subscription is kept: %v", ends, kept)
			}
			if s.Forget(session); len(slow.left) != 1 || len(s.listeners.subscribers) != 0 {
				t.Errorf("after the session, %q ended, and %d subscribers are left", slow.left, len(s.listeners.subscribers))
			}
		})
	}
}
