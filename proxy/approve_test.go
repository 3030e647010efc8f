package proxy

import (
	"net/http/httptest"
	"strings"
	"testing"

	"junction/auth/seal"
	"junction/policy"
	"junction/proxy/scope"
	"junction/proxy/view"
	"junction/upstream"
)

// TestUndecidedCallsAreDenied has the pipeline reach approval without a decision of policy: in no era
// is the call made.
func TestUndecidedCallsAreDenied(t *testing.T) {
	s := mustServer(t)
	for _, era := range []upstream.Era{upstream.EraLegacy, upstream.EraModern} {
		for verdict, want := range map[policy.Verdict]string{policy.Deny: "Unknown tool: x", policy.Allow: ""} {
			x := &exchange{era: era, target: &view.Target{Part: upstream.PartTools}, decision: policy.Decision{Verdict: verdict}}
			x.info.Name, x.approved = "x", true
			got := ""
			if r, err := s.approve(t.Context(), x, state{Approved: true}); r != nil {
				t.Errorf("%s: approve answered %s", era, r.body)
			} else if err != nil {
				got = err.Error()
			}
			if got != want {
				t.Errorf("%s: approve of a call with the verdict %s = %q, want %q", era, verdict, got, want)
			}
		}
	}
}

// TestApprovalIsGoodOnceAcrossARestart: a process that is alone forgets which approval requests were
// answered when it ends. The answer to a request of an earlier process permits no call, because it may
// have permitted one already.
func TestApprovalIsGoodOnceAcrossARestart(t *testing.T) {
	p, err := policy.Compile(policy.Config{{Name: "careful", Rules: []policy.Rule{{Ask: &policy.Selector{Tools: policy.List{"*"}}}}}})
	if err != nil {
		t.Fatal(err)
	}
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	start := func() *visitor {
		w := newTown(t, Limits{}, 10, nil, func(c *scope.Config) { c.Policy = p })
		w.states = key.Box("state")
		return w.visitor(upstream.EraModern, "user0")
	}
	call := func(v *visitor, more string) *httptest.ResponseRecorder {
		meta := strings.Replace(modernMeta, `Capabilities":{}`, `Capabilities":{"elicitation":{"form":{}}}`, 1)
		return v.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__tool1","arguments":{},`+more+meta+`}}`,
			modernHeader("tools/call", "up__tool1"))
	}
	before := start()
	_, state, _ := strings.Cut(call(before, "").Body.String(), `"requestState":"`)
	state, _, asked := strings.Cut(state, `"`)
	answer := `"requestState":"` + state + `","inputResponses":{"` + approvalKey + `":{"action":"accept","content":{"answer":"Allow once"}}},`
	if a := call(before, answer); !asked || !strings.Contains(a.Body.String(), `"complete"`) {
		t.Fatalf("an approved call is answered %s", a.Body)
	}
	if a := call(start(), answer); !strings.Contains(a.Body.String(), "requestState is unknown") {
		t.Errorf("after a restart, the same approval is answered %s", a.Body)
	}
}
