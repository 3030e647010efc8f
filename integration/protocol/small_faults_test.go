package protocol

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"junction/auth"
	"junction/auth/authtest"
	"junction/integration/harness"
	"junction/proxy/front"
	"junction/proxy/scope"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/upstreamtest"
)

// Small deviations of real clients and servers, each of which broke something once.

func TestForeignNullParamsOfClients(t *testing.T) {
	harness.Waits(t)
	e := harness.MustProxy(t, nil)
	c := harness.MustClient(t, e, client.EraLegacy)
	if a := c.Post(t, `{"jsonrpc":"2.0","id":7,"method":"ping","params":null}`); a.Status != 200 ||
		string(a.Message.Result) != "{}" || a.Message.ID != "7" {
		t.Errorf("ping: %s", a)
	}
	if a := c.Post(t, `{"jsonrpc":"2.0","id":8,"method":"tools/list","params":null}`); a.Status != 200 ||
		harness.Member(a.Message.Result, "tools") != "[]" {
		t.Errorf("tools/list: %s", a)
	}
	wantBody(t, c.Post(t, `{"jsonrpc":"2.0","method":"notifications/initialized","params":null}`), 202, "")
	// A modern request needs params, so that null is answered as absent params are.
	m := harness.MustClient(t, e, client.EraModern)
	own := []harness.HeaderChange{harness.With("Mcp-Protocol-Version", "2026-07-28"),
		harness.With("Mcp-Method", "tools/list")}
	null := m.Post(t, `{"jsonrpc":"2.0","id":9,"method":"tools/list","params":null}`, own...)
	absent := m.Post(t, `{"jsonrpc":"2.0","id":9,"method":"tools/list"}`, own...)
	if null.Status != absent.Status || string(null.Body) != string(absent.Body) || null.Message.Error == nil ||
		null.Message.Error.Code != -32602 {
		t.Errorf("tools/list of a modern client: %s, without params %s", null, absent)
	}
	wantBody(t, m.Post(t, `{"jsonrpc":"2.0","method":"notifications/x","params":null}`,
		harness.With("Mcp-Protocol-Version", "2026-07-28"), harness.With("Mcp-Method", "notifications/x")), 202, "")
}

func TestForeignNullParamsOfServers(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.EachTransport(t, clientEra, client.EraLegacy, func(t *testing.T, p harness.Pair) {
			s, j := harness.Over(t, p, upstreamtest.Script{}, harness.Exactly)
			s.Listened(t, p)
			if m := s.Ask(t, "ping", "null"); m.Error != nil || string(m.Result) != "{}" {
				t.Errorf("ping of the server is answered %s", m.Append(nil))
			}
			m, asked := j.Talk(t).Converse(t, harness.Asking(`{"method":"roots/list","params":null}`), harness.AnswersTo)
			if len(asked) != 1 || harness.AnswersOf(t, m) != `[{`+harness.Rooted+`}]` {
				t.Errorf("after %d questions: %s", len(asked), m.Append(nil))
			}
			lists := len(s.RequestsOf(t, "tools/list", 1))
			s.Notify(t, "notifications/tools/list_changed", "null")
			s.RequestsOf(t, "tools/list", lists+1)
		})
	}
}

func TestForeignIDsThatAreNone(t *testing.T) {
	harness.Waits(t)
	e := harness.MustProxy(t, nil)
	harness.EachClientEra(t, func(t *testing.T, era client.Era) {
		c := harness.MustClient(t, e, era)
		for _, id := range []string{`null`, `1.5`, `true`, `{}`, `[]`, `-0.5`, `15e-1`} {
			_, changes := c.Request("1", "tools/list", "")
			a := c.Post(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/list","params":{"_meta":`+
				harness.MetaText("2026-07-28", "raw")+`}}`, changes...)
			wantError(t, a, 400, "", -32600)
		}
		for _, id := range []string{`1.0`, `-3`, `9007199254740993`, `"1.5"`, `""`} {
			text, changes := c.Request(id, "tools/list", "")
			if a := c.Post(t, text, changes...); a.Status != 200 || string(a.Message.ID) != id || a.Message.Error != nil {
				t.Errorf("a request called %s is answered %s", id, a)
			}
		}
	})
}

func TestForeignSlashAtTheEnd(t *testing.T) {
	harness.Waits(t)
	harness.EachEra(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p,
			harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config},
				Endpoints: map[string]scope.EndpointConfig{"web": {Upstreams: []string{"up"}}}})
		j.Offers(t, "up")
		root := strings.TrimSuffix(j.URL, "/mcp")
		for path, tool := range map[string]string{"/mcp/": "up__echo", "/mcp/up/": "echo", "/web/mcp/": "up__echo"} {
			c := harness.Talk(t, root+path, p.Client)
			m := c.Call(t, tool, `{"a":1}`)
			if m.Error != nil || !strings.Contains(string(m.Result), `{\"a\":1}`) {
				t.Errorf("%s: %s", path, m.Append(nil))
			}
		}
		c := &harness.Talker{URL: j.URL, Era: p.Client}
		for _, path := range []string{"/mcp//", "//mcp", "/mcp/nothing/", "/mcp/up/x/", "/nothing/mcp/", "/mcp/up%2F"} {
			if status, _ := c.PostTo(t, root+path); status != 404 {
				t.Errorf("%s: status %d, want 404", path, status)
			}
		}
	})
}

