package integration

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"junction/auth/authtest"
	"junction/auth/seal"
	"junction/upstream"
	"junction/upstream/stored"
	"junction/upstream/upstreamtest"
)

// The catalog of an upstream is there before the server is: from the store, or by waiting for it.

// shelf is the folder of stored catalogs of a test, opened once for each junction.
type shelf struct {
	dir string
	key *seal.Key
	log *output
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	return &shelf{t.TempDir(), key, newOutput()}
}

// open returns a store for one junction. When the test is over, everything is written.
func (s *shelf) open(t *testing.T) *stored.Dir {
	t.Helper()
	d, err := stored.Open(s.dir, s.key, authtest.Log(t, s.log))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// gated serves a script at an address, and answers nothing until open is called.
type gated struct {
	url  string
	open func()
	*upstreamtest.Server
}

func serveAt(t *testing.T, address string, script upstreamtest.Script) *gated {
	t.Helper()
	s := upstreamtest.New(script)
	t.Cleanup(s.Close)
	opened := make(chan struct{})
	url, stop := upstreamtest.Serve(t, address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-opened:
			s.Handler().ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(stop)
	return &gated{url + "/mcp", func() { close(opened) }, s}
}

// TestForeignStoredCatalog: after a restart of Junction the tools are listed at once, byte for
// byte, while the server does not answer yet. A call waits for the server. What the server lists
// then takes the place of the stored catalog, and clients hear of it.
func TestForeignStoredCatalog(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		keeps, address := newShelf(t), freePort(t)
		before := append(definitions("echo", "whoami"), []byte(exotic))
		var first string
		t.Run("first", func(t *testing.T) {
			s := serveAt(t, address, upstreamtest.Script{Era: string(p.upstream), Tools: before})
			s.open()
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": {URL: s.url}}, store: keeps.open(t)})
			j.offers(t, "up")
			_, result := j.talk(t).list(t, "")
			first = member(result, "tools")
		})
		t.Run("second", func(t *testing.T) {
			s := serveAt(t, address, upstreamtest.Script{Era: string(p.upstream), Tools: append(definitions("new"), before...)})
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": {URL: s.url}}, store: keeps.open(t)})
			c := j.talk(t)
			if _, result := c.list(t, ""); member(result, "tools") != first {
				t.Errorf("tools = %s\nbefore the restart %s", member(result, "tools"), first)
			}
			if got := j.status("up"); got.State != upstream.StateConnecting || !got.Stored {
				t.Errorf("status = %+v, want connecting, with a stored catalog", got)
			}
			hears := c.hearTools(t)
			call := c.begin(t, called("up__echo", `{}`))
			s.open()
			if m := call.answer(t); m.Error != nil {
				t.Errorf("the call of a stored tool = %v %s", m.Error, m.Error.Data)
			}
			if m, ok := hears.next(t); !ok || m.Method != "notifications/tools/list_changed" {
				t.Fatalf("the client hears %s, want that its tools have changed", m.Append(nil))
			}
			if got := c.names(t); !slices.Contains(got, "up__new") {
				t.Errorf("tools = %q, want up__new among them", got)
			}
		})
		t.Run("third", func(t *testing.T) { // the server is gone
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": {URL: "http://" + address + "/mcp"}}, store: keeps.open(t)})
			c := j.talk(t)
			if got := c.names(t); !slices.Contains(got, "up__new") {
				t.Errorf("tools = %q, want those of the second run", got)
			}
			ours(t, c.call(t, "up__new", `{}`), "up", upstream.KindUnavailable)
		})
	})
}

