package bridge

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"junction/integration/harness"
	"junction/integration/harness/npm"
	"junction/integration/harness/process"
	"junction/upstream"
	"junction/upstream/client"
	"junction/upstream/raw"
	"junction/upstream/upstreamtest"
)

// A server is one process or one session, which lists and takes the calls of all clients.

// changing are the tools of a server that offers another one after a call.
// ownServers is why a test of the state of one server over stdio, or of one session at a server,
// needs all requests of a modern client in one process.
const ownServers = "calls of a modern client reach different processes, and each has a server of its own"

var changing = harness.Definitions("settools", "whoami", "ask")

// TestForeignToolsOfACall: a tool that a call makes appear is announced, is in the list, and can be
// called. So do servers with dynamic toolsets, or with a login.
func TestForeignToolsOfACall(t *testing.T) {
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		if p.Client == client.EraModern && p.Transport == "stdio" {
			harness.InMemory(t, ownServers)
		}
		s := p.Serve(t, upstreamtest.Script{Tools: changing})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}})
		j.Offers(t, "up")
		s.Listened(t, p)
		c := j.Talk(t)
		hears := c.HearTools(t)
		more, err := json.Marshal(append(harness.Definitions("late"), changing...))
		if err != nil {
			t.Fatal(err)
		}
		c.Succeed(t, "up__settools", `{"tools":`+string(more)+`}`)
		if m, ok := hears.Next(t); !ok || m.Method != "notifications/tools/list_changed" {
			t.Fatalf("the client hears %s, want that its tools have changed", m.Append(nil))
		}
		if got := c.Names(t); !slices.Contains(got, "up__late") {
			t.Errorf("tools = %q, want up__late among them", got)
		}
		c.Succeed(t, "up__late", `{}`)
	})
}

// TestForeignExclusiveServer: a server that can run only once (it has a port, a lock or a browser
// profile) serves all kinds of client. A call that arrives while a person is asked waits until that
// is over.
func TestForeignExclusiveServer(t *testing.T) {
	harness.Waits(t)
	harness.InMemory(t, "each process starts the server, and this one can run only once")
	for _, client := range harness.Eras {
		for _, up := range harness.Eras {
			harness.RunPair(t, client, up, "stdio", func(t *testing.T, p harness.Pair) {
				s := p.Serve(t, upstreamtest.Script{Exclusive: process.FreePort(t)})
				j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}})
				j.Offers(t, "up")
				for _, capabilities := range kindsOfClient {
					harness.TalkAs(t, j.URL, client, "2025-11-25", capabilities).Succeed(t, "up__echo", `{}`)
				}
				var waits *harness.Answering
				m, asked := j.Talk(t).Converse(t, harness.Asking(harness.AskForm), func(q harness.ServerRequest) string {
					waits = harness.TalkAs(t, j.URL, client, "2025-11-25", `{}`).Begin(t, harness.Called("up__whoami", `{}`))
					return harness.AnswersTo(q)
				})
				if len(asked) != 1 || m.Error != nil {
					t.Fatalf("%d questions and then %s, want one and a result", len(asked), m.Append(nil))
				}
				if m := waits.Answer(t); m.Error != nil {
					t.Errorf("the call that had to wait = %v %s", m.Error, m.Error.Data)
				}
				if got := j.Status("up"); got.State != upstream.StateReady {
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
	harness.Waits(t)
	harness.EachPair(t, func(t *testing.T, p harness.Pair) {
		s := p.Serve(t, upstreamtest.Script{})
		j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}})
		j.Offers(t, "up")
		seen := map[string]bool{}
		for _, capabilities := range kindsOfClient {
			c := harness.TalkAs(t, j.URL, p.Client, "2025-11-25", capabilities)
			result := c.Succeed(t, "up__whoami", `{}`)
			seen[harness.Member(result, "structuredContent", "pid")+
				harness.Member(result, "structuredContent", "session")] = true
			m, asked := c.Converse(t, harness.Called("up__ask", `{"always":true,"questions":[`+harness.AskForm+`]}`),
				harness.AnswersTo)
			if can := strings.Contains(capabilities, "elicitation"); can && (len(asked) != 1 || m.Error != nil) {
				t.Errorf("%s: asked %d times, then %s; want once and a result", capabilities, len(asked), m.Append(nil))
			} else if !can && p.Upstream == client.EraLegacy &&
				(len(asked) > 0 || !strings.Contains(harness.AnswersOf(t, m), `"code":-32602`)) {
				t.Errorf("%s: asked %d times, then %s; want an error for the server", capabilities, len(asked), m.Append(nil))
			}
		}
		// Legacy clients have a session of their own at a server that speaks both eras; this one
		// speaks one.
		if len(seen) > harness.Processes() {
			t.Errorf("connections = %v, want one for all clients", seen)
		}
		if n := j.Status("up").Links; n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	})
}

