package safety

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/policy"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// The policies of two files, each of which denies what the other one allows.
const (
	oldFile = `
- name: everybody
  rules: [ { deny: { tools: up__fail, resources: "note:*" } }, { allow: { upstreams: "*" } } ]
`
	newFile = `
- name: everybody
  rules:
    - deny: { prompts: up__wipe, resources: "file:///etc/*" }
    - deny: { tools: up__echo, where: { text: "secret*" } }
    - ask: { tools: up__echo }
    - allow: { upstreams: "*" }
`
)

// TestBothFilesHoldForClients: after a reload that is refused in part, clients see and call only what both files
// allow: in lists, calls, reads, completion, and beside an approval.
func TestBothFilesHoldForClients(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "a policy of two files comes from a reload that is refused")
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{
			Prompts: []json.RawMessage{[]byte(`{"name":"p"}`), []byte(`{"name":"wipe"}`)},
			Templates: []json.RawMessage{[]byte(`{"uriTemplate":"file:///{+p}","name":"f"}`),
				[]byte(`{"uriTemplate":"note:{id}","name":"n"}`)},
			Completions: map[string]json.RawMessage{"file:///{+p}": []byte(`{"values":["srv/a","etc/passwd"]}`)},
		})
		guard, keys := harness.Keyring(t, "ann")
		under := func(rules *policy.Policy) harness.Setup {
			return harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard, Policy: rules}
		}
		one, two := harness.MustPolicy(t, oldFile), harness.MustPolicy(t, newFile)
		j := harness.Start(t, p, under(one))
		j.Offers(t, "up")
		s.Listened(t, p)
		ann := j.As(t, keys["ann"])
		ann.Succeed(t, "up__echo", `{"text":"secret x"}`)
		j.Apply(under(policy.Both(one, two)))
		calls := len(s.RequestsOf(t, "tools/call", 1)) // a process tells later
		all := strings.Join(ann.Names(t), " ")
		for _, method := range []string{"prompts/list", "resources/templates/list"} {
			all += string(ann.Must(t, method, ""))
		}
		for _, name := range []string{"up__fail", "up__wipe", "mcp://up/note:{id}"} {
			if strings.Contains(all, name) {
				t.Errorf("the lists have %s, which one of the files denies", name)
			}
		}
		for _, name := range []string{"up__echo", "up__p", "mcp://up/file:///{+p}"} {
			if !strings.Contains(all, name) {
				t.Errorf("the lists lack %s, which both files allow", name)
			}
		}
		for _, q := range []struct{ method, denied, params string }{
			{"tools/call", "up__fail", `"name":"%s","arguments":{}`},
			{"prompts/get", "up__wipe", `"name":"%s"`},
			{"resources/read", "mcp://up/note:1", `"uri":"%s"`},
			{"resources/read", "mcp://up/file:///etc/passwd", `"uri":"%s"`},
		} {
			if m := ann.Ask(t, q.method, fmt.Sprintf(q.params, q.denied)); m.Error == nil {
				t.Errorf("%s of %s is answered %s", q.method, q.denied, m.Append(nil))
			}
		}
		complete := `"ref":{"type":"ref/resource","uri":"mcp://up/file:///{+p}"},"argument":{"name":"p","value":""}`
		if got := harness.Member(ann.Must(t, "completion/complete", complete), "completion", "values"); got != `["srv/a"]` {
			t.Errorf("completed values are %s, want those that both files allow", got)
		}
		wantDenied(t, ann.Call(t, "up__echo", `{"text":"secret x"}`), "up__echo")
		m, asked := ann.Converse(t, harness.Called("up__echo", `{"text":"x"}`), approval("Do not allow"))
		if len(asked) != 1 || !strings.Contains(string(m.Result), "did not approve") {
			t.Errorf("after %d questions the call is answered %s", len(asked), m.Append(nil))
		}
		if n := len(s.RequestsOf(t, "tools/call", 0)) + len(s.RequestsOf(t, "resources/read", 0)) +
			len(s.RequestsOf(t, "prompts/get", 0)); n != calls {
			t.Errorf("the server got %d requests about what one of the files denies", n-calls)
		}
		if m, asked = ann.Converse(t, harness.Called("up__echo", `{"text":"x"}`), approval("Allow once")); len(asked) != 1 ||
			m.Error != nil {
			t.Errorf("after %d questions the approved call is answered %s", len(asked), m.Append(nil))
		}
		j.Apply(under(one))
		ann.Succeed(t, "up__echo", `{"text":"secret x"}`)
	})
}
