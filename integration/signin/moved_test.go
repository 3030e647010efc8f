package signin

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// collector is an authorization server that keeps what it is sent.
type collector struct {
	issuer string

	mu       sync.Mutex
	received []string // requests with their bodies
}

func mustCollect(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.received = append(c.received, r.Method+" "+r.URL.Path+" "+r.Form.Encode()+" "+r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(r.URL.Path, "/.well-known/") {
			_ = json.NewEncoder(w).Encode(map[string]any{"issuer": c.issuer, "authorization_endpoint": c.issuer + "/authorize",
				"token_endpoint": c.issuer + "/token", "revocation_endpoint": c.issuer + "/revoke",
				"code_challenge_methods_supported": []string{"S256"}})
			return
		}
		fmt.Fprint(w, `{"access_token":"canary-at-of-mallory","token_type":"Bearer"}`)
	})
	c.issuer, _ = upstreamtest.Serve(t, "127.0.0.1:0", mux)
	return c
}

// all returns the requests that the server has received.
func (c *collector) all() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.received, "\n")
}

// intruder is a program that can write to the database of a company, and has no master key.
type intruder struct {
	*sql.DB
	t *testing.T
}

func mustIntrude(t *testing.T, driver, dsn string) intruder {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { db.Close() })
	return intruder{db, t}
}

func (i intruder) must(statement string, args ...any) {
	i.t.Helper()
	result, err := i.Exec(statement, args...)
	if err != nil {
		i.t.Fatal(err)
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		i.t.Fatalf("%s has changed %d rows, %v", statement, n, err)
	}
}

// text returns the only value of a query.
func (i intruder) text(query string, args ...any) (text string) {
	i.t.Helper()
	if err := i.QueryRow(query, args...).Scan(&text); err != nil {
		i.t.Fatal(err)
	}
	return text
}

// TestMovedRowsSendNoToken has a program write to the database of the running Junction: it gives ann's
// tokens to bob, names another authorization server for them, and gives bob's sign-in to ann. No token
// and no secret leave, and everything works when the rows are as Junction wrote them.
func TestMovedRowsSendNoToken(t *testing.T) {
	harness.Waits(t)
	for _, driver := range []string{"sqlite", "pgx"} {
		t.Run(driver, func(t *testing.T) {
			harness.Waits(t)
			storage, dsn := "", ""
			if driver == "pgx" {
				dsn = authtest.Schema(t)
				storage = fmt.Sprintf("storage: { driver: postgres, dsn: %q }\n", dsn)
			}
			l, mallory := mustLinear(t), mustCollect(t)
			authtest.Secret("our secret at linear", "canary-secret")
			c := mustLinearCompany(t, l, ", client_id: us, client_secret: canary-secret, issuer: \""+l.issuer+"\"", storage)
			if dsn == "" {
				dsn = "file:" + filepath.Join(c.Dir, "junction", "junction.db") + "?_pragma=busy_timeout(10000)"
			}
			ann, bob := mustWorker(t, c, "ann"), mustWorker(t, c, "bob")
			ann.mustConnect(t)
			bob.mustConnect(t)
			hers, his := ann.talk(t, client.EraLegacy, `{}`), bob.talk(t, client.EraLegacy, `{}`)
			hers.Succeed(t, "linear__echo", `{"say":"hers"}`)
			his.Succeed(t, "linear__echo", `{"say":"his"}`)
			i := mustIntrude(t, driver, dsn)
			rowOf := func(name string) (id, principal string) {
				principal = i.text(`SELECT principal FROM upstream_tokens WHERE principal LIKE '%' || $1`, name)
				return i.text(`SELECT id FROM upstream_tokens WHERE principal = $1`, principal), principal
			}
			annRow, annID := rowOf("ann")
			bobRow, bobID := rowOf("bob")
			own := func(row, principal string) {
				t.Helper()
				i.must(`UPDATE upstream_tokens SET principal = $2 WHERE id = $1`, row, principal)
			}
			refused := func(worker *harness.Talker, text string) {
				t.Helper()
				if m := worker.Call(t, "linear__echo", fmt.Sprintf(`{"say":%q}`, text)); m.Error == nil &&
					!strings.Contains(string(m.Result), `"isError":true`) {
					t.Errorf("%s is answered: %s", text, m.Append(nil))
				}
				if with, called := l.accounts()[text]; called {
					t.Errorf("%s was made with %q", text, with)
				}
			}

			// Her tokens in his name, and his in hers.
			own(annRow, "")
			own(bobRow, annID)
			own(annRow, bobID)
			refused(his, "his with her token")
			refused(hers, "hers with his token")
			own(annRow, "")
			own(bobRow, bobID)
			own(annRow, annID)
			hers.Succeed(t, "linear__echo", `{"say":"hers again"}`)

			// Her refresh token to another authorization server, when the access token has to be renewed.
			i.must(`UPDATE upstream_tokens SET issuer = $2 WHERE id = $1`, annRow, mallory.issuer)
			l.expire()
			refused(hers, "hers at another server")
			i.must(`UPDATE upstream_tokens SET issuer = $2 WHERE id = $1`, annRow, l.issuer)
			hers.Succeed(t, "linear__echo", `{"say":"hers renewed"}`)
			if with := l.accounts()["hers renewed"]; !strings.HasPrefix(with, "Bearer canary-at-ann-linear-") {
				t.Errorf("her call was made with %q", with)
			}

			// His sign-in as hers: his refresh token must not become a token of hers.
			grant := i.text(`SELECT g.id FROM grants g JOIN users u ON u.id = g.user_id WHERE u.subject LIKE '%bob'`)
			was := i.text(`SELECT user_id FROM grants WHERE id = $1`, grant)
			i.must(`UPDATE grants SET user_id = (SELECT id FROM users WHERE subject LIKE '%ann') WHERE id = $1`, grant)
			if status, got := bob.app.refresh(t, bob.tokens.Refresh); status < 500 || got.Access != "" {
				t.Errorf("a sign-in that was moved is renewed: %d %+v", status, got)
			}
			i.must(`UPDATE grants SET user_id = $2 WHERE id = $1`, grant, was)
			if status, got := bob.app.refresh(t, bob.tokens.Refresh); status != 200 {
				t.Errorf("his own sign-in is not renewed: %d %+v", status, got)
			}

			// The check names what another program has changed, and a disconnect sends nothing to it.
			i.must(`UPDATE upstream_tokens SET issuer = $2 WHERE id = $1`, annRow, mallory.issuer)
			if out, err := c.operate(t, "storage", "check"); err == nil || !strings.Contains(out, "table upstream_tokens") ||
				!strings.Contains(out, annRow) {
				t.Errorf("storage check: %v\n%s", err, out)
			}
			ann.disconnect(t, "linear")
			if all := mallory.all(); all != "" {
				t.Errorf("the other authorization server received:\n%s", all)
			}
		})
	}
}

