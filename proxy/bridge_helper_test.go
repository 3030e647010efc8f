package proxy

import (
	"testing"

	"junction/auth"
	"junction/policy"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// between returns a server with one upstream, up, of an era, and the exchange of a call of its tool by
// a client of an era. version is that of a legacy client.
func between(t *testing.T, client, up client.Era, version string, p client.Profile) (*Server, *exchange) {
	t.Helper()
	b := cannedBackend(t, 1, 10)
	b.catalog.Era = up
	s := mustServer(t, b)
	w := s.snapshot.Load()
	e := w.endpoint("", auth.Local)
	x := &exchange{caller: caller{snapshot: w, endpoint: e, principal: auth.Local, subject: w.subjectView(e, auth.Local)},
		era: client, msg: jsonrpc.Message{Method: "tools/call"}, target: toolTarget(t, e.view),
		decision: policy.Decision{Verdict: policy.Allow}}
	x.who.profile = p
	x.session = &session{sealedSession: sealedSession{Version: version}}
	x.params = object(t, `{"name":"up__tool0","arguments":{"a":1}}`)
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
func (r result) text() string { return string(r.head) + string(r.body) + string(r.tail) }
