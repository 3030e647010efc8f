package front

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/auth/authtest"
	"junction/policy"
	"junction/proxy"
	"junction/proxy/budget"
	"junction/proxy/proxytest"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/jsonrpc"
	"junction/upstream/raw"
)

// scripted is a backend with the next answer of a call.
type scripted struct {
	*proxytest.Backend
	answer string
	err    error
}

func (c *scripted) Call(context.Context, *upstream.Call) (client.Result, error) {
	if c.err != nil {
		return client.Result{}, c.err
	}
	o, err := raw.Parse([]byte(c.answer))
	return client.Result{Object: o, Type: client.TypeComplete}, err
}

const outcomePolicies = `
- name: all
  validate: true
  rules:
    - deny: { tools: up__tool1 }
    - ask: { tools: up__tool2 }
    - allow: { tools: up__tool3 }
`

// TestOutcomes ends calls in every way that there is, in both eras: the audit has the right word for
// each, and none is called ok that was not made.
func TestOutcomes(t *testing.T) {
	kind := func(k client.Kind) error { return &upstream.Error{Upstream: "up", Kind: k, Err: errors.New("so")} }
	const fine = `{"content":[{"type":"text","text":"x"}]}`
	for _, tt := range []struct {
		name, tool, arguments string
		up                    scripted
		want                  proxy.Outcome
	}{
		{"a result", "up__tool3", `{}`, scripted{answer: fine}, proxy.OK},
		{"isError", "up__tool3", `{}`, scripted{answer: `{"content":[],"isError":true}`}, proxy.ToolError},
		{"isError that is false", "up__tool3", `{}`, scripted{answer: `{"content":[],"isError":false}`}, proxy.OK},
		{"an error of the upstream", "up__tool3", `{}`, scripted{err: &jsonrpc.Error{Code: -32000, Message: "no"}}, proxy.Error},
		{"no MCP", "up__tool3", `{}`, scripted{err: kind(client.KindInvalid)}, proxy.Error},
		{"a bug", "up__tool3", `{}`, scripted{err: errors.New("x")}, proxy.Error},
		{"a denied tool", "up__tool1", `{}`, scripted{answer: fine}, proxy.Denied},
		{"nobody to ask", "up__tool2", `{}`, scripted{answer: fine}, proxy.Unanswered},
		{"an unanswered question", "up__tool3", `{}`, scripted{err: kind(client.KindUnanswered)}, proxy.Unanswered},
		{"a page to open", "up__tool3", `{}`, scripted{err: &jsonrpc.Error{Code: -32042, Message: "open",
			Data: []byte(`{"elicitations":[{"url":"https://x.example/","message":"m"}]}`)}}, proxy.Unanswered},
		{"too much to do", "up__tool3", `{}`, scripted{err: kind(client.KindBusy)}, proxy.Limited},
		{"an unknown tool", "up__nothing", `{}`, scripted{answer: fine}, proxy.Invalid},
		{"wrong arguments", "up__tool3", `{"text":1}`, scripted{answer: fine}, proxy.Invalid},
		{"arguments that are none", "up__tool3", `[]`, scripted{answer: fine}, proxy.Invalid},
		{"no connection", "up__tool3", `{}`, scripted{err: kind(client.KindUnavailable)}, proxy.Unavailable},
		{"a sign-in", "up__tool3", `{}`, scripted{err: &upstream.SignInError{Upstream: "up", URL: "https://x.example/"}}, proxy.Unavailable},
		{"no answer in time", "up__tool3", `{}`, scripted{err: kind(client.KindTimeout)}, proxy.Timeout},
		{"a crash", "up__tool3", `{}`, scripted{err: kind(client.KindLost)}, proxy.Lost},
		{"a cancelled call", "up__tool3", `{}`, scripted{err: kind(client.KindCancelled)}, proxy.Cancelled},
		{"a client that is gone", "up__tool3", `{}`, scripted{err: context.Canceled}, proxy.Cancelled},
		{"the end of the proxy", "up__tool3", `{}`, scripted{err: proxy.CutOff{}}, proxy.Cancelled},
	} {
		for _, era := range []client.Era{client.EraLegacy, client.EraModern} {
			t.Run(tt.name+"/"+string(era), func(t *testing.T) {
				up := tt.up
				up.Backend = proxytest.NewBackend(t, 4, 10)
				up.Lists.Era = era
				if got := outcomeOfCall(t, &up, era, tt.tool, tt.arguments); got != tt.want {
					t.Errorf("the outcome is %s, want %s", got, tt.want)
				}
			})
		}
	}
	for i, o := range proxy.Outcomes() {
		if slices.Contains(proxy.Outcomes()[:i], o) || o == "" {
			t.Errorf("%q is in the list of outcomes twice, or empty", o)
		}
	}
}

// outcomeOfCall calls a tool as a client that answers no questions.
func outcomeOfCall(t *testing.T, up view.Backend, era client.Era, tool, arguments string) proxy.Outcome {
	t.Helper()
	var c policy.Config
	if err := yaml.Unmarshal([]byte(outcomePolicies), &c); err != nil {
		t.Fatal(err)
	}
	p, err := policy.Compile(c)
	if err != nil {
		t.Fatal(err)
	}
	var got []proxy.Outcome
	s := serverWith(t, Options{Log: authtest.Log(t), Hooks: proxy.Hooks{CallDone: func(c *proxy.CallInfo) { got = append(got, c.Outcome) }}})
	s.ApplyBackends(scope.Config{Guard: &auth.Guard{}, Policy: p}, []view.Backend{up})
	header, meta := modernHeader("tools/call", tool), ","+modernMeta
	if era == client.EraLegacy {
		id, _ := s.sessions.create("2025-11-25", "test", budget.Account{Principal: "local"}, client.Profile{})
		header, meta = http.Header{"Mcp-Session-Id": {id}, "Mcp-Protocol-Version": {"2025-11-25"}}, ""
	}
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	r := httptest.NewRequest("POST", "http://127.0.0.1/mcp", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`","arguments":`+arguments+meta+`}}`))
	r.RemoteAddr, r.Header = "127.0.0.1:1", header
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if len(got) != 1 {
		t.Fatalf("the call is reported %d times, want once; the answer is %d %s", len(got), w.Code, w.Body)
	}
	return got[0]
}

// TestRefusalsOfLimitsAndOutagesDiffer: a request that a limit refuses counts for another reason than one that
// needs the database or another member, although both get 503.
func TestRefusalsOfLimitsAndOutagesDiffer(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{proxy.OveruseError(&budget.Exceeded{Quota: budget.Streams, Others: 9, Total: 9}), "limit"},
		{&httpError{proxy.OveruseError(&budget.Exceeded{Own: 1, Total: 9}).(*proxy.Refusal), http.StatusTooManyRequests}, "limit"},
		{errReleased, "unavailable"},
		{errForeign, "unavailable"},
		{forwardError(errors.New("broken")), "unavailable"},
		{refuse(http.StatusBadRequest, 0, "wrong"), ""},
		{errors.New("another"), ""},
	} {
		if got := refusedFor(test.err); got != test.want {
			t.Errorf("%v counts for %q, want %q", test.err, got, test.want)
		}
	}
}
