package pages

import (
	"net/http"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestStatusInABrowser has a person watch calls, and read the commands by the keyboard.
func TestStatusInABrowser(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	p := harness.MustProgram(t, `upstreams:
  good: { url: "`+up+`" }
  bad: { command: [sh, -c, 'echo "<b>API_KEY</b> is required" >&2; exit 3'] }
`)
	w := mustWindow(t)
	s := w.do(order{Open: p.Admin, Then: "is required"})
	if s.Title != "Overview" || !strings.Contains(s.Text, "<b>API_KEY</b> is required") || strings.Contains(s.Text, "good__echo") {
		t.Errorf("the page is %q:\n%s", s.Title, s.Text)
	}
	if !strings.Contains(s.Text, "1 of 2 servers works, 1 needs you") || strings.Contains(s.Text, "Connect again") {
		t.Errorf("the open page has a button, or there is no summary:\n%s", s.Text)
	}
	mustCall := func(era client.Era) {
		t.Helper()
		c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, era)
		if era == client.EraLegacy {
			c.MustInitialize(t, "2025-11-25")
		}
		if a := c.Tool(t, "good__echo", `{"canary":"argument"}`); a.Status != http.StatusOK {
			t.Fatal(a)
		}
	}
	mustCall(client.EraLegacy)
	mustCall(client.EraModern)
	w.do(order{Wait: "2 calls", Shot: "overview"}) // the open page changes by itself
	w.do(order{Click: "Calls", Keyboard: true, Then: "1 session of clients"})
	mustCall(client.EraModern)
	s = w.do(order{Wait: "good__echo", Shot: "calls"})
	if strings.Contains(s.Text, "argument") || !strings.Contains(s.Text, "local") || strings.Contains(s.Text, "not up to date") {
		t.Errorf("after calls the page is:\n%s", s.Text)
	}
	w.do(order{Click: "Servers", Keyboard: true, Then: "2 of 2 servers", Shot: "servers"})
	s = w.do(order{Click: "bad", Keyboard: true, Then: "junction reconnect bad", Shot: "server"})
	if !strings.Contains(s.Text, "is required") || !strings.Contains(s.Text, "junction doctor bad") {
		t.Errorf("the page of the server is:\n%s", s.Text)
	}
	s = w.do(order{Open: p.Admin, Plain: true, Shot: "plain"})
	if !strings.Contains(s.Text, "3 calls") || !strings.Contains(s.Text, "Reload to see changes") {
		t.Errorf("without scripts the page is:\n%s", s.Text)
	}
	w.do(order{Click: "good", Then: "junction reconnect good"})
}

// TestHostileStatusInABrowser: long names, markup and a megabyte of text from servers, clients and callers fit the page.
func TestHostileStatusInABrowser(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	long := strings.Repeat("long_NAME-", 3) + "xy" // as long as names may be
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	p := harness.MustProgram(t, `upstreams:
  `+long+`: { url: "`+up+`" }
  gone: { url: "http://`+strings.Repeat("a-host-", 8)+`.invalid/`+strings.Repeat("path", 40)+`" }
  loud: { command: [sh, -c, 'printf "\\033[31m<script>%01048576d\\n" 1 >&2; exit 3'] }
  off: { command: [there-is-no-program], enabled: false }
`)
	w := mustWindow(t)
	c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraModern)
	if a := c.Tool(t, long+"__echo", `{}`); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	c.Tool(t, long+"__"+strings.Repeat("<b>gone</b>", 10), `{}`)
	for _, one := range []order{{Open: p.Admin, Then: "exited with status 3", Shot: "hostile"}, {Click: "loud", Then: "exited with status 3", Shot: "server"},
		{Click: "Calls", Then: long + "__echo", Shot: "calls"}} {
		if s := w.do(one); len(s.Text) > 20_000 {
			t.Errorf("the page has %d bytes of text", len(s.Text))
		}
	}
}
