package signins

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/auth/store"
	"junction/cmd/junction/base/cli"

	"github.com/spf13/cobra"
)

// office is a file, and the storage that it names, in which people have let apps in. Nobody runs a
// proxy on it.
type office struct {
	t          *testing.T
	dir        string
	file       string // the configuration
	database   string
	keys       string
	ann, other store.Grant // hers by two apps, at one session
	bob        store.Grant
}

func mustOffice(t *testing.T) *office {
	t.Helper()
	dir := t.TempDir()
	o := &office{t: t, dir: dir, file: filepath.Join(dir, "config.yaml"), database: filepath.Join(dir, "junction.db"), keys: filepath.Join(dir, "master.key")}
	mustWrite(t, o.file, o.config(fmt.Sprintf("storage: { dsn: %q, key_file: %q }\n", o.database, o.keys)))
	mustWrite(t, o.keys, "old:"+base64.StdEncoding.EncodeToString(seal.NewSecret())+"\n")
	if err := os.Chmod(o.keys, 0o600); err != nil {
		t.Fatal(err)
	}
	s := o.mustOpen()
	ann, bob := o.mustSession(s, "https://idp.example", "ann"), o.mustSession(s, "https://idp.example", "bob")
	o.ann = o.mustGrant(s, ann, "dcr_1", "registered", "Claude Code\u202e\x1b[31m (junction)")
	o.other = o.mustGrant(s, ann, "https://chatgpt.com/oauth/codex/client.json", "document", "Codex")
	o.bob = o.mustGrant(s, bob, "dcr_2", "registered", "Codex")
	o.mustClose(s)
	return o
}

func (o *office) config(more string) string {
	return "listen: 127.0.0.1:0\nadmin: 127.0.0.1:0\npublic_url: http://localhost:8420\n" +
		"auth: { oauth: { identity_providers: [{ id: sso, issuer: https://idp.example, client_id: junction }] } }\nupstreams: { a: { url: http://127.0.0.1:1/mcp } }\n" + more
}

func (o *office) mustOpen() *store.Store {
	o.t.Helper()
	ring, _, err := seal.LoadRing(o.keys)
	if err != nil {
		o.t.Fatal(err)
	}
	s, err := store.Open(o.t.Context(), store.Config{DSN: o.database, Keys: ring, Log: authtest.Log(o.t)})
	if err != nil {
		o.t.Fatal(err)
	}
	return s
}

func (o *office) mustClose(s *store.Store) {
	o.t.Helper()
	if err := s.Close(); err != nil {
		o.t.Fatal(err)
	}
}

