package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/upstream"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// A server is one process or one session, which lists and takes the calls of all clients.

// changing are the tools of a server that offers another one after a call.
var changing = definitions("settools", "whoami", "ask")

// TestForeignToolsOfACall: a tool that a call makes appear is announced, is in the list, and can be
// called. So do servers with dynamic toolsets, or with a login.
func TestForeignToolsOfACall(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{Tools: changing})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}})
		j.offers(t, "up")
		s.listened(t, p)
		c := j.talk(t)
		hears := c.hearTools(t)
		more, err := json.Marshal(append(definitions("late"), changing...))
		if err != nil {
			t.Fatal(err)
		}
		c.succeed(t, "up__settools", `{"tools":`+string(more)+`}`)
		if m, ok := hears.next(t); !ok || m.Method != "notifications/tools/list_changed" {
			t.Fatalf("the client hears %s, want that its tools have changed", m.Append(nil))
		}
		if got := c.names(t); !slices.Contains(got, "up__late") {
			t.Errorf("tools = %q, want up__late among them", got)
		}
		c.succeed(t, "up__late", `{}`)
	})
}

// hearTools opens the stream on which the client learns of changed tools.
func (c *talker) hearTools(t *testing.T) *answering {
	t.Helper()
	if c.era == upstream.EraLegacy {
		return c.get(t)
	}
	a, _ := subscribe(t, c, `"tools"`, `{"toolsListChanged":true}`)
	return a
}

// TestForeignExclusiveServer: a server that can run only once (it has a port, a lock or a browser
// profile) serves all kinds of client. A call that arrives while a person is asked waits until that
// is over.
func TestForeignExclusiveServer(t *testing.T) {
	for _, client := range eras {
		for _, up := range eras {
			runPair(t, pair{client, up, "stdio"}, func(t *testing.T, p pair) {
				s := p.serve(t, upstreamtest.Script{Exclusive: freePort(t)})
				j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}})
				j.offers(t, "up")
				for _, capabilities := range kindsOfClient {
					talkAs(t, j.url, client, "2025-11-25", capabilities).succeed(t, "up__echo", `{}`)
				}
				var waits *answering
				m, asked := j.talk(t).converse(t, asking(askForm), func(q put) string {
					waits = talkAs(t, j.url, client, "2025-11-25", `{}`).begin(t, called("up__whoami", `{}`))
					return answersTo(q)
				})
				if len(asked) != 1 || m.Error != nil {
					t.Fatalf("%d questions and then %s, want one and a result", len(asked), m.Append(nil))
				}
				if m := waits.answer(t); m.Error != nil {
					t.Errorf("the call that had to wait = %v %s", m.Error, m.Error.Data)
				}
				if got := j.status("up"); got.State != upstream.StateReady {
					t.Errorf("the upstream is %s, want ready", got.State)
				}
			})
		}
	}
}

// kindsOfClient are the capabilities of Claude Code, Codex, Gemini CLI, VS Code and a client that
// can do nothing but call.
var kindsOfClient = []string{
	`{"roots":{"listChanged":true},"elicitation":{"form":{},"url":{}}}`,
	`{"elicitation":{"form":{}}}`,
	`{"roots":{}}`,
	`{"roots":{"listChanged":true},"sampling":{},"elicitation":{},"tasks":{"list":{}}}`,
	`{}`,
}

// TestForeignOneConnection: five kinds of client have one connection, and a server request reaches
// the client of the call that caused it, or gets an error where that client cannot answer.
func TestForeignOneConnection(t *testing.T) {
	eachPair(t, func(t *testing.T, p pair) {
		s := p.serve(t, upstreamtest.Script{})
		j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}})
		j.offers(t, "up")
		seen := map[string]bool{}
		for _, capabilities := range kindsOfClient {
			c := talkAs(t, j.url, p.client, "2025-11-25", capabilities)
			result := c.succeed(t, "up__whoami", `{}`)
			seen[member(result, "structuredContent", "pid")+member(result, "structuredContent", "session")] = true
			m, asked := c.converse(t, called("up__ask", `{"always":true,"questions":[`+askForm+`]}`), answersTo)
			if can := strings.Contains(capabilities, "elicitation"); can && (len(asked) != 1 || m.Error != nil) {
				t.Errorf("%s: asked %d times, then %s; want once and a result", capabilities, len(asked), m.Append(nil))
			} else if !can && p.upstream == upstream.EraLegacy && (len(asked) > 0 || !strings.Contains(answersOf(t, m), `"code":-32602`)) {
				t.Errorf("%s: asked %d times, then %s; want an error for the server", capabilities, len(asked), m.Append(nil))
			}
		}
		// Legacy clients have a session of their own at a server that speaks both eras; this one
		// speaks one.
		if len(seen) != 1 {
			t.Errorf("connections = %v, want one for all clients", seen)
		}
		if n := j.status("up").Links; n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// TestForeignTenServersAreTenProcesses: however many clients of however many kinds there are, each
// command runs once.
func TestForeignTenServersAreTenProcesses(t *testing.T) {
	for _, client := range eras {
		runPair(t, pair{client, "", "stdio"}, func(t *testing.T, p pair) {
			servers, configs := map[string]*served{}, map[string]upstream.Config{}
			var names []string
			for i := range 10 {
				up := p
				if up.upstream = upstream.EraLegacy; i%3 == 1 {
					up.upstream = upstream.EraModern
				}
				script := upstreamtest.Script{}
				if i%3 == 2 {
					script.Era = "both"
				}
				name := fmt.Sprintf("up%d", i)
				servers[name] = up.serve(t, script)
				configs[name] = servers[name].config
				names = append(names, name)
			}
			j := start(t, p, world{upstreams: configs})
			j.offers(t, names...)
			for _, capabilities := range kindsOfClient {
				c := talkAs(t, j.url, client, "2025-11-25", capabilities)
				for _, name := range names {
					c.succeed(t, name+"__echo", `{}`)
				}
			}
			for name, s := range servers {
				n := 0
				for _, r := range s.Received() {
					if r.Verb == "START" {
						n++
					}
				}
				if n != 1 {
					t.Errorf("%s was started %d times, want once", name, n)
				}
			}
		})
	}
}

