package foreign

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
	"junction/upstream/client"
)

// This file runs the suite's scenarios for the sign-in of clients. The suite plays a server and its
// authorization server. The operator signs in with junction login, as often as the program asks.

// signInRun is a revision and a suite of scenarios.
type signInRun struct {
	revision, suite string
	scenarios       []string
}

// signInRuns have the scenarios of each revision that have a sign-in without a client secret of another kind.
func signInRuns() []signInRun {
	released := []string{"metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "basic-cimd",
		"scope-from-www-authenticate", "scope-from-scopes-supported", "scope-omitted-when-undefined", "scope-step-up",
		"scope-retry-limit", "token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none",
		"pre-registration"}
	return []signInRun{
		{"2025-03-26", "backcompat", []string{"2025-03-26-oauth-metadata-backcompat", "2025-03-26-oauth-endpoint-fallback"}},
		{harness.LegacyVersion, "auth", released},
		{harness.ModernVersion, "auth", released},
		{harness.ModernVersion, "draft", []string{"resource-mismatch", "offline-access-scope",
			"offline-access-not-supported", "authorization-server-migration", "iss-supported", "iss-not-advertised",
			"iss-supported-missing", "iss-wrong-issuer", "iss-unexpected", "iss-normalized", "metadata-issuer-mismatch"}},
	}
}

// TestConformanceOfSignIn has the suite judge how the operator signs in at a server.
func TestConformanceOfSignIn(t *testing.T) {
	harness.Waits(t)
	folder := npm.MustFolder(t)
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(own, " '") {
		t.Skipf("the suite takes its command apart at spaces: %s", own)
	}
	for _, run := range signInRuns() {
		t.Run(path.Join(run.revision, run.suite), func(t *testing.T) {
			defer harness.Computes(t)()
			var names []string
			for _, scenario := range run.scenarios {
				names = append(names, "auth/"+scenario)
			}
			judge := func(t *testing.T, name string, c conformance) {
				c.check(t, name, c, nil)
				for _, v := range c.found[name] {
					// the operator's browser returns to this machine, so that Junction has no document there
					document := name == "auth/basic-cimd" && v.Status == "WARNING"
					if v.Status != "SUCCESS" && v.Status != "INFO" && !document {
						t.Error(v)
					}
				}
			}
			mustDriveAll(t, folder, own, run.suite, run.revision, names, useSignedIn, judge)
		})
	}
}

// TestConformanceOfClientCredentials has the suite judge how Junction gets a token with a client of its own
// (io.modelcontextprotocol/oauth-client-credentials).
func TestConformanceOfClientCredentials(t *testing.T) {
	harness.Waits(t)
	folder := npm.MustFolder(t)
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(own, " '") {
		t.Skipf("the suite takes its command apart at spaces: %s", own)
	}
	judge := func(t *testing.T, name string, c conformance) {
		c.check(t, name, c, nil)
		for _, v := range c.found[name] {
			if v.Status != "SUCCESS" && v.Status != "INFO" {
				t.Error(v)
			}
		}
	}
	use := func(t *testing.T, d driven) {
		t.Helper()
		p := harness.NewProgram(t)
		p.MustConfigure(t, fmt.Sprintf("storage: { dsn: %[1]s/junction.db, key_file: %[1]s/master.key }\n"+
			"outbound: { allow_private: [127.0.0.0/8, \"::1/128\"] }\n"+
			"upstreams: { suite: { url: %[2]q, auth: { mode: client_credentials%[3]s } } }\n", p.Dir, d.URL, clientOf(t, d, p.Dir)))
		p.MustServe(t)
		defer p.MustStop(t)
		settled(t, p)
		calledAll(t, p)
	}
	mustDriveAll(t, folder, own, "extensions", "",
		[]string{"auth/client-credentials-basic", "auth/client-credentials-jwt"}, use, judge)
}

// loginCommand is the command that the program asks the operator to run.
var loginCommand = regexp.MustCompile(`junction login suite((?: --scope [\w:./-]+)*)`)

// mostLogins bounds the sign-ins of an operator who does what the program asks for.
const mostLogins = 3

