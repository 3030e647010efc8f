package integration

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"junction/upstream/upstreamtest"
)

// chromium is a real browser, with cookies, a policy for what a page may do, and a person who presses buttons.
type chromium struct{ *nodeScript }

// visited is what browser.mjs says.
type visited struct {
	Returned string
	Pages    []struct {
		Title, URL, Text string
		Wide             bool
		Unnamed          int
	}
	Error            string
	Console, Origins []string
}

// mustChromium starts a browser; a screenshot of each page is left where JUNCTION_SCREENSHOTS says.
func mustChromium(t *testing.T, name string) chromium {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		need(t, errors.New("there is no Chromium"))
	}
	folder := os.Getenv("JUNCTION_SCREENSHOTS")
	if folder != "" {
		folder += "/" + t.Name()
		if err := os.MkdirAll(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return chromium{mustNode(t, "browser.mjs", path, name, folder)}
}

func (c chromium) visit(where string, keyboard bool, press ...string) visited {
	c.t.Helper()
	return c.do(map[string]any{"open": where, "press": press, "keyboard": keyboard})
}

func (c chromium) do(order map[string]any) visited {
	c.t.Helper()
	line, err := json.Marshal(order)
	if err != nil {
		c.t.Fatal(err)
	}
	c.mustWrite(string(line))
	var v visited
	c.mustRead(&v)
	if v.Error != "" {
		c.t.Errorf("the browser says %s after %+v", v.Error, v.Pages)
	}
	for _, p := range v.Pages {
		if p.Wide || p.Unnamed > 0 {
			c.t.Errorf("%s is wider than the window: %v; %d things on it have no name", p.Title, p.Wide, p.Unnamed)
		}
	}
	return v
}

// mustEnd closes the browser: no page may have complained, or have talked to anybody but these.
func (c chromium) mustEnd(origins ...string) {
	c.t.Helper()
	if err := c.in.Close(); err != nil {
		c.t.Fatal(err)
	}
	var v visited
	c.mustRead(&v)
	v.Console = slices.DeleteFunc(v.Console, func(s string) bool {
		return strings.Contains(s, "favicon.ico") || strings.Contains(s, "status of 40") || strings.Contains(s, "net::ERR_NAME_NOT_RESOLVED")
	})
	if len(v.Console) > 0 {
		c.t.Errorf("pages complain: %q", v.Console)
	}
	for _, o := range v.Origins {
		if !slices.Contains(origins, o) {
			c.t.Errorf("a page talks to %s", o)
		}
	}
}

func (v visited) titles() string {
	var all []string
	for _, p := range v.Pages {
		all = append(all, p.Title)
	}
	return strings.Join(all, " | ")
}

func TestAuthT127T128T129T130T131InABrowser(t *testing.T) {
	defer computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	client, b := mustNode(t, "sign-in.mjs", "v2", c.origin+"/mcp"), mustChromium(t, "ann")
	said := client.mustSay()
	v := b.visit(said.Authorize, false, "Continue with", "Allow")
	if !strings.HasPrefix(v.Returned, "http://localhost:61802/callback?code=") {
		t.Fatalf("it ends at %q after %+v", v.Returned, v.Pages)
	}
	client.mustWrite(v.Returned)
	said = client.mustSay()
	if !slices.Contains(said.Tools, "up__echo") {
		t.Fatalf("signed in the client says %+v", said)
	}
	// Signed in by now, with the keyboard alone, and to an app with a scheme of its own.
	app := mustRegister(t, c, "cursor://anysphere.cursor-mcp/oauth/callback")
	if v = b.visit(app.authorize(), true, "Allow"); !strings.HasPrefix(v.Returned, "cursor:") && !strings.Contains(v.Pages[len(v.Pages)-1].Title, "Connected as ann@acme.example") {
		t.Errorf("with a private scheme it ends at %q after %s", v.Returned, v.titles())
	}
	app = mustRegister(t, c, "https://app.example.com/cb")
	if v = b.visit(app.authorize(), false, "Allow"); !strings.HasPrefix(v.Returned, "https://app.example.com/cb?code=") {
		t.Errorf("with https it ends at %q after %s", v.Returned, v.titles())
	}
	if v = b.do(map[string]any{"open": app.authorize(), "press": []string{"Allow"}, "double": true}); !strings.HasPrefix(v.Returned, "https://app.example.com/cb?code=") {
		t.Errorf("clicked twice it ends at %q after %s", v.Returned, v.titles())
	}
	if v = b.visit(app.authorize(), false, "Cancel"); !strings.HasPrefix(v.Returned, "https://app.example.com/cb?error=access_denied") {
		t.Errorf("cancelled it ends at %q after %s", v.Returned, v.titles())
	}
	if v = b.visit(c.origin+"/account", false); len(v.Pages) != 1 || !strings.Contains(v.Pages[0].Text, "SDK v2") {
		t.Errorf("the account shows %+v", v.Pages)
	}
	b.visit(c.origin+"/", false)
	b.visit(strings.Replace(app.authorize(), "client_id=dcr_", "client_id=dcr_x", 1), false)
	if v = b.visit(c.origin+"/account", false, "Disconnect"); !strings.Contains(v.Pages[len(v.Pages)-1].Text, "None") {
		t.Errorf("after the last app is disconnected: %+v", v.Pages)
	}
	b.mustEnd(c.origin, c.issuer, "https://app.example.com", "cursor:")
}
