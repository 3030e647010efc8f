package signin

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/integration/load"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"

	_ "modernc.org/sqlite"
)

// TestSoak uses two programs for as long as JUNCTION_SOAK says, such as 2h, and logs what they hold
// once a minute: memory, goroutines, descriptors, sessions, and rows of the storage. One program has
// people who sign in and refresh their tokens, the other one calls, questions, streams, reloads, and
// servers that die. Calls may fail only where a server has died.
//
//	JUNCTION_SOAK=2h go test ./integration/signin -run TestSoak -v -timeout 0 | grep SOAK
func TestSoak(t *testing.T) {
	long, err := time.ParseDuration(os.Getenv("JUNCTION_SOAK"))
	if err != nil {
		t.Skip("it runs by hand, with JUNCTION_SOAK")
	}
	people, peopleLoad := soakPeople(t)
	local, localLoads := soakLocal(t)
	t.Log("SOAK minute | program | MB | goroutines | descriptors | sessions | rows | calls | lost")
	for began, minute := time.Now(), 0; time.Since(began) < long; minute++ {
		f := peopleLoad.Figures(time.Time{})
		t.Logf("SOAK %d | people | %s | %d | %d | %d", minute, held(t, people), rowsOf(t, people), f.Calls, f.Lost)
		if f.Lost > 0 {
			t.Errorf("people lose calls: %v", f)
		}
		calls, lost := 0, 0
		for _, l := range localLoads {
			f := l.Figures(time.Time{})
			calls, lost = calls+f.Calls, lost+f.Lost
		}
		t.Logf("SOAK %d | local | %s | 0 | %d | %d", minute, held(t, local), calls, lost)
		time.Sleep(time.Minute)
	}
	for _, l := range append(localLoads, peopleLoad) {
		l.Stop()
	}
}

// soakPeople starts a program that people sign in to.
func soakPeople(t *testing.T) (*harness.Program, *load.Load) {
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "", "")
	app := mustRegister(t, c, "https://app.example/callback")
	_, tokens := app.mustExchange(t, c.origin, app.mustEnter(t, "ann"))
	ann := showing(t, c.Program, client.EraModern, tokens.AccessToken, "/mcp")
	return c.Program, load.Start(t, 1, func(ctx context.Context, _, n int) error {
		if n%500 == 499 {
			status, next := app.mustExchange(t, c.origin, refreshing(tokens.RefreshToken))
			if status != http.StatusOK {
				return fmt.Errorf("refresh: %d", status)
			}
			tokens, ann.Key = next, next.AccessToken
		}
		if n%5000 == 4999 {
			app.mustEnter(t, "bob") // the code is not redeemed
		}
		body, own := ann.Request("1", "tools/call", `{"name":"up__echo","arguments":{}}`)
		resp, err := ann.Send(ctx, http.MethodPost, body, own...)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", resp.Status)
		}
		time.Sleep(20 * time.Millisecond)
		return nil
	})
}

// soakLocal starts a program without authentication.
func soakLocal(t *testing.T) (*harness.Program, []*load.Load) {
	config, _ := harness.MustScripted(t, "http", upstreamtest.Script{})
	p := harness.MustProgram(t, "log: { level: info }\nupstreams: { up: { url: \""+config.URL+
		"\" }, demo: { command: [junction, demo] } }\n#reload 0\n")
	p.MustReady(t, harness.Patience)
	var all []*load.Load
	for _, era := range harness.BothEras() {
		all = append(all, load.Start(t, 1, func(ctx context.Context, _, n int) error {
			c := harness.MustCaller(t, p.URL, era) // a new session each time
			defer c.HTTP.CloseIdleConnections()
			for range 50 {
				if err := load.Call(ctx, c, "demo__echo", `{"text":"hello"}`); err != nil {
					return err
				}
				if err := load.Call(ctx, c, "up__echo", `{"a":1}`); err != nil {
					return err
				}
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		}))
	}
	for _, era := range harness.Eras {
		all = append(all, load.Start(t, 1, func(ctx context.Context, _, n int) error {
			c := harness.Talk(t, p.URL, era)
			m, asked := c.Converse(t, harness.Asking(harness.AskForm), harness.AnswersTo)
			if m.Error != nil || len(asked) != 1 {
				return fmt.Errorf("%d questions, %s", len(asked), m.Append(nil))
			}
			if era == client.EraLegacy {
				r, err := http.NewRequestWithContext(ctx, http.MethodDelete, c.URL, nil)
				if err != nil {
					return err
				}
				c.Own(r.Header)
				resp, err := http.DefaultClient.Do(r)
				if err != nil {
					return err
				}
				resp.Body.Close()
			}
			time.Sleep(100 * time.Millisecond)
			return nil
		}))
	}
	all = append(all, load.Start(t, 1, func(ctx context.Context, _, n int) error {
		time.Sleep(10 * time.Second)
		before, err := os.ReadFile(p.File())
		if err != nil {
			return err
		}
		text := strings.Replace(string(before), fmt.Sprintf("#reload %d\n", n), fmt.Sprintf("#reload %d\n", n+1), 1)
		if err := os.WriteFile(p.File()+".new", []byte(text), 0o600); err != nil {
			return err
		}
		if err := os.Rename(p.File()+".new", p.File()); err != nil {
			return err
		}
		time.Sleep(10 * time.Second)
		for _, pid := range process.Descendants(p.Cmd.Process.Pid) {
			if name, lives := process.Living(pid); lives && name == "junction" {
				process.KillGroup(pid)
			}
		}
		return nil
	}))
	return p, all
}

// held returns what a program holds: MB of its own memory, goroutines, descriptors, sessions.
func held(t *testing.T, p *harness.Program) string {
	resp, err := http.Get(p.Admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	values := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), " "); ok {
			name, _, _ = strings.Cut(name, "{")
			n, _ := strconv.ParseFloat(value, 64)
			values[name] += n
		}
	}
	_, own, err := process.Resident(p.Cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%.1f | %.0f | %.0f | %.0f", float64(own)/1e6, values["junction_goroutines"],
		values["junction_descriptors_open"], values["junction_sessions"])
}

// rowsOf counts the rows of the storage.
func rowsOf(t *testing.T, p *harness.Program) (rows int) {
	files, err := filepath.Glob(filepath.Join(p.Dir, "junction", "*.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the storage is %q, %v", files, err)
	}
	db, err := sql.Open("sqlite", "file:"+files[0]+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range []string{"users", "idp_sessions", "web_sessions", "auth_requests", "grants", "oauth_codes",
		"oauth_pkce", "oauth_tokens", "audit"} {
		var n int
		if err := db.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		rows += n
	}
	return rows
}
