package signin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/upstream/client"
)

// The tests of this file are the mix-up attack (RFC 9700, section 4.4). An attacker has an MCP
// server and an authorization server. The latter names the sign-in page of an honest server, where
// the victim has an account, and a token endpoint of the attacker, who redeems the victim's code
// and verifier at the honest server.

// honestHost is the name of the honest server for browsers.
const honestHost = "login.honest.example"

// mixUp is the attacker's server, and the honest one.
type mixUp struct {
	*linear
	honest *linear
	stolen []string // tokens of the honest server that the attacker has; honest.mu guards it
}

// mustMixUp starts both. iss is what the answers of the honest server name as issuer: "" is its own
// URL, "-" nothing. more changes what the attacker's authorization server says of itself.
func mustMixUp(t *testing.T, iss string, more func(map[string]any)) *mixUp {
	t.Helper()
	m := &mixUp{linear: mustLinear(t), honest: mustLinear(t)}
	m.honest.change(func() {
		m.honest.iss = iss
		m.honest.token = func(form url.Values) (int, string) { // which knows no resource indicators, as many do
			asked := m.honest.codes[form.Get("code")]
			if asked == nil {
				return 400, `{"error":"invalid_grant"}`
			}
			text, _ := json.Marshal(m.honest.give(asked.Get("account")))
			return 200, string(text)
		}
	})
	m.change(func() {
		m.metadata = func(document map[string]any) {
			document["authorization_endpoint"] = "https://" + honestHost + "/authorize"
			delete(document, "authorization_response_iss_parameter_supported")
			if more != nil {
				more(document)
			}
		}
		m.token = func(form url.Values) (int, string) {
			resp, err := http.PostForm(m.honest.issuer+"/token", form)
			if err != nil {
				return 500, ""
			}
			defer resp.Body.Close()
			var got struct {
				Token string `json:"access_token"`
			}
			json.NewDecoder(resp.Body).Decode(&got)
			m.honest.change(func() { m.stolen = append(m.stolen, got.Token) })
			return 200, `{"access_token":"canary-bait","token_type":"Bearer"}`
		}
	})
	return m
}

// toHonest returns the address of the honest server's page, where a browser was sent by its name.
func (m *mixUp) toHonest(t *testing.T, where *url.URL) string {
	t.Helper()
	if where.Host != honestHost {
		t.Fatalf("the browser was sent to %s", where)
	}
	return m.honest.issuer + where.RequestURI()
}

// victim opens a page of Junction and agrees to everything, also at the honest server, and returns
// the last page. shown is the page on which they agreed.
func (m *mixUp) victim(t *testing.T, p *person, where string) (shown, last page) {
	t.Helper()
	shown = p.connectUntil("Connect linear?", where)
	if shown.title() != "Connect linear?" {
		return shown, shown
	}
	last = p.press(shown, nil)
	if last.url.Host == honestHost {
		last = p.press(p.open(m.toHonest(t, last.url)), url.Values{"login": {p.name}, "password": {"anything"}})
	}
	return shown, last
}

// loot returns how many tokens of the honest server the attacker has.
func (m *mixUp) loot() (n int) {
	m.honest.change(func() { n = len(m.stolen) })
	return n
}

func namesIssuer(document map[string]any) {
	document["authorization_response_iss_parameter_supported"] = true
}

