package signin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// The tests of this file have a server for which each caller has a key of their own (auth: { mode: user_key }).

// vendor is a server that accepts some keys in the header X-API-Key, and nothing else. It is an origin of its own.
type vendor struct {
	*upstreamtest.Server
	url string

	mu   sync.Mutex
	keys map[string]bool
}

func mustVendor(t *testing.T, keys ...string) *vendor {
	t.Helper()
	v := &vendor{Server: upstreamtest.New(upstreamtest.Script{}), keys: map[string]bool{}}
	t.Cleanup(v.Close)
	for _, key := range keys {
		authtest.Secret("a key of a user", key)
		v.keys[key] = true
	}
	inner := v.Handler()
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("X-Api-Key")
		v.mu.Lock()
		known := v.keys[key] && len(r.Header.Values("X-Api-Key")) == 1 && r.Header.Get("Authorization") == ""
		v.mu.Unlock()
		if !known {
			http.Error(w, "your key "+key+" is wrong", http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	})
	at, _ := upstreamtest.Serve(t, "127.0.0.1:0", mux)
	v.url = at + "/mcp"
	return v
}

// said returns the keys of all requests with a text.
func (v *vendor) said(text string) (keys []string) {
	for _, r := range v.Received() {
		if strings.Contains(string(r.Body), text) {
			keys = append(keys, r.Header.Get("X-Api-Key"))
		}
	}
	return keys
}

func (v *vendor) accept(key string, yes bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.keys[key] = yes
}

// give has a person paste a key into the page at where.
func (p *person) give(where, key string) page {
	p.t.Helper()
	g := p.connectUntil("Your key for vendor", where)
	if !strings.Contains(g.body, `name="key"`) {
		return g
	}
	return p.press(g, url.Values{"key": {key}})
}

// setKey runs junction users key with a key on standard input.
func (c *company) setKey(t *testing.T, key string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, err := harness.RunJunctionBy(t, []string{"sh", "-c", `exec "$@" <` + file, "sh"},
		[]string{"XDG_STATE_HOME=" + c.Dir}, append(append([]string{"users", "key"}, args...), "--config", c.File())...)
	return out + errs, err
}

// TestKeysOfCallersNeverCross: users give keys on a page, and the operator sets the key of an API key. Each call has
// the key of its caller only. A link of another user, a foreign form, a key of Junction, and a key with a line break
// store nothing. No key is in the log, the audit or a page.
func TestKeysOfCallersNeverCross(t *testing.T) {
	defer harness.Computes(t)()
	v := mustVendor(t, "canary-key-ann", "canary-key-bob", "canary-key-robot")
	robot := newAPIKey(t, "robot")
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	c := mustCompanyOver(t, process.FreePort(t), fmt.Sprintf(`{ vendor: { url: %q, auth: { mode: user_key, header: X-API-Key } } }`, v.url),
		"", fmt.Sprintf("outbound: { allow_private: [127.0.0.0/8] }\naudit: { file: %q }\n", audit), "  api_keys: ["+robot.entry+"]")
	ann, bob, eve := mustWorker(t, c, "ann"), mustWorker(t, c, "bob"), mustWorker(t, c, "eve")
	link := connectURL(t, ann.talk(t, client.EraModern, `{}`), "vendor__connect")
	legacy := ann.talk(t, client.EraLegacy, `{"elicitation":{"url":{}}}`)
	if m := legacy.Call(t, "vendor__connect", `{}`); m.Error == nil || m.Error.Code != -32042 ||
		!strings.Contains(string(m.Append(nil)), "/connect/vendor?t=") {
		t.Errorf("a client that can open a URL gets %s", m.Append(nil))
	}
	// Eve may not use the link of ann, and cannot store a key for ann by a form of her own.
	if g := eve.give(link, "canary-key-eve"); g.status != 403 || !strings.Contains(g.body, "for another user") {
		t.Errorf("the link of ann shows eve (%d) %s", g.status, g.body)
	}
	annsPage := ann.connectUntil("Your key for vendor", link)
	token := htmlHidden.FindStringSubmatch(annsPage.body)[2]
	if g := eve.do(http.MethodPost, c.origin+"/connect/vendor", url.Values{"csrf": {token}, "key": {"canary-key-eve"},
		"seen": {strings.TrimSuffix(v.url, "/mcp")}}); g.status != 403 {
		t.Errorf("the form of ann has for eve the status %d", g.status)
	}
	if g := ann.do(http.MethodPost, c.origin+"/connect/vendor", url.Values{"csrf": {token}, "key": {"canary-key-eve"},
		"seen": {"http://127.0.0.1:9"}}); g.status != 403 {
		t.Errorf("a form for another origin has the status %d", g.status)
	}
	for key, want := range map[string]string{"jct_key_abcdefgh": "a key of Junction itself", "two words": "no spaces", "": "no key",
		strings.Repeat("x", 5000): "at most 4096 bytes"} {
		if g := ann.give(link, key); g.status != 422 || !strings.Contains(g.body, want) || key != "" && strings.Contains(g.body, key) {
			t.Errorf("%.20q: %d %s", key, g.status, g.body)
		}
	}
	if g := ann.give(link, strings.Repeat("x", 1<<20)); g.status == 200 {
		t.Errorf("a key of 1 MB has the status %d", g.status)
	}
	if list := c.mustOperate(t, "users", "key", "--list"); !strings.Contains(list, "no caller has a key") {
		t.Errorf("until now there is a key:\n%s", list)
	}
	for _, w := range []struct {
		*worker
		key string
	}{{ann, "canary-key-ann"}, {bob, "canary-key-bob"}} {
		if g := w.give(c.origin+"/connect/vendor", w.key); !strings.Contains(g.body, "The key for vendor is stored") ||
			strings.Contains(g.body, "canary") {
			t.Fatalf("%s gets (%d) %s", w.name, g.status, g.body)
		}
	}
	if out, err := c.setKey(t, "canary-key-robot", "robot", "vendor"); err != nil || strings.Contains(out, "canary") {
		t.Fatalf("users key: %v\n%s", err, out)
	}
	clients := map[string][]*harness.Talker{
		"canary-key-ann":   {ann.talk(t, client.EraModern, `{}`), legacy},
		"canary-key-bob":   {bob.talk(t, client.EraModern, `{}`), bob.talk(t, client.EraLegacy, `{}`)},
		"canary-key-robot": {(&harness.Talker{URL: c.URL, Era: client.EraModern, Capabilities: `{}`, Key: robot.key}).Start(t)},
	}
	for key, list := range clients {
		for _, k := range list {
			settle(t, k, "vendor__echo")
		}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() { list[i%len(list)].Call(t, "vendor__echo", fmt.Sprintf(`{"say":"as %s %d."}`, key, i)) })
		}
		all.Wait()
		for i := range 20 {
			if keys := v.said(fmt.Sprintf("as %s %d.", key, i)); !slices.Equal(keys, []string{key}) {
				t.Errorf("a call of %s had %q", key, keys)
			}
		}
	}
	if names := toolNames(t, eve.talk(t, client.EraModern, `{}`)); !slices.Equal(names, []string{"vendor__connect"}) {
		t.Errorf("eve, who has no key, sees %q", names)
	}
	list := c.mustOperate(t, "users", "key", "--list", "--output", "json")
	var rows struct {
		Keys []struct{ Principal, Name, Upstream string }
	}
	if err := json.Unmarshal([]byte(list), &rows); err != nil || len(rows.Keys) != 3 || strings.Contains(list, "canary") {
		t.Errorf("%v: the list is %s", err, list)
	}
	c.mustOperate(t, "users", "key", "--delete", "robot", "vendor")
	if m := clients["canary-key-robot"][0].Call(t, "vendor__echo", `{"say":"late"}`); m.Error == nil && !strings.Contains(string(m.Result), "upstream_not_connected") ||
		len(v.said("late")) > 0 {
		t.Errorf("without a key the robot gets %s", m.Append(nil))
	}
	page := ann.open(c.origin + "/account")
	text, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	if all := page.body + string(text) + c.Stdout.String() + c.Stderr.String(); strings.Contains(all, "canary-key") {
		t.Error("a page, the audit or the log shows a key")
	}
	if !strings.Contains(page.body, "has your key") || !strings.Contains(string(text), "upstream_connected") {
		t.Errorf("the account page is %s", page.body)
	}
}

