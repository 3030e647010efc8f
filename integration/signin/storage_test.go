package signin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// issued is an answer of the token endpoint.
type issued struct {
	AccessToken  string `json:"access_token"`
	RefreshToken string `json:"refresh_token"`
	Error        string
}

// exchange asks the token endpoint at an origin for what an app has a code or a refresh token for.
func (a oauthApp) exchange(origin string, form url.Values) (status int, got issued, err error) {
	form = maps.Clone(form)
	form.Set("client_id", a.id)
	form.Set("resource", a.c.origin+"/mcp")
	resp, err := http.PostForm(origin+"/oauth/token", form)
	if err != nil {
		return 0, got, err
	}
	defer resp.Body.Close()
	err = json.NewDecoder(resp.Body).Decode(&got)
	tokenPair{Access: got.AccessToken, Refresh: got.RefreshToken}.keep()
	return resp.StatusCode, got, err
}

func (a oauthApp) mustExchange(t testing.TB, origin string, form url.Values) (int, issued) {
	t.Helper()
	status, got, err := a.exchange(origin, form)
	if err != nil {
		t.Fatal(err)
	}
	return status, got
}

// mustEnter has a person sign in, and returns the form that the code is redeemed with.
func (a oauthApp) mustEnter(t testing.TB, name string) url.Values {
	t.Helper()
	back := newPerson(t, name).mustAllow(a.authorize())
	code := back.Query().Get("code")
	if code == "" || back.Query().Get("iss") != a.c.origin {
		t.Fatalf("the app is answered with %s", back)
	}
	return url.Values{"grant_type": {"authorization_code"}, "code": {code}, "redirect_uri": {a.redirect},
		"code_verifier": {appVerifier}}
}

func refreshing(token string) url.Values {
	return url.Values{"grant_type": {"refresh_token"}, "refresh_token": {token}}
}

// mustReplicas starts two processes over one Postgres, behind a balancer that gives each request to
// the other one than the last. The company is at the balancer.
func mustReplicas(t *testing.T, upstreams, config string) (c *company, replicas [2]*harness.Program) {
	t.Helper()
	dsn := authtest.Schema(t)
	var targets [2]atomic.Pointer[url.URL]
	var turn atomic.Uint32
	balancer := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(targets[turn.Add(1)%2].Load())
		r.Out.Host = r.In.Host
	}})
	t.Cleanup(balancer.Close)
	c = &company{origin: balancer.URL}
	c.provider = mustProvider(t, c.origin+"/oauth/callback/sso")
	replicas = [2]*harness.Program{harness.NewProgram(t), harness.NewProgram(t)}
	for i, p := range replicas {
		p.Dir = replicas[0].Dir // one file, one master key
		if i == 0 {
			p.MustConfigure(t, fmt.Sprintf(`public_url: %s
auth:
  oauth:
    identity_providers:
      - { id: sso, issuer: %q, client_id: junction, client_secret: canary-s3cret }
storage: { driver: postgres, dsn: %q, key_file: %q }
upstreams: %s
%s`, c.origin, c.issuer, dsn, filepath.Join(p.Dir, "master.key"), upstreams, config))
		}
		p.MustServe(t)
		p.MustReady(t, harness.Patience)
		target, err := url.Parse(p.Origin())
		if err != nil {
			t.Fatal(err)
		}
		targets[i].Store(target)
	}
	c.Program = replicas[0]
	return c, replicas
}

func TestSignInOverTwoReplicas(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c, replicas := mustReplicas(t, fmt.Sprintf("{ up: { url: %q } }", up), "")
	origin := func(i int) string { return replicas[i%2].Origin() }
	app := mustRegister(t, c, "https://app.example/callback")

	// The pages of the sign-in are of one replica and the other in turn.
	code := app.mustEnter(t, "ann")
	status, first := app.mustExchange(t, c.origin, code)
	if status != 200 {
		t.Fatalf("the code: %d, %+v", status, first)
	}
	for i := range replicas {
		harness.WantEcho(t, showing(t, replicas[i], client.EraModern, first.AccessToken, "/mcp").Tool(t, "up__echo", `{}`))
	}
	// Concurrent refreshes at both replicas get one pair.
	answers := make(chan issued)
	for i := range 50 {
		go func() {
			status, got, err := app.exchange(origin(i), refreshing(first.RefreshToken))
			if status != 200 || err != nil {
				t.Errorf("refresh %d at once: %d, %+v, %v", i, status, got, err)
			}
			answers <- got
		}()
	}
	second := <-answers
	for range 49 {
		if got := <-answers; got != second {
			t.Errorf("two pairs: %+v and %+v", second, got)
		}
	}
	// A refresh token that one replica has exchanged is used up at the other: using it again ends
	// the grant.
	status, third := app.mustExchange(t, origin(0), refreshing(second.RefreshToken))
	if status != 200 {
		t.Fatalf("the successor: %d, %+v", status, third)
	}
	harness.WantEcho(t, showing(t, replicas[1], client.EraModern, third.AccessToken, "/mcp").Tool(t, "up__echo", `{}`))
	if status, got := app.mustExchange(t, origin(1), refreshing(first.RefreshToken)); status != 400 ||
		got.Error != "invalid_grant" {
		t.Errorf("the first token after its successor was used: %d, %+v; want invalid_grant", status, got)
	}
	if status, got := app.mustExchange(t, origin(0), refreshing(third.RefreshToken)); status != 400 ||
		got.Error != "invalid_grant" {
		t.Errorf("the last token after that: %d, %+v; want invalid_grant", status, got)
	}
	for i := range replicas {
		mustEndWithin(t, replicas[i], third.AccessToken, harness.Promptly)
	}
	// A code is redeemed once, at either replica.
	code, redeemed := app.mustEnter(t, "bob"), make(chan int)
	for i := range 20 {
		go func() {
			status, _, err := app.exchange(origin(i), code)
			if err != nil {
				t.Error(err)
			}
			redeemed <- status
		}()
	}
	counts := map[int]int{}
	for range 20 {
		counts[<-redeemed]++
	}
	if counts[200] != 1 || counts[400] != 19 {
		t.Errorf("20 redemptions of one code at once: %v, want one", counts)
	}
	// What one revokes ends at the other.
	_, fourth := app.mustExchange(t, origin(0), app.mustEnter(t, "cid"))
	harness.WantEcho(t, showing(t, replicas[1], client.EraModern, fourth.AccessToken, "/mcp").Tool(t, "up__echo", `{}`))
	resp, err := http.PostForm(origin(0)+"/oauth/revoke",
		url.Values{"token": {fourth.RefreshToken}, "client_id": {app.id}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("revoke: %s", resp.Status)
	}
	mustEndWithin(t, replicas[1], fourth.AccessToken, harness.Promptly)
}

// mustEndWithin waits until a token is not let in any more.
func mustEndWithin(t *testing.T, p *harness.Program, token string, d time.Duration) {
	t.Helper()
	c := showing(t, p, client.EraModern, "", "/mcp")
	c.Key = token
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		if a := c.Tool(t, "up__echo", `{}`); a.Status == 401 {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Errorf("a token that was revoked is let in %v later", d)
			return
		}
	}
}