// TestForeignTenServersAreTenProcesses: however many clients of however many kinds there are, each
// command runs once.
func TestForeignTenServersAreTenProcesses(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.RunPair(t, clientEra, "", "stdio", func(t *testing.T, p harness.Pair) {
			servers, configs := map[string]*harness.Served{}, map[string]upstream.Config{}
			var names []string
			for i := range 10 {
				up := p
				if up.Upstream = client.EraLegacy; i%3 == 1 {
					up.Upstream = client.EraModern
				}
				script := upstreamtest.Script{}
				if i%3 == 2 {
					script.Era = "both"
				}
				name := fmt.Sprintf("up%d", i)
				servers[name] = up.Serve(t, script)
				configs[name] = servers[name].Config
				names = append(names, name)
			}
			j := harness.Start(t, p, harness.Setup{Upstreams: configs})
			j.Offers(t, names...)
			for _, capabilities := range kindsOfClient {
				c := harness.TalkAs(t, j.URL, clientEra, "2025-11-25", capabilities)
				for _, name := range names {
					c.Succeed(t, name+"__echo", `{}`)
				}
			}
			for name, s := range servers {
				n := 0
				for _, r := range s.Received() {
					if r.Verb == "START" {
						n++
					}
				}
				if n != harness.Processes() {
					t.Errorf("%s was started %d times, want once by each process", name, n)
				}
			}
		})
	}
}

// TestForeignExactQuestions: with questions: exact each client sees what the server offers to a
// client of its capabilities.
func TestForeignExactQuestions(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.RunPair(t, clientEra, client.EraLegacy, "stdio", func(t *testing.T, p harness.Pair) {
			if clientEra == client.EraModern {
				harness.InMemory(t, "each process learns the lists for a kind of client from its own connection")
			}
			config := upstream.Config{Command: published(t, "server-everything"), Questions: upstream.QuestionsExact}
			j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": config}})
			j.Offers(t, "up")
			all := harness.TalkAs(t, j.URL, clientEra, "2025-11-25", `{"roots":{},"sampling":{},"elicitation":{}}`)
			none := harness.TalkAs(t, j.URL, clientEra, "2025-11-25", `{}`)
			for _, c := range []*harness.Talker{all, none} {
				c.Succeed(t, "up__echo", `{"message":"x"}`) // its connection is there
			}
			for _, want := range []struct {
				c    *harness.Talker
				tool string
				is   bool
			}{
				{all, "up__trigger-elicitation-request", true}, {none, "up__trigger-elicitation-request", false},
				{all, "up__get-roots-list", true}, {none, "up__get-roots-list", false},
				{none, "up__echo", true},
			} {
				if got := slices.Contains(want.c.Names(t), want.tool); got != want.is {
					t.Errorf("a client with capabilities %s sees %s: %t, want %t", want.c.Capabilities, want.tool, got, want.is)
				}
			}
			if m := none.Call(t, "up__trigger-elicitation-request", `{}`); m.Error == nil || m.Error.Code != -32602 {
				t.Errorf("a tool that the client does not see = %s, want unknown", m.Append(nil))
			}
		})
	}
}

