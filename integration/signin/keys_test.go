package signin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// The tests of this file are the assertions about who may connect, of which each has a number. All
// of them talk to the real program as bytes on HTTP.

// apiKey is a key with its entry of the file.
type apiKey struct{ key, entry string }

// newAPIKey makes a key; more are further members of its entry.
func newAPIKey(t *testing.T, name string, more ...string) apiKey {
	t.Helper()
	key := auth.NewKey()
	authtest.Secret("an API key", key)
	hash, err := auth.HashKey(key)
	if err != nil {
		t.Fatal(err)
	}
	members := append([]string{"name: " + name, `hash: "` + hash.String() + `"`}, more...)
	return apiKey{key, "{ " + strings.Join(members, ", ") + " }"}
}

// authSection is the file's section for these keys, with further lines of it.
func authSection(keys []apiKey, more ...string) string {
	var b strings.Builder
	b.WriteString("auth:\n")
	for _, line := range more {
		b.WriteString("  " + line + "\n")
	}
	b.WriteString("  api_keys:\n")
	for _, k := range keys {
		b.WriteString("    - " + k.entry + "\n")
	}
	return b.String()
}

// guarded starts the program over one server, called up, with a section auth.
func guarded(t *testing.T, section string) (*harness.Program, *upstreamtest.Journal) {
	t.Helper()
	server, url := upstreamtest.Start(t, upstreamtest.Script{})
	p := harness.MustProgram(t, section+"log: { level: debug }\nupstreams: { up: { url: "+url+" } }\n")
	p.MustReady(t, harness.Patience)
	return p, &server.Journal
}

// keyed is a client of the program that sends a key.
func keyed(t *testing.T, p *harness.Program, era client.Era, key string) *harness.Client {
	t.Helper()
	c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, era)
	c.Key = key
	if era == client.EraLegacy {
		c.MustInitialize(t, "2025-11-25")
	}
	return c
}

// refusedTo is the answer to a request that was not let in: a body of JSON that says what the
// challenge says.
func refusedTo(t *testing.T, c *harness.Client, verb string, changes ...harness.HeaderChange) harness.Answered {
	t.Helper()
	body := ""
	if verb == http.MethodPost {
		body = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":` + harness.MetaText("2026-07-28", "raw") +
			`}}`
		changes = append([]harness.HeaderChange{harness.With("Mcp-Protocol-Version", "2026-07-28"),
			harness.With("Mcp-Method", "tools/list")}, changes...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	r, err := c.Send(ctx, verb, body, changes...)
	if err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
	defer r.Body.Close()
	a := harness.Answered{Status: r.StatusCode, Header: r.Header}
	if a.Body, err = io.ReadAll(r.Body); err != nil {
		t.Fatalf("%s: %v", verb, err)
	}
	return a
}

// wantRefused wants a status, a challenge that begins so, and the same in the body, which must not be
// cached.
func wantRefused(t *testing.T, verb string, a harness.Answered, status int, challenge string) {
	t.Helper()
	got := a.Header.Get("WWW-Authenticate")
	if a.Status != status || !strings.HasPrefix(got, challenge) || a.Header.Get("Cache-Control") != "no-store" ||
		a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s: got %s, %v\nwant %d, %s…, no-store and JSON", verb, a, a.Header, status, challenge)
	}
	if hasError := strings.Contains(got, "error="); hasError != (challenge != noToken) {
		t.Errorf("%s: the challenge is %s", verb, got)
	}
	if strings.HasPrefix(verb, http.MethodHead) {
		return
	}
	description := harness.Member(a.Body, "error_description")
	if strings.Contains(got, "error=") &&
		!strings.Contains(got, "error="+harness.Member(a.Body, "error")+", error_description="+description) ||
		description == "" {
		t.Errorf("%s: the body %s does not say what the challenge does: %s", verb, a.Body, got)
	}
}

const (
	noToken  = `Bearer realm="junction"`
	badToken = noToken + `, error="invalid_token", error_description="the token is not valid: `
	unclear  = noToken + `, error="invalid_request", error_description="`
)

// verbs are those of the endpoint, and one that it has not.
var verbs = []string{http.MethodPost, http.MethodGet, http.MethodHead, http.MethodDelete, http.MethodPut}

// mustRefuse runs the program with a file until it ends by itself, and returns what it wrote.
func mustRefuse(t *testing.T, config string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "junction.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := harness.RunJunction(t, []string{"XDG_STATE_HOME=" + t.TempDir()},
		append(args, "--config", file)...)
	if ended, ok := errors.AsType[*exec.ExitError](err); ok {
		return stdout, stderr, ended.ExitCode()
	} else if err != nil {
		t.Fatalf("the program cannot be run: %v", err)
	}
	return stdout, stderr, 0
}

