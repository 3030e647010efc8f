package signin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"junction/integration/harness/process"
	"junction/upstream/upstreamtest"
)

// The clients that people use, from npm, each with a home of its own. They are large, and one of
// them may only be installed and never be passed on, so that they run where JUNCTION_REAL_CLIENTS
// is set: to 1, or to the folder that they are installed in.
var realClients = []string{"@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.169.0"}

// real is a machine of somebody who has these clients.
type real struct {
	t    *testing.T
	bin  string
	home string
	env  []string
	url  string // the file that the browser is told what to open by
}

func mustReal(t *testing.T) *real {
	t.Helper()
	dir := os.Getenv("JUNCTION_REAL_CLIENTS")
	if dir == "" {
		t.Skip("JUNCTION_REAL_CLIENTS is not set")
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(os.TempDir(), "junction-real-clients")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("npm",
			append([]string{"install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts=false"}, realClients...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	r := &real{t: t, bin: filepath.Join(dir, "node_modules", ".bin"), home: t.TempDir()}
	r.url = filepath.Join(r.home, "opened")
	tools := filepath.Join(r.home, "tools")
	if err := os.Mkdir(tools, 0o700); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nfor last; do :; done\nprintf %s \"$last\" >" + r.url + ".new && mv " + r.url + ".new " + r.url +
		"\n"
	for _, name := range []string{"xdg-open", "browser"} {
		if err := os.WriteFile(filepath.Join(tools, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r.env = []string{"HOME=" + r.home, "PATH=" + tools + ":" + r.bin + ":" + os.Getenv("PATH"),
		"BROWSER=" + filepath.Join(tools, "browser"), "LANG=C.UTF-8",
		"DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"ANTHROPIC_API_KEY=none", "DISPLAY=:0"}
	return r
}

// run runs a command to its end. With a person it waits for a browser to be opened, and has the
// person go through.
func (r *real) run(who *person, name string, args ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(r.bin, name), args...)
	if who != nil { // one of them opens no browser without a terminal
		cmd = exec.CommandContext(ctx, "script", "-qec", strings.Join(append([]string{cmd.Path}, args...), " "), "/dev/null")
	}
	cmd.Env, cmd.Dir = r.env, r.home
	cmd.SysProcAttr = process.ChildAttr(syscall.SIGKILL)
	cmd.Cancel = func() error { process.KillGroup(cmd.Process.Pid); return nil }
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	if who != nil {
		where, opened := r.opened(ended, &err)
		if !opened {
			r.t.Fatalf("%s %q opens no browser: %v\n%s", name, args, err, &out)
		}
		// the browser of this test stays there, and so has been at the client by then
		if back := who.mustAllow(where); back.Hostname() != "127.0.0.1" {
			who.do("GET", back.String(), nil)
		}
	}
	err = errors.Join(err, <-ended)
	if err != nil {
		r.t.Fatalf("%s %q: %v\n%s", name, args, err, &out)
	}
	return out.String()
}

// quietly runs a command to its end, without a person. Several goroutines may.
func (r *real) quietly(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(r.bin, name), args...)
	cmd.Env, cmd.Dir = r.env, r.home
	cmd.SysProcAttr = process.ChildAttr(syscall.SIGKILL)
	cmd.Cancel = func() error { process.KillGroup(cmd.Process.Pid); return nil }
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// mustAge has Claude Code find its access token expired, and worth nothing: that takes an hour at
// least, which its own file is told has passed. It returns the refresh token.
func (r *real) mustAge() (refresh string) {
	r.t.Helper()
	file := filepath.Join(r.home, ".claude", ".credentials.json")
	text, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	var all map[string]json.RawMessage
	var servers map[string]map[string]any
	if err := errors.Join(json.Unmarshal(text, &all), json.Unmarshal(all["mcpOAuth"], &servers)); err != nil ||
		len(servers) != 1 {
		r.t.Fatalf("%v: %s", err, text)
	}
	for _, s := range servers {
		if s["accessToken"] == nil || s["expiresAt"] == nil || s["refreshToken"] == nil {
			r.t.Fatalf("what Claude Code keeps has changed: %s", text)
		}
		refresh = fmt.Sprint(s["refreshToken"])
		s["accessToken"], s["expiresAt"] = "jct_at_expired", time.Now().Add(-time.Minute).UnixMilli()
	}
	if all["mcpOAuth"], err = json.Marshal(servers); err == nil {
		if text, err = json.Marshal(all); err == nil {
			err = os.WriteFile(file, text, 0o600)
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return refresh
}

// opened waits for what a browser is to open.
func (r *real) opened(ended chan error, err *error) (string, bool) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case e := <-ended:
			ended <- nil
			*err = e
			return "", false
		case <-tick.C:
		}
		if text, err := os.ReadFile(r.url); err == nil && len(text) > 0 {
			return string(text), os.Remove(r.url) == nil
		}
	}
}

// eachIdentity runs a test with clients that register, and with clients whose id is the URL of a
// document, which the file has a copy of: nothing is fetched.
func eachIdentity(t *testing.T, id, document string, f func(t *testing.T, r *real, c *company)) {
	for name, oauth := range map[string]string{
		"registered": "    clients: { cimd: { trust: off } }\n",
		"document":   "    clients: { dcr: off, cimd: { trust: allowlist, static_documents: { %q: %q } } }\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := mustReal(t)
			if name == "document" {
				file := filepath.Join(r.home, "client.json")
				if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
					t.Fatal(err)
				}
				oauth = fmt.Sprintf(oauth, id, file)
			}
			_, up := upstreamtest.Start(t, upstreamtest.Script{})
			f(t, r, mustCompany(t, up, oauth, ""))
		})
	}
}

func TestClaudeCodeSignsIn(t *testing.T) {
	const id = "https://claude.ai/oauth/claude-code-client-metadata"
	metadata := `{"client_id":"` + id +
		`","client_name":"Claude Code","redirect_uris":["http://localhost/callback","http://127.0.0.1/callback"],
		"grant_types":["authorization_code","refresh_token"],"response_types":["code"],"token_endpoint_auth_method":"none"}`
	eachIdentity(t, id, metadata, func(t *testing.T, r *real, c *company) {
		r.run(nil, "claude", "mcp", "add", "--transport", "http", "--scope", "user", "junction", c.origin+"/mcp")
		t.Log(r.run(newPerson(t, "ann"), "claude", "mcp", "login", "junction"))
		out := r.run(nil, "claude", "mcp", "get", "junction")
		if t.Log(out); !strings.Contains(out, "Connected") {
			t.Errorf("after the sign-in: %s", out)
		}
		t.Log(r.run(nil, "claude", "mcp", "logout", "junction"))
		if log := c.Stderr.String(); !strings.Contains(log, "event=grant_revoked") {
			t.Error("signing out has revoked nothing")
		}
	})
}

// TestParallelRefreshesOfClaudeCode starts many processes of Claude Code just after the token that they
// share has expired: all of them refresh with the same refresh token, which is good once. (This
// version of Claude Code has them wait for each other on Linux, where the test runs, so that it
// would pass without the replay of the answer too.)
func TestParallelRefreshesOfClaudeCode(t *testing.T) {
	r := mustReal(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "    clients: { cimd: { trust: off } }\n", "")
	r.run(nil, "claude", "mcp", "add", "--transport", "http", "--scope", "user", "junction", c.origin+"/mcp")
	r.run(newPerson(t, "ann"), "claude", "mcp", "login", "junction")
	last := ""
	for round := range 2 {
		refresh := r.mustAge()
		if refresh == last {
			t.Errorf("before round %d nobody has refreshed", round+1)
		}
		last = refresh
		said := make(chan string)
		for range 12 {
			go func() {
				out, err := r.quietly("claude", "mcp", "get", "junction")
				if err != nil {
					out += err.Error()
				}
				said <- out
			}()
		}
		for range 12 {
			if out := <-said; !strings.Contains(out, "Connected") {
				t.Errorf("round %d: %s", round+1, out)
			}
		}
	}
	if r.mustAge() == last {
		t.Error("in the last round nobody has refreshed")
	}
	if log := c.Stderr.String(); strings.Contains(log, "used twice") {
		t.Error("a refresh token was taken for stolen")
	}
	c.mustOperate(t, "sessions", "revoke", "--all", "--yes")
	if out, _ := r.quietly("claude", "mcp", "get", "junction"); strings.Contains(out, "Connected") ||
		!strings.Contains(out, "authentication") {
		t.Errorf("after everybody was signed out: %s", out)
	}
}

func TestCodexSignsIn(t *testing.T) {
	const id = "https://chatgpt.com/oauth/codex/client.json"
	metadata := `{"client_id":"` + id +
		`","client_name":"Codex","redirect_uris":["http://127.0.0.1/callback","http://localhost/callback"],
		"grant_types":["authorization_code","refresh_token"],"response_types":["code"],"token_endpoint_auth_method":"none"}`
	eachIdentity(t, id, metadata, func(t *testing.T, r *real, c *company) {
		t.Log(r.run(newPerson(t, "ann"), "codex", "mcp", "add", "junction", "--url", c.origin+"/mcp"))
		out := r.run(nil, "codex", "mcp", "list")
		if t.Log(out); !strings.Contains(out, "OAuth") {
			t.Errorf("after the sign-in: %s", out)
		}
		t.Log(r.run(newPerson(t, "ann"), "codex", "mcp", "login", "junction")) // adding has signed in already
	})
}
