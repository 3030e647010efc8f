package signin

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
)

// whose returns the subject of a JWT. It does not check the signature: tests ask only which token
// came.
func whose(token, issuer, audience string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct{ Iss, Sub, Aud string }
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Iss != issuer || claims.Aud != audience {
		return ""
	}
	return claims.Sub
}

// TestConnectOfTwoUsersInABrowser has two people connect a server whose authorization server others
// wrote, one of them by the link of the other.
func TestConnectOfTwoUsersInABrowser(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	l := mustLinear(t)
	as := mustNode(t, "as.mjs", l.url)
	var said struct{ Issuer string }
	as.MustRead(&said)
	account := func(token string) string { return whose(token, said.Issuer, l.url) }
	l.change(func() { l.issuer, l.whose = said.Issuer, account })
	c := mustLinearCompany(t, l, "", "")
	ann, bob := mustWorker(t, c, "ann"), mustWorker(t, c, "bob")
	hers, his := ann.talk(t, client.EraLegacy, `{}`), bob.talk(t, client.EraLegacy, `{}`)
	link := connectURL(t, hers, "linear__connect")

	annsBrowser, bobsBrowser := mustChromium(t, "ann"), mustChromium(t, "bob")
	v := annsBrowser.visit(c.origin+"/account", false, "Continue with")
	if last := v.Pages[len(v.Pages)-1]; !strings.Contains(last.Text, "linear is not connected") {
		t.Errorf("her account shows %s", last.Text)
	}
	v = annsBrowser.visit(link, false, "Continue to")
	if last := v.Pages[len(v.Pages)-1]; last.Title != "linear is connected · "+strings.TrimPrefix(c.origin, "http://") ||
		!strings.Contains(last.Text, "ann@acme.example") {
		t.Fatalf("it ends at %+v after %s", last, v.titles())
	}
	if page := v.Pages[0]; !strings.Contains(page.Text, strings.TrimPrefix(said.Issuer, "http://")) ||
		!strings.Contains(page.Text, "read") || !strings.Contains(page.Text, "ann@acme.example") {
		t.Errorf("before she goes there she reads %s", page.Text)
	}
	if tools := toolNames(t, hers); !slices.Contains(tools, "linear__echo") {
		t.Errorf("connected she sees %q", tools)
	}
	hers.Succeed(t, "linear__echo", `{"say":"hers"}`)
	if got := strings.TrimPrefix(l.accounts()["hers"], "Bearer "); account(got) != "ann" {
		t.Errorf("her call is made as %q", account(got))
	}

	v = bobsBrowser.visit(link, false, "Continue")
	if last := v.Pages[len(v.Pages)-1]; !strings.HasPrefix(last.Title, "This link is for another user") ||
		!strings.Contains(last.Text, "bob@acme.example") {
		t.Errorf("by her link he comes to %+v after %s", last, v.titles())
	}
	if v = bobsBrowser.visit(c.origin+"/account", false); !strings.Contains(v.Pages[0].Text, "linear is not connected") {
		t.Errorf("then his account shows %s", v.Pages[0].Text)
	}
	if tools := toolNames(t, his); !slices.Equal(tools, []string{"linear__connect"}) {
		t.Errorf("then he sees %q", tools)
	}

	v = annsBrowser.visit(c.origin+"/account", false)
	if !strings.Contains(v.Pages[0].Text, "linear is connected") {
		t.Errorf("then her account shows %s", v.Pages[0].Text)
	}
	annsBrowser.visit(c.origin+"/connect/nothing", false)
	v = annsBrowser.visit(c.origin+"/account", false, "Disconnect")
	if last := v.Pages[len(v.Pages)-1]; !strings.Contains(last.Text, "linear is not connected") {
		t.Errorf("disconnected her account shows %s", last.Text)
	}
	annsBrowser.mustEnd(c.origin, c.issuer, said.Issuer)
	bobsBrowser.mustEnd(c.origin, c.issuer)
}