func (o *office) mustSession(s *store.Store, issuer, name string) store.IDPSession {
	o.t.Helper()
	u, err := s.PutUser(o.t.Context(), store.User{Issuer: issuer, Subject: name, Email: name + "@example.com"})
	if err != nil {
		o.t.Fatal(err)
	}
	now := time.Now()
	i, err := s.AddIDPSession(o.t.Context(), store.IDPSession{User: u.ID, IDP: "sso", RefreshToken: "canary-refresh token of " + name, Checked: now, OKUntil: now.Add(time.Hour)})
	if err == nil {
		err = s.AddWebSession(o.t.Context(), "canary-cookie of "+name+" at "+issuer, store.WebSession{User: u.ID, IDPSession: i.ID, Expires: now.Add(time.Hour)})
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return i
}

func (o *office) mustGrant(s *store.Store, i store.IDPSession, id, kind, name string) store.Grant {
	o.t.Helper()
	g, err := s.AddGrant(o.t.Context(), store.Grant{User: i.User, IDPSession: i.ID, ClientID: id, ClientKind: kind, ClientName: name, RedirectHost: "localhost:3118",
		Resource: "http://localhost:8420/mcp", Scope: "mcp offline_access", Expires: time.Now().Add(time.Hour)})
	if err != nil {
		o.t.Fatal(err)
	}
	return g
}

// run runs a command on the file.
func (o *office) run(args ...string) ran {
	return runProgram(o.t, "", append(args, "--config", o.file)...)
}

// standing returns the grants that stand.
func (o *office) standing() []string {
	o.t.Helper()
	s := o.mustOpen()
	defer o.mustClose(s)
	all, err := s.Grants(o.t.Context(), store.GrantFilter{Standing: true})
	if err != nil {
		o.t.Fatal(err)
	}
	var ids []string
	for _, g := range all {
		ids = append(ids, g.ID)
	}
	return ids
}

// wantStanding fails unless these grants stand, and no others.
func (o *office) wantStanding(want ...store.Grant) {
	o.t.Helper()
	got := o.standing()
	if len(got) != len(want) || slices.ContainsFunc(want, func(g store.Grant) bool { return !slices.Contains(got, g.ID) }) {
		o.t.Errorf("%q stand, want %d others", got, len(want))
	}
}

func (o *office) want(got ran, code int, parts ...string) {
	o.t.Helper()
	if got.code != code {
		o.t.Errorf("the exit code is %d, want %d: %+v", got.code, code, got)
	}
	for _, part := range parts {
		if !strings.Contains(got.stdout+got.stderr, part) {
			o.t.Errorf("it says\n%s%swithout %q", got.stdout, got.stderr, part)
		}
	}
}

func TestGrantsAndSessionsAreListed(t *testing.T) {
	o := mustOffice(t)
	got := o.run("grants", "list")
	o.want(got, 0, "ID        PERSON           APP", o.ann.ID[:8]+"  ann@example.com", "self-registered (unverified)", "chatgpt.com", "/mcp", `\u202e\u001b[31m (junction)`)
	if strings.ContainsAny(got.stdout, "\x1b\u202e") || strings.Count(got.stdout, "\n") != 4 {
		t.Errorf("the list is\n%q", got.stdout)
	}
	o.want(o.run("grants", "list", "--user", "bob@example.com"), 0, o.bob.ID[:8])
	if got := o.run("grants", "list", "--user", "BOB@example.com", "--client", "Codex", "-o", "json"); got.code != 0 || strings.Contains(got.stdout, o.other.ID) {
		t.Errorf("bob's are %+v", got)
	} else {
		var list struct{ Grants []grantJSON }
		if err := json.Unmarshal([]byte(got.stdout), &list); err != nil || len(list.Grants) != 1 || list.Grants[0].ID != o.bob.ID || list.Grants[0].Person.Email != "bob@example.com" ||
			list.Grants[0].ClientID != "dcr_2" || list.Grants[0].Expires == "" || list.Grants[0].Ended != "" {
			t.Errorf("bob's are %+v, %v", list, err)
		}
	}
	o.want(o.run("sessions", "list"), 0, "GRANTS  BROWSERS", "ann@example.com  sso", "bob@example.com  sso")
	if got := o.run("sessions", "list", "--user", "bob"); strings.Contains(got.stdout, "ann") || strings.Count(got.stdout, "\n") != 2 || !strings.HasSuffix(got.stdout, "  1       1\n") {
		t.Errorf("bob's sessions are\n%s", got.stdout)
	}
	for _, secret := range []string{"refresh token", "cookie of"} {
		if all := o.run("sessions", "list", "-o", "json").stdout + o.run("grants", "list", "-o", "json").stdout; strings.Contains(all, secret) {
			t.Errorf("the lists show a %s", secret)
		}
	}
	o.want(o.run("grants", "revoke", o.bob.ID[:6]), 0, "Ended: 1 grant.")
	if got := o.run("grants", "list"); strings.Contains(got.stdout, o.bob.ID[:8]) {
		t.Errorf("what has ended is listed:\n%s", got.stdout)
	}
	o.want(o.run("grants", "list", "--ended"), 0, o.bob.ID[:8], "Z revoked_by_operator")
	o.want(o.run("grants", "list", "--user", "bob"), 0, "no app has a grant")
}

// TestGrantsAndSessionsEnd ends something by each way of naming it.
func TestGrantsAndSessionsEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		args   func(o *office) []string
		says   string
		stands func(o *office) []store.Grant
	}{
		"grant":      {func(o *office) []string { return []string{"grants", "revoke", o.ann.ID} }, "Ended: 1 grant. No junction on this machine serves the file. A junction on another machine applies the change within ten seconds.\n", func(o *office) []store.Grant { return []store.Grant{o.other, o.bob} }},
		"two grants": {func(o *office) []string { return []string{"grants", "revoke", o.ann.ID[:5], o.bob.ID[:5]} }, "Ended: 2 grants.", func(o *office) []store.Grant { return []store.Grant{o.other} }},
		"session": {func(o *office) []string { return []string{"sessions", "revoke", o.ann.IDPSession[:8]} }, "Ended: 1 session and 2 grants.",
			func(o *office) []store.Grant { return []store.Grant{o.bob} }},
		"user": {func(*office) []string { return []string{"sessions", "revoke", "--user", "ann@example.com"} }, "Ended: 1 session and 2 grants of ann@example.com.",
			func(o *office) []store.Grant { return []store.Grant{o.bob} }},
		"principal": {func(*office) []string {
			return []string{"sessions", "revoke", "--user", auth.UserID("https://idp.example", "ann")}
		}, "of ann@example.com",
			func(o *office) []store.Grant { return []store.Grant{o.bob} }},
		"client by name": {func(*office) []string { return []string{"sessions", "revoke", "--client", "Codex"} }, "Ended: 2 grants of Codex.",
			func(o *office) []store.Grant { return []store.Grant{o.ann} }},
		"client by listed id": {func(*office) []string { return []string{"sessions", "revoke", "--client", appID("dcr_2")[:8]} }, "Ended: 1 grant of ",
			func(o *office) []store.Grant { return []store.Grant{o.ann, o.other} }},
		"client by id": {func(*office) []string { return []string{"sessions", "revoke", "--client", "dcr_2"} }, "Ended: 1 grant of dcr_2.",
			func(o *office) []store.Grant { return []store.Grant{o.ann, o.other} }},
		"all": {func(*office) []string { return []string{"sessions", "revoke", "--all", "--yes"} }, "Ended: 2 sessions and 3 grants.", func(*office) []store.Grant { return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			o := mustOffice(t)
			o.want(o.run(tt.args(o)...), 0, tt.says)
			o.wantStanding(tt.stands(o)...)
			if again := o.run(append(tt.args(o), "-o", "json")...); name == "session" {
				o.want(again, 1, "there is no session")
			} else {
				o.want(again, 0, `"sessions": 0,`, `"grants": []`)
			}
			s := o.mustOpen()
			defer o.mustClose(s)
			events, err := s.Events(t.Context(), 10)
			if err != nil || len(events) == 0 || string(events[0].Detail) != `{"detail":"by the operator"}` {
				t.Errorf("the audit has %+v, %v", events, err)
			}
			browsers, err := s.WebSessions(t.Context(), "")
			if want := map[string]int{"session": 1, "user": 1, "principal": 1, "all": 0}; err != nil {
				t.Error(err)
			} else if n, ok := want[name]; ok && len(browsers) != n || !ok && len(browsers) != 2 {
				t.Errorf("%d are signed in in browsers", len(browsers))
			}
		})
	}
}