func TestListenBeyondLoopbackNeedsKeysAndHTTPS(t *testing.T) {
	harness.Waits(t)
	ci := newAPIKey(t, "ci")
	keys, https := authSection([]apiKey{ci}), "public_url: https://mcp.example.com\n"
	const demo = "admin: 127.0.0.1:0\nupstreams: { demo: { command: [junction, demo] } }\n"
	for name, row := range map[string]struct {
		config string
		args   []string
		want   []string
	}{
		"nothing": {"listen: 0.0.0.0:0\n", nil,
			[]string{"junction.yaml:1: listen: ", "auth.api_keys or auth.oauth and an https public_url"}},
		"IPv6": {"listen: '[::]:0'\n", nil,
			[]string{"junction.yaml:1: listen: ", "auth.api_keys or auth.oauth and an https public_url"}},
		"without a host": {"listen: :0\n", nil,
			[]string{"junction.yaml:1: listen: ", "auth.api_keys or auth.oauth and an https public_url"}},
		"only keys": {"listen: 0.0.0.0:0\n" + keys, nil,
			[]string{"junction.yaml:1: listen: ", "needs an https public_url"}},
		"only https": {"listen: 0.0.0.0:0\n" + https, nil,
			[]string{"junction.yaml:1: listen: ", "needs auth.api_keys or auth.oauth;"}},
		"no keys in the list": {"listen: 0.0.0.0:0\nauth: { api_keys: [] }\n" + https, nil,
			[]string{"junction.yaml:1: listen: ", "needs auth.api_keys or auth.oauth;"}},
		"http on loopback": {"listen: 0.0.0.0:0\npublic_url: http://localhost:8420\n" + keys, nil,
			[]string{"junction.yaml:1: listen: ", "needs an https public_url"}},
		"http": {"listen: 0.0.0.0:0\npublic_url: http://mcp.example.com\n" + keys, nil,
			[]string{"junction.yaml:2: public_url: must be https"}},
		"on the command line": {"", []string{"--listen", "0.0.0.0:0"},
			[]string{"--listen 0.0.0.0:0: ", "auth.api_keys or auth.oauth and an https public_url"}},
	} {
		t.Run(name, func(t *testing.T) {
			config := row.config + demo
			if strings.Contains(row.config, "admin:") {
				config = strings.Replace(config, "admin: 127.0.0.1:0\n", "", 1)
			}
			stdout, stderr, code := mustRefuse(t, config, row.args...)
			for _, want := range row.want {
				if code == 0 || stdout != "" || !strings.Contains(stderr, want) {
					t.Errorf("ended with %d, %q and\n%s\nwant a failure that says %q", code, stdout, stderr, want)
				}
			}
		})
	}
	t.Run("both", func(t *testing.T) {
		p := harness.NewProgram(t)
		p.MustConfigure(t, https+keys+"upstreams: { demo: { command: [junction, demo] } }\n")
		p.MustServe(t, "--listen", "0.0.0.0:0")
		p.Stdout.MustMatch(t,
			regexp.MustCompile(
				`(?s)Junction serves https://mcp\.example\.com/mcp\n.*--header 'Authorization: Bearer \$\{JUNCTION_KEY\}'`),
			harness.Patience, p.Done)
		p.URL = strings.Replace(p.URL, "[::]", "127.0.0.1", 1)
		c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraModern)
		public, evil := harness.With("Host", "mcp.example.com"), harness.With("Host", "evil.example")
		wantRefused(t, "POST", refusedTo(t, c, "POST", public), 401, noToken)
		c.Key = ci.key
		if a := c.Call(t, "tools/list", "", public, harness.With("Origin", "https://mcp.example.com")); a.Status != 200 {
			t.Errorf("with the key and as public_url says: %s", a)
		}
		if a := c.Call(t, "tools/list", "", evil); a.Status != 403 {
			t.Errorf("with another Host: %s, want 403", a)
		}
		// A reload cannot take away what makes the address safe.
		p.MustConfigure(t, "upstreams: { demo: { command: [junction, demo] } }\n")
		p.Stderr.MustMatch(t,
			regexp.MustCompile(
				`configuration not reloaded.*--listen 0\.0\.0\.0:0: listening elsewhere than on loopback needs auth\.api_keys or`),
			harness.Patience, p.Done)
		c.Key = ""
		wantRefused(t, "POST", refusedTo(t, c, "POST"), 401, noToken)
	})
}

