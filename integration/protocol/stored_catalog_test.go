package protocol

import (
	"encoding/json"
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
	"junction/cmd/junction/base/stored"
	"junction/integration/harness"
	"junction/integration/harness/process"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// The catalog of an upstream is there before the server is: from the store, or by waiting for it.

// shelf is the folder of stored catalogs of a test, opened once for each junction.
type shelf struct {
	dir string
	key *seal.Key
	log *process.Output
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	key, err := seal.NewKey(seal.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	return &shelf{t.TempDir(), key, process.NewOutput()}
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
	harness.Waits(t)
	harness.InMemory(t, "it gives the proxy a folder of catalogs of its own")
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		keeps, address := newShelf(t), process.FreePort(t)
		before := append(harness.Definitions("echo", "whoami"), []byte(exotic))
		entry, contents := upstreamtest.Skill("skill://acme/refunds", "Write a mail.", nil)
		skills := []json.RawMessage{entry}
		var first, entries string
		t.Run("first", func(t *testing.T) {
			s := serveAt(t, address, upstreamtest.Script{Era: string(p.Upstream), Tools: before, Skills: skills,
				Contents: contents})
			s.open()
			j := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": {URL: s.url}}, Store: keeps.open(t)})
			j.Offers(t, "up")
			c := j.Talk(t)
			_, result := c.List(t, "")
			first, entries = harness.Member(result, "tools"), harness.Member(c.Must(t, "skills/list", ""), "skills")
			if !strings.Contains(entries, `"skill://up/acme/refunds/SKILL.md"`) {
				t.Errorf("skills = %s", entries)
			}
		})
		t.Run("second", func(t *testing.T) {
			s := serveAt(t, address,
				upstreamtest.Script{Era: string(p.Upstream), Tools: append(harness.Definitions("new"), before...),
					Skills: skills, Contents: contents})
			j := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": {URL: s.url}}, Store: keeps.open(t)})
			c := j.Talk(t)
			if _, result := c.List(t, ""); harness.Member(result, "tools") != first {
				t.Errorf("tools = %s\nbefore the restart %s", harness.Member(result, "tools"), first)
			}
			if got := harness.Member(c.Must(t, "skills/list", ""), "skills"); got != entries {
				t.Errorf("skills = %s\nbefore the restart %s", got, entries)
			}
			if got := j.Status("up"); got.State != upstream.StateStarting || !got.Stored {
				t.Errorf("status = %+v, want connecting, with a stored catalog", got)
			}
			hears := c.HearTools(t)
			call := c.Begin(t, harness.Called("up__echo", `{}`))
			s.open()
			if m := call.Answer(t); m.Error != nil {
				t.Errorf("the call of a stored tool = %v %s", m.Error, m.Error.Data)
			}
			if m, ok := hears.Next(t); !ok || m.Method != "notifications/tools/list_changed" {
				t.Fatalf("the client hears %s, want that its tools have changed", m.Append(nil))
			}
			if got := c.Names(t); !slices.Contains(got, "up__new") {
				t.Errorf("tools = %q, want up__new among them", got)
			}
		})
		t.Run("third", func(t *testing.T) { // the server is gone
			j := harness.Start(t, p,
				harness.Setup{Upstreams: map[string]upstream.Config{"up": {URL: "http://" + address + "/mcp"}},
					Store: keeps.open(t)})
			c := j.Talk(t)
			if got := c.Names(t); !slices.Contains(got, "up__new") {
				t.Errorf("tools = %q, want those of the second run", got)
			}
			harness.WantOwnError(t, c.Call(t, "up__new", `{}`), "up", client.KindUnavailable)
		})
	})
}

