package proxy

import (
	"strings"
	"testing"

	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
)

// TestSafety8SubscriptionsTakeMemory: what a session subscribes to counts until it unsubscribes.
func TestSafety8SubscriptionsTakeMemory(t *testing.T) {
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