// ringOf is a file of master keys.
func ringOf(ids ...string) []byte {
	var text []byte
	for _, id := range ids {
		sum := sha256.Sum256([]byte(id))
		authtest.Secret("a master key", base64.StdEncoding.EncodeToString(sum[:]))
		text = fmt.Appendf(text, "%s:%s\n", id, base64.StdEncoding.EncodeToString(sum[:]))
	}
	return text
}

// TestStorageIsForOneProcessAndItsKeys has one file, which is for one process and one set of keys.
func TestStorageIsForOneProcessAndItsKeys(t *testing.T) {
	harness.Waits(t)
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	dir := t.TempDir()
	file, keys := filepath.Join(dir, "junction.db"), filepath.Join(dir, "master.key")
	mustKeys := func(ids ...string) {
		t.Helper()
		if err := os.WriteFile(keys, ringOf(ids...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustKeys("old")
	c := mustCompany(t, up, "", fmt.Sprintf("storage: { dsn: %q, key_file: %q }\n", file, keys))
	app := mustRegister(t, c, "https://app.example/callback")
	status, pair := app.mustExchange(t, c.origin, app.mustEnter(t, "ann"))
	if status != 200 {
		t.Fatalf("the code: %d, %+v", status, pair)
	}
	// wantRefusal starts another process on the same file, which says why it does not.
	wantRefusal := func(why ...string) {
		t.Helper()
		stdout, stderr, err := harness.RunJunction(t, []string{"XDG_STATE_HOME=" + dir}, "--config", c.File(), "--listen",
			process.FreePort(t))
		out := stdout + stderr
		if _, ok := err.(*exec.ExitError); !ok {
			t.Errorf("the process ended with %v; want it to refuse:\n%s", err, out)
		}
		for _, why := range why {
			if !strings.Contains(out, why) {
				t.Errorf("it does not say %q:\n%s", why, out)
			}
		}
		if strings.Contains(out, string(ringOf("new")[len("new:"):])) ||
			strings.Contains(out, string(ringOf("old")[len("old:"):])) {
			t.Errorf("it tells a key:\n%s", out)
		}
	}
	wantRefusal(file, "another process", fmt.Sprintf("process %d ", c.Cmd.Process.Pid))
	harness.WantEcho(t, showing(t, c.Program, client.EraModern, pair.AccessToken, "/mcp").Tool(t, "up__echo", `{}`))

	address := strings.TrimPrefix(c.origin, "http://")
	restart := func() {
		t.Helper()
		c.MustServe(t, "--listen", address)
		c.MustReady(t, harness.Patience)
	}
	c.MustStop(t)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	mustKeys("new")
	wantRefusal("master keys")
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the wrong key has changed the file, %v", err)
	}

	// With a new key in front all goes on: the registration, the tokens, and what the provider gave
	// us.
	mustKeys("new", "old")
	restart()
	harness.WantEcho(t, showing(t, c.Program, client.EraModern, pair.AccessToken, "/mcp").Tool(t, "up__echo", `{}`))
	if status, pair = app.mustExchange(t, c.origin, refreshing(pair.RefreshToken)); status != 200 {
		t.Fatalf("a refresh with a new key: %d, %+v", status, pair)
	}
	if status, second := app.mustExchange(t, c.origin, app.mustEnter(t, "bob")); status != 200 {
		t.Errorf("a second person: %d, %+v", status, second)
	}
	harness.WantEcho(t, showing(t, c.Program, client.EraModern, pair.AccessToken, "/mcp").Tool(t, "up__echo", `{}`))
}
