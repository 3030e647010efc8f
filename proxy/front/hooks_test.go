package front

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/auth/authtest"
	"junction/policy"
	"junction/proxy"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
)

// TestCallInfoOfRefusals has calls refused before they get to a tool: each is reported, with what
// it was about, and with no more of the client's text than a line has room for.
func TestCallInfoOfRefusals(t *testing.T) {
	b := proxytest.NewBackend(t, 1, 10)
	var err error
	if b.Lists.Capabilities, err = raw.Parse([]byte(`{"resources":{}}`)); err != nil {
		t.Fatal(err)
	}
	var calls []proxy.CallInfo
	s := serverWith(t, Options{Log: authtest.Log(t), Hooks: proxy.Hooks{CallDone: func(c *proxy.CallInfo) {
		c.Arguments = append([]byte(nil), c.Arguments...)
		calls = append(calls, *c)
	}}}, b)
	apply := func(text string) {
		var c policy.Config
		if err := yaml.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		p, err := policy.Compile(c)
		if err != nil {
			t.Fatal(err)
		}
		s.ApplyBackends(scope.Config{Guard: &auth.Guard{}, Policy: p}, []view.Backend{b})
	}
	post := func(method, name, id, params string) proxy.CallInfo {
		calls = nil
		body := `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{` + params + `,` + modernMeta + `}}`
		r := httptest.NewRequest("POST", "http://127.0.0.1/mcp", strings.NewReader(body))
		r.RemoteAddr = "127.0.0.1:1"
		r.Header = http.Header{"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}, "Mcp-Name": {name}}
		s.ServeHTTP(httptest.NewRecorder(), r)
		if len(calls) != 1 {
			t.Fatalf("%s of %.40s is reported %d times, want once", method, name, len(calls))
		}
		return calls[0]
	}
	apply(`[ { name: all, rules: [ { allow: { upstreams: "*" } } ], limits: { rate: 1/h, burst: 1 } } ]`)
	c := post("tools/call", "up__tool0", `"`+strings.Repeat("i", 1<<20)+`"`, `"name":"up__tool0","arguments":{"a":1},"Arguments":{"a":2}`)
	if want := `{"name":"up__tool0","arguments":{"a":1},"Arguments":{"a":2},`; !strings.HasPrefix(string(c.Arguments), want) {
		t.Errorf("the arguments that a tool may read in two ways are reported as %q", c.Arguments)
	}
	if len(c.Request) > 2*200 {
		t.Errorf("%d bytes of the request's id are reported", len(c.Request))
	}
	if c = post("tools/call", "up__tool0", "1", `"name":"up__tool0"`); c.Name != "up__tool0" || c.Rule != "limits.rate" || c.Verdict != "deny" {
		t.Errorf("a call beyond the limit is reported as %+v", c)
	}
	apply(`[ { name: all, rules: [ { allow: { upstreams: "*" } } ] } ]`)
	long := "mcp://up/file:///" + strings.Repeat("x", 1<<20)
	if c = post("resources/read", long, "1", `"uri":"`+long+`"`); len(c.Own) > 2*200 || len(c.Name) > 2*200 || c.Own == "" {
		t.Errorf("%d and %d bytes of a URI are reported", len(c.Name), len(c.Own))
	}
	apply(`[ { name: nobody, match: { key: nobody }, rules: [ { allow: { upstreams: "*" } } ] } ]`)
	if c = post("tools/call", "up__tool0", "1", `"name":"up__tool0"`); c.Principal != "local" || c.Verdict != "deny" || c.Outcome != proxy.Denied {
		t.Errorf("a request of who may use nothing is reported as %+v", c)
	}
}

// TestCallInfoOfSubscriptions has a modern client subscribe to two resources, one of which it is
// denied: each is reported as a call.
func TestCallInfoOfSubscriptions(t *testing.T) {
	b := proxytest.NewBackend(t, 1, 10)
	var err error
	if b.Lists.Capabilities, err = raw.Parse([]byte(`{"resources":{"subscribe":true}}`)); err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(policy.Config{{Name: "all", Rules: []policy.Rule{{Deny: &policy.Selector{Resources: policy.List{"x:*"}}}, {Allow: &policy.Selector{Upstreams: policy.List{"*"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []string
	s := serverWith(t, Options{Log: authtest.Log(t), Hooks: proxy.Hooks{CallDone: func(c *proxy.CallInfo) {
		if got = append(got, strings.Join([]string{c.Principal, c.Method, c.Name, c.Upstream, c.Verdict, c.Policy, string(c.Outcome)}, " ")); len(got) == 2 {
			cancel()
		}
	}}})
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{}, Policy: p}, []view.Backend{b})
	r := httptest.NewRequestWithContext(ctx, "POST", "http://127.0.0.1/mcp", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["mcp://up/x:1","mcp://up/y:1"]},`+modernMeta+`}}`))
	r.RemoteAddr = "127.0.0.1:1"
	r.Header = http.Header{"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}}
	s.ServeHTTP(httptest.NewRecorder(), r)
	want := "local subscriptions/listen mcp://up/x:1 up deny all denied, local subscriptions/listen mcp://up/y:1 up   error"
	if strings.Join(got, ", ") != want {
		t.Errorf("reported are %q\nwant %q", got, want)
	}
}

// accepting accepts every subscription.
type accepting struct{ *proxytest.Backend }

func (accepting) Subscribe(_ context.Context, _ *upstream.Call, uris []string) (upstream.Source, []string, error) {
	return upstream.Source{}, uris, nil
}

// TestSubscriptionsOfOneRequest has a modern client ask for more subscriptions in one request than it
// may have, one of them twice: it gets as many as it may.
func TestSubscriptionsOfOneRequest(t *testing.T) {
	b := accepting{proxytest.NewBackend(t, 1, 10)}
	var err error
	if b.Lists.Capabilities, err = raw.Parse([]byte(`{"resources":{"subscribe":true}}`)); err != nil {
		t.Fatal(err)
	}
	s := mustServer(t)
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{}, Policy: policy.Open()}, []view.Backend{b})
	uris := []string{`"mcp://up/x:0"`}
	for i := range 1000 + 10 {
		uris = append(uris, fmt.Sprintf(`"mcp://up/x:%d"`, i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	w := &firstWrite{httptest.NewRecorder(), cancel}
	r := httptest.NewRequestWithContext(ctx, "POST", "http://127.0.0.1/mcp", strings.NewReader(`{"jsonrpc":"2.0","id":1,`+
		`"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":[`+strings.Join(uris, ",")+`]},`+modernMeta+`}}`))
	r.RemoteAddr = "127.0.0.1:1"
	r.Header = http.Header{"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}}
	s.ServeHTTP(w, r)
	if n := strings.Count(w.Body.String(), `"mcp://up/x:`); n != 1000+1 { // the first one is in the list twice
		t.Errorf("%d subscriptions are acknowledged, want %d", n, 1000+1)
	}
}

// firstWrite calls written after the first write of an answer's body.
type firstWrite struct {
	*httptest.ResponseRecorder
	written func()
}

func (w *firstWrite) Write(b []byte) (int, error) {
	defer w.written()
	return w.ResponseRecorder.Write(b)
}

// failing answers each call with an error in words of the server.
type failing struct {
	*proxytest.Backend
	words string
}

func (f failing) Call(context.Context, *upstream.Call) (client.Result, error) {
	return client.Result{}, &upstream.Error{Upstream: "up", Kind: client.KindInvalid, Err: errors.New(f.words)}
}

// TestCallInfoOfRedactedErrors has a server fail in words that the policy redacts: the log and the
// audit get them as the client does, and still know the kind of the error.
func TestCallInfoOfRedactedErrors(t *testing.T) {
	const token = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
	b := failing{proxytest.NewBackend(t, 1, 10), "cannot log in with " + token}
	var got error
	s := serverWith(t, Options{Log: authtest.Log(t), Hooks: proxy.Hooks{CallDone: func(c *proxy.CallInfo) { got = c.Err }}})
	var p policy.Config
	if err := yaml.Unmarshal([]byte(`[ { name: all, rules: [ { allow: { upstreams: "*" } } ], redact: [ secrets ] } ]`), &p); err != nil {
		t.Fatal(err)
	}
	rules, err := policy.Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{}, Policy: rules}, []view.Backend{b})
	r := httptest.NewRequest("POST", "http://127.0.0.1/mcp",
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__tool0",`+modernMeta+`}}`))
	r.RemoteAddr = "127.0.0.1:1"
	r.Header = http.Header{"Content-Type": {"application/json"}, "Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"up__tool0"}}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if got == nil || strings.Contains(got.Error(), token) || !strings.Contains(got.Error(), "[redacted: GitHub token]") {
		t.Errorf("reported is %v; the client reads %s", got, w.Body)
	}
	if own, ok := errors.AsType[*upstream.Error](got); !ok || own.Kind != client.KindInvalid {
		t.Errorf("reported is a %T, want the upstream's error in it", got)
	}
}
