package integration

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"junction/auth/authtest"
	"junction/proxy"
	"junction/upstream"
	"junction/upstream/upstreamtest"
)

// Small deviations of real clients and servers, each of which broke something once.

func TestForeignNullParamsOfClients(t *testing.T) {
	e := mustProxy(t, nil)
	c := mustClient(t, e, upstream.EraLegacy)
	if a := c.post(t, `{"jsonrpc":"2.0","id":7,"method":"ping","params":null}`); a.status != 200 || string(a.message.Result) != "{}" || a.message.ID != "7" {
		t.Errorf("ping: %s", a)
	}
	if a := c.post(t, `{"jsonrpc":"2.0","id":8,"method":"tools/list","params":null}`); a.status != 200 || member(a.message.Result, "tools") != "[]" {
		t.Errorf("tools/list: %s", a)
	}
	wantBody(t, c.post(t, `{"jsonrpc":"2.0","method":"notifications/initialized","params":null}`), 202, "")
	// A modern request needs params, so that null is answered as absent params are.
	m := mustClient(t, e, upstream.EraModern)
	own := []change{with("Mcp-Protocol-Version", "2026-07-28"), with("Mcp-Method", "tools/list")}
	null := m.post(t, `{"jsonrpc":"2.0","id":9,"method":"tools/list","params":null}`, own...)
	absent := m.post(t, `{"jsonrpc":"2.0","id":9,"method":"tools/list"}`, own...)
	if null.status != absent.status || string(null.body) != string(absent.body) || null.message.Error == nil || null.message.Error.Code != -32602 {
		t.Errorf("tools/list of a modern client: %s, without params %s", null, absent)
	}
	wantBody(t, m.post(t, `{"jsonrpc":"2.0","method":"notifications/x","params":null}`, with("Mcp-Protocol-Version", "2026-07-28"), with("Mcp-Method", "notifications/x")), 202, "")
}

func TestForeignNullParamsOfServers(t *testing.T) {
	for _, client := range eras {
		eachWire(t, pair{client, upstream.EraLegacy, ""}, func(t *testing.T, p pair) {
			s, j := over(t, p, upstreamtest.Script{}, exactly)
			s.listened(t, p)
			if m := s.ask(t, "ping", "null"); m.Error != nil || string(m.Result) != "{}" {
				t.Errorf("ping of the server is answered %s", m.Append(nil))
			}
			m, asked := j.talk(t).converse(t, asking(`{"method":"roots/list","params":null}`), answersTo)
			if len(asked) != 1 || answersOf(t, m) != `[{`+rooted+`}]` {
				t.Errorf("after %d questions: %s", len(asked), m.Append(nil))
			}
			lists := len(s.requestsOf(t, "tools/list", 1))
			s.notify(t, "notifications/tools/list_changed", "null")
			s.requestsOf(t, "tools/list", lists+1)
		})
	}
}

func TestForeignIDsThatAreNone(t *testing.T) {
	e := mustProxy(t, nil)
	runClients(t, func(t *testing.T, era upstream.Era) {
		c := mustClient(t, e, era)
		for _, id := range []string{`null`, `1.5`, `true`, `{}`, `[]`, `-0.5`, `15e-1`} {
			_, changes := c.request("1", "tools/list", "")
			a := c.post(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/list","params":{"_meta":`+metaText("2026-07-28", "raw")+`}}`, changes...)
			wantError(t, a, 400, "", -32600)
		}
		for _, id := range []string{`1.0`, `-3`, `9007199254740993`, `"1.5"`, `""`} {
			text, changes := c.request(id, "tools/list", "")
			if a := c.post(t, text, changes...); a.status != 200 || string(a.message.ID) != id || a.message.Error != nil {
				t.Errorf("a request called %s is answered %s", id, a)
			}
		}
	})
}

func TestForeignSlashAtTheEnd(t *testing.T) {
	eachEra(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, endpoints: map[string]proxy.Endpoint{"web": {Upstreams: []string{"up"}}}})
		j.offers(t, "up")
		root := strings.TrimSuffix(j.url, "/mcp")
		for path, tool := range map[string]string{"/mcp/": "up__echo", "/mcp/up/": "echo", "/web/mcp/": "up__echo"} {
			c := talk(t, root+path, p.client)
			m := c.call(t, tool, `{"a":1}`)
			if m.Error != nil || !strings.Contains(string(m.Result), `{\"a\":1}`) {
				t.Errorf("%s: %s", path, m.Append(nil))
			}
		}
		c := &talker{url: j.url, era: p.client}
		for _, path := range []string{"/mcp//", "//mcp", "/mcp/nothing/", "/mcp/up/x/", "/nothing/mcp/", "/mcp/up%2F"} {
			if status, _ := c.postTo(t, root+path); status != 404 {
				t.Errorf("%s: status %d, want 404", path, status)
			}
		}
	})
}

