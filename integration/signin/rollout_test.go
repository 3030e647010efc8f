package signin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/integration/load"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// This file rolls changes of the configuration out over three processes, while people work.

// another has another value for each key of the table of the page about several processes, with which the user may
// still sign in. A value replaces that of the first entry of a list; nil removes the key, "+" adds an entry, and a
// function makes a value of the one before.
var another = map[string]any{
	"allowed_hosts": []any{"a.example"}, "allowed_origins": []any{"https://a.example"}, "audit.arguments": true,
	"auth.introspection.audience_claim": "client_id",
	"auth.introspection.claims.groups":  []any{"roles"}, "auth.introspection.client_id": "other",
	"auth.introspection.client_secret": "canary-rolled", "auth.introspection.endpoint": "http://127.0.0.1:1/other",
	"auth.introspection.required_claims": map[string]any{"a": "b"}, "auth.introspection.required_scopes": []any{"s"},
	"auth.jwt.algorithms": []any{"ES256"}, "auth.jwt.audience_claim": "client_id",
	"auth.jwt.claims.groups": []any{"roles"}, "auth.jwt.clock_skew": "30s", "auth.jwt.jwks_url": "http://127.0.0.1:1/keys",
	"auth.jwt.require_at_jwt": true, "auth.jwt.required_claims": map[string]any{"a": "b"},
	"auth.jwt.required_scopes": []any{"s"}, "auth.oauth.clients.allowed_schemes": []any{"cursor"},
	"auth.oauth.clients.cimd": map[string]any{"trust": "off"}, "auth.oauth.clients.dcr": "off",
	"auth.oauth.clients.static.name": "Old", "auth.oauth.clients.static.redirect_uris": []any{"https://b.example/cb"},
	"auth.oauth.identity_providers.claims":          map[string]any{"groups": []any{"roles"}},
	"auth.oauth.identity_providers.client_id":       "other",
	"auth.oauth.identity_providers.client_secret":   "canary-rolled",
	"auth.oauth.identity_providers.email_domains":   []any{"acme.example", "other.example"},
	"auth.oauth.identity_providers.name":            "Other",
	"auth.oauth.identity_providers.parameters":      map[string]any{"a": "b"},
	"auth.oauth.identity_providers.required_claims": map[string]any{"sub": "ann"},
	"auth.oauth.identity_providers.scopes":          []any{"openid", "email", "profile", "offline_access"}, "auth.oauth.limits": map[string]any{"pages": 6},
	"auth.oauth.name": "Other", "auth.oauth.tokens": map[string]any{"access_ttl": "20m", "reuse_interval": "0s"},
	"auth.trusted_proxies": []any{"10.0.0.0/8"}, "catalog": map[string]any{"grace": "31s"},
	"defaults": map[string]any{"timeout": "61s"}, "drain_delay": "1ms",
	"endpoints": map[string]any{"web": map[string]any{"upstreams": []any{"up"}}},
	"limits":    map[string]any{"requests": 1999}, "outbound.allow_private": []any{"10.0.0.0/8"}, "outbound.timeout": "6s",
	"policies":      []any{map[string]any{"name": "all", "rules": []any{map[string]any{"allow": map[string]any{"tools": "*"}}}}},
	"sessions.idle": "31m", "sessions.max_age": "700h", "shutdown_grace": "9s", "upstreams.up.timeout": "59s",
	"auth.api_keys": "+",

	"auth.introspection": nil, "auth.jwt": "+", "auth.oauth.clients.static": "+", "auth.oauth.identity_providers": "+",
	"auth.scope_capabilities.more": []any{"w"},

	"auth.introspection.audiences": []any{"other"}, "auth.introspection.claims.subject": []any{"oid"},
	"auth.introspection.issuer": "http://127.0.0.1:1/j", "auth.jwt.audiences": []any{"other"},
	"auth.jwt.claims.subject": []any{"oid"}, "auth.oauth.identity_providers.issuer": "http://127.0.0.1:1/k",
	"auth.oauth.identity_providers.subject_claims": []any{"oid"}, "names": map[string]any{"separator": "-"},
	"public_url": "http://localhost:1",

	"admin": "localhost:0", "audit.file": "rolled.jsonl", "folders": map[string]any{"within": []any{"/rolled"}},
	"log": map[string]any{"level": "debug"}, "metrics": false,
	"replicas": map[string]any{"listen": "localhost:0", "advertise": "127.0.0.1:0"},
	"sessions.key_file": func(before any) any {
		return filepath.Dir(before.(string)) + "/./" + filepath.Base(before.(string))
	},
	"storage": func(before any) any {
		other := maps.Clone(before.(map[string]any))
		other["key_file"] = filepath.Dir(other["key_file"].(string)) + "/./" + filepath.Base(other["key_file"].(string))
		return other
	},
}