func TestOtherHostsAreRefused(t *testing.T) {
	harness.Waits(t)
	ci := newAPIKey(t, "ci")
	for name, section := range map[string]string{"local": "", "key": authSection([]apiKey{ci})} {
		t.Run(name, func(t *testing.T) {
			p, journal := guarded(t, section)
			harness.EachClientEra(t, func(t *testing.T, era client.Era) {
				c := keyed(t, p, era, ci.key)
				for _, host := range []string{"evil.example", "evil.example:8420", "127.0.0.1.evil.example",
					"localhost.evil.example", "192.0.2.1"} {
					if a := c.Tool(t, "up__echo", `{}`, harness.With("Host", host)); a.Status != 403 {
						t.Errorf("Host %s: %s, want 403", host, a)
					}
				}
				harness.WantUncalled(t, journal, "tools/call")
				for _, host := range []string{"localhost", "127.0.0.1:1", "[::1]"} {
					if a := c.Call(t, "tools/list", "", harness.With("Host", host)); a.Status != 200 {
						t.Errorf("Host %s: %s, want 200", host, a)
					}
				}
			})
		})
	}
}

func TestOtherOriginsAreRefused(t *testing.T) {
	harness.Waits(t)
	ci := newAPIKey(t, "ci")
	for name, section := range map[string]string{"local": "", "key": authSection([]apiKey{ci})} {
		t.Run(name, func(t *testing.T) {
			p, journal := guarded(t, section)
			harness.EachClientEra(t, func(t *testing.T, era client.Era) {
				c := keyed(t, p, era, ci.key)
				for _, origin := range []string{"https://evil.example", "null", "http://localhost.evil.example",
					"http://127.0.0.1@evil.example"} {
					if a := c.Tool(t, "up__echo", `{}`, harness.With("Origin", origin)); a.Status != 403 {
						t.Errorf("Origin %s: %s, want 403", origin, a)
					}
				}
				harness.WantUncalled(t, journal, "tools/call")
				loopback := []harness.HeaderChange{harness.Without("Origin")}
				if name == "key" { // a page does not have the key; TestNoAccidentalOpening has the origins without one
					loopback = append(loopback, harness.With("Origin", "http://localhost:3000"),
						harness.With("Origin", "http://127.0.0.1"), harness.With("Origin", "https://[::1]:1"))
				}
				for _, ch := range loopback {
					if a := c.Call(t, "tools/list", "", ch); a.Status != 200 {
						t.Errorf("a loopback Origin, or none: %s, want 200", a)
					}
				}
			})
		})
	}
}

func TestOtherContentTypesExecuteNothing(t *testing.T) {
	harness.Waits(t)
	ci := newAPIKey(t, "ci")
	for name, section := range map[string]string{"local": "", "key": authSection([]apiKey{ci})} {
		t.Run(name, func(t *testing.T) {
			p, journal := guarded(t, section)
			harness.EachClientEra(t, func(t *testing.T, era client.Era) {
				c := keyed(t, p, era, ci.key)
				for _, ch := range []harness.HeaderChange{
					harness.With("Content-Type", "text/plain"), harness.With("Content-Type", "application/x-www-form-urlencoded"),
					harness.With("Content-Type", "text/plain;application/json"),
					harness.Without("Content-Type"), harness.With("Content-Type", "application/json", "text/plain"),
				} {
					if a := c.Tool(t, "up__echo", `{}`, ch); a.Status != 415 {
						t.Errorf("got %s, want 415", a)
					}
				}
				harness.WantUncalled(t, journal, "tools/call")
			})
		})
	}
}

