package signins

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"junction/auth"
	"junction/auth/authserver"
	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/auth/store"
)

// row returns the line of a list that has a text in it.
func (o *office) row(text string, args ...string) string {
	o.t.Helper()
	got := o.run(args...)
	for line := range strings.Lines(got.stdout) {
		if strings.Contains(line, text) {
			return line
		}
	}
	o.t.Fatalf("%q has no line with %q: %+v", args, text, got)
	return ""
}

// mustListClients returns the apps by their client_ids.
func (o *office) mustListClients(args ...string) map[string]clientJSON {
	o.t.Helper()
	got := o.run(append([]string{"clients", "list", "-o", "json"}, args...)...)
	var list struct{ Clients []clientJSON }
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || got.code != 0 {
		o.t.Fatalf("%v in %+v", err, got)
	}
	byID := map[string]clientJSON{}
	for _, c := range list.Clients {
		byID[c.ClientID] = c
	}
	return byID
}

// mustRegister returns the client_id of an app that has registered, and that nobody has let in.
func (o *office) mustRegister(name string) string {
	o.t.Helper()
	ring, _, err := seal.LoadRing(o.keys)
	if err != nil {
		o.t.Fatal(err)
	}
	s := o.mustOpen()
	defer o.mustClose(s)
	f, err := authserver.New(authserver.Options{URL: "http://localhost:8420", Store: s, Keys: ring, Log: authtest.Log(o.t)})
	if err != nil {
		o.t.Fatal(err)
	}
	defer f.Close()
	r := httptest.NewRequest("POST", "/oauth/register", strings.NewReader(`{"client_name":"`+name+`","redirect_uris":["http://localhost/cb"]}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	var got struct {
		ID string `json:"client_id"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.ID == "" {
		o.t.Fatalf("%v in %d %s", err, w.Code, w.Body)
	}
	return got.ID
}

func TestClientsAreListed(t *testing.T) {
	o := mustOffice(t)
	got := o.run("clients", "list")
	o.want(got, 0, "ID        APP", "KNOWN BY                      RETURNS TO  PEOPLE  GRANTS  USED", `Claude Code\u202e\u001b[31m (junction)  self-registered (unverified)  localhost   1       1`, "chatgpt.com")
	if strings.ContainsAny(got.stdout, "\x1b\u202e") || strings.Count(got.stdout, "\n") != 4 {
		t.Errorf("the list is\n%q", got.stdout)
	}
	list := o.mustListClients()
	if c := list["dcr_2"]; len(list) != 3 || c.Name != "Codex" || c.People != 1 || c.Grants != 1 || len(c.ID) != 32 || c.Used == "" || c.Blocked != "" {
		t.Errorf("the apps are %+v", list)
	}
	s := o.mustOpen()
	again := o.bob
	again.ID, again.RedirectHost = "", "app.example.com:8443"
	if _, err := s.AddGrant(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	o.mustClose(s)
	if c := o.mustListClients()["dcr_2"]; c.People != 1 || c.Grants != 2 || !slices.Equal(c.Hosts, []string{"app.example.com:8443", "localhost"}) {
		t.Errorf("one who has let an app in twice is %d people with %d grants, to return to %q", c.People, c.Grants, c.Hosts)
	}
	o.want(o.run("sessions", "revoke", "--user", "bob"), 0)
	if list := o.mustListClients(); len(list) != 2 || list["dcr_2"].ID != "" {
		t.Errorf("what nobody lets in is listed: %+v", list)
	}
	if list := o.mustListClients("--ended"); len(list) != 3 || list["dcr_2"].Grants != 0 || list["dcr_2"].People != 0 {
		t.Errorf("with what has ended the list is %+v", list)
	}
}

// TestClientsAreBlocked names an app in each way that there is.
func TestClientsAreBlocked(t *testing.T) {
	for name, word := range map[string]func(o *office) string{
		"client_id":    func(*office) string { return "dcr_1" },
		"id":           func(o *office) string { return o.mustListClients()["dcr_1"].ID },
		"part of it":   func(o *office) string { return o.mustListClients()["dcr_1"].ID[:4] },
		"its own name": func(o *office) string { return o.ann.ClientName },
		"the log's":    func(*office) string { return "dcr_1…" },
	} {
		t.Run(name, func(t *testing.T) {
			o := mustOffice(t)
			id := word(o)
			got := o.run("clients", "block", id, "--reason", "asks for passwords")
			o.want(got, 0, `Blocked: Claude Code\u202e\u001b[31m (junction) (`, ", self-registered (unverified)). Ended: 1 grant. No junction on this machine serves the file. A junction on another machine applies the change within ten seconds.\n")
			if strings.ContainsAny(got.stdout, "\x1b\u202e") {
				t.Errorf("it says %q", got.stdout)
			}
			o.wantStanding(o.other, o.bob)
			if line := o.row("asks for passwords", "clients", "list"); !strings.Contains(line, "self-registered (unverified)  localhost   0       0 ") {
				t.Errorf("the list has %q", line)
			}
			o.want(o.run("grants", "list", "--ended"), 0, "Z client_blocked")
			o.want(o.run("clients", "block", "dcr_1"), 0, "It had no grants.")
			if c := o.mustListClients()["dcr_1"]; c.Reason != "asks for passwords" || c.Blocked == "" {
				t.Errorf("blocked again it is %+v", c)
			}
			o.want(o.run("clients", "unblock", id), 0, "No longer blocked: Claude Code", "Its grants stay ended")
			if c, there := o.mustListClients()["dcr_1"]; there {
				t.Errorf("unblocked it is %+v", c)
			}
			o.wantStanding(o.other, o.bob)
			s := o.mustOpen()
			defer o.mustClose(s)
			events, err := s.Events(t.Context(), 3)
			if err != nil || len(events) != 3 || events[0].Event != "client_unblocked" || events[2].Event != "client_blocked" || events[2].ClientID != "dcr_1" ||
				string(events[2].Detail) != `{"detail":"by the operator"}` {
				t.Errorf("the audit has %+v, %v", events, err)
			}
		})
	}
}

// TestClientsAreBlockedBeforeAnybodyLetsThemIn goes by what an operator has been told of: a link,
// say.
func TestClientsAreBlockedBeforeAnybodyLetsThemIn(t *testing.T) {
	o := mustOffice(t)
	const document = "https://evil.example/oauth/client.json"
	o.want(o.run("clients", "block", document), 0, "Blocked: "+document+" (", ", evil.example). It had no grants.\n")
	if line := o.row(document, "clients", "list"); !strings.Contains(line, "evil.example                              0       0       never  ") {
		t.Errorf("the list has %q", line)
	}
	if c := o.mustListClients()[document]; c.Blocked == "" || c.Used != "" {
		t.Errorf("it is %+v", c)
	}
	id := o.mustRegister("An app")
	o.want(o.run("clients", "block", id[:len(id)-1]), 1, "is no client_id of this server: a part of it may be missing")
	o.want(o.run("clients", "block", id, "-o", "json"), 0, `"grants": []`, id)
	if c := o.mustListClients()[id]; c.Name != "An app" || c.Blocked == "" {
		t.Errorf("it is %+v", c)
	}
	// An app that calls itself by another's client_id does not draw upon itself what is meant for
	// that.
	const hidden = "https://hidden.example/oauth/client.json"
	s := o.mustOpen()
	decoy := o.bob
	decoy.ID, decoy.ClientID, decoy.ClientName = "", "dcr_decoy", hidden
	decoy, err := s.AddGrant(t.Context(), decoy)
	if err != nil {
		t.Fatal(err)
	}
	o.mustClose(s)
	o.want(o.run("clients", "block", hidden), 0, "Blocked: "+hidden+" (", ", hidden.example). It had no grants.\n")
	if list := o.mustListClients(); list[hidden].Blocked == "" || list["dcr_decoy"].Blocked != "" {
		t.Errorf("the apps are %+v", list)
	}
	o.want(o.run("clients", "unblock", hidden), 0)
	o.want(o.run("clients", "unblock", "An app", document), 0, "No longer blocked: An app", "No longer blocked: https://evil.example")
	o.wantStanding(o.ann, o.other, o.bob, decoy)
}

// TestUsersAreDisabled names a person in each way that there is.
func TestUsersAreDisabled(t *testing.T) {
	for name, word := range map[string]func(o *office) string{
		"e-mail":     func(*office) string { return "ANN@example.com" },
		"subject":    func(*office) string { return "ann" },
		"id":         func(o *office) string { return o.ann.User },
		"part of it": func(o *office) string { return o.ann.User[:shortest] },
		"principal":  func(*office) string { return auth.UserID("https://idp.example", "ann") },
	} {
		t.Run(name, func(t *testing.T) {
			const disabled = "Z  20" // one time behind another
			o := mustOffice(t)
			o.want(o.run("users", "disable", word(o)), 0, "Disabled: ann@example.com. Ended: 1 session and 2 grants. No junction on this machine serves the file. A junction on another machine applies the change within ten seconds.\n")
			o.wantStanding(o.bob)
			if line := o.row("ann@example.com", "users", "list"); !strings.HasPrefix(line, o.ann.User[:shown]+"  ann@example.com  ann      https://idp.example  20") || !strings.Contains(line, disabled) {
				t.Errorf("the list has %q", line)
			}
			if line := o.row("bob@example.com", "users", "list"); strings.Contains(line, disabled) {
				t.Errorf("the list has %q", line)
			}
			o.want(o.run("users", "disable", word(o)), 0, "Disabled: ann@example.com. There were no sessions and no grants.\n")
			o.want(o.run("users", "disable", word(o), "-o", "json"), 0, `"sessions": 0,`, `"grants": []`, `"email": "ann@example.com"`)
			s := o.mustOpen()
			if u, err := s.User(t.Context(), o.ann.User); err != nil || u.Disabled.IsZero() {
				t.Errorf("she is %+v, %v", u, err)
			}
			if _, err := s.IDPSession(t.Context(), o.ann.IDPSession); err != store.ErrRevoked {
				t.Errorf("her session at the provider: %v", err)
			}
			o.mustClose(s)
			o.want(o.run("users", "enable", word(o)), 0, "Enabled: ann@example.com. The user has to sign in again.\n")
			o.want(o.run("users", "enable", word(o)), 1, "ann@example.com is not disabled")
			o.wantStanding(o.bob)
			s = o.mustOpen()
			defer o.mustClose(s)
			events, err := s.Events(t.Context(), 3)
			if err != nil || len(events) != 3 || events[0].Event != "user_enabled" || events[2].Event != "user_disabled" || events[2].Principal != o.ann.User {
				t.Errorf("the audit has %+v, %v", events, err)
			}
		})
	}
}

// TestClientsAndUsersMistakes has operators err, which shuts nobody out.
func TestClientsAndUsersMistakes(t *testing.T) {
	o := mustOffice(t)
	s := o.mustOpen()
	codex, names := appID("dcr_2"), o.bob
	names.ID, names.ClientID, names.ClientName = "", "dcr_names", codex[:8] // it calls itself what another is listed as
	if _, err := s.AddGrant(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	o.mustSession(s, "https://other.example", "ann")
	o.mustClose(s)
	before := o.standing()
	for name, tt := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no app":                 {[]string{"clients", "block"}, 2, "clients block needs the ids of apps; list them with junction clients list"},
		"an empty app":           {[]string{"clients", "block", ""}, 2, "clients block needs the ids of apps"},
		"no app to unblock":      {[]string{"clients", "unblock"}, 2, "clients unblock needs the ids of apps"},
		"unknown":                {[]string{"clients", "block", "Nobody"}, 1, `no app with the id or the name "Nobody" has a grant; list the apps with junction clients list --ended`},
		"a slip":                 {[]string{"clients", "block", "Codx"}, 1, `no app with the id or the name "Codx" has a grant; did you mean Codex?`},
		"two of a name":          {[]string{"clients", "block", "Codex"}, 1, `"Codex" matches 2 apps; give the id of one: `},
		"says which":             {[]string{"clients", "block", "Codex"}, 1, codex + " (Codex, self-registered (unverified), returns to localhost)"},
		"the log's, of two":      {[]string{"clients", "block", "dcr_…"}, 1, "matches 3 apps"},
		"the id of another":      {[]string{"clients", "block", codex[:8]}, 1, "matches 2 apps"},
		"the id of another, too": {[]string{"sessions", "revoke", "--client", codex[:8]}, 1, `matches 2 apps; write more characters of the id; list the apps with junction clients list --ended`},
		"one good, one not":      {[]string{"clients", "block", "dcr_1", "Nobody"}, 1, `"Nobody" has a grant`},
		"part of a client_id":    {[]string{"clients", "block", "dcr_9"}, 1, `"dcr_9" is no client_id of this server: a part of it may be missing`},
		"a site":                 {[]string{"clients", "block", "https://evil.example"}, 1, `"https://evil.example" is no client_id: `},
		"without TLS":            {[]string{"clients", "block", "http://evil.example/client.json"}, 1, "has a grant"},
		"not blocked":            {[]string{"clients", "unblock", "dcr_1"}, 1, `no app with the id or the name "dcr_1" is blocked; list the blocked apps with junction clients list`},
		"another output":         {[]string{"clients", "list", "-o", "yaml"}, 2, `--output is text or json, not "yaml"`},
		"an argument":            {[]string{"clients", "list", "x"}, 2, `clients list takes no arguments, and got "x"`},
		"no such command":        {[]string{"clients", "ban", "x"}, 2, "there is no command clients ban; there is clients block, clients list, clients unblock"},
		"nobody":                 {[]string{"users", "disable"}, 2, "users disable needs e-mail addresses, subjects or ids; list them with junction users list"},
		"an empty name":          {[]string{"users", "enable", ""}, 2, "users enable needs e-mail addresses"},
		"a stranger":             {[]string{"users", "disable", "carol@example.com"}, 1, `no user "carol@example.com" has signed in; did you mean ann@example.com or bob@example.com?`},
		"a slip of a name":       {[]string{"users", "disable", "bop@example.com"}, 1, "did you mean bob@example.com"},
		"two people":             {[]string{"users", "disable", "ann@example.com"}, 1, `"ann@example.com" matches 2 users; give the id of one: `},
		"one good name, one not": {[]string{"users", "disable", "bob", "carol"}, 1, `no user "carol" has signed in; list the users with junction users list`},
		"not disabled":           {[]string{"users", "enable", "bob"}, 1, "bob@example.com is not disabled"},
	} {
		t.Run(name, func(t *testing.T) {
			o.t = t
			o.want(o.run(tt.args...), tt.code, tt.says)
		})
	}
	o.t = t
	if after := o.standing(); len(after) != len(before) {
		t.Errorf("%q stand, before it were %q", after, before)
	}
	none := runProgram(t, "", "clients", "list")
	o.want(none, 2, "clients list needs --config FILE, because the file names the storage of sign-ins")
}