// TestGrantsMistakes has operators err, which ends nothing.
func TestGrantsMistakes(t *testing.T) {
	o := mustOffice(t)
	s := o.mustOpen()
	o.mustGrant(s, o.mustSession(s, "https://other.example", "ann"), "dcr_3", "registered", "An app")
	ann, err := s.User(t.Context(), o.ann.User)
	if err != nil {
		t.Fatal(err)
	}
	twins := [2]store.Grant{o.ann, o.ann}
	for i := range twins {
		twins[i].ID = fmt.Sprintf("twin%d", i)
		if _, err := s.AddGrant(t.Context(), twins[i]); err != nil {
			t.Fatal(err)
		}
	}
	o.mustClose(s)
	before := o.standing()
	file := func(name, text string) string {
		path := filepath.Join(o.dir, name)
		mustWrite(t, path, text)
		return path
	}
	keys := fmt.Sprintf("storage: { dsn: %q, key_file: %q }\n", o.database, o.keys)
	place := func(name string) string {
		return fmt.Sprintf("storage: { dsn: %q, key_file: %q }\n", filepath.Join(o.dir, name), o.keys)
	}
	others := "storage: { dsn: " + fmt.Sprintf("%q", o.database) + ", key_file: " +
		fmt.Sprintf("%q", file("other.key", "old:"+base64.StdEncoding.EncodeToString(seal.NewSecret()))) + " }\n"
	file("broken.db", strings.Repeat("this is no database. ", 100))
	file("empty.db", "")
	t.Setenv("XDG_STATE_HOME", filepath.Join(o.dir, "nobody"))
	for name, tt := range map[string]struct {
		config string // the file's; "" is o's
		args   string
		code   int
		says   string
	}{
		"nobody of that name":      {"", "sessions revoke --user carol@example.com", 1, `no user "carol@example.com" has signed in`},
		"a slip":                   {"", "sessions revoke --user bop@example.com", 1, "did you mean bob@example.com"},
		"two of that name":         {"", "sessions revoke --user ann@example.com", 1, `"ann@example.com" matches 2 users; give the id of one: `},
		"names them":               {"", "sessions revoke --user ann@example.com", 1, ann.ID + " (ann at https://idp.example)"},
		"an empty name":            {"", "sessions revoke --user=", 2, "sessions revoke needs exactly one of"},
		"an empty app":             {"", "sessions revoke --client=", 2, "sessions revoke needs exactly one of"},
		"all and a name":           {"", "sessions revoke --all --user bob", 2, "sessions revoke needs exactly one of"},
		"not all":                  {"", "sessions revoke --all=false", 2, "sessions revoke needs exactly one of"},
		"an id and a name":         {"", "sessions revoke abcdef --user bob", 2, "sessions revoke needs exactly one of"},
		"no such session":          {"", "sessions revoke abcdefgh", 1, `there is no session "abcdefgh"`},
		"no such app":              {"", "sessions revoke --client Codecs", 1, `no app with the id or the name "Codecs" has a grant; did you mean Codex?`},
		"an ambiguous id":          {"", "grants revoke twin", 1, `"twin" matches 2 grants; write more characters: twin`},
		"one good id, one not":     {"", "grants revoke twin0 nothing", 1, `there is no grant "nothing"`},
		"too little of an id":      {"", "grants revoke t", 1, "write at least 4 characters"},
		"no id":                    {"", "grants revoke", 2, "grants revoke needs the ids of grants"},
		"no file":                  {"-", "grants list", 2, "grants list needs --config FILE"},
		"another output":           {"", "grants list -o yaml", 2, `--output is text or json, not "yaml"`},
		"no sign-in":               {"upstreams: { a: { url: http://127.0.0.1:1/mcp } }\n", "grants list", 1, "no sign-ins are stored: "},
		"a file with mistakes":     {o.config("storage: { driver: memory }\n"), "grants list", 1, "has 1 mistake; junction check --config"},
		"a database in memory":     {o.config("storage: { dsn: \":memory:\" }\n"), "grants list", 1, "has 1 mistake"},
		"keys of somebody else":    {o.config(others), "grants list", 1, "the master keys are not those of this store"},
		"no keys":                  {o.config(fmt.Sprintf("storage: { dsn: %q, key_file: %q }\n", o.database, filepath.Join(o.dir, "none"))), "grants list", 1, "/none: no such file or directory"},
		"the default of the keys":  {o.config(fmt.Sprintf("storage: { dsn: %q }\n", o.database)), "grants list", 1, "there are no master keys, neither in JUNCTION_MASTER_KEYS nor in"},
		"nothing stored yet":       {o.config(place("none.db")), "grants list", 1, "nothing is stored yet: there is no"},
		"neither store nor keys":   {o.config(fmt.Sprintf("storage: { dsn: %q, key_file: %q }\n", filepath.Join(o.dir, "none.db"), filepath.Join(o.dir, "none"))), "grants list", 1, "nothing is stored yet: there is no"},
		"the default place":        {o.config(fmt.Sprintf("storage: { key_file: %q }\n", o.keys)), "sessions list", 1, "start junction first, run the command as the user of the proxy, or name the file (storage.dsn)"},
		"neither keys nor storage": {o.config("storage: { key_file: /no/such/key }\n"), "storage check", 1, "nothing is stored: there is no "},
		"an empty database":        {o.config(place("empty.db")), "grants list", 1, "start the server first, which migrates it"},
		"no database":              {o.config(place("broken.db")), "grants list", 1, "file is not a database"},
		"a folder":                 {o.config(place("")), "grants list", 1, "is no file (storage.dsn)"},
		"Postgres that is away":    {o.config(fmt.Sprintf("storage: { driver: postgres, dsn: \"postgres://127.0.0.1:1/x\", key_file: %q }\n", o.keys)), "grants list", 1, "open the storage of sign-ins:"},
		"good":                     {o.config(keys), "grants list --user " + auth.UserID("https://idp.example", "ann"), 0, "twin0"},
	} {
		t.Run(name, func(t *testing.T) {
			o.t = t
			args := strings.Fields(tt.args)
			switch tt.config {
			case "":
				args = append(args, "--config", o.file)
			case "-":
			default:
				args = append(args, "--config", file("this.yaml", tt.config))
			}
			o.want(runProgram(t, "", args...), tt.code, tt.says)
		})
	}
	o.t = t
	if after := o.standing(); !slices.Equal(before, after) {
		t.Errorf("%q stand, before it were %q", after, before)
	}
	if _, err := os.Stat(filepath.Join(o.dir, "nobody")); err == nil {
		t.Error("a command has made something in the state directory")
	}
	for _, name := range []string{"none", "none.db"} {
		if _, err := os.Stat(filepath.Join(o.dir, name)); err == nil {
			t.Errorf("a command has made %s", name)
		}
	}
}

// ran is what a run of a command gave.
type ran struct {
	code           int
	stdout, stderr string
}

// runProgram runs one of our commands.
func runProgram(t testing.TB, stdin string, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	out, errs := authtest.Command(t, args, &stdout, &stderr)
	var file string
	root := &cobra.Command{Use: "junction", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().StringVar(&file, "config", "", "")
	in := strings.NewReader(stdin)
	root.AddCommand(Commands(in, out, errs, &file)...)
	code := cli.Run(t.Context(), root, args, in, out, errs)
	return ran{code, stdout.String(), stderr.String()}
}

func mustWrite(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
