package signin

import (
	"fmt"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/upstreamtest"
)

// longName is a name as hostile people choose it.
var longName = "<b>Evil</b> & \"Co\" \u202e" + strings.Repeat("M", 60)

// TestEveryPageOfASignInInABrowser opens the pages of a sign-in that are seldom seen, with the longest
// names that they may show. The browser checks each of them in all widths and colour schemes.
func TestEveryPageOfASignInInABrowser(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	l := mustLinear(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	address := process.FreePort(t)
	upstream := strings.Repeat("linear-", 4) + "x"
	config := `outbound: { allow_private: [127.0.0.0/8] }
policies:
  - name: engineers
    match: { group: engineering }
    rules: [{ allow: { upstreams: "*" } }]
`
	c := mustCompanyOver(t, address,
		fmt.Sprintf(`{ %s: { url: %q, auth: { mode: oauth_user } }, keyed: { url: %q, auth: { mode: user_key } }, plain: { url: %q } }`,
			upstream, l.url, up, up),
		"      - { id: partner, name: "+fmt.Sprintf("%q", strings.Repeat("The partners' single sign-on ", 2))+
			", issuer: \"http://127.0.0.1:9\", client_id: junction, client_secret: canary-s3cret }\n    limits: { pages: 1 }\n", config)
	app := mustRegisterAs(t, c, longName, "https://"+strings.Repeat("app.", 15)+"example.com/cb")
	origins := []string{c.origin, c.issuer, l.issuer, "https://" + strings.Repeat("app.", 15) + "example.com"}
	ann := "<b>ann</b>&" + strings.Repeat("W", 100)
	c.command("groups " + ann + " engineering,<i>" + strings.Repeat("G", 80) + "</i>")
	c.command("groups bob sales,<i>" + strings.Repeat("G", 80) + "</i>")

	b := mustChromium(t, ann)
	// last visits, and returns the last page, which shows each of the texts.
	last := func(b chromium, name, where string, press []string, texts ...string) {
		t.Helper()
		v := b.visit(where, false, press...)
		if len(v.Pages) == 0 {
			t.Errorf("%s: there is no page; it ends at %q", name, v.Returned)
			return
		}
		p := v.Pages[len(v.Pages)-1]
		for _, text := range texts {
			if !strings.Contains(p.Title+"\n"+p.Text, text) {
				t.Errorf("%s: %q is not on the page %s, after %s:\n%s", name, text, p.Title, v.titles(), p.Text)
			}
		}
	}
	account := c.origin + "/account"
	last(b, "choose a provider", account, nil, "Continue with Acme SSO")
	last(b, "a provider that is off", account, []string{"Continue with The partners"}, "cannot be reached")
	last(b, "a request that is not valid", strings.Replace(app.authorize(), "=S256", "=plain", 1), nil, "must be S256")
	last(b, "denied at the provider", app.authorize(), []string{"Continue with Acme", "[ Cancel ]"},
		"You are not signed in", "access_denied")
	last(b, "the first account", account, []string{"Continue with Acme"}, "Your account", "None.", "is not connected",
		"keyed needs a key of your own", "Give a key")
	v := b.visit(app.authorize(), false, "Allow")
	if !strings.HasPrefix(v.Returned, app.redirect) || !strings.Contains(v.Pages[0].Text, "You are signed in as") {
		t.Errorf("the app is not allowed: %+v", v)
	}
	last(b, "connect a server", c.origin+"/connect/"+upstream, nil, "Connect "+upstream)
	last(b, "a connected server", c.origin+"/connect/"+upstream, []string{"Continue to"}, upstream+" is connected")
	last(b, "a full account", account, nil, "Evil", upstream+" is connected", "Servers you may use")
	last(b, "a page for a key", c.origin+"/connect/keyed", nil, "Your key for keyed", "in the header Authorization")
	last(b, "no such server", c.origin+"/connect/nothing", nil, "Server not found")
	last(b, "no such page", c.origin+"/oauth/callback/none", nil, "Page not found")
	last(b, "no such page at all", c.origin+"/x", nil, "not found")
	last(b, "an app that is not registered", strings.Replace(app.authorize(), "client_id=dcr_", "client_id=dcr_x", 1), nil,
		"This app cannot sign you in", "What you can do")
	last(b, "start again", c.origin+"/oauth/callback/sso?state=x", nil, "Start again")
	last(b, "how to connect", c.origin+"/", nil, "Claude Code")
	c.mustOperate(t, "clients", "block", app.id)
	last(b, "a blocked app", app.authorize(), nil, "blocked this app")
	last(b, "signed out here", account, []string{"Sign out of this browser"}, "You are signed out")
	last(b, "signed out everywhere", account, []string{"Continue with Acme", "Sign out of all devices"}, "every browser")

	bob := mustChromium(t, "bob")
	last(bob, "an account without servers", account, []string{"Continue with Acme"}, "None. No policy of this server gives you access",
		"sent these groups: sales, <i>G")
	last(bob, "no policy", c.origin+"/connect/"+upstream, nil, "No access to "+upstream, "no policy")
	c.mustOperate(t, "users", "disable", "bob@acme.example")
	last(bob, "a disabled user", account, []string{"Continue with Acme"}, "may not use this server")

	eve := mustChromium(t, "eve")
	eve.visit(c.origin+"/", false)
	defer flood(t, "", account)()
	last(eve, "too many requests", account, nil, "Too many requests")
	b.mustEnd(origins...)
	bob.mustEnd(origins...)
}
