package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"junction/auth"
	"junction/auth/authtest"
	"junction/policy"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
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
	stream := NewListener(scope.Caller{}, nil)
	stream.end = func() {}
	stream.Caller = scope.Caller{Snapshot: began, Endpoint: e, Principal: auth.Local, Subject: began.SubjectViewFor(e, auth.Local)}
	s.listeners.open[stream] = struct{}{}
	defer s.listeners.remove(stream)
	expired := *c.Principals[1]
	expired.Expires = time.Unix(1, 0)
	lapsed := scope.Caller{Snapshot: began, Endpoint: e, Principal: &expired, Subject: began.SubjectViewFor(e, &expired)}
	hearer := &subscriber{Caller: lapsed, session: new(sessionStreams)}
	s.listeners.subscribers[hearer] = struct{}{}
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
	told := note{method: listChanged[upstream.PartPrompts]}
	if local() == nil || !slices.Equal(stream.pending, []note{told}) {
		t.Errorf("the stream is told %v, want that prompts have changed", stream.pending)
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
	if hearer.Snapshot != s.Snapshot() || len(hearer.waiting) > 0 {
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

// watchful is a backend that is asked while a sight is made. It counts how often the lock of the
// listeners is held then.
type watchful struct {
	*proxytest.Backend
	core          *Core
	asked, locked int
}

func (b *watchful) Separates() bool {
	if b.core == nil {
		return false
	}
	b.asked++
	if b.core.listeners.mu.TryLock() {
		b.core.listeners.mu.Unlock()
	} else {
		b.locked++
	}
	return false
}

// known accepts every principal that was authenticated before.
type known struct{}

func (known) Verify(context.Context, string, netip.Addr) (*auth.Principal, error) {
	return nil, auth.ErrInvalidToken
}
func (known) Still(*auth.Principal) bool { return true }

// streamsOf opens a stream for each principal of a crowd.
func streamsOf(s *Core, c *proxytest.Crowd) (all []*Listener) {
	w := s.Snapshot()
	for _, p := range c.Principals {
		e := w.EndpointFor("", p)
		l := NewListener(scope.Caller{Snapshot: w, Endpoint: e, Principal: p, Subject: w.SubjectViewFor(e, p)}, nil)
		s.listeners.Join(l, func() {})
		all = append(all, l)
	}
	return all
}

// TestListsAreComparedWithoutTheLock: after a change of a catalog, what each caller with a stream
// sees is found out while other streams can come and go.
func TestListsAreComparedWithoutTheLock(t *testing.T) {
	c := proxytest.KeysOfOnePolicy(20, 2, 20)
	s, backends := mustCore(t), c.Backends(t)
	up := &watchful{Backend: backends[0].(*proxytest.Backend)}
	backends[0] = up
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{Verifier: known{}, Log: authtest.Log(t)}, Policy: proxytest.MustPolicy(t, c.Policies)}, backends)
	streams := streamsOf(s, &c)
	changed := *up.Lists
	changed.Tools = append(slices.Clone(changed.Tools), proxytest.MustTool(t, `{"name":"new"}`))
	up.Lists, up.core = &changed, s
	s.Refresh()
	if up.asked < len(streams) || up.locked > 0 {
		t.Errorf("%d times something was found out for %d streams, and %d times under the lock; want never",
			up.asked, len(streams), up.locked)
	}
	for i, l := range streams {
		if got := s.listeners.Drain(l); len(got) != 1 {
			t.Errorf("stream %d is told %q, want that the tools have changed", i, got)
		}
	}
}

// BenchmarkListChanged changes a tool of a server with 2,000 tools, while 500 callers with policies of
// their own have streams.
func BenchmarkListChanged(b *testing.B) {
	c := proxytest.KeysOfOnePolicy(500, 1, 2000)
	s, backends := mustCore(b), c.Backends(b)
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{Verifier: known{}, Log: authtest.Log(b)}, Policy: proxytest.MustPolicy(b, c.Policies)}, backends)
	streams := streamsOf(s, &c)
	up := backends[0].(*proxytest.Backend)
	for i := 0; b.Loop(); i++ {
		changed := *up.Lists
		changed.Tools = slices.Clone(changed.Tools)
		changed.Tools[1] = proxytest.MustTool(b, fmt.Sprintf(`{"name":"write_tool1","title":"%d"}`, i))
		up.Lists = &changed
		s.Refresh()
		for _, l := range streams {
			s.listeners.Drain(l)
		}
	}
}
