package safety

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// enforcing is a policy for everybody, of which %v says whether it is enforced, and one of ann's
// own that allows everything.
const enforcing = `
- name: everybody
  enforced: %v
  rules:
    - deny: { tools: up__fail, prompts: up__wipe, resources: ["file:///etc/*", "note:*"] }
    - deny: { tools: up__echo, where: { text: "secret*" } }
    - ask: { tools: up__echo }
- name: ann
  match: { key: ann }
  rules: [ { allow: { upstreams: "*" } } ]
`

// TestEnforcedPolicyHoldsForClients has a key whose own policy allows everything meet an enforced
// policy: in lists, calls, reads, completion, and after a reload.
func TestEnforcedPolicyHoldsForClients(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{
			Prompts: []json.RawMessage{[]byte(`{"name":"p"}`), []byte(`{"name":"wipe"}`)},
			Resources: []json.RawMessage{[]byte(`{"uri":"file:///srv/a","name":"a"}`),
				[]byte(`{"uri":"note:1","name":"n"}`)},
			Templates: []json.RawMessage{[]byte(`{"uriTemplate":"file:///{+p}","name":"f"}`),
				[]byte(`{"uriTemplate":"note:{id}","name":"n"}`)},
			Completions: map[string]json.RawMessage{
				"file:///{+p}": []byte(`{"values":["srv/a","etc/passwd"]}`), "note:{id}": []byte(`{"values":["1"]}`),
				"wipe": []byte(`{"values":["x"]}`),
			},
		})
		guard, keys := harness.Keyring(t, "ann")
		under := func(enforced bool) harness.Setup {
			rules := harness.MustPolicy(t, fmt.Sprintf(enforcing, enforced))
			return harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard, Policy: rules}
		}
		j := harness.Start(t, p, under(true))
		j.Offers(t, "up")
		s.Listened(t, p)
		ann := j.As(t, keys["ann"])
		lists := func() string {
			all := strings.Join(ann.Names(t), " ")
			for _, method := range []string{"prompts/list", "resources/list", "resources/templates/list"} {
				all += string(ann.Must(t, method, ""))
			}
			return all
		}
		denied := []string{"up__fail", "up__wipe", "mcp://up/note:1", "mcp://up/note:{id}"}
		all := lists()
		for _, name := range denied {
			if strings.Contains(all, name) {
				t.Errorf("the lists have %s", name)
			}
		}
		for _, q := range []struct{ method, denied, params, unknown string }{
			{"tools/call", "up__fail", `"name":"%s","arguments":{}`, "up__nothing"},
			{"prompts/get", "up__wipe", `"name":"%s"`, "up__nothing"},
			{"resources/read", "mcp://up/note:1", `"uri":"%s"`, "mcp://nobody/x"},
			{"resources/read", "mcp://up/file:///srv/../etc/passwd", `"uri":"%s"`, "mcp://nobody/x"},
			{"completion/complete", "up__wipe",
				`"ref":{"type":"ref/prompt","name":"%s"},"argument":{"name":"x","value":""}`, "up__nothing"},
			{"completion/complete", "mcp://up/note:{id}",
				`"ref":{"type":"ref/resource","uri":"%s"},"argument":{"name":"id","value":""}`, "mcp://nobody/x"},
		} {
			m := ann.Ask(t, q.method, fmt.Sprintf(q.params, q.denied))
			none := ann.Ask(t, q.method, fmt.Sprintf(q.params, q.unknown))
			if got, want := harness.WithoutName(m, q.denied), harness.WithoutName(none, q.unknown); got != want ||
				m.Error == nil {
				t.Errorf("%s of %s is answered %s\nof what does not exist   %s", q.method, q.denied, got, want)
			}
		}
		wantDenied(t, ann.Call(t, "up__echo", `{"text":"secret x"}`), "up__echo")
		complete := `"ref":{"type":"ref/resource","uri":"mcp://up/file:///{+p}"},"argument":{"name":"p","value":""}`
		if got := harness.Member(ann.Must(t, "completion/complete", complete), "completion", "values"); got != `["srv/a"]` {
			t.Errorf("completed values are %s, want those that are not denied", got)
		}
		// The ask cannot be lifted either: the person answers, and not the key's own allow.
		m, asked := ann.Converse(t, harness.Called("up__echo", `{"text":"x"}`), approval("Do not allow"))
		if len(asked) != 1 || !strings.Contains(string(m.Result), "did not approve") {
			t.Errorf("after %d questions the call is answered %s", len(asked), m.Append(nil))
		}
		for _, method := range []string{"tools/call", "resources/read", "prompts/get"} {
			if n := len(s.RequestsOf(t, method, 0)); n != 0 {
				t.Errorf("the server got %d %s about what is denied", n, method)
			}
		}
		m, asked = ann.Converse(t, harness.Called("up__echo", `{"text":"x"}`), approval("Allow once"))
		if len(asked) != 1 || m.Error != nil {
			t.Errorf("after %d questions the approved call is answered %s", len(asked), m.Append(nil))
		}
		var changes *harness.Answering
		if p.Client == client.EraLegacy {
			changes = ann.Get(t)
		} else {
			changes, _ = harness.Subscribe(t, ann, `"s"`, `{"toolsListChanged":true}`)
		}
		j.Apply(under(false))
		hearsOf(t, changes, "tools/list_changed")
		all = lists()
		for _, name := range denied {
			if !strings.Contains(all, name) {
				t.Errorf("not enforced, the policy still keeps %s from a key that allows it", name)
			}
		}
		ann.Succeed(t, "up__echo", `{"text":"secret x"}`)
		j.Apply(under(true))
		hearsOf(t, changes, "tools/list_changed")
		if slices.Contains(ann.Names(t), "up__fail") || ann.Call(t, "up__echo", `{"text":"secret x"}`).Error == nil {
			t.Error("enforced again, the policy is lifted")
		}
	})
}

// hearsOf waits for a notification of the method on the stream, whatever else is told before.
func hearsOf(t *testing.T, a *harness.Answering, method string) {
	t.Helper()
	for {
		m, ok := a.Next(t)
		if !ok {
			t.Fatalf("the stream ended without %s", method)
		}
		if m.Method == "notifications/"+method {
			return
		}
	}
}
