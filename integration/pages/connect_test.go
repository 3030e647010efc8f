package pages

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/upstreamtest"
)

// TestConnectInABrowser has a person open the URL of the endpoint, copy a command by mouse and by
// keyboard, and look for the links of clients.
func TestConnectInABrowser(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	p := harness.MustProgram(t, `upstreams: { canary: { url: "`+up+`" } }`)
	w := mustWindow(t)
	s := w.do(order{Open: p.URL, Shot: "connect"})
	if s.Title != "Connect to Junction" || strings.Contains(s.Text, "canary") {
		t.Errorf("the page is %q:\n%s", s.Title, s.Text)
	}
	command := "claude mcp add --scope user --transport http junction " + p.URL
	for _, keyboard := range []bool{false, true} {
		w.do(order{Open: p.URL})
		s = w.do(order{Click: "Copy the command for Claude Code", Keyboard: keyboard, Then: "Copied"})
		if s.Clipboard != command {
			t.Errorf("copied (keyboard: %v) %q, want %q", keyboard, s.Clipboard, command)
		}
	}
	links := map[string]string{}
	for _, l := range s.Links {
		links[l[0]] = l[1]
	}
	wantConfig := `{"url":"` + p.URL + `"}`
	if u, err := url.Parse(links["Add to Cursor"]); err != nil || u.Scheme != "cursor" || u.Query().Get("name") != "junction" ||
		u.Query().Get("config") != base64.StdEncoding.EncodeToString([]byte(wantConfig)) {
		t.Errorf("the link of Cursor is %s: %v", links["Add to Cursor"], err)
	}
	text, err := url.QueryUnescape(strings.TrimPrefix(links["Add to VS Code"], "vscode:mcp/install?"))
	if want := `{"name":"junction","type":"http","url":"` + p.URL + `"}`; err != nil || text != want {
		t.Errorf("the link of VS Code is for %s: %v", text, err)
	}
	if s = w.do(order{Open: strings.TrimSuffix(p.URL, "mcp"), Plain: true, Shot: "plain"}); !strings.Contains(s.Text, command) || strings.Contains(s.Text, "Copy") {
		t.Errorf("without scripts the page shows:\n%s", s.Text)
	}
}