// untried are keys that this file cannot change: those that name an entry, one that a file with a sign-in cannot
// have, one that needs a variable of the environment, one that a flag replaces here, and those that need a file.
var untried = []string{"auth.jwt.issuer", "auth.none", "auth.oauth.clients.static.id", "auth.oauth.identity_providers.id",
	"audit.otlp", "listen", "outbound.ca_file", "pins", "tls"}

// refusesHere are the keys with which a process refuses what the file of the others allows.
var refusesHere = []string{"auth.oauth.clients.dcr"}

// keysOf returns the keys of a kind, from the page for operators, which is made of the tags.
func keysOf(t *testing.T, kind string) []string {
	t.Helper()
	text, err := os.ReadFile("../../cmd/junction/base/replicas/README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?s)\n- \*\*` + kind + `\*\*:(.*?)\n(?:-|\n)`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("the page has no keys of the kind %s", kind)
	}
	var keys []string
	for _, word := range regexp.MustCompile("`([a-z0-9_.]+)`").FindAllSubmatch(m[1], -1) {
		switch key := string(word[1]); {
		case key == "upstreams":
			keys = append(keys, "upstreams.up.timeout")
		case key == "auth.scope_capabilities":
			keys = append(keys, key+".more")
		case !slices.Contains(untried, key):
			keys = append(keys, key)
		}
	}
	return keys
}

// change changes a key of a file.
func change(t *testing.T, file any, key string, value any) {
	t.Helper()
	path := strings.Split(key, ".")
	for i, word := range path {
		if list, is := file.([]any); is {
			file = list[0]
		}
		section := file.(map[string]any)
		if i < len(path)-1 {
			if section[word] == nil {
				section[word] = map[string]any{}
			}
			file = section[word]
			continue
		}
		switch {
		case value == nil:
			delete(section, word)
		case value == "+":
			section[word] = append(section[word].([]any), added(key))
		default:
			if of, is := value.(func(any) any); is {
				value = of(section[word])
			}
			section[word] = value
		}
	}
}

// added returns another entry for a list.
func added(key string) map[string]any {
	switch key {
	case "auth.api_keys":
		return map[string]any{"name": "other", "hash": "sha256:" + strings.Repeat("ab", 32)}
	case "auth.jwt":
		return map[string]any{"issuer": "http://127.0.0.1:1/second", "audiences": []any{"x"}}
	case "auth.oauth.clients.static":
		return map[string]any{"id": "second-app", "redirect_uris": []any{"https://c.example/cb"}}
	}
	return map[string]any{"id": "second", "issuer": "http://127.0.0.1:1/second", "client_id": "c", "client_secret": "canary-rolled"}
}

// rolling is three processes over one database, each with a file of its own, and those who work with them.
type rolling struct {
	all   []*harness.Program
	base  []byte
	key   string // an API key
	app   oauthApp
	user  tokenPair
	calls *load.Load

	mu   sync.RWMutex          // held for reading by a call
	to   int                   // the process that gets the calls
	ways [3][4]*harness.Client // by process: of the user and the key, modern, and then with a session of both
}

