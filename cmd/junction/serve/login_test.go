package serve

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/upstream/upstreamtest"
)

// oauthUpstream is an MCP server with a sign-in, whose authorization server issues canary-access
// to who has a code.
type oauthUpstream struct {
	*httptest.Server
	mu      sync.Mutex
	good    string // the token that is accepted
	revoked []string
	issuer  string // the authorization server that it names, if that is another one
}

func mustOAuthUpstream(t *testing.T) *oauthUpstream {
	mcp := upstreamtest.New(upstreamtest.Script{Era: "modern", Tools: []json.RawMessage{[]byte(`{"name":"whoami","inputSchema":{"type":"object"}}`)}})
	t.Cleanup(mcp.Close)
	handler := mcp.Handler()
	u := &oauthUpstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		good := u.good
		u.mu.Unlock()
		switch r.URL.Path {
		case "/mcp":
			if good == "" || r.Header.Get("Authorization") != "Bearer "+good {
				w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+u.URL+`/place"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			handler.ServeHTTP(w, r)
			return
		case "/revoke":
			u.mu.Lock()
			u.revoked = append(u.revoked, r.FormValue("token"))
			u.good = ""
			u.mu.Unlock()
		}
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/place":
			fmt.Fprintf(w, `{"resource":%q,"authorization_servers":[%q]}`, u.URL+"/mcp", cmp.Or(u.issuer, u.URL))
		case "/.well-known/oauth-authorization-server":
			fmt.Fprintf(w, `{"issuer":%[1]q,"authorization_endpoint":"%[1]s/authorize","token_endpoint":"%[1]s/token","registration_endpoint":"%[1]s/register",`+
				`"revocation_endpoint":"%[1]s/revoke","code_challenge_methods_supported":["S256"],"token_endpoint_auth_methods_supported":["none"]}`, u.URL)
		case "/register":
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, `{"client_id":"us"}`)
		case "/token":
			u.mu.Lock()
			u.good = "canary-access"
			u.mu.Unlock()
			fmt.Fprint(w, `{"access_token":"canary-access","refresh_token":"canary-refresh","token_type":"Bearer","expires_in":3600}`)
		}
	}))
	t.Cleanup(u.Close)
	return u
}

// TestLoginCommand signs in to an upstream beside a running proxy, in the ways in which people do
// and in those in which it fails, and signs out.
func TestLoginCommand(t *testing.T) {
	dir := t.TempDir()
	u := mustOAuthUpstream(t)
	text := fmt.Sprintf("storage: { dsn: %[1]s/junction.db, key_file: %[1]s/master.key }\n"+
		"upstreams:\n  linear: { url: %[2]s/mcp, auth: { mode: oauth } }\n  plain: { url: %[2]s/mcp, enabled: true }\n  off: { url: %[2]s/mcp, enabled: false }\n", dir, u.URL)
	r := mustServe(t, text)
	file := r.file
	stateOf := func(name string) (string, string) {
		_, rep := r.mustReport(t)
		for _, up := range rep.Upstreams {
			if up.Name == name {
				return up.State, up.Error
			}
		}
		return "", ""
	}
	until := func(name, state string) {
		t.Helper()
		r.until(t, name, state)
	}
	until("linear", "needs sign-in")
	_, rep := r.mustReport(t)
	for _, up := range rep.Upstreams { // in JSON, the word of the mode is beside sign_in
		if up.Name == "linear" && (up.Auth != "oauth" || !up.SignIn) || up.Name == "plain" && (up.Auth != "" || up.SignIn) {
			t.Errorf("the report has %+v", up)
		}
	}
	if _, why := stateOf("linear"); !strings.HasPrefix(why, "nobody has signed in yet; run: junction login linear --config ") {
		t.Errorf("the reason is %q", why)
	}

	run := func(name, stdin string, noBrowser bool, browser func(t *testing.T, where string)) (string, error) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		out, errs := authtest.Searched(t, "junction login", &stdout), authtest.Searched(t, "junction login", &stderr)
		var visits sync.WaitGroup
		defer visits.Wait()
		o := &loginOptions{file: &file, stdin: strings.NewReader(stdin), stdout: out, stderr: errs, noBrowser: noBrowser, timeout: 10 * time.Second,
			open: func(where string) error {
				if browser == nil {
					return errors.New("there is no browser")
				}
				visits.Go(func() { browser(t, where) })
				return nil
			}}
		err := o.login(context.Background(), name)
		return stdout.String() + stderr.String(), err
	}
	for name, want := range map[string]string{
		"linaer": `there is no upstream "linaer" in ` + file + "; did you mean linear?",
		"off":    "off is disabled",
	} {
		if _, err := run(name, "", false, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("login %s = %v, want %s", name, err, want)
		}
	}

	back := func(t *testing.T, where string, change func(url.Values)) (int, string) {
		t.Helper()
		to, err := url.Parse(where)
		if err != nil {
			t.Fatal(err)
		}
		q := url.Values{"code": {"c"}, "state": {to.Query().Get("state")}}
		change(q)
		resp, err := http.Get(to.Query().Get("redirect_uri") + "?" + q.Encode())
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	// The person declines.
	_, err := run("linear", "", false, func(t *testing.T, where string) {
		status, page := back(t, where, func(q url.Values) { q.Set("error", "access_denied"); q.Del("code") })
		if status != http.StatusBadGateway || !strings.Contains(page, "access_denied") {
			t.Errorf("the page is %d %s", status, page)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "access_denied") {
		t.Errorf("declined: %v", err)
	}
	until("linear", "needs sign-in")
	// A page of another sign-in comes first.
	said, err := run("linear", "", false, func(t *testing.T, where string) {
		if status, page := back(t, where, func(q url.Values) { q.Set("state", "another") }); status != http.StatusBadRequest {
			t.Errorf("the page of another sign-in is %d %s", status, page)
		}
		if status, page := back(t, where, func(url.Values) {}); status != http.StatusOK || !strings.Contains(page, "Signed in to linear") {
			t.Errorf("the page is %d %s", status, page)
		}
	})
	if err != nil || !strings.HasPrefix(said, "Signed in to linear.\n") {
		t.Errorf("login = %v\n%s", err, said)
	}
	until("linear", "ready")
	if state, why := stateOf("plain"); state != "needs sign-in" || !strings.Contains(why, "401") {
		t.Errorf("plain is %s (%s), want no sign-in of another upstream's", state, why)
	}

	// Sign out: the tokens are revoked, and the proxy notices.
	var out bytes.Buffer
	logout := LogoutCommand(&out, &file)
	logout.SetArgs([]string{"linear"})
	if err := logout.ExecuteContext(t.Context()); err != nil || !strings.HasPrefix(out.String(), "Signed out of linear.") {
		t.Errorf("logout = %v, %s", err, &out)
	}
	if len(u.revoked) != 1 || u.revoked[0] != "canary-refresh" {
		t.Errorf("revoked are %q", u.revoked)
	}
	until("linear", "needs sign-in")

	// Without a browser here, the address of the last page is pasted; a wrong one is refused.
	pasted, paste := io.Pipe()
	var stdout bytes.Buffer
	invited := newTranscript()
	o := &loginOptions{file: &file, stdin: pasted, stdout: &stdout, stderr: invited, noBrowser: true, timeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- o.login(context.Background(), "linear") }()
	invited.mustSay(t, "paste it here", 1)
	fmt.Fprintln(paste, "http://127.0.0.1:1/connect/linear/callback?code=c&state=wrong")
	invited.mustSay(t, "Paste the whole address", 1)
	invited.mu.Lock()
	_, where, _ := strings.Cut(invited.text.String(), "\n\n  ")
	invited.mu.Unlock()
	where, _, _ = strings.Cut(where, "\n")
	to, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(paste, to.Query().Get("redirect_uri")+"?code=c&state="+to.Query().Get("state"))
	if err := <-done; err != nil {
		t.Errorf("login with a pasted address: %v", err)
	}
	until("linear", "ready")

	// After a restart the sign-in is still there.
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	r = mustServeWith(t, options{file: file})
	until("linear", "ready")

	// Nothing comes back, and the port is taken.
	o = &loginOptions{file: &file, stdin: strings.NewReader(""), stdout: newTranscript(), stderr: authtest.Searched(t, "junction login", newTranscript()), noBrowser: true, timeout: time.Second}
	if err := o.login(context.Background(), "linear"); err == nil || err.Error() != "no answer within 1s; nothing was stored" {
		t.Errorf("abandoned: %v", err)
	}
	invited = newTranscript()
	o.stderr, o.timeout = invited, time.Minute
	ctx, interrupt := context.WithCancel(context.Background())
	go func() { done <- o.login(ctx, "linear") }()
	invited.mustSay(t, "paste it here", 1)
	interrupt()
	if err := <-done; err == nil || err.Error() != "the sign-in was interrupted; nothing was stored" {
		t.Errorf("interrupted: %v", err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	o.port = taken.Addr().(*net.TCPAddr).Port
	if err := o.login(context.Background(), "linear"); err == nil || !strings.Contains(err.Error(), "choose another --port") {
		t.Errorf("on a taken port: %v", err)
	}
	until("linear", "ready")
}

// TestLoginBeforeTheFirstStart makes the storage, which a proxy then uses.
func TestLoginBeforeTheFirstStart(t *testing.T) {
	dir := t.TempDir()
	u := mustOAuthUpstream(t)
	file := filepath.Join(dir, "config.yaml")
	mustWrite(t, file, addresses+fmt.Sprintf("storage: { dsn: %[1]s/state/junction.db, key_file: %[1]s/state/master.key }\nupstreams: { linear: { url: %[2]s/mcp, auth: { mode: oauth } } }\n", dir, u.URL))
	o := &loginOptions{file: &file, stdin: strings.NewReader(""), stdout: newTranscript(), stderr: authtest.Searched(t, "junction login", newTranscript()), timeout: 10 * time.Second, open: func(where string) error {
		to, err := url.Parse(where)
		if err != nil {
			return err
		}
		go http.Get(to.Query().Get("redirect_uri") + "?code=c&state=" + to.Query().Get("state"))
		return nil
	}}
	if err := o.login(context.Background(), "linear"); err != nil {
		t.Fatal(err)
	}
	r := mustServeWith(t, options{file: file})
	r.until(t, "linear", "ready")
}

// TestLoginSaysThatNothingListens: a server on this machine that does not run, and one that names an authorization server
// which does not run, have the next step. No key of the file would help.
func TestLoginSaysThatNothingListens(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	named := mustOAuthUpstream(t)
	named.issuer = closed.URL
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	mustWrite(t, file, addresses+fmt.Sprintf("storage: { dsn: %[1]s/junction.db, key_file: %[1]s/master.key }\nupstreams:\n"+
		"  gone: { url: %[2]s/mcp, auth: { mode: oauth } }\n  named: { url: %[3]s/mcp, auth: { mode: oauth } }\n", dir, closed.URL, named.URL))
	host := strings.TrimPrefix(closed.URL, "http://")
	for name, want := range map[string]string{
		"gone": "gone cannot be reached: " + host + ": connection refused; no server listens there: start it, or check host and port",
		"named": "named names the authorization server " + host + ", and no server listens there: start it, or check host and port; " +
			"when it listens, permit its address with outbound.allow_private",
	} {
		o := &loginOptions{file: &file, stdin: strings.NewReader(""), stdout: newTranscript(), stderr: newTranscript(), timeout: 10 * time.Second}
		if err := o.login(t.Context(), name); err == nil || err.Error() != want {
			t.Errorf("login %s = %v, want %s", name, err, want)
		}
	}
}

// TestLoginSetsAuth: the sign-in to an upstream without auth sets it, after the person has signed in, and
// the running proxy uses it.
func TestLoginSetsAuth(t *testing.T) {
	dir := t.TempDir()
	u := mustOAuthUpstream(t)
	r := mustServe(t, fmt.Sprintf("storage: { dsn: %[1]s/junction.db, key_file: %[1]s/master.key }\n"+
		"upstreams:\n  plain:\n    url: %[2]s/mcp # mine\n", dir, u.URL))
	stdout := newTranscript()
	before, err := os.ReadFile(r.file)
	if err != nil {
		t.Fatal(err)
	}
	answer := "&error=access_denied"
	o := &loginOptions{file: &r.file, stdin: strings.NewReader(""), stdout: stdout,
		stderr: authtest.Searched(t, "junction login", newTranscript()), timeout: 10 * time.Second,
		open: func(where string) error {
			to, err := url.Parse(where)
			if err != nil {
				return err
			}
			go http.Get(to.Query().Get("redirect_uri") + "?state=" + to.Query().Get("state") + answer)
			return nil
		}}
	if err := o.login(context.Background(), "plain"); err == nil {
		t.Error("a sign-in that the person declines succeeds")
	}
	if now, err := os.ReadFile(r.file); err != nil || !bytes.Equal(now, before) {
		t.Errorf("after a sign-in that failed, the file is %v\n%s", err, now)
	}
	answer = "&code=c"
	if err := o.login(context.Background(), "plain"); err != nil {
		t.Fatal(err)
	}
	r.until(t, "plain", "ready")
	now, err := os.ReadFile(r.file)
	if err != nil || !strings.Contains(string(now), "/mcp # mine\n    auth: { mode: oauth }\n") {
		t.Errorf("the file is %v\n%s", err, now)
	}
	if !strings.Contains(stdout.String(), "Signed in to plain.\nAdded auth: { mode: oauth } to plain in ") {
		t.Errorf("login prints\n%s", stdout)
	}
}

// until waits for the log to be written until an upstream has a state.
func (r *running) until(t *testing.T, name, state string) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		r.stderr.mu.Lock()
		changed := r.stderr.changed
		r.stderr.mu.Unlock()
		got := ""
		_, rep := r.mustReport(t)
		for _, u := range rep.Upstreams {
			if u.Name == name {
				got = u.State
			}
		}
		if got == state {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%s is %s, want %s", name, got, state)
		}
	}
}