// TestAddedTriggersAreRefused adds a trigger to a stopped Junction's database, and to a backup: the
// program does not start over it, and does not restore it.
func TestAddedTriggersAreRefused(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	tokens := mustRegister(t, c, appRedirect).mustSignIn(t, newPerson(t, "ann"))
	backup := filepath.Join(c.Dir, "backup.db")
	c.mustOperate(t, "storage", "backup", backup)
	c.MustStop(t)
	crafted := "file:" + backup + "?" + url.Values{"_pragma": {"busy_timeout(10000)"}}.Encode()
	if _, err := mustIntrude(t, "sqlite", crafted).Exec(`CREATE TRIGGER redirect AFTER INSERT ON upstream_tokens
		BEGIN UPDATE upstream_tokens SET principal = 'mallory' WHERE id = new.id; END`); err != nil {
		t.Fatal(err)
	}
	if out, err := c.operate(t, "storage", "restore", backup); err == nil || !strings.Contains(out, "nothing was restored") ||
		!strings.Contains(out, "it has the trigger redirect on upstream_tokens") {
		t.Errorf("the backup is restored: %v\n%s", err, out)
	}
	database := mustIntrude(t, "sqlite", "file:"+filepath.Join(c.Dir, "junction", "junction.db"))
	if _, err := database.Exec(`CREATE VIEW other AS SELECT * FROM users`); err != nil {
		t.Fatal(err)
	}
	if out, err := c.operate(t, "storage", "check"); err == nil || !strings.Contains(out, "it has the view other") {
		t.Errorf("storage check: %v\n%s", err, out)
	}
	if out, err := c.operate(t); err == nil || !strings.Contains(out, "it has the view other") {
		t.Errorf("the program starts: %v\n%s", err, out)
	}
	if _, err := database.Exec(`DROP VIEW other`); err != nil {
		t.Fatal(err)
	}
	c.MustServe(t, "--listen", strings.TrimPrefix(c.origin, "http://"))
	c.MustReady(t, harness.Patience)
	harness.WantEcho(t, showing(t, c.Program, client.EraModern, tokens.Access, "/mcp").Tool(t, "up__echo", `{}`))
}