// TestForeignMemoryOfFiveClients: five kinds of client write into one graph of the published memory
// server, and each reads what all have written.
func TestForeignMemoryOfFiveClients(t *testing.T) {
	harness.Waits(t)
	for _, clientEra := range harness.Eras {
		harness.RunPair(t, clientEra, client.EraLegacy, "stdio", func(t *testing.T, p harness.Pair) {
			config := upstream.Config{Command: published(t, "server-memory"),
				Env: map[string]string{"MEMORY_FILE_PATH": filepath.Join(t.TempDir(), "graph.jsonl")}}
			j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"memory": config}})
			j.Offers(t, "memory")
			for i, capabilities := range kindsOfClient {
				c := harness.TalkAs(t, j.URL, clientEra, "2025-11-25", capabilities)
				c.Succeed(t, "memory__create_entities",
					fmt.Sprintf(`{"entities":[{"name":"client %d","entityType":"client","observations":[]}]}`, i))
				graph := harness.Member(c.Succeed(t, "memory__read_graph", `{}`), "structuredContent", "entities")
				entities, err := raw.Elements([]byte(graph))
				if err != nil || len(entities) != i+1 {
					t.Errorf("client %d reads %s, want %d entities", i, graph, i+1)
				}
			}
			if n := j.Status("memory").Links; n != 1 {
				t.Errorf("%d processes, want 1", n)
			}
		})
	}
}

// published is the command of a stdio server from the folder npm.
func published(t testing.TB, server string) []string {
	return []string{"node",
		filepath.Join(npm.MustFolder(t), "node_modules", "@modelcontextprotocol", server, "dist", "index.js")}
}

// TestForeignToolsOfOnePrincipal: with isolation: principal a tool that appears in the process of
// one user is listed for that user alone, and goes with the process.
func TestForeignToolsOfOnePrincipal(t *testing.T) {
	harness.Waits(t)
	guard, keys := harness.Keyring(t, "one", "two")
	for _, clientEra := range harness.Eras {
		for _, up := range harness.Eras {
			harness.RunPair(t, clientEra, up, "stdio", func(t *testing.T, p harness.Pair) {
				if clientEra == client.EraModern {
					harness.InMemory(t, ownServers)
				}
				s := p.Serve(t, upstreamtest.Script{Tools: changing})
				s.Config.Isolation = upstream.IsolationPrincipal
				j := harness.Start(t, p, harness.Setup{Upstreams: map[string]upstream.Config{"up": s.Config}, Guard: guard})
				j.Offers(t, "up")
				one, two := j.As(t, keys["one"]), j.As(t, keys["two"])
				two.Succeed(t, "up__whoami", `{}`)
				one.Succeed(t, "up__whoami", `{}`)
				hears, silent := one.HearTools(t), two.HearTools(t)
				more, err := json.Marshal(append(harness.Definitions("late"), changing...))
				if err != nil {
					t.Fatal(err)
				}
				one.Succeed(t, "up__settools", `{"tools":`+string(more)+`}`)
				if m, ok := hears.Next(t); !ok || m.Method != "notifications/tools/list_changed" {
					t.Fatalf("the client hears %s, want that its tools have changed", m.Append(nil))
				}
				if got := one.Names(t); !slices.Contains(got, "up__late") {
					t.Errorf("tools of one = %q, want up__late among them", got)
				}
				one.Succeed(t, "up__late", `{}`)
				if got := two.Names(t); slices.Contains(got, "up__late") {
					t.Errorf("tools of two = %q, want no up__late", got)
				}
				harness.WantCode(t, two.Call(t, "up__late", `{}`), -32602)
				silent.WantSilence(t)
			})
		}
	}
}
