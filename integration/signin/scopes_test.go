package signin

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
)

// TestMoreScopesForACall: a call that needs another scope than the user has granted returns a link. Its
// page shows the scope, and its button leads to a sign-in with all scopes. Other calls go on before, and
// the link is of this user alone.
func TestMoreScopesForACall(t *testing.T) {
	defer harness.Computes(t)()
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		l := mustLinear(t)
		may := map[string]bool{} // tokens with the scope write; l.mu guards it
		var asked []string       // the scopes of each sign-in
		l.change(func() {
			l.token = func(form url.Values) (int, string) {
				if q := l.codes[form.Get("code")]; q != nil {
					asked = append(asked, q.Get("scope"))
				}
				return 0, ""
			}
			l.lacks = func(token string, r *http.Request) string {
				may[token] = may[token] || len(asked) > 1
				if r.Header.Get("Mcp-Method") == "tools/call" && !may[token] {
					return "write"
				}
				return ""
			}
		})
		c := mustLinearCompany(t, l, "", "")
		ann := mustWorker(t, c, "ann")
		ann.mustConnect(t)
		app := ann.talk(t, era, `{}`)
		link := connectURL(t, app, "linear__echo")
		if m := app.Call(t, "linear__echo", `{}`); !strings.Contains(string(m.Result), "needs more than you have allowed at linear (write)") {
			t.Errorf("the call returns %s", m.Append(nil))
		}
		if names := strings.Join(toolNames(t, app), " "); !strings.Contains(names, "linear__echo") {
			t.Errorf("after the call she sees %s", names)
		}
		if g := mustWorker(t, c, "bob").open(link); g.status != http.StatusForbidden {
			t.Errorf("for another user the link is %d:\n%s", g.status, g.body)
		}
		shown := ann.connectUntil("Allow more at linear?", link)
		if shown.title() != "Allow more at linear?" || !strings.Contains(shown.body, "<b>write</b>") ||
			!strings.Contains(shown.body, "<b>read, write</b>") {
			t.Errorf("the page is\n%s", shown.body)
		}
		if g := ann.connect(link); g.title() != "linear is connected" {
			t.Fatalf("it ends at %s (%d):\n%s", g.url, g.status, g.body)
		}
		app.Succeed(t, "linear__echo", `{}`)
		l.change(func() {
			if got := strings.Join(asked, "; "); got != "read; read write" {
				t.Errorf("the sign-ins asked for %s", got)
			}
		})
	})
}