// TestForeignStoredCatalogStrangeFiles: a stored catalog that was cut, edited, moved, or sealed
// with another key is ignored and logged, and one of an entry that is gone is deleted.
func TestForeignStoredCatalogStrangeFiles(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "it gives the proxy a folder of catalogs of its own")
	p := harness.Pair{Client: client.EraModern, Upstream: client.EraLegacy, Transport: "http"}
	keeps, address := newShelf(t), process.FreePort(t)
	config := map[string]upstream.Config{"up": {URL: "http://" + address + "/mcp"}}
	t.Run("stored", func(t *testing.T) {
		s := serveAt(t, address, upstreamtest.Script{Era: "legacy"})
		s.open()
		harness.Start(t, p, harness.Setup{Upstreams: config, Store: keeps.open(t)}).Offers(t, "up")
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
	for what, text := range map[string][]byte{"cut": whole[:len(whole)/2], "edited": edited, "empty": nil,
		"no catalog": []byte("{}")} {
		t.Run(what, func(t *testing.T) {
			if err := os.WriteFile(files[0], text, 0o600); err != nil {
				t.Fatal(err)
			}
			j := harness.Start(t, p, harness.Setup{Upstreams: config, Store: keeps.open(t)})
			if got := j.Talk(t).Names(t); len(got) != 0 {
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
		if got := harness.Start(t, p, harness.Setup{Upstreams: other, Store: store}).Talk(t).Names(t); len(got) != 0 {
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
	harness.Waits(t)
	harness.InMemory(t, "it gives the proxy a folder of catalogs of its own")
	guard, keys := harness.Keyring(t, "some", "none")
	rules := harness.MustPolicy(t, `
- { name: some, match: { key: some }, rules: [{ deny: { tools: up__whoami } }, { allow: { tools: "up__*" } }] }
- { name: none, match: { key: none }, rules: [{ allow: { tools: "other__*" } }] }
`)
	for _, clientEra := range harness.Eras {
		harness.RunPair(t, clientEra, client.EraLegacy, "http", func(t *testing.T, p harness.Pair) {
			keeps, address := newShelf(t), process.FreePort(t)
			for _, known := range []bool{false, true} {
				w := harness.Setup{Upstreams: map[string]upstream.Config{"up": {URL: "http://" + address + "/mcp",
					Timeout: time.Second}}, Guard: guard, Policy: rules}
				if known {
					t.Run("listed", func(t *testing.T) {
						s := serveAt(t, address, upstreamtest.Script{Era: "legacy", Tools: harness.Definitions("echo", "whoami")})
						s.open()
						w.Store = keeps.open(t)
						harness.Start(t, p, w).Offers(t, "up")
					})
				}
				t.Run(fmt.Sprintf("known %t", known), func(t *testing.T) {
					w.Store = nil
					if known {
						w.Store = keeps.open(t)
					}
					j := harness.Start(t, p, w)
					some, none := j.As(t, keys["some"]), j.As(t, keys["none"])
					want := []string{}
					if known {
						want = []string{"up__echo"}
						harness.WantCode(t, some.Call(t, "up__whoami", `{}`), -32602)
					}
					if got := some.Names(t); !slices.Equal(got, want) {
						t.Errorf("tools = %q, want %q", got, want)
					}
					harness.WantOwnError(t, some.Call(t, "up__echo", `{}`), "up", client.KindUnavailable)
					if got := none.Names(t); len(got) != 0 {
						t.Errorf("who may use nothing of the upstream sees %q", got)
					}
					harness.WantCode(t, none.Call(t, "up__echo", `{}`), -32602)
				})
			}
		})
	}
}

// TestForeignFirstList: without a stored catalog, tools/list waits for a server that is starting. The
// time is longer than the start of a process takes on a busy machine.
func TestForeignFirstList(t *testing.T) {
	harness.Waits(t)
	for _, client := range harness.Eras {
		for _, up := range harness.Eras {
			harness.RunPair(t, client, up, "stdio", func(t *testing.T, p harness.Pair) {
				quick := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions("echo"), Starts: 300})
				j := harness.Start(t, p, harness.Setup{FirstWait: harness.Patience,
					Upstreams: map[string]upstream.Config{"quick": quick.Config}})
				if got := j.Talk(t).Names(t); !slices.Equal(got, []string{"quick__echo"}) {
					t.Errorf("the first list = %q, want quick__echo; quick is %+v", got, j.Status("quick"))
				}
			})
		}
	}
}

// TestForeignFirstListOfSome: tools/list does not wait longer than first_wait for a server that never
// answers. It has the tools of the others.
func TestForeignFirstListOfSome(t *testing.T) {
	harness.Waits(t)
	for _, client := range harness.Eras {
		for _, up := range harness.Eras {
			harness.RunPair(t, client, up, "stdio", func(t *testing.T, p harness.Pair) {
				quick, never := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions("echo")}), serveAt(t,
					process.FreePort(t), upstreamtest.Script{})
				j := harness.Start(t, p,
					harness.Setup{Upstreams: map[string]upstream.Config{"quick": quick.Config, "never": {URL: never.url}}})
				j.Offers(t, "quick")
				if got := j.Talk(t).Names(t); !slices.Equal(got, []string{"quick__echo"}) {
					t.Errorf("the first list = %q, want quick__echo", got)
				}
				if s := j.Status("never"); s.State == upstream.StateReady {
					t.Errorf("the server that never answers is %s", s.State)
				}
			})
		}
	}
}

// TestForeignCallBeforeTheFirstList: a call of a tool of a server that is starting waits for the
// server. If the server cannot be reached, the call ends as unavailable, with the reason, and never
// as unknown.
func TestForeignCallBeforeTheFirstList(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		for _, up := range harness.Eras {
			harness.RunPair(t, clientEra, up, "stdio", func(t *testing.T, p harness.Pair) {
				slow := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions("echo"), Prompts: harness.Definitions("hello"),
					Starts: 300})
				j := harness.Start(t, p,
					harness.Setup{Upstreams: map[string]upstream.Config{"slow": slow.Config,
						"gone": {Command: []string{"there-is-no-such-program"}}}})
				c := j.Talk(t)
				c.Succeed(t, "slow__echo", `{}`)
				harness.WantCode(t, c.Call(t, "slow__other", `{}`), -32602)
				m := c.Call(t, "gone__tool", `{}`)
				harness.WantOwnError(t, m, "gone", client.KindUnavailable)
				if !strings.Contains(m.Error.Message, "there-is-no-such-program") {
					t.Errorf("the error is %q, want the reason in it", m.Error.Message)
				}
				harness.WantOwnError(t, c.Begin(t, harness.Query{Method: "prompts/get", Params: `"name":"gone__hello"`}).Answer(t),
					"gone", client.KindUnavailable)
				harness.WantCode(t, c.Call(t, "other__tool", `{}`), -32602)
			})
		}
	}
}

