package signin

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// The tests of this file have an operator end sign-ins by the commands of the real program, beside
// the one that runs.

// operate runs a command on the file of the company, and returns what it says.
func (c *company) operate(t testing.TB, args ...string) (string, error) {
	t.Helper()
	stdout, stderr, err := harness.RunJunction(t, []string{"XDG_STATE_HOME=" + c.Dir},
		append(args, "--config", c.File())...)
	return stdout + stderr, err
}

func (c *company) mustOperate(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.operate(t, args...)
	if err != nil {
		t.Fatalf("junction %q: %v\n%s", args, err, out)
	}
	return out
}

// mustIDs returns what sessions or grants of a person the operator is shown.
func (c *company) mustIDs(t testing.TB, thing, who string) (ids []string) {
	t.Helper()
	var list map[string][]struct{ ID string }
	if err := json.Unmarshal([]byte(c.mustOperate(t, thing, "list", "--user", who, "--output", "json")),
		&list); err != nil {
		t.Fatal(err)
	}
	for _, row := range list[thing] {
		ids = append(ids, row.ID)
	}
	return ids
}

// onEachStorage runs a test of a company that keeps its sign-ins in a file, and of one that keeps
// them in Postgres.
func onEachStorage(t *testing.T, f func(t *testing.T, c *company)) {
	harness.Waits(t)
	for _, driver := range []string{"sqlite", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			harness.Waits(t)
			storage := ""
			if driver == "postgres" {
				storage = fmt.Sprintf("storage: { driver: postgres, dsn: %q }\n", authtest.Schema(t))
			}
			_, up := upstreamtest.Start(t, upstreamtest.Script{})
			f(t, mustCompany(t, up, "", storage))
		})
	}
}

// TestOperatorEndsSignIns ends what people have, each in another way, and wants the running
// program to have seen it when the command ends.
func TestOperatorEndsSignIns(t *testing.T) {
	onEachStorage(t, func(t *testing.T, c *company) {
		a, other := mustRegister(t, c, appRedirect), mustRegister(t, c, appRedirect, "http://localhost:8/cb")
		type signedIn struct {
			tokenPair
			app    oauthApp
			mcp    *harness.Client
			stream *harness.EventStream
		}
		people, browsers := map[string]signedIn{}, map[string]*person{}
		for _, name := range []string{"ann", "bob", "cid", "dan", "eve"} {
			s := signedIn{app: a}
			if name == "dan" {
				s.app = other
			}
			browsers[name] = newPerson(t, name)
			s.tokenPair = s.app.mustSignIn(t, browsers[name])
			s.mcp = showing(t, c.Program, client.EraLegacy, s.Access, "/mcp")
			s.stream = s.mcp.MustOpen(t)
			people[name] = s
		}
		// wantEnd waits for the ends of the streams, and measures this alone: commands and requests
		// take long on a busy machine.
		wantEnd := func(names ...string) {
			t.Helper()
			for _, name := range names { // already
				wantRefused(t, "POST", refusedTo(t, people[name].mcp, "POST"), 401, refusedToken+"it was revoked")
			}
			t.Helper()
			began := time.Now()
			for _, name := range names {
				mustClose(t, people[name].stream)
			}
			if took := time.Since(began); took > harness.Promptly {
				t.Errorf("%q go on for %v after the last command", names, took)
			}
			for _, name := range names {
				s := people[name]
				wantRefused(t, "POST", refusedTo(t, s.mcp, "POST"), 401, refusedToken+"it was revoked")
				if status, again := s.app.refresh(t, s.Refresh); status != 400 || again.Error != "invalid_grant" {
					t.Errorf("%s refreshes: %d %+v", name, status, again)
				}
			}
		}
		c.mustOperate(t, "grants", "revoke", c.mustIDs(t, "grants", "ann")[0][:6])
		c.mustOperate(t, "sessions", "revoke", c.mustIDs(t, "sessions", "bob")[0][:6])
		c.mustOperate(t, "sessions", "revoke", "--user", "cid")
		c.mustOperate(t, "sessions", "revoke", "--client", other.id)
		wantEnd("ann", "bob", "cid", "dan")
		if got := people["eve"].mcp.Call(t, "tools/list", ""); got.Status != 200 {
			t.Errorf("eve, whom nobody meant: %s", got)
		}
		for name, out := range map[string]bool{"ann": false, "bob": true, "cid": true, "dan": false, "eve": false} {
			if g := browsers[name].open(c.origin + "/account"); strings.Contains(g.body, "Your account") == out {
				t.Errorf("%s is signed out in the browser: want %t; %s", name, out, g.body)
			}
		}
		if out := c.mustOperate(t, "sessions", "revoke", "--all", "--yes"); !strings.HasPrefix(out, "Ended: ") {
			t.Errorf("everybody: %s", out)
		}
		wantEnd("eve")
		if out := c.mustOperate(t, "sessions", "list"); out != "no user is signed in\n" {
			t.Errorf("after that: %s", out)
		}
		a.mustSignIn(t, browsers["eve"])
	})
}