func mustRolling(t *testing.T) *rolling {
	t.Helper()
	r := &rolling{key: auth.NewKey()}
	authtest.Secret("an API key", r.key)
	authtest.Secret("a secret that is rolled out", "canary-rolled")
	hash, err := auth.HashKey(r.key)
	if err != nil {
		t.Fatal(err)
	}
	_, up := upstreamtest.Start(t, upstreamtest.Script{})
	c := mustCompany(t, up, "    clients: { static: [{ id: old-app, redirect_uris: [\"https://a.example/cb\"] }] }\n",
		fmt.Sprintf("storage: { driver: postgres, dsn: %q, key_file: %q }\nreplicas: { listen: 127.0.0.1:0, advertise: 127.0.0.1:0 }\naudit: { file: stderr }\n",
			authtest.Schema(t), filepath.Join(t.TempDir(), "master.key")),
		fmt.Sprintf("  api_keys: [{ name: ci, hash: %q }]", hash), "  scope_capabilities: { web: [w] }",
		"  jwt: [{ issuer: \"http://127.0.0.1:1/i\", audiences: [x] }]",
		"  introspection: { issuer: \"http://127.0.0.1:1/j0\", audiences: [x], endpoint: \"http://127.0.0.1:1/ask\", client_id: c, client_secret: canary-asks }")
	if r.base, err = os.ReadFile(c.File()); err != nil {
		t.Fatal(err)
	}
	r.all = []*harness.Program{c.Program}
	for range 2 {
		p := harness.NewProgram(t)
		p.MustWrite(t, string(r.base))
		p.MustServe(t, "--listen", process.FreePort(t))
		r.all = append(r.all, p)
	}
	for _, p := range r.all {
		p.MustJoin(t, 3)
	}
	r.app = mustRegister(t, c, appRedirect)
	r.user = r.app.mustSignIn(t, newPerson(t, "ann"))
	for i, p := range r.all {
		for n := range r.ways[i] {
			era, token := []client.Era{client.EraModern, client.EraLegacy}[n/2], []string{r.user.Access, r.key}[n%2]
			if i == 0 || era == client.EraModern {
				r.ways[i][n] = showing(t, p, era, token, "/mcp")
				continue
			}
			other := *r.ways[0][n] // the same session
			other.URL, r.ways[i][n] = p.URL, &other
		}
	}
	r.begin(t)
	return r
}

// begin starts eight callers: two of each way.
func (r *rolling) begin(t *testing.T) {
	t.Helper()
	r.calls = load.Start(t, 2*len(r.ways[0]), func(ctx context.Context, i, n int) error {
		r.mu.RLock()
		defer r.mu.RUnlock()
		return call(ctx, r.ways[r.to][i%len(r.ways[0])], fmt.Sprint(1_000_000*(i+1)+n))
	})
	r.calls.AwaitCalls(10)
}

// call makes a call with an id that no other call in flight of its session has.
func call(ctx context.Context, c *harness.Client, id string) error {
	body, own := c.Request(id, "tools/call", `{"name":"up__echo","arguments":{}}`)
	resp, err := c.Send(ctx, http.MethodPost, body, own...)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(`"result":`))) {
		err = fmt.Errorf("%s: %.200s", resp.Status, text)
	}
	return err
}

// renewed has the user work with new tokens: of old ones, a grant keeps only a few.
func (r *rolling) renewed(next tokenPair) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.user = next
	for _, way := range r.ways {
		way[0].Key, way[2].Key = next.Access, next.Access
	}
}