// TestForeignSlashAtTheEndOfAResource has clients show a token, and none, at an endpoint whose URL
// they write with a slash.
func TestForeignSlashAtTheEndOfAResource(t *testing.T) {
	s := authtest.Start(t)
	p, _ := guarded(t, strings.Replace(trusting(s), "audiences: ["+publicMCP+"]", "audiences: ["+publicMCP+", "+publicMCP+"/up]", 1))
	for _, era := range clientEras() {
		for path, resource := range map[string]string{"/mcp/": "/mcp", "/mcp/up/": "/mcp/up"} {
			tool := "up__echo"
			if resource != "/mcp" {
				tool = "echo"
			}
			token := s.Token(t, claimed(s, map[string]any{"aud": publicOrigin + resource}))
			wantEcho(t, showing(t, p, era, token, path).tool(t, tool, `{}`))
			a := refusedTo(t, showing(t, p, era, "", path), "POST")
			if got, want := a.header.Get("WWW-Authenticate"), toSignIn+resource+`"`; a.status != 401 || got != want {
				t.Errorf("%s: %d %s, want %s", path, a.status, got, want)
			}
			document := getBody(t, strings.TrimSuffix(p.URL, "/mcp")+"/.well-known/oauth-protected-resource"+path)
			if got, want := text(t, document, "resource"), publicOrigin+resource; got != want {
				t.Errorf("the document of %s is of %s, want %s", path, got, want)
			}
		}
	}
}

// getBody returns the body of a document that must be there.
func getBody(t *testing.T, url string) []byte {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("%s: status %d, %v", url, answer.StatusCode, err)
	}
	return body
}

// TestForeignDeletedSessionStaysDeleted has a client delete its session, and somebody use the id
// again after a restart.
func TestForeignDeletedSessionStaysDeleted(t *testing.T) {
	p := mustProgram(t, "upstreams: { demo: { command: [junction, demo] } }\n")
	p.mustReady(t, patience)
	file := filepath.Join(p.dir, "ended-sessions")
	begin := func() *client {
		c := newClient(t, &endpoint{URL: p.URL}, upstream.EraLegacy)
		c.mustInitialize(t, "2025-11-25")
		return c
	}
	ping := func(c *client) int {
		return c.post(t, `{"jsonrpc":"2.0","id":"p","method":"ping"}`).status
	}
	gone, stays := begin(), begin()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := gone.send(ctx, http.MethodDelete, "")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if got := ping(gone); got != 404 {
		t.Fatalf("the deleted session is answered %d before the restart", got)
	}
	p.mustRestart(t)
	if got := []int{ping(gone), ping(stays)}; got[0] != 404 || got[1] != 200 {
		t.Errorf("after a restart the deleted session is answered %d, another one %d; want 404 and 200", got[0], got[1])
	}
	text, err := os.ReadFile(file)
	if err != nil || bytes.Contains(text, []byte(gone.session)) || bytes.Count(text, []byte("\n")) != 1 {
		t.Errorf("%s holds %q, %v; want one hash", file, text, err)
	}
	// A line that was cut off, and lines of another kind, are passed over.
	if err := os.WriteFile(file, append([]byte("\x00\xff no hash\n"), append(text, text[:20]...)...), 0o600); err != nil {
		t.Fatal(err)
	}
	p.mustRestart(t)
	p.Stderr.mustMatch(t, regexp.MustCompile(`cannot read all deleted sessions`), patience, p.done)
	if got := []int{ping(gone), ping(stays)}; got[0] != 404 || got[1] != 200 {
		t.Errorf("with a damaged file the deleted session is answered %d, another one %d; want 404 and 200", got[0], got[1])
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	p.mustRestart(t)
	if got := ping(stays); got != 200 {
		t.Errorf("without the file a session is answered %d, want 200", got)
	}
}

// TestForeignTooLargeAnswers has servers answer with more than limits.message over each wire.
func TestForeignTooLargeAnswers(t *testing.T) {
	for _, up := range eras {
		eachWire(t, pair{upstream.EraModern, up, ""}, func(t *testing.T, p pair) {
			if p.wire == "sse" {
				return // the stream of all calls ends there, so that nothing tells whose answer it was
			}
			s := p.serve(t, upstreamtest.Script{})
			e := mustProxy(t, map[string]upstream.Config{"up": s.config}, func(_ *proxy.Options, _ *proxy.WorldConfig, o *upstream.Options) { o.MessageLimit = 64 << 10 })
			c := mustClient(t, e, p.client)
			a := c.tool(t, "up__echo", `{"text":"`+strings.Repeat("x", 70<<10)+`"}`)
			ours(t, a.message, "up", upstream.KindInvalid)
			if want := "the answer is larger than limits.message of 64 KiB; raise limits.message, or request less"; !strings.Contains(a.message.Error.Message, want) {
				t.Errorf("%q does not say %q", a.message.Error.Message, want)
			}
			wantEcho(t, c.tool(t, "up__echo", `{}`))
		})
	}
}
