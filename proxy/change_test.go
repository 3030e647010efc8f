package proxy

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"junction/auth"
	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/streams"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
)

// TestChangeIsLazy: neither a changed catalog nor a reload makes anything for principals
// that ask for nothing. What the worlds before have kept is gone, also for a session whose token
// has expired.
func TestChangeIsLazy(t *testing.T) {
	c := proxytest.KeysOfOnePolicy(50, 3, 20)
	c.Policies = append(c.Policies, policy.Entry{Name: "local", Match: &policy.Match{Kind: policy.List{"local"}},
		Rules: []policy.Rule{proxytest.Allow(policy.Selector{Tools: policy.List{"up*"}, Prompts: policy.List{"*"}})}})
	s := coreOf(t, &c)
	for _, p := range c.Principals {
		s.listAs(t, p)
		s.listAs(t, p)
	}
	began := s.Snapshot()
	e := began.Endpoints[""]
	stream := streams.NewListener(scope.Caller{Snapshot: began, Endpoint: e, Principal: auth.Local, Subject: began.SubjectViewFor(e, auth.Local)}, nil)
	defer s.listeners.Join(stream, func() {})()
	expired := *c.Principals[1]
	expired.Expires = time.Unix(1, 0)
	lapsed := scope.Caller{Snapshot: began, Endpoint: e, Principal: &expired, Subject: began.SubjectViewFor(e, &expired)}
	hearer := s.listeners.Enter(lapsed, nil, new(streams.Session), s.Grant(budget.Account{}, ""))
	lapsed = scope.Caller{}
	seen := began.SubjectViewFor(e, c.Principals[0]).Sight()
	prepared, _, _, _ := e.Page(seen, upstream.PartTools, seen.View.Kind(upstream.PartTools, client.EraModern, client.Profile{}), 0,
		s.limits.Page, nil)
	old, page := weak.Make(e.View), weak.Make(&prepared[0])
	seen, prepared = nil, nil

	up := began.Backends[1].(*proxytest.Backend)
	catalog := *up.Lists
	catalog.Prompts = append(catalog.Prompts, proxytest.MustTool(t, `{"name":"new"}`).Item)
	up.Lists = &catalog
	s.Refresh()
	if n := s.made.Stocks.Load(); n != 4 {
		t.Errorf("after the change of one of 3 catalogs %d stocks were made, want 4", n)
	}
	now := s.Snapshot()
	if n := now.Endpoints[""].Cached().Subjects; n != 2 {
		t.Fatalf("after a change %d principals are remembered, want the two that wait", n)
	}
	// local returns what the stream's principal sees now; nil if that was not found out
	local := func() *view.Sight { return stream.Subject.Found }
	const changed = `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}`
	if told := s.listeners.Drain(stream); local() == nil || len(told) != 1 || string(told[0]) != changed {
		t.Errorf("the stream is told %q, want that prompts have changed", told)
	}
	n := began.Subjects.Used + began.Pages.Used + int(began.Rulings.Bytes.Load())
	if n != 0 || began.Subjects.Len() > 0 {
		t.Errorf("%d bytes stay in the caches of the world before", n)
	}
	if runtime.GC(); page.Value() != nil {
		t.Error("a page of the world before is still in memory")
	}
	share := began.SubjectViewFor(e, c.Principals[7]) // of a request in progress
	if n := len(slices.Collect(share.Sight().All(upstream.PartTools))); n == 0 || e.Cached().Subjects != 0 {
		t.Errorf("a request in the world before sees %d tools, and %d principals are kept", n, e.Cached().Subjects)
	}
	if s.Refresh(); local() != nil {
		t.Error("what the stream's principal sees was found out, although nothing has changed")
	}
	if hearer.Snapshot != s.Snapshot() {
		t.Error("a session whose token has expired stays in the world before")
	}
	began, e, share = nil, nil, nil
	s.earlier.Clear() // as after a minute
	for range 3 {
		s.Refresh()
		runtime.GC()
	}
	if old.Value() != nil {
		t.Error("the view of a world before is still in memory")
	}
}

// BenchmarkListChanged changes a tool of a server with 2,000 tools, while 500 callers with policies of
// their own have streams.
func BenchmarkListChanged(b *testing.B) {
	c := proxytest.KeysOfOnePolicy(500, 1, 2000)
	s, backends := mustCore(b), c.Backends(b)
	s.ApplyBackends(scope.Config{Guard: proxytest.Knowing(b), Policy: proxytest.MustPolicy(b, c.Policies)}, backends)
	var open []*streams.Listener
	w := s.Snapshot()
	for _, p := range c.Principals {
		e := w.EndpointFor("", p)
		l := streams.NewListener(scope.Caller{Snapshot: w, Endpoint: e, Principal: p, Subject: w.SubjectViewFor(e, p)}, nil)
		s.listeners.Join(l, func() {})
		open = append(open, l)
	}
	up := backends[0].(*proxytest.Backend)
	for i := 0; b.Loop(); i++ {
		changed := *up.Lists
		changed.Tools = slices.Clone(changed.Tools)
		changed.Tools[1] = proxytest.MustTool(b, fmt.Sprintf(`{"name":"write_tool1","title":"%d"}`, i))
		up.Lists = &changed
		s.Refresh()
		for _, l := range open {
			s.listeners.Drain(l)
		}
	}
}
