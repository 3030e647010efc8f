package proxy

import (
	"testing"

	"junction/auth"
	"junction/policy"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// between returns a core with one upstream, up, of an era, and the exchange of a call of its tool by a
// client of an era. version is that of a legacy client.
func between(t *testing.T, caller, up client.Era, version string, p client.Profile) (*Core, *Exchange) {
	t.Helper()
	b := proxytest.NewBackend(t, 1, 10)
	b.Lists.Era = up
	s := mustCore(t, b)
	w := s.Snapshot()
	e := w.EndpointFor("", auth.Local)
	x := &Exchange{Era: caller, Msg: jsonrpc.Message{Method: "tools/call"}, Session: &Session{Version: version},
		judged: judged{target: toolTarget(t, e.View), decision: policy.Decision{Verdict: policy.Allow}}}
	s.Prepare(x, &direct{}, scope.Caller{Snapshot: w, Endpoint: e, Principal: auth.Local, Subject: w.SubjectViewFor(e, auth.Local)},
		s.Grant(budget.Account{Principal: auth.Local.ID}, ""))
	x.Who.Profile = p
	x.Params = object(t, `{"name":"up__tool0","arguments":{"a":1}}`)
	return s, x
}

func toolTarget(t *testing.T, v *view.View) *view.Target {
	t.Helper()
	target := v.Exposed(upstream.PartTools, "up__tool0")
	if target == nil {
		t.Fatal("the view has no up__tool0")
	}
	return target
}

func object(t *testing.T, text string) raw.Object {
	t.Helper()
	o, err := raw.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// text returns a result as one text.
func (r Result) text() string { return string(r.Head) + string(r.Body) + string(r.Tail) }