func TestKeyListsAndCalls(t *testing.T) {
	harness.Waits(t)
	ci := newAPIKey(t, "ci", "cidrs: [127.0.0.0/8]", "expires: 2999-12-31")
	next := newAPIKey(t, "ci")
	p, journal := guarded(t, authSection([]apiKey{ci, next}))
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		for _, k := range []apiKey{ci, next} {
			c := keyed(t, p, era, k.key)
			if a := c.Call(t, "tools/list", ""); !bytes.Contains(a.Body, []byte(`"up__echo"`)) {
				t.Errorf("tools/list = %s, want the tools of up", a)
			}
			harness.WantEcho(t, c.Tool(t, "up__echo", `{}`))
		}
	})
	for _, r := range journal.Received() {
		for name, values := range r.Header {
			if strings.EqualFold(name, "Authorization") || strings.Contains(strings.Join(values, " "), "jct_") {
				t.Errorf("the upstream received the header %s of the client", name)
			}
		}
		if bytes.Contains(r.Body, []byte("jct_")) {
			t.Errorf("the upstream received %s", r.Body)
		}
	}
}

// TestNothingIsAnsweredWithoutAKey walks the URLs and methods: who is not known learns
// nothing, not even what there is.
func TestNothingIsAnsweredWithoutAKey(t *testing.T) {
	harness.Waits(t)
	p, journal := guarded(t, authSection([]apiKey{newAPIKey(t, "ci")}))
	for _, path := range []string{"", "/up", "/nobody"} {
		c := harness.NewClient(t, &harness.Endpoint{URL: p.URL + path}, client.EraModern)
		for _, verb := range verbs {
			wantRefused(t, verb+" /mcp"+path, refusedTo(t, c, verb), 401, noToken)
			wantRefused(t, verb+" /mcp"+path, refusedTo(t, c, verb, harness.With("Mcp-Session-Id", "x")), 401, noToken)
		}
	}
	harness.WantUncalled(t, journal, "tools/call")
	if resp, err := http.Get(p.Admin + "/healthz"); err != nil || resp.StatusCode != 200 {
		t.Errorf("the admin address wants a key: %v, %v", resp, err)
	}
}

func TestWrongKeysLookAlike(t *testing.T) {
	harness.Waits(t)
	ci := newAPIKey(t, "ci")
	p, _ := guarded(t, authSection([]apiKey{ci}))
	const secret, check = 17, 60 // where they begin
	other := func(i int) string {
		c := "x"
		if ci.key[i] == 'x' {
			c = "y"
		}
		return ci.key[:i] + c + ci.key[i+1:check]
	}
	hash, _ := auth.HashKey(ci.key)
	c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraModern)
	c.Key = authtest.WithCheck(other(secret))
	want := refusedTo(t, c, "POST")
	wantRefused(t, "POST", want, 401, badToken+"this server does not know the key")
	for name, key := range map[string]string{
		"wrong id": authtest.WithCheck(other(8)), "wrong check": other(8) + ci.key[check:], "of somebody else": auth.NewKey(),
		"cut": ci.key[:40], "no key": "abc",
		"hash": hash.String()[7:], "longer": ci.key + "0", "lower case": strings.ToLower(ci.key),
		"JWT": "eyJhbGciOiJub25lIn0.eyJzdWIiOiJjaSJ9.",
	} {
		c.Key = key
		got := refusedTo(t, c, "POST")
		for _, a := range []*harness.Answered{&got, &want} {
			a.Body = bytes.ReplaceAll(a.Body, []byte(cmp.Or(a.Header.Get("X-Request-Id"), "none")), []byte("ID"))
			a.Header.Del("Date")
			a.Header.Del("X-Request-Id")
		}
		if got.Status != want.Status || !bytes.Equal(got.Body, want.Body) ||
			!maps.EqualFunc(got.Header, want.Header, slices.Equal) {
			t.Errorf("%s: got %s, %v\nwant %s, %v", name, got, got.Header, want, want.Header)
		}
	}
}