// TestForeignCatalogAfterKill: the program is stopped, and then killed. Each time its tools are
// listed when it serves again, while the server needs long to start.
func TestForeignCatalogAfterKill(t *testing.T) {
	harness.InMemory(t, "it restarts one process")
	defer harness.Computes(t)()
	mark := filepath.Join(t.TempDir(), "mark")
	// With the mark, the server does not answer. The test makes the mark when the server is ready: on a
	// busy machine the first start may end in a timeout, and is repeated. The server has no children: the
	// watchdog may miss those of a server that is started in the moment of the kill.
	script := fmt.Sprintf("test -e %s && exec sleep 600; exec %s demo", mark, harness.JunctionBinary(t))
	p := harness.MustProgram(t, fmt.Sprintf("upstreams: { shop: { command: [sh, -c, %q] } }\n", script))
	before := p.MustReady(t, harness.Patience)
	if before.Tools == 0 {
		t.Fatal("the demo has no tools")
	}
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		p.MustStop(t)
		p.MustServe(t) // at any address: another program may have taken the port
		if got := harness.Talk(t, p.URL, client.EraLegacy).Names(t); len(got) != before.Tools {
			t.Errorf("after the restart there are %d tools, want %d", len(got), before.Tools)
		}
	}
	if err := p.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.Done
	p.MustServe(t)
	if got := harness.Talk(t, p.URL, client.EraModern).Names(t); len(got) != before.Tools {
		t.Errorf("after the kill there are %d tools, want %d", len(got), before.Tools)
	}
}

// TestForeignCatalogsThatChange: a server that lists 10,000 tools and then none, one that renames
// its tools again and again, and one whose list fails after a good one.
func TestForeignCatalogsThatChange(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "it gives the proxy a folder of catalogs of its own")
	p := harness.Pair{Client: client.EraLegacy, Upstream: client.EraLegacy, Transport: "http"}
	keeps := newShelf(t)
	var names []string
	for i := range 10_000 {
		names = append(names, fmt.Sprintf("tool%d", i))
	}
	s, broken := p.Serve(t, upstreamtest.Script{Tools: harness.Definitions(names...)}), p.Serve(t,
		upstreamtest.Script{Tools: harness.Definitions("good")})
	configs := map[string]upstream.Config{"many": s.Config, "broken": broken.Config}
	t.Run("changes", func(t *testing.T) {
		j := harness.Start(t, p, harness.Setup{Upstreams: configs, Store: keeps.open(t)})
		j.Offers(t, "many", "broken")
		s.Listened(t, p)
		broken.Inside.AddRules(upstreamtest.Rule{Method: "tools/list",
			Error: []byte(`{"code":-32603,"message":"out of order"}`)})
		broken.Inside.Notify("notifications/tools/list_changed", nil)
		for _, tools := range [][]string{nil, {"one"}, {"two"}, {"three"}} {
			if err := s.SetTools(harness.Definitions(tools...)); err != nil {
				t.Fatal(err)
			}
			j.Until(t, "the new list", func() bool {
				c := j.Set.All()[1].Catalog()
				return len(c.Tools) == len(tools) && (len(tools) == 0 || c.Tool(tools[0]) != nil)
			})
		}
		j.Until(t, "the list that cannot be read", func() bool { return j.Status("broken").State == upstream.StateDegraded })
		if got := j.Status("broken"); got.Tools != 1 {
			t.Errorf("status = %+v, want the last good list", got)
		}
	})
	t.Run("again", func(t *testing.T) {
		s.Inside.AddRules(upstreamtest.Rule{Method: "*", Hang: true})
		j := harness.Start(t, p, harness.Setup{Upstreams: configs, Store: keeps.open(t), Log: io.Discard})
		if got := j.Talk(t).Names(t); !slices.Equal(got, []string{"broken__good", "many__three"}) {
			t.Errorf("stored tools = %q, want the last good ones", got)
		}
		j.Until(t, "a reason", func() bool { return strings.Contains(j.Status("broken").Err, "out of order") })
	})
}