// TestForeignDeletedSessionStaysDeleted has a client delete its session, and use the id again after
// a restart.
func TestForeignDeletedSessionStaysDeleted(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "it restarts one process at its own address")
	p := harness.MustProgram(t, "upstreams: { demo: { command: [junction, demo] } }\n")
	p.MustReady(t, harness.Patience)
	file := filepath.Join(p.Dir, "ended-sessions")
	begin := func() *harness.Client {
		c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraLegacy)
		c.MustInitialize(t, "2025-11-25")
		return c
	}
	ping := func(c *harness.Client) int {
		return c.Post(t, `{"jsonrpc":"2.0","id":"p","method":"ping"}`).Status
	}
	gone, stays := begin(), begin()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	r, err := gone.Send(ctx, http.MethodDelete, "")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if got := ping(gone); got != 404 {
		t.Fatalf("the deleted session is answered %d before the restart", got)
	}
	p.MustRestart(t)
	if got := []int{ping(gone), ping(stays)}; got[0] != 404 || got[1] != 200 {
		t.Errorf("after a restart the deleted session is answered %d, another one %d; want 404 and 200", got[0], got[1])
	}
	text, err := os.ReadFile(file)
	if err != nil || bytes.Contains(text, []byte(gone.Session)) || bytes.Count(text, []byte("\n")) != 1 {
		t.Errorf("%s holds %q, %v; want one hash", file, text, err)
	}
	// A line that was cut off, and lines of another kind, are passed over.
	if err := os.WriteFile(file, append([]byte("\x00\xff no hash\n"), append(text, text[:20]...)...), 0o600); err != nil {
		t.Fatal(err)
	}
	p.MustRestart(t)
	p.Stderr.MustMatch(t, regexp.MustCompile(`cannot read all deleted sessions`), harness.Patience, p.Done)
	if got := []int{ping(gone), ping(stays)}; got[0] != 404 || got[1] != 200 {
		t.Errorf("with a damaged file the deleted session is answered %d, another one %d; want 404 and 200", got[0], got[1])
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	p.MustRestart(t)
	if got := ping(stays); got != 200 {
		t.Errorf("without the file a session is answered %d, want 200", got)
	}
}

// TestForeignDeletedSessionsOfAnother: a caller who deletes many sessions brings back no deleted session of
// another caller, neither at once nor after restarts.
func TestForeignDeletedSessionsOfAnother(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "it restarts one process at its own address")
	keys, entries := map[string]string{}, ""
	for _, name := range []string{"ann", "bob"} {
		keys[name] = auth.NewKey()
		authtest.Secret("an API key", keys[name])
		hash, err := auth.HashKey(keys[name])
		if err != nil {
			t.Fatal(err)
		}
		entries += fmt.Sprintf("{ name: %s, hash: %q }, ", name, hash)
	}
	const most = 20
	p := harness.MustProgram(t, fmt.Sprintf("upstreams: { demo: { command: [junction, demo] } }\n"+
		"auth: { api_keys: [ %s ] }\nlimits: { sessions: %d }\n", entries, most))
	p.MustReady(t, harness.Patience)
	begin := func(name string) *harness.Client {
		c := harness.NewClient(t, &harness.Endpoint{URL: p.URL}, client.EraLegacy)
		c.Key = keys[name]
		c.MustInitialize(t, "2025-11-25")
		return c
	}
	ping := func(c *harness.Client) int {
		return c.Post(t, `{"jsonrpc":"2.0","id":"p","method":"ping"}`).Status
	}
	var anns []*harness.Client
	for range 3 {
		c := begin("ann")
		c.MustDo(t, "DELETE")
		anns = append(anns, c)
	}
	for round := range 3 {
		var last *harness.Client
		for range 3 * most {
			last = begin("bob")
			last.MustDo(t, "DELETE")
		}
		for i, c := range append(anns, last) {
			if got := ping(c); got != 404 {
				t.Errorf("round %d: deleted session %d is answered %d, want 404", round, i, got)
			}
		}
		p.MustRestart(t)
		for i, c := range append(anns, last) {
			if got := ping(c); got != 404 {
				t.Errorf("after restart %d: deleted session %d is answered %d, want 404", round+1, i, got)
			}
		}
	}
}

// TestForeignTooLargeAnswers has servers answer with more than limits.message over each wire.
func TestForeignTooLargeAnswers(t *testing.T) {
	harness.Waits(t)
	for _, up := range harness.Eras {
		harness.EachTransport(t, client.EraModern, up, func(t *testing.T, p harness.Pair) {
			if p.Transport == "sse" {
				return // the stream of all calls ends there, so that nothing tells whose answer it was
			}
			s := p.Serve(t, upstreamtest.Script{})
			e := harness.MustProxy(t, map[string]upstream.Config{"up": s.Config},
				func(_ *front.Options, _ *scope.Config, o *upstream.Options) { o.MessageLimit = 64 << 10 })
			c := harness.MustClient(t, e, p.Client)
			a := c.Tool(t, "up__echo", `{"text":"`+strings.Repeat("x", 70<<10)+`"}`)
			harness.WantOwnError(t, a.Message, "up", client.KindInvalid)
			const want = "the answer is larger than limits.message of 64 KiB; raise limits.message, or request less"
			if !strings.Contains(a.Message.Error.Message, want) {
				t.Errorf("%q does not say %q", a.Message.Error.Message, want)
			}
			harness.WantEcho(t, c.Tool(t, "up__echo", `{}`))
		})
	}
}