// settle waits until a client sees a tool.
func settle(t *testing.T, c *harness.Talker, tool string) {
	t.Helper()
	ctx := harness.Patient(t)
	for !slices.Contains(toolNames(t, c), tool) {
		if ctx.Err() != nil {
			t.Fatalf("there is no %s", tool)
		}
	}
}

// TestWrongKeyLeadsToThePage: a key that the server refuses, from the beginning or later, gives the caller the page
// for another one, and no other caller is concerned. The user can delete the key.
func TestWrongKeyLeadsToThePage(t *testing.T) {
	defer harness.Computes(t)()
	v := mustVendor(t, "canary-key-good", "canary-key-next", "canary-key-bob")
	c := mustCompanyOver(t, process.FreePort(t), fmt.Sprintf(`{ vendor: { url: %q, auth: { mode: user_key, header: X-API-Key } } }`, v.url),
		"", "outbound: { allow_private: [127.0.0.0/8] }\n")
	ann, bob := mustWorker(t, c, "ann"), mustWorker(t, c, "bob")
	bob.give(c.origin+"/connect/vendor", "canary-key-bob")
	authtest.Secret("a key of a user", "canary-key-wrong")
	ann.give(c.origin+"/connect/vendor", "canary-key-wrong")
	a, b := ann.talk(t, client.EraModern, `{}`), bob.talk(t, client.EraModern, `{}`)
	settle(t, b, "vendor__echo")
	want := func() {
		t.Helper()
		ctx := harness.Patient(t)
		for {
			m := a.Call(t, "vendor__connect", `{}`)
			if text := string(m.Append(nil)); strings.Contains(text, "does not accept your key") && strings.Contains(text, "connect_url") {
				if strings.Contains(text, "canary-key") {
					t.Error("the answer shows the key")
				}
				return
			} else if ctx.Err() != nil {
				t.Fatalf("ann gets %s", text)
			}
		}
	}
	want()
	ann.give(c.origin+"/connect/vendor", "canary-key-good")
	settle(t, a, "vendor__echo")
	v.accept("canary-key-good", false)
	a.Call(t, "vendor__echo", `{"say":"refused"}`)
	want()
	b.Succeed(t, "vendor__echo", `{"say":"bob"}`)
	ann.give(c.origin+"/connect/vendor", "canary-key-next")
	settle(t, a, "vendor__echo")
	m := strings.Index(ann.open(c.origin+"/account").body, "Delete the key")
	if m < 0 {
		t.Fatal("ann cannot delete the key")
	}
	if g := ann.disconnect(t, "vendor"); !strings.Contains(g.body, "needs a key of your own") {
		t.Errorf("after ann has deleted the key: %s", g.body)
	}
	if m := a.Call(t, "vendor__echo", `{"say":"gone"}`); len(v.said("gone")) > 0 {
		t.Errorf("a deleted key was used: %s", m.Append(nil))
	}
	if out := c.Stdout.String() + c.Stderr.String(); strings.Contains(out, "canary-key") {
		t.Error("the log shows a key")
	}
}
