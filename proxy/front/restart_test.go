package front

import (
	"net/http/httptest"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/policy"
	"junction/proxy/scope"
	"junction/upstream/client"
)

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
		w := newTownWith(t, Options{Log: authtest.Log(t), Key: key}, 10, nil, func(c *scope.Config) { c.Policy = p })
		return w.visitor(client.EraModern, "user0")
	}
	call := func(v *visitor, more string) *httptest.ResponseRecorder {
		meta := strings.Replace(modernMeta, `Capabilities":{}`, `Capabilities":{"elicitation":{"form":{}}}`, 1)
		return v.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"up__tool1","arguments":{},`+more+meta+`}}`,
			modernHeader("tools/call", "up__tool1"))
	}
	before := start()
	_, state, _ := strings.Cut(call(before, "").Body.String(), `"requestState":"`)
	state, _, asked := strings.Cut(state, `"`)
	answer := `"requestState":"` + state + `","inputResponses":{"junction_approval":{"action":"accept","content":{"answer":"Allow once"}}},`
	if a := call(before, answer); !asked || !strings.Contains(a.Body.String(), `"complete"`) {
		t.Fatalf("an approved call is answered %s", a.Body)
	}
	if a := call(start(), answer); !strings.Contains(a.Body.String(), "requestState is unknown") {
		t.Errorf("after a restart, the same approval is answered %s", a.Body)
	}
}
