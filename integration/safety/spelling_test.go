package safety

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream"
	"junction/upstream/client"
)

// spelled are other names of notes://secret/a.md and mem://hidden/x, for servers that join a folder
// and the rest of the URI, or that take a host without its user and port.
var spelled = []string{
	"notes://secret/a.md", "notes://x/../secret/a.md", "notes:///secret/a.md", "notes://./secret/a.md",
	"notes:////secret/a.md", "notes://../root/secret/a.md", "notes:/secret/a.md", "notes://x/%2e%2e/secret/a.md",
	"mem://user@hidden/x", "mem://hidden:80/x", "mem://user:pw@hidden:80/x", "mem:///hidden/x",
}

// TestEnforcedDenyHoldsForEachSpelling has a key whose own policy allows everything name a denied
// resource in other ways, in each request that has a URI.
func TestEnforcedDenyHoldsForEachSpelling(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		script := harness.Library("up")
		script.Templates = []json.RawMessage{[]byte(`{"uriTemplate":"notes://{+p}","name":"n"}`),
			[]byte(`{"uriTemplate":"notes:///secret/{name}","name":"s"}`),
			[]byte(`{"uriTemplate":"mem://{user}@hidden/x","name":"h"}`)}
		script.Completions = map[string]json.RawMessage{"notes://{+p}": []byte(`{"values":["x/a.md","x/../secret/a.md",` +
			`"/secret/a.md","./secret/a.md","../root/secret/a.md","u@secret:80/a"]}`)}
		s := p.Serve(t, script)
		guard, keys := harness.Keyring(t, "ann")
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard,
			Policy: harness.MustPolicy(t, `
- name: locked
  enforced: true
  rules: [ { deny: { resources: ["notes://secret/*", "mem://hidden/*"] } } ]
- name: ann
  match: { key: ann }
  rules: [ { allow: { upstreams: "*" } } ]
`)})
		j.Offers(t, "up")
		ann, bare := j.As(t, keys["ann"]), j.As(t, keys["ann"], func(c *harness.Talker) { c.URL += "/up" })
		templates := string(ann.Must(t, "resources/templates/list", ""))
		for _, denied := range []string{"secret", "hidden"} {
			if strings.Contains(templates, denied) {
				t.Errorf("the list of templates has one of %s: %s", denied, templates)
			}
		}
		methods := []string{"resources/read", "resources/directory/read"}
		if p.Client == client.EraLegacy {
			methods = append(methods, "resources/subscribe")
		}
		for _, own := range spelled {
			for _, c := range []struct {
				*harness.Talker
				uri string
			}{{ann, "mcp://up/" + own}, {bare, own}} {
				for _, method := range methods {
					if m := c.Ask(t, method, fmt.Sprintf(`"uri":%q`, c.uri)); m.Error == nil {
						t.Errorf("%s of %s is answered %s", method, c.uri, m.Append(nil))
					}
				}
				if p.Client == client.EraModern {
					_, honoured := harness.Subscribe(t, c.Talker, fmt.Sprintf("%q", c.uri),
						fmt.Sprintf(`{"resourceSubscriptions":[%q]}`, c.uri))
					if strings.Contains(honoured, own) {
						t.Errorf("the subscription of %s is acknowledged: %s", c.uri, honoured)
					}
				}
			}
		}
		got := harness.Member(ann.Must(t, "completion/complete", `"ref":{"type":"ref/resource",`+
			`"uri":"mcp://up/notes://{+p}"},"argument":{"name":"p","value":""}`), "completion", "values")
		if got != `["x/a.md"]` {
			t.Errorf("completed values are %s, want those that are not denied", got)
		}
		for _, method := range []string{"resources/read", "resources/directory/read", "resources/subscribe"} {
			if n := len(s.RequestsOf(t, method, 0)); n != 0 {
				t.Errorf("the server got %d %s about what is denied", n, method)
			}
		}
	})
}