// TestMixUpAtTheSignInOfAUser: the attacker gets nothing of a user who connects their server,
// whatever both authorization servers say of their answers. The operator sees why.
func TestMixUpAtTheSignInOfAUser(t *testing.T) {
	defer harness.Computes(t)()
	for _, test := range []struct {
		name, iss string
		more      func(map[string]any)
		begins    bool // the user is sent to the honest server
		shown     bool // the operator is shown the line that permits it
		says      string
	}{
		{"no answer names its issuer", "-", nil, true, true, "These may be different services"},
		{"the honest server names its issuer", "", nil, true, false, "does not come from"},
		{"the attacker promises the issuer, and the honest server names none", "-", namesIssuer, true, false,
			"does not name its issuer"},
		{"the attacker promises the issuer, and the honest server names its own", "", namesIssuer, true, false,
			"does not come from"},
		{"a request object of the attacker could name the issuer", "attacker", func(document map[string]any) {
			namesIssuer(document)
			document["authorization_endpoint"] = "https://" + honestHost + "/authorize?request_uri=https://evil.example/x"
		}, false, true, "These may be different services"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := mustMixUp(t, test.iss, test.more)
			if test.iss == "attacker" {
				m.honest.change(func() { m.honest.iss = m.issuer })
			}
			c := mustLinearCompany(t, m.linear, "", "")
			ann := mustWorker(t, c, "ann")
			_, last := m.victim(t, ann.person, c.origin+"/connect/linear")
			if last.title() != "linear is not connected" || !strings.Contains(last.body, test.says) {
				t.Errorf("it ends at %s (%d):\n%s\nwant %q", last.url, last.status, last.body, test.says)
			}
			if began := m.honest.count("authorize") > 0; began != test.begins {
				t.Errorf("the user was sent to the honest server: %v, want %v", began, test.begins)
			}
			if m.loot() > 0 || m.count("token") > 0 {
				t.Errorf("the attacker has %q, and was asked %q", m.stolen, m.asked)
			}
			for _, era := range []client.Era{client.EraLegacy, client.EraModern} {
				if tools := toolNames(t, ann.talk(t, era, `{}`)); !slices.Equal(tools, []string{"linear__connect"}) {
					t.Errorf("with a client of %s she sees %q", era, tools)
				}
			}
			if !test.shown {
				return
			}
			m.wantReason(t, c.Program, "oauth_user", []string{"why", "--as", "user:ann", "linear__echo"}, []string{"doctor"},
				[]string{"status"}, []string{"auth", "doctor"})
		})
	}
}

// wantReason wants each command of the operator to show both hosts, and the line that permits them.
func (m *mixUp) wantReason(t *testing.T, p *harness.Program, mode string, commands ...[]string) {
	t.Helper()
	token := strings.TrimPrefix(m.issuer, "http://")
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), "") } // lines break at any space
	for _, args := range commands {
		if args[0] == "auth" {
			args = append(slices.Clone(args), "--config", p.File())
		} else {
			args = append(slices.Clone(args), "--admin", strings.TrimPrefix(p.Admin, "http://"))
		}
		stdout, stderr, _ := harness.RunJunction(t, p.Owner(), args...)
		for _, want := range []string{"users would sign in at " + honestHost + ", but " + token + " would receive the code",
			"upstreams.linear.auth: { mode: " + mode + `, authorization_endpoint: "https://` + honestHost + "/authorize",
			`token_endpoint: "` + m.issuer + `/token" }`} {
			if !strings.Contains(squeeze(stdout+stderr), squeeze(want)) {
				t.Errorf("%q prints\n%s%s\nwithout %s", args, stdout, stderr, want)
			}
		}
	}
}

// TestTwoHostsOfOneService: the same endpoints work if the operator permits them, or if the answers
// name their issuer, whether the metadata promise that or not. The page shows both hosts, and the one that gets the access token.
func TestTwoHostsOfOneService(t *testing.T) {
	defer harness.Computes(t)()
	for name, more := range map[string]func(map[string]any){"permitted": nil, "named": namesIssuer, "named, and not promised": func(map[string]any) {}} {
		t.Run(name, func(t *testing.T) {
			l := mustLinear(t)
			m := &mixUp{linear: l, honest: l} // one service
			l.change(func() {
				l.metadata = func(document map[string]any) {
					document["authorization_endpoint"] = "https://" + honestHost + "/authorize"
					delete(document, "authorization_response_iss_parameter_supported")
					if more != nil {
						more(document)
					}
				}
			})
			auth := ""
			if more == nil {
				l.iss = "-"
				auth = fmt.Sprintf(", authorization_endpoint: \"https://%s/authorize\", token_endpoint: \"%s/token\"", honestHost,
					l.issuer)
			}
			c := mustLinearCompany(t, l, auth, "")
			ann := mustWorker(t, c, "ann")
			shown, last := m.victim(t, ann.person, c.origin+"/connect/linear")
			if last.title() != "linear is connected" {
				t.Errorf("it ends at %s (%d):\n%s", last.url, last.status, last.body)
			}
			at := func(where string) string { u, _ := url.Parse(where); return u.Host }
			for _, want := range []string{`You will sign in at <b>` + honestHost,
				`gets an access token from <b>` + at(l.issuer), `sends it to <b>` + at(l.url),
				"Continue only if"} {
				if !strings.Contains(shown.body, want) {
					t.Errorf("the page is\n%s\nwithout %s", shown.body, want)
				}
			}
			ann.talk(t, client.EraModern, `{}`).Succeed(t, "linear__echo", `{}`)
			// A page that has shown other hosts redirects no browser.
			form := url.Values{"seen": {"login.other.example x y"}}
			if g := ann.press(ann.open(c.origin+"/connect/linear"), form); g.status != 403 {
				t.Errorf("a page with other hosts = %d:\n%s", g.status, g.body)
			}
		})
	}
}