// TestWrongKeysTakeAsLong: how long it takes to refuse a key says nothing of how much of it
// is right.
func TestWrongKeysTakeAsLong(t *testing.T) {
	harness.Alone(t, "it measures how long an answer takes")
	ci := newAPIKey(t, "ci")
	p, _ := guarded(t, authSection([]apiKey{ci}))
	c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraModern)
	last := "A"
	if ci.key[59:60] == last {
		last = "B"
	}
	// the secret, the id, the last letter of it
	wrong := []string{ci.key[:17] + strings.Repeat("A", 43), "jct_key_AAAAAAAA_" + ci.key[17:60], ci.key[:59] + last}
	// Of many times that are measured in turn the least is what the work takes: a machine that is
	// busy makes one longer, and never shorter. More are measured as long as they differ.
	least := slices.Repeat([]time.Duration{time.Hour}, len(wrong)+1)
	alike := false
	for round := 0; !alike && round < 20; round++ {
		for range 300 {
			for i := range least {
				if c.Key = ci.key[:60] + "AAAAAA"; i < len(wrong) {
					c.Key = authtest.WithCheck(wrong[i])
				}
				began := time.Now()
				if a := refusedTo(t, c, "GET"); a.Status != 401 {
					t.Fatalf("%s is answered %s", c.Key, a)
				}
				least[i] = min(least[i], time.Since(began))
			}
		}
		alike = slices.Max(least) <= slices.Min(least)*3/2
	}
	if !alike {
		t.Errorf("a wrong secret, id, last letter, and a wrong check take %v", least)
	}
}

func TestExpiredKeySaysSo(t *testing.T) {
	harness.Waits(t)
	old := newAPIKey(t, "old", "expires: 2020-06-30")
	p, _ := guarded(t, authSection([]apiKey{old}))
	p.Stderr.MustMatch(t, regexp.MustCompile(`level=WARN msg="is in the past: the key of old is refused`),
		harness.Patience, p.Done)
	c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraModern)
	c.Key = old.key
	for _, verb := range verbs {
		wantRefused(t, verb, refusedTo(t, c, verb), 401, badToken+"the key expired at 2020-07-01T00:00:00Z")
	}
}

// TestStreamsEndWithTheirKey holds what was begun with a key to the key's time.
func TestStreamsEndWithTheirKey(t *testing.T) {
	harness.Waits(t)
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		stays := newAPIKey(t, "stays")
		p, _ := guarded(t, authSection([]apiKey{stays}))
		rest := strings.SplitAfter(mustRead(t, p.File()), stays.entry+"\n")[1]
		for life := 6 * time.Second; ; life *= 2 { // a slow machine may need longer to open the stream
			end := time.Now().Add(life).UTC().Truncate(time.Second)
			ends := newAPIKey(t, "ends", "expires: "+end.Format(time.RFC3339))
			p.MustConfigure(t, authSection([]apiKey{stays, ends})+rest)
			c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, era)
			c.Key = ends.key
			for refusedTo(t, c, "PUT").Status == 401 && time.Now().Before(end) { // until the file has been read
			}
			if time.Until(end) < life/2 && life < harness.Patience {
				continue
			}
			if era == client.EraLegacy {
				c.MustInitialize(t, "2025-11-25")
			}
			mustClose(t, c.MustOpen(t))
			if early := time.Until(end); early > 0 {
				t.Errorf("the stream ended %v before the key", early)
			}
			wantRefused(t, "POST", refusedTo(t, c, "POST"), 401, badToken+"the key expired at ")
			return
		}
	})
}

// MustClose waits for the proper end of a stream.
func mustClose(t *testing.T, s *harness.EventStream) {
	t.Helper()
	for {
		if _, err := s.Read(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("the stream ends with %v, want a proper end", err)
		}
	}
}