// with returns the file with other values of some keys.
func (r *rolling) with(t *testing.T, keys ...string) string {
	t.Helper()
	var file map[string]any
	if err := yaml.Unmarshal(r.base, &file); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		value, known := another[key]
		if !known {
			t.Fatalf("the test has no other value of %s", key)
		}
		change(t, file, key, value)
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// mustReplace restarts a process with a file. Its calls go to another process before.
func (r *rolling) mustReplace(t *testing.T, i int, text string) {
	t.Helper()
	r.mu.Lock()
	r.to = (i + 1) % 3
	r.mu.Unlock()
	r.all[i].MustWrite(t, text)
	r.all[i].MustRestart(t)
}

// mustRoll gives each process a file, one after the other. After each step, all processes have joined, each
// answers the user and the key, and the sign-in is renewed at each: by a process whose file does not allow it, only
// 503 is possible.
func (r *rolling) mustRoll(t *testing.T, what, text string, mayRefuse bool) {
	t.Helper()
	for i := range r.all {
		r.mustReplace(t, i, text)
		for j, p := range r.all {
			p.MustJoin(t, 3)
			for _, token := range []string{r.user.Access, r.key} {
				c := showing(t, p, client.EraModern, token, "/mcp")
				harness.WantEcho(t, c.Tool(t, "up__echo", `{}`))
			}
			at := r.app
			at.c = &company{Program: p, origin: p.Origin()}
			switch status, next := at.refresh(t, r.user.Refresh); {
			case mayRefuse && i == len(r.all)-1 && status == http.StatusUnauthorized: // all have the file
			case status == http.StatusOK:
				r.renewed(next)
			case status != http.StatusServiceUnavailable || !mayRefuse:
				t.Fatalf("%s, after step %d: the process %d answers a refresh with %d, %+v", what, i+1, j+1, status, next)
			}
		}
	}
}

// TestFaultConfigurationRolls changes each key that need not be equal, in three processes one after the other, and
// takes it back, while a user and an API key work in both eras. Nobody is refused, and no sign-in, grant or session
// ends. A process with another value of a key that must be equal does not join, and names the key, until its file is
// adopted. With JUNCTION_TEST_EACH_KEY=1 each key is rolled out alone; otherwise all of them together.
func TestFaultConfigurationRolls(t *testing.T) {
	harness.Waits(t)
	harness.WithoutShort(t)
	r, began := mustRolling(t), time.Now()
	kinds := map[string][]string{}
	for _, kind := range []string{"rolls", "in steps", "own", "hard"} {
		kinds[kind] = keysOf(t, kind)
	}
	rollouts := [][]string{together(kinds)}
	if os.Getenv("JUNCTION_TEST_EACH_KEY") != "" {
		rollouts = nil
		for _, key := range slices.Concat(kinds["rolls"], kinds["in steps"], kinds["own"]) {
			rollouts = append(rollouts, []string{key})
		}
	}
	for _, keys := range rollouts {
		began := time.Now()
		may := slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(refusesHere, key) })
		what := strings.Join(keys, " ")
		r.mustRoll(t, what, r.with(t, keys...), may)
		if may { // at the first process, too
			if status, _ := r.app.refresh(t, r.user.Refresh); status != http.StatusUnauthorized {
				t.Errorf("with %s in all processes, a refresh is answered %d", what, status)
			}
		}
		r.mustRoll(t, what+", back", string(r.base), may)
		t.Logf("rolled out and back in %v: %s", time.Since(began).Round(100*time.Millisecond), what)
	}
	hard := kinds["hard"]
	if os.Getenv("JUNCTION_TEST_EACH_KEY") == "" {
		hard = hard[len(hard)-2:]
	}
	r.mustLoseNothing(t, fmt.Sprintf("a configuration is rolled out key by key and taken back (%d rollouts, %v)",
		len(rollouts), time.Since(began).Round(time.Second)))
	r.mustAdopt(t, hard)
}

// together returns the keys that need not be equal, and that can be changed at once so that nobody is refused.
func together(kinds map[string][]string) (keys []string) {
	for _, key := range slices.Concat(kinds["rolls"], kinds["in steps"], kinds["own"]) {
		if !slices.Contains(refusesHere, key) && key != "auth.introspection" {
			keys = append(keys, key)
		}
	}
	return keys
}