// TestMixUpAtJunctionLogin: the attacker gets nothing of the operator either, neither at the
// command line nor at the admin address.
func TestMixUpAtJunctionLogin(t *testing.T) {
	defer harness.Computes(t)()
	m := mustMixUp(t, "-", nil)
	p := harness.NewProgram(t)
	p.MustConfigure(t, fmt.Sprintf("storage: { dsn: %[1]s/junction.db, key_file: %[1]s/master.key }\n"+
		"outbound: { allow_private: [127.0.0.0/8] }\nupstreams: { linear: { url: %[2]q, auth: { mode: oauth } } }\n", p.Dir, m.url))
	p.MustServe(t)
	p.Stderr.MustMatch(t, regexp.MustCompile(`nobody has signed in yet; run: junction login linear`), harness.Patience, p.Done)

	l := mustBeginLogin(t, p)
	// The operator goes wherever the command sends them.
	m.operator(t, l.said.MustMatch(t, regexp.MustCompile(`\n\n  (http\S+)\n`), harness.Patience, l.ended)[1])
	<-l.ended
	if l.cmd.ProcessState.Success() || !strings.Contains(l.said.String(), "upstreams.linear.auth: { mode: oauth, authorization_endpoint: ") {
		t.Errorf("junction login: %v\n%s%s", l.cmd.ProcessState, l.out, l.said)
	}

	status, body := p.MustOwn(t, "/signin?upstream=linear")
	if link := regexp.MustCompile(`href="(https://[^"]*)"`).FindStringSubmatch(body); link != nil {
		body = m.operator(t, strings.ReplaceAll(link[1], "&amp;", "&"))
	}
	if !strings.Contains(body, "The sign-in to linear failed") || !strings.Contains(body, honestHost) {
		t.Errorf("the admin address answers %d:\n%s", status, body)
	}
	if m.loot() > 0 || m.count("token") > 0 {
		t.Errorf("the attacker has %q, and was asked %q; the honest server was asked %q", m.stolen, m.asked, m.honest.asked)
	}
	m.wantReason(t, p, "oauth", []string{"why", "linear__echo"}, []string{"doctor"}, []string{"status"},
		[]string{"auth", "doctor"})
}

// operator signs in at the honest server, where a browser was sent, and brings the answer back. It
// returns the last page. The state is no secret of this browser: the command prints its URL.
func (m *mixUp) operator(t *testing.T, where string) string {
	t.Helper()
	to, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.PostForm(m.toHonest(t, to), url.Values{"login": {"operator"}, "password": {"anything"}})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMixUpAtAnEndpoint: commands that sign in at an endpoint refuse one whose authorization server
// has two hosts.
func TestMixUpAtAnEndpoint(t *testing.T) {
	defer harness.Computes(t)()
	for name, more := range map[string]func(m *mixUp) func(map[string]any){
		"the page of an honest server": func(*mixUp) func(map[string]any) { return nil },
		"all of an honest server but the issuer": func(m *mixUp) func(map[string]any) {
			return func(document map[string]any) {
				document["authorization_endpoint"] = m.honest.issuer + "/authorize"
				document["token_endpoint"] = m.honest.issuer + "/token"
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := mustMixUp(t, "-", nil)
			if change := more(m); change != nil {
				m.change(func() { m.metadata = change })
			}
			state := t.TempDir()
			s := mustStdio(t, state, m.url)
			s.MustWrite(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},` +
				`"clientInfo":{"name":"test","version":"1"}}}`)
			var line json.RawMessage
			if s.MustRead(&line); !strings.Contains(string(line), "the sign-in was refused") {
				t.Errorf("it answers %.600s", line)
			}
			if n := m.count("register") + m.count("token") + m.honest.count("authorize"); n > 0 {
				t.Errorf("the attacker was asked %q, the honest server %q", m.asked, m.honest.asked)
			}
		})
	}
}