// TestForeignStoredCatalogStrangeFiles: a stored catalog that was cut, edited, moved, or sealed
// with another key is ignored and logged, and one of an entry that is gone is deleted.
func TestForeignStoredCatalogStrangeFiles(t *testing.T) {
	p := pair{upstream.EraModern, upstream.EraLegacy, "http"}
	keeps, address := newShelf(t), freePort(t)
	config := map[string]upstream.Config{"up": {URL: "http://" + address + "/mcp"}}
	t.Run("stored", func(t *testing.T) {
		s := serveAt(t, address, upstreamtest.Script{Era: "legacy"})
		s.open()
		start(t, p, world{upstreams: config, store: keeps.open(t)}).offers(t, "up")
	})
	files, err := filepath.Glob(filepath.Join(keeps.dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files = %q, want one", files)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has mode %v, want 0600", info.Mode())
	}
	if strings.Contains(string(whole), "whoami") {
		t.Error("the file shows what is in it")
	}
	edited := slices.Clone(whole)
	edited[len(edited)/2] ^= 1
	for what, text := range map[string][]byte{"cut": whole[:len(whole)/2], "edited": edited, "empty": nil, "no catalog": []byte("{}")} {
		t.Run(what, func(t *testing.T) {
			if err := os.WriteFile(files[0], text, 0o600); err != nil {
				t.Fatal(err)
			}
			j := start(t, p, world{upstreams: config, store: keeps.open(t)})
			if got := j.talk(t).names(t); len(got) != 0 {
				t.Errorf("tools = %q, want none", got)
			}
		})
	}
	if got := strings.Count(keeps.log.String(), "a stored catalog is ignored"); got != 4 {
		t.Errorf("%d files were logged, want 4:\n%s", got, keeps.log)
	}
	if err := os.WriteFile(files[0], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("another server", func(t *testing.T) {
		store := keeps.open(t)
		other := map[string]upstream.Config{"up": {URL: "http://" + address + "/other"}}
		if got := start(t, p, world{upstreams: other, store: store}).talk(t).names(t); len(got) != 0 {
			t.Errorf("tools = %q, want none: the catalog is of another address", got)
		}
		other["up"] = upstream.Config{URL: "http://" + address + "/other"}
		store.Keep([]string{other["up"].Entry("up")})
		if left, _ := filepath.Glob(filepath.Join(keeps.dir, "*")); len(left) != 0 {
			t.Errorf("files = %q, want none: their entry is gone", left)
		}
	})
}

// TestForeignPolicyHoldsForStoredCatalogs: what a policy hides stays hidden, whether its tools are
// stored, unknown or listed.
func TestForeignPolicyHoldsForStoredCatalogs(t *testing.T) {
	keeps, address := newShelf(t), freePort(t)
	guard, keys := keyring(t, "some", "none")
	rules := mustPolicy(t, `
- { name: some, match: { key: some }, rules: [{ deny: { tools: up__whoami } }, { allow: { tools: "up__*" } }] }
- { name: none, match: { key: none }, rules: [{ allow: { tools: "other__*" } }] }
`)
	for _, client := range eras {
		p := pair{client, upstream.EraLegacy, "http"}
		runPair(t, p, func(t *testing.T, p pair) {
			for _, known := range []bool{false, true} {
				w := world{upstreams: map[string]upstream.Config{"up": {URL: "http://" + address + "/mcp", Timeout: time.Second}}, guard: guard, policy: rules}
				if known {
					t.Run("listed", func(t *testing.T) {
						s := serveAt(t, address, upstreamtest.Script{Era: "legacy", Tools: definitions("echo", "whoami")})
						s.open()
						w.store = keeps.open(t)
						start(t, p, w).offers(t, "up")
					})
				}
				t.Run(fmt.Sprintf("known %t", known), func(t *testing.T) {
					w.store = nil
					if known {
						w.store = keeps.open(t)
					}
					j := start(t, p, w)
					some, none := j.as(t, keys["some"]), j.as(t, keys["none"])
					want := []string{}
					if known {
						want = []string{"up__echo"}
						wantCode(t, some.call(t, "up__whoami", `{}`), -32602)
					}
					if got := some.names(t); !slices.Equal(got, want) {
						t.Errorf("tools = %q, want %q", got, want)
					}
					ours(t, some.call(t, "up__echo", `{}`), "up", upstream.KindUnavailable)
					if got := none.names(t); len(got) != 0 {
						t.Errorf("who may use nothing of the upstream sees %q", got)
					}
					wantCode(t, none.call(t, "up__echo", `{}`), -32602)
				})
			}
		})
	}
}

// TestForeignFirstList: without a stored catalog, tools/list waits a moment for a server that is
// starting, and never longer than that.
func TestForeignFirstList(t *testing.T) {
	for _, client := range eras {
		for _, up := range eras {
			runPair(t, pair{client, up, "stdio"}, func(t *testing.T, p pair) {
				quick, never := p.serve(t, upstreamtest.Script{Tools: definitions("echo"), Starts: 300}), serveAt(t, freePort(t), upstreamtest.Script{})
				j := start(t, p, world{upstreams: map[string]upstream.Config{"quick": quick.config, "never": {URL: never.url}}})
				if got := j.talk(t).names(t); !slices.Equal(got, []string{"quick__echo"}) {
					t.Errorf("the first list = %q, want quick__echo", got)
				}
			})
		}
	}
}

// TestForeignCallBeforeTheFirstList: a call of a tool of a server that is starting waits for the
// server. If the server cannot be reached, the call ends as unavailable, with the reason, and never
// as unknown.
func TestForeignCallBeforeTheFirstList(t *testing.T) {
	for _, client := range eras {
		for _, up := range eras {
			runPair(t, pair{client, up, "stdio"}, func(t *testing.T, p pair) {
				slow := p.serve(t, upstreamtest.Script{Tools: definitions("echo"), Prompts: definitions("hello"), Starts: 300})
				j := start(t, p, world{upstreams: map[string]upstream.Config{"slow": slow.config, "gone": {Command: []string{"there-is-no-such-program"}}}})
				c := j.talk(t)
				c.succeed(t, "slow__echo", `{}`)
				wantCode(t, c.call(t, "slow__other", `{}`), -32602)
				m := c.call(t, "gone__tool", `{}`)
				ours(t, m, "gone", upstream.KindUnavailable)
				if !strings.Contains(m.Error.Message, "there-is-no-such-program") {
					t.Errorf("the error is %q, want the reason in it", m.Error.Message)
				}
				ours(t, c.begin(t, query{method: "prompts/get", params: `"name":"gone__hello"`}).answer(t), "gone", upstream.KindUnavailable)
				wantCode(t, c.call(t, "other__tool", `{}`), -32602)
			})
		}
	}
}

// TestForeignCatalogAfterKill: the program is stopped, and then killed. Each time its tools are
// listed when it serves again, while the server needs long to start.
func TestForeignCatalogAfterKill(t *testing.T) {
	defer computes(t)()
	mark := filepath.Join(t.TempDir(), "mark")
	script := fmt.Sprintf("test -e %[1]s && sleep 600; touch %[1]s; exec %[2]s demo", mark, junctionBinary(t))
	p := mustProgram(t, fmt.Sprintf("upstreams: { shop: { command: [sh, -c, %q] } }\n", script))
	before := p.mustReady(t, patience)
	if before.Tools == 0 {
		t.Fatal("the demo has no tools")
	}
	for range 2 {
		p.mustRestart(t)
		if got := talk(t, p.URL, upstream.EraLegacy).names(t); len(got) != before.Tools {
			t.Errorf("after the restart there are %d tools, want %d", len(got), before.Tools)
		}
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.done
	p.mustServe(t)
	if got := talk(t, p.URL, upstream.EraModern).names(t); len(got) != before.Tools {
		t.Errorf("after the kill there are %d tools, want %d", len(got), before.Tools)
	}
}

// TestForeignCatalogsThatChange: a server that lists 10,000 tools and then none, one that renames
// its tools again and again, and one whose list fails after a good one.
func TestForeignCatalogsThatChange(t *testing.T) {
	p := pair{upstream.EraLegacy, upstream.EraLegacy, "http"}
	keeps := newShelf(t)
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprintf("tool%d", i))
	}
	s, broken := p.serve(t, upstreamtest.Script{Tools: definitions(names...)}), p.serve(t, upstreamtest.Script{Tools: definitions("good")})
	configs := map[string]upstream.Config{"many": s.config, "broken": broken.config}
	t.Run("changes", func(t *testing.T) {
		j := start(t, p, world{upstreams: configs, store: keeps.open(t)})
		j.offers(t, "many", "broken")
		s.listened(t, p)
		broken.inside.AddRules(upstreamtest.Rule{Method: "tools/list", Error: []byte(`{"code":-32603,"message":"out of order"}`)})
		broken.inside.Notify("notifications/tools/list_changed", nil)
		for _, tools := range [][]string{nil, {"one"}, {"two"}, {"three"}} {
			if err := s.setTools(definitions(tools...)); err != nil {
				t.Fatal(err)
			}
			j.until(t, "the new list", func() bool {
				c := j.set.All()[1].Catalog()
				return len(c.Tools) == len(tools) && (len(tools) == 0 || c.Tool(tools[0]) != nil)
			})
		}
		if got := j.status("broken"); got.Tools != 1 || got.State != upstream.StateReady {
			t.Errorf("status = %+v, want the last good list", got)
		}
	})
	t.Run("again", func(t *testing.T) {
		s.inside.AddRules(upstreamtest.Rule{Method: "*", Hang: true})
		j := start(t, p, world{upstreams: configs, store: keeps.open(t), log: io.Discard})
		if got := j.talk(t).names(t); !slices.Equal(got, []string{"broken__good", "many__three"}) {
			t.Errorf("stored tools = %q, want the last good ones", got)
		}
		j.until(t, "a reason", func() bool { return strings.Contains(j.status("broken").Err, "out of order") })
	})
}