func mustRead(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestKeyOutsideItsNetworkIsRefused(t *testing.T) {
	harness.Waits(t)
	inside := newAPIKey(t, "inside", "cidrs: [10.0.0.0/8, '2001:db8::/32']")
	forwarded := func(values ...string) harness.HeaderChange { return harness.With("X-Forwarded-For", values...) }
	for name, row := range map[string]struct {
		more []string
		ok   []harness.HeaderChange
		bad  []harness.HeaderChange
	}{
		"no proxy is trusted": {nil, nil, []harness.HeaderChange{
			harness.Without("X"), forwarded("10.1.1.1"), forwarded("10.1.1.1, 127.0.0.1"), forwarded("127.0.0.1", "10.1.1.1"),
			harness.With("X-Real-Ip", "10.1.1.1"), harness.With("Forwarded", "for=10.1.1.1"),
		}},
		"another proxy is trusted": {[]string{"trusted_proxies: [192.0.2.1/32]"}, nil,
			[]harness.HeaderChange{harness.Without("X"), forwarded("10.1.1.1"), forwarded("10.1.1.1, 192.0.2.1")}},
		"we are trusted": {[]string{"trusted_proxies: [127.0.0.1/32, 192.0.2.0/24]"},
			[]harness.HeaderChange{forwarded("10.1.1.1"), forwarded("203.0.113.7, 10.1.1.1"), forwarded("10.1.1.1, 192.0.2.9"),
				forwarded("203.0.113.7, 10.1.1.1, 192.0.2.9"), forwarded("203.0.113.7", "10.1.1.1"), forwarded("2001:db8::1"),
				forwarded("[2001:db8::1]:9")},
			[]harness.HeaderChange{
				harness.Without("X"), forwarded("203.0.113.7"), forwarded("10.1.1.1, 203.0.113.7"),
				forwarded("10.1.1.1", "203.0.113.7"), forwarded("10.1.1.1, 203.0.113.7, 192.0.2.9"),
				forwarded("10.1.1.1, unknown"), forwarded(""), forwarded("10.1.1.1,"), harness.With("X-Real-Ip", "10.1.1.1"),
			}},
	} {
		t.Run(name, func(t *testing.T) {
			p, journal := guarded(t, authSection([]apiKey{inside}, row.more...))
			c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraModern)
			c.Key = inside.key
			for _, ch := range row.bad {
				wantRefused(t, "POST", refusedTo(t, c, "POST", ch), 401, badToken+"the key is not allowed from this address")
			}
			harness.WantUncalled(t, journal, "tools/call")
			for _, ch := range row.ok {
				harness.WantEcho(t, c.Tool(t, "up__echo", `{}`, ch))
			}
		})
	}
}