// TestOperatorsReadEventsInTheAudit signs a user in, uses a key, and administers beside the program
// and while it is stopped: all of it is in the audit, once, with the user as the provider named them.
func TestOperatorsReadEventsInTheAudit(t *testing.T) {
	harness.Waits(t)
	for _, driver := range []string{"sqlite", "postgres"} {
		t.Run(driver, func(t *testing.T) {
			harness.Waits(t)
			file, storage := filepath.Join(t.TempDir(), "audit.jsonl"), ""
			if driver == "postgres" {
				storage = fmt.Sprintf("storage: { driver: postgres, dsn: %q }\n", authtest.Schema(t))
			}
			_, up := upstreamtest.Start(t, upstreamtest.Script{})
			ci := newAPIKey(t, "ci")
			c := mustCompany(t, up, "", fmt.Sprintf("audit: { file: %q }\n", file)+storage, "  api_keys: ["+ci.entry+"]")
			has := func(line string) bool {
				text, err := os.ReadFile(file)
				return err == nil && regexp.MustCompile(`(?m)^\{.*`+line+`.*\}$`).Match(text)
			}
			wantLine := func(line string) {
				t.Helper()
				tick := time.NewTicker(20 * time.Millisecond)
				defer tick.Stop()
				late := time.After(harness.Patience)
				for !has(line) {
					select {
					case <-tick.C:
					case <-late:
						text, _ := os.ReadFile(file)
						t.Fatalf("no line of the audit matches %s:\n%s", line, text)
					}
				}
			}
			const ann = `"principal":"user:[^"]*ann","person":"ann","email":"ann@acme.example"`
			a := mustRegister(t, c, appRedirect)
			p := a.mustSignIn(t, newPerson(t, "ann"))
			wantLine(`"event":"started".*"detail":"version [^"]*, sha256 [0-9a-f]{64}","outcome":"ok"`)
			wantLine(`"event":"signed_in","event_id":"[^"]+","request_id":"[^"]+",` + ann + `.*"address":"127.0.0.1"`)
			wantLine(`"event":"code_issued".*` + ann + `,"oauth_client":"[^"]+"`)
			harness.WantEcho(t, showing(t, c.Program, client.EraModern, p.Access, "/mcp").Tool(t, "up__echo", `{}`))
			wantLine(ann + `.*"method":"tools/call".*"outcome":"ok"`)
			for range 2 {
				showing(t, c.Program, client.EraModern, ci.key, "/mcp").Call(t, "tools/list", "")
			}
			wantLine(`"event":"key_used".*"principal":"key:ci","key_id":"[0-9a-f]{8}","address":"127.0.0.1"`)
			c.mustOperate(t, "users", "disable", "ann@acme.example")
			wantLine(`"event":"user_disabled".*` + ann + `,"detail":"by the operator"`)
			c.MustStop(t)
			c.mustOperate(t, "users", "enable", "ann@acme.example")
			if has("user_enabled") {
				t.Error("an event of a command is in the audit while no proxy runs")
			}
			c.MustServe(t, "--listen", strings.TrimPrefix(c.origin, "http://"))
			wantLine(`"event":"user_enabled".*` + ann)
			text, err := os.ReadFile(file)
			if err != nil || strings.Count(string(text), `"signed_in"`) != 1 || strings.Count(string(text), `"key_used"`) != 1 {
				t.Errorf("an event is in the audit more than once (%v):\n%s", err, text)
			}
			c.mustOperate(t, "audit", "verify")
			out := c.mustOperate(t, "audit", "--who", "ann@")
			if !strings.Contains(out, "user_disabled") || strings.Contains(out, "key_used") {
				t.Errorf("the audit of ann is\n%s", out)
			}
		})
	}
}