// mustLoseNothing ends the calls of the rollouts.
func (r *rolling) mustLoseNothing(t *testing.T, what string) {
	t.Helper()
	r.calls.Stop()
	f := r.calls.Figures(time.Time{})
	t.Logf("FAULT %s: %v", what, f)
	if f.Lost > 0 || f.Calls == 0 {
		t.Errorf("calls were lost: %v", f)
		for i, p := range r.all {
			warnings := regexp.MustCompile(`(?m)^.* level=WARN .*replica.*$`).FindAllString(p.Stderr.String(), -1)
			t.Logf("the process %d has warned of replicas:\n%s", i+1, strings.Join(warnings, "\n"))
		}
	}
}

// until waits until something holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, again := harness.Patient(t), time.NewTicker(20*time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// mustAdopt gives the last process another value of each hard key. It waits, and names the key. When the operator
// adopts its file, it serves and the others make way; with their file, all is as before, and the user is still signed
// in. A caller who tries one process after the other is refused for less than a second each time: a refused caller
// waits for 20 ms.
func (r *rolling) mustAdopt(t *testing.T, hard []string) {
	t.Helper()
	calls := load.Start(t, 1, func(ctx context.Context, _, _ int) (err error) {
		for i := range r.all {
			r.mu.RLock()
			c := r.ways[i][1]
			r.mu.RUnlock()
			// With other names, the tool is unknown, and a process that answers so serves.
			if err = call(ctx, c, "1"); err == nil || strings.Contains(err.Error(), "Unknown tool: up__echo") {
				return nil
			}
		}
		return err
	})
	serves := func(want ...bool) {
		t.Helper()
		for i, p := range r.all {
			until(t, fmt.Sprintf("the process %d serves: %v", i, want[i]), func() bool {
				resp, err := http.Get(p.Admin + "/readyz")
				if err != nil {
					return false
				}
				defer resp.Body.Close()
				return (resp.StatusCode == http.StatusOK) == want[i]
			})
		}
	}
	longest := 0
	for _, key := range hard {
		r.mustReplace(t, 2, r.with(t, key))
		named := regexp.MustCompile(`cannot join the replicas.* in [^,]*` + strings.NewReplacer("auth.jwt.", `auth.jwt.\S+\.`,
			"providers.", `providers.sso.`).Replace(key))
		until(t, "the process names "+key, func() bool { return named.MatchString(r.all[2].Stderr.String()) })
		for i, of := range []int{2, 0} {
			before := calls.Figures(time.Time{}).Lost
			out, err := exec.Command(harness.JunctionBinary(t), "replicas", "adopt", "--config", r.all[of].File()).CombinedOutput()
			section, _, _ := strings.Cut(key, ".")
			if err != nil || !strings.Contains(string(out), "the highest one. It differs in "+section) {
				t.Errorf("%s: %v\n%s", key, err, out)
			}
			serves(i == 1, i == 1, i == 0)
			refused := calls.Figures(time.Time{}).Lost - before
			if longest = max(longest, refused); refused > 50 {
				t.Errorf("%s: %d calls were refused when a file was adopted, want at most 50", key, refused)
			}
		}
		r.mustReplace(t, 2, string(r.base))
		r.all[2].MustJoin(t, 3)
		serves(true, true, true)
		status, next := r.app.refresh(t, r.user.Refresh)
		if status != http.StatusOK {
			t.Fatalf("after %s was adopted and taken back, a refresh is answered %d", key, status)
		}
		r.renewed(next)
	}
	calls.Stop()
	f := calls.Figures(time.Time{})
	t.Logf("FAULT %d hard keys are adopted and taken back in 3 processes, at most %d refused at once: %v", len(hard),
		longest, f)
	if f.Calls == 0 {
		t.Error("no calls were made")
	}
}
