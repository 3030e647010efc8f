package pages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"junction/cmd/junction/ops/console"
	"junction/integration/harness"
	"junction/upstream/upstreamtest"
)

// mustInvite makes an invitation to the console, as `junction console` does.
func mustInvite(t *testing.T, p *harness.Program) (i console.Invitation) {
	t.Helper()
	status, text := p.MustOwn(t, console.InvitePath)
	if err := json.Unmarshal([]byte(text), &i); err != nil || status != http.StatusOK {
		t.Fatalf("an invitation: %d %s", status, text)
	}
	return i
}

// mustAgree confirms the code that a page shows, as the person at the terminal does.
func mustAgree(t *testing.T, p *harness.Program, i console.Invitation, page string) {
	t.Helper()
	code := regexp.MustCompile(`\b[A-Z0-9]{3}-[A-Z0-9]{3}\b`).FindString(page)
	if _, text := p.MustOwn(t, console.StagePath+"?name="+i.Name); !strings.Contains(text, `"code":"`+code+`"`) || code == "" {
		t.Fatalf("the page shows %q, and the terminal %s", code, text)
	}
	q := url.Values{"name": {i.Name}, "code": {code}, "same": {"true"}}
	if status, text := p.MustOwn(t, console.AnswerPath+"?"+q.Encode()); status != http.StatusOK {
		t.Fatalf("the answer: %d %s", status, text)
	}
}

// TestConsoleInABrowser: the owner confirms the code, goes through the pages of the console by the keyboard, with a
// script and without, signs in to a server there, connects another one again, and ends the session.
func TestConsoleInABrowser(t *testing.T) {
	harness.WithoutShort(t)
	defer harness.Computes(t)()
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	linear := mustSignInServer(t) // it ends after the program
	p := harness.NewProgram(t)
	p.MustConfigure(t, fmt.Sprintf("storage: { dsn: %[1]s/junction.db, key_file: %[1]s/master.key }\nupstreams:\n"+
		"  good: { url: %[2]q }\n  linear: { url: %[3]q, auth: { mode: oauth } }\n  bad: { command: [sh, -c, 'exit 3'] }\n",
		p.Dir, up, linear))
	p.MustServe(t)
	w := mustWindow(t)
	for _, plain := range []bool{false, true} {
		shot := map[bool]string{false: "script-", true: "plain-"}[plain]
		i := mustInvite(t, p)
		s := w.do(order{Open: p.Admin + i.Path, Plain: plain, Then: "Compare the code", Shot: shot + "code"})
		mustAgree(t, p, i, s.Text)
		first := order{Wait: "End this session", Shot: shot + "overview"} // the script goes on by itself
		if plain {
			first = order{Click: "Continue", Then: "End this session", Shot: shot + "overview"}
		}
		s = w.do(first)
		if !strings.Contains(s.Text, "2 need you") && !plain || strings.Contains(s.Text, "junction console") {
			t.Errorf("the console is:\n%s", s.Text)
		}
		if !plain {
			w.do(order{Click: "Sign in to linear", Keyboard: true, Then: "Continue at"})
			w.do(order{Wait: "Allow Junction?"})
			w.do(order{Click: "Allow", Then: "Last hour"})
			s = w.do(order{Wait: "1 needs you", Shot: shot + "signed-in"})
			if !strings.Contains(s.URL, i.Path) {
				t.Errorf("after the sign-in, the browser is at %s", s.URL)
			}
		}
		w.do(order{Click: "Servers", Keyboard: true, Then: "3 of 3 servers", Shot: shot + "servers"})
		w.do(order{Click: "Show", Keyboard: true, Then: "3 of 3 servers"})
		w.do(order{Click: "good", Keyboard: true, Then: "Facts", Shot: shot + "server"})
		s = w.do(order{Click: "Connect good again", Keyboard: true, Then: "Facts"})
		if s.Title != "good" || !strings.HasSuffix(s.URL, i.Path+"servers/good") {
			t.Errorf("after the button, the browser is at %s:\n%s", s.URL, s.Text)
		}
		w.do(order{Click: "Servers", Keyboard: true, Then: "3 of 3 servers"})
		s = w.do(order{Click: "bad", Keyboard: true, Then: "States", Shot: shot + "states"})
		if !regexp.MustCompile(`retrying\s+exited with status 3`).MatchString(s.Text) {
			t.Errorf("the states of a server that fails are not in:\n%s", s.Text)
		}
		w.do(order{Click: "Calls", Keyboard: true, Then: "Recent calls", Shot: shot + "calls"})
		if s = w.do(order{Click: "End this session", Keyboard: true, Then: "Run junction console", Shot: shot + "end"}); s.Title != "The session has ended" {
			t.Errorf("after the end, the page is %q:\n%s", s.Title, s.Text)
		}
	}
}
