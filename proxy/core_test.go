package proxy

import (
	"context"
	"slices"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/redact"
	"junction/proxy/scope"
	"junction/proxy/streams"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// direct is a front without a transport. It keeps the answer.
type direct struct {
	Exchange
	answer []byte
	err    *jsonrpc.Error
}

func (d *direct) Begin()      {}
func (d *direct) Hears() bool { return false }
func (d *direct) CallStateful(ctx context.Context, s Stateful, _ string, c *upstream.Call) (client.Result, error) {
	return s.Call(ctx, c)
}
func (d *direct) Notify(string, []byte) bool { return false }
func (d *direct) Ask(context.Context, string, []byte, func([]byte)) ([]byte, error) {
	return nil, ErrNoAnswer
}
func (d *direct) Headers(raw.Object, *upstream.Tool) ([]client.HeaderField, error) { return nil, nil }
func (d *direct) Listen(context.Context, *streams.Listener)                        {}
func (d *direct) Succeed(r Result) {
	d.answer = append(r.Items.AppendTo(slices.Concat(r.Head, r.Body)), r.Tail...)
}
func (d *direct) Fail(e *jsonrpc.Error, _ Reason, _ error) { d.err = e }

// mustCore is a Core with backends that everybody may use.
func mustCore(tb testing.TB, backends ...view.Backend) *Core {
	tb.Helper()
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		tb.Fatal(err)
	}
	s := New(Options{Key: key, Version: "test", Log: authtest.Log(tb)})
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{}, Policy: policy.Open()}, backends)
	return s
}

// answerAs answers a request of a principal at the merged endpoint, in the modern era.
func (s *Core) answerAs(tb testing.TB, p *auth.Principal, method, params string) *direct {
	tb.Helper()
	return s.answerIn(tb, nil, p, method, params)
}

// answerIn answers a request of a principal in a legacy session; nil for the modern era.
func (s *Core) answerIn(tb testing.TB, session *Session, p *auth.Principal, method, params string) *direct {
	tb.Helper()
	m, err := jsonrpc.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`), 100)
	if err != nil {
		tb.Fatal(err)
	}
	w, d := s.Snapshot(), &direct{}
	e := w.EndpointFor("", p)
	c := scope.Caller{Snapshot: w, Endpoint: e, Principal: p, Subject: w.SubjectViewFor(e, p)}
	s.Prepare(&d.Exchange, d, c, s.Grant(budget.Account{Principal: p.ID}, ""))
	defer d.Grant.Release()
	if err := s.Read(&d.Exchange, m); err != nil {
		tb.Fatal(err)
	}
	if d.Era = client.EraModern; session != nil {
		d.Era, d.Session = client.EraLegacy, session
	}
	s.Serve(tb.Context(), &d.Exchange)
	return d
}

// listAs lists the first page of the tools of a principal.
func (s *Core) listAs(tb testing.TB, p *auth.Principal) {
	tb.Helper()
	if d := s.answerAs(tb, p, "tools/list", `{}`); d.err != nil || len(d.answer) < 50 {
		tb.Fatalf("the list of %s is answered %s, %v", p.ID, d.answer, d.err)
	}
}

// coreOf is a Core with the upstreams and the policies of a crowd.
func coreOf(tb testing.TB, c *proxytest.Crowd) *Core {
	tb.Helper()
	s := mustCore(tb)
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{}, Policy: proxytest.MustPolicy(tb, c.Policies)}, c.Backends(tb))
	return s
}

// TestRemovedTextEndsWithItsSession: the text that was removed from answers is forgotten when its
// session ends, and when its upstream is replaced.
func TestRemovedTextEndsWithItsSession(t *testing.T) {
	b, other := proxytest.NewBackend(t, 1, 10), proxytest.NewBackend(t, 1, 10)
	s := mustCore(t, b)
	r := func(session string) *redact.Redactor {
		return redact.For(&policy.Safeguards{Secrets: true}).With(&s.removed,
			redact.Owner{Account: "ann", Session: session, Source: view.Backend(b)})
	}
	mark := func(session string) string {
		return r(session).String("ghp_0123456789abcdefghijABCDEFGHIJ012345")
	}
	has := func(session, mark string) bool {
		_, changed, _ := r(session).Arguments(raw.Quote(mark))
		return changed
	}
	one, two := mark("one"), mark("two")
	if s.Forget(&Session{Key: "one"}); has("one", one) || !has("two", two) {
		t.Error("want the text of the other session alone")
	}
	s.ApplyBackends(s.Snapshot().Config, []view.Backend{b})
	if !has("two", two) {
		t.Error("a reload without a change has dropped the text")
	}
	s.ApplyBackends(s.Snapshot().Config, []view.Backend{other})
	if has("two", two) {
		t.Error("the text of a replaced upstream is there")
	}
}