// TestRevokedKeyEndsItsStreams takes a key out of the file while a client uses it: the client, its session
// and its stream end; those of other keys go on.
func TestRevokedKeyEndsItsStreams(t *testing.T) {
	harness.Waits(t)
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		gone, first, second, stays := newAPIKey(t, "gone"), newAPIKey(t, "rotated"), newAPIKey(t, "rotated"), newAPIKey(t,
			"stays")
		p, _ := guarded(t, authSection([]apiKey{gone, first, stays}))
		rest := strings.SplitAfter(mustRead(t, p.File()), stays.entry+"\n")[1]
		leaving, rotating, staying := keyed(t, p, era, gone.key), keyed(t, p, era, first.key), keyed(t, p, era, stays.key)
		ends, old, goesOn := leaving.MustOpen(t), rotating.MustOpen(t), staying.MustOpen(t)
		harness.WantEcho(t, leaving.Tool(t, "up__echo", `{}`))

		p.MustConfigure(t, authSection([]apiKey{first, second, stays})+rest)
		begun := time.Now()
		mustClose(t, ends)
		if took := time.Since(begun); took > harness.Promptly {
			t.Errorf("the revoked key was good for %v", took)
		}
		wantRefused(t, "POST", refusedTo(t, leaving, "POST"), 401, badToken+"this server does not know the key")
		for _, verb := range []string{"GET", "DELETE"} {
			wantRefused(t, verb, refusedTo(t, leaving, verb), 401, badToken+"this server does not know the key")
		}
		// The session is that of the name, so that it outlives the rotation: the client goes on
		// with its new key, and the old one may go.
		rotating.Key = second.key
		harness.WantEcho(t, rotating.Tool(t, "up__echo", `{}`))
		p.MustConfigure(t, authSection([]apiKey{second, stays})+rest)
		mustClose(t, old) // it was opened with the key that is gone now
		before := *rotating
		before.Key = first.key
		wantRefused(t, "POST", refusedTo(t, &before, "POST"), 401, badToken+"this server does not know the key")
		harness.WantEcho(t, rotating.Tool(t, "up__echo", `{}`))
		harness.WantEcho(t, staying.Tool(t, "up__echo", `{}`))
		p.MustConfigure(t, authSection([]apiKey{second, stays})+strings.Replace(rest, "up:", "other:", 1))
		for { // the stream that goes on hears of the change
			v, err := goesOn.Read()
			if err != nil {
				t.Fatalf("the stream of a key that stays ended: %v", err)
			}
			if bytes.Contains(v.Data, []byte("notifications/tools/list_changed")) {
				break
			}
		}
	})
}

func TestPlaintextKeyInTheFileIsNotShown(t *testing.T) {
	harness.Waits(t)
	key := auth.NewKey()
	authtest.Secret("an API key", key)
	hash, _ := auth.HashKey(key)
	const demo = "upstreams: { demo: { command: [junction, demo] } }\n"
	mustHide := func(t *testing.T, out string) {
		t.Helper()
		for i := 17; i+12 <= len(key); i++ { // no part of the secret that is worth anything
			if strings.Contains(out, key[i:i+12]) {
				t.Fatalf("the key is shown:\n%s", out)
			}
		}
	}
	for name, config := range map[string]string{
		"hash":           "auth: { api_keys: [{ name: ci, hash: " + key + " }] }\n" + demo,
		"hash, prefixed": "auth: { api_keys: [{ name: ci, hash: 'sha256:" + key + "' }] }\n" + demo,
		"name":           "auth: { api_keys: [{ name: " + key + ", hash: '" + hash.String() + "' }] }\n" + demo,
		"expires":        "auth: { api_keys: [{ name: ci, hash: '" + hash.String() + "', expires: " + key + " }] }\n" + demo,
		"cidrs":          "auth: { api_keys: [{ name: ci, hash: '" + hash.String() + "', cidrs: [" + key + "] }] }\n" + demo,
		"list":           "auth: { api_keys: [" + key + "] }\n" + demo,
		"no list":        "auth: { api_keys: " + key + " }\n" + demo,
		"unknown key":    "auth: { api_keys: [{ name: ci, " + key + ": hash }] }\n" + demo,
		"listen":         "listen: " + key + "\n" + demo,
		"public_url":     "public_url: https://" + key + "\n" + demo,
		"log":            "log: { level: " + key + " }\n" + demo,
		"limit":          "limits: { body: " + key + " }\n" + demo,
		"header": "upstreams: { a: { url: 'http://127.0.0.1:1/mcp', headers: { Authorization: Bearer " + key +
			" } } }\n",
		"url":           "upstreams: { a: { url: 'http://127.0.0.1:1/mcp?key=" + key + "' } }\n",
		"upstream":      "upstreams: { " + key + ": { command: [x] } }\n",
		"default":       "log: { level: '${LEVEL:-" + key + "}' }\n" + demo,
		"not YAML":      "auth: { api_keys: [{ name: ci, hash: *" + key + " }] }\n" + demo,
		"not YAML, too": key + ": [\n" + demo,
	} {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{nil, {"check"}} {
				stdout, stderr, code := mustRefuse(t, config, args...)
				if code == 0 || !strings.Contains(stdout+stderr, "junction.yaml:1:") {
					t.Errorf("junction %s ended with %d:\n%s%s", args, code, stdout, stderr)
				}
				mustHide(t, stdout+stderr)
			}
		})
	}
	t.Run("on reload", func(t *testing.T) {
		ci := newAPIKey(t, "ci")
		p, _ := guarded(t, authSection([]apiKey{ci}))
		p.MustConfigure(t, authSection([]apiKey{{key, "{ name: ci, hash: " + key + " }"}})+demo)
		p.Stderr.MustMatch(t,
			regexp.MustCompile(`configuration: holds an API key in plain text.*\n.*configuration not reloaded`),
			harness.Patience, p.Done)
		mustHide(t, p.Stderr.String())
		c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraModern)
		c.Key = key
		wantRefused(t, "POST", refusedTo(t, c, "POST"), 401, badToken)
		c.Key = ci.key
		harness.WantEcho(t, c.Tool(t, "up__echo", `{}`))
	})
}