// useSignedIn puts the server behind a program, signs in whenever the program asks for that, and calls
// each tool.
func useSignedIn(t *testing.T, d driven) {
	t.Helper()
	p := harness.NewProgram(t)
	p.MustConfigure(t, fmt.Sprintf("storage: { dsn: %[1]s/junction.db, key_file: %[1]s/master.key }\n"+
		"outbound: { allow_private: [127.0.0.0/8, \"::1/128\"] }\nupstreams: { suite: { url: %[2]q, auth: { mode: oauth%[3]s } } }\n",
		p.Dir, d.URL, clientOf(t, d, p.Dir)))
	var scopes []string
	for range mostLogins {
		if !signedIn(t, p, scopes) {
			return // the scenario may want that
		}
		if p.Cmd == nil {
			p.MustServe(t)
			defer p.MustStop(t)
		} else {
			p.MustRestart(t)
		}
		asks := settled(t, p)
		if asks == nil {
			asks = calledAll(t, p)
		}
		if asks == nil {
			return
		}
		scopes = strings.Fields(strings.ReplaceAll(asks[1], "--scope", ""))
	}
}

// clientOf returns the client that the suite has registered beforehand, as keys of auth; "" if there is
// none. It writes its key into a file in dir.
func clientOf(t *testing.T, d driven, dir string) string {
	t.Helper()
	var given struct {
		ID     string `json:"client_id"`
		Secret string `json:"client_secret"`
		Key    string `json:"private_key_pem"`
	}
	if json.Unmarshal([]byte(d.Context), &given) != nil || given.ID == "" {
		return ""
	}
	authtest.Secret("the client secret of the suite", given.Secret)
	proof := fmt.Sprintf("client_secret: %q", given.Secret)
	if given.Key != "" {
		authtest.Secret("the client key of the suite", strings.Join(strings.Split(given.Key, "\n")[1:2], ""))
		if err := os.WriteFile(filepath.Join(dir, "client.pem"), []byte(given.Key), 0o600); err != nil {
			t.Fatal(err)
		}
		proof = "private_key_file: client.pem"
	}
	at, err := url.Parse(d.URL)
	if err != nil {
		t.Fatal(err)
	}
	at.Path = "/.well-known/oauth-protected-resource" + at.Path
	resp, err := http.Get(at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var place struct {
		Issuers []string `json:"authorization_servers"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&place); err != nil || len(place.Issuers) == 0 {
		t.Fatalf("the server names no issuer: %v", err)
	}
	return fmt.Sprintf(", client_id: %q, %s, issuer: %q", given.ID, proof, place.Issuers[0])
}

// signedIn runs junction login, and opens its page. It reports whether the sign-in has succeeded.
func signedIn(t *testing.T, p *harness.Program, scopes []string) bool {
	t.Helper()
	args := []string{"login", "suite", "--no-browser", "--config", p.File()}
	for _, scope := range scopes {
		args = append(args, "--scope", scope)
	}
	cmd := exec.Command(harness.JunctionBinary(t), args...)
	cmd.Env = append(os.Environ(), p.Owner()...)
	out, said, ended := process.NewOutput(), process.NewOutput(), make(chan struct{})
	cmd.Stdout, cmd.Stderr = authtest.Command(t, args, out, said)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(ended)
		cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	defer func() {
		cmd.Process.Kill()
		<-ended
	}()
	where := said.MustMatch(t, regexp.MustCompile(`\n\n  (http\S+)\n|(?s)^junction: (?:.*)$`), harness.Patience, ended)[1]
	if where == "" {
		t.Logf("junction login: %s", said)
		return false
	}
	resp, err := http.Get(where)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	select {
	case <-ended:
	case <-time.After(harness.Patience):
		t.Fatalf("junction login does not end: %s", said)
	}
	t.Logf("junction login %q: %v\n%s%s", scopes, cmd.ProcessState, out, said)
	return cmd.ProcessState.Success()
}

// settled waits until the upstream is ready, or has the command that the operator must run.
func settled(t *testing.T, p *harness.Program) (asks []string) {
	t.Helper()
	ctx := harness.Patient(t)
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		var r harness.Report
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.Admin+"/readyz", nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			err = json.NewDecoder(resp.Body).Decode(&r)
			resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, u := range r.Upstreams {
			if u.State == "ready" || strings.Contains(u.Error, "410 Gone") { // the scenario is over
				return nil
			}
			if m := loginCommand.FindStringSubmatch(u.Error); m != nil {
				return m
			}
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("the upstream has no state: %+v", r.Upstreams)
		}
	}
}

// calledAll calls each tool, and returns the command of the first error that has one.
func calledAll(t *testing.T, p *harness.Program) (asks []string) {
	t.Helper()
	c := harness.Talk(t, p.URL, client.EraModern)
	var list struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(c.Must(t, "tools/list", ""), &list); err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		if !strings.HasPrefix(tool.Name, "suite__") {
			continue
		}
		m := c.Call(t, tool.Name, `{}`)
		if asks := loginCommand.FindStringSubmatch(string(m.Append(nil))); asks != nil {
			return asks
		}
	}
	return nil
}
