package safety

import (
	"encoding/json"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// completing is the script of a server whose completions name files that the policy of
// TestCompletionObeysResourceRules denies.
func completing() upstreamtest.Script {
	const values = `{"values":["home/a","etc/passwd","home/../etc/shadow","%65tc/hosts","secret","et\u0063/x",7],` +
		`"total":7,"hasMore":true,"x":"etc/passwd"}`
	return upstreamtest.Script{
		Prompts: []json.RawMessage{[]byte(`{"name":"free"}`), []byte(`{"name":"asked"}`), []byte(`{"name":"judged"}`)},
		Templates: []json.RawMessage{[]byte(`{"uriTemplate":"file:///{+p}","name":"f"}`),
			[]byte(`{"uriTemplate":"file:///{+dir}/{name}","name":"g"}`),
			[]byte(`{"uriTemplate":"note:{id}","name":"n"}`)},
		Completions: map[string]json.RawMessage{"free": []byte(values), "asked": []byte(values), "judged": []byte(values),
			"file:///{+p}":          []byte(values),
			"file:///{+dir}/{name}": []byte(values), "note:{id}": []byte(values), "file:///{+made}{up}": []byte(values)},
	}
}

// TestCompletionObeysResourceRules completes what policy denies, or allows only with an
// approval. The server is not asked, or its values are filtered.
func TestCompletionObeysResourceRules(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, completing())
		guard, keys := harness.Keyring(t, "all", "some")
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard, Policy: harness.MustPolicy(t, `
- { name: all, match: { key: all }, rules: [ { allow: { upstreams: "*" } } ] }
- name: some
  match: { key: some }
  rules:
    - deny: { resources: "file:///etc/*" }
    - ask: { resources: "mcp://up/file:///secret*", prompts: up__asked }
    - deny: { prompts: up__judged, where: { x: "etc*" } }
    - allow: { upstreams: "*" }
`)})
		j.Offers(t, "up")
		all, some := j.As(t, keys["all"]), j.As(t, keys["some"])
		resource := func(uri, name, value, others string) string {
			return `"ref":{"type":"ref/resource","uri":"mcp://up/` + uri + `"},"argument":{"name":"` + name + `","value":"` +
				value + `"},"context":{"arguments":{` + others + `}}`
		}
		prompt := func(name string) string {
			return `"ref":{"type":"ref/prompt","name":"up__` + name + `"},"argument":{"name":"x","value":""}`
		}
		const everything, nothing = `["home/a","etc/passwd","home/../etc/shadow","%65tc/hosts","secret","et\u0063/x",7]`, `[]`
		asked := 0
		for _, test := range []struct {
			params string
			values string // "" for an error
			why    string // that it has
			sent   bool   // to the server
		}{
			{resource("file:///{+p}", "p", "etc/", ""), nothing, "", false},
			{resource("file:///{+p}", "p", "home/../etc/", ""), nothing, "", false},
			{resource("file:///{+p}", "p", "%65tc/pass", ""), nothing, "", false},
			{resource("file:///{+p}", "p", "", ""), `["home/a"]`, "", true},
			{resource("file:///{+p}", "p", "secret", ""), "", "approval", false},
			{resource("file:///{+dir}/{name}", "name", "", `"dir":"etc"`), nothing, "", false},
			{resource("file:///{+dir}/{name}", "name", "", `"dir":"x/../etc"`), nothing, "", false},
			{resource("file:///{+dir}/{name}", "name", "", ""), "", "context.arguments", false},
			{resource("file:///{+dir}/{name}", "dir", "", ""), `["home/a"]`, "", true},
			{resource("file:///{+p}", "other", "etc/", ""), "", "no such variable", false},
			{resource("file:///{+made}{up}", "made", "etc/", ""), "", "lists", false},
			{resource("note:{id}", "id", "etc/", ""), everything, "", true},
			{prompt("free"), everything, "", true},
			{prompt("asked"), "", "approval", false},
			{prompt("judged"), "", "arguments", false},
		} {
			m := some.Ask(t, "completion/complete", test.params)
			if test.values == "" {
				if m.Error == nil || !strings.Contains(m.Error.Message, test.why) {
					t.Errorf("completion of %s is answered %s, want an error with %q", test.params, m.Append(nil), test.why)
				}
			} else if got := harness.Member(m.Result, "completion", "values"); got != test.values {
				t.Errorf("completion of %s is answered %s, want the values %s", test.params, m.Append(nil), test.values)
			} else if filtered := got != everything; filtered && harness.Member(m.Result, "completion") != `{"values":`+got+`}` {
				t.Errorf("completion of %s is answered %s, which counts values that policy denies", test.params, m.Result)
			}
			if test.sent {
				asked++
			}
			if n := len(s.RequestsOf(t, "completion/complete", asked)); n != asked {
				t.Fatalf("after the completion of %s the server has %d requests, want %d", test.params, n, asked)
			}
			if test.why == "lists" || test.why == "no such variable" {
				continue
			}
			m = all.Ask(t, "completion/complete", test.params)
			if asked++; m.Error != nil || harness.Member(m.Result, "completion", "x") != `"etc/passwd"` {
				t.Errorf("the key that may use everything gets %s for %s", m.Append(nil), test.params)
			}
		}
		if _, err := raw.Parse([]byte(harness.Member(some.Must(t, "completion/complete", prompt("free")),
			"completion"))); err != nil {
			t.Error(err)
		}
	})
}