func TestKeyInTheWrongPlaceIsRefused(t *testing.T) {
	harness.Waits(t)
	ci := newAPIKey(t, "ci")
	p, journal := guarded(t, authSection([]apiKey{ci}))
	bearer := harness.With("Authorization", "Bearer "+ci.key)
	for name, row := range map[string]struct {
		query     string
		changes   []harness.HeaderChange
		status    int
		challenge string
	}{
		"query": {"?key=" + ci.key, nil, 400, unclear + "tokens in URLs end up in logs"},
		"query and header": {"?x=1&y=" + ci.key, []harness.HeaderChange{bearer}, 400,
			unclear + "tokens in URLs end up in logs"},
		"escaped": {"?y=%6a%63%74_key_", []harness.HeaderChange{bearer}, 400,
			unclear + "tokens in URLs end up in logs"},
		"access_token": {"?access_token=" + ci.key, nil, 400, unclear + "tokens in URLs end up in logs"},
		"cookie": {"",
			[]harness.HeaderChange{harness.With("Cookie", "key="+ci.key+"; Authorization=Bearer "+ci.key)}, 401, noToken},
		"another header": {"",
			[]harness.HeaderChange{harness.With("X-Api-Key", ci.key), harness.With("Proxy-Authorization", "Bearer "+ci.key)},
			401, noToken},
		"another scheme": {"", []harness.HeaderChange{harness.With("Authorization", "Basic "+ci.key)}, 401, noToken},
		"two headers": {"", []harness.HeaderChange{harness.With("Authorization", "Bearer "+ci.key, "Bearer "+ci.key)},
			400, unclear + "the request has more than one"},
		"two in one": {"", []harness.HeaderChange{harness.With("Authorization", "Bearer "+ci.key+", Bearer "+ci.key)},
			400, unclear + "the Authorization header is malformed"},
		"nothing after": {"", []harness.HeaderChange{harness.With("Authorization", "Bearer")}, 400,
			unclear + "the Authorization header is malformed"},
		"nothing in it": {"", []harness.HeaderChange{harness.With("Authorization", "")}, 400,
			unclear + "the Authorization header is malformed"},
		"a space in the key": {"",
			[]harness.HeaderChange{harness.With("Authorization", "Bearer "+ci.key[:30]+" "+ci.key[30:])}, 400,
			unclear + "the Authorization header is malformed"},
		"quotes around it": {"", []harness.HeaderChange{harness.With("Authorization", `Bearer "`+ci.key+`"`)}, 400,
			unclear + "the Authorization header is malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"", "/up"} {
				c := harness.NewClient(t, &harness.Endpoint{URL: p.URL + path + row.query}, client.EraModern)
				for _, verb := range verbs {
					wantRefused(t, verb, refusedTo(t, c, verb, row.changes...), row.status, row.challenge)
				}
			}
		})
	}
	harness.WantUncalled(t, journal, "tools/call")
	c := harness.NewClient(t, &harness.Endpoint{URL: p.URL + "?profile=jct"}, client.EraModern)
	for _, value := range []string{"Bearer " + ci.key, "bearer " + ci.key, "BEARER   " + ci.key} {
		harness.WantEcho(t, c.Tool(t, "up__echo", `{}`, harness.With("Authorization", value)))
	}
}