// TestForeignExactQuestions: with questions: exact each client sees what the server offers to a
// client of its capabilities.
func TestForeignExactQuestions(t *testing.T) {
	for _, client := range eras {
		runPair(t, pair{client, upstream.EraLegacy, "stdio"}, func(t *testing.T, p pair) {
			config := upstream.Config{Command: published(t, "server-everything"), Questions: upstream.QuestionsExact}
			j := start(t, p, world{upstreams: map[string]upstream.Config{"up": config}})
			j.offers(t, "up")
			all := talkAs(t, j.url, client, "2025-11-25", `{"roots":{},"sampling":{},"elicitation":{}}`)
			none := talkAs(t, j.url, client, "2025-11-25", `{}`)
			for _, c := range []*talker{all, none} {
				c.succeed(t, "up__echo", `{"message":"x"}`) // its connection is there
			}
			for _, want := range []struct {
				c    *talker
				tool string
				is   bool
			}{
				{all, "up__trigger-elicitation-request", true}, {none, "up__trigger-elicitation-request", false},
				{all, "up__get-roots-list", true}, {none, "up__get-roots-list", false},
				{none, "up__echo", true},
			} {
				if got := slices.Contains(want.c.names(t), want.tool); got != want.is {
					t.Errorf("a client with capabilities %s sees %s: %t, want %t", want.c.capabilities, want.tool, got, want.is)
				}
			}
			if m := none.call(t, "up__trigger-elicitation-request", `{}`); m.Error == nil || m.Error.Code != -32602 {
				t.Errorf("a tool that the client does not see = %s, want unknown", m.Append(nil))
			}
		})
	}
}

// TestForeignMemoryOfFiveClients: five kinds of client write into one graph of the published memory
// server, and each reads what all have written.
func TestForeignMemoryOfFiveClients(t *testing.T) {
	for _, client := range eras {
		runPair(t, pair{client, upstream.EraLegacy, "stdio"}, func(t *testing.T, p pair) {
			config := upstream.Config{Command: published(t, "server-memory"), Env: map[string]string{"MEMORY_FILE_PATH": filepath.Join(t.TempDir(), "graph.jsonl")}}
			j := start(t, p, world{upstreams: map[string]upstream.Config{"memory": config}})
			j.offers(t, "memory")
			for i, capabilities := range kindsOfClient {
				c := talkAs(t, j.url, client, "2025-11-25", capabilities)
				c.succeed(t, "memory__create_entities", fmt.Sprintf(`{"entities":[{"name":"client %d","entityType":"client","observations":[]}]}`, i))
				graph := member(c.succeed(t, "memory__read_graph", `{}`), "structuredContent", "entities")
				entities, err := raw.Elements([]byte(graph))
				if err != nil || len(entities) != i+1 {
					t.Errorf("client %d reads %s, want %d entities", i, graph, i+1)
				}
			}
			if n := j.status("memory").Links; n != 1 {
				t.Errorf("%d processes, want 1", n)
			}
		})
	}
}

// published is the command of a stdio server from the folder npm.
func published(t testing.TB, server string) []string {
	return []string{"node", filepath.Join(mustNPM(t), "node_modules", "@modelcontextprotocol", server, "dist", "index.js")}
}

// TestForeignToolsOfOnePrincipal: with isolation: principal a tool that appears in the process of
// one user is listed for that user alone, and goes with the process.
func TestForeignToolsOfOnePrincipal(t *testing.T) {
	guard, keys := keyring(t, "one", "two")
	for _, client := range eras {
		for _, up := range eras {
			runPair(t, pair{client, up, "stdio"}, func(t *testing.T, p pair) {
				s := p.serve(t, upstreamtest.Script{Tools: changing})
				s.config.Isolation = upstream.IsolationPrincipal
				j := start(t, p, world{upstreams: map[string]upstream.Config{"up": s.config}, guard: guard})
				j.offers(t, "up")
				one, two := j.as(t, keys["one"]), j.as(t, keys["two"])
				two.succeed(t, "up__whoami", `{}`)
				one.succeed(t, "up__whoami", `{}`)
				hears, silent := one.hearTools(t), two.hearTools(t)
				more, err := json.Marshal(append(definitions("late"), changing...))
				if err != nil {
					t.Fatal(err)
				}
				one.succeed(t, "up__settools", `{"tools":`+string(more)+`}`)
				if m, ok := hears.next(t); !ok || m.Method != "notifications/tools/list_changed" {
					t.Fatalf("the client hears %s, want that its tools have changed", m.Append(nil))
				}
				if got := one.names(t); !slices.Contains(got, "up__late") {
					t.Errorf("tools of one = %q, want up__late among them", got)
				}
				one.succeed(t, "up__late", `{}`)
				if got := two.names(t); slices.Contains(got, "up__late") {
					t.Errorf("tools of two = %q, want no up__late", got)
				}
				wantCode(t, two.call(t, "up__late", `{}`), -32602)
				silent.wantSilence(t)
			})
		}
	}
}