// TestRotateBesideTheProgram replaces the master key beside a running process, which does not have the
// new one.
func TestRotateBesideTheProgram(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	a := mustRegister(t, c, appRedirect)
	p := a.mustSignIn(t, newPerson(t, "ann"))
	keys := filepath.Join(c.Dir, "junction", "master.key")
	before, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := c.operate(t, "storage", "rotate"); err == nil ||
		!strings.Contains(out, fmt.Sprintf("process %d ", c.Cmd.Process.Pid)) || !strings.Contains(out, "stop the proxy") {
		t.Errorf("beside a running program: %v\n%s", err, out)
	}
	if after, err := os.ReadFile(keys); err != nil || string(after) != string(before) {
		t.Errorf("what was refused has changed the keys, %v", err)
	}
	restarted := func(args ...string) {
		t.Helper()
		c.MustStop(t)
		t.Log(c.mustOperate(t, args...))
		c.MustServe(t, "--listen", strings.TrimPrefix(c.origin, "http://"))
		c.MustReady(t, harness.Patience)
	}
	restarted("storage", "rotate")
	harness.WantEcho(t, showing(t, c.Program, client.EraModern, p.Access, "/mcp").Tool(t, "up__echo", `{}`))
	status, next := a.refresh(t, p.Refresh)
	if status != 200 {
		t.Fatalf("a refresh after the rotation: %d %+v", status, next)
	}
	a.mustSignIn(t, newPerson(t, "bob"))
	restarted("storage", "rotate", "--revoke-all", "--yes")
	if got := showing(t, c.Program, client.EraModern, "", "/mcp").Call(t, "tools/list", "",
		harness.With("Authorization", "Bearer "+next.Access)); got.Status != 401 {
		t.Errorf("the token after everything was revoked: %s", got)
	}
	if g := newPerson(t, "ann").open(a.authorize()); g.status != 400 ||
		!strings.Contains(g.body, "a key that is no longer configured") {
		t.Errorf("an app that was registered with the old key: %d %s", g.status, g.body)
	}
	if _, again := a.token(t, "grant_type", "refresh_token", "refresh_token", next.Refresh); again.Access != "" {
		t.Errorf("its refresh token: %+v", again)
	}
	mustRegister(t, c, appRedirect).mustSignIn(t, newPerson(t, "ann"))
}

// TestOperatorBlocksAppsAndUsers shuts out an app, and then a person: what they have ends in the
// running program, they are told why, and that outlives the program.
func TestOperatorBlocksAppsAndUsers(t *testing.T) {
	onEachStorage(t, func(t *testing.T, c *company) {
		bad, good := mustRegister(t, c, appRedirect), mustRegister(t, c, "http://localhost:8/cb")
		ann, bob := newPerson(t, "ann"), newPerson(t, "bob")
		restart := func() {
			t.Helper()
			c.MustStop(t)
			c.MustServe(t, "--listen", strings.TrimPrefix(c.origin, "http://"))
			c.MustReady(t, harness.Patience)
		}
		// ends does something that ends what a sign-in has, and nothing of another.
		ends := func(a oauthApp, p, other tokenPair, does func()) {
			t.Helper()
			mcp, stays := showing(t, c.Program, client.EraLegacy, p.Access, "/mcp"), showing(t, c.Program, client.EraModern,
				other.Access, "/mcp")
			stream := mcp.MustOpen(t)
			harness.WantEcho(t, stays.Tool(t, "up__echo", `{}`))
			does()
			wantRefused(t, "POST", refusedTo(t, mcp, "POST"), 401, refusedToken+"it was revoked") // already
			began := time.Now()
			mustClose(t, stream)
			if took := time.Since(began); took > harness.Promptly {
				t.Errorf("the stream goes on for %v", took)
			}
			for _, when := range []string{"at once", "after a restart"} {
				if when == "after a restart" {
					restart()
				}
				wantRefused(t, "POST", refusedTo(t, mcp, "POST"), 401, refusedToken+"it was revoked")
				if status, again := a.refresh(t, p.Refresh); status != 400 || again.Error != "invalid_grant" {
					t.Errorf("%s it refreshes: %d %+v", when, status, again)
				}
				harness.WantEcho(t, stays.Tool(t, "up__echo", `{}`))
			}
		}
		byBad, byGood := bad.mustSignIn(t, ann), good.mustSignIn(t, ann)
		ends(bad, byBad, byGood, func() { t.Log(c.mustOperate(t, "clients", "block", bad.id, "--reason", "phishing")) })
		for name, who := range map[string]*person{"one who has let it in": ann, "one who has not": bob} {
			if g := who.through(bad.authorize()); g.status != 400 ||
				!strings.Contains(g.body, "The operator of this server has blocked this app.") || g.next() != "" {
				t.Errorf("%s is shown %d at %s: %s", name, g.status, g.url, g.body)
			}
		}
		c.mustOperate(t, "clients", "unblock", bad.id)
		byBad = bad.mustSignIn(t, bob)

		ends(good, byGood, byBad, func() { t.Log(c.mustOperate(t, "users", "disable", "ann@acme.example")) })
		if g := ann.through(good.authorize()); g.status != 403 ||
			!strings.Contains(g.body, "this account may not use this server") ||
			!strings.Contains(g.body, "error=access_denied") {
			t.Errorf("who is shut out is shown %d at %s: %s", g.status, g.url, g.body)
		}
		c.Stderr.MustMatch(t,
			regexp.MustCompile(
				`error="the user may not sign in here: the operator has disabled [\w-]{22}"\n.*event=sign_in_refused `+
					`user=[\w-]{22} `), harness.Patience, c.Done)
		c.mustOperate(t, "users", "enable", "ann@acme.example")
		good.mustSignIn(t, ann)
	})
}
