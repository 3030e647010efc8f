package pages

import (
	"net/http"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// TestStatusInABrowser has a person watch calls, and connect an upstream again by the keyboard.
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
	if s.Title != "Status" || !strings.Contains(s.Text, "<b>API_KEY</b> is required") || strings.Contains(s.Text, "good__echo") {
		t.Errorf("the page is %q:\n%s", s.Title, s.Text)
	}
	for _, era := range []client.Era{client.EraLegacy, client.EraModern} {
		c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, era)
		if era == client.EraLegacy {
			c.MustInitialize(t, "2025-11-25")
		}
		if a := c.Tool(t, "good__echo", `{"canary":"argument"}`); a.Status != http.StatusOK {
			t.Fatal(a)
		}
	}
	s = w.do(order{Wait: "2 calls in the last minute", Then: "1 session of clients", Shot: "status"})
	if strings.Contains(s.Text, "argument") || !strings.Contains(s.Text, "local") || strings.Contains(s.Text, "not up to date") {
		t.Errorf("after calls the page is:\n%s", s.Text)
	}
	if strings.Count(s.Text, "Reconnect") != 1 || !strings.Contains(s.Text, "1 of 2 servers works, 1 needs you") {
		t.Errorf("the healthy server has a button, or there is no summary:\n%s", s.Text)
	}
	w.do(order{Click: "good", Keyboard: true, Then: "Reconnect"}) // stays open while the page changes
	if s = w.do(order{Click: "Reconnect good", Keyboard: true, Then: "ready"}); !strings.HasSuffix(s.URL, "/#upstream-good") {
		t.Errorf("the button leads to %s", s.URL)
	}
	s = w.do(order{Open: p.Admin, Plain: true, Shot: "plain"})
	if !strings.Contains(s.Text, "good__echo") || !strings.Contains(s.Text, "Reload to see changes") {
		t.Errorf("without scripts the page is:\n%s", s.Text)
	}
	w.do(order{Click: "good", Then: "Reconnect"})
	if s = w.do(order{Click: "Reconnect good", Then: "ready"}); !strings.HasSuffix(s.URL, "/#upstream-good") {
		t.Errorf("without scripts the button leads to %s", s.URL)
	}
}
